//! What makes an I/O server a server of a cluster, and whether it is the one that is meant.

use super::OrangeError;
use super::file_system::{FileSystem, IoServer};
use super::library::Reference;
use super::names::{MARKER, directory_of_cluster, io_server_in, marker_of};
use super::tree::{directory_in, if_there};
use std::sync::Arc;
use stripewise_layout::ServerUrl;
use stripewise_store::server::ServerError;
use stripewise_store::server::orangefs::OrangeUrl;

/// The file system and the I/O server of a URL.
pub(super) fn reach(url: &ServerUrl) -> Result<(Arc<FileSystem>, IoServer), String> {
    let url = OrangeUrl::parse(url)?;
    let file_system = FileSystem::open(&url.file_system).map_err(|error| error.to_string())?;
    let server = file_system.server(&url.server).map_err(|error| error.to_string())?;
    Ok((file_system, server))
}

/// Makes the I/O server of a URL the server `name` of a cluster.
///
/// # Errors
/// [`ServerError::Unusable`] where OrangeFS cannot be reached or written, or another I/O server is that server already.
pub fn prepare_url(cluster: &str, name: &str, url: &ServerUrl) -> Result<(), ServerError> {
    let unusable = |what: String| ServerError::Unusable { server: name.to_owned(), what };
    let (file_system, io_server) = reach(url).map_err(unusable)?;
    let prepared = prepare(&file_system, &io_server, cluster, name).map_err(|error| error.to_string());
    prepared.and_then(|marker| check_marker(&marker, cluster, name, &io_server)).map_err(unusable)
}

/// Makes directories and marker, where there are none. Returns what the marker says.
fn prepare(
    file_system: &Arc<FileSystem>,
    io_server: &IoServer,
    cluster: &str,
    name: &str,
) -> Result<String, OrangeError> {
    let above = directory_of_cluster(cluster);
    let path = format!("/{above}/{name}");
    let of_cluster = directory_in(file_system, file_system.root(), &above, &format!("/{above}"))?;
    let directory = directory_in(file_system, of_cluster, name, &path)?;
    let path = format!("{path}/{MARKER}");
    if let Some(found) = if_there(file_system.lookup(directory, MARKER, &path))? {
        let text = file_system.read_anywhere(found, &path)?;
        // Of a process that died before it wrote it.
        if !text.is_empty() {
            return Ok(text);
        }
        file_system.remove(directory, MARKER, &path)?;
    }
    check_distribution(file_system, io_server, directory, &path)?;
    let marker = file_system.create(directory, MARKER, io_server, &path)?;
    let text = marker_of(cluster, name, &io_server.text);
    file_system.write(marker, 0, text.as_bytes(), &path)?;
    file_system.flush(marker, &path)?;
    Ok(text)
}

/// That bytes lie in a datafile where they lie in the object: lengths of objects are those of their datafiles.
fn check_distribution(
    file_system: &Arc<FileSystem>,
    io_server: &IoServer,
    directory: Reference,
    path: &str,
) -> Result<(), OrangeError> {
    const NAME: &str = "trial";
    const FAR: u64 = (64 << 20) + 12345;
    if_there(file_system.remove(directory, NAME, path))?;
    let trial = file_system.create(directory, NAME, io_server, path)?;
    file_system.write(trial, FAR, b"x", path)?;
    let lengths = (file_system.size(trial, path)?, file_system.whole_size(trial, path)?);
    file_system.remove(directory, NAME, path)?;
    if lengths != (FAR + 1, FAR + 1) {
        let about = file_system.name().to_owned();
        let what = "its DefaultDistribution lays the bytes of one datafile elsewhere; use simple_stripe".to_owned();
        return Err(OrangeError::Unsuitable { about, what });
    }
    Ok(())
}

pub(super) fn check_marker(marker: &str, cluster: &str, name: &str, io_server: &IoServer) -> Result<(), String> {
    match io_server_in(marker, cluster, name) {
        Some(found) if found == io_server.text => Ok(()),
        Some(found) => Err(format!(
            "its objects lie on I/O server {found}, not on {}; correct its url in cluster.toml",
            io_server.text
        )),
        None => Err(format!(
            "/{}/{name}/{MARKER} is not its marker; another file system was meant",
            directory_of_cluster(cluster)
        )),
    }
}
