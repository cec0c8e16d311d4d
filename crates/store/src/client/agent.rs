//! This process's lane to the broker, which does the I/O of servers that a program cannot reach.

use super::Core;
use crate::descriptors::Descriptor;
use crate::protocol::Request;
use crate::server::by_agent::AgentLink;
use crate::shared::agent_lane::AgentLane;
use rustix::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{OnceLock, Weak};
use std::time::Duration;

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
        // One thread makes it.
        let mut control = core.control();
        if let Some(made) = self.made() {
            return Ok(&made.lane);
        }
        let (lane, file) =
            AgentLane::make().map_err(|errno| format!("no memory for requests to the broker: {errno}"))?;
        let made = Made { lane, file: Descriptor::raise(file, core.base) };
        core.done_locked(&mut control, &Request::Lane, &[made.file.as_fd()]).map_err(|error| error.to_string())?;
        let made: &'static Made = Box::leak(Box::new(made));
        self.made.store(std::ptr::from_ref(made).cast_mut(), Release);
        Ok(&made.lane)
    }

    fn is_agent_alive(&self) -> bool {
        self.core.get().and_then(Weak::upgrade).is_some_and(|core| core.check_broker().is_ok())
    }

    fn patience(&self) -> Duration {
        self.core.get().and_then(Weak::upgrade).map_or(Duration::ZERO, |core| core.patience())
    }
}
