//! `rados://POOL`: a pool of a Ceph cluster, served by the broker (its module `rados`).

use super::{Capabilities, FreeSpace, Kind, ServerError, Syncing};
use stripewise_layout::ServerUrl;

/// What URLs begin with.
pub const SCHEME: &str = "rados";
/// Path of `ceph.conf`; Ceph's usual places unless given.
pub const CONF: &str = "conf";
/// The user, as in `client.USER`; `admin` unless given.
pub const USER: &str = "user";

/// `rados://`
pub(super) const KIND: Kind = Kind {
    scheme: SCHEME,
    by_agent: Some(CAPABILITIES),
    check,
    open: |opening| {
        let what = "the broker reaches it, and this process has none; use `stripewise run`".to_owned();
        Err(ServerError::Unusable { server: opening.name.to_owned(), what })
    },
};

/// Longest object that a Ceph takes unless it was configured otherwise (`osd_max_object_size`), in bytes.
pub const MAX_OBJECT_BYTES: u64 = 128 << 20;

/// What a pool can do, seen from the broker and from a process whose requests pass through it.
pub const CAPABILITIES: Capabilities = Capabilities {
    plain_descriptors: false,
    overlaps: true,
    ownership: false,
    syncing: Syncing::Nothing,
    guarded_writes: true,
    fences_hosts: true,
    max_object_bytes: MAX_OBJECT_BYTES,
    coherent_between_hosts: true,
    free_space: FreeSpace::OfFileSystem,
};

/// What a URL says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RadosUrl {
    /// Name of the pool.
    pub pool: String,
    /// See [`CONF`].
    pub conf: Option<String>,
    /// See [`USER`].
    pub user: Option<String>,
}

impl RadosUrl {
    /// Reads a URL of this kind.
    ///
    /// # Errors
    /// The URL, what is wrong with it, and what is known instead.
    pub fn parse(url: &ServerUrl) -> Result<Self, String> {
        let pool = url.directory().to_str().unwrap_or_default();
        let mut read = Self { pool: pool.to_owned(), ..Self::default() };
        for parameter in url.parameters() {
            match parameter.split_once('=') {
                Some((CONF, path)) if path.starts_with('/') => read.conf = Some(path.to_owned()),
                Some((USER, user)) if !user.is_empty() => read.user = Some(user.to_owned()),
                _ => return Err(format!("`{url}`: unknown parameter `{parameter}`; known: {CONF}=/PATH, {USER}=NAME")),
            }
        }
        Ok(read)
    }

    /// The URL that says so.
    ///
    /// # Errors
    /// What cannot be said in a URL.
    pub fn to_url(&self) -> Result<ServerUrl, String> {
        let conf = self.conf.as_ref().map(|conf| format!("{CONF}={conf}"));
        let user = self.user.as_ref().map(|user| format!("{USER}={user}"));
        let parameters: Vec<_> = conf.into_iter().chain(user).collect();
        let question = if parameters.is_empty() { "" } else { "?" };
        let text = format!("{SCHEME}://{}{question}{}", self.pool, parameters.join("&"));
        let url: ServerUrl = text.parse()?;
        check(&url)?;
        match Self::parse(&url)? == *self {
            true => Ok(url),
            false => Err(format!("`{text}` would be read as another one")),
        }
    }
}

fn check(url: &ServerUrl) -> Result<(), String> {
    if url.directory().components().count() != 1 || url.directory().is_absolute() {
        return Err(format!("`{url}`: write {SCHEME}://POOL with the name of one pool"));
    }
    RadosUrl::parse(url).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_pool_and_how_it_is_reached() {
        let read = |text: &str| {
            let url: ServerUrl = text.parse().unwrap();
            check(&url).and_then(|()| RadosUrl::parse(&url))
        };
        let plain = RadosUrl { pool: "hdd0".to_owned(), ..RadosUrl::default() };
        assert_eq!(read("rados://hdd0"), Ok(plain.clone()));
        let conf = Some("/etc/other.conf".to_owned());
        let full = RadosUrl { conf, user: Some("stripewise".to_owned()), ..plain };
        assert_eq!(read("rados://hdd0?conf=/etc/other.conf&user=stripewise"), Ok(full.clone()));
        for url in
            [full.clone(), RadosUrl { conf: None, ..full.clone() }, RadosUrl { pool: "a.b".to_owned(), ..full.clone() }]
        {
            assert_eq!(RadosUrl::parse(&url.to_url().unwrap()), Ok(url));
        }
        for pool in ["a/b", "", "a?user=b", "a&b=c"] {
            let url = RadosUrl { pool: pool.to_owned(), ..full.clone() };
            assert!(url.to_url().is_err() || RadosUrl::parse(&url.to_url().unwrap()) == Ok(url), "{pool}");
        }
        for (url, expected) in [
            ("rados:///hdd0", "name of one pool"),
            ("rados://a/b", "name of one pool"),
            ("rados://a?conf=relative", "known: conf=/PATH, user=NAME"),
            ("rados://a?colour=red", "unknown parameter `colour=red`"),
        ] {
            assert!(read(url).unwrap_err().contains(expected), "{url}: {:?}", read(url));
        }
    }
}
