//! `orangefs://SERVER?fs=tcp://HOST:PORT/NAME`: an I/O server of an OrangeFS file system, reached by the broker (its module `orangefs`).

use super::{Capabilities, FreeSpace, Kind, ServerError, Syncing};
use stripewise_layout::ServerUrl;

/// What URLs begin with.
pub const SCHEME: &str = "orangefs";
/// The file system, by a server that gives its configuration.
const FILE_SYSTEM: &str = "fs";

/// Objects have no owners that Stripewise sets, lie in page caches of I/O servers until they are flushed, and can be written by whoever has the right, late or not.
pub const CAPABILITIES: Capabilities = Capabilities {
    plain_descriptors: false,
    overlaps: true,
    ownership: false,
    syncing: Syncing::DataAndNames,
    guarded_writes: false,
    fences_hosts: false,
    max_object_bytes: i64::MAX as u64,
    coherent_between_hosts: true,
    free_space: FreeSpace::OfFileSystem,
};

/// `orangefs://`
pub(super) const KIND: Kind = Kind {
    scheme: SCHEME,
    by_agent: Some(CAPABILITIES),
    check,
    open: |opening| {
        let what = "the broker reaches it, and this process has none; use `stripewise run`".to_owned();
        Err(ServerError::Unusable { server: opening.name.to_owned(), what })
    },
};

/// What a URL says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrangeUrl {
    /// The I/O server: `HOST:PORT`, or `HOST` where it has one I/O server.
    pub server: String,
    /// `tcp://HOST:PORT/NAME`, or another transport of OrangeFS.
    pub file_system: String,
}

impl OrangeUrl {
    /// Reads a URL of this kind.
    ///
    /// # Errors
    /// The URL, what is wrong with it, and what is known instead.
    pub fn parse(url: &ServerUrl) -> Result<Self, String> {
        // A cluster file's relative directories start beside it; a server has no place.
        let server = url.directory().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let mut file_system = None;
        for parameter in url.parameters() {
            match parameter.split_once('=') {
                Some((FILE_SYSTEM, value)) if is_file_system(value) => file_system = Some(value.to_owned()),
                _ => {
                    return Err(format!(
                        "`{url}`: unknown parameter `{parameter}`; known: {FILE_SYSTEM}=tcp://HOST:PORT/NAME"
                    ));
                }
            }
        }
        let file_system = file_system
            .ok_or_else(|| format!("`{url}` needs ?{FILE_SYSTEM}=tcp://HOST:PORT/NAME, as in /etc/pvfs2tab"))?;
        Ok(Self { server: server.to_owned(), file_system })
    }
}

/// `TRANSPORT://PLACE/NAME`
fn is_file_system(text: &str) -> bool {
    let Some((transport, rest)) = text.split_once("://") else { return false };
    let is_whole = |(place, name): (&str, &str)| !place.is_empty() && !name.is_empty() && !name.contains('/');
    !transport.is_empty() && rest.split_once('/').is_some_and(is_whole)
}

fn check(url: &ServerUrl) -> Result<(), String> {
    if url.directory().components().count() != 1 || url.directory().is_absolute() {
        return Err(format!("`{url}`: write {SCHEME}://HOST:PORT with the address of one I/O server"));
    }
    OrangeUrl::parse(url).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_an_io_server_and_its_file_system() {
        let read = |text: &str| {
            let url: ServerUrl = text.parse().unwrap();
            check(&url).and_then(|()| OrangeUrl::parse(&url))
        };
        let file_system = "tcp://meta:3334/orangefs".to_owned();
        let expected = OrangeUrl { server: "io0:3334".to_owned(), file_system };
        assert_eq!(read("orangefs://io0:3334?fs=tcp://meta:3334/orangefs"), Ok(expected));
        for (url, expected) in [
            ("orangefs://io0:3334", "needs ?fs=tcp://HOST:PORT/NAME"),
            ("orangefs:///io0?fs=tcp://meta:3334/a", "address of one I/O server"),
            ("orangefs://io0/a?fs=tcp://meta:3334/a", "address of one I/O server"),
            ("orangefs://io0?fs=meta:3334/a", "known: fs=tcp://HOST:PORT/NAME"),
            ("orangefs://io0?fs=tcp://meta:3334", "known: fs="),
            ("orangefs://io0?fs=tcp://meta:3334/a/b", "known: fs="),
            ("orangefs://io0?fs=tcp://meta:3334/a&x=y", "unknown parameter `x=y`"),
        ] {
            assert!(read(url).unwrap_err().contains(expected), "{url}: {:?}", read(url));
        }
    }
}
