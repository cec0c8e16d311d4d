//! Becoming another program, and making a child that does.
//!
//! libc's own functions of this family call each other inside, past any wrapper, so each is wrapped. Those that look a program up in `PATH` do so here,
//! as libc does, because it is not known before which file it will be.

use super::spawn::{self, Actions};
use crate::borrow::borrow;
use crate::capture::seen_from;
use crate::managed::link::descriptor_path;
use crate::process::{self, Inside};
use crate::real::{Real, interpose};
use crate::redirect::exec::{Given, Instead, Start, Strings, Who, count, start, with_pointers};
use libc::{c_char, c_int, pid_t};
use rustix::fs::{Access, AtFlags, CWD, FileType};
use std::ffi::{CStr, CString};

unsafe extern "C" {
    static environ: Strings;
}

type Execve = unsafe extern "C" fn(*const c_char, Strings, Strings) -> c_int;

// SAFETY: the type of `execve`.
static EXECVE: Real<Execve> = unsafe { Real::new(c"execve") };

/// Whether starting a program concerns this library.
fn is_concerned() -> bool {
    process::is_active() && !Inside::is_set()
}

/// Executes a file; returns why not.
///
/// # Safety
/// A string and lists of strings.
unsafe fn execute(path: &CStr, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        start(Given { path, arguments, environment }, Who::Caller, |Start { instead, environment }| {
            let Instead { path, arguments } = instead.unwrap_or(Instead { path, arguments });
            process::leave();
            let is_child = process::children::ends();
            EXECVE.get()(path.as_ptr(), arguments, environment);
            let failed = process::errno();
            if is_child {
                process::children::begins();
            }
            failed
        })
    }
}

/// As libc answers: -1 and the error.
fn answer(errno: c_int) -> c_int {
    process::set_errno(errno);
    -1
}

/// Room for a directory of `PATH` and a name.
type Candidate = [u8; libc::PATH_MAX as usize + 1];

/// Calls `try_one` with what a name may stand for, as `PATH` has it, until it returns something else than an error that lets libc look further; returns
/// the last error, or `EACCES` if that came up.
fn lookup(name: &CStr, mut try_one: impl FnMut(&CStr) -> c_int) -> c_int {
    if name.is_empty() {
        return libc::ENOENT;
    }
    if name.to_bytes().contains(&b'/') {
        return try_one(name);
    }
    if name.to_bytes().len() > libc::FILENAME_MAX.min(255) as usize {
        return libc::ENAMETOOLONG;
    }
    // SAFETY: a string that stays while the program leaves it alone, as libc takes it, too.
    let path = unsafe { libc::getenv(c"PATH".as_ptr()).as_ref().map(|path| CStr::from_ptr(path)) };
    let path = path.map_or(&b"/bin:/usr/bin"[..], CStr::to_bytes);
    let (mut refused, mut last) = (false, libc::ENOENT);
    for directory in path.split(|byte| *byte == b':') {
        let mut candidate: Candidate = [0; _];
        let slash = usize::from(!directory.is_empty());
        let length = directory.len() + slash + name.to_bytes().len();
        if length >= candidate.len() {
            continue;
        }
        candidate[..directory.len()].copy_from_slice(directory);
        candidate[directory.len()..directory.len() + slash].fill(b'/');
        candidate[directory.len() + slash..length].copy_from_slice(name.to_bytes());
        let Ok(found) = CStr::from_bytes_until_nul(&candidate) else { continue };
        last = try_one(found);
        match last {
            libc::EACCES => refused = true,
            libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ENODEV | libc::ETIMEDOUT => {}
            _ => return last,
        }
    }
    if refused { libc::EACCES } else { last }
}

/// `execvpe`: looked up, and what is no program is given to the shell.
///
/// # Safety
/// As [`execute`].
unsafe fn execute_named(name: &CStr, arguments: Strings, environment: Strings) -> c_int {
    lookup(name, |path| {
        // SAFETY: the caller's promise; the list below is one of strings, too.
        unsafe {
            let failed = execute(path, arguments, environment);
            if failed != libc::ENOEXEC {
                return failed;
            }
            let given = count(arguments);
            with_pointers(given.max(1) + 2, |pointers| {
                pointers[0] = c"/bin/sh".as_ptr();
                pointers[1] = path.as_ptr();
                for index in 1..given {
                    pointers[index + 1] = *arguments.add(index);
                }
                execute(c"/bin/sh", pointers.as_ptr(), environment)
            })
        }
    })
}

/// The file that `posix_spawnp` would find.
fn find_named(name: &CStr) -> Option<CString> {
    let mut found = None;
    lookup(name, |path| {
        let is_file =
            rustix::fs::stat(path).is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::RegularFile);
        if !is_file || rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_err() {
            return libc::ENOENT;
        }
        found = Some(path.to_owned());
        0
    });
    found
}

/// Spawns what `path` leads to by `real`, libc's own.
///
/// # Safety
/// As [`execute`].
unsafe fn spawn(
    path: &CStr,
    actions: *const Actions,
    arguments: Strings,
    environment: Strings,
    real: impl FnMut(Start<'_>) -> c_int,
) -> c_int {
    let directories = if actions.is_null() { Vec::new() } else { spawn::directories(actions) };
    let moved = if directories.is_empty() { None } else { seen_from(&directories, path) };
    let path = moved.as_deref().unwrap_or(path);
    let leads = !actions.is_null() && spawn::leads_to_managed(actions);
    if !actions.is_null()
        && let Err(errno) = spawn::make_files(actions)
    {
        return errno.raw_os_error();
    }
    // SAFETY: the caller's promise.
    unsafe { start(Given { path, arguments, environment }, Who::Child { leads }, real) }
}

/// Executes what an open descriptor, or a path from an open directory, leads to.
///
/// # Safety
/// As [`execute`].
unsafe fn execute_at(
    directory: c_int,
    path: &CStr,
    flags: c_int,
    arguments: Strings,
    environment: Strings,
    mut real: impl FnMut(Strings) -> c_int,
) -> c_int {
    let mut real = |Start { instead, environment }: Start<'_>| {
        process::leave();
        match instead {
            None => real(environment),
            // SAFETY: the caller's promise, and lists of strings.
            Some(Instead { path, arguments }) => unsafe { EXECVE.get()(path.as_ptr(), arguments, environment) },
        };
        process::errno()
    };
    let is_relative = !path.to_bytes().starts_with(b"/") && directory != libc::AT_FDCWD;
    let is_empty = path.is_empty();
    // SAFETY: the program's descriptor; the kernel checks it.
    let base = unsafe { borrow(directory) };
    let no_links = flags & libc::AT_SYMLINK_NOFOLLOW != 0;
    let is_link = |status: rustix::fs::Stat| FileType::from_raw_mode(status.st_mode) == FileType::Symlink;
    if is_empty && (flags & libc::AT_EMPTY_PATH == 0 || directory == libc::AT_FDCWD)
        || no_links && rustix::fs::statat(base, path, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_link)
    {
        return real(Start { instead: None, environment });
    }
    let mut whole: Candidate = [0; _];
    if is_relative {
        let link = descriptor_path(None, directory);
        let parts = [link.as_c_str().to_bytes(), if is_empty { b"" } else { b"/" }, path.to_bytes()];
        let mut length = 0;
        for part in parts {
            let Some(pointers) = whole[..libc::PATH_MAX as usize].get_mut(length..length + part.len()) else {
                return libc::ENAMETOOLONG;
            };
            pointers.copy_from_slice(part);
            length += part.len();
        }
    }
    let path = if is_relative { CStr::from_bytes_until_nul(&whole).unwrap_or(path) } else { path };
    // An interpreter would look for the script under a descriptor that is closed by then.
    let is_closed =
        is_relative && rustix::io::fcntl_getfd(base).is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC));
    // SAFETY: the caller's promise.
    unsafe {
        start(Given { path, arguments, environment }, Who::Caller, |start| match start.instead {
            Some(instead) if is_closed && instead.arguments != arguments => libc::ENOENT,
            _ => real(start),
        })
    }
}

interpose! {
    fn execve[] (path: *const c_char, arguments: Strings, environment: Strings) -> c_int |real| {
        if path.is_null() || !is_concerned() {
            process::leave();
            return real(path, arguments, environment);
        }
        answer(execute(CStr::from_ptr(path), arguments, environment))
    }

    fn execv[] (path: *const c_char, arguments: Strings) -> c_int |real| {
        if path.is_null() || !is_concerned() {
            process::leave();
            return real(path, arguments);
        }
        answer(execute(CStr::from_ptr(path), arguments, environ))
    }

    fn execvp[] (name: *const c_char, arguments: Strings) -> c_int |real| {
        if name.is_null() || !is_concerned() {
            process::leave();
            return real(name, arguments);
        }
        answer(execute_named(CStr::from_ptr(name), arguments, environ))
    }

    fn execvpe[] (name: *const c_char, arguments: Strings, environment: Strings) -> c_int |real| {
        if name.is_null() || !is_concerned() {
            process::leave();
            return real(name, arguments, environment);
        }
        answer(execute_named(CStr::from_ptr(name), arguments, environment))
    }

    fn fexecve[] (fd: c_int, arguments: Strings, environment: Strings) -> c_int |real| {
        if fd < 0 || !is_concerned() {
            process::leave();
            return real(fd, arguments, environment);
        }
        let real = |environment| real(fd, arguments, environment);
        answer(execute_at(fd, c"", libc::AT_EMPTY_PATH, arguments, environment, real))
    }

    fn execveat[] (
        directory: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int,
    ) -> c_int |real| {
        if path.is_null() || !is_concerned() {
            process::leave();
            return real(directory, path, arguments, environment, flags);
        }
        let real = |environment| real(directory, path, arguments, environment, flags);
        answer(execute_at(directory, CStr::from_ptr(path), flags, arguments, environment, real))
    }

    fn posix_spawn[] (
        child: *mut pid_t, path: *const c_char, actions: *const Actions, attributes: *const libc::posix_spawnattr_t,
        arguments: Strings, environment: Strings,
    ) -> c_int |real| {
        if path.is_null() || !is_concerned() {
            return real(child, path, actions, attributes, arguments, environment);
        }
        spawn(CStr::from_ptr(path), actions, arguments, environment, |Start { instead, environment }| match instead {
            None => real(child, path, actions, attributes, arguments, environment),
            Some(Instead { path, arguments }) => {
                real(child, path.as_ptr(), actions, attributes, arguments, environment)
            }
        })
    }

    fn posix_spawnp[] (
        child: *mut pid_t, name: *const c_char, actions: *const Actions, attributes: *const libc::posix_spawnattr_t,
        arguments: Strings, environment: Strings,
    ) -> c_int |real| {
        if name.is_null() || !is_concerned() {
            return real(child, name, actions, attributes, arguments, environment);
        }
        let Some(path) = find_named(CStr::from_ptr(name)) else {
            return real(child, name, actions, attributes, arguments, environment);
        };
        spawn(&path, actions, arguments, environment, |Start { instead, environment }| match instead {
            None => real(child, name, actions, attributes, arguments, environment),
            Some(Instead { path, arguments }) => {
                real(child, path.as_ptr(), actions, attributes, arguments, environment)
            }
        })
    }
}

/// What a variadic function was called with: first what travelled in registers, then what lies on the stack.
#[derive(Clone, Copy)]
struct Variadic {
    registers: Strings,
    stack: Strings,
}

impl Variadic {
    /// How many arguments travel in registers behind the first.
    const IN_REGISTERS: usize = if cfg!(target_arch = "aarch64") { 7 } else { 5 };

    /// # Safety
    /// The caller passed at least `index + 1` arguments.
    unsafe fn get(self, index: usize) -> *const c_char {
        // SAFETY: the caller's promise.
        unsafe {
            match index.checked_sub(Self::IN_REGISTERS) {
                None => *self.registers.add(index),
                Some(on_stack) => *self.stack.add(on_stack),
            }
        }
    }

    /// Calls `then` with the strings up to the null pointer, as a list, and how many they are.
    ///
    /// # Safety
    /// There is a null pointer.
    unsafe fn with_list<T>(self, then: impl FnOnce(Strings, usize) -> T) -> T {
        // SAFETY: read up to the null pointer.
        let given = (0..).take_while(|index| unsafe { !self.get(*index).is_null() }).count();
        with_pointers(given + 1, |pointers| {
            for (index, place) in pointers[..given].iter_mut().enumerate() {
                // SAFETY: before the null pointer.
                *place = unsafe { self.get(index) };
            }
            then(pointers.as_ptr(), given)
        })
    }
}

unsafe extern "C" fn execl_with(path: *const c_char, registers: Strings, stack: Strings) -> c_int {
    // SAFETY: what the C interface asks of its callers.
    unsafe { Variadic { registers, stack }.with_list(|arguments, _| execv(path, arguments)) }
}

unsafe extern "C" fn execlp_with(name: *const c_char, registers: Strings, stack: Strings) -> c_int {
    // SAFETY: as above.
    unsafe { Variadic { registers, stack }.with_list(|arguments, _| execvp(name, arguments)) }
}

unsafe extern "C" fn execle_with(path: *const c_char, registers: Strings, stack: Strings) -> c_int {
    let given = Variadic { registers, stack };
    // SAFETY: as above; the environment follows the null pointer.
    unsafe { given.with_list(|arguments, count| execve(path, arguments, given.get(count + 1).cast())) }
}

/// A variadic function that hands all its arguments to another one: the first as it is, then where the others lie. Rust cannot define such functions
/// otherwise.
macro_rules! variadic {
    ($($name:ident => $then:ident)*) => {$(
        /// # Safety
        /// As in C.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() -> c_int {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                // Five registers and the return address keep the stack aligned to 16 bytes.
                "push r9", "push r8", "push rcx", "push rdx", "push rsi",
                "mov rsi, rsp",
                "lea rdx, [rsp + 48]",
                "call {then}",
                "add rsp, 40",
                "ret",
                then = sym $then,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                "stp x29, x30, [sp, #-80]!",
                "mov x29, sp",
                "stp x1, x2, [sp, #16]",
                "stp x3, x4, [sp, #32]",
                "stp x5, x6, [sp, #48]",
                "str x7, [sp, #64]",
                "add x1, sp, #16",
                "add x2, sp, #80",
                "bl {then}",
                "ldp x29, x30, [sp], #80",
                "ret",
                then = sym $then,
            );
        }
    )*};
}

variadic! {
    execl => execl_with
    execlp => execlp_with
    execle => execle_with
}
