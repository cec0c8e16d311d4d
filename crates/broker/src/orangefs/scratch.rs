//! Objects to measure an I/O server by: below `/stripewise-ID.scratch`, beside those of the cluster.

use super::file_system::FileSystem;
use super::kept::Kept;
use super::library::Reference;
use super::names::directory_of_cluster;
use super::preparing::reach;
use super::tree::{Tree, directory_in};
use super::{OrangeError, OrangeServer};
use crate::scratch::Scratch;
use std::collections::BTreeSet;
use std::sync::Arc;
use stripewise_layout::ServerUrl;
use stripewise_store::server::{ObjectName, ObjectStore, ServerError};

struct OrangeScratch {
    server: OrangeServer,
    /// The directory above that of the server, and its name.
    above: (Reference, String),
}

/// Looks at server `name` of a cluster, and removes what an earlier one of these left behind.
///
/// # Errors
/// As [`super::open`].
pub fn scratch(cluster: &str, name: &str, url: &ServerUrl) -> Result<Box<dyn Scratch>, ServerError> {
    let unusable = |what: String| ServerError::Unusable { server: name.to_owned(), what };
    OrangeServer::open(cluster, name, url)?;
    let (file_system, io_server) = reach(url).map_err(unusable)?;
    let above = directory_of_cluster(&format!("{cluster}.scratch"));
    let path = format!("/{above}/{name}");
    let directories = directories_in(&file_system, &above, name, &path);
    let (parent, directory) = directories.map_err(|error| unusable(error.to_string()))?;
    let server = OrangeServer {
        cluster: cluster.to_owned(),
        name: name.to_owned(),
        tree: Tree::new(file_system, io_server, directory, path),
        objects: Kept::new(),
    };
    let scratch = OrangeScratch { server, above: (parent, above) };
    scratch.clear().map_err(|error| unusable(error.to_string()))?;
    Ok(Box::new(scratch))
}

fn directories_in(
    file_system: &Arc<FileSystem>,
    above: &str,
    name: &str,
    path: &str,
) -> Result<(Reference, Reference), OrangeError> {
    let parent = directory_in(file_system, file_system.root(), above, path)?;
    Ok((parent, directory_in(file_system, parent, name, path)?))
}

impl OrangeScratch {
    fn clear(&self) -> Result<(), OrangeError> {
        self.server.tree.files()?.into_iter().try_for_each(|file| self.server.tree.empty(file))
    }

    fn remove(&self) -> Result<(), OrangeError> {
        self.clear()?;
        let Tree { file_system, path, .. } = &self.server.tree;
        file_system.remove(self.above.0, &self.server.name, path)?;
        // The last server's.
        file_system.remove(file_system.root(), &self.above.1, path)
    }
}

impl Scratch for OrangeScratch {
    fn store(&self) -> &dyn ObjectStore {
        &self.server
    }

    fn devices(&self, _: &[ObjectName]) -> Result<BTreeSet<String>, ServerError> {
        let Tree { file_system, io_server, .. } = &self.server.tree;
        Ok(BTreeSet::from([format!("I/O server {} of {}", io_server.text, file_system.name())]))
    }

    fn remark(&self) -> &'static str {
        "measured through libpvfs2, without the way of a program's requests through the broker; writes with a flush behind each, and what its I/O server holds in memory is read from there"
    }
}

impl Drop for OrangeScratch {
    fn drop(&mut self) {
        // What stays where a server does not answer is removed by the next one.
        let _ = self.remove();
    }
}
