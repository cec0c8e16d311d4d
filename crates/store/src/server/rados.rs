//! `rados://POOL`: a pool of a Ceph cluster, served by the broker (its module `rados`).

use super::throttle::{Slowness, Throttle};
use super::{Capabilities, FreeSpace, Kind, ServerError, Syncing};
use stripewise_layout::ServerUrl;

/// What URLs begin with.
pub const SCHEME: &str = "rados";
/// Path of `ceph.conf`; Ceph's usual places unless given.
pub const CONF: &str = "conf";
/// The user, as in `client.USER`; `admin` unless given.
pub const USER: &str = "user";
/// What the agent makes each request take at least: a [`Slowness`]. For experiments.
pub const THROTTLE: &str = "throttle";
/// Path of the file with the queue of a throttled server, for agents that share it.
pub const QUEUE: &str = "queue";

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
    /// See [`THROTTLE`].
    pub throttle: Option<Slowness>,
    /// See [`QUEUE`].
    pub queue: Option<String>,
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
                Some((THROTTLE, slowness)) => {
                    read.throttle = Some(slowness.parse().map_err(|what| format!("`{url}`: {what}"))?)
                }
                Some((QUEUE, path)) if path.starts_with('/') => read.queue = Some(path.to_owned()),
                _ => {
                    return Err(format!(
                        "`{url}`: unknown parameter `{parameter}`; known: {CONF}=/PATH, {USER}=NAME, {THROTTLE}=TIME+RATE, {QUEUE}=/PATH"
                    ));
                }
            }
        }
        if read.queue.is_some() && read.throttle.is_none() {
            return Err(format!("`{url}`: {QUEUE} is of a throttled server; add {THROTTLE}=TIME+RATE"));
        }
        Ok(read)
    }

    /// What stands before the server, if it is throttled.
    ///
    /// # Errors
    /// As [`Throttle::open`].
    pub fn open_throttle(&self) -> Result<Option<Throttle>, String> {
        self.throttle.map(|slowness| Throttle::open(slowness, self.queue.as_deref())).transpose()
    }

    /// The URL that says so.
    ///
    /// # Errors
    /// What cannot be said in a URL.
    pub fn to_url(&self) -> Result<ServerUrl, String> {
        let conf = self.conf.as_ref().map(|conf| format!("{CONF}={conf}"));
        let user = self.user.as_ref().map(|user| format!("{USER}={user}"));
        let throttle = self.throttle.map(|slowness| format!("{THROTTLE}={slowness}"));
        let queue = self.queue.as_ref().map(|path| format!("{QUEUE}={path}"));
        let parameters: Vec<_> = [conf, user, throttle, queue].into_iter().flatten().collect();
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
        let (throttle, queue) = (Some("8ms+100MB/s".parse().unwrap()), Some("/tmp/queue".to_owned()));
        let slow = RadosUrl { throttle, queue, ..full.clone() };
        assert_eq!(
            read("rados://hdd0?conf=/etc/other.conf&user=stripewise&throttle=8ms+100MB/s&queue=/tmp/queue"),
            Ok(slow.clone())
        );
        for url in [
            full.clone(),
            RadosUrl { conf: None, ..full.clone() },
            RadosUrl { pool: "a.b".to_owned(), ..full.clone() },
            slow,
        ] {
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
            ("rados://a?throttle=slow", "`slow`: write what each request takes"),
            ("rados://a?queue=/tmp/queue", "add throttle=TIME+RATE"),
        ] {
            assert!(read(url).unwrap_err().contains(expected), "{url}: {:?}", read(url));
        }
    }
}
