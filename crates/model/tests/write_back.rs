//! The closed form of what is written back, against drawn requests.

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use stripewise_layout::Order;
use stripewise_model::queueing::{BufferedRequests, RegionWriteBack};

const KIB: u64 = 1 << 10;
const SEED: u64 = 1;

fn random(request_bytes: u64, requests: u64) -> BufferedRequests {
    BufferedRequests { request_bytes, order: Order::Random, requests: requests as f64, adjoining: 0.0 }
}

/// Mean bytes and runs on each of `servers` over which the region is striped, of regions whose pages are drawn.
fn drawn(region_bytes: u64, classes: &[BufferedRequests], stripe_bytes: u64, servers: u64) -> (f64, f64) {
    let mut draws = SmallRng::seed_from_u64(SEED);
    let page = classes.iter().map(|class| class.request_bytes).min().unwrap().min(stripe_bytes);
    let rounds = 3000;
    let (mut bytes, mut runs) = (0u64, 0u64);
    for _ in 0..rounds {
        let mut is_dirty = vec![false; (region_bytes / page) as usize];
        for class in classes {
            for _ in 0..class.requests as u64 {
                let first = draws.random_range(0..region_bytes / class.request_bytes) * class.request_bytes / page;
                is_dirty[first as usize..(first + class.request_bytes / page) as usize].fill(true);
            }
        }
        for server in 0..servers {
            let is_there = |number: &usize| *number as u64 * page / stripe_bytes % servers == server;
            let object: Vec<bool> = (0..is_dirty.len()).filter(is_there).map(|number| is_dirty[number]).collect();
            bytes += object.iter().filter(|dirty| **dirty).count() as u64 * page;
            runs += u64::from(object[0]) + object.windows(2).filter(|pair| !pair[0] && pair[1]).count() as u64;
        }
    }
    let objects = (rounds * servers) as f64;
    (bytes as f64 / objects, runs as f64 / objects)
}

#[test]
fn bytes_and_runs_are_those_of_drawn_requests() {
    let region_bytes = 4096 * KIB;
    let cases: &[&[BufferedRequests]] = &[
        &[random(64 * KIB, 1)],
        &[random(64 * KIB, 10)],
        &[random(64 * KIB, 64)],
        &[random(64 * KIB, 300)],
        &[random(1024 * KIB, 5)],
        &[random(4096 * KIB, 3)],
        &[random(64 * KIB, 20), random(256 * KIB, 6), random(1024 * KIB, 1)],
    ];
    for classes in cases {
        for (stripe_bytes, servers) in [(64 * KIB, 1), (64 * KIB, 8), (256 * KIB, 4)] {
            let (bytes, runs) = drawn(region_bytes, classes, stripe_bytes, servers);
            let found = RegionWriteBack::of(region_bytes, classes, 1.0);
            let expected_bytes = found.bytes(region_bytes, classes) / servers as f64;
            // A request begins on the server if its first stripe does, or if it goes on there.
            let visits = |request_bytes: u64| {
                (request_bytes.max(stripe_bytes) / stripe_bytes).min(servers) as f64 / servers as f64
            };
            let of_classes =
                classes.iter().zip(&found.requests).map(|(class, count)| visits(class.request_bytes) * count);
            let expected_runs = found.whole + of_classes.sum::<f64>();
            assert!((expected_bytes / bytes - 1.0).abs() < 0.04, "seed {SEED}, {classes:?}: {expected_bytes} {bytes}");
            assert!(
                (expected_runs / runs - 1.0).abs() < 0.04,
                "seed {SEED}, {classes:?} over {servers}: {expected_runs} {runs}"
            );
        }
    }
}

#[test]
fn requests_in_order_leave_one_run() {
    let in_order = |requests: f64| BufferedRequests {
        request_bytes: 64 * KIB,
        order: Order::Sequential,
        requests,
        adjoining: 0.0,
    };
    for requests in [1.0, 10.0, 63.0, 64.0, 200.0] {
        let class = in_order(requests);
        let found = RegionWriteBack::of(4096 * KIB, &[class], 1.0);
        let runs = found.whole + found.whole_in_order + found.requests[0];
        assert!((runs - 1.0).abs() < 1e-9, "{requests}: {found:?}");
        let bytes = found.bytes(4096 * KIB, &[class]);
        assert!((bytes - requests.min(64.0) * 65536.0).abs() < 1.0, "{requests}: {bytes}");
        assert!(found.whole < 1e-9, "nothing seeks for what follows: {found:?}");
    }
    let marching = BufferedRequests { order: Order::Random, adjoining: 1.0, ..in_order(64.0) };
    assert_eq!(
        RegionWriteBack::of(4096 * KIB, &[marching], 1.0),
        RegionWriteBack::of(4096 * KIB, &[in_order(64.0)], 1.0)
    );
}

proptest! {
    /// No more than all that is written, no less than one pass of it, and no weight below nothing.
    #[test]
    fn what_is_written_back_is_bounded(
        classes in proptest::collection::vec((0u32..9, 1u64..500, any::<bool>(), 0.0..1.0f64), 1..4),
        region_kib in 300u64..5000, passes in 1.0..20.0f64,
    ) {
        let region_bytes = region_kib * KIB;
        let classes: Vec<BufferedRequests> = classes
            .into_iter()
            .map(|(power, requests, is_sequential, adjoining)| BufferedRequests {
                request_bytes: KIB << power,
                order: if is_sequential { Order::Sequential } else { Order::Random },
                requests: requests as f64,
                adjoining,
            })
            .collect();
        let found = RegionWriteBack::of(region_bytes, &classes, passes);
        let all = found.requests.iter().chain([&found.whole, &found.whole_in_order, &found.dirty]);
        prop_assert!(all.into_iter().all(|count| count.is_finite() && *count >= 0.0), "{found:?}");
        let bytes = found.bytes(region_bytes, &classes);
        let once = RegionWriteBack::of(region_bytes, &classes, 1.0).bytes(region_bytes, &classes);
        let written: f64 = classes.iter().map(|class| class.requests * class.request_bytes as f64).sum();
        prop_assert!(bytes <= written * (1.0 + 1e-9) && once <= bytes * (1.0 + 1e-9), "{once} {bytes} {written}");
        prop_assert!(once <= region_bytes as f64 * (1.0 + 1e-9));
    }
}
