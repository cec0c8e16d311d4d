//! The kinds of servers whose I/O runs in the broker: how each is opened, and made a server of a cluster.

use crate::membership::Membership;
pub use crate::scratch::Scratch;
use crate::{OpenByAgent, orangefs, rados};
use stripewise_layout::{ByteCount, Server, ServerUrl};
use stripewise_store::server::{self, ObjectStore, ServerError};

/// Cluster, name and URL, and the host that opens it.
type OpenShared = fn(&str, &str, &ServerUrl, &Membership) -> Result<Box<dyn ObjectStore>, ServerError>;

/// Cluster, name and URL.
type OpenScratch = fn(&str, &str, &ServerUrl) -> Result<Box<dyn Scratch>, ServerError>;

/// Names and URLs, and how long regions are.
type Probe = fn(&[(&str, &ServerUrl)], ByteCount) -> Result<(), ServerError>;

/// A kind; its URLs are checked by the kind of the same scheme in [`server::KINDS`].
struct Kind {
    scheme: &'static str,
    open: OpenByAgent,
    /// Opens one that several hosts use at once.
    open_shared: OpenShared,
    /// Opens one beside the agent that has it, which goes on; nothing of the cluster's may be changed.
    inspect: OpenByAgent,
    /// The same, with objects to measure it by.
    scratch: OpenScratch,
    /// Whether these, with their names, can be servers with regions of this size; changes nothing. `None`: nothing is known before they are prepared.
    probe: Option<Probe>,
    /// Cluster, name and URL: repeated, it changes nothing.
    prepare: fn(&str, &str, &ServerUrl) -> Result<(), ServerError>,
}

static KINDS: [Kind; 2] = [
    Kind {
        scheme: server::rados::SCHEME,
        open: rados::open,
        open_shared: rados::open_shared,
        inspect: rados::inspect,
        scratch: rados::scratch,
        probe: Some(rados::probe),
        prepare: rados::prepare_url,
    },
    Kind {
        scheme: server::orangefs::SCHEME,
        open: orangefs::open,
        open_shared: orangefs::open_shared,
        inspect: orangefs::open,
        scratch: orangefs::scratch,
        probe: None,
        prepare: orangefs::prepare_url,
    },
];

fn kind_of(name: &str, url: &ServerUrl) -> Result<&'static Kind, ServerError> {
    KINDS.iter().find(|kind| kind.scheme == url.scheme()).ok_or_else(|| {
        let what = format!("`{url}`: the broker reaches no servers of the kind `{}`", url.scheme());
        ServerError::Unusable { server: name.to_owned(), what }
    })
}

/// Opens server `name` of a cluster.
///
/// # Errors
/// The server's, or [`ServerError::Unusable`] where its URL is none of these kinds.
pub fn open(cluster: &str, name: &str, url: &ServerUrl) -> Result<Box<dyn ObjectStore>, ServerError> {
    (kind_of(name, url)?.open)(cluster, name, url)
}

/// Opens server `name` of a cluster that several hosts share, for one of them.
///
/// # Errors
/// As [`open`]; [`ServerError::ShutOut`] where the host is not admitted any more.
pub(crate) fn open_shared(
    cluster: &str,
    name: &str,
    url: &ServerUrl,
    membership: &Membership,
) -> Result<Box<dyn ObjectStore>, ServerError> {
    (kind_of(name, url)?.open_shared)(cluster, name, url, membership)
}

/// Opens server `name` of a cluster beside the agent that has it: nobody is shut out, so nothing of the cluster's may be changed.
///
/// # Errors
/// As [`open`].
pub fn inspect(cluster: &str, name: &str, url: &ServerUrl) -> Result<Box<dyn ObjectStore>, ServerError> {
    (kind_of(name, url)?.inspect)(cluster, name, url)
}

/// Opens server `name` of a cluster to measure it, beside the agent that has it.
///
/// # Errors
/// As [`open`].
pub fn scratch(cluster: &str, name: &str, url: &ServerUrl) -> Result<Box<dyn Scratch>, ServerError> {
    (kind_of(name, url)?.scratch)(cluster, name, url)
}

/// Whether what these servers' URLs name can be servers with regions of this size. Changes nothing; servers of other kinds are passed over.
///
/// # Errors
/// Of the first that cannot.
pub fn probe<'s>(servers: impl IntoIterator<Item = &'s Server>, region: ByteCount) -> Result<(), ServerError> {
    let servers: Vec<_> = servers.into_iter().map(|server| (server.name.as_str(), &server.url)).collect();
    for kind in &KINDS {
        let Some(probe) = kind.probe else { continue };
        let of_kind: Vec<_> = servers.iter().copied().filter(|(_, url)| url.scheme() == kind.scheme).collect();
        probe(&of_kind, region)?;
    }
    Ok(())
}

/// Makes what a URL names the server `name` of a cluster.
///
/// # Errors
/// As [`open`]; where it is another server already, or cannot be one.
pub fn prepare(cluster: &str, name: &str, url: &ServerUrl) -> Result<(), ServerError> {
    (kind_of(name, url)?.prepare)(cluster, name, url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_that_the_broker_reaches_has_a_row() {
        let schemes: Vec<&str> = KINDS.iter().map(|kind| kind.scheme).collect();
        let by_agent = server::KINDS.iter().filter(|kind| kind.by_agent.is_some());
        assert_eq!(schemes, by_agent.map(|kind| kind.scheme).collect::<Vec<_>>());
        let url = "file:///a".parse().unwrap();
        let error = open("c", "s", &url).err().unwrap().to_string();
        assert!(error.contains("no servers of the kind `file`"), "{error}");
    }
}
