//! A command that is killed before its N-th system call that changes anything, with its threads: its children are traced like itself.

use std::collections::HashSet;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What became of a traced command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Traced {
    /// It ended by itself, after that many calls that change something.
    Ended {
        calls: usize,
        status: i32,
    },
    Killed,
}

/// Who dies with a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whom {
    /// The command and all its children.
    All,
    /// The child that makes the call, while the command goes on and serves it no more; of the command's own calls, all.
    Caller,
}

/// What is done where a call is about to be made.
pub(crate) enum Act<'a> {
    Kill(Whom),
    Call(&'a mut dyn FnMut()),
}

/// The calls that leave something behind: between two of them a kill finds what it finds before the second.
const CHANGING: [libc::c_long; 24] = [
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_msync,
    libc::SYS_fchmod,
    libc::SYS_fchown,
    libc::SYS_fallocate,
    libc::SYS_utimensat,
    libc::SYS_io_uring_enter,
];

fn ptrace(request: libc::c_uint, process: i32, argument: usize) {
    // SAFETY: these requests take numbers; a tracee that has just died is reported by the next wait.
    unsafe { libc::ptrace(request, process, 0usize, argument) };
}

/// The call that a stopped tracee is about to make; none when it returns from one.
fn call_of(process: i32) -> Option<libc::c_long> {
    const PTRACE_GET_SYSCALL_INFO: libc::c_uint = 0x420e;
    const ENTRY: u64 = 1;
    // What it is in the first byte, the call's number as the fourth word.
    let mut information = [0u64; 11];
    let (bytes, address) = (size_of_val(&information), information.as_mut_ptr());
    // SAFETY: the kernel writes at most that many bytes there.
    let length = unsafe { libc::ptrace(PTRACE_GET_SYSCALL_INFO, process, bytes, address) };
    (length >= 32 && information[0] & 0xff == ENTRY).then_some(information[3] as libc::c_long)
}

/// Runs the command; before the call of that number, counted from 0, `act` is done.
///
/// One at a time in a process: its tracees are waited for by their thread only.
pub(crate) fn run(mut command: Command, mut act: Option<(usize, Act<'_>)>) -> Traced {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: two system calls, nothing is allocated.
    unsafe {
        command.pre_exec(|| {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0usize, 0usize);
            libc::raise(libc::SIGSTOP);
            Ok(())
        });
    }
    let child = spawn_stopped(&mut command);
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL;
    let mut status = 0;
    // SAFETY: a number for the status.
    unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) };
    ptrace(libc::PTRACE_SETOPTIONS, child, options as usize);
    ptrace(libc::PTRACE_SYSCALL, child, 0);
    let mut tracees: HashSet<i32> = HashSet::new();
    let (mut calls, mut ended, mut is_killed) = (0, Traced::Killed, false);
    loop {
        // SAFETY: as above.
        let process = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if process < 0 {
            return ended;
        }
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            tracees.remove(&process);
            if process == child && libc::WIFEXITED(status) && !is_killed {
                ended = Traced::Ended { calls, status: libc::WEXITSTATUS(status) };
            }
            continue;
        }
        let signal = libc::WSTOPSIG(status);
        let is_event = status >> 16 != 0;
        tracees.insert(process);
        if signal == libc::SIGTRAP | 0x80 {
            if call_of(process).is_some_and(|call| CHANGING.contains(&call)) {
                let due = act.take_if(|(before, _)| *before == calls);
                calls += 1;
                match due {
                    None => {}
                    Some((_, Act::Call(call))) => call(),
                    Some((_, Act::Kill(whom))) => {
                        is_killed = true;
                        let caller = group_of(process);
                        match whom {
                            Whom::Caller if caller != child => end(caller),
                            _ => tracees.iter().copied().chain([child]).for_each(end),
                        }
                        continue;
                    }
                }
            }
            ptrace(libc::PTRACE_SYSCALL, process, 0);
        } else if is_event || signal == libc::SIGSTOP || signal == libc::SIGTRAP {
            ptrace(libc::PTRACE_SYSCALL, process, 0);
        } else {
            ptrace(libc::PTRACE_SYSCALL, process, signal as usize);
        }
    }
}

/// The process that a thread belongs to.
fn group_of(thread: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap();
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")).unwrap();
    group.trim().parse().unwrap()
}

fn end(process: i32) {
    // SAFETY: a tracee of this thread, or its process, which nobody else has waited for: the number is its.
    unsafe { libc::kill(process, libc::SIGKILL) };
}

/// Forks without waiting for the exec, as `spawn` would, which the stopped child does not reach.
fn spawn_stopped(command: &mut Command) -> i32 {
    // SAFETY: the child does nothing but `exec`, in a process whose other threads hold no lock that it needs: it allocates as a test's child may.
    match unsafe { libc::fork() } {
        0 => {
            let _error = command.exec();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(127) }
        }
        child => child,
    }
}
