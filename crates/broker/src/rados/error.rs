//! Why RADOS did not do what it was asked.

use rustix::io::Errno;
use std::path::PathBuf;

/// Why an operation failed. Each variant names what it is about.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RadosError {
    /// librados is not on this host, or is another one than is expected.
    #[error("librados cannot be loaded ({what}); install it (Debian: librados2, version 16 or later)")]
    NoLibrary {
        /// What the dynamic linker says.
        what: String,
    },
    /// The configuration of Ceph cannot be read.
    #[error("the Ceph configuration {} cannot be read: {source}", path.as_ref().map_or_else(|| "in its usual places (/etc/ceph/ceph.conf)".into(), |path| path.display().to_string()))]
    Configuration {
        /// The file; `None`: librados looked in its usual places.
        path: Option<PathBuf>,
        /// Its cause.
        source: Errno,
    },
    /// No monitor answered.
    #[error("no Ceph monitor answers ({action}: {source}); see whether the monitors of {whose} run and can be reached")]
    Unreachable {
        /// What was tried.
        action: &'static str,
        /// Path of the configuration, or where it is looked for.
        whose: String,
        /// Its cause.
        source: Errno,
    },
    /// This host has no key of the user.
    #[error(
        "this host has no key for {user}; make one (`ceph auth get-or-create {user}`) and store it where ceph.conf looks for it (/etc/ceph/ceph.{user}.keyring unless `keyring` says otherwise)"
    )]
    NoKey {
        /// As in `client.admin`.
        user: String,
    },
    /// The user has no right, or another key.
    #[error(
        "{about}: Ceph denies it to user {user} ({action}); check the key and what it may do with `ceph auth get {user}`"
    )]
    Denied {
        /// Pool and object, or the cluster.
        about: String,
        /// What was tried.
        action: &'static str,
        /// As in `client.admin`.
        user: String,
    },
    /// The user may do the rest, but not blocklist clients.
    #[error(
        "user {user} may not blocklist clients, which keeps late writes of a dead host out; allow it: {ceph} auth caps {user} mon 'allow r, allow command \"osd blocklist\"' osd 'allow rwx'"
    )]
    MayNotBlocklist {
        /// As in `client.admin`.
        user: String,
        /// The command `ceph` with the options that reach this Ceph.
        ceph: String,
    },
    /// There is no such pool.
    #[error("there is no pool {pool} in this Ceph; create it, or name another")]
    NoPool {
        /// Its name.
        pool: String,
    },
    /// Pools of this kind have no omap and cannot be overwritten.
    #[error("pool {pool} is erasure-coded, which has no omap; use a replicated pool")]
    ErasureCoded {
        /// Its name.
        pool: String,
    },
    /// The object is there, and has moved on to another epoch.
    #[error("pool {pool}: object {object} is of another epoch than {expected}")]
    WrongEpoch {
        /// Name of the pool.
        pool: String,
        /// Name of the object.
        object: String,
        /// What the operation named.
        expected: u64,
    },
    /// What an operation expected of an object's keys does not hold.
    #[error("pool {pool}: object {object} is not as was expected")]
    Unmet {
        /// Name of the pool.
        pool: String,
        /// Name of the object.
        object: String,
    },
    /// There is no such object.
    #[error("pool {pool}: object {object} is missing")]
    Missing {
        /// Name of the pool.
        pool: String,
        /// Name of the object.
        object: String,
    },
    /// An object of that name is there already.
    #[error("pool {pool}: object {object} exists already")]
    Exists {
        /// Name of the pool.
        pool: String,
        /// Name of the object.
        object: String,
    },
    /// The pool, its quota or one of its servers is full.
    #[error("pool {pool} is full; free space in it, or raise its quota")]
    Full {
        /// Name of the pool.
        pool: String,
    },
    /// Longer than the cluster lets an object be.
    #[error("pool {pool}: object {object} would become longer than this Ceph allows (osd_max_object_size)")]
    TooLong {
        /// Name of the pool.
        pool: String,
        /// Name of the object.
        object: String,
    },
    /// Its servers are down or cannot be reached. Whether the operation takes effect later is unknown.
    #[error("{about}: no answer in time; see `ceph health detail` for servers that are down")]
    TimedOut {
        /// Pool and object, or the cluster.
        about: String,
    },
    /// Another instance has shut this one out of the cluster: nothing that it sends takes effect.
    #[error(
        "{about}: this process was shut out of Ceph (blocklisted) because another took its place; a host of several takes part again by itself, any other process is to be ended"
    )]
    Blocklisted {
        /// Pool and object, or the cluster.
        about: String,
    },
    /// The monitors did not carry out a command.
    #[error("Ceph refused `{command}`: {what}")]
    Refused {
        /// As a person would type it.
        command: String,
        /// What they say.
        what: String,
    },
    /// Anything else.
    #[error("{about}: {action}: {source}")]
    Os {
        /// Pool and object, or the cluster.
        about: String,
        /// What was tried.
        action: &'static str,
        /// Its cause.
        source: Errno,
    },
    /// The cluster's answer is not what it is documented to be.
    #[error("{about}: Ceph answered {action} with what cannot be read: {what}")]
    Answer {
        /// Pool, or the cluster.
        about: String,
        /// What was asked.
        action: &'static str,
        /// The fault.
        what: String,
    },
}

/// What an operation was about, to say what its status means.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub(super) action: &'static str,
    pub(super) user: &'a str,
    pub(super) pool: &'a str,
    pub(super) object: &'a str,
    /// The epoch that the operation asserted.
    pub(super) epoch: Option<u64>,
}

impl About<'_> {
    /// The error that a negative status means.
    pub(super) fn fault(&self, status: i32) -> RadosError {
        let (pool, object) = (self.pool.to_owned(), self.object.to_owned());
        let about = match (self.pool, self.object) {
            ("", _) => "Ceph".to_owned(),
            (pool, "") => format!("pool {pool}"),
            (pool, object) => format!("pool {pool}, object {object}"),
        };
        let action = self.action;
        match (errno_of(status), self.epoch) {
            // What a failed comparison answers.
            (Errno::CANCELED, Some(expected)) => RadosError::WrongEpoch { pool, object, expected },
            (Errno::CANCELED, None) if !self.object.is_empty() => RadosError::Unmet { pool, object },
            (Errno::NOENT, _) if !self.object.is_empty() => RadosError::Missing { pool, object },
            (Errno::NOENT, _) if !self.pool.is_empty() => RadosError::NoPool { pool },
            (Errno::EXIST, _) => RadosError::Exists { pool, object },
            (Errno::NOSPC | Errno::DQUOT, _) => RadosError::Full { pool },
            (Errno::FBIG, _) => RadosError::TooLong { pool, object },
            (Errno::TIMEDOUT, _) => RadosError::TimedOut { about },
            (Errno::PERM | Errno::ACCESS, _) => RadosError::Denied { about, action, user: self.user.to_owned() },
            (Errno::OPNOTSUPP, _) if !self.pool.is_empty() => RadosError::ErasureCoded { pool },
            // The name that Ceph gives it is EBLOCKLISTED.
            (Errno::SHUTDOWN, _) => RadosError::Blocklisted { about },
            (source, _) => RadosError::Os { about, action, source },
        }
    }
}

/// librados returns errors as negative numbers of errno.
pub(super) fn errno_of(status: i32) -> Errno {
    Errno::from_raw_os_error(status.checked_neg().unwrap_or(libc::EIO))
}
