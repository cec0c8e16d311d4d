//! In the order of the emulated servers the simulator is reservation at issue, which those do.

use crate::script::{REGION_BYTES, Script, access, run, servers, striped, uniform};
use proptest::prelude::*;
use stripewise_device::{Access, DiskPlace, ExtentId, Nanos, StationState};
use stripewise_layout::{ByteCount, Direction, RegionGeometry, RegionOffset};
use stripewise_sim::{SimOptions, StationOrder};
use stripewise_trace::Step;

const REGIONS: u64 = 6;

#[derive(Clone, Copy, Debug)]
struct Job {
    pause_ns: u64,
    offset: u64,
    bytes: u64,
}

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let job = (0..2_000_000u64, 0..REGIONS * REGION_BYTES - (1 << 19), 1..1u64 << 19);
    let job = job.prop_map(|(pause_ns, offset, bytes)| Job { pause_ns, offset: offset / 512 * 512, bytes });
    prop::collection::vec(job, 1..80)
}

/// Ends of all jobs, each reserved as a whole at its issue.
fn reserved(names: &[&str], stripe_bytes: u32, direction: Direction, jobs: &[Job]) -> Vec<(Nanos, Nanos)> {
    let system = servers(names, Some("gigabit"));
    let layout = striped(0..names.len() as u16, stripe_bytes);
    let geometry = RegionGeometry::new(ByteCount(REGION_BYTES).0);
    let mut stations = vec![StationState::default(); names.len()];
    let mut issue = Nanos(0);
    let mut ends = Vec::new();
    for job in jobs {
        issue = issue + Nanos(job.pause_ns);
        let mut end = issue;
        for piece in geometry.pieces(stripewise_layout::FileOffset(job.offset), job.bytes) {
            for part in layout.view().split(RegionOffset(piece.offset.0), piece.length) {
                let region = u64::from(piece.region.0);
                let after = region.checked_sub(1).map(ExtentId);
                let place = DiskPlace { extent: ExtentId(region), after, offset: part.offset };
                let server = &system.servers[usize::from(part.server.0)];
                let access = Access { direction, place, bytes: part.length };
                let station = &mut stations[usize::from(part.server.0)];
                end = end.max(station.reserve(&server.device, server.link.as_ref(), issue, &access).end);
            }
        }
        ends.push((issue, end));
    }
    ends
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn device_first_is_reservation_at_issue(
        names in prop::collection::vec(prop::sample::select(vec!["hdd-7200", "sata-ssd-2012", "nvme", "paper-hdd"]), 1..5),
        stripe_kib in 1u32..400,
        write in any::<bool>(),
        jobs in jobs(),
    ) {
        let direction = if write { Direction::Write } else { Direction::Read };
        let ends = reserved(&names, stripe_kib << 10, direction, &jobs);
        let mut issue = 0;
        let steps = jobs.iter().map(|job| {
            issue += job.pause_ns;
            vec![Step::Until { nanoseconds: issue }, access(direction, job.offset, job.bytes)]
        });
        let program = Script::new(REGIONS, steps.collect());
        let options = SimOptions { order: StationOrder::DeviceFirst, ..SimOptions::default() };
        let system = servers(&names, Some("gigabit"));
        let outcome = run(&system, &program, &uniform(striped(0..names.len() as u16, stripe_kib << 10)), options);
        let longest = ends.iter().map(|(issue, end)| end.saturating_sub(*issue)).max().unwrap();
        let sum: u64 = ends.iter().map(|(issue, end)| end.0 - issue.0).sum();
        prop_assert_eq!(outcome.time_s, ends.iter().map(|(_, end)| end.seconds()).fold(0.0, f64::max));
        prop_assert_eq!(outcome.latency.max_s, longest.seconds());
        prop_assert_eq!(outcome.latency.mean_s, sum as f64 / ends.len() as f64 / 1e9);
    }
}
