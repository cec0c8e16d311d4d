//! Starting what serves this host.
//!
//! A launcher that was started under `stripewise run` starts programs on other hosts, where no `stripewise` process runs yet. There the first look at a
//! managed file starts one, `stripewise broker --until-idle`, which ends some time after the last program. Where several programs do so at once, the others' end
//! at once.

use crate::process::{self, Level};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::{CStr, CString, c_char, c_long};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;

/// Of the program that is started: it has no part in redirection.
const LEFT_OUT: [&[u8]; 4] = [b"LD_PRELOAD=", b"STRIPEWISE_STATE=", b"STRIPEWISE_TRACE=", b"STRIPEWISE_AGENT="];

/// The command to start, and the cluster file; `None`: whoever starts programs here serves the host.
fn command() -> Option<(&'static CStr, &'static CStr)> {
    process::variable(c"STRIPEWISE_AGENT").zip(process::variable(c"STRIPEWISE_CLUSTER"))
}

/// Whether a process that serves this host is started where there is none.
pub(super) fn may_start() -> bool {
    command().is_some()
}

/// Whether something is to be started: nothing answers in this state directory.
pub(super) fn is_missing(state: &Path) -> bool {
    command().is_some() && !answers(state)
}

/// Where the path is too long for a socket, nothing is known to answer; what is started then ends at once if something does.
fn answers(state: &Path) -> bool {
    let path = state.join("run").join("broker.sock");
    let connect = || {
        let address = SocketAddrUnix::new(path.as_os_str().as_bytes())?;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let connected = rustix::net::connect(&socket, &address);
        super::close_raw(socket);
        connected
    };
    connect().is_ok()
}

/// Starts it, as a process that is nobody's child and has none of this one's descriptors.
pub(super) fn start() {
    let Some((command, cluster)) = command() else { return };
    let arguments =
        [command.as_ptr(), c"-C".as_ptr(), cluster.as_ptr(), c"broker".as_ptr(), c"--until-idle".as_ptr(), null()];
    // Made before the fork: other threads may hold the allocator's lock then.
    let kept = environment();
    let mut variables: Vec<*const c_char> = kept.iter().map(|variable| variable.as_ptr()).collect();
    variables.push(null());
    let started = process::helper::run(|| {
        // SAFETY: without shared memory and without a stack given this is `fork`, in a process of one thread that does nothing else.
        match unsafe { libc::syscall(libc::SYS_clone, c_long::from(libc::SIGCHLD), 0, 0, 0, 0) } {
            0 => become_agent(command, &arguments, &variables),
            child if child < 0 => Err(Errno::from_raw_os_error(process::errno())),
            // It ends before its child, which nobody has to wait for then.
            _ => Ok(()),
        }
    });
    match started {
        Ok(()) => process::log(Level::Info, &[b"started ", command.to_bytes(), b" to serve this host"]),
        Err(errno) => {
            let why = errno.to_string();
            process::log(Level::Error, &[b"cannot start ", command.to_bytes(), b": ", why.as_bytes()]);
        }
    }
}

fn environment() -> Vec<CString> {
    let all = std::env::vars_os().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
    let is_kept = |variable: &Vec<u8>| !LEFT_OUT.iter().any(|name| variable.starts_with(name));
    all.filter(is_kept).filter_map(|variable| CString::new(variable).ok()).collect()
}

fn become_agent(command: &CStr, arguments: &[*const c_char], variables: &[*const c_char]) -> Result<(), Errno> {
    // SAFETY: system calls with plain numbers and strings that end in a zero byte; the signal set and the lists outlive them. A process that
    // fails between them ends.
    unsafe {
        libc::syscall(libc::SYS_setsid);
        libc::syscall(libc::SYS_chdir, c"/".as_ptr());
        // Who waits for the end of the program's output must not wait for this process.
        libc::syscall(libc::SYS_close_range, 0, c_long::from(u32::MAX), 0);
        let null_device = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), libc::O_RDWR, 0);
        libc::syscall(libc::SYS_dup3, null_device, 1, 0);
        libc::syscall(libc::SYS_dup3, null_device, 2, 0);
        let no_signals = 0u64;
        let set: *const u64 = &raw const no_signals;
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, set, null::<u64>(), size_of::<u64>());
        libc::syscall(libc::SYS_execve, command.as_ptr(), arguments.as_ptr(), variables.as_ptr());
        let failed = process::errno();
        libc::syscall(libc::SYS_exit_group, c_long::from(failed))
    };
    Err(Errno::NOEXEC)
}
