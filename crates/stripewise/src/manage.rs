//! Directories whose new files become managed.

use crate::applied::{self, AppliedError};
use crate::layouts::{self, PlacementError};
use crate::limits::{self, LimitError};
use crate::messages::{printable, shown};
use crate::own_places::{self, OwnPlace};
use crate::paths::{OnPath as _, PathError, PlaceError, absolute, real};
use crate::store::{Store, StoreError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use stripewise_layout::{ByteCount, ServerClass};
use stripewise_store::protocol::{Admin, Reply};
use thiserror::Error;

/// Why a directory does not become managed, or stays so.
#[derive(Debug, Error)]
pub enum ManageError {
    /// The cluster cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no such placement.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The directory cannot be found.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The path could not be made absolute.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A stripe that no server can have.
    #[error("--stripe {stripe}: a stripe is a multiple of 512 bytes, below 4GiB")]
    Stripe {
        /// As asked.
        stripe: ByteCount,
    },
    /// No file can have such regions.
    #[error("--region {region}: a region is a multiple of 4KiB and has at least 4KiB")]
    Region {
        /// As asked.
        region: ByteCount,
    },
    /// A server cannot do what is asked.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// No file is smaller.
    #[error("--min-size 0: no file is smaller than that; leave the option out and all new files are managed")]
    MinSize,
    /// A file, or something else.
    #[error("{} is no directory; make it first", printable(directory, false))]
    NoDirectory {
        /// Absolute path.
        directory: String,
    },
    /// The cluster's own directory.
    #[error(transparent)]
    Own(#[from] OwnPlace),
    /// A name that no managed directory can have.
    #[error("{} is not UTF-8; managed directories have names in UTF-8", shown(path))]
    NotUtf8 {
        /// Absolute path.
        path: PathBuf,
    },
    /// What applied plans say could not be changed.
    #[error(transparent)]
    Applied(#[from] AppliedError),
    /// No plan names it.
    #[error(
        "no plan expects {} or files below it; `stripewise manage` lists what plans expect",
        printable(path, false)
    )]
    NotExpected {
        /// Absolute path.
        path: String,
    },
    /// New files below it are ordinary.
    #[error("{} is not a managed directory; `stripewise manage` lists them", printable(directory, false))]
    NotManaged {
        /// Absolute path.
        directory: String,
    },
}

type Result<T> = std::result::Result<T, ManageError>;

/// What new files below a directory get.
#[derive(Clone, Debug)]
pub struct ManageOptions {
    /// The directory.
    pub directory: PathBuf,
    /// Bytes on one server before the next one's turn: a multiple of 512.
    pub stripe: ByteCount,
    /// Only servers of this class; `None`: all servers.
    pub class: Option<ServerClass>,
    /// Size of the files' regions, a multiple of 4 KiB; `None`: the cluster's.
    pub region: Option<ByteCount>,
    /// Files that nobody has open are ordinary below this size and managed above it; `None`: whatever their size, new files are managed.
    pub min_size: Option<ByteCount>,
}

/// A directory that became managed, or no longer is.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ManagedDirectory {
    /// Absolute path without links.
    pub directory: String,
    /// Size below which its files are ordinary; absent if they are managed whatever their size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size_bytes: Option<u64>,
}

/// Which new files become managed.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ManagedPaths {
    /// Absolute paths of managed directories.
    pub directories: Vec<String>,
    /// Absolute paths of files that plans expect.
    pub expected: Vec<String>,
    /// Size in bytes below which files are ordinary, of the managed directories that have one.
    pub min_size_bytes: BTreeMap<String, u64>,
}

/// The managed directories, and the files that plans expect.
pub fn managed_paths(store: &Store) -> ManagedPaths {
    let (directories, expected) = (store.client.managed_directories(), store.client.expected_paths());
    let min_size_bytes = store.client.min_sizes().iter().cloned().collect();
    ManagedPaths { directories: directories.to_vec(), expected: expected.to_vec(), min_size_bytes }
}

/// Makes files managed that redirected programs create below a directory. Files that are there
/// already stay as they are.
///
/// # Errors
///
/// [`ManageError`]; the directory is as before then.
pub fn manage(store: &Store, options: &ManageOptions) -> Result<ManagedDirectory> {
    let ManageOptions { directory, stripe, class, region, min_size } = options;
    let stripe_bytes = u32::try_from(stripe.0).ok().filter(|size| *size >= 512 && size.is_multiple_of(512));
    let stripe_bytes = stripe_bytes.ok_or(ManageError::Stripe { stripe: *stripe })?;
    let mut placement = layouts::placement(&store.cluster, *class, stripe_bytes)?;
    if let Some(region) = *region {
        if region.0 < 4096 || !region.0.is_multiple_of(4096) {
            return Err(ManageError::Region { region });
        }
        limits::check_region(&store.cluster, region)?;
        placement.region_size = region;
    }
    let directory = real_name(directory)?;
    if !Path::new(&directory).is_dir() {
        return Err(ManageError::NoDirectory { directory });
    }
    own_places::refuse(&store.cluster, Path::new(&directory))?;
    let min_bytes = min_size.map(|size| size.0);
    if min_bytes == Some(0) {
        return Err(ManageError::MinSize);
    }
    store.done(Admin::Manage { directory: directory.clone(), placement, min_bytes })?;
    Ok(ManagedDirectory { directory, min_size_bytes: min_bytes })
}

/// Lets new files below a directory be ordinary again. Files that are managed stay so.
///
/// # Errors
///
/// [`ManageError::NotManaged`], [`ManageError::Place`] or [`ManageError::Store`].
pub fn unmanage(store: &Store, directory: &Path) -> Result<ManagedDirectory> {
    // A directory that is gone has no real path; the table may still name it.
    let directory = match real_name(directory) {
        Ok(directory) => directory,
        Err(_) => absolute(directory)?.to_string_lossy().into_owned(),
    };
    if !store.client.managed_directories().contains(&directory) {
        return Err(ManageError::NotManaged { directory });
    }
    store.done(Admin::Unmanage { directory: directory.clone() })?;
    Ok(ManagedDirectory { directory, min_size_bytes: None })
}

/// Names that plans expect no longer.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ForgottenNames {
    /// Absolute path of the file, or of the directory that they are below.
    pub path: String,
    /// How many there were.
    pub forgotten: u64,
}

/// New files at `path` and below it are no longer placed as plans have it, neither by the broker nor by a later run of the applied plans.
/// Files that are managed stay so.
///
/// # Errors
///
/// [`ManageError::NotExpected`] if no plan names such a file; [`ManageError::Place`], [`ManageError::Applied`] or [`ManageError::Store`].
pub fn forget_expected(store: &Store, path: &Path) -> Result<ForgottenNames> {
    let path = real(path)?.into_os_string().into_string();
    let path = path.map_err(|path| ManageError::NotUtf8 { path: path.into() })?;
    // First the plans: a run that starts meanwhile hands its names to the broker again.
    let planned = applied::forget(&store.cluster, &path)?;
    let Reply::Forgotten { names } = store.admin(Admin::ForgetExpected { path: path.clone() })? else {
        return Err(StoreError::Answer { question: "forgetting expected names" }.into());
    };
    if names.max(planned) == 0 {
        return Err(ManageError::NotExpected { path });
    }
    Ok(ForgottenNames { path, forgotten: names.max(planned) })
}

/// Real path in UTF-8.
fn real_name(directory: &Path) -> Result<String> {
    let real = std::fs::canonicalize(directory).on("find", directory)?;
    real.into_os_string().into_string().map_err(|path| ManageError::NotUtf8 { path: path.into() })
}
