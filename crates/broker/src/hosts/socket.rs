//! Waiting for sockets.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// What to wait for besides the wake-up.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Ready {
    pub(super) read: bool,
    pub(super) write: bool,
}

impl Ready {
    fn flags(self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.read);
        flags.set(PollFlags::OUT, self.write);
        flags
    }
}

/// Wakes a thread that waits for a socket.
#[derive(Debug)]
pub(super) struct Wake(OwnedFd);

impl Wake {
    pub(super) fn new() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    pub(super) fn wake(&self) {
        // It fails only when the counter is full, that is when the thread has yet to wake up.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn reset(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// Waits until the socket is ready, `wake` is signalled or the time has come. The wake-up is reset. Returns what the socket is ready for; an error on it counts as both.
pub(super) fn wait(
    socket: impl AsFd,
    wanted: Ready,
    wake: Option<&Wake>,
    until: Option<Instant>,
) -> Result<Ready, Errno> {
    let timeout = until.map(|until| time_until(until, Instant::now()));
    let socket = socket.as_fd();
    // Nothing wanted of the socket: not even its errors, which would be reported at once again and again.
    let mut polled = Vec::with_capacity(2);
    if wanted != Ready::default() {
        polled.push(PollFd::new(&socket, wanted.flags()));
    }
    if let Some(wake) = wake {
        polled.push(PollFd::new(&wake.0, PollFlags::IN));
    }
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error),
    }
    if let Some(wake) = wake.filter(|_| polled.last().is_some_and(|last| !last.revents().is_empty())) {
        wake.reset();
    }
    let got = if wanted == Ready::default() { PollFlags::empty() } else { polled[0].revents() };
    let is_broken = got.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
    Ok(Ready { read: got.contains(PollFlags::IN) || is_broken, write: got.contains(PollFlags::OUT) || is_broken })
}

fn time_until(until: Instant, now: Instant) -> Timespec {
    // One more than what is left, so that nobody wakes up just before the time.
    let left = until.saturating_duration_since(now);
    let left = if left.is_zero() { left } else { left + Duration::from_micros(1) };
    Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::from(i32::MAX), tv_nsec: 0 })
}
