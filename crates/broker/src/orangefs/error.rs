//! What libpvfs2's error numbers mean.
//!
//! A call returns 0 or a negative number. Without its sign it is bit 30, a class in bits 7 to 9 that says which part of OrangeFS found the error, and a
//! code in bits 0 to 6. The code is OrangeFS's own number of an errno, or with bit 29 an error that no errno stands for. Some calls return a plain errno.

use rustix::io::Errno;
use stripewise_store::server::{ObjectName, ServerError};

const OWN: i32 = 1 << 30;
const NO_ERRNO: i32 = 1 << 29;
const CODE: i32 = 0x7f;

/// The errno of each code, from `PVFS_EPERM`, which is 1, on.
const ERRNOS: [Errno; 60] = [
    Errno::PERM,
    Errno::NOENT,
    Errno::INTR,
    Errno::IO,
    Errno::NXIO,
    Errno::BADF,
    Errno::AGAIN,
    Errno::NOMEM,
    Errno::FAULT,
    Errno::BUSY,
    Errno::EXIST,
    Errno::NODEV,
    Errno::NOTDIR,
    Errno::ISDIR,
    Errno::INVAL,
    Errno::MFILE,
    Errno::FBIG,
    Errno::NOSPC,
    Errno::ROFS,
    Errno::MLINK,
    Errno::PIPE,
    Errno::DEADLK,
    Errno::NAMETOOLONG,
    Errno::NOLCK,
    Errno::NOSYS,
    Errno::NOTEMPTY,
    Errno::LOOP,
    Errno::WOULDBLOCK,
    Errno::NOMSG,
    Errno::UNATCH,
    Errno::BADR,
    Errno::DEADLK,
    Errno::NODATA,
    Errno::TIME,
    Errno::NONET,
    Errno::REMOTE,
    Errno::COMM,
    Errno::PROTO,
    Errno::BADMSG,
    Errno::OVERFLOW,
    Errno::RESTART,
    Errno::MSGSIZE,
    Errno::PROTOTYPE,
    Errno::NOPROTOOPT,
    Errno::PROTONOSUPPORT,
    Errno::OPNOTSUPP,
    Errno::ADDRINUSE,
    Errno::ADDRNOTAVAIL,
    Errno::NETDOWN,
    Errno::NETUNREACH,
    Errno::NETRESET,
    Errno::NOBUFS,
    Errno::TIMEDOUT,
    Errno::CONNREFUSED,
    Errno::HOSTDOWN,
    Errno::HOSTUNREACH,
    Errno::ALREADY,
    Errno::ACCESS,
    Errno::CONNRESET,
    Errno::RANGE,
];

/// What a negative number that a call returned says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    Errno(Errno),
    /// `PVFS_ECANCEL`: given up by the library, which waited too long.
    Canceled,
    /// `PVFS_EHOSTNTFD`, `PVFS_EADDRNTFD`, `PVFS_ETRYAGAIN`: the name of a host leads to no address.
    NoHost,
    /// `PVFS_ENORECVR`: the name service does not answer.
    NameService,
    /// `PVFS_ESECURITY`: the servers do not take the credential.
    Credential,
    /// `PVFS_EDETAIL`, `PVFS_EDEVINIT`, `PVFS_ENOTPVFS` and whatever later versions add: of no call that is made here.
    Number(i32),
}

impl Cause {
    pub(super) fn of(status: i32) -> Self {
        let number = status.checked_neg().unwrap_or(libc::EIO);
        let code = number & CODE;
        match (number & OWN != 0, number & NO_ERRNO != 0) {
            (true, true) => match code {
                1 => Self::Canceled,
                4 | 5 | 7 => Self::NoHost,
                6 => Self::NameService,
                9 => Self::Credential,
                _ => Self::Number(status),
            },
            (true, false) => match usize::try_from(code - 1).ok().and_then(|at| ERRNOS.get(at)) {
                Some(errno) => Self::Errno(*errno),
                None => Self::Number(status),
            },
            (false, _) if number < 4096 => Self::Errno(Errno::from_raw_os_error(number)),
            (false, _) => Self::Number(status),
        }
    }
}

/// Why something was not done on OrangeFS. Each variant names what it was about.
#[derive(Debug, thiserror::Error)]
pub enum OrangeError {
    /// libpvfs2 cannot be used.
    #[error(
        "libpvfs2 cannot be loaded ({what}); install OrangeFS on this host with its shared libraries, and name their directory to the dynamic linker (ld.so.conf or LD_LIBRARY_PATH)"
    )]
    NoLibrary {
        /// What the dynamic linker says.
        what: String,
    },
    /// It does not start.
    #[error("libpvfs2 does not start: {what}")]
    NoStart {
        /// Its cause.
        what: String,
    },
    /// The file system has no such I/O server.
    #[error("{about} has no I/O server {server}; it has {known}")]
    NoServer {
        /// The file system.
        about: String,
        /// As the URL names it.
        server: String,
        /// All there are.
        known: String,
    },
    /// There is no such object.
    #[error("{about} is missing")]
    Missing {
        /// Its path.
        about: String,
    },
    /// Something of that name is there already.
    #[error("{about} exists already")]
    Exists {
        /// Its path.
        about: String,
    },
    /// The I/O server, or the server that keeps its metadata, is full.
    #[error("{about}: no space is left on its server")]
    Full {
        /// Path or file system.
        about: String,
    },
    /// Longer than a server can store.
    #[error("{about} would become longer than its server can store")]
    TooLong {
        /// Its path.
        about: String,
    },
    /// This user has no right.
    #[error(
        "{about}: OrangeFS denies it to the user of this process ({action}); run it as the user that ran `stripewise init`, and let that one write in the root directory"
    )]
    Denied {
        /// Path or file system.
        about: String,
        /// What was tried.
        action: &'static str,
    },
    /// The servers do not take this user's credential.
    #[error(
        "{about}: OrangeFS does not take this user's credential ({action}); see the keys and certificates of this host, and that clocks agree"
    )]
    Credential {
        /// Path or file system.
        about: String,
        /// What was tried.
        action: &'static str,
    },
    /// A server is down or cannot be reached. Whether what was asked takes effect is unknown.
    #[error(
        "{about}: an OrangeFS server does not answer ({action}: {what}); see `pvfs2-ping` for servers that are down"
    )]
    Unreachable {
        /// Path or file system.
        about: String,
        /// What was tried.
        action: &'static str,
        /// What the library says.
        what: String,
    },
    /// A host in the file system's configuration has no address.
    #[error("{about}: the name of a host leads to no address ({action}); correct it, or the name service")]
    NoHost {
        /// Path or file system.
        about: String,
        /// What was tried.
        action: &'static str,
    },
    /// What was stored is not what was asked for.
    #[error("{about}: {what}")]
    Unsuitable {
        /// Path or file system.
        about: String,
        /// What is wrong, with the remedy.
        what: String,
    },
    /// Anything else that an errno stands for.
    #[error("{about}: {action}: {source}")]
    Os {
        /// Path or file system.
        about: String,
        /// What was tried.
        action: &'static str,
        /// Its cause.
        source: Errno,
    },
    /// An error that no errno stands for.
    #[error("{about}: {action}: OrangeFS error {number}; `pvfs2-perror {number}` says what it means")]
    Number {
        /// Path or file system.
        about: String,
        /// What was tried.
        action: &'static str,
        /// As the library returned it.
        number: i32,
    },
}

impl OrangeError {
    /// The error that a negative status means, of what was tried on `about`.
    pub(super) fn of(status: i32, about: String, action: &'static str) -> Self {
        let errno = match Cause::of(status) {
            Cause::Errno(errno) => errno,
            Cause::Canceled => {
                return Self::Unreachable { about, action, what: "it was waited for too long".to_owned() };
            }
            Cause::NoHost => return Self::NoHost { about, action },
            Cause::NameService => {
                return Self::Unreachable { about, action, what: "the name service fails".to_owned() };
            }
            Cause::Credential => return Self::Credential { about, action },
            Cause::Number(number) => return Self::Number { about, action, number },
        };
        match errno {
            Errno::NOENT => Self::Missing { about },
            Errno::EXIST => Self::Exists { about },
            Errno::NOSPC | Errno::DQUOT => Self::Full { about },
            Errno::FBIG => Self::TooLong { about },
            Errno::PERM | Errno::ACCESS => Self::Denied { about, action },
            Errno::PIPE
            | Errno::TIME
            | Errno::TIMEDOUT
            | Errno::NONET
            | Errno::COMM
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::NETRESET
            | Errno::CONNREFUSED
            | Errno::CONNRESET
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH => Self::Unreachable { about, action, what: errno.to_string() },
            source => Self::Os { about, action, source },
        }
    }

    /// What it means to those who use servers.
    pub(super) fn into_server_error(self, server: &str, object: Option<ObjectName>) -> ServerError {
        let server = server.to_owned();
        match (self, object) {
            (Self::Missing { .. }, Some(object)) => ServerError::Missing { server, object },
            (Self::Exists { .. }, Some(object)) => ServerError::Exists { server, object },
            (Self::Full { .. }, _) => ServerError::NoSpace { server },
            (Self::Os { action, source, .. }, Some(_)) => ServerError::Os { server, action, source },
            (error, _) => ServerError::Unusable { server, what: error.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of pvfs2-types.h.
    #[test]
    fn every_number_has_its_meaning() {
        let about = || "a".to_owned();
        let of = |code: i32, class: i32| OrangeError::of(-(code | class << 7 | OWN), about(), "trying");
        for class in 0..8 {
            assert!(matches!(of(2, class), OrangeError::Missing { .. }));
            assert!(matches!(of(11, class), OrangeError::Exists { .. }));
            assert!(matches!(of(18, class), OrangeError::Full { .. }));
            assert!(matches!(of(17, class), OrangeError::TooLong { .. }));
            assert!(matches!(of(1, class), OrangeError::Denied { .. }));
            assert!(matches!(of(58, class), OrangeError::Denied { .. }));
            for code in [21, 34, 35, 37, 49, 50, 51, 53, 54, 55, 56, 59] {
                assert!(matches!(of(code, class), OrangeError::Unreachable { .. }), "{code}");
            }
            assert!(matches!(of(15, class), OrangeError::Os { source: Errno::INVAL, .. }));
            assert!(matches!(of(60, class), OrangeError::Os { source: Errno::RANGE, .. }));
            assert!(matches!(of(61, class), OrangeError::Number { .. }), "there is none");
            assert!(matches!(of(0, class), OrangeError::Number { .. }), "nor this");
            let own = |code: i32| of(code | NO_ERRNO, class);
            assert!(matches!(own(1), OrangeError::Unreachable { .. }));
            assert!(matches!(own(4), OrangeError::NoHost { .. }));
            assert!(matches!(own(9), OrangeError::Credential { .. }));
            assert!(matches!(own(3), OrangeError::Number { .. }));
        }
        assert!(matches!(OrangeError::of(-libc::ENOENT, about(), "trying"), OrangeError::Missing { .. }));
        assert!(matches!(OrangeError::of(i32::MIN, about(), "trying"), OrangeError::Os { source: Errno::IO, .. }));
        assert!(matches!(OrangeError::of(-1_000_000, about(), "trying"), OrangeError::Number { .. }));
        let text = of(3 | NO_ERRNO, 0).to_string();
        assert!(text.contains("`pvfs2-perror -1610612739`"), "{text}");
    }
}
