//! What the broker is doing for processes by itself: I/O that goes on when whoever asked for it has died.

use crate::guard;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, Weak};
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};

type Claim = (ProcessSlot, Incarnation);

/// Counts of operations, by process.
#[derive(Default)]
pub(crate) struct UnderWay {
    counts: Mutex<Vec<(Claim, Weak<AtomicUsize>)>>,
}

impl UnderWay {
    /// The count of a process, for as long as somebody holds it.
    pub(crate) fn count_of(&self, claim: Claim) -> Arc<AtomicUsize> {
        let mut counts = guard(&self.counts);
        counts.retain(|(_, count)| count.strong_count() > 0);
        let known = counts.iter().find(|(other, _)| *other == claim).and_then(|(_, count)| count.upgrade());
        known.unwrap_or_else(|| {
            let count = Arc::new(AtomicUsize::new(0));
            counts.push((claim, Arc::downgrade(&count)));
            count
        })
    }

    /// Whether anything of that process is under way.
    pub(crate) fn is_any_of(&self, slot: ProcessSlot, incarnation: Incarnation) -> bool {
        let is_busy = |count: &Weak<AtomicUsize>| count.upgrade().is_some_and(|count| count.load(SeqCst) > 0);
        guard(&self.counts).iter().any(|(claim, count)| *claim == (slot, incarnation) && is_busy(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_busy_while_its_count_says_so() {
        let under_way = UnderWay::default();
        let (first, second) = ((ProcessSlot(1), Incarnation(7)), (ProcessSlot(1), Incarnation(8)));
        let count = under_way.count_of(first);
        assert!(!under_way.is_any_of(first.0, first.1));
        under_way.count_of(first).fetch_add(1, SeqCst);
        assert!(under_way.is_any_of(first.0, first.1) && !under_way.is_any_of(second.0, second.1));
        count.fetch_sub(1, SeqCst);
        assert!(!under_way.is_any_of(first.0, first.1));
    }
}
