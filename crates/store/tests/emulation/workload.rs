//! Requests of clients in a closed loop: striped over all servers, aligned, random or in sequence.

use super::event_simulation::Request;
use stripewise_device::{Access, DiskPlace, ExtentId};
use stripewise_layout::{Direction, Layout, RegionOffset, ServerId};
use stripewise_store::server::emulated::EmulatedSpec;

/// 12 disks and 4 flash drives on gigabit links.
pub(crate) fn testbed(hdd: &str, ssd: &str) -> Vec<EmulatedSpec> {
    let names = std::iter::repeat_n(hdd, 12).chain(std::iter::repeat_n(ssd, 4));
    names.map(|name| EmulatedSpec::named(name, Some("gigabit"), 1.0).unwrap()).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mix {
    Reads,
    Writes,
    Half,
}

#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) layout: Layout,
    pub(crate) request_bytes: u64,
    pub(crate) mix: Mix,
    /// Each process reads on through a file of its own; otherwise uniform over one shared GiB.
    pub(crate) sequential: bool,
    pub(crate) seed: u64,
}

impl Workload {
    /// `hdd` and `ssd` bytes in turn on 12 + 4 servers; 0 leaves a class out.
    pub(crate) fn striped(hdd: u32, ssd: u32) -> Layout {
        let pairs = (0..16).map(|server| (ServerId(server), if server < 12 { hdd } else { ssd }));
        Layout::new(pairs.filter(|&(_, bytes)| bytes > 0)).unwrap()
    }

    pub(crate) fn request(&self, process: usize, number: usize) -> Request {
        let draw = mix(self.seed ^ mix(process as u64 ^ mix(number as u64)));
        let direction = match self.mix {
            Mix::Reads => Direction::Read,
            Mix::Writes => Direction::Write,
            Mix::Half if draw >> 63 == 0 => Direction::Read,
            Mix::Half => Direction::Write,
        };
        let (file, block) = match self.sequential {
            true => (1 + process as u64, number as u64),
            false => (0, draw % ((1 << 30) / self.request_bytes)),
        };
        let subs = self.layout.view().split(RegionOffset(block * self.request_bytes), self.request_bytes);
        subs.map(|sub| {
            let place = DiskPlace { extent: ExtentId(file), after: None, offset: sub.offset };
            (usize::from(sub.server.0), Access { direction, place, bytes: sub.length })
        })
        .collect()
    }
}

/// SplitMix64: draws that every process can repeat.
fn mix(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
