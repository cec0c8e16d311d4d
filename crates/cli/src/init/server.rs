//! Servers that are directories of this host's mounts, as `--server` names them.

use anyhow::{Result, bail};
use rustix::fs::{Access, access};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use stripewise::paths::absolute;
use stripewise_layout::{ByteCount, Server, ServerClass, ServerUrl};

/// `NAME=CLASS:DIR[:CAPACITY]`.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct NamedServer {
    name: String,
    class: ServerClass,
    directory: PathBuf,
    capacity: Option<ByteCount>,
}

impl FromStr for NamedServer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once('=').ok_or("write NAME=hdd:DIR or NAME=ssd:DIR[:CAPACITY]")?;
        let (class, place) = rest.split_once(':').ok_or("write hdd: or ssd: before the directory")?;
        let class = match class {
            "hdd" => ServerClass::Hdd,
            "ssd" => ServerClass::Ssd,
            other => return Err(format!("unknown class `{other}`; known: hdd, ssd")),
        };
        // A colon may be part of the directory; only what reads as a size after the last one is a capacity.
        let (directory, capacity) = match place.rsplit_once(':') {
            Some((directory, size)) if !size.contains('/') => match size.parse::<ByteCount>() {
                Ok(capacity) => (directory, Some(capacity)),
                Err(error) => return Err(error.to_string()),
            },
            _ => (place, None),
        };
        if directory.is_empty() {
            return Err("no directory is named".to_owned());
        }
        Ok(Self { name: name.to_owned(), class, directory: directory.into(), capacity })
    }
}

impl NamedServer {
    pub(super) fn to_server(&self) -> Result<Server> {
        let url = ServerUrl::File { directory: absolute(&self.directory)? };
        Ok(Server { capacity: self.capacity, ..Server::new(&self.name, self.class, url) })
    }
}

/// That a server's directory is there and can be written to.
pub(super) fn check_directory(server: &Server) -> Result<()> {
    let directory = server.url.directory();
    if !directory.is_dir() {
        bail!("server `{}`: there is no directory {}; mount or make it first", server.name, directory.display());
    }
    check_writable(directory, &format!("server `{}`", server.name))
}

pub(super) fn check_writable(directory: &Path, whose: &str) -> Result<()> {
    if let Err(error) = access(directory, Access::WRITE_OK | Access::EXEC_OK) {
        bail!("{whose}: {} is not writable ({error}); change its mode or owner", directory.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_read_from_the_command_line() {
        let server: NamedServer = "ssd0=ssd:/mnt/nvme:100GiB".parse().unwrap();
        assert_eq!((server.class, server.capacity), (ServerClass::Ssd, Some(ByteCount(100 << 30))));
        assert_eq!(server.directory, Path::new("/mnt/nvme"));
        let server: NamedServer = "a=hdd:/mnt/odd:/name".parse().unwrap();
        assert_eq!((server.directory.as_path(), server.capacity), (Path::new("/mnt/odd:/name"), None));
        for (text, expected) in [
            ("hdd:/mnt/a", "NAME="),
            ("a=/mnt/a", "hdd: or ssd:"),
            ("a=tape:/mnt/a", "unknown class `tape`"),
            ("a=hdd:", "no directory"),
            ("a=hdd:/mnt/a:much", "`much` is not a size"),
        ] {
            let error = text.parse::<NamedServer>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
