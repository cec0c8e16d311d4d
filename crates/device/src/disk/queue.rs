//! Requests that wait for a disk, and which of them is next.

use super::Disk;
use crate::Nanos;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use stripewise_layout::Direction;

/// Commands that a drive looks at when it chooses by position: the depth of native command queueing.
const WINDOW: usize = 32;

/// In which order waiting requests are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DiskOrder {
    /// In order of arrival.
    Fifo,
    /// Upwards by address, then from the lowest again (C-LOOK).
    #[default]
    Elevator,
    /// The one with the least seek and rotation among the 32 that wait longest.
    ShortestPositioning,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    number: u32,
    direction: Direction,
    address: u64,
    bytes: u64,
}

/// The waiting requests of one disk, each with a number of the caller's.
#[derive(Clone, Debug)]
pub struct DiskQueue {
    order: DiskOrder,
    by_arrival: VecDeque<Waiting>,
    /// By address, then arrival; only for the elevator.
    by_address: BTreeMap<(u64, u64), Waiting>,
    arrivals: u64,
}

/// A request that its turn has come for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chosen {
    /// The caller's, as given to [`DiskQueue::push`].
    pub number: u32,
    /// Whether it reads or writes the medium.
    pub direction: Direction,
    /// First byte on the disk.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl DiskQueue {
    /// An empty queue that serves in `order`.
    #[must_use]
    pub fn new(order: DiskOrder) -> Self {
        Self { order, by_arrival: VecDeque::new(), by_address: BTreeMap::new(), arrivals: 0 }
    }

    /// Adds a request of `bytes` at byte `address`; `number` comes back with it from
    /// [`Self::next`].
    pub fn push(&mut self, number: u32, direction: Direction, address: u64, bytes: u64) {
        let waiting = Waiting { number, direction, address, bytes };
        self.arrivals += 1;
        match self.order {
            DiskOrder::Elevator => drop(self.by_address.insert((address, self.arrivals), waiting)),
            DiskOrder::Fifo | DiskOrder::ShortestPositioning => self.by_arrival.push_back(waiting),
        }
    }

    /// Takes the request to serve next, at `now`.
    pub fn next(&mut self, disk: &Disk, now: Nanos) -> Option<Chosen> {
        let waiting = match self.order {
            DiskOrder::Fifo => self.by_arrival.pop_front(),
            DiskOrder::Elevator => {
                let head = (disk.head_address(), 0);
                let key = self.by_address.range(head..).next().or_else(|| self.by_address.iter().next());
                let key = key.map(|(key, _)| *key)?;
                self.by_address.remove(&key)
            }
            DiskOrder::ShortestPositioning => {
                let times = self.by_arrival.iter().take(WINDOW).enumerate();
                let times = times
                    .map(|(position, waiting)| (disk.positioning_s(now, waiting.direction, waiting.address), position));
                let (_, position) = times.min_by(|left, right| left.0.total_cmp(&right.0))?;
                self.by_arrival.remove(position)
            }
        }?;
        let Waiting { number, direction, address, bytes } = waiting;
        Some(Chosen { number, direction, address, bytes })
    }
}
