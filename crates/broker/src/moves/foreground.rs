//! Which servers programs of this host use, as far as their files tell: for devices that the kernel has no statistics of.

use super::Moves;
use std::collections::BTreeSet;
use stripewise_layout::{RegionIndex, ServerId, StripeView};
use stripewise_store::shared::control::{ControlBlock, RegionState};
use stripewise_store::shared::marking::Motion;
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};
use stripewise_store::shared::slots::Slots;

/// Regions of one request that are looked at: what lies further is mostly on the same servers.
const REGIONS_OF_REQUEST: usize = 64;

impl Moves {
    /// Servers with objects of regions that a program is reading or writing just now, whatever file they belong to.
    pub(super) fn used_servers(&self) -> BTreeSet<ServerId> {
        let mut used = BTreeSet::new();
        for managed in self.files.all_loaded_now() {
            let is_alive = |slot, incarnation| self.context.is_alive(slot, incarnation);
            add_used(&mut used, &managed.control, &managed.slots, is_alive);
        }
        used
    }
}

fn add_used(
    used: &mut BTreeSet<ServerId>,
    control: &ControlBlock,
    slots: &Slots,
    is_alive: impl Fn(ProcessSlot, Incarnation) -> bool,
) {
    for (slot, incarnation) in slots.users() {
        let mut requests = slots.in_flight(slot).peekable();
        if requests.peek().is_some() && is_alive(slot, incarnation) {
            for request in requests {
                let regions = (request.first.0..=request.last.0).take(REGIONS_OF_REQUEST).map(RegionIndex);
                regions.for_each(|region| add_servers_of(used, control, region));
            }
        }
    }
}

fn add_servers_of(used: &mut BTreeSet<ServerId>, control: &ControlBlock, region: RegionIndex) {
    let RegionState::Placed { view, motion, is_narrow, .. } = control.regions().get(region) else { return };
    let servers = |view: StripeView<'_>| view.stripes().iter().map(|stripe| stripe.server).collect::<Vec<_>>();
    // Of a narrow region, only the first stripe has an object.
    used.extend(servers(view).into_iter().take(if is_narrow { 1 } else { usize::MAX }));
    if motion == Motion::Replicated {
        used.extend(control.regions().replicas(region).flat_map(|(_, view)| servers(view)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::OwnedFd;
    use stripewise_layout::{Direction, FileId, Generation, Layout};
    use stripewise_store::shared::slots::InFlight;

    struct File {
        control: ControlBlock,
        slots: Slots,
    }

    impl File {
        /// With two regions on each of these pairs of servers.
        fn on(number: u64, pairs: &[[u16; 2]]) -> Self {
            let memory = || OwnedFd::from(tempfile::tempfile().unwrap());
            let control = ControlBlock::build(&memory(), FileId(number), [0; 16], 65536).unwrap();
            for (first, servers) in (0..).step_by(2).zip(pairs) {
                let layout = Layout::new(servers.map(|server| (ServerId(server), 4096))).unwrap();
                for region in [first, first + 1] {
                    let published =
                        control.regions().publish(FileId(number), RegionIndex(region), Generation(1), &layout);
                    published.unwrap();
                }
            }
            Self { control, slots: Slots::build(&memory()).unwrap() }
        }
    }

    #[test]
    fn servers_are_used_while_a_living_program_is_inside_regions_there() {
        let files = [File::on(1, &[[0, 1]]), File::on(2, &[[2, 3], [3, 4]])];
        let (living, dead) = ((ProcessSlot(3), Incarnation(7)), (ProcessSlot(4), Incarnation(8)));
        let used = || {
            let mut used = BTreeSet::new();
            for file in &files {
                add_used(&mut used, &file.control, &file.slots, |slot, incarnation| (slot, incarnation) == living);
            }
            used.into_iter().map(|server| server.0).collect::<Vec<_>>()
        };
        for (file, (slot, incarnation)) in files.iter().flat_map(|file| [(file, living), (file, dead)]) {
            file.slots.add_user(slot, incarnation).unwrap();
        }
        let read = |last| InFlight { direction: Direction::Read, first: RegionIndex(1), last: RegionIndex(last) };
        let of_dead = files[0].slots.occupy(dead.0, 0, read(1)).unwrap();
        assert_eq!(used(), [0; 0], "nobody who lives is inside a file");
        let long = files[1].slots.occupy(living.0, 0, read(2)).unwrap();
        assert_eq!(used(), [2, 3, 4]);
        let short = files[1].slots.occupy(living.0, 1, read(1)).unwrap();
        long.free();
        assert_eq!(used(), [2, 3]);
        short.free();
        assert_eq!(used(), [0; 0]);
        of_dead.free();
    }
}
