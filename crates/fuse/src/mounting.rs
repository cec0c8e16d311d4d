//! A mount from its begin to its end: what directory and mount point must be, the session with the kernel, and how it ends.

mod attached;
mod kernel;
mod point;

pub use attached::Attached;
pub use point::PointError;

use crate::file_system::FileSystem;
use crate::operations::{Lacks, Notices, Operations, Settings};
use fuser::{BackgroundSession, Config, Session, SessionACL};
use point::Point;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stripewise_layout::printing::shown;
use stripewise_store::client::Client;
use stripewise_store::holders::{self, Found};
use thiserror::Error;

/// How often a served mount looks whether it is to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// After that it is said for whom an unmounted mount is served still.
const SILENCE: Duration = Duration::from_secs(1);

/// Why a directory is not mounted.
#[derive(Debug, Error)]
pub enum MountError {
    /// The mount point cannot be used.
    #[error(transparent)]
    Point(#[from] PointError),
    /// The directory cannot be opened.
    #[error("cannot open the directory {}", shown(path))]
    Directory {
        /// As it was named.
        path: PathBuf,
        /// What the system says.
        source: Errno,
    },
    /// The kernel offers no FUSE here.
    #[error(
        "no /dev/fuse: load the kernel's module with `modprobe fuse`, or give the container the device (--device /dev/fuse --cap-add SYS_ADMIN)"
    )]
    NoDevice,
    /// The device is there, and refused.
    #[error(
        "cannot open /dev/fuse; its mode, or the container's rules of devices, must let user {uid} read and write it"
    )]
    Device {
        /// Of this process.
        uid: u32,
        /// What the system says.
        source: Errno,
    },
    /// Only root mounts by itself.
    #[error(
        "user {uid} mounts by the program fusermount3, which is not installed; install the package fuse3, or mount as root"
    )]
    NoHelper {
        /// Of this process.
        uid: u32,
    },
    /// The helper refused.
    #[error("fusermount3 does not mount {}: {what}", shown(path))]
    Helper {
        /// The mount point.
        path: PathBuf,
        /// What it says.
        what: String,
    },
    /// Root could not look for the mount point as the owner.
    #[error("--as-owner: cannot act as user {owner}")]
    Owner {
        /// The uid of the cluster's owner.
        owner: u32,
        /// What the system says.
        source: Errno,
    },
    /// The kernel refused.
    #[error("cannot mount {}", shown(path))]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// What the system says.
        source: Errno,
    },
    /// The kernel and this process do not come to terms.
    #[error("the kernel's FUSE does not take the mount {}", shown(path))]
    Session {
        /// The mount point.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
}

/// What is mounted, where and how.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The directory whose files are shown.
    pub directory: PathBuf,
    /// Where; made if nothing stands there, and then removed at the end.
    pub mount_point: PathBuf,
    /// Other users may use the mount, as far as modes permit.
    pub allow_other: bool,
    /// Nothing can be changed by way of the mount.
    pub read_only: bool,
    /// For how long the kernel may believe names and attributes; zero: it asks each time.
    pub cache: Duration,
    /// Requests that are answered at once.
    pub threads: usize,
}

/// A mounted directory. It is unmounted when this is dropped.
pub struct Mount {
    point: Point,
    session: BackgroundSession,
    notices: Notices,
    lacks: Lacks,
}

impl Mount {
    /// Mounts as `options` say; programs use it from the return on.
    ///
    /// # Errors
    ///
    /// [`MountError`]; nothing is mounted then.
    pub fn begin(client: Client, options: &MountOptions) -> Result<Self, MountError> {
        Self::begin_attached(client, Attached::make(options)?, options)
    }

    /// As [`Self::begin`], of what is mounted already.
    ///
    /// # Errors
    ///
    /// [`MountError`]; it is unmounted then.
    pub fn begin_attached(client: Client, attached: Attached, options: &MountOptions) -> Result<Self, MountError> {
        let Attached { directory, point, device } = attached;
        let refused = |source| MountError::Directory { path: options.directory.clone(), source };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&directory, flags, Mode::empty()).map_err(refused)?;
        let settings = Settings { cache: options.cache, may_pass_through: true };
        let operations = Operations::new(client, root, settings).map_err(refused)?;
        let (notices, lacks) = (operations.notices().clone(), operations.lacks());
        // Every file that the kernel knows takes a descriptor.
        stripewise_store::descriptors::raise_limit();
        let mut config = Config::default();
        config.n_threads = Some(options.threads.max(1));
        config.clone_fd = kernel::can_open_device();
        let access = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
        let failed = |source| MountError::Session { path: options.mount_point.clone(), source };
        let session = Session::from_fd(FileSystem::new(operations), device, access, config).map_err(failed)?;
        let session = session.spawn().map_err(failed)?;
        notices.moments.begin(session.notifier());
        notices.sizes.begin(session.notifier());
        let (mapped, sizes, notifier) = (notices.mapped.clone(), notices.sizes.clone(), session.notifier());
        let spawn = |name: &str, watch: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(watch).map_err(failed)
        };
        spawn("mapped", Box::new(move || mapped.watch(&notifier)))?;
        spawn("sizes", Box::new(move || sizes.keep_raised()))?;
        Ok(Self { session, point, notices, lacks })
    }

    /// Where it is mounted, absolute.
    pub fn mount_point(&self) -> &Path {
        self.point.path()
    }

    /// What programs miss on this kernel, each with the version that has it.
    pub fn lacks(&self) -> &[&'static str] {
        self.lacks.get().map_or(&[], Vec::as_slice)
    }

    /// Serves programs until somebody unmounts, or until `is_over`: then it takes the mount out of the tree, and serves files that are still open until
    /// they are closed. Where that takes longer than a second, `waits_for` is called once, with the programs that have them.
    ///
    /// # Errors
    ///
    /// [`MountError::Session`] if the session with the kernel fails.
    pub fn serve(mut self, is_over: impl Fn() -> bool, waits_for: impl Fn(Found)) -> Result<(), MountError> {
        // Before it is unmounted, when its path leads elsewhere.
        let device = rustix::fs::stat(self.point.path()).map(|found| found.st_dev);
        let mut unmounted: Option<Instant> = None;
        let mut has_said = false;
        while !self.session.guard.is_finished() {
            if self.point.is_mounted() && is_over() {
                self.point.unmount();
                unmounted = Some(Instant::now());
            }
            if !has_said && unmounted.is_some_and(|unmounted| unmounted.elapsed() > SILENCE) {
                has_said = true;
                waits_for(device.map_or_else(|_| Found::default(), holders::users_of_mount));
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
        // Unmounted by another hand.
        self.point.set_unmounted();
        self.notices.end();
        let path = self.point.path().to_owned();
        self.session.join().map_err(|source| MountError::Session { path, source })
    }
}
