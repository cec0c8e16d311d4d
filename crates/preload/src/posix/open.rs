//! Opening files.
//!
//! An open of an unmanaged file costs one `fstat` and a question for the process number when redirection is on. Two
//! things must be decided before the kernel's open: `O_TRUNC` would cut the stub instead of the data, so it is taken
//! out and done afterwards, on what was opened; and `O_CREAT` below a managed directory makes a managed file.

use crate::borrow::borrow;
use crate::capture;
use crate::descriptors;
use crate::log::{Level, log_once};
use crate::process::{self, Inside};
use crate::real::interpose;
use crate::redirect;
use crate::redirect::open::Creation;
use libc::{c_char, c_int, mode_t};
use rustix::fs::{AtFlags, FileType, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::CStr;
use stripewise_capture::call::Call;
use stripewise_capture::clock::Ticks;
use stripewise_store::common_memory::{self, Pages, is_common_memory};
use stripewise_store::descriptors as own;
use stripewise_store::shared::processes::is_used_here;

/// The flags as the kernel needs them, and what is left to do after its open.
struct Plan {
    flags: c_int,
    truncate: bool,
    created: bool,
}

fn status_at(directory: c_int, path: &CStr) -> rustix::io::Result<Stat> {
    // SAFETY: AT_FDCWD or what the program passed; the kernel checks it.
    rustix::fs::statat(unsafe { borrow(directory) }, path, AtFlags::empty())
}

fn is_directory(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::Directory
}

fn plan(directory: c_int, path: &CStr, flags: c_int) -> Plan {
    let creates = flags & libc::O_CREAT != 0;
    let created =
        creates && capture::recorder().is_some() && (flags & libc::O_EXCL != 0 || status_at(directory, path).is_err());
    // With O_RDONLY a directory can be opened, and the kernel says why it is not to be cut.
    let may_be_directory = flags & (libc::O_ACCMODE | libc::O_CREAT) == libc::O_RDONLY;
    let truncate = flags & libc::O_TRUNC != 0
        && redirect::is_on()
        && flags & libc::O_PATH == 0
        && !(may_be_directory && status_at(directory, path).is_ok_and(|status| is_directory(&status)));
    Plan { flags: if truncate { flags & !libc::O_TRUNC } else { flags }, truncate, created }
}

/// A program that closes one of the first three descriptors gets its number for the next file that it opens, and the
/// stream goes on with that.
fn replace_standard(opened: c_int) {
    if (0..3).contains(&opened) && process::is_active() && !Inside::is_set() && process::owns_tables() {
        let _errno = process::Errno::keep();
        redirect::stdio::descriptor_replaced(opened);
    }
}

/// Opens that find a file removed under them, one after the other, before it is said not to be there.
const MAX_REMOVED: usize = 64;

/// # Safety
/// `path` is what the program passed for a string.
unsafe fn open_with(
    call: Call,
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    real: impl Fn(c_int) -> c_int,
) -> c_int {
    // Between the kernel's open of a stub and the broker's of its file another process may remove it: then there was none, or another is there now.
    for _ in 0..MAX_REMOVED {
        // SAFETY: as promised.
        if let Some(result) = unsafe { try_open(call, directory, path, flags, mode, &real) } {
            replace_standard(result);
            return result;
        }
    }
    process::fail(Errno::NOENT)
}

/// Opens once; `None` when the file was removed meanwhile.
///
/// # Safety
/// As [`open_with`].
unsafe fn try_open(
    call: Call,
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    real: &impl Fn(c_int) -> c_int,
) -> Option<c_int> {
    if path.is_null() || !process::is_active() {
        return Some(real(flags));
    }
    if Inside::is_set() {
        return Some(real(flags));
    }
    // SAFETY: as promised.
    let path = unsafe { CStr::from_ptr(path) };
    let start = capture::now();
    let changes = flags & (libc::O_CREAT | libc::O_TRUNC) != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    let inside = if changes { Inside::enter() } else { None };
    let mut exists = false;
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        // What the kernel refuses is left to it.
        let makes = flags & libc::O_CREAT == 0 && flags & libc::O_ACCMODE != libc::O_RDONLY;
        if makes
            && redirect::is_on()
            && let Some(result) = redirect::open::create_unnamed(directory, path, flags, mode)
        {
            return Some(match result {
                Ok(descriptor) => {
                    note_managed(call, descriptor, true, start);
                    descriptor
                }
                Err(errno) => process::fail(errno),
            });
        }
    } else if flags & libc::O_CREAT != 0 && redirect::is_on() {
        match redirect::open::create(directory, path, flags, mode) {
            Ok(Creation::Made(descriptor)) => {
                note_managed(call, descriptor, true, start);
                return Some(descriptor);
            }
            Ok(Creation::Exists) => exists = true,
            Ok(Creation::Ordinary) => {}
            Err(errno) => return Some(process::fail(errno)),
        }
    }
    let plan = plan(directory, path, if exists { flags & !libc::O_CREAT } else { flags });
    drop(inside);
    // Not inside: the kernel's open may block (a FIFO), and a signal handler may write meanwhile.
    let descriptor = real(plan.flags);
    if descriptor < 0 {
        let was_removed = exists && process::errno() == libc::ENOENT;
        return (!was_removed).then_some(descriptor);
    }
    let errno = process::Errno::keep();
    // SAFETY: just opened.
    let status = rustix::fs::fstat(unsafe { borrow(descriptor) });
    if status.as_ref().is_ok_and(|status| is_unconcerned(&plan, path, status)) && process::owns_tables() {
        descriptors::set_plain(descriptor);
        return Some(descriptor);
    }
    let inside = Inside::enter();
    let result = note(call, descriptor, status, (directory, path), &plan, start);
    drop(inside);
    drop(errno);
    match result {
        Ok(()) => Some(descriptor),
        Err(error) => {
            // SAFETY: just opened.
            let was_removed = redirect::was_removed(unsafe { borrow(descriptor) }, error);
            if !process::owns_tables() || !own::owns_descriptor(descriptor) {
                // SAFETY: the program never learns of this descriptor.
                unsafe { rustix::io::close(descriptor) };
            }
            (!was_removed).then(|| process::fail(error))
        }
    }
}

fn note_managed(call: Call, descriptor: c_int, created: bool, start: Ticks) {
    if let descriptors::Known::Managed(open) = descriptors::lookup(descriptor)
        && let Some(key) = open.captured()
    {
        capture::opened(call, key, created, start);
    }
}

/// Whether what was just opened is neither managed nor recorded, and nothing is left to do: most opens of a program are such, and block no signals.
fn is_unconcerned(plan: &Plan, path: &CStr, status: &Stat) -> bool {
    let identity = (status.st_dev, status.st_ino);
    let is_regular = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
    !plan.truncate
        && status.st_nlink > 0
        && capture::recorder().is_none()
        && !(is_common_memory(path.to_bytes()) && redirect::is_on())
        && !is_used_here(identity)
        && !(is_regular && redirect::is_on() && redirect::may_be_managed(status.st_size as u64, identity))
}

/// Looks at a descriptor just opened and enters it in the table.
fn note(
    call: Call,
    descriptor: c_int,
    status: rustix::io::Result<Stat>,
    (directory, path): (c_int, &CStr),
    plan: &Plan,
    start: Ticks,
) -> Result<(), Errno> {
    let owns = process::owns_tables();
    if !owns {
        process::children::begins();
    }
    // SAFETY: just opened.
    let borrowed = unsafe { borrow(descriptor) };
    if plan.flags & libc::O_PATH == 0
        && status.as_ref().is_ok_and(|status| is_used_here((status.st_dev, status.st_ino)))
    {
        if owns {
            // To close it would end the locks by which others see that this process lives, and a move would lose what it writes.
            own::keep(borrowed);
            let _ = rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC);
        }
        return Err(Errno::ACCESS);
    }
    if status.as_ref().is_ok_and(|status| status.st_nlink == 0 && redirect::was_replaced(directory, path, status)) {
        return Err(Errno::STALE);
    }
    let regular = status.as_ref().is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::RegularFile);
    let Some(status) = status.ok().filter(|_| regular && plan.flags & libc::O_PATH == 0) else {
        if owns {
            descriptors::set_plain(descriptor);
        }
        return Ok(());
    };
    if owns {
        descriptors::forget(descriptor);
        if descriptors::adopt(borrowed, &status) {
            let usable =
                if plan.truncate { redirect::open::truncate(descriptor) } else { redirect::open::check(descriptor) };
            if let Err(errno) = usable {
                descriptors::forget(descriptor);
                return Err(errno);
            }
            note_managed(call, descriptor, false, start);
            return Ok(());
        }
    } else if plan.truncate && redirect::is_stub(borrowed, &status) {
        // A vfork child prepares a descriptor for the program it will become; the cut is the broker's in any case.
        return redirect::open::truncate_unadopted(borrowed);
    }
    if plan.truncate && plan.flags & libc::O_ACCMODE == libc::O_RDONLY {
        // Linux cuts for an open that then only reads, if it might write.
        redirect::open::truncate_ordinary(borrowed)?;
    } else if plan.truncate {
        rustix::fs::ftruncate(borrowed, 0)?;
    }
    if !owns {
        return Ok(());
    }
    if is_common_memory(path.to_bytes()) && redirect::is_on() {
        common_memory::mark(borrowed, Pages::Common).inspect_err(|_| log_other_pages(path))?;
    }
    match capture::key_of_open(borrowed, &status) {
        Some(key) => {
            let write_class = Some(capture::write_class_of(OFlags::from_bits_retain(plan.flags as u32)));
            let file = capture::Captured { key, write_class };
            descriptors::set_captured(descriptor, file);
            capture::opened(call, file, plan.created, start);
        }
        None => descriptors::set_plain(descriptor),
    }
    Ok(())
}

#[cold]
fn log_other_pages(path: &CStr) {
    let what = b": memory that programs share is mapped on a mount without passthrough, which has pages of its own; use the database by one of them only";
    log_once(Level::Error, &[path.to_bytes(), what]);
}

/// `__open_2` and its like are what a call without a mode becomes under `_FORTIFY_SOURCE`; asking to create without
/// one is an error there.
fn check_mode_not_needed(flags: c_int) {
    if flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE {
        process::say_as_libc(b"*** invalid open call: O_CREAT or O_TMPFILE without mode ***: terminated");
        // SAFETY: ends the process, as libc's own does.
        unsafe { libc::abort() }
    }
}

interpose! {
    fn open[open64, __open, __open64] (path: *const c_char, flags: c_int, mode: mode_t) -> c_int |real| {
        open_with(Call::Open, libc::AT_FDCWD, path, flags, mode, |flags| real(path, flags, mode))
    }

    fn openat[openat64] (directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int |real| {
        open_with(Call::Openat, directory, path, flags, mode, |flags| real(directory, path, flags, mode))
    }

    fn __open_2[__open64_2] (path: *const c_char, flags: c_int) -> c_int |_real| {
        check_mode_not_needed(flags);
        open(path, flags, 0)
    }

    fn __openat_2[__openat64_2] (directory: c_int, path: *const c_char, flags: c_int) -> c_int |_real| {
        check_mode_not_needed(flags);
        openat(directory, path, flags, 0)
    }

    fn mkstemp[mkstemp64] (template: *mut c_char) -> c_int |real| {
        temporary(template, 0, 0).unwrap_or_else(|| real(template))
    }

    fn mkostemp[mkostemp64] (template: *mut c_char, flags: c_int) -> c_int |real| {
        temporary(template, 0, flags).unwrap_or_else(|| real(template, flags))
    }

    fn mkstemps[mkstemps64] (template: *mut c_char, suffix: c_int) -> c_int |real| {
        temporary(template, suffix, 0).unwrap_or_else(|| real(template, suffix))
    }

    fn mkostemps[mkostemps64] (template: *mut c_char, suffix: c_int, flags: c_int) -> c_int |real| {
        temporary(template, suffix, flags).unwrap_or_else(|| real(template, suffix, flags))
    }

    fn creat[creat64] (path: *const c_char, mode: mode_t) -> c_int |real| {
        let whole = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
        open_with(Call::Creat, libc::AT_FDCWD, path, whole, mode, |flags| {
            // Without O_TRUNC it is no longer what `creat` does.
            if flags == whole { real(path, mode) } else { raw_open(path, flags, mode) }
        })
    }
}

/// `openat2`, for which libc has no function. A new managed file whose path is subject to `resolve` is refused: the library
/// resolves the path itself to see that it is to be managed.
///
/// # Safety
/// As of the system call, which `real` makes.
pub(crate) unsafe fn openat2(
    directory: c_int,
    path: *const c_char,
    how: *const libc::open_how,
    bytes: libc::size_t,
    real: unsafe fn(c_int, *const c_char, *const libc::open_how, libc::size_t) -> c_int,
) -> c_int {
    const MODE: u64 = 0o7777;
    // Larger forms of later kernels go there as they are, unless they say nothing more than this one.
    if how.is_null() || path.is_null() || bytes != size_of::<libc::open_how>() || !redirect::is_on() {
        // SAFETY: the caller's promise.
        return unsafe { real(directory, path, how, bytes) };
    }
    // SAFETY: the caller's promise.
    let (asked, name) = unsafe { (*how, CStr::from_ptr(path)) };
    let creates =
        asked.flags & libc::O_CREAT as u64 != 0 || asked.flags & libc::O_TMPFILE as u64 == libc::O_TMPFILE as u64;
    let is_valid = c_int::try_from(asked.flags).is_ok() && asked.mode & !MODE == 0 && (creates || asked.mode == 0);
    if !is_valid {
        // SAFETY: as above.
        return unsafe { real(directory, path, how, bytes) };
    }
    if creates && asked.resolve != 0 {
        let _inside = Inside::enter();
        if redirect::open::would_create(directory, name) {
            return process::fail(Errno::NOSYS);
        }
    }
    let by_kernel = |flags: c_int| {
        let mut how = asked;
        how.flags = flags as u64;
        // SAFETY: as above.
        unsafe { real(directory, path, &how, bytes) }
    };
    // SAFETY: as above.
    unsafe { open_with(Call::Openat, directory, path, asked.flags as c_int, asked.mode as mode_t, by_kernel) }
}

/// A temporary file below a managed directory, opened as libc would; none when it is libc's affair.
///
/// # Safety
/// `template` is null or a writable string.
unsafe fn temporary(template: *mut c_char, suffix: c_int, flags: c_int) -> Option<c_int> {
    const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    if template.is_null() || !process::is_active() || !redirect::is_on() || Inside::is_set() {
        return None;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(template) };
    let length = name.to_bytes().len();
    let start = length.checked_sub(6)?.checked_sub(usize::try_from(suffix).ok()?)?;
    if &name.to_bytes()[start..start + 6] != b"XXXXXX" {
        return None;
    }
    {
        let _errno = process::Errno::keep();
        let _inside = Inside::enter()?;
        if !redirect::open::would_create(libc::AT_FDCWD, name) {
            return None;
        }
    }
    for _ in 0..1000 {
        let mut random = [0u8; 6];
        let _ = rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty());
        for (place, byte) in random.iter().enumerate() {
            // SAFETY: within the string, which the program lends for this.
            unsafe { *template.add(start + place) = LETTERS[usize::from(*byte) % LETTERS.len()] as c_char };
        }
        let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        // SAFETY: the program's string.
        let descriptor = unsafe { open(template, flags, 0o600) };
        if descriptor >= 0 || process::errno() != libc::EEXIST {
            return Some(descriptor);
        }
    }
    Some(process::fail(Errno::EXIST))
}

/// # Safety
/// `path` is a string.
unsafe fn raw_open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    use rustix::fs::Mode;
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    match rustix::fs::open(path, OFlags::from_bits_retain(flags as u32), Mode::from_raw_mode(mode)) {
        Ok(descriptor) => std::os::fd::IntoRawFd::into_raw_fd(descriptor),
        Err(errno) => process::fail(errno),
    }
}

/// The open below a stream of ours.
///
/// # Safety
/// `path` is the program's string.
pub(crate) unsafe fn open_for_stream(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_with(Call::Fopen, libc::AT_FDCWD, path, flags, 0o666, |flags| raw_open(path, flags, 0o666)) }
}
