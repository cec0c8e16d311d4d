//! Asynchronous requests on managed files, done at once.
//!
//! POSIX lets a request be finished when the call returns. The result goes where libc's own `aio_error` and
//! `aio_return` look for it, so these (and `aio_suspend`, `aio_cancel`) need not know of us.

use super::{Open, data, extent};
use crate::capture::At;
use libc::{aiocb, c_int, c_void, iovec, sigevent};
use rustix::io::Errno;

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Read,
    Write,
    Sync,
}

/// glibc's control block on 64-bit Linux, as `aio.h` declares it; the fields of the result are part of the binary interface,
/// because programs embed the block.
#[repr(C)]
struct Block {
    descriptor: c_int,
    operation: c_int,
    priority: c_int,
    buffer: *mut c_void,
    bytes: usize,
    event: sigevent,
    next: *mut c_void,
    absolute_priority: c_int,
    policy: c_int,
    error: c_int,
    result: isize,
    offset: i64,
    reserved: [u8; 32],
}

const _: () = assert!(size_of::<Block>() == size_of::<aiocb>());
const _: () = assert!(std::mem::offset_of!(Block, offset) == std::mem::offset_of!(aiocb, aio_offset));
const _: () = assert!(std::mem::offset_of!(Block, event) == std::mem::offset_of!(aiocb, aio_sigevent));

/// Does the request and leaves its result in the block.
///
/// # Safety
/// `request` is the program's control block, not in use by another request.
pub(crate) unsafe fn run(open: &Open, request: *mut aiocb, kind: Kind) -> Result<usize, Errno> {
    // SAFETY: the same memory; sizes and places were compared above.
    let block = unsafe { &mut *request.cast::<Block>() };
    let vector = [iovec { iov_base: block.buffer, iov_len: block.bytes }];
    let at = At::Given(block.offset);
    let result = match kind {
        Kind::Read => data::read(open, block.descriptor, &vector, at).map(|moved| moved.bytes),
        Kind::Write => data::write(open, block.descriptor, &vector, at).map(|moved| moved.bytes),
        Kind::Sync => extent::sync(open, false).map(|()| 0),
    };
    (block.result, block.error) = match result {
        Ok(bytes) => (bytes as isize, 0),
        Err(errno) => (-1, errno.raw_os_error()),
    };
    result
}

/// Tells the program that a request is done, the way it asked for.
///
/// # Safety
/// `event` is the program's.
pub(crate) unsafe fn notify(event: &sigevent) {
    match event.sigev_notify {
        libc::SIGEV_SIGNAL => {
            // As libc does it: the signal carries the value and says that it comes from asynchronous I/O.
            // SAFETY: a siginfo_t is 128 bytes of integers.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            info.si_signo = event.sigev_signo;
            info.si_code = libc::SI_ASYNCIO;
            /// Process, user and value behind the three first integers.
            #[repr(C)]
            struct Sender {
                header: [c_int; 4],
                process: c_int,
                user: u32,
                value: libc::sigval,
            }
            // SAFETY: within the 128 bytes, at the places of the kernel's union.
            unsafe {
                let sender = &mut *std::ptr::from_mut(&mut info).cast::<Sender>();
                sender.process = libc::getpid();
                sender.user = libc::getuid();
                sender.value = event.sigev_value;
                libc::syscall(libc::SYS_rt_sigqueueinfo, libc::getpid(), event.sigev_signo, &raw const info);
            }
        }
        libc::SIGEV_THREAD => {
            /// What `sigevent` holds for this way of notification.
            #[repr(C)]
            struct Call {
                value: libc::sigval,
                signal: c_int,
                notify: c_int,
                function: Option<extern "C" fn(libc::sigval)>,
                attributes: *const libc::pthread_attr_t,
            }
            // SAFETY: the same memory; a thread notification keeps function and attributes there.
            let call = unsafe { &*std::ptr::from_ref(event).cast::<Call>() };
            let Some(function) = call.function else { return };
            let boxed = Box::into_raw(Box::new((function, call.value)));
            extern "C" fn body(argument: *mut c_void) -> *mut c_void {
                // SAFETY: made just below.
                let (function, value) =
                    *unsafe { Box::from_raw(argument.cast::<(extern "C" fn(libc::sigval), libc::sigval)>()) };
                function(value);
                std::ptr::null_mut()
            }
            // SAFETY: a detached thread that gets the box.
            unsafe {
                let mut thread = std::mem::zeroed();
                if libc::pthread_create(&mut thread, call.attributes, body, boxed.cast()) == 0 {
                    libc::pthread_detach(thread);
                } else {
                    drop(Box::from_raw(boxed));
                }
            }
        }
        _ => {}
    }
}
