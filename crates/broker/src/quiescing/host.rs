//! What is asked of a host on which programs have files open.

use crate::managed::Managed;
use crate::under_way::UnderWay;
use std::sync::Arc;
use stripewise_layout::RegionIndex;
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};
use stripewise_store::shared::processes::Processes;
use stripewise_store::shared::slots::Use;

/// All that waiting for programs needs to know of them. A host that is not this one would be asked by its agent.
pub(super) trait Host: Send + Sync {
    /// I/O under way in these regions, of the living and the dead.
    fn uses(&self, managed: &Managed, first: RegionIndex, last: RegionIndex) -> Vec<Use>;

    /// Whether that I/O has not ended yet. That of the dead does not end by itself.
    fn goes_on(&self, managed: &Managed, lane: &Use) -> bool;

    fn is_alive(&self, slot: ProcessSlot, incarnation: Incarnation) -> bool;

    /// Whether the process was stopped, and will not go on by itself.
    fn is_stopped(&self, slot: ProcessSlot) -> bool;

    /// The process's number on its host, for people.
    fn process_id(&self, slot: ProcessSlot) -> u64;
}

/// The host that the broker runs on: programs note what they do in shared memory.
pub(super) struct ThisHost {
    processes: &'static Processes,
    /// I/O that the broker does for processes goes on when they have died.
    under_way: Arc<UnderWay>,
}

impl ThisHost {
    pub(super) fn new(processes: &'static Processes, under_way: &Arc<UnderWay>) -> Self {
        Self { processes, under_way: Arc::clone(under_way) }
    }
}

impl Host for ThisHost {
    fn uses(&self, managed: &Managed, first: RegionIndex, last: RegionIndex) -> Vec<Use> {
        managed.slots.uses(first, last)
    }

    fn goes_on(&self, managed: &Managed, lane: &Use) -> bool {
        managed.slots.goes_on(lane)
    }

    fn is_alive(&self, slot: ProcessSlot, incarnation: Incarnation) -> bool {
        self.processes.is_alive(slot, incarnation) || self.under_way.is_any_of(slot, incarnation)
    }

    fn is_stopped(&self, slot: ProcessSlot) -> bool {
        is_stopped(self.processes.process_id(slot))
    }

    fn process_id(&self, slot: ProcessSlot) -> u64 {
        self.processes.process_id(slot)
    }
}

/// Whether none of the process's threads runs, waits or sleeps: it was stopped, and will not go on by itself.
fn is_stopped(process: u64) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return false };
    // The state stands behind the name, which may have any characters.
    let state = |stat: String| stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    let mut states =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok().and_then(state));
    states.all(|state| matches!(state, 'T' | 't'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn only_a_stopped_process_is_stopped() {
        assert!(!is_stopped(u64::from(std::process::id())) && !is_stopped(u64::MAX));
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
        let begun = Instant::now();
        while !is_stopped(u64::from(child.id())) {
            assert!(begun.elapsed() < Duration::from_secs(60), "never stopped");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
