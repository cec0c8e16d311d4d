//! Requests of the kernel's asynchronous I/O on managed files, done at once.
//!
//! Their end is the kernel's to report: a program may wait for it by `io_getevents`, by an eventfd, or look into the ring of events, which lies in its own
//! memory. So the bytes are moved first, and then the program's control block is lent to a write of as many bytes to `/dev/null`: the kernel takes that at once, reads
//! no byte for it, and reports it with the program's own block and data. After the call the block is as it was.
//!
//! Another thread may get the event, and use the block again, before it is put back. It is put back only where it still holds what was lent, and who
//! submits a block that is lent waits for that.

use super::{Open, data, extent};
use crate::capture::At;
use crate::process::Inside;
use libc::{c_int, c_void, iovec};
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use stripewise_store::descriptors::{Descriptor, default_base};

/// The kernel's control block (`linux/aio_abi.h`) on a machine that puts the low byte first.
#[repr(C)]
pub(crate) struct Block {
    data: u64,
    key: u32,
    call_flags: c_int,
    /// From the low end: 16 bits of operation, 16 of priority, 32 of descriptor. In one word, to be lent and put back in one step.
    what: AtomicU64,
    buffer: u64,
    bytes: AtomicU64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_descriptor: c_int,
}

const _: () = assert!(size_of::<Block>() == 64 && cfg!(target_endian = "little"));

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    Sync,
}

/// What a block asks for.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    what: u64,
    bytes: u64,
}

/// `IOCB_CMD_*`.
mod operation {
    pub(super) const PREAD: u16 = 0;
    pub(super) const PWRITE: u16 = 1;
    pub(super) const FSYNC: u16 = 2;
    pub(super) const FDSYNC: u16 = 3;
    pub(super) const PREADV: u16 = 7;
    pub(super) const PWRITEV: u16 = 8;
}

impl Asked {
    pub(crate) fn descriptor(self) -> c_int {
        (self.what >> 32) as c_int
    }

    fn operation(self) -> u16 {
        self.what as u16
    }

    fn is_vectored(self) -> bool {
        matches!(self.operation(), operation::PREADV | operation::PWRITEV)
    }

    /// None: neither data nor their durability.
    pub(crate) fn kind(self) -> Option<Kind> {
        match self.operation() {
            operation::PREAD | operation::PREADV => Some(Kind::Read),
            operation::PWRITE | operation::PWRITEV => Some(Kind::Write),
            operation::FSYNC | operation::FDSYNC => Some(Kind::Sync),
            _ => None,
        }
    }
}

impl Block {
    /// Waits while another thread has the block lent.
    pub(crate) fn asked(&self) -> Asked {
        loop {
            let (what, bytes) = (self.what.load(Acquire), self.bytes.load(Relaxed));
            let asked = Asked { what, bytes };
            if NOWHERE.get().is_none_or(|nowhere| nowhere.as_fd().as_raw_fd() != asked.descriptor()) {
                return asked;
            }
            rustix::thread::sched_yield();
        }
    }

    /// Where the request begins.
    pub(crate) fn offset(&self) -> i64 {
        self.offset
    }

    /// `RWF_*`.
    pub(crate) fn call_flags(&self) -> c_int {
        self.call_flags
    }

    /// Bytes of the request.
    ///
    /// # Safety
    /// The program's block.
    pub(crate) unsafe fn wanted_bytes(&self, asked: Asked) -> u64 {
        if !asked.is_vectored() {
            return if asked.kind() == Some(Kind::Sync) { 0 } else { asked.bytes };
        }
        // SAFETY: the caller's promise.
        let vectors = unsafe { self.vectors(asked) }.unwrap_or_default();
        vectors.iter().map(|vector| vector.iov_len as u64).sum()
    }

    fn place(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.buffer as usize)
    }

    /// # Safety
    /// The block of a vectored request.
    unsafe fn vectors(&self, asked: Asked) -> Result<&[iovec], Errno> {
        let count = c_int::try_from(asked.bytes).map_err(|_| Errno::INVAL)?;
        // SAFETY: the caller's promise.
        unsafe { data::vectors(self.place().cast_const().cast(), count) }
    }
}

/// Does what a block asks for, and returns the bytes that were moved.
///
/// # Safety
/// The program's block, which the call under way submits.
pub(crate) unsafe fn run(open: &Open, block: &Block, asked: Asked) -> Result<u64, Errno> {
    let one = [iovec { iov_base: block.place(), iov_len: asked.bytes as usize }];
    let vectors = match asked.is_vectored() {
        // SAFETY: the caller's promise.
        true => unsafe { block.vectors(asked)? },
        false => &one,
    };
    let (descriptor, at) = (asked.descriptor(), At::Given(block.offset));
    let moved = match asked.kind() {
        Some(Kind::Read) => {
            data::check_flags(block.call_flags, false)?;
            data::read(open, descriptor, vectors, at)?
        }
        Some(Kind::Write) => {
            data::check_flags(block.call_flags, true)?;
            // The kernel may refuse the block afterwards, since the program has too many under way: what was appended would be appended again.
            if open.appends() || block.call_flags & libc::RWF_APPEND != 0 {
                return Err(Errno::INVAL);
            }
            data::write_with_flags(open, descriptor, vectors, at, block.call_flags)?
        }
        Some(Kind::Sync) if asked.bytes != 0 || block.call_flags != 0 => return Err(Errno::INVAL),
        Some(Kind::Sync) => return extent::sync(open, asked.operation() == operation::FDSYNC).map(|()| 0),
        None => return Err(Errno::INVAL),
    };
    Ok(moved.bytes as u64)
}

/// `/dev/null`; stays open.
static NOWHERE: OnceLock<Descriptor> = OnceLock::new();

fn nowhere() -> Result<&'static Descriptor, Errno> {
    if let Some(nowhere) = NOWHERE.get() {
        return Ok(nowhere);
    }
    let _inside = Inside::enter();
    let opened =
        super::with_raised_limit(|| rustix::fs::open(c"/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()))?;
    Ok(NOWHERE.get_or_init(|| Descriptor::raise(opened, default_base())))
}

/// A block that is lent to a write to `/dev/null`, until this is dropped.
pub(crate) struct Lent<'a> {
    block: &'a Block,
    asked: Asked,
    meanwhile: Asked,
}

impl<'a> Lent<'a> {
    /// For a report of `bytes` bytes.
    pub(crate) fn new(block: &'a Block, asked: Asked, bytes: u64) -> Result<Self, Errno> {
        let descriptor = nowhere()?.as_fd().as_raw_fd() as u64;
        const PRIORITY: u64 = 0xffff_0000;
        let what = descriptor << 32 | asked.what & PRIORITY | u64::from(operation::PWRITE);
        let meanwhile = Asked { what, bytes };
        block.what.store(what, Relaxed);
        block.bytes.store(bytes, Relaxed);
        Ok(Self { block, asked, meanwhile })
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let (asked, meanwhile) = (self.asked, self.meanwhile);
        // The descriptor last: who submits the block again waits for it.
        let _ = self.block.bytes.compare_exchange(meanwhile.bytes, asked.bytes, AcqRel, Relaxed);
        let _ = self.block.what.compare_exchange(meanwhile.what, asked.what, AcqRel, Relaxed);
    }
}
