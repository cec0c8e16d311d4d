//! This process's lane to the broker, which does the I/O of servers that a program cannot reach.

use super::servers::Seat;
use super::{Control, Core, now};
use crate::descriptors::Descriptor;
use crate::protocol::Request;
use crate::server::by_agent::AgentLink;
use crate::shared::agent_lane::AgentLane;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64};
use std::sync::{OnceLock, Weak};
use std::time::Duration;
use stripewise_layout::ServerId;

/// A lane that could not be made is not missed for so long: requests go on to their own errors, and reads to other replicas.
const FAILURE_HOLDS: Duration = Duration::from_secs(1);

/// A lane and the descriptor by which a successor of the broker gets it. Kept until the process ends: the broker may be using it.
struct Made {
    lane: AgentLane,
    file: Descriptor,
}

/// The lane, made when it is first needed.
#[derive(Default)]
pub(super) struct Agent {
    core: OnceLock<Weak<Core>>,
    made: AtomicPtr<Made>,
    /// When it could not be made, ns of CLOCK_MONOTONIC; 0: never.
    failed_ns: AtomicU64,
}

impl Agent {
    /// The client by which the broker is reached.
    pub(super) fn belong_to(&self, core: &std::sync::Arc<Core>) {
        let _ = self.core.set(std::sync::Arc::downgrade(core));
    }

    fn made(&self) -> Option<&'static Made> {
        // SAFETY: null, or a box that was leaked.
        unsafe { self.made.load(Acquire).as_ref() }
    }

    /// For the broker; `None`: there is no lane.
    pub(super) fn lane_file(&self) -> Option<BorrowedFd<'static>> {
        self.made().map(|made| made.file.as_fd())
    }

    /// A child makes a lane of its own: its parent's belongs to the parent.
    pub(super) fn forget_in_child(&self) {
        self.made.store(std::ptr::null_mut(), Release);
        self.failed_ns.store(0, Relaxed);
    }

    /// Whether the lane is to be made before it is used.
    fn is_missed(&self) -> bool {
        let failed = Duration::from_nanos(self.failed_ns.load(Relaxed));
        self.made().is_none() && (failed.is_zero() || now() >= failed + FAILURE_HOLDS)
    }

    /// The lane, made with the client's lock held.
    fn make(&self, core: &Core, control: &mut Control) -> Result<&'static AgentLane, String> {
        if let Some(made) = self.made() {
            return Ok(&made.lane);
        }
        let made = Made::new(core, control).inspect_err(|_| {
            self.failed_ns.store(now().as_nanos() as u64, Relaxed);
        })?;
        let made: &'static Made = Box::leak(Box::new(made));
        self.made.store(std::ptr::from_ref(made).cast_mut(), Release);
        Ok(&made.lane)
    }
}

impl Made {
    fn new(core: &Core, control: &mut Control) -> Result<Self, String> {
        let (lane, file) = AgentLane::make().map_err(|errno| match errno {
            Errno::FBIG => format!(
                "requests to the broker take {} bytes of shared memory, and this process may make no file of that size; raise its hard limit (`ulimit -H -f`)",
                AgentLane::BYTES
            ),
            errno => format!("no memory for requests to the broker: {errno}"),
        })?;
        let made = Self { lane, file: Descriptor::raise(file, core.base) };
        core.done_locked(control, &Request::Lane, &[made.file.as_fd()]).map_err(|error| error.to_string())?;
        Ok(made)
    }
}

impl Core {
    /// Whether this process has to make its lane before it does I/O on this server, which is open: outside of files' lanes, by
    /// [`Self::make_agent_lane`].
    #[inline]
    pub(crate) fn lacks_lane_to(&self, server: ServerId) -> bool {
        self.agent.made().is_none()
            && self.seats.get(usize::from(server.0)).is_some_and(Seat::is_by_agent)
            && self.agent.is_missed()
    }

    /// Makes the lane. Not to be called inside a file's lane: a thread that truncates the file holds the client's lock, and waits for
    /// that lane.
    #[cold]
    pub(crate) fn make_agent_lane(&self) {
        // Where that fails, the request meets it again, and says so of the server that it needs.
        let _ = self.agent.make(self, &mut self.control());
    }
}

impl AgentLink for Agent {
    fn lane(&self) -> Result<&'static AgentLane, String> {
        if let Some(made) = self.made() {
            return Ok(&made.lane);
        }
        let Some(core) = self.core.get().and_then(Weak::upgrade) else {
            return Err("its client is closed".to_owned());
        };
        // Requests make it before they come here. Inside a file's lane the lock must not be waited for.
        match core.control.try_lock() {
            Some(mut control) => self.make(&core, &mut control),
            None => Err("the broker is being asked for something else; repeat the request".to_owned()),
        }
    }

    fn is_agent_alive(&self) -> bool {
        let Some(core) = self.core.get().and_then(Weak::upgrade) else { return false };
        // Not waited for. Who holds it talks to the broker, and looks for a successor as well. Nor are forks settled: that may ask the broker.
        core.control.try_lock().is_none_or(|mut control| core.check_broker_locked(&mut control).is_ok())
    }

    fn patience(&self) -> Duration {
        self.core.get().and_then(Weak::upgrade).map_or(Duration::ZERO, |core| core.patience())
    }
}

#[cfg(test)]
mod tests;
