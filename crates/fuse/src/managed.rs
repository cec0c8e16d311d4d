//! Which files are managed, and the striped files behind them.
//!
//! A file may be managed if it has a stub's size or its inode is in the broker's table of stubs; only of such files more is asked. What is known then comes,
//! in this order, from an open of this process, from the table (of a file that nobody has open), and from the broker. A stub's text is never shown for data:
//! where the data is out of reach the call fails.

use crate::failure::failed;
use crate::nodes::Node;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::sync::{Arc, PoisonError, RwLock};
use stripewise_layout::FileId;
use stripewise_store::client::{Client, ClientError, Lookup};
use stripewise_store::file::StripedFile;
use stripewise_store::protocol::{FileStatus, Refusal};
use stripewise_store::shared::inodes::{ClosedStatus, Inodes};
use stripewise_store::state::INODES;
use stripewise_store::stub::{STUB_BYTES, Stub, size_may_be_stub};

/// The client, and what it knows of files without asking.
pub(crate) struct Managed {
    client: Client,
    table: RwLock<Option<Arc<Inodes>>>,
}

/// Why the broker does not know the file of a stub. It lost its last name since it was looked up, and the kernel looks the name up again; or it has its name, and
/// the record is gone, as a power failure leaves a file that was never synced.
fn unknown(node: &Node) -> Errno {
    if node.stat().is_ok_and(|found| found.st_nlink == 0) { Errno::STALE } else { Errno::IO }
}

impl Managed {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, table: RwLock::default() }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether the file may be managed; the broker knows.
    pub(crate) fn may_be(&self, found: &Stat) -> bool {
        FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
            && (size_may_be_stub(found.st_size as u64) || self.holds(found))
    }

    fn holds(&self, found: &Stat) -> bool {
        self.table().is_some_and(|table| table.holds((found.st_dev, found.st_ino)))
    }

    /// The broker's present table; another takes its place when a broker starts or the table is full.
    fn table(&self) -> Option<Arc<Inodes>> {
        let known = self.table.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(table) = known.as_ref().filter(|table| !table.is_replaced()) {
            return Some(table.clone());
        }
        let path = self.client.state_directory().join("run").join(INODES);
        let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        match opened.and_then(|file| Inodes::open(&file, false)) {
            Ok(table) => {
                let table = Arc::new(table);
                *self.table.write().unwrap_or_else(PoisonError::into_inner) = Some(table.clone());
                Some(table)
            }
            // No broker has made one yet.
            Err(_) => known,
        }
    }

    /// Size, blocks and time of a managed file; `None` of an ordinary one.
    pub(crate) fn status(&self, node: &Node, found: &Stat) -> Result<Option<FileStatus>, Errno> {
        if !self.may_be(found) {
            return Ok(None);
        }
        if let Some(open) = node.open_file() {
            return open.status().map(Some).map_err(|error| failed(&error));
        }
        if let Some(ClosedStatus { size_bytes, blocks_512, .. }) = self.closed(node.as_fd(), found) {
            return Ok(Some(FileStatus { size_bytes, blocks_512, modified_ns: None }));
        }
        match self.client.lookup(node.as_fd()).map_err(|error| failed(&error))? {
            Lookup::Data(status) => Ok(Some(status)),
            Lookup::Copy(_) => Err(Errno::STALE),
            // Removed since it was looked up, it may have been a stub.
            Lookup::NoStub if unknown(node) == Errno::STALE => Err(Errno::STALE),
            Lookup::NoStub if is_stub(node, found) => Err(Errno::IO),
            Lookup::NoStub => Ok(None),
        }
    }

    /// The managed file whose stub `node` is.
    pub(crate) fn file(&self, node: &Node) -> Result<Option<FileId>, Errno> {
        if let Some(open) = node.open_file() {
            return Ok(Some(open.id()));
        }
        self.file_behind(node.as_fd())
    }

    /// As [`Self::file`], of a file that is held.
    pub(crate) fn file_behind(&self, held: BorrowedFd<'_>) -> Result<Option<FileId>, Errno> {
        let found = rustix::fs::fstat(held)?;
        if !self.may_be(&found) {
            return Ok(None);
        }
        if let Some(closed) = self.closed(held, &found) {
            return Ok(Some(closed.file));
        }
        self.client.find(held).map_err(|error| failed(&error))
    }

    /// By the table, of a file that nobody has open.
    fn closed(&self, held: BorrowedFd<'_>, found: &Stat) -> Option<ClosedStatus> {
        let identity = (found.st_dev, found.st_ino);
        let closed = self.table()?.status(identity)?;
        closed.is_of(held, c"", AtFlags::EMPTY_PATH, identity).then_some(closed)
    }

    /// The striped file of `node`, for writing too if `writable`; `None` of an ordinary file.
    pub(crate) fn open(&self, node: &Node, writable: bool) -> Result<Option<Arc<StripedFile>>, Errno> {
        let found = node.stat()?;
        if !self.may_be(&found) {
            return Ok(None);
        }
        let Some(file) = self.file(node)? else {
            return if is_stub(node, &found) { Err(unknown(node)) } else { Ok(None) };
        };
        let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        let stub = match node.open(access) {
            // A file that may be written and not read.
            Err(Errno::ACCESS) if writable => node.open(OFlags::WRONLY)?,
            opened => opened?,
        };
        let opened = self.client.open(stub.as_fd(), file).map_err(|error| match error {
            ClientError::Refused(Refusal::UnknownFile { .. }) if unknown(node) == Errno::STALE => Errno::STALE,
            ClientError::Refused(Refusal::UnknownFile { .. }) => {
                failed(&error);
                Errno::IO
            }
            error => failed(&error),
        })?;
        node.note_open(&opened);
        Ok(Some(opened))
    }

    /// An open for writing, perhaps one that there is; `None` of an ordinary file.
    pub(crate) fn open_for_writing(&self, node: &Node) -> Result<Option<Arc<StripedFile>>, Errno> {
        match node.writing_file() {
            Some(open) => Ok(Some(open)),
            None => self.open(node, true),
        }
    }
}

/// Whether a file that the broker does not know has a stub's text: another cluster's, or a damaged one.
fn is_stub(node: &Node, found: &Stat) -> bool {
    if !size_may_be_stub(found.st_size as u64) {
        return false;
    }
    let mut text = [0; STUB_BYTES + 1];
    let read = node.open(OFlags::RDONLY).and_then(|file| rustix::io::pread(&file, &mut text, 0));
    read.is_ok_and(|length| !matches!(Stub::parse(&text[..length]), Ok(None)))
}
