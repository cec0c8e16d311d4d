//! Which files are managed.

use crate::paths::{PlaceError, real};
use crate::store::{Store, StoreError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use stripewise_layout::{FileId, Server, ServerClass};
use stripewise_store::protocol::{FileInfo, ServerUsage};
use thiserror::Error;

/// Why managed files are not listed.
#[derive(Debug, Error)]
pub enum ListError {
    /// The broker cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A path could not be made absolute.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// A managed file.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ListedFile {
    /// Where its stub was last seen.
    pub path: String,
    /// Its id.
    pub file: FileId,
    /// Logical size.
    pub size_bytes: u64,
    /// Size of a region.
    pub region_bytes: u64,
    /// Regions that have objects.
    pub regions_placed: u32,
    /// Processes that have it open.
    pub users: u32,
    /// `creating`, `live`, `importing`, `releasing` or `unlinked`.
    pub state: String,
    /// Size below which the file becomes an ordinary one after its last close, by the managed directory above it; absent
    /// if it is managed whatever its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size_bytes: Option<u64>,
}

impl ListedFile {
    fn of(store: &Store, file: FileInfo) -> Result<Self, StoreError> {
        Ok(Self {
            min_size_bytes: store.min_size_of(Path::new(&file.path))?,
            path: file.path,
            file: file.file,
            size_bytes: file.size_bytes,
            region_bytes: file.region_bytes,
            regions_placed: file.regions_placed,
            users: file.users,
            state: file.state,
        })
    }
}

/// Managed files and where they were looked for.
#[derive(Debug)]
pub struct Listed {
    /// In order of path.
    pub files: Vec<ListedFile>,
    /// Absolute paths of the files and directories that were asked for.
    pub below: Vec<PathBuf>,
    /// Size in bytes below which files are ordinary, of the managed directories that have one: those above and below
    /// the paths that were asked for, or all.
    pub min_size_bytes: BTreeMap<String, u64>,
}

/// What regions are promised on a server, and what they hold of that.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ListedServer {
    /// As in cluster.toml.
    pub name: String,
    /// As in cluster.toml.
    pub class: ServerClass,
    /// Bytes that placed regions and replicas may come to occupy: their full size, whatever is written.
    pub promised_bytes: u64,
    /// Bytes that they occupy now, holes excepted; `None`: the server cannot be asked.
    pub held_bytes: Option<u64>,
    /// Bytes that may be promised in all; `None`: no capacity was given.
    pub capacity_bytes: Option<u64>,
    /// Objects of places and replicas.
    pub objects: u64,
    /// Nothing new is placed there.
    pub drained: bool,
}

/// The servers in cluster order, with what all files are promised and hold there. Every object is looked at.
///
/// # Errors
///
/// [`StoreError`].
pub fn list_servers(store: &Store) -> Result<Vec<ListedServer>, StoreError> {
    let (usage, held) = (store.usage()?, store.held_by_files()?);
    let listed = |((usage, held_bytes), server): ((ServerUsage, Option<u64>), &Server)| ListedServer {
        name: usage.name,
        class: server.class,
        promised_bytes: usage.promised_bytes,
        held_bytes,
        capacity_bytes: usage.room_bytes,
        objects: usage.objects,
        drained: usage.drained,
    };
    Ok(usage.into_iter().zip(held).zip(&store.cluster.servers).map(listed).collect())
}

/// All managed files, or those at and below `paths` unless that is empty.
///
/// # Errors
///
/// [`ListError`].
pub fn list(store: &Store, paths: &[PathBuf]) -> Result<Listed, ListError> {
    let below = paths.iter().map(|path| real(path)).collect::<Result<Vec<PathBuf>, _>>()?;
    let is_wanted = |path: &str| below.is_empty() || below.iter().any(|above| Path::new(path).starts_with(above));
    let files = store.files()?.into_iter().filter(|file| is_wanted(&file.path));
    let files = files.map(|file| ListedFile::of(store, file)).collect::<Result<Vec<ListedFile>, StoreError>>()?;
    let mut min_size_bytes: BTreeMap<String, u64> =
        store.client.min_sizes().iter().filter(|(directory, _)| is_wanted(directory)).cloned().collect();
    for path in &below {
        let above = store.client.min_size_above(path);
        min_size_bytes.extend(above.map(|(directory, bytes)| (directory.to_owned(), bytes)));
    }
    Ok(Listed { files, below, min_size_bytes })
}
