//! Streams.
//!
//! What libc reads and writes below a stream goes through no symbol that could be interposed. So a captured stream is
//! recorded as the program uses it: `fread` and `fwrite` one by one, and what characters, lines and formats moved in
//! between as one record, found by the stream's position at the next of our calls (`fread`, `fwrite`, `fseek`,
//! `fflush`, `fclose`, exit). Nothing of the stream's behaviour changes. A stream on a managed file is one of
//! `fopencookie`, whose functions are our own `read`, `write`, `lseek`, `close`.

use crate::capture::{self, Captured};
use crate::descriptors::{self, Known, lookup};
use crate::process::{self, Inside};
use crate::real::interpose;
use crate::redirect;
use crate::redirect::stdio::{self as redirected, Opened};
use libc::{FILE, c_char, c_int, c_long, c_void, fpos_t, off_t, size_t};
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};
use stripewise_capture::call::Call;
use stripewise_capture::clock::{self, Ticks};
use stripewise_capture::format::NO_OFFSET;
use stripewise_layout::FileOffset;

unsafe extern "C" {
    fn ftello(stream: *mut FILE) -> off_t;
    fn __freading(stream: *mut FILE) -> c_int;
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// The body of a variadic function: a `va_list` of the System V ABI on the stack, with `$fixed` bytes of register
/// arguments taken, handed on in `$list` behind the fixed arguments, which stay where they are.
#[cfg(target_arch = "x86_64")]
macro_rules! spill_into_list {
    ($fixed:literal, $list:literal, $next:literal) => {
        concat!(
            "sub rsp, 216\n mov [rsp + 32], rdi\n mov [rsp + 40], rsi\n mov [rsp + 48], rdx\n mov [rsp + 56], rcx\n",
            "mov [rsp + 64], r8\n mov [rsp + 72], r9\n test al, al\n je 2f\n",
            "movaps [rsp + 80], xmm0\n movaps [rsp + 96], xmm1\n movaps [rsp + 112], xmm2\n movaps [rsp + 128], xmm3\n",
            "movaps [rsp + 144], xmm4\n movaps [rsp + 160], xmm5\n movaps [rsp + 176], xmm6\n movaps [rsp + 192], xmm7\n2:\n",
            "mov dword ptr [rsp], ", $fixed, "\n mov dword ptr [rsp + 4], 48\n lea rax, [rsp + 224]\n mov [rsp + 8], rax\n",
            "lea rax, [rsp + 32]\n mov [rsp + 16], rax\n mov ", $list, ", rsp\n call ", $next, "\n add rsp, 216\n ret"
        )
    };
}

pub(super) use spill_into_list;

/// A captured stream and where the next byte was when it was last looked at.
struct Watched {
    stream: AtomicPtr<FILE>,
    position: AtomicI64,
}

/// Streams watched at once; one beyond leaves records of `fread` and `fwrite` only.
const WATCHED: usize = 1024;
static STREAMS: [Watched; WATCHED] =
    [const { Watched { stream: AtomicPtr::new(std::ptr::null_mut()), position: AtomicI64::new(0) } }; WATCHED];

fn watched(stream: *mut FILE) -> Option<&'static Watched> {
    places(stream).find(|place| place.stream.load(Ordering::Acquire) == stream)
}

/// The few places where a stream may stand.
fn places(stream: *mut FILE) -> impl Iterator<Item = &'static Watched> {
    let first = (stream as usize >> 4).wrapping_mul(0x9e37_79b9) % WATCHED;
    (0..32).map(move |step| &STREAMS[(first + step) % WATCHED])
}

fn watch(stream: *mut FILE, position: i64) {
    let free = || {
        places(stream).find(|place| {
            place.stream.compare_exchange(std::ptr::null_mut(), stream, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    };
    if let Some(place) = watched(stream).or_else(free) {
        place.position.store(position, Ordering::Release);
    }
}

fn unwatch(stream: *mut FILE) {
    if let Some(place) = watched(stream) {
        place.stream.store(std::ptr::null_mut(), Ordering::Release);
    }
}

fn descriptor_of(stream: *mut FILE) -> c_int {
    let _errno = process::Errno::keep();
    // SAFETY: the stream is the program's, open.
    unsafe { next_fileno(stream) }
}

fn position_of(stream: *mut FILE) -> i64 {
    let _errno = process::Errno::keep();
    // SAFETY: as above.
    unsafe { ftello(stream) }
}

/// The number in the trace of the file under a captured stream.
fn key_of(stream: *mut FILE) -> Option<Captured> {
    if stream.is_null() || capture::recorder().is_none() {
        return None;
    }
    match lookup(descriptor_of(stream)) {
        Known::Captured(key) => Some(key),
        _ => None,
    }
}

/// Records what moved since the stream was last looked at, as one access. Answers where the stream is now.
fn settle(stream: *mut FILE, key: Captured) -> i64 {
    let now = position_of(stream);
    match watched(stream) {
        Some(place) => {
            let before = place.position.swap(now, Ordering::AcqRel);
            if now > before && before >= 0 {
                let _errno = process::Errno::keep();
                // SAFETY: as above.
                let call = if unsafe { __freading(stream) } != 0 { Call::Fread } else { Call::Fwrite };
                capture::event(call, key, FileOffset(before as u64), (now - before) as u64, clock::now(), 0);
            }
        }
        None => watch(stream, now),
    }
    now
}

/// Runs a data call on a captured stream and records it.
fn recorded(call: Call, stream: *mut FILE, size: size_t, real: impl FnOnce() -> size_t) -> size_t {
    let Some(key) = key_of(stream) else { return real() };
    let start = clock::now();
    let before = settle(stream, key);
    let items = real();
    let bytes = items.saturating_mul(size) as u64;
    let errno = if items == 0 && is_failed(stream) { process::errno() as u32 } else { 0 };
    let offset = if before >= 0 { FileOffset(before as u64) } else { NO_OFFSET };
    capture::event_with(call, key, offset, bytes, start, errno);
    if let Some(place) = watched(stream) {
        place.position.store(position_of(stream), Ordering::Release);
    }
    items
}

fn is_failed(stream: *mut FILE) -> bool {
    // SAFETY: as above.
    unsafe { libc::ferror(stream) != 0 }
}

/// Runs a call after which the position is another one.
fn moving<T>(stream: *mut FILE, real: impl FnOnce() -> T) -> T {
    let Some(key) = key_of(stream) else { return real() };
    settle(stream, key);
    let result = real();
    watch(stream, position_of(stream));
    result
}

/// A stream was just opened.
fn opened(stream: *mut FILE, start: Ticks) {
    let descriptor = descriptor_of(stream);
    if stream.is_null() || descriptor < 0 || !process::owns_tables() {
        return;
    }
    let _errno = process::Errno::keep();
    if let Some(key) = key_of(stream) {
        capture::opened(Call::Fopen, key, false, start);
        watch(stream, position_of(stream));
    }
}

/// The standard streams of a program whose input or output is a file.
pub(crate) fn watch_standard_streams() {
    // SAFETY: libc's own variables, read before `main`.
    for stream in unsafe { [stdin, stdout, stderr] } {
        if key_of(stream).is_some() {
            watch(stream, position_of(stream));
        }
    }
}

/// At the end of the program: what its streams moved since they were last looked at.
pub(crate) fn settle_all() {
    for place in &STREAMS {
        let stream = place.stream.load(Ordering::Acquire);
        if let Some(key) = key_of(stream) {
            settle(stream, key);
        }
    }
}

/// libc's own `fileno`.
///
/// # Safety
/// The stream is open.
pub(crate) unsafe fn next_fileno(stream: *mut FILE) -> c_int {
    type Function = unsafe extern "C" fn(*mut FILE) -> c_int;
    // SAFETY: the type of the C declaration.
    static NEXT: crate::real::Real<Function> = unsafe { crate::real::Real::new(c"fileno") };
    if stream.is_null() {
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe { NEXT.get()(stream) }
}

/// libc's own `fdopen`.
///
/// # Safety
/// The descriptor is open; the mode is a string.
unsafe fn next_fdopen(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    type Function = unsafe extern "C" fn(c_int, *const c_char) -> *mut FILE;
    // SAFETY: the type of the C declaration.
    static NEXT: crate::real::Real<Function> = unsafe { crate::real::Real::new(c"fdopen") };
    // SAFETY: the caller's promise.
    unsafe { NEXT.get()(descriptor, mode) }
}

/// `fopen` by our own open; none when it is libc's affair. `real` is libc's own.
fn open_redirected(
    path: *const c_char,
    mode: *const c_char,
    real: &dyn Fn(*const c_char, *const c_char) -> *mut FILE,
) -> Option<*mut FILE> {
    if path.is_null() || mode.is_null() || !redirect::is_on() || Inside::is_set() {
        return None;
    }
    let stream = match redirected::open(path, mode, super::open_for_stream)? {
        Opened::Failed => return Some(std::ptr::null_mut()),
        Opened::Managed(stream) => return Some(stream),
        // SAFETY: its descriptor, and the program's mode.
        Opened::Ordinary(ordinary) => ordinary.begin(|descriptor, mode| unsafe { next_fdopen(descriptor, mode) }, real),
    };
    watch_opened(stream);
    Some(stream)
}

/// A stream of libc's was made of a descriptor whose open is recorded.
fn watch_opened(stream: *mut FILE) {
    if process::owns_tables() && key_of(stream).is_some() {
        watch(stream, position_of(stream));
    }
}

/// Formats and writes by our own `write`, where libc would write from inside itself; none when it is libc's affair.
///
/// # Safety
/// As `vdprintf`.
unsafe fn formatted(fd: c_int, format: *const c_char, arguments: *mut c_void) -> Option<c_int> {
    unsafe extern "C" {
        fn vasprintf(text: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;
    }
    if matches!(lookup(fd), Known::Plain) {
        return None;
    }
    let mut text = std::ptr::null_mut();
    // SAFETY: the caller's promise.
    let length = unsafe { vasprintf(&raw mut text, format, arguments) };
    let mut done = 0;
    while done < length {
        // SAFETY: `length` bytes at `text`.
        let written = unsafe { libc::write(fd, text.add(done as usize).cast(), (length - done) as size_t) };
        if written <= 0 {
            break;
        }
        done += written as c_int;
    }
    if length >= 0 {
        let _errno = process::Errno::keep();
        // SAFETY: allocated by `vasprintf`.
        unsafe { libc::free(text.cast()) };
    }
    Some(if done < length { -1 } else { length })
}

/// `dprintf` is variadic with floating point among its arguments, so no fixed function can stand for it: this one
/// spills the registers into a `va_list`, as a C compiler would, and goes on in `vdprintf`.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dprintf() {
    std::arch::naked_asm!(spill_into_list!(16, "rdx", "{next}"), next = sym vdprintf)
}

/// As `dprintf`, with a flag before the format.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn __dprintf_chk() {
    std::arch::naked_asm!(spill_into_list!(24, "rcx", "{next}"), next = sym __vdprintf_chk)
}

interpose! {
    /// A `va_list` is passed by address on 64-bit x86 and Arm.
    fn vdprintf[] (fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int |real| {
        formatted(fd, format, arguments).unwrap_or_else(|| real(fd, format, arguments))
    }

    fn __vdprintf_chk[] (fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int |real| {
        formatted(fd, format, arguments).unwrap_or_else(|| real(fd, flag, format, arguments))
    }

    fn fopen[fopen64] (path: *const c_char, mode: *const c_char) -> *mut FILE |real| {
        if !process::is_active() {
            return real(path, mode);
        }
        if let Some(stream) = open_redirected(path, mode, &|path, mode| real(path, mode)) {
            return stream;
        }
        let start = capture::now();
        let stream = real(path, mode);
        if !stream.is_null() {
            if process::owns_tables() {
                descriptors::forget(descriptor_of(stream));
            }
            opened(stream, start);
        }
        stream
    }

    fn fdopen[] (fd: c_int, mode: *const c_char) -> *mut FILE |real| {
        if matches!(lookup(fd), Known::Managed(_) | Known::OfChild) {
            return redirected::open_descriptor(fd, mode);
        }
        let start = capture::now();
        let stream = real(fd, mode);
        opened(stream, start);
        stream
    }

    fn freopen[freopen64] (path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE |real| {
        if !process::is_active() {
            return real(path, mode, stream);
        }
        let start = capture::now();
        if let Some(key) = key_of(stream) {
            settle(stream, key);
            capture::event_with(Call::Fclose, key, NO_OFFSET, 0, start, 0);
        }
        unwatch(stream);
        if redirect::is_on()
            && !mode.is_null()
            && let Some(stream) =
                redirected::reopen(path, mode, stream, super::open_for_stream, &|path, mode, stream| real(path, mode, stream))
        {
            watch_opened(stream);
            return stream;
        }
        let before = descriptor_of(stream);
        if process::owns_tables() && before >= 0 {
            descriptors::forget(before);
        }
        let result = real(path, mode, stream);
        if !result.is_null() {
            if process::owns_tables() {
                descriptors::forget(descriptor_of(result));
            }
            opened(result, start);
        }
        result
    }

    fn fclose[] (stream: *mut FILE) -> c_int |real| {
        if !process::is_active() || stream.is_null() {
            return real(stream);
        }
        let lost = redirected::closing(stream).err();
        let start = capture::now();
        let key = key_of(stream);
        if let Some(key) = key {
            settle(stream, key);
        }
        unwatch(stream);
        let descriptor = descriptor_of(stream);
        if descriptor >= 0 && process::owns_tables() {
            if redirect::closing::is_watched() {
                // So that the file has its size; what fails is said by the call itself.
                libc::fflush(stream);
                redirect::closing::before_any_close(descriptor);
            }
            descriptors::forget(descriptor);
        }
        let result = real(stream);
        if let Some(key) = key {
            capture::event(Call::Fclose, key, NO_OFFSET, 0, start, i64::from(result));
        }
        match lost {
            // Answered as EOF, which is -1.
            Some(errno) if result == 0 => process::fail(errno),
            _ => result,
        }
    }

    fn fread[] (buffer: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t |real| {
        recorded(Call::Fread, stream, size, || real(buffer, size, count, stream))
    }

    fn fread_unlocked[] (buffer: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t |real| {
        recorded(Call::Fread, stream, size, || real(buffer, size, count, stream))
    }

    fn __fread_chk[] (
        buffer: *mut c_void, capacity: size_t, size: size_t, count: size_t, stream: *mut FILE,
    ) -> size_t |real| {
        recorded(Call::Fread, stream, size, || real(buffer, capacity, size, count, stream))
    }

    fn __fread_unlocked_chk[] (
        buffer: *mut c_void, capacity: size_t, size: size_t, count: size_t, stream: *mut FILE,
    ) -> size_t |real| {
        recorded(Call::Fread, stream, size, || real(buffer, capacity, size, count, stream))
    }

    fn fwrite[] (buffer: *const c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t |real| {
        recorded(Call::Fwrite, stream, size, || real(buffer, size, count, stream))
    }

    fn fwrite_unlocked[] (buffer: *const c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t |real| {
        recorded(Call::Fwrite, stream, size, || real(buffer, size, count, stream))
    }

    fn fflush[] (stream: *mut FILE) -> c_int |real| {
        let Some(key) = key_of(stream) else { return real(stream) };
        settle(stream, key);
        let start = clock::now();
        let result = real(stream);
        capture::event(Call::Fflush, key, NO_OFFSET, 0, start, i64::from(result));
        result
    }

    fn fseek[] (stream: *mut FILE, offset: c_long, whence: c_int) -> c_int |real| {
        moving(stream, || real(stream, offset, whence))
    }

    fn fseeko[fseeko64] (stream: *mut FILE, offset: off_t, whence: c_int) -> c_int |real| {
        moving(stream, || real(stream, offset, whence))
    }

    fn rewind[] (stream: *mut FILE) -> () |real| {
        moving(stream, || real(stream));
    }

    fn fsetpos[fsetpos64] (stream: *mut FILE, position: *const fpos_t) -> c_int |real| {
        moving(stream, || real(stream, position))
    }

    fn fileno[fileno_unlocked] (stream: *mut FILE) -> c_int |real| {
        match redirected::descriptor_of(stream).or_else(|| redirected::number_of(stream)) {
            Some(descriptor) => descriptor,
            None => real(stream),
        }
    }
}
