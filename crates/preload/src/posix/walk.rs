//! Walks over directories: libc looks at each file by calls of its own, which are not ours, and hands the answer on.
//!
//! An answer of a stub's size is corrected on its way, or becomes one that says that the file could not be looked at.

use crate::process;
use crate::real::interpose;
use crate::redirect;
use libc::{AT_FDCWD, c_char, c_int, c_long, c_void};
use std::cell::Cell;
use std::ffi::{CStr, CString};

/// `fts_info` of a regular file, and of what `stat` failed for.
const FTS_F: u16 = 8;
const FTS_NS: u16 = 10;
/// `fts_options`.
const FTS_LOGICAL: c_int = 0x2;
const FTS_NOCHDIR: c_int = 0x4;

/// What a callback of `nftw` is told of a regular file, and of what `stat` failed for.
const FTW_F: c_int = 0;
const FTW_NS: c_int = 3;
/// Flags of `nftw`.
const FTW_PHYS: c_int = 1;
const FTW_CHDIR: c_int = 4;

/// glibc's `FTSENT`; that of the `64` functions is the same on 64-bit Linux.
#[repr(C)]
pub(crate) struct Entry {
    cycle: *mut Entry,
    parent: *mut Entry,
    link: *mut Entry,
    number: c_long,
    pointer: *mut c_void,
    access_path: *mut c_char,
    path: *mut c_char,
    error: c_int,
    symlink: c_int,
    path_length: u16,
    name_length: u16,
    inode: libc::ino_t,
    device: libc::dev_t,
    links: libc::nlink_t,
    level: i16,
    info: u16,
    flags: u16,
    instruction: u16,
    status: *mut libc::stat,
    name: [c_char; 1],
}

/// The beginning of glibc's `FTS`.
#[repr(C)]
pub(crate) struct Walk {
    current: *mut Entry,
    child: *mut Entry,
    array: *mut *mut Entry,
    device: libc::dev_t,
    path: *mut c_char,
    root: c_int,
    path_length: c_int,
    elements: c_int,
    compare: *mut c_void,
    options: c_int,
}

/// Looks again at a file whose answer may be a stub's; the errno of one that cannot be looked at.
///
/// # Safety
/// `path` is a string.
unsafe fn recheck_again(
    answer: &mut libc::stat,
    directory: c_int,
    path: *const c_char,
    follow: bool,
) -> Result<(), c_int> {
    let identity = (answer.st_dev, answer.st_ino);
    if !redirect::is_on() || !redirect::may_be_managed(answer.st_size as u64, identity) {
        return Ok(());
    }
    let _errno = process::Errno::keep();
    let (flags, inode) = (if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW }, (answer.st_dev, answer.st_ino));
    // SAFETY: the caller's promise. Ours, which corrects; what it fails with is the file's.
    let result = unsafe { super::status::fstatat(directory, path, answer, flags) };
    match result {
        0 if (answer.st_dev, answer.st_ino) == inode => Ok(()),
        0 => Err(libc::ENOENT),
        _ => Err(process::errno()),
    }
}

/// # Safety
/// `entry` is one of an open walk; `path` leads to it from `directory`.
unsafe fn correct(entry: &mut Entry, directory: c_int, path: *const c_char, follow: bool) {
    if entry.info != FTS_F || entry.status.is_null() {
        return;
    }
    // SAFETY: of a regular file it was filled in.
    let status = unsafe { &mut *entry.status };
    // SAFETY: the caller's promise.
    if let Err(errno) = unsafe { recheck_again(status, directory, path, follow) } {
        (entry.info, entry.error) = (FTS_NS, errno);
        // SAFETY: plain memory. What could not be looked at has no size.
        *status = unsafe { std::mem::zeroed() };
    }
}

/// The entries of the directory that the walk came to last. Where the walk stands, and the paths in the entries, are not theirs yet.
///
/// # Safety
/// `walk` is open, and `first` null or what `fts_children` returned.
unsafe fn correct_children(walk: &Walk, first: *mut Entry) {
    let directory = if walk.options & FTS_NOCHDIR != 0 { AT_FDCWD } else { walk.root };
    // SAFETY: the caller's promise; null before the first step.
    let parent = unsafe { walk.current.as_ref() };
    let mut next = first;
    // SAFETY: a list that ends in null.
    while let Some(entry) = unsafe { next.as_mut() } {
        next = entry.link;
        // SAFETY: glibc's strings.
        let name = unsafe { CStr::from_ptr(entry.name.as_ptr()) }.to_bytes();
        let path = match parent.filter(|_| entry.level > 0) {
            // SAFETY: as above; its own part of the buffer that all share.
            Some(parent) => unsafe {
                [std::slice::from_raw_parts(parent.path.cast::<u8>(), parent.path_length.into()), b"/", name].concat()
            },
            None => name.to_vec(),
        };
        let Ok(path) = CString::new(path) else { continue };
        // SAFETY: a string of ours.
        unsafe { correct(entry, directory, path.as_ptr(), walk.options & FTS_LOGICAL != 0) };
    }
}

type Visit = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int) -> c_int;
type VisitWithPlace = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int, *mut libc::c_void) -> c_int;

/// Whom a walk of this thread calls, and its flags.
#[derive(Clone, Copy)]
enum Visitor {
    Plain(Visit),
    WithPlace(VisitWithPlace, c_int),
}

thread_local! {
    /// No destructor: a plain value of the thread's static block.
    static VISITOR: Cell<Option<Visitor>> = const { Cell::new(None) };
}

/// Runs a walk whose callbacks go to `visitor`. A callback may walk itself.
fn walk_with(visitor: Visitor, walk: impl FnOnce() -> c_int) -> c_int {
    let outer = VISITOR.replace(Some(visitor));
    let result = walk();
    VISITOR.set(outer);
    result
}

/// The answer to hand on, and what is said of it.
///
/// # Safety
/// `answer` is what libc hands to a callback, and `path` leads there.
unsafe fn seen(path: *const c_char, follow: bool, answer: *const libc::stat, kind: c_int) -> (libc::stat, c_int) {
    // SAFETY: the caller's promise.
    let mut answer = unsafe { *answer };
    if kind != FTW_F {
        return (answer, kind);
    }
    // SAFETY: the caller's promise.
    match unsafe { recheck_again(&mut answer, AT_FDCWD, path, follow) } {
        Ok(()) => (answer, kind),
        // SAFETY: plain memory. What could not be looked at has no size.
        Err(_) => (unsafe { std::mem::zeroed() }, FTW_NS),
    }
}

unsafe extern "C" fn visit(path: *const c_char, answer: *const libc::stat, kind: c_int) -> c_int {
    let Some(Visitor::Plain(next)) = VISITOR.get() else { return -1 };
    // SAFETY: libc's own arguments; `ftw` follows links.
    let (answer, kind) = unsafe { seen(path, true, answer, kind) };
    let outer = VISITOR.get();
    // SAFETY: the program's callback, as libc would call it.
    let result = unsafe { next(path, &answer, kind) };
    VISITOR.set(outer);
    result
}

unsafe extern "C" fn visit_with_place(
    path: *const c_char,
    answer: *const libc::stat,
    kind: c_int,
    place: *mut c_void,
) -> c_int {
    let Some(Visitor::WithPlace(next, flags)) = VISITOR.get() else { return -1 };
    // A `struct FTW` begins with where the file's own name begins; the walk stands in its directory.
    let from = if flags & FTW_CHDIR != 0 {
        // SAFETY: libc's own arguments.
        unsafe { path.add(*place.cast::<c_int>() as usize) }
    } else {
        path
    };
    // SAFETY: as above.
    let (answer, kind) = unsafe { seen(from, flags & FTW_PHYS == 0, answer, kind) };
    let outer = VISITOR.get();
    // SAFETY: the program's callback, as libc would call it.
    let result = unsafe { next(path, &answer, kind, place) };
    VISITOR.set(outer);
    result
}

interpose! {
    fn fts_read[fts64_read] (walk: *mut Walk) -> *mut Entry |real| {
        let entry = real(walk);
        if let (Some(walk), Some(entry)) = (walk.as_ref(), entry.as_mut()) {
            // From where the walk stands now.
            let path = entry.access_path;
            correct(entry, AT_FDCWD, path, walk.options & FTS_LOGICAL != 0);
        }
        entry
    }

    fn fts_children[fts64_children] (walk: *mut Walk, options: c_int) -> *mut Entry |real| {
        let first = real(walk, options);
        // With names only, nothing was looked at, and the entries say so.
        if let Some(walk) = walk.as_ref().filter(|_| redirect::is_on()) {
            correct_children(walk, first);
        }
        first
    }

    fn ftw[ftw64] (path: *const c_char, callback: Option<Visit>, descriptors: c_int) -> c_int |real| {
        match callback {
            Some(callback) if redirect::is_on() => {
                walk_with(Visitor::Plain(callback), || real(path, Some(visit as Visit), descriptors))
            }
            _ => real(path, callback, descriptors),
        }
    }

    fn nftw[nftw64] (
        path: *const c_char, callback: Option<VisitWithPlace>, descriptors: c_int, flags: c_int,
    ) -> c_int |real| {
        match callback {
            Some(callback) if redirect::is_on() => walk_with(Visitor::WithPlace(callback, flags), || {
                real(path, Some(visit_with_place as VisitWithPlace), descriptors, flags)
            }),
            _ => real(path, callback, descriptors, flags),
        }
    }
}
