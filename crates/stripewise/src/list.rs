//! Which files are managed.

use crate::paths::{PlaceError, real};
use crate::store::{Store, StoreError};
use serde::Serialize;
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
}

impl From<FileInfo> for ListedFile {
    fn from(file: FileInfo) -> Self {
        Self {
            path: file.path,
            file: file.file,
            size_bytes: file.size_bytes,
            region_bytes: file.region_bytes,
            regions_placed: file.regions_placed,
            users: file.users,
            state: file.state,
        }
    }
}

/// Managed files and where they were looked for.
#[derive(Debug)]
pub struct Listed {
    /// In order of path.
    pub files: Vec<ListedFile>,
    /// Absolute paths of the files and directories that were asked for.
    pub below: Vec<PathBuf>,
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
}

/// The servers in cluster order, with what all files are promised and hold there. Every object is looked at.
///
/// # Errors
///
/// [`StoreError`].
pub fn list_servers(store: &Store) -> Result<Vec<ListedServer>, StoreError> {
    let usage = store.usage()?;
    let mut held = vec![Some(0u64); usage.len()];
    for file in store.files()? {
        for (sum, bytes) in held.iter_mut().zip(store.held_bytes(file.file)?) {
            *sum = sum.zip(bytes).map(|(sum, bytes)| sum + bytes);
        }
    }
    let listed = |((usage, held_bytes), server): ((ServerUsage, Option<u64>), &Server)| ListedServer {
        name: usage.name,
        class: server.class,
        promised_bytes: usage.promised_bytes,
        held_bytes,
        capacity_bytes: usage.room_bytes,
        objects: usage.objects,
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
    let files = store.files()?.into_iter().filter(|file| is_wanted(&file.path)).map(ListedFile::from).collect();
    Ok(Listed { files, below })
}
