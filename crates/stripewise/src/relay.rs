//! Signals that are passed on to the program that runs on our behalf.
//!
//! Whichever thread a signal interrupts, the handler writes it to a socket, and one thread reads those. Signals that a process
//! sent (kill, a batch system) go on to the program; those of the terminal (Ctrl-C) the kernel sent to the program too, and a second one
//! would make launchers such as mpiexec give up at once. Either way this command stays until the program has ended.
#![allow(unsafe_code, reason = "signal handlers are set by sigaction")]

use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use thiserror::Error;

const PASSED_ON: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// The program to pass signals on to, or one of the two below.
static PROGRAM: AtomicI32 = AtomicI32::new(ENDED);
/// It is to be started.
const COMING: libc::pid_t = 0;
const ENDED: libc::pid_t = -1;

/// From the handler to the thread. Never closed: a handler may be about to write while its relay stops.
struct Channel {
    read: UnixStream,
    write: UnixStream,
}

static CHANNEL: OnceLock<Channel> = OnceLock::new();
/// Where the handler writes, as it may not look into [`CHANNEL`].
static WRITE_END: AtomicI32 = AtomicI32::new(-1);

/// A signal to end that came while the program was yet to be started.
static CAME_BEFORE: AtomicI32 = AtomicI32::new(0);

/// Why signals cannot be passed on.
#[derive(Debug, Error)]
#[error("{what}")]
pub struct RelayError {
    what: &'static str,
    source: std::io::Error,
}

type Result<T> = std::result::Result<T, RelayError>;

fn failed(what: &'static str) -> impl FnOnce(std::io::Error) -> RelayError {
    move |source| RelayError { what, source }
}

/// A message is the signal's number and whether the kernel sent it; this one ends the thread.
const STOP: [u8; 2] = [0, 0];

/// Passes signals on from when it is made until it is stopped or dropped.
pub struct Relay {
    /// What was done with the signals before.
    before: Vec<(libc::c_int, libc::sigaction)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Signals by which a person or the system asks us to end.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

impl Relay {
    /// From here on the signals come to this relay, whatever other threads there are. Only one relay at a time.
    ///
    /// # Errors
    /// When the system gives no thread or socket.
    pub fn start() -> Result<Self> {
        let channel = channel()?;
        PROGRAM.store(COMING, Ordering::Release);
        CAME_BEFORE.store(0, Ordering::Release);
        let thread = std::thread::Builder::new().name("signals".into()).spawn(move || pass_on(&channel.read));
        let mut relay = Self { before: Vec::new(), thread: Some(thread.map_err(failed("cannot start a thread"))?) };
        for signal in PASSED_ON {
            relay.take(signal)?;
        }
        Ok(relay)
    }

    fn take(&mut self, signal: libc::c_int) -> Result<()> {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: a null action only asks; zeroed bytes are a valid sigaction, and the call fills it.
        let before = unsafe {
            libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
            action.assume_init()
        };
        // The program is to ignore what this command was told to (nohup); it would not once there has been a handler.
        if before.sa_sigaction == libc::SIG_IGN {
            return Ok(());
        }
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = note;
        let ours = libc::sigaction {
            sa_sigaction: handler as libc::sighandler_t,
            sa_flags: libc::SA_SIGINFO | libc::SA_RESTART,
            ..before
        };
        // SAFETY: the handler has the signature that SA_SIGINFO asks for and does only what a handler may.
        if unsafe { libc::sigaction(signal, &raw const ours, std::ptr::null_mut()) } != 0 {
            return Err(failed("cannot handle signals")(std::io::Error::last_os_error()));
        }
        self.before.push((signal, before));
        Ok(())
    }

    /// A signal to end that came before the program was started, which it goes on to unless this command ends.
    pub fn came_before_program(&self) -> Option<i32> {
        Some(CAME_BEFORE.load(Ordering::Acquire)).filter(|signal| *signal != 0)
    }

    /// Signals that arrived before go to the program now.
    pub fn forward_to(&self, program: u32) {
        PROGRAM.store(program as i32, Ordering::Release);
    }

    /// Passes on nothing more. Call once the program has ended: its process id may be another's soon.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        PROGRAM.store(ENDED, Ordering::Release);
        for (signal, before) in &self.before {
            // SAFETY: the action is one that the kernel gave.
            unsafe {
                libc::sigaction(*signal, before, std::ptr::null_mut());
            }
        }
        let is_sent = CHANNEL.get().is_some_and(|channel| (&channel.write).write_all(&STOP).is_ok());
        if is_sent {
            let _ = thread.join();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end();
    }
}

/// Made once; emptied of what came too late for the relay before.
fn channel() -> Result<&'static Channel> {
    let channel = match CHANNEL.get() {
        Some(channel) => channel,
        None => {
            let (read, write) = UnixStream::pair().map_err(failed("cannot make a socket for signals"))?;
            CHANNEL.get_or_init(|| Channel { read, write })
        }
    };
    WRITE_END.store(channel.write.as_raw_fd(), Ordering::Release);
    channel.read.set_nonblocking(true).map_err(failed("cannot prepare the socket for signals"))?;
    while matches!((&channel.read).read(&mut [0; 64]), Ok(1..)) {}
    channel.read.set_nonblocking(false).map_err(failed("cannot prepare the socket for signals"))?;
    Ok(channel)
}

/// The handler.
extern "C" fn note(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid siginfo_t. `send` may be called in handlers; it neither waits here nor
    // raises SIGPIPE, and the interrupted code finds its errno again.
    unsafe {
        if PROGRAM.load(Ordering::Acquire) == COMING && ENDING.contains(&signal) {
            CAME_BEFORE.store(signal, Ordering::Release);
        }
        let message = [signal as u8, u8::from((*info).si_code == libc::SI_KERNEL)];
        let errno = *libc::__errno_location();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        libc::send(WRITE_END.load(Ordering::Acquire), message.as_ptr().cast(), message.len(), flags);
        *libc::__errno_location() = errno;
    }
}

fn pass_on(mut read: &UnixStream) {
    let mut message = STOP;
    while read.read_exact(&mut message).is_ok() && message != STOP {
        let [signal, is_of_terminal] = message;
        if is_of_terminal == 0 {
            send(libc::c_int::from(signal));
        }
    }
}

fn send(signal: libc::c_int) {
    // The program may be on its way still; nothing else is to be done meanwhile.
    for _ in 0..500 {
        match PROGRAM.load(Ordering::Acquire) {
            COMING => std::thread::sleep(std::time::Duration::from_millis(10)),
            ENDED => return,
            program => {
                // SAFETY: a plain system call; the process is our child and not waited for while PROGRAM names it.
                unsafe {
                    libc::kill(program, signal);
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};
    use std::sync::mpsc;

    /// In a process of its own, as signals are of the whole process: see [`a_relay_works_beside_threads_that_were_there_before`].
    #[test]
    #[ignore = "run by another test"]
    fn in_a_process_with_threads() {
        // Threads that have all signals open, as those that read traces.
        let (end, ended) = mpsc::channel::<()>();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
        let idle: Vec<_> = (0..8)
            .map(|_| {
                let ended = ended.clone();
                std::thread::spawn(move || ended.lock().unwrap().recv().is_err())
            })
            .collect();
        // Each ends at once, though no signal ever comes.
        for _ in 0..50 {
            Relay::start().unwrap().stop();
        }
        for signal in [libc::SIGTERM, libc::SIGUSR1] {
            let relay = Relay::start().unwrap();
            // SAFETY: a plain system call to this process, which has a handler. The signal comes before the program is there.
            unsafe {
                libc::kill(libc::getpid(), signal);
            }
            let mut child = Command::new("sleep").arg("600").spawn().unwrap();
            relay.forward_to(child.id());
            assert_eq!(child.wait().unwrap().signal(), Some(signal));
            relay.stop();
        }
        drop(end);
        assert!(idle.into_iter().all(|thread| thread.join().unwrap()));
        // What was done with signals before is done again, so this ends the process.
        // SAFETY: a plain system call.
        unsafe {
            libc::raise(libc::SIGUSR2);
        }
    }

    #[test]
    fn a_relay_works_beside_threads_that_were_there_before() {
        let own = std::env::current_exe().unwrap();
        let mut command = Command::new(own);
        command.args(["--exact", "--ignored", "relay::tests::in_a_process_with_threads"]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.signal(), Some(libc::SIGUSR2), "{}: {said}", output.status);
    }
}
