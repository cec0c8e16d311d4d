//! Keeping space free on SServers.
//!
//! Promises keep to a server's room, but the room can shrink: others fill the file system, or `capacity`, `reserve` or `fragment_room` in the cluster file
//! change. What then leaves is what seems to benefit least. A plan does not say how much each region of its gains, so the order is: regions that the
//! window does not want on the server, or that no plan speaks of; files that nobody has open; files changed longest ago; then the largest
//! share on the server. They go to the file's fallback layout, and only if that frees anything.

use super::error::Result;
use super::guide::Guide;
use crate::free_space;
use crate::moves::{Batch, layout_of, placement_of, totals};
use crate::progress::Voice;
use crate::store::Store;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use stripewise_layout::figures::{bytes, counted};
use stripewise_layout::{FileId, Layout, RegionGeometry, RegionIndex, Server, ServerClass, ServerId};
use stripewise_store::protocol::{FileInfo, MoveOrder, ServerUsage};

const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// What is kept free of a file system, in percent, where the cluster file gives no `reserve`: H2DP leaves 5 % of its SServers.
const DEFAULT_PERCENT: u64 = 5;

#[derive(Default)]
pub(super) struct Reserve {
    last_check: Option<Instant>,
    /// Said of these that nothing helps.
    hopeless: BTreeSet<ServerId>,
    /// Said of these that it is not known what they have free.
    unknown: BTreeSet<ServerId>,
}

/// Bytes that a server has too few.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Short {
    /// By its promises and capacity.
    promised_bytes: u64,
    /// By what its file system has free.
    free_bytes: u64,
}

/// A region that could leave.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Candidate {
    file: FileId,
    region: RegionIndex,
    to: Layout,
    is_wanted: bool,
    is_open: bool,
    modified_ns: u64,
    /// What it gives back.
    gives: Short,
}

impl Reserve {
    /// Looks now and then, while nothing moves, and orders what has to leave.
    pub(super) fn poll(&mut self, store: &Store, voice: &Voice, guide: &Guide) -> Result<()> {
        if self.last_check.is_some_and(|last_check| last_check.elapsed() < CHECK_INTERVAL) {
            return Ok(());
        }
        self.last_check = Some(Instant::now());
        let totals = totals(store)?;
        // A pause is a person's wish, and what is under way may free space.
        if totals.queued + totals.active > 0 || totals.paused.is_some() {
            return Ok(());
        }
        let all = store.usage()?;
        for ((id, server), usage) in (0..).map(ServerId).zip(&store.cluster.servers).zip(&all) {
            match &usage.standing {
                Err(why) if server.class == ServerClass::Ssd => {
                    if self.unknown.insert(id) {
                        voice.say(free_space::unknown(&server.name, "so nothing leaves it to keep space free", why));
                    }
                }
                _ => drop(self.unknown.remove(&id)),
            }
            let short = if server.class == ServerClass::Ssd { short_of(server, usage) } else { Short::default() };
            if short == Short::default() {
                self.hopeless.remove(&id);
                continue;
            }
            let leaving = leaving(candidates(store, &all, id, guide)?, short);
            let lacking = bytes(short.promised_bytes.max(short.free_bytes));
            if leaving.is_empty() {
                if self.hopeless.insert(id) {
                    voice.say(format_args!(
                        "server {} has {lacking} less free space than it should keep, and moving regions off it would free nothing; free some space there",
                        server.name
                    ));
                }
                continue;
            }
            let moves = counted(leaving.len(), "region leaves", "regions leave");
            voice.say(format_args!(
                "server {} has {lacking} less free space than it should keep: {moves} it",
                server.name
            ));
            let order =
                |one: Candidate| MoveOrder { file: one.file, first: one.region, last: one.region, layout: one.to };
            Batch::order(store, leaving.into_iter().map(order).collect())?;
        }
        Ok(())
    }
}

fn short_of(server: &Server, usage: &ServerUsage) -> Short {
    let promised_bytes = usage.room_bytes.map_or(0, |capacity| usage.promised_bytes.saturating_sub(capacity));
    let free_bytes = usage.standing.as_ref().map_or(0, |standing| {
        let default_bytes = standing.total_bytes / 100 * DEFAULT_PERCENT;
        let reserve_bytes = if server.reserve.0 > 0 { server.reserve.0 } else { default_bytes };
        reserve_bytes.saturating_sub(standing.free_bytes)
    });
    Short { promised_bytes, free_bytes }
}

/// Those that go, first the one that benefits least, until nothing is short any more.
fn leaving(mut candidates: Vec<Candidate>, short: Short) -> Vec<Candidate> {
    candidates.retain(|one| {
        (short.promised_bytes > 0 && one.gives.promised_bytes > 0) || (short.free_bytes > 0 && one.gives.free_bytes > 0)
    });
    candidates.sort_by_key(|one| {
        let share = std::cmp::Reverse(one.gives.promised_bytes.max(one.gives.free_bytes));
        (one.is_wanted, one.is_open, one.modified_ns, share, std::cmp::Reverse(one.region))
    });
    let mut given = Short::default();
    let is_short = |given: &Short| given.promised_bytes < short.promised_bytes || given.free_bytes < short.free_bytes;
    let mut leaving = Vec::new();
    for one in candidates {
        if !is_short(&given) {
            break;
        }
        given.promised_bytes += one.gives.promised_bytes;
        given.free_bytes += one.gives.free_bytes;
        leaving.push(one);
    }
    leaving
}

/// All regions with a stripe on the server that could lie elsewhere.
fn candidates(store: &Store, all: &[ServerUsage], server: ServerId, guide: &Guide) -> Result<Vec<Candidate>> {
    // A server that shares its space with nobody has a number of its own.
    let number = |(number, usage): (usize, &ServerUsage)| {
        let standing = usage.standing.as_ref().ok()?;
        Some(standing.file_system.unwrap_or(u64::MAX - number as u64))
    };
    let file_systems: Vec<Option<u64>> = all.iter().enumerate().map(number).collect();
    let own = file_systems.get(usize::from(server.0)).copied().flatten();
    let avoided: BTreeSet<ServerId> = store.drained()?.into_iter().chain([server]).collect();
    let mut found = Vec::new();
    for file in store.files()?.iter().filter(|file| file.state == "live") {
        let mut regions = store.regions(file.file)?;
        regions.retain(|info| info.stripes.iter().any(|(number, _)| *number == server.0));
        if regions.is_empty() {
            continue;
        }
        let Some(to) = store.cluster.layout_without(placement_of(store, file.file)?.fallback_layout(), &avoided) else {
            continue;
        };
        let (geometry, modified_ns) = (RegionGeometry::new(file.region_bytes), modified_ns(store, file));
        for info in &regions {
            let from = layout_of(info)?;
            let used_bytes = geometry.used_bytes(info.region, file.size_bytes);
            let on_file_system = |layout: &Layout| {
                share(layout, used_bytes, |id| {
                    own.is_some() && file_systems.get(usize::from(id.0)).copied().flatten() == own
                })
            };
            let gives = Short {
                promised_bytes: share(&from, file.region_bytes, |id| id == server),
                free_bytes: on_file_system(&from).saturating_sub(on_file_system(&to)),
            };
            found.push(Candidate {
                file: file.file,
                region: info.region,
                to: to.clone(),
                is_wanted: guide.wants(&file.path, info.region, server),
                is_open: file.users > 0,
                modified_ns,
                gives,
            });
        }
    }
    Ok(found)
}

/// Bytes of a region that lie on the servers meant.
fn share(layout: &Layout, region_bytes: u64, is_meant: impl Fn(ServerId) -> bool) -> u64 {
    let turns = layout.stripes().iter().enumerate().filter(|(_, stripe)| is_meant(stripe.server));
    turns.map(|(turn, _)| layout.view().object_bytes(turn, region_bytes)).sum()
}

/// When the file was changed last; one that cannot be asked counts as just changed.
fn modified_ns(store: &Store, file: &FileInfo) -> u64 {
    let asked = || {
        let managed = store.managed(Path::new(&file.path), false).ok()?;
        let stub = managed.stub.metadata().ok()?;
        let of_stub = (stub.mtime() as u64).saturating_mul(1_000_000_000).saturating_add(stub.mtime_nsec() as u64);
        Some(managed.striped.modified_ns().unwrap_or(of_stub))
    };
    asked().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_benefit_least_leave_first_and_no_more_than_needed() {
        let one = |region: u32, is_wanted, is_open, modified_ns, promised_bytes, free_bytes| Candidate {
            file: FileId(1),
            region: RegionIndex(region),
            to: Layout::new([(ServerId(0), 4096)]).unwrap(),
            is_wanted,
            is_open,
            modified_ns,
            gives: Short { promised_bytes, free_bytes },
        };
        let all = vec![
            one(0, true, false, 1, 10, 10),
            one(1, false, true, 1, 10, 10),
            one(2, false, false, 7, 10, 10),
            one(3, false, false, 5, 10, 0),
            one(4, false, false, 5, 10, 10),
            one(5, false, false, 5, 20, 10),
        ];
        let regions = |promised_bytes, free_bytes| {
            let leaving = leaving(all.clone(), Short { promised_bytes, free_bytes });
            leaving.iter().map(|one| one.region.0).collect::<Vec<_>>()
        };
        assert_eq!(regions(0, 0), [0; 0]);
        assert_eq!(regions(1, 0), [5]);
        assert_eq!(regions(35, 0), [5, 4, 3]);
        assert_eq!(regions(0, 25), [5, 4, 2], "region 3 would free nothing");
        assert_eq!(regions(1000, 0), [5, 4, 3, 2, 1, 0]);
    }
}
