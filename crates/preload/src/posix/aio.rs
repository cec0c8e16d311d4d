//! Asynchronous I/O of POSIX, which libc does with threads of its own below any symbol: the whole family is wrapped.
//!
//! On an ordinary file libc works; the request is recorded when the program takes its result, or at the end. On a
//! managed file the request is done before the call returns, and its control block is left as libc leaves that of a
//! finished request, so that libc's own `aio_error`, `aio_return`, `aio_suspend` and `aio_cancel` serve it.

use crate::capture::{self, CAPTURED_BITS, Captured};
use crate::descriptors::{Known, lookup};
use crate::process;
use crate::real::interpose;
use crate::redirect::aio as redirected;
use libc::{aiocb, c_int, sigevent, ssize_t};
use rustix::io::Errno;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use stripewise_capture::call::Call;
use stripewise_capture::clock::{self, Ticks};
use stripewise_capture::format::NO_OFFSET;
use stripewise_layout::FileOffset;

/// A captured request whose result was not taken yet.
struct Pending {
    request: AtomicPtr<aiocb>,
    /// Call code and file.
    what: AtomicU64,
    start: AtomicU64,
    offset: AtomicU64,
    bytes: AtomicU64,
}

/// Requests pending at once; one beyond is recorded when it is made, with the bytes asked for.
const PENDING: usize = 4096;
static REQUESTS: [Pending; PENDING] = [const {
    Pending {
        request: AtomicPtr::new(std::ptr::null_mut()),
        what: AtomicU64::new(0),
        start: AtomicU64::new(0),
        offset: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    }
}; PENDING];

fn places(request: *const aiocb) -> impl Iterator<Item = &'static Pending> {
    let first = (request as usize >> 3).wrapping_mul(0x9e37_79b9) % PENDING;
    (0..64).map(move |step| &REQUESTS[(first + step) % PENDING])
}

/// Stands in `request` while a place is being filled or emptied.
fn taken() -> *mut aiocb {
    std::ptr::without_provenance_mut(1)
}

/// # Safety
/// `request` is the program's control block.
unsafe fn note(call: Call, request: *mut aiocb, file: Captured, start: Ticks) {
    // SAFETY: the caller's promise.
    let block = unsafe { &*request };
    let is_data = !matches!(call, Call::AioFsync);
    let (offset, bytes) = if is_data { (block.aio_offset as u64, block.aio_nbytes as u64) } else { (NO_OFFSET.0, 0) };
    // A request of that address still there was never asked for its result.
    let place = places(request).find(|place| {
        let found = place.request.load(Ordering::Relaxed);
        (found.is_null() || found == request)
            && place.request.compare_exchange(found, taken(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    });
    match place {
        Some(place) => {
            place.what.store(u64::from(call.code()) << CAPTURED_BITS | file.word(), Ordering::Relaxed);
            place.start.store(start.0, Ordering::Relaxed);
            place.offset.store(offset, Ordering::Relaxed);
            place.bytes.store(bytes, Ordering::Relaxed);
            place.request.store(request, Ordering::Release);
        }
        None => capture::event_with(call, file, FileOffset(offset), bytes, start, 0),
    }
}

/// Records a request whose result is known: bytes, or -1 with the error; `None` means it was never asked for.
fn settle(place: &Pending, request: *mut aiocb, result: Option<(ssize_t, c_int)>) {
    if place.request.compare_exchange(request, taken(), Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    let what = place.what.load(Ordering::Relaxed);
    if let Some(call) = Call::from_code((what >> CAPTURED_BITS) as u8) {
        let (bytes, errno) = match result {
            None => (place.bytes.load(Ordering::Relaxed), 0),
            Some((bytes, _)) if bytes >= 0 => (bytes as u64, 0),
            Some((_, errno)) => (0, errno as u32),
        };
        let offset = FileOffset(place.offset.load(Ordering::Relaxed));
        capture::event_with(
            call,
            Captured::from_word(what),
            offset,
            bytes,
            Ticks(place.start.load(Ordering::Relaxed)),
            errno,
        );
    }
    place.request.store(std::ptr::null_mut(), Ordering::Release);
}

/// At the end of the program: requests that nobody asked about.
pub(crate) fn record_pending() {
    for place in &REQUESTS {
        let request = place.request.load(Ordering::Acquire);
        if !request.is_null() && request != taken() {
            settle(place, request, None);
        }
    }
}

/// One request of either kind.
///
/// # Safety
/// `request` is null or the program's control block.
unsafe fn submit(call: Call, request: *mut aiocb, real: impl FnOnce() -> c_int, managed: redirected::Kind) -> c_int {
    if request.is_null() {
        return real();
    }
    // SAFETY: the caller's promise.
    match lookup(unsafe { (*request).aio_fildes }) {
        Known::Plain => real(),
        Known::OfChild => process::fail(Errno::OPNOTSUPP),
        Known::Captured(key) => {
            let start = clock::now();
            let result = real();
            if result == 0 {
                // SAFETY: as above.
                unsafe { note(call, request, key, start) };
            }
            result
        }
        Known::Managed(open) => {
            // SAFETY: as above.
            let (start, result) = (capture::now(), unsafe { redirected::run(&open, request, managed) });
            if let Some(key) = open.captured() {
                let (bytes, errno) =
                    result.map_or_else(|errno| (0, errno.raw_os_error() as u32), |bytes| (bytes as u64, 0));
                // SAFETY: as above.
                let offset = unsafe { (*request).aio_offset } as u64;
                capture::event_with(call, key, FileOffset(offset), bytes, start, errno);
            }
            // SAFETY: as above.
            unsafe { redirected::notify(&(*request).aio_sigevent) };
            0
        }
    }
}

interpose! {
    fn aio_read[aio_read64] (request: *mut aiocb) -> c_int |real| {
        submit(Call::AioRead, request, || real(request), redirected::Kind::Read)
    }

    fn aio_write[aio_write64] (request: *mut aiocb) -> c_int |real| {
        submit(Call::AioWrite, request, || real(request), redirected::Kind::Write)
    }

    fn aio_fsync[aio_fsync64] (operation: c_int, request: *mut aiocb) -> c_int |real| {
        if !matches!(operation, libc::O_SYNC | libc::O_DSYNC) {
            return real(operation, request);
        }
        submit(Call::AioFsync, request, || real(operation, request), redirected::Kind::Sync)
    }

    fn aio_return[aio_return64] (request: *mut aiocb) -> ssize_t |real| {
        let place = if capture::recorder().is_some() {
            places(request).find(|place| place.request.load(Ordering::Acquire) == request)
        } else {
            None
        };
        let Some(place) = place else { return real(request) };
        let errno = libc::aio_error(request);
        let result = real(request);
        settle(place, request, Some((if errno == 0 { result } else { -1 }, errno)));
        result
    }

    fn lio_listio[lio_listio64] (mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int |real| {
        if !process::is_active() || list.is_null() || count <= 0 || !matches!(mode, libc::LIO_WAIT | libc::LIO_NOWAIT) {
            return real(mode, list, count, event);
        }
        let all = std::slice::from_raw_parts(list, count as usize);
        // libc gets the list without ours.
        let mut rest = Vec::with_capacity(all.len());
        let mut failed = false;
        let start = clock::now();
        for &request in all {
            let wanted = !request.is_null() && (*request).aio_lio_opcode != libc::LIO_NOP;
            if !wanted {
                continue;
            }
            let (call, kind) = match (*request).aio_lio_opcode {
                libc::LIO_WRITE => (Call::LioWrite, redirected::Kind::Write),
                _ => (Call::LioRead, redirected::Kind::Read),
            };
            match lookup((*request).aio_fildes) {
                Known::Managed(open) => {
                    drop(open);
                    submit(call, request, || -1, kind);
                    failed |= libc::aio_error(request) != 0;
                }
                Known::Captured(key) => {
                    note(call, request, key, start);
                    rest.push(request);
                }
                Known::Plain => rest.push(request),
                Known::OfChild => return process::fail(Errno::OPNOTSUPP),
            }
        }
        if rest.is_empty() && !all.is_empty() {
            if mode == libc::LIO_NOWAIT && !event.is_null() {
                redirected::notify(&*event);
            }
            return if failed && mode == libc::LIO_WAIT { process::fail(Errno::IO) } else { 0 };
        }
        let result = real(mode, rest.as_ptr(), rest.len() as c_int, event);
        if result == 0 && failed && mode == libc::LIO_WAIT { process::fail(Errno::IO) } else { result }
    }
}
