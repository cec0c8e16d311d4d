//! Servers that are directories of this host's mounts, as `--server` names them.

use super::InitError;
use crate::layouts::{UnknownClass, class};
use crate::paths::{PlaceError, absolute};
use rustix::fs::{Access, access};
use std::path::PathBuf;
use std::str::FromStr;
use stripewise_layout::{ByteCount, ParseSizeError, Server, ServerClass, ServerUrl};
use stripewise_store::server::{check_url, directory, is_by_agent};
use thiserror::Error;

/// A server with a name. As text `NAME=CLASS:DIR[:CAPACITY]`, or with the URL of a server that the broker alone reaches in the place of the directory.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedServer {
    /// Its name in the cluster.
    pub name: String,
    /// Slow or fast.
    pub class: ServerClass,
    /// Where its objects are.
    pub place: Place,
    /// Bytes that may be used there; `None`: all of the file system.
    pub capacity: Option<ByteCount>,
}

/// Where a server's objects are.
#[derive(Clone, PartialEq, Debug)]
pub enum Place {
    /// A directory on a mount of this host.
    Directory(PathBuf),
    /// What the broker alone reaches.
    Url(ServerUrl),
}

/// A text that names no server.
#[derive(Debug, Error)]
pub enum ParseServerError {
    /// There is no `=`.
    #[error("write NAME=hdd:DIR or NAME=ssd:DIR[:CAPACITY]")]
    NoName,
    /// There is no `:`.
    #[error("write hdd: or ssd: before the directory")]
    NoClass,
    /// Nothing stands where the directory belongs.
    #[error("no directory is named")]
    NoDirectory,
    /// Another class than `hdd` and `ssd`.
    #[error(transparent)]
    Class(#[from] UnknownClass),
    /// The URL is none of a server that the broker reaches.
    #[error("{0}")]
    Url(String),
    /// The capacity is no size.
    #[error(transparent)]
    Size(#[from] ParseSizeError),
}

impl FromStr for NamedServer {
    type Err = ParseServerError;

    fn from_str(text: &str) -> Result<Self, ParseServerError> {
        let (name, rest) = text.split_once('=').ok_or(ParseServerError::NoName)?;
        let (class_text, place) = rest.split_once(':').ok_or(ParseServerError::NoClass)?;
        let class = class(class_text)?;
        // A colon may be part of the directory; only what reads as a size after the last one is a
        // capacity.
        let (directory, capacity) = match place.rsplit_once(':') {
            Some((directory, size)) if !size.contains('/') => (directory, Some(size.parse()?)),
            _ => (place, None),
        };
        if directory.is_empty() {
            return Err(ParseServerError::NoDirectory);
        }
        let place = match directory.contains("://") {
            true => Place::Url(url_of(directory).map_err(ParseServerError::Url)?),
            false => Place::Directory(directory.into()),
        };
        Ok(Self { name: name.to_owned(), class, place, capacity })
    }
}

fn url_of(text: &str) -> Result<ServerUrl, String> {
    let url: ServerUrl = text.parse()?;
    check_url(&url).map(drop)?;
    match is_by_agent(&url) {
        true => Ok(url),
        false => Err(format!("`{text}`: name the directory itself, or use --emulated")),
    }
}

impl NamedServer {
    pub(super) fn to_server(&self) -> Result<Server, PlaceError> {
        let url = match &self.place {
            Place::Directory(directory) => directory::url(absolute(directory)?),
            Place::Url(url) => url.clone(),
        };
        Ok(Server { capacity: self.capacity, ..Server::new(&self.name, self.class, url) })
    }
}

/// That a server's directory is there and can be written to.
pub(super) fn check_directory(server: &Server) -> Result<(), InitError> {
    let directory = server.url.directory();
    if !directory.is_dir() {
        return Err(InitError::NoServerDirectory { server: server.name.clone(), directory: directory.to_owned() });
    }
    check_writable(server)
}

pub(super) fn check_writable(server: &Server) -> Result<(), InitError> {
    let directory = server.url.directory();
    access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(|source| InitError::NotWritable {
        server: server.name.clone(),
        directory: directory.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_read_from_the_command_line() {
        let server: NamedServer = "ssd0=ssd:/mnt/nvme:100GiB".parse().unwrap();
        assert_eq!((server.class, server.capacity), (ServerClass::Ssd, Some(ByteCount(100 << 30))));
        assert_eq!(server.place, Place::Directory("/mnt/nvme".into()));
        let server: NamedServer = "a=hdd:/mnt/odd:/name".parse().unwrap();
        assert_eq!((server.place, server.capacity), (Place::Directory("/mnt/odd:/name".into()), None));
        let server: NamedServer = "a=hdd:rados://slow?conf=/etc/c.conf:1TiB".parse().unwrap();
        let url = "rados://slow?conf=/etc/c.conf".parse().unwrap();
        assert_eq!((server.place, server.capacity), (Place::Url(url), Some(ByteCount(1 << 40))));
        for (text, expected) in [
            ("hdd:/mnt/a", "NAME="),
            ("a=/mnt/a", "hdd: or ssd:"),
            ("a=tape:/mnt/a", "unknown class `tape`"),
            ("a=hdd:", "no directory"),
            ("a=hdd:/mnt/a:much", "`much` is not a size"),
            ("a=hdd:file:///mnt/a", "name the directory itself"),
            ("a=hdd:rados://a/b", "the name of one pool"),
        ] {
            let error = text.parse::<NamedServer>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
