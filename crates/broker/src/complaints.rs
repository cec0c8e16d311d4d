//! What would be said again and again is said once, and then at growing intervals for as long as it goes on.

use crate::guard;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Between the first and the second time. Doubled each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// With so many, those that are over are forgotten.
const MANY: usize = 1000;

struct Said {
    not_before: Instant,
    pause: Duration,
}

/// When something was said of what.
pub(crate) struct Complaints<K>(Mutex<HashMap<K, Said>>);

impl<K> Default for Complaints<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Complaints<K> {
    /// Whether it is to be said of this now, which then counts as done.
    pub(crate) fn is_due(&self, of: K, now: Instant) -> bool {
        let mut all = guard(&self.0);
        if all.len() >= MANY {
            all.retain(|_, said| now < said.not_before + said.pause);
        }
        let pause = match all.get(&of) {
            Some(said) if now < said.not_before => return false,
            // It has gone on, or come again soon.
            Some(said) if now < said.not_before + said.pause => (2 * said.pause).min(LONGEST_PAUSE),
            _ => FIRST_PAUSE,
        };
        all.insert(of, Said { not_before: now + pause, pause });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(asked: impl Iterator<Item = u64>) -> Vec<u64> {
        let (complaints, start) = (Complaints::default(), Instant::now());
        asked.filter(|second| complaints.is_due("it", start + Duration::from_secs(*second))).collect()
    }

    #[test]
    fn what_goes_on_is_said_at_growing_intervals() {
        assert_eq!(times(0..200), [0, 10, 30, 70, 150]);
        let said = times(0..20_000);
        assert_eq!(said[said.len() - 1] - said[said.len() - 2], LONGEST_PAUSE.as_secs());
    }

    #[test]
    fn what_comes_again_after_long_is_said_at_once() {
        assert_eq!(times([0, 1, 2, 500, 501, 510].into_iter()), [0, 500, 510]);
    }

    #[test]
    fn each_is_said_by_itself_and_those_that_are_over_are_forgotten() {
        let (complaints, start) = (Complaints::default(), Instant::now());
        assert!((0..2 * MANY).all(|number| complaints.is_due(number, start + Duration::from_secs(number as u64))));
        assert!(guard(&complaints.0).len() <= MANY);
    }
}
