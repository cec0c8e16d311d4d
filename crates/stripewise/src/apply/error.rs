//! Why a plan is not applied.

use crate::applied::AppliedError;
use crate::limits::LimitError;
use crate::messages::shown;
use crate::named_plan::LeaveIt;
use crate::paths::{PathError, PlaceError};
use crate::replicas::ReplicaError;
use crate::store::StoreError;
use std::path::PathBuf;
use stripewise_layout::RegionIndex;
use stripewise_layout::figures::shortage;
use stripewise_planner::PlanError;
use stripewise_store::client::ClientError;
use stripewise_store::manage::ManageError;
use thiserror::Error;

/// Why a plan is not applied.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The plan is for another cluster.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The cluster cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The broker refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A file cannot be moved in.
    #[error(transparent)]
    Manage(#[from] ManageError),
    /// The system refused.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A path could not be told from the root.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Replicas could not be made.
    #[error(transparent)]
    Replicas(#[from] ReplicaError),
    /// The plan could not be kept.
    #[error(transparent)]
    Applied(#[from] AppliedError),
    /// An interrupt came.
    #[error("stopped; apply the plan again to have all its files expected")]
    Stopped,
    /// The plan is not worth its move.
    #[error(transparent)]
    LeaveIt(#[from] LeaveIt),
    /// A path that means another file in every directory.
    #[error(
        "{}: the file `{}` is named by a relative path, so nobody knows which is meant; nothing was changed. Write its path from the root",
        shown(plan),
        file.escape_debug()
    )]
    Relative {
        /// The plan's file.
        plan: PathBuf,
        /// As the plan names it.
        file: String,
    },
    /// A name that no managed file can have.
    #[error("{} is not UTF-8; managed files have names in UTF-8. Plan again, which leaves it out", shown(path))]
    NotUtf8 {
        /// Absolute path.
        path: PathBuf,
    },
    /// A server cannot do what is asked.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// It is not known what a server has free.
    #[error(transparent)]
    FreeSpace(#[from] crate::moves::capacity::CapacityError),
    /// The plan itself says that a server does not hold its share.
    #[error(
        "server {server} has space for {}, the plan needs {}; plan again with fewer files, or give it more capacity",
        shortage(*capacity_bytes, *needed_bytes).0,
        shortage(*capacity_bytes, *needed_bytes).1
    )]
    Full {
        /// Name of the server.
        server: String,
        /// What the plan counts on there.
        capacity_bytes: u64,
        /// What the plan puts there.
        needed_bytes: u64,
    },
    /// The plan has stripes on servers that take nothing new.
    #[error(
        "{} puts data on {}, which `stripewise evacuate` drained; nothing was changed. Plan again, which leaves drained servers out, or use it again \
         with `stripewise evacuate {first} --undo`",
        shown(plan),
        servers.join(", ")
    )]
    Drained {
        /// The plan's file.
        plan: PathBuf,
        /// Names of the drained servers that the plan uses.
        servers: Vec<String>,
        /// The first of them.
        first: String,
    },
    /// The file is managed already.
    #[error("{what}; to place it by another plan, `stripewise release {word}` first")]
    AlreadyManaged {
        /// What was found.
        what: String,
        /// The file as a word of a shell.
        word: String,
    },
    /// A placement that makes no sense on this cluster.
    #[error("{}: {what}", shown(path))]
    Placement {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A server has not enough left.
    #[error(
        "no space for region {region} of {}: server {server} has {} left of the {} that it needs there; nothing was moved. Free some space \
         (`stripewise release` or `stripewise rm` other files), give the server more capacity, or plan for fewer files \
         (`stripewise plan --file`) or less SSD capacity (--ssd-room)",
        shown(path),
        shortage(*left_bytes, *asked_bytes).0,
        shortage(*left_bytes, *asked_bytes).1
    )]
    NoSpace {
        /// The first region without space.
        region: RegionIndex,
        /// The file.
        path: PathBuf,
        /// Name of the server.
        server: String,
        /// Bytes that are left there.
        left_bytes: u64,
        /// Bytes that the region needs there.
        asked_bytes: u64,
    },
}
