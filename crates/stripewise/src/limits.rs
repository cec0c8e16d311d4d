//! What a cluster with pools cannot do, found out before anything is placed.

use crate::messages::shown;
use stripewise_layout::figures::bytes;
use stripewise_layout::{ByteCount, Cluster, Server};
use stripewise_store::server::capabilities_by_agent;
use thiserror::Error;

/// What a server of the cluster cannot do.
#[derive(Debug, Error)]
pub enum LimitError {
    /// A region may lie on one server alone, whose object is then as long as the region.
    #[error(
        "regions of {} do not fit server {server}, whose objects have at most {}: choose regions of {most} or less",
        bytes(region.0),
        bytes(most.0)
    )]
    Region {
        /// Of the files meant.
        region: ByteCount,
        /// Name of the first such server.
        server: String,
        /// Longest object there.
        most: ByteCount,
    },
    /// Logs of fragments are read and written by programs themselves.
    #[error(
        "space is set aside for fragments, and programs do not reach server {server} themselves, so it takes part in none: take `fragments` and `fragment_room` out of {path}"
    )]
    Fragments {
        /// Name of the first such server.
        server: String,
        /// The cluster file.
        path: String,
    },
}

fn first_pool(cluster: &Cluster, is_meant: impl Fn(u64) -> bool) -> Option<(&Server, u64)> {
    let most = |server: &Server| capabilities_by_agent(&server.url).map(|able| able.max_object_bytes);
    cluster.servers.iter().find_map(|server| Some((server, most(server).filter(|most| is_meant(*most))?)))
}

/// That every server can hold a whole region of this size.
///
/// # Errors
/// [`LimitError::Region`].
pub fn check_region(cluster: &Cluster, region: ByteCount) -> Result<(), LimitError> {
    match first_pool(cluster, |most| region.0 > most) {
        Some((server, most)) => Err(LimitError::Region { region, server: server.name.clone(), most: ByteCount(most) }),
        None => Ok(()),
    }
}

/// That the cluster of the file at `path` asks nothing of pools that they cannot do.
///
/// # Errors
/// [`LimitError`].
pub fn check(cluster: &Cluster, path: &std::path::Path) -> Result<(), LimitError> {
    check_region(cluster, cluster.region_size)?;
    match first_pool(cluster, |_| cluster.has_fragment_capacity()) {
        Some((server, _)) => Err(LimitError::Fragments { server: server.name.clone(), path: shown(path) }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn cluster(keys: &str, url: &str) -> Cluster {
        let servers = format!(
            "[[server]]\nname = \"h\"\nclass = \"hdd\"\nurl = \"file:///h\"\n[[server]]\nname = \"s\"\nclass = \"ssd\"\nurl = \"{url}\"\ncapacity = \"1GiB\"\n"
        );
        let text = format!("version = 1\nid = \"c\"\nstate = \"s\"\n{keys}\n{servers}");
        Cluster::parse(&text, Path::new("/x/cluster.toml")).unwrap()
    }

    #[test]
    fn pools_bound_regions_and_take_no_fragments() {
        let found =
            |keys, url| check(&cluster(keys, url), Path::new("/x/cluster.toml")).map_err(|error| error.to_string());
        for url in ["file:///s", "rados://s"] {
            assert_eq!(found("region = \"128MiB\"", url), Ok(()));
        }
        assert_eq!(found("region = \"129MiB\"\nfragments = true", "file:///s"), Ok(()));
        let region = found("region = \"129MiB\"", "rados://s").unwrap_err();
        assert_eq!(
            region,
            "regions of 129 MiB do not fit server s, whose objects have at most 128 MiB: choose regions of 128MiB or less"
        );
        let fragments = found("fragments = true", "rados://s").unwrap_err();
        assert!(fragments.contains("do not reach server s themselves"), "{fragments}");
    }
}
