//! Suggestions that wait for their turn or for a slot, each once.

use std::collections::{BTreeMap, HashSet, VecDeque};
use stripewise_layout::ServerId;
use stripewise_store::shared::fragments::hints::Suggestion;

/// Of one file and disk; when there are more, the oldest are forgotten.
const MAX: usize = 8192;

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    by_disk: BTreeMap<ServerId, VecDeque<Suggestion>>,
    known: HashSet<Suggestion>,
}

impl Waiting {
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(crate) fn has(&self, disk: ServerId) -> bool {
        self.by_disk.contains_key(&disk)
    }

    pub(crate) fn add(&mut self, suggestion: Suggestion) {
        if !self.known.insert(suggestion) {
            return;
        }
        let queue = self.by_disk.entry(suggestion.disk).or_default();
        queue.push_back(suggestion);
        if queue.len() > MAX
            && let Some(oldest) = queue.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// The oldest ones for the disk.
    pub(crate) fn take(&mut self, disk: ServerId, most: usize) -> Vec<Suggestion> {
        let Some(queue) = self.by_disk.get_mut(&disk) else { return Vec::new() };
        let taken: Vec<Suggestion> = queue.drain(..most.min(queue.len())).collect();
        if queue.is_empty() {
            self.by_disk.remove(&disk);
        }
        taken.iter().for_each(|suggestion| _ = self.known.remove(suggestion));
        taken
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::{ObjectOffset, RegionIndex};
    use stripewise_store::shared::fragments::{Class, DiskRange};

    #[test]
    fn each_waits_once_and_the_oldest_go_first() {
        let suggestion = |disk, offset| Suggestion {
            disk: ServerId(disk),
            range: DiskRange { region: RegionIndex(0), offset: ObjectOffset(offset), length: 1 },
            class: Class::Random,
        };
        let mut waiting = Waiting::default();
        [(1, 5), (0, 7), (1, 5), (1, 6)].into_iter().for_each(|(disk, offset)| waiting.add(suggestion(disk, offset)));
        assert!(waiting.has(ServerId(0)) && waiting.has(ServerId(1)) && !waiting.has(ServerId(2)));
        assert_eq!(waiting.take(ServerId(1), 1), [suggestion(1, 5)]);
        waiting.add(suggestion(1, 5));
        assert_eq!(waiting.take(ServerId(1), 9), [suggestion(1, 6), suggestion(1, 5)]);
        assert!(!waiting.has(ServerId(1)) && !waiting.is_empty());
        (0..MAX as u64 + 3).for_each(|offset| waiting.add(suggestion(3, offset)));
        assert_eq!(waiting.take(ServerId(3), 1), [suggestion(3, 3)]);
        waiting.clear();
        assert!(waiting.is_empty() && waiting.take(ServerId(0), 1).is_empty());
    }
}
