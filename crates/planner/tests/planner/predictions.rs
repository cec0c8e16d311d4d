//! What is predicted of servers and streams.

use crate::testbed::{self, KIB, MIB};
use stripewise_layout::{ByteCount, Direction, Layout, Order, Placement, ServerId};
use stripewise_model::Concurrency;
use stripewise_planner::{Prediction, predict};
use stripewise_trace::FileAccess;

const REGION_BYTES: u64 = 64 * MIB;
const DISKS: u16 = 16;

/// As many requests of 64 KiB to each of so many regions as it has places.
fn access(regions: usize, order: Order) -> FileAccess {
    let read = testbed::class(Direction::Read, 64 * KIB, order);
    let counts = vec![&[1024u64][..]; regions];
    testbed::file("/data/a", regions as u64 * REGION_BYTES, REGION_BYTES, &[read], &counts)
}

fn predicted(access: &FileAccess, stripe_bytes: u64, processes: u32) -> Prediction {
    let cluster = testbed::cluster(usize::from(DISKS), 0, REGION_BYTES, None);
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let layout = Layout::new((0..DISKS).map(|server| (ServerId(server), stripe_bytes as u32))).unwrap();
    let placement = Placement::uniform(ByteCount(REGION_BYTES), layout.clone(), layout);
    predict(&placement, access, &profile, None, Concurrency { processes, processes_per_node: 1 })
}

/// Sixteen offsets 4 MiB apart lie 32 KiB apart in a cycle of 4,128 KiB: sampled there, two servers had twice the load of all others and the
/// prediction was half of what was simulated.
#[test]
fn loads_do_not_depend_on_where_sampled_offsets_lie_in_the_cycle() {
    let access = access(16, Order::Random);
    let aliased = predicted(&access, 258 * KIB, 32);
    let mean_s = aliased.server_load_s.iter().sum::<f64>() / f64::from(DISKS);
    for (server, load_s) in aliased.server_load_s.iter().enumerate() {
        assert!((load_s / mean_s - 1.0).abs() < 0.07, "server {server}: {load_s} s, {mean_s} s on average");
    }
    // With 256 KiB all samples lie alike; longer stripes cut one request in a few more.
    let plain = predicted(&access, 256 * KIB, 32);
    let ratio = aliased.total.mb_per_s / plain.total.mb_per_s;
    assert!((0.75..1.02).contains(&ratio), "{ratio}");
}

/// Every process in regions of its own: no region knows of another process, but the disks serve the streams of all of them.
#[test]
fn streams_meet_on_disks_wherever_in_the_file_their_processes_are() {
    let mut access = access(32, Order::Sequential);
    access.windows[0].regions.iter_mut().for_each(|region| region.processes = 1);
    let random_mb_s = f64::from(DISKS) * (64 * KIB) as f64 / testbed::DISK[1].0 / 1e6;
    let mb_s = |processes| predicted(&access, 64 * KIB, processes).total.mb_per_s;
    // Eight streams are followed; of 32 that meet on every disk none is.
    assert!(mb_s(8) > random_mb_s, "{} of {random_mb_s} MB/s", mb_s(8));
    assert!(mb_s(32) < random_mb_s, "{} of {random_mb_s} MB/s", mb_s(32));
}
