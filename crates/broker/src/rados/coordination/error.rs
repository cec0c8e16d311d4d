//! Why the table in a pool did not do what it was asked.

use super::super::RadosError;
use crate::rmt::RmtError;

/// Each names the object or key, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RadosTableError {
    /// Of the pool or the cluster.
    #[error(transparent)]
    Rados(#[from] RadosError),
    /// The master before could not be blocklisted.
    #[error(
        "the master before, {name}, cannot be shut out of Ceph: {source}; let this user do that (`ceph auth caps ... mon 'allow r, allow command \"osd blocklist\"'`)"
    )]
    ShutOut {
        /// Its host.
        name: String,
        /// The cause.
        source: RadosError,
    },
    /// A new cluster found the table of another.
    #[error(
        "pool {pool} holds a mapping table of cluster {cluster} already; use the cluster file that belongs to it, or name another pool"
    )]
    Taken {
        /// Name of the pool.
        pool: String,
        /// Id of that cluster.
        cluster: String,
    },
    /// The object was removed while it was in use.
    #[error(
        "pool {pool}: the object {object} is gone, and the mapping table with it; end all brokers of the cluster and run `stripewise check --repair`"
    )]
    Gone {
        /// Name of the pool.
        pool: String,
        /// Name of the object.
        object: String,
    },
    /// More than one operation may carry.
    #[error("a change of the mapping table has {bytes} bytes; in a pool it may have {limit}")]
    TooLarge {
        /// Keys and values.
        bytes: usize,
        /// The most.
        limit: usize,
    },
    /// Somebody else wrote it, or it is broken.
    #[error("pool {pool}: what key {key} of object {object} holds is damaged: {what}")]
    Damaged {
        /// Name of the pool.
        pool: String,
        /// Name of the object.
        object: String,
        /// The key.
        key: String,
        /// The fault.
        what: String,
    },
    /// A later version wrote it.
    #[error(
        "pool {pool}: key {key} of object {object} has format {found}, this stripewise reads {known}; use the stripewise that wrote it"
    )]
    Format {
        /// Name of the pool.
        pool: String,
        /// Name of the object.
        object: String,
        /// The key.
        key: String,
        /// As written.
        found: u32,
        /// As read here.
        known: u32,
    },
    /// More was changed while the table was read than is kept.
    #[error("pool {pool}: the mapping table changes faster than it can be read; try again when fewer files change")]
    Restless {
        /// Name of the pool.
        pool: String,
    },
}

impl From<RadosTableError> for RmtError {
    fn from(error: RadosTableError) -> Self {
        let is_full = matches!(error, RadosTableError::Rados(RadosError::Full { .. }));
        Self::Engine { is_full, source: Box::new(error) }
    }
}
