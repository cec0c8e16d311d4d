//! How objects are called: `/stripewise-ID/SERVER` is a server of the cluster with that id. Below it lie
//!
//! | name | what |
//! |---|---|
//! | `server` | the marker: which cluster and server this is, and on which I/O server its objects lie |
//! | `FILE/` | what there is of one managed file |
//! | `FILE/description` | its description |
//! | `FILE/REGION.GENERATION` | an object |

use stripewise_layout::{FileId, Generation, RegionIndex};
use stripewise_store::server::ObjectName;

/// Name of the marker.
pub(super) const MARKER: &str = "server";
/// Name of a file's description.
pub(super) const DESCRIPTION: &str = "description";
/// A description that is to take the place of another.
pub(super) const NEXT_DESCRIPTION: &str = "description.next";

/// Name of the directory of a cluster.
pub(super) fn directory_of_cluster(cluster: &str) -> String {
    format!("stripewise-{cluster}")
}

/// Name of an object in its file's directory.
pub(super) fn name_of(object: ObjectName) -> String {
    format!("{}.{}", object.region, object.generation)
}

/// The object of a file that has this name; `None` of what is no object.
pub(super) fn object_of(file: FileId, name: &str) -> Option<ObjectName> {
    let (region, generation) = name.split_once('.')?;
    let (region, generation) = (RegionIndex(region.parse().ok()?), Generation(generation.parse().ok()?));
    let object = ObjectName { file, region, generation };
    (name_of(object) == name).then_some(object)
}

/// What a marker says.
pub(super) fn marker_of(cluster: &str, server: &str, io_server: &str) -> String {
    format!("cluster {cluster}\nserver {server}\nio_server {io_server}\n")
}

/// The I/O server that a marker of this cluster and server names.
pub(super) fn io_server_in<'m>(marker: &'m str, cluster: &str, server: &str) -> Option<&'m str> {
    let rest = marker.strip_prefix(&format!("cluster {cluster}\nserver {server}\nio_server "))?;
    rest.strip_suffix('\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_markers_say_what_they_were_made_of() {
        let object = ObjectName { file: FileId(7), region: RegionIndex(3), generation: Generation(1 << 31 | 2) };
        assert_eq!(object_of(object.file, &name_of(object)), Some(object));
        for name in [DESCRIPTION, NEXT_DESCRIPTION, MARKER, "3", "3.x", "03.2", "3.2 "] {
            assert_eq!(object_of(object.file, name), None, "{name}");
        }
        let marker = marker_of("c0ffee", "s0", "tcp://io0:3334");
        assert_eq!(io_server_in(&marker, "c0ffee", "s0"), Some("tcp://io0:3334"));
        assert_eq!(io_server_in(&marker, "c0ffee", "s1"), None);
        assert_eq!(io_server_in(&marker[..marker.len() - 1], "c0ffee", "s0"), None, "half of it was written");
    }
}
