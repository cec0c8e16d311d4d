//! `io_submit` of libaio, which names descriptors in memory.
//!
//! A request on an ordinary file is the kernel's; if the file is captured, it is recorded when it is submitted, with the bytes asked for. One on a managed
//! file is done before the call returns, and the kernel reports it with all others ([`redirected`]). The function answers the negative errno. Programs that
//! do without libaio call libc's `syscall`, which leads here too ([`super::number`]).

use super::kernel::call_kernel;
use super::managed_data;
use crate::capture::{self, Captured};
use crate::descriptors::{Known, lookup};
use crate::process;
use crate::redirect::Moved;
use crate::redirect::libaio::{self as redirected, Block, Kind, Lent};
use libc::{c_int, c_long, c_void};
use rustix::io::Errno;
use stripewise_capture::call::Call;
use stripewise_capture::clock::Ticks;
use stripewise_capture::format::NO_OFFSET;
use stripewise_layout::FileOffset;

fn call_of(kind: Kind) -> Call {
    match kind {
        Kind::Read => Call::AioRead,
        Kind::Write => Call::AioWrite,
        Kind::Sync => Call::AioFsync,
    }
}

/// A request on a captured file. The block is the program's again as soon as the kernel has it.
struct Submitted {
    /// Place among the blocks of the call.
    number: c_long,
    call: Call,
    file: Captured,
    offset: FileOffset,
    bytes: u64,
}

/// A call under way.
struct Submission<'a> {
    context: *mut c_void,
    blocks: *const *const Block,
    start: Ticks,
    /// Blocks that the kernel has.
    taken: c_long,
    lent: Vec<Lent<'a>>,
    captured: Vec<Submitted>,
    /// The kernel may yet refuse one of those that it is to have next.
    may_end: bool,
}

impl<'a> Submission<'a> {
    /// Does what a block asks of a managed file, if it does; an error, as libaio has it, if the call ends here.
    ///
    /// # Safety
    /// The program's block, the one of that number.
    unsafe fn add(&mut self, number: c_long, block: &'a Block) -> Result<(), c_long> {
        let failed = |errno: Errno| c_long::from(-errno.raw_os_error());
        let asked = block.asked();
        match lookup(asked.descriptor()) {
            Known::Plain => self.may_end = true,
            Known::OfChild => return Err(failed(Errno::INVAL)),
            Known::Captured(file) => {
                self.may_end = true;
                if let Some(call) = asked.kind().map(call_of) {
                    // SAFETY: the caller's promise.
                    let bytes = unsafe { block.wanted_bytes(asked) };
                    let offset = if call == Call::AioFsync { NO_OFFSET } else { FileOffset(block.offset() as u64) };
                    let file = file.with_call_flags(block.call_flags());
                    self.captured.push(Submitted { number, call, file, offset, bytes });
                }
            }
            Known::Managed(open) => {
                if self.may_end {
                    // What follows a block that the kernel refuses is not done.
                    self.submit(number)?;
                }
                let call = asked.kind().map_or(Call::AioRead, call_of);
                let run = || {
                    // SAFETY: the caller's promise.
                    let bytes = unsafe { redirected::run(&open, block, asked)? };
                    Ok(Moved { offset: block.offset() as u64, bytes: bytes as usize })
                };
                match managed_data(call, &open, block.call_flags(), run) {
                    moved @ 0.. => self.lent.push(Lent::new(block, asked, moved as u64).map_err(failed)?),
                    _ => return Err(c_long::from(-process::errno())),
                }
            }
        }
        Ok(())
    }

    /// Gives the kernel all blocks before that number; an error, as libaio has it, if it does not take all.
    fn submit(&mut self, until: c_long) -> Result<(), c_long> {
        let wanted = until - self.taken;
        // SAFETY: within the program's array.
        let blocks = unsafe { self.blocks.offset(self.taken as isize) };
        let arguments = [self.context.addr() as c_long, wanted, blocks.addr() as c_long, 0, 0, 0];
        // SAFETY: what libaio does.
        let answer = unsafe { call_kernel(libc::SYS_io_submit, arguments) };
        self.lent.clear();
        self.taken += answer.max(0);
        for submitted in self.captured.drain(..).filter(|submitted| submitted.number < self.taken) {
            let Submitted { call, file, offset, bytes, .. } = submitted;
            capture::event_with(call, file, offset, bytes, self.start, 0);
        }
        self.may_end = false;
        if answer == wanted { Ok(()) } else { Err(answer) }
    }

    /// # Safety
    /// As of libaio's function.
    unsafe fn run(&mut self, count: c_long) -> Result<(), c_long> {
        for number in 0..count {
            // SAFETY: the caller's promise; at what the kernel refuses by EFAULT it stops.
            let Some(block) = (unsafe { (*self.blocks.offset(number as isize)).as_ref() }) else { break };
            // SAFETY: as above.
            if let Err(error) = unsafe { self.add(number, block) } {
                if self.may_end || !self.lent.is_empty() {
                    self.submit(number)?;
                }
                return Err(error);
            }
        }
        self.submit(count)
    }
}

/// # Safety
/// As of libaio's function: `blocks` are `count` addresses of control blocks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn io_submit(context: *mut c_void, count: c_long, blocks: *const *const Block) -> c_int {
    if count <= 0 || blocks.is_null() || !process::is_active() {
        let arguments = [context.addr() as c_long, count, blocks.addr() as c_long, 0, 0, 0];
        // SAFETY: what libaio does.
        return unsafe { call_kernel(libc::SYS_io_submit, arguments) as c_int };
    }
    let _errno = process::Errno::keep();
    let (lent, captured) = (Vec::new(), Vec::new());
    let mut submission =
        Submission { context, blocks, start: capture::now(), taken: 0, lent, captured, may_end: false };
    // SAFETY: the caller's promise.
    let result = unsafe { submission.run(count) };
    // As many as were taken; of the one after them the program learns when it submits it again.
    match result {
        Err(error) if submission.taken == 0 => error as c_int,
        _ => submission.taken as c_int,
    }
}
