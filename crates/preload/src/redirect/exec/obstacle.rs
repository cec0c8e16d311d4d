//! Programs that run without this library: refused when they would meet a stub, else told once.
//!
//! Such a program reads a stub's text for data, or writes over it. That it will is certain enough when it inherits a descriptor of a managed file or an
//! argument names one; then it is not started. What else it opens cannot be known, so there is a warning: one for each program and run, by an empty file
//! in the run's directory of marks.

use super::chain::{Chain, Program, leads_to_stub};
use super::{Given, Strings, Who};
use crate::borrow::borrow;
use crate::capture;
use crate::process::{self, Level};
use crate::redirect::{Closing, is_on, is_stub, open_of_inode};
use libc::c_int;
use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use stripewise_store::executable::{Obstacle, obstacle_in};

/// The person who started the run takes such programs as they are.
static ALLOWED: AtomicBool = AtomicBool::new(false);
/// Directory of marks, a string that stays; null without one.
static MARKS: AtomicPtr<std::ffi::c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Reads the environment.
pub(super) fn prepare() {
    let allowed = process::variable(c"STRIPEWISE_ALLOW_UNREDIRECTED").is_some_and(|value| value != c"0");
    ALLOWED.store(allowed, Ordering::Relaxed);
    if let Some(marks) = process::variable(c"STRIPEWISE_MARKS") {
        MARKS.store(marks.to_owned().into_raw(), Ordering::Release);
    }
}

/// Refuses a program that would meet a stub, and warns of one that might.
///
/// # Safety
/// `given` has lists of strings.
pub(super) unsafe fn check(chain: &Chain, given: Given<'_>, who: Who) -> Result<(), Errno> {
    let Some(obstacle) = obstacle_of(chain, given) else { return Ok(()) };
    // SAFETY: the caller's promise.
    if unsafe { is_switched_off(given.environment) } {
        return Ok(());
    }
    let program = chain.last_interpreter().unwrap_or(given.path).to_bytes();
    let (what, remedy) = (obstacle.what().as_bytes(), obstacle.remedy().as_bytes());
    if is_on() && !ALLOWED.load(Ordering::Relaxed) {
        // SAFETY: the caller's promise.
        let met = unsafe { met_by(chain, given, who) };
        if let Some(met) = met {
            process::log(
                Level::Error,
                &[
                    b"not started: ",
                    program,
                    b" ",
                    what,
                    b", and it would meet the text that stands for ",
                    met.name(),
                    b"; ",
                    remedy,
                    b", run it on a mount of the directory (`",
                    obstacle.mount().as_bytes(),
                    b"`), or give `stripewise run` --allow-unredirected",
                ],
            );
            return Err(Errno::ACCESS);
        }
    }
    if is_first_time(chain.program()) {
        let lost: &[u8] =
            if is_on() { b"; what it does to managed files is not redirected; " } else { b"; it is not captured; " };
        process::log_once(Level::Warn, &[b"warning: ", program, b" ", what, lost, remedy]);
    }
    Ok(())
}

/// Why this library will not be in the program.
fn obstacle_of(chain: &Chain, given: Given<'_>) -> Option<Obstacle> {
    let found = match chain.program() {
        Program::Unknown => return None,
        Program::Ordinary(status) => {
            let path = chain.last_interpreter().unwrap_or(given.path);
            privilege_of(path, status).or_else(|| obstacle_in(chain.head()))
        }
        Program::Managed(_) => obstacle_in(chain.head()),
    }?;
    // The loader itself, named as a program, heeds LD_PRELOAD.
    let path = chain.last_interpreter().unwrap_or(given.path).to_bytes();
    let is_loader = found == Obstacle::Static && stripewise_store::executable::is_glibc_loader(path);
    (!is_loader).then_some(found)
}

/// Rights that the program gains by being run: the loader then ignores LD_PRELOAD.
fn privilege_of(path: &CStr, status: &Stat) -> Option<Obstacle> {
    if status.st_mode & 0o4000 != 0 && status.st_uid != rustix::process::getuid().as_raw() {
        return Some(Obstacle::SetUser);
    }
    if status.st_mode & 0o2010 == 0o2010 && status.st_gid != rustix::process::getgid().as_raw() {
        return Some(Obstacle::SetGroup);
    }
    let mut value = [0u8; 64];
    let length = rustix::fs::getxattr(path, c"security.capability", &mut value[..]);
    length.is_ok_and(|length| length > 0).then_some(Obstacle::Capabilities)
}

/// Whether the new program's environment switches this library off: then its user knows.
///
/// # Safety
/// `environment` is null or a list of strings.
unsafe fn is_switched_off(environment: Strings) -> bool {
    // SAFETY: the caller's promise.
    (0..unsafe { super::count(environment) }).any(|index| {
        // SAFETY: within the list.
        let variable = unsafe { CStr::from_ptr(*environment.add(index)) }.to_bytes();
        variable.strip_prefix(b"STRIPEWISE_DISABLE=").is_some_and(|value| !value.is_empty() && value != b"0")
    })
}

/// A managed file that a program would meet.
enum Met<'a> {
    Path(&'a [u8]),
    Descriptor(Box<capture::PathBuffer>, usize),
    /// By what libc's child does to its descriptors.
    Action,
}

impl Met<'_> {
    fn name(&self) -> &[u8] {
        match self {
            Self::Path(path) => path,
            Self::Descriptor(name, length) => &name[..*length],
            Self::Action => b"a managed file that it inherits",
        }
    }
}

/// # Safety
/// `given` has lists of strings.
unsafe fn met_by<'a>(chain: &Chain, given: Given<'a>, who: Who) -> Option<Met<'a>> {
    if who == (Who::Child { leads: true }) {
        return Some(Met::Action);
    }
    if chain.is_script() && leads_to_stub(given.path) {
        return Some(Met::Path(given.path.to_bytes()));
    }
    // SAFETY: the caller's promise.
    for index in 1..unsafe { super::count(given.arguments) } {
        // SAFETY: within the list; the program's strings outlive the call.
        let argument: &'a CStr = unsafe { CStr::from_ptr(*given.arguments.add(index)) };
        // `of=FILE`, `--input=FILE`.
        let equals = argument.to_bytes().iter().position(|byte| *byte == b'=');
        let value = equals.and_then(|at| CStr::from_bytes_with_nul(&argument.to_bytes_with_nul()[at + 1..]).ok());
        if let Some(name) = [Some(argument), value].into_iter().flatten().find(|name| leads_to_stub(name)) {
            return Some(Met::Path(name.to_bytes()));
        }
    }
    inherited()
}

/// Whether this process has the managed file open.
fn is_open_here(status: &Stat) -> bool {
    process::owns_tables() && open_of_inode((status.st_dev, status.st_ino)).is_some()
}

/// A descriptor of a managed file that stays open in the new program; by what the kernel says, since a child of `vfork` has changed descriptors that no
/// table knows.
fn inherited() -> Option<Met<'static>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = Closing(Some(rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()).ok()?));
    let mut buffer = [MaybeUninit::<u8>::uninit(); 2048];
    let mut entries = RawDir::new(directory.borrow(), &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse::<c_int>().ok());
        let Some(number) = number else { continue };
        // SAFETY: if it is closed meanwhile, the calls say so.
        let descriptor = unsafe { borrow(number) };
        if leads_to_managed(descriptor) {
            let mut name: Box<capture::PathBuffer> = Box::new([0; _]);
            let length = capture::name_of(descriptor, &mut name);
            return Some(Met::Descriptor(name, length));
        }
    }
    None
}

fn leads_to_managed(descriptor: BorrowedFd<'_>) -> bool {
    let is_kept = rustix::io::fcntl_getfd(descriptor).is_ok_and(|flags| !flags.contains(rustix::io::FdFlags::CLOEXEC));
    is_kept && is_managed(descriptor)
}

fn is_regular(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
}

/// Whether a descriptor leads to a managed file, whatever tables say.
pub(crate) fn is_managed(descriptor: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(descriptor)
        .is_ok_and(|status| is_regular(&status) && (is_open_here(&status) || is_stub(descriptor, &status)))
}

/// Whether nobody of this run has told of the program yet. Without a directory of marks everybody tells.
fn is_first_time(program: &Program) -> bool {
    // SAFETY: null, or set once to a string that stays.
    let marks = unsafe { MARKS.load(Ordering::Acquire).as_ref().map(|marks| CStr::from_ptr(marks)) };
    let (Some(marks), Program::Ordinary(status)) = (marks, program) else { return true };
    use std::io::Write;
    let mut path = [0u8; 4096];
    let mut buffer = &mut path[..4095];
    if buffer.write_all(marks.to_bytes()).and_then(|()| write!(buffer, "/{}-{}", status.st_dev, status.st_ino)).is_err()
    {
        return true;
    }
    let Ok(path) = CStr::from_bytes_until_nul(&path) else { return true };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(mark) => {
            drop(Closing(Some(mark)));
            true
        }
        Err(Errno::EXIST) => false,
        Err(_) => true,
    }
}
