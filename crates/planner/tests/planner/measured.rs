//! Predictions beside what was measured on emulated servers.
//!
//! `stripewise demo` on its default testbed: 12 disks `hdd-7200` and 4 `sata-ssd-2012` with links `gigabit`, 1 GiB in regions of 4 MiB, 32 ranks,
//! regions by Zipf's law with exponent 0.8, each SSD with space for 1/24 of the file. Bandwidths are those of one such run, on emulated devices.
//! Nothing in the model is fitted to them.

use crate::testbed::{self, ClassLines, KIB, MIB};
use stripewise_layout::{Direction, Order};
use stripewise_planner::{PolicyName, plan};

const DISK: ClassLines = [(0.1e-3, 8e-9), (12.66e-3, 8e-9), (0.1e-3, 8e-9), (13.66e-3, 8e-9)];
const FLASH: ClassLines = [(80e-6, 1.8182e-9), (80e-6, 1.8182e-9), (85e-6, 1.9231e-9), (85e-6, 1.9231e-9)];
const REGIONS: usize = 256;

/// KiB per request, requests of each direction, and MB/s of reads: `def`, `padp`, `psa`, `h2dp`.
const MEASURED: [(u64, u64, [f64; 4]); 4] = [
    (64, 960, [57.6, 9.66, 5.93, 18.6]),
    (256, 416, [65.3, 26.1, 21.7, 57.3]),
    (1024, 192, [84.0, 97.9, 83.6, 250.4]),
    (4096, 192, [283.9, 329.7, 285.7, 673.6]),
];

/// How often each region is drawn by Zipf's law, in a seeded order.
fn draws(requests: u64) -> Vec<u64> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut order: Vec<usize> = (0..REGIONS).collect();
    (1..REGIONS).rev().for_each(|last| order.swap(last, (next() * (last + 1) as f64) as usize));
    let weights: Vec<f64> = (1..=REGIONS).map(|rank| (rank as f64).powf(-0.8)).collect();
    let total: f64 = weights.iter().sum();
    let mut counts = vec![0; REGIONS];
    for _ in 0..requests {
        let mut left = next() * total;
        let rank = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        counts[order[rank.unwrap_or(REGIONS - 1)]] += 1;
    }
    counts
}

#[test]
fn predictions_are_near_what_the_demo_measured() {
    let cluster = testbed::cluster(12, 4, 4 * MIB, Some(43_688 * KIB));
    let mut profile = testbed::profile(&cluster, DISK, FLASH, 0.3e-3, 8.3333e-9);
    profile.emulated = true;
    for (kib, requests, measured) in MEASURED {
        let classes = [Direction::Read, Direction::Write].map(|d| testbed::class(d, kib * KIB, Order::Random));
        let draws = draws(requests);
        let counts: Vec<[u64; 2]> = draws.iter().map(|draw| [*draw; 2]).collect();
        let counts: Vec<&[u64]> = counts.iter().map(|pair| pair.as_slice()).collect();
        let files = [testbed::file("/data/shared", 1024 * MIB, 4 * MIB, &classes, &counts)];
        let request = testbed::request(&cluster, &profile, &files);
        let policies = [PolicyName::Def, PolicyName::Padp, PolicyName::Psa, PolicyName::H2dp];
        let predicted = policies.map(|policy| plan(policy, &request).unwrap().predicted.read.unwrap().mb_per_s);
        for ((policy, predicted), measured) in policies.into_iter().zip(predicted).zip(measured) {
            let error = predicted / measured - 1.0;
            println!("{kib} KiB {policy}: predicted {predicted:.1}, measured {measured:.1}, {:+.0} %", error * 100.0);
            assert!(error.abs() < 0.15, "{kib} KiB {policy}: predicted {predicted:.1}, measured {measured:.1}");
        }
        // H2DP's gain over the default: its sign, and its size within a sixth of the ratio.
        let (predicted, measured) = (predicted[3] / predicted[0], measured[3] / measured[0]);
        assert_eq!(predicted > 1.0, measured > 1.0, "{kib} KiB: {predicted} and {measured}");
        assert!((predicted / measured - 1.0).abs() < 1.0 / 6.0, "{kib} KiB: {predicted} and {measured}");
    }
}
