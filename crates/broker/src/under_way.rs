//! What the broker is doing for processes by itself: I/O that goes on when whoever asked for it has died, or when the role is over in which it began.

use crate::guard;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, Weak};
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};

type Claim = (ProcessSlot, Incarnation);
/// A lane: device and inode of its memory, and the process that handed it over.
type Lane = ((u64, u64), Claim);

/// Slots of a lane, a bit for each, whose operations this process has under way. Held while one is taken, or given back.
pub(crate) type TakenSlots = Mutex<u32>;

/// Counts of operations by process, and the operations by lane. All roles of an agent have the same.
#[derive(Default)]
pub(crate) struct UnderWay {
    counts: Mutex<Vec<(Claim, Weak<AtomicUsize>)>>,
    taken: Mutex<Vec<(Lane, Weak<TakenSlots>)>>,
}

/// What is known by this key, for as long as somebody holds it.
fn shared<K: PartialEq, T: Default>(all: &Mutex<Vec<(K, Weak<T>)>>, key: K) -> Arc<T> {
    let mut all = guard(all);
    all.retain(|(_, held)| held.strong_count() > 0);
    let known = all.iter().find(|(other, _)| *other == key).and_then(|(_, held)| held.upgrade());
    known.unwrap_or_else(|| {
        let new = Arc::new(T::default());
        all.push((key, Arc::downgrade(&new)));
        new
    })
}

impl UnderWay {
    /// The count of a process, for as long as somebody holds it.
    pub(crate) fn count_of(&self, claim: Claim) -> Arc<AtomicUsize> {
        shared(&self.counts, claim)
    }

    /// The slots of a lane that are taken.
    pub(crate) fn taken_of(&self, lane: Lane) -> Arc<TakenSlots> {
        shared(&self.taken, lane)
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

    #[test]
    fn slots_are_taken_for_as_long_as_somebody_has_the_lane() {
        let (under_way, claim) = (UnderWay::default(), (ProcessSlot(1), Incarnation(7)));
        let taken = under_way.taken_of(((1, 2), claim));
        *guard(&taken) = 5;
        assert_eq!(*guard(&under_way.taken_of(((1, 2), claim))), 5);
        assert_eq!(*guard(&under_way.taken_of(((1, 3), claim))), 0);
        drop(taken);
        assert_eq!(*guard(&under_way.taken_of(((1, 2), claim))), 0);
    }
}
