//! The events to come, by time.
//!
//! Simulated time never runs backwards, so a radix heap serves: an event waits in the bucket of the highest bit in which its time
//! differs from the present, and moves to lower buckets only when theirs is the next time. Every move is a sequential copy,
//! which keeps a hundred thousand pending events as quick as a hundred. Events of one instant come out in the order in which they
//! went in, because the buckets keep their order.

use stripewise_device::Nanos;

/// One more than the bits of a time: bucket 0 holds the present.
const BUCKETS: usize = 65;

/// Pending events with a number each, earliest first and of equals the first that came.
pub(crate) struct EventQueue {
    buckets: [Vec<(Nanos, u32)>; BUCKETS],
    /// Bit b is set when bucket b + 1 holds anything.
    filled: u64,
    /// Events of bucket 0 that are taken already.
    taken: usize,
    now: Nanos,
}

impl EventQueue {
    pub(crate) fn new() -> Self {
        Self { buckets: [const { Vec::new() }; BUCKETS], filled: 0, taken: 0, now: Nanos(0) }
    }

    /// Adds an event at `time`, which must not lie before the last one taken.
    #[inline]
    pub(crate) fn push(&mut self, time: Nanos, event: u32) {
        debug_assert!(time >= self.now, "an event in the past");
        let bucket = self.bucket_of(time);
        if bucket > 0 {
            self.filled |= 1 << (bucket - 1);
        }
        self.buckets[bucket].push((time, event));
    }

    #[inline]
    fn bucket_of(&self, time: Nanos) -> usize {
        (u64::BITS - (time.0 ^ self.now.0).leading_zeros()) as usize
    }

    /// Takes the next event.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Nanos, u32)> {
        if let Some(event) = self.buckets[0].get(self.taken) {
            self.taken += 1;
            return Some(*event);
        }
        self.buckets[0].clear();
        self.taken = 0;
        if self.filled == 0 {
            return None;
        }
        let bucket = self.filled.trailing_zeros() as usize + 1;
        self.filled &= self.filled - 1;
        if self.buckets[bucket].len() == 1 {
            let event = self.buckets[bucket].pop();
            self.now = event.map_or(self.now, |(time, _)| time);
            return event;
        }
        self.spread(bucket);
        self.taken = 1;
        self.buckets[0].first().copied()
    }

    /// Goes on to the earliest time in `bucket` and moves its events to lower ones.
    fn spread(&mut self, bucket: usize) {
        let mut events = std::mem::take(&mut self.buckets[bucket]);
        self.now = events.iter().map(|(time, _)| *time).min().unwrap_or(self.now);
        for (time, event) in events.drain(..) {
            self.push(time, event);
        }
        // The room is kept: the bucket will be filled again.
        self.buckets[bucket] = events;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a sorted list: by time, then by order of insertion.
        #[test]
        fn events_come_by_time_and_then_in_order_of_insertion(
            steps in prop::collection::vec((prop::option::of(0u64..60), 0u64..3), 1..400),
        ) {
            let mut queue = EventQueue::new();
            let mut plain: Vec<(u64, u32)> = Vec::new();
            let (mut now, mut number) = (0u64, 0);
            for (ahead, scale) in steps {
                if let Some(ahead) = ahead {
                    let time = now + (ahead << (scale * 15));
                    queue.push(Nanos(time), number);
                    plain.push((time, number));
                    number += 1;
                } else {
                    plain.sort_unstable();
                    let expected = if plain.is_empty() { None } else { Some(plain.remove(0)) };
                    let found = queue.pop().map(|(time, event)| (time.0, event));
                    prop_assert_eq!(found, expected);
                    now = found.map_or(now, |(time, _)| time);
                }
            }
            plain.sort_unstable();
            let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(time, event)| (time.0, event)).collect();
            prop_assert_eq!(rest, plain);
        }
    }
}
