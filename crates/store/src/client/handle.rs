//! The handle on the client: what is known of the cluster since the connection, and plain requests to the broker.

use super::{Client, ClientError, ClientOptions, Core, unexpected};
use crate::descriptors::owns_descriptor;
use crate::executable::stays_ordinary;
use crate::protocol::{Admin, FileStatus, Reply, Request, ServerInfo};
use crate::server::stations::Stations;
use rustix::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use stripewise_layout::FileId;

/// What a descriptor's file is to the broker; see [`Client::lookup`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// An ordinary file, or another cluster's stub.
    NoStub,
    /// The stub of a managed file.
    Data(FileStatus),
    /// A copy of that file's stub, which opens nothing.
    Copy(FileId),
}

impl Client {
    /// Connects to the broker of `state_directory` and takes a process slot. Fails after [`ClientOptions::connect_patience`] without a broker; where hosts
    /// share the cluster, after the time in which they elect a master.
    ///
    /// # Errors
    ///
    /// [`ClientError::StateDirectory`], [`ClientError::Unreachable`] or [`ClientError::NoAgent`] without a broker,
    /// [`ClientError::Refused`] by one of another version, [`ClientError::NoProcessSlot`];
    /// [`ClientError::Os`] or [`ClientError::StateFull`] where memory cannot be mapped.
    pub fn connect(state_directory: &Path, options: ClientOptions) -> Result<Self, ClientError> {
        let core = Arc::new(Core::connect(state_directory, options)?);
        core.agent.belong_to(&core);
        Ok(Self { core })
    }

    /// As it was given to [`Self::connect`].
    #[must_use]
    pub fn state_directory(&self) -> &Path {
        &self.core.state_directory
    }

    /// Id of the cluster.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.core.cluster
    }

    /// The servers, by number.
    pub fn servers(&self) -> impl Iterator<Item = &ServerInfo> {
        self.core.seats.iter().map(|seat| &seat.info)
    }

    /// Directories below which new files become managed, as of the connection.
    #[must_use]
    pub fn managed_directories(&self) -> &[String] {
        &self.core.names.managed
    }

    /// Absolute paths whose new files get a planned placement, as of the connection; where they are too many, their directories, each with a `/` at
    /// its end. [`Self::expects`] tells of one path.
    #[must_use]
    pub fn expected_paths(&self) -> &[String] {
        &self.core.names.expected
    }

    /// The managed directories with a minimum size of their files, in bytes, as of the connection.
    #[must_use]
    pub fn min_sizes(&self) -> &[(String, u64)] {
        &self.core.names.min_sizes
    }

    /// The minimum size in bytes of files at the absolute path `path`, and the directory that has it: the nearest managed one above it.
    #[must_use]
    pub fn min_size_above(&self, path: &Path) -> Option<(&str, u64)> {
        let above = path.ancestors().skip(1).find(|above| {
            let above = above.to_str();
            above.is_some_and(|above| self.core.names.managed.iter().any(|managed| managed == above))
        })?;
        let mut sizes = self.core.names.min_sizes.iter();
        sizes
            .find(|(directory, _)| Path::new(directory) == above)
            .map(|(directory, bytes)| (directory.as_str(), *bytes))
    }

    /// Whether a new file at the absolute path `path` is to be managed.
    #[must_use]
    pub fn takes(&self, path: &Path) -> bool {
        let below = |directory: &String| path != Path::new(directory) && path.starts_with(directory);
        // In a directory with a minimum size a file begins as an ordinary one: most stay small, and the others change at their last close.
        let is_managed = || self.min_size_above(path).is_none() && !stays_ordinary(path.as_os_str().as_bytes());
        self.managed_directories().iter().any(below) && is_managed()
            // Without an answer it counts as expected: making it then fails, and no file is ordinary that a plan wanted.
            || path.to_str().is_some_and(|path| self.expects(path).unwrap_or(true))
    }

    /// An ordinary file that `descriptor` is open on for writing is about to be closed: the broker decides whether it becomes managed.
    ///
    /// # Errors
    ///
    /// Those of [`Self::request`].
    pub fn closing(&self, descriptor: BorrowedFd<'_>) -> Result<(), ClientError> {
        self.core.done(&Request::Closing, &[descriptor])
    }

    /// The emulated servers' stations, if the cluster has any.
    #[must_use]
    pub fn stations(&self) -> Option<&Arc<Stations>> {
        self.core.stations.as_ref()
    }

    /// Whether other hosts use the cluster too, as of the connection.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.core.shared
    }

    /// Requests that were sent to the broker and waited for, since the client was made. Reads and writes of what is known here send none.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.core.requests.load(Relaxed)
    }

    /// System calls that were issued to the kernel several at once, since the client was made; see [`crate::file`].
    #[must_use]
    pub fn calls_at_once(&self) -> u64 {
        self.core.rings.issued()
    }

    /// Whether `descriptor` belongs to this library and must not be closed or replaced by the program.
    #[must_use]
    pub fn owns_descriptor(&self, descriptor: RawFd) -> bool {
        owns_descriptor(descriptor)
    }

    /// The stub of a created file has its name.
    ///
    /// # Errors
    ///
    /// Those of [`Self::request`].
    pub fn linked(&self, file: FileId) -> Result<(), ClientError> {
        self.core.done(&Request::Linked { file }, &[])
    }

    /// As [`Self::linked`], without waiting for the broker, which hears it with the next request of this process.
    pub fn report_linked(&self, file: FileId) {
        self.core.control().linked.push(file);
    }

    /// A created file will not get a name; drop its [`StripedFile`](crate::file::StripedFile) too.
    ///
    /// # Errors
    ///
    /// Those of [`Self::request`].
    pub fn abandon(&self, file: FileId) -> Result<(), ClientError> {
        self.core.done(&Request::Abandon { file }, &[])
    }

    /// What is imported into the file is in place, verified and synced.
    pub(crate) fn imported(&self, file: FileId) -> Result<(), ClientError> {
        self.core.done(&Request::Admin(Admin::Imported { file }), &[])
    }

    /// The stub's mode, owner or group changed.
    ///
    /// # Errors
    ///
    /// Those of [`Self::request`].
    pub fn attributes_changed(&self, stub: BorrowedFd<'_>, file: FileId) -> Result<(), ClientError> {
        self.core.done(&Request::Attributes { file }, &[stub])
    }

    /// The file whose stub a descriptor (`O_PATH` is enough) is open on, if it is a stub; for stubs that this process may not read.
    ///
    /// # Errors
    ///
    /// Those of [`Self::request`].
    pub fn find(&self, stub: BorrowedFd<'_>) -> Result<Option<FileId>, ClientError> {
        match self.core.call(&Request::Find, &[stub])?.reply {
            Reply::Found { file, .. } => Ok(file),
            reply => Err(unexpected("Find", &reply)),
        }
    }

    /// What the broker knows of a stub's file without asking any server; nothing is opened, and `O_PATH` is enough.
    ///
    /// # Errors
    ///
    /// Those of [`Self::request`].
    pub fn lookup(&self, stub: BorrowedFd<'_>) -> Result<Lookup, ClientError> {
        match self.core.call(&Request::Find, &[stub])?.reply {
            Reply::Found { file: None, .. } => Ok(Lookup::NoStub),
            Reply::Found { file: Some(file), status: None } => Ok(Lookup::Copy(file)),
            Reply::Found { status: Some(status), .. } => Ok(Lookup::Data(status)),
            reply => Err(unexpected("Find", &reply)),
        }
    }

    /// Any other request, above all administration.
    ///
    /// # Errors
    ///
    /// [`ClientError::Refused`]; [`ClientError::Lost`] if the broker went away and no successor
    /// came within [`ClientOptions::patience`]; [`ClientError::OtherState`] if the successor serves
    /// another cluster; [`ClientError::Packet`] of a message that does not go.
    pub fn request(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ClientError> {
        self.core.with_descriptors(request, descriptors)
    }
}
