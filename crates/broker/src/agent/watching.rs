//! Notices that the master is one no more, where its link does not say so: of a host that is lost, nothing comes.

use crate::BrokerError;
use crate::coordination::Coordinator;
use crate::hosts::Peer;
use crate::threads;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// One question to the engine; a thread whose watch is dropped ends after it.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same while the master is late: an engine that does not report changes is then asked as often.
const SHORT_PATIENCE: Duration = Duration::from_millis(100);
/// A master that lives and can be reached is heard of every second.
const LATE: Duration = Duration::from_secs(2);
/// When the engine does not answer.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Default)]
struct State {
    is_over: AtomicBool,
    is_dropped: AtomicBool,
}

/// Watches one master.
pub(super) struct MasterWatch(Arc<State>);

impl MasterWatch {
    pub(super) fn start(coordinator: &Arc<dyn Coordinator>, term: u64, link: &Arc<Peer>) -> Result<Self, BrokerError> {
        let state = Arc::new(State::default());
        let (watching, coordinator, link) = (Arc::clone(&state), Arc::clone(coordinator), Arc::clone(link));
        let watch = move || {
            while !watching.is_dropped.load(Relaxed) {
                let is_late = link.last_heard().elapsed() >= LATE;
                match coordinator.wait_for_end_of(term, if is_late { SHORT_PATIENCE } else { PATIENCE }) {
                    Ok(true) => return watching.is_over.store(true, Relaxed),
                    Ok(false) => {}
                    // The link says more, if anything does.
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        };
        // Not joined: a question under way cannot be called off.
        threads::spawn("stripewise-term", watch)?;
        Ok(Self(state))
    }

    /// Whether the master is known to be none any more.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_over.load(Relaxed)
    }
}

impl Drop for MasterWatch {
    fn drop(&mut self) {
        self.0.is_dropped.store(true, Relaxed);
    }
}
