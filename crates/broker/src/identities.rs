//! Which file a stub stands for: its inode tells, whatever its text says.

use crate::context::Context;
use crate::file_memory::FileMemory;
use crate::files::Files;
use crate::guard;
use crate::inodes::StubInodes;
use crate::managed::{Managed, unknown};
use crate::proof::Proof;
use crate::rmt::{Changes, FileRecord, Inode};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use stripewise_layout::FileId;
use stripewise_store::protocol::{FileStatus, Refusal, Reply};
use stripewise_store::stub::{STUB_BYTES, Stub, size_may_be_stub};

/// Copies of stubs remembered for `check`.
const MAX_COPIES_NOTED: usize = 1000;
/// Stubs and their files.
pub(crate) struct Identities {
    context: Arc<Context>,
    files: Arc<Files>,
    inodes: Arc<StubInodes>,
    memory: Arc<FileMemory>,
    /// Copies of stubs that were opened in vain, for `check`.
    copies: Mutex<BTreeMap<String, FileId>>,
}

impl Identities {
    pub(crate) fn new(
        context: &Arc<Context>,
        files: &Arc<Files>,
        inodes: &Arc<StubInodes>,
        memory: &Arc<FileMemory>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            files: Arc::clone(files),
            inodes: Arc::clone(inodes),
            memory: Arc::clone(memory),
            copies: Mutex::default(),
        }
    }

    /// The file whose stub `proof` is, and its status. The inode tells, whatever the text says; the text tells of copies, and of stubs whose device has another
    /// number since another boot. Neither a server nor a lock that is held over slow work is needed.
    pub(crate) fn find(&self, proof: &Proof) -> Result<Reply, Refusal> {
        if !proof.facts.is_regular {
            return Ok(Reply::Found { file: None, status: None });
        }
        if let Some(file) = self.context.table().file_of(proof.facts.inode)?
            // The number may be that of a stub that was removed behind our back.
            && self.context.table().file(file)?.is_some_and(|record| record.stub.is(&proof.facts.inode))
        {
            return Ok(Reply::Found { file: Some(file), status: self.status_of(file)? });
        }
        let Some(stub) = self.text_of(proof).filter(|stub| stub.cluster == self.context.cluster().id) else {
            return Ok(Reply::Found { file: None, status: None });
        };
        let record = self.context.table().file(stub.file)?;
        let is_renumbered = record.is_some_and(|record| self.is_renumbered(&record, &proof.facts.inode, true));
        let status = if is_renumbered { self.status_of(stub.file)? } else { None };
        Ok(Reply::Found { file: Some(stub.file), status })
    }

    /// As [`Self::find`], of a stub that only another host reaches, by the number of its inode and the file that its text names.
    pub(crate) fn find_by_inode(&self, file: FileId, inode: u64) -> Result<Reply, Refusal> {
        let is_it = self.context.table().file(file)?.is_some_and(|record| record.stub.inode == inode);
        let status = if is_it { self.status_of(file)? } else { None };
        Ok(Reply::Found { file: Some(file), status })
    }

    /// `None`: there is no such file.
    pub(crate) fn status_of(&self, file: FileId) -> Result<Option<FileStatus>, Refusal> {
        if let Some(managed) = self.files.if_loaded_now(file) {
            return Ok(Some(managed.status()));
        }
        self.context.table().file(file)?.map(|record| self.memory.status_unloaded(file, &record)).transpose()
    }

    /// Whether the inode is that of the file's stub under another device number: these differ from boot to boot and from host to host, the inode's number and
    /// birth do not. Where hosts share a file system that knows no births, the stub's text decides (`says_so`).
    fn is_renumbered(&self, record: &FileRecord, is: &Inode, says_so: bool) -> bool {
        let was = record.stub;
        let is_born_with = was.born_ns == is.born_ns && (was.born_ns != 0 || (says_so && self.context.is_shared()));
        was.inode == is.inode && is_born_with && record.boot != self.context.boot()
    }

    /// See [`text_of`].
    pub(crate) fn text_of(&self, proof: &Proof) -> Option<Stub> {
        text_of(proof)
    }

    /// Finds the file that the stub behind `proof` stands for, and that it is the one asked for.
    pub(crate) fn identify(&self, file: FileId, proof: &Proof) -> Result<Arc<Managed>, Refusal> {
        if self.context.table().file_of(proof.facts.inode)? == Some(file) {
            let managed = self.files.managed(file)?;
            let same = guard(&managed.inner).record.stub.is(&proof.facts.inode);
            if same {
                return Ok(managed);
            }
        } else if let Some(record) = self.context.table().file(file)? {
            let (was, is) = (record.stub, proof.facts.inode);
            // Somebody else may have opened it since the first look. Where another file has the inode by now, this one was removed, and the births are the same.
            if was.is(&is) && self.stub_of(is)?.is_none_or(|of| of == file) {
                return self.files.managed(file);
            }
            let says_so = || {
                let text = self.text_of(proof);
                text.is_some_and(|stub| stub.file == file && stub.cluster == self.context.cluster().id)
            };
            if self.is_renumbered(&record, &is, is.born_ns == 0 && says_so()) {
                let managed = self.files.managed(file)?;
                let mut inner = guard(&managed.inner);
                let moved = FileRecord { stub: is, boot: self.context.boot(), ..inner.record.clone() };
                let mut changes = Changes::default();
                changes.put_file(file, &moved);
                // With changed device numbers, another stub may have this one's former pair by now.
                self.inodes.move_inode(was, is, file, changes)?;
                inner.record = moved;
                drop(inner);
                return Ok(managed);
            }
        } else {
            return Err(unknown(file));
        }
        let path = proof.path();
        if let Some(path) = &path {
            let mut copies = guard(&self.copies);
            if copies.len() < MAX_COPIES_NOTED {
                copies.insert(path.clone(), file);
            }
        }
        Err(Refusal::CopiedStub { file, path: path.unwrap_or_else(|| "the file opened".to_owned()) })
    }

    /// The file whose stub has this inode.
    pub(crate) fn stub_of(&self, inode: Inode) -> Result<Option<FileId>, Refusal> {
        let Some(file) = self.context.table().file_of(inode)? else { return Ok(None) };
        Ok(self.context.table().file(file)?.filter(|record| record.stub.is(&inode)).map(|_| file))
    }

    /// Copies of stubs that were opened in vain: where they stand, and of which files.
    pub(crate) fn copies(&self) -> BTreeMap<String, FileId> {
        guard(&self.copies).clone()
    }

    pub(crate) fn forget_copy(&self, path: &str) {
        guard(&self.copies).remove(path);
    }
}

/// What the file behind `proof` says, if it is a stub's text and this process may read it.
pub(crate) fn text_of(proof: &Proof) -> Option<Stub> {
    if !size_may_be_stub(proof.facts.size_bytes) {
        return None;
    }
    let path = format!("/proc/self/fd/{}", proof.descriptor.as_raw_fd());
    let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = [0; STUB_BYTES];
    rustix::io::pread(&opened, &mut bytes, 0).ok()?;
    Stub::parse(&bytes).ok().flatten()
}

pub(crate) fn write_stub(descriptor: &OwnedFd, text: &[u8]) -> rustix::io::Result<()> {
    let mut done = 0;
    while done < text.len() {
        done += rustix::io::retry_on_intr(|| rustix::io::pwrite(descriptor, &text[done..], done as u64))?;
    }
    Ok(())
}

pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec.max(0) as u64 * 1_000_000_000 + now.tv_nsec.max(0) as u64
}
