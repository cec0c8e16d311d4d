//! Reading a region that has replicas.
//!
//! The copy is chosen for each region's part of a request: the one whose last server is predicted to be done first, given what is under way there, with its
//! time on servers that others wait for added: whoever comes next waits for it there. Without that a small read would always spread over many
//! disks, and many small reads would cost each of them a seek. (The paper's cost does this by the number of processes, which it takes as known.)
//!
//! Of equals the place is taken, then the replicas in the order of their numbers, so the choice is the same wherever the load is. Emulated
//! servers predict from their stations, which all processes share; of others only this process's own reads are known (`client::servers`). A copy
//! that cannot be read is passed over for the next, which is how the loss of a server is survived.

use super::StripedFile;
use super::buffers::Buffers;
use super::fragments::Part;
use super::transfer::{Obstacle, Stopped, from_first_byte};
use crate::client::Core;
use crate::server::{Due, ObjectName, Predicted};
use crate::shared::control::RegionState;
use crate::shared::marking::Motion;
use stripewise_layout::{Direction, FileOffset, Generation, RegionIndex, RegionPiece, ServerId, StripeView};

/// A region's copies, best first.
pub(super) struct Choice<'a> {
    pub(super) region: RegionIndex,
    /// At least the place.
    pub(super) copies: Vec<(Generation, StripeView<'a>)>,
}

/// Time until the last sub-request is done, and what those that wait behind them lose; the most there is where a server is unknown.
fn cost_ns(subs: impl Iterator<Item = Option<Predicted>>) -> u64 {
    let (mut last_ns, mut taken_ns) = (0u64, 0u64);
    for sub in subs {
        let Some(Predicted { wait_ns, service_ns }) = sub else { return u64::MAX };
        last_ns = last_ns.max(wait_ns.saturating_add(service_ns));
        taken_ns += if wait_ns > 0 { service_ns } else { 0 };
    }
    last_ns.saturating_add(taken_ns)
}

/// Reads counted as under way until dropped.
struct Counted<'a> {
    core: &'a Core,
    servers: Vec<ServerId>,
}

impl<'a> Counted<'a> {
    fn new(core: &'a Core, piece: &RegionPiece, view: StripeView<'_>) -> Self {
        let servers: Vec<ServerId> = view.split(piece.offset, piece.length).map(|sub| sub.server).collect();
        servers.iter().for_each(|server| core.count_read(*server, true));
        Self { core, servers }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.servers.iter().for_each(|server| self.core.count_read(*server, false));
    }
}

impl StripedFile {
    /// Takes the emulated devices' time for every sub-request, in turn, before any byte moves.
    /// What is read from regions with replicas is chosen now.
    pub(super) fn reserve<'a>(
        &'a self,
        direction: Direction,
        offset: FileOffset,
        length: u64,
        chosen: &mut Vec<Choice<'a>>,
    ) -> Due {
        let mut due = None;
        for piece in self.geometry.pieces(offset, length) {
            let RegionState::Placed { generation, view, motion } = self.shared.control.region(piece.region) else {
                continue;
            };
            let mut copy = (generation, view);
            if motion == Motion::Replicated && direction == Direction::Read {
                let choice = self.choose(&piece, copy);
                copy = choice.copies[0];
                chosen.push(choice);
            }
            due = due.max(self.reserve_piece(direction, &piece, copy));
        }
        due
    }

    /// The same of one region's part, in this copy of it.
    fn reserve_piece(
        &self,
        direction: Direction,
        piece: &RegionPiece,
        (generation, view): (Generation, StripeView<'_>),
    ) -> Due {
        let mut due = None;
        for sub in from_first_byte(view, piece.offset, piece.length) {
            if let Ok(server) = self.core.server(sub.server) {
                let object = ObjectName { file: self.file, region: piece.region, generation };
                due = due.max(server.reserve(direction, object, sub.offset, sub.length));
            }
        }
        due
    }

    /// The copies of a region that was seen to have replicas, in the order in which they are to be tried for `piece`.
    pub(super) fn choose<'a>(&'a self, piece: &RegionPiece, place: (Generation, StripeView<'a>)) -> Choice<'a> {
        let copies = std::iter::once(place).chain(self.shared.control.replicas(piece.region));
        let mut predicted: Vec<(u64, (Generation, StripeView<'a>))> =
            copies.map(|copy| (self.cost_ns(piece, copy), copy)).collect();
        predicted.sort_by_key(|(cost_ns, _)| *cost_ns);
        Choice { region: piece.region, copies: predicted.into_iter().map(|(_, copy)| copy).collect() }
    }

    fn cost_ns(&self, piece: &RegionPiece, (generation, view): (Generation, StripeView<'_>)) -> u64 {
        let object = ObjectName { file: self.file, region: piece.region, generation };
        let subs = view.split(piece.offset, piece.length);
        cost_ns(subs.map(|sub| self.core.predict_read(sub.server, object, sub.offset, sub.length)))
    }

    /// Reads one region's part from the best of its copies that can be read. `reserved`: chosen before, the first one's devices' time taken.
    pub(super) fn read_copies<'a>(
        &'a self,
        piece: &RegionPiece,
        place: (Generation, StripeView<'a>),
        reserved: Option<Choice<'a>>,
        buffers: &Buffers<'_>,
        due: &mut Due,
    ) -> Result<(), Stopped> {
        let reserves = self.core.stations.is_some();
        let mut is_reserved = reserved.is_some();
        let choice = reserved.unwrap_or_else(|| self.choose(piece, place));
        let mut first_fault = None;
        for copy in choice.copies {
            if reserves && !std::mem::take(&mut is_reserved) {
                *due = (*due).max(self.reserve_piece(Direction::Read, piece, copy));
            }
            let _counted = Counted::new(&self.core, piece, copy.1);
            let mut waiting = Vec::new();
            let part = Part { piece: *piece, view: copy.1, motion: Motion::Replicated };
            let moved = self.move_piece(Direction::Read, &part, copy.0, buffers, &mut waiting, None);
            let moved = moved.and_then(|()| self.finish_waiting(&mut waiting, buffers));
            match moved {
                Err(stop) if matches!(stop.obstacle, Obstacle::Fault(_)) => {
                    first_fault.get_or_insert(stop);
                }
                result => return result,
            }
        }
        first_fault.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_spreads_over_idle_servers_and_not_over_busy_ones() {
        let cost = |servers: usize, wait_ns, service_ns| {
            cost_ns(std::iter::repeat_n(Some(Predicted { wait_ns, service_ns }), servers))
        };
        // 64 KiB: a seek of 8 ms, and 7 ns a byte.
        let (whole, quarter) = (8_000_000 + 458_752, 8_000_000 + 114_688);
        assert!(cost(4, 0, quarter) < cost(1, 0, whole));
        assert!(cost(4, 20_000_000, quarter) > cost(1, 20_000_000, whole));
        assert!(cost(4, 20_000_000, quarter) < cost(1, 80_000_000, whole), "but that one is busier");
        // 64 MiB are spread all the same.
        assert!(cost(4, 20_000_000, 8_000_000 + 117_440_512) < cost(1, 520_000_000, 8_000_000 + 469_762_048));
        assert_eq!(cost_ns([None, Some(Predicted::default())].into_iter()), u64::MAX);
        assert_eq!(cost_ns(std::iter::empty()), 0);
    }
}
