//! Reading a region that has replicas.
//!
//! The copy is chosen for each region's part of a request: the one whose last server is predicted to be done first, given what is under way there, and
//! what others lose by it added. A request that is spread over many disks costs each of them a seek, in which they could have served others. While servers are
//! idle nobody misses that. Where requests stand in queues, the servers' work is what runs out: with a wait of `w` in the mean, about `w` over the work of one
//! request are before it at each server, and as many come behind it, each of which is later by the work that this copy takes beyond that of the cheapest one,
//! shared by the servers. So `w` times that work over the cheapest is added. (The paper's cost weighs the same by the number of processes, which it takes as
//! known.)
//!
//! Of equals the place is taken, then the replicas in the order of their numbers, so the choice is the same wherever the load is. Emulated
//! servers predict from their stations; at others the reads that had a choice are counted (`shared::loads`). Both are what all processes of the host do. A
//! copy that cannot be read is passed over for the next, which is how the loss of a server is survived.

use super::IoMode;
use super::buffers::Buffers;
use super::core::FileCore;
use super::fragments::Part;
use super::piece::Pieces;
use super::reason::RetryReason;
use super::sub_request::{Stopped, from_first_byte};
use super::together::PutOff;
use crate::client::Core;
use crate::server::{Due, ObjectName, Predicted};
use crate::shared::control::RegionState;
use crate::shared::loads::Loads;
use crate::shared::marking::Motion;
use crate::shared::process_slot::ProcessSlot;
use stripewise_layout::{
    Direction, FileOffset, Generation, RegionIndex, RegionPiece, RequestKind, ServerId, StripeView,
};

/// A region's copies, best first.
pub(super) struct Choice<'a> {
    pub(super) region: RegionIndex,
    /// At least the place.
    pub(super) copies: Vec<(Generation, StripeView<'a>)>,
}

/// What reading one copy would take.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Reading {
    /// Until the last sub-request is done.
    last_ns: u64,
    /// Of all servers together.
    work_ns: u64,
    waits_ns: u64,
    sub_requests: u64,
}

/// `None` where a server is unknown.
fn reading(mut subs: impl Iterator<Item = Option<Predicted>>) -> Option<Reading> {
    subs.try_fold(Reading::default(), |sum, sub| {
        let Predicted { wait_ns, service_ns, held_ns } = sub?;
        Some(Reading {
            last_ns: sum.last_ns.max(wait_ns.saturating_add(service_ns)),
            work_ns: sum.work_ns.saturating_add(held_ns),
            waits_ns: sum.waits_ns.saturating_add(wait_ns),
            sub_requests: sum.sub_requests + 1,
        })
    })
}

/// The costs of copies in ns, one for each; the most there is where a server is unknown.
fn costs_ns(copies: &[Option<Reading>]) -> Vec<f64> {
    let least_ns = copies.iter().flatten().map(|copy| copy.work_ns).min().unwrap_or(0).max(1) as f64;
    let cost = |copy: &Reading| {
        let wait_ns = copy.waits_ns as f64 / copy.sub_requests.max(1) as f64;
        copy.last_ns as f64 + wait_ns * (copy.work_ns as f64 / least_ns - 1.0).max(0.0)
    };
    copies.iter().map(|copy| copy.as_ref().map_or(f64::INFINITY, cost)).collect()
}

/// Reads counted as under way until dropped.
struct Counted<'a> {
    loads: Option<(Loads<'a>, ProcessSlot)>,
    servers: Vec<ServerId>,
}

impl<'a> Counted<'a> {
    fn new(core: &'a Core, piece: &RegionPiece, view: StripeView<'_>) -> Self {
        // As this process is now: a child that is forked has another slot and nothing under way.
        let loads = core.identity().and_then(|(slot, _)| Some((core.processes.loads_of(slot)?, slot)));
        let servers: Vec<ServerId> = view.split(piece.offset, piece.length).map(|sub| sub.server).collect();
        if let Some((loads, slot)) = &loads {
            servers.iter().for_each(|server| loads.begin(*slot, *server));
        }
        Self { loads, servers }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some((loads, slot)) = &self.loads {
            self.servers.iter().for_each(|server| loads.end(*slot, *server));
        }
    }
}

/// Chooses among the copies of regions, and reads them.
#[derive(Clone, Copy)]
pub(super) struct Copies<'f> {
    pieces: Pieces<'f>,
}

impl<'f> Copies<'f> {
    pub(super) fn new(pieces: Pieces<'f>) -> Self {
        Self { pieces }
    }

    fn file(&self) -> &'f FileCore {
        self.pieces.objects().file()
    }

    fn core(&self) -> &'f Core {
        self.pieces.objects().core()
    }

    /// Takes the emulated devices' time for every sub-request, in turn, before any byte moves.
    /// What is read from regions with replicas is chosen now.
    pub(super) fn reserve(
        &self,
        kind: RequestKind,
        offset: FileOffset,
        length: u64,
        chosen: &mut Vec<Choice<'f>>,
    ) -> Due {
        let mut due = None;
        for piece in self.file().geometry().pieces(offset, length) {
            let RegionState::Placed { generation, view, motion, .. } = self.file().region(piece.region) else {
                continue;
            };
            let mut copy = (generation, view);
            if motion == Motion::Replicated && kind == RequestKind::Read {
                let choice = self.choose(&piece, copy);
                copy = choice.copies[0];
                chosen.push(choice);
            }
            due = due.max(self.reserve_piece(kind, &piece, copy));
        }
        due
    }

    /// The same of one region's part, in this copy of it.
    fn reserve_piece(
        &self,
        kind: RequestKind,
        piece: &RegionPiece,
        (generation, view): (Generation, StripeView<'_>),
    ) -> Due {
        let mut due = None;
        for sub in from_first_byte(view, piece.offset, piece.length) {
            if let Some(device) = self.core().server(sub.server).ok().and_then(|server| server.device_time()) {
                let object = ObjectName { file: self.file().id(), region: piece.region, generation };
                due = due.max(device.reserve(kind, object, sub.offset, sub.length));
            }
        }
        due
    }

    /// The copies of a region that was seen to have replicas, in the order in which they are to be tried for `piece`.
    fn choose(&self, piece: &RegionPiece, place: (Generation, StripeView<'f>)) -> Choice<'f> {
        let copies: Vec<_> =
            std::iter::once(place).chain(self.file().control().regions().replicas(piece.region)).collect();
        let readings: Vec<Option<Reading>> = copies.iter().map(|copy| self.predict(piece, *copy)).collect();
        let mut costly: Vec<_> = costs_ns(&readings).into_iter().zip(copies).collect();
        costly.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        Choice { region: piece.region, copies: costly.into_iter().map(|(_, copy)| copy).collect() }
    }

    fn predict(&self, piece: &RegionPiece, (generation, view): (Generation, StripeView<'_>)) -> Option<Reading> {
        let object = ObjectName { file: self.file().id(), region: piece.region, generation };
        let subs = view.split(piece.offset, piece.length);
        reading(subs.map(|sub| self.core().predict_read(sub.server, object, sub.offset, sub.length)))
    }

    /// Reads one region's part from the best of its copies that can be read. `reserved`: chosen before, the first one's devices' time taken.
    pub(super) fn read(
        &self,
        piece: &RegionPiece,
        place: (Generation, StripeView<'f>),
        reserved: Option<Choice<'f>>,
        buffers: &Buffers<'_>,
        mode: IoMode,
        due: &mut Due,
    ) -> Result<(), Stopped> {
        let reserves = self.core().stations.is_some();
        let mut is_reserved = reserved.is_some();
        let choice = reserved.unwrap_or_else(|| self.choose(piece, place));
        let mut first_fault = None;
        for copy in choice.copies {
            if reserves && !std::mem::take(&mut is_reserved) {
                *due = (*due).max(self.reserve_piece(RequestKind::Read, piece, copy));
            }
            let _counted = Counted::new(self.core(), piece, copy.1);
            let mut put_off = PutOff::new(Direction::Read, mode, piece.length);
            let part = Part { piece: *piece, view: copy.1, motion: Motion::Replicated };
            let moved = self.pieces.move_piece(Direction::Read, &part, copy.0, buffers, &mut put_off, None);
            let moved = self.pieces.finish(&mut put_off, moved.err(), buffers).map_or(Ok(()), Err);
            match moved {
                Err(stop) if matches!(stop.reason, RetryReason::Fault(_)) => {
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

    /// Which of these copies is taken: servers of each, and what is before the read there and at other copies' servers.
    fn taken(copies: &[(u64, u64, u64)]) -> usize {
        let one = |&(servers, wait_ns, service_ns): &(u64, u64, u64)| {
            let sub = Some(Predicted { wait_ns, service_ns, held_ns: service_ns });
            reading((0..servers).map(|_| sub))
        };
        let costs = costs_ns(&copies.iter().map(one).collect::<Vec<_>>());
        (0..copies.len()).min_by(|a, b| costs[*a].total_cmp(&costs[*b])).unwrap()
    }

    #[test]
    fn a_read_spreads_over_idle_servers_and_not_over_busy_ones() {
        // 64 KiB: a seek of 8 ms, and 7 ns a byte.
        let (whole, quarter) = (8_000_000 + 458_752, 8_000_000 + 114_688);
        assert_eq!(taken(&[(1, 0, whole), (4, 0, quarter)]), 1);
        assert_eq!(taken(&[(1, 20_000_000, whole), (4, 20_000_000, quarter)]), 0);
        assert_eq!(taken(&[(1, 400_000_000, whole), (4, 20_000_000, quarter)]), 1, "but that one is busier");
        assert_eq!(taken(&[(1, 20_000_000, whole), (1, 10_000_000, whole)]), 1);
        // 64 MiB are spread all the same.
        let (whole, quarter) = (8_000_000 + 469_762_048, 8_000_000 + 117_440_512);
        assert_eq!(taken(&[(1, 500_000_000, whole), (4, 500_000_000, quarter)]), 1);
    }

    #[test]
    fn of_equals_the_first_is_taken_and_what_is_unknown_last() {
        assert_eq!(taken(&[(2, 5, 7), (2, 5, 7)]), 0);
        let known = reading([Some(Predicted { wait_ns: 9, service_ns: 9, held_ns: 9 })].into_iter());
        assert_eq!(costs_ns(&[None, known]), [f64::INFINITY, 18.0]);
        assert_eq!(reading([Some(Predicted::default()), None].into_iter()), None);
        assert_eq!(costs_ns(&[Some(Reading::default())]), [0.0]);
    }
}
