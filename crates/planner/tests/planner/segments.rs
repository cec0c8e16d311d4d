//! `segment` against a walk over every request-aligned offset of every region.

use crate::testbed::{self, KIB, MIB, has_requests};
use proptest::prelude::*;
use stripewise_layout::{Direction, Order, RegionIndex};
use stripewise_model::segment::SegmentPattern;
use stripewise_model::{Coefficients, Concurrency, UniformParameters};
use stripewise_planner::{PlanRequest, PolicyName, plan, segment_list};
use stripewise_trace::{AccessClass, FileAccess};

/// Every request of a region, with the p and m of its window.
fn requests(request: &PlanRequest<'_>, file: &FileAccess, region: Option<u32>) -> Vec<(AccessClass, Concurrency)> {
    let mut found = Vec::new();
    for (number, window) in file.windows.iter().enumerate() {
        for access in window.regions.iter().filter(|access| region.is_none_or(|wanted| wanted == access.region.0)) {
            for (class, count) in &access.counts {
                let one = (file.class(*class), request.window_concurrency(number));
                found.extend(std::iter::repeat_n(one, *count as usize));
            }
        }
    }
    found
}

/// Steps 2 and 3.
fn cheapest(requests: &[(AccessClass, Concurrency)], parameters: &UniformParameters) -> u32 {
    let bytes: f64 = requests.iter().map(|(class, _)| class.request_bytes as f64).sum();
    let weighted = |value: &dyn Fn(&(AccessClass, Concurrency)) -> f64| {
        requests.iter().map(|one| one.0.request_bytes as f64 * value(one)).sum::<f64>() / bytes
    };
    let line = |one: &(AccessClass, Concurrency)| parameters.of_class(one.0.kind, one.0.order);
    let pattern = SegmentPattern {
        servers: parameters.servers,
        request_bytes: weighted(&|one| one.0.request_bytes as f64).round() as u64,
        concurrency: Concurrency {
            processes: weighted(&|one| one.1.factors().0).round() as u32,
            processes_per_node: weighted(&|one| one.1.factors().1).round() as u32,
        },
        line: Coefficients {
            alpha_s: requests.iter().map(|one| line(one).alpha_s).sum::<f64>() / requests.len() as f64,
            beta_s_per_byte: weighted(&|one| line(one).beta_s_per_byte),
        },
        e_s: parameters.e_s,
        v_s_per_byte: parameters.v_s_per_byte,
    };
    // The policy's tolerance, too: sums in another order differ in their last digits.
    let least_s = (12..=22).map(|exponent| pattern.cost(1 << exponent).total_s()).fold(f64::INFINITY, f64::min);
    let mut best: Option<(u64, u32)> = None;
    for exponent in 12..=22 {
        let stripes = pattern.request_bytes.div_ceil(1 << exponent);
        let is_cheap = pattern.cost(1 << exponent).total_s() <= least_s * (1.0 + 1e-9);
        if is_cheap && best.is_none_or(|(fewest, _)| stripes < fewest) {
            best = Some((stripes, exponent));
        }
    }
    best.unwrap().1
}

/// sigma by a walk: each request at each aligned offset, every stripe that it touches.
fn sigma(requests: &[(AccessClass, Concurrency)], region_bytes: u64, stripe_bytes: u64, servers: usize) -> f64 {
    let mut loads = vec![0.0; servers];
    for (class, _) in requests {
        let starts: Vec<u64> = (0..region_bytes).step_by(class.request_bytes as usize).collect();
        for start in &starts {
            let last = (start + class.request_bytes).min(region_bytes) - 1;
            for stripe in start / stripe_bytes..=last / stripe_bytes {
                loads[stripe as usize % servers] += 1.0 / starts.len() as f64;
            }
        }
    }
    let (most, sum) = loads.iter().fold((0.0f64, 0.0), |(most, sum), load| (most.max(*load), sum + load));
    most * servers as f64 / sum - 1.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn segments_are_those_of_a_walk_over_every_request(
        m in 1usize..6, files in testbed::files(512 * KIB, 2).prop_filter("requests", |files| has_requests(files)),
        hdd in testbed::lines(), threshold in prop_oneof![Just(0.2), 0.0..1.0f64],
    ) {
        // Tiny requests make the walk long without showing more.
        let files: Vec<FileAccess> = files.into_iter().map(|mut file| {
            file.classes.iter_mut().for_each(|class| class.request_bytes = class.request_bytes.max(1024));
            file
        }).collect();
        let cluster = testbed::cluster(m, 0, 512 * KIB, None);
        let profile = testbed::profile(&cluster, hdd, testbed::FLASH, 1e-4, 8e-9);
        let mut request = testbed::request(&cluster, &profile, &files);
        request.concurrency = None;
        request.options.imbalance = threshold;
        let made = plan(PolicyName::Segment, &request).unwrap();
        let parameters = UniformParameters::of_servers(&profile, |_| true);
        for (file, planned) in files.iter().zip(&made.files) {
            let all = requests(&request, file, None);
            if all.is_empty() {
                continue;
            }
            let placement = planned.initial();
            let mut previous: Option<(u32, f64, f64)> = None;
            let mut expected = Vec::new();
            for region in 0..placement.planned_regions() as u32 {
                let own = requests(&request, file, Some(region));
                let bytes: f64 = own.iter().map(|one| one.0.request_bytes as f64).sum();
                let region_bytes = match file.size_bytes.saturating_sub(u64::from(region) * 512 * KIB) {
                    0 => 512 * KIB,
                    left => left.min(512 * KIB),
                };
                let exponent = if own.is_empty() {
                    cheapest(&all, &parameters)
                } else {
                    let optimum = cheapest(&own, &parameters);
                    let of = |exponent: u32| sigma(&own, region_bytes, 1 << exponent, m);
                    let mut by_distance: Vec<u32> = (12..=22).collect();
                    by_distance.sort_by_key(|exponent| (exponent.abs_diff(optimum), *exponent));
                    // The walk adds up in another order; thresholds met within the last digits are met.
                    let passing = by_distance.iter().copied().find(|exponent| of(*exponent) <= threshold + 1e-9);
                    let least = |a: (f64, u32), b: u32| if of(b) < a.0 - 1e-9 { (of(b), b) } else { a };
                    passing.unwrap_or_else(|| by_distance.iter().copied().fold((f64::INFINITY, optimum), least).1)
                };
                let weight = bytes.max(1.0);
                match previous {
                    Some((now, sum, weighted)) if now.abs_diff(exponent) <= 1 => {
                        let (sum, weighted) = (sum + weight, weighted + weight * f64::from(exponent));
                        let joined = (weighted / sum).round() as u32;
                        previous = Some((joined, sum, weighted));
                        let length = expected.len();
                        expected[length - 1] = (joined, 1 + { let (_, regions): (u32, u32) = expected[length - 1]; regions });
                    }
                    _ => {
                        previous = Some((exponent, weight, weight * f64::from(exponent)));
                        expected.push((exponent, 1));
                    }
                }
            }
            let expected: Vec<u32> =
                expected.iter().flat_map(|(exponent, regions)| std::iter::repeat_n(*exponent, *regions as usize)).collect();
            let found: Vec<u32> = (0..placement.planned_regions() as u32)
                .map(|region| placement.layout_of(RegionIndex(region)).stripes()[0].size_bytes.trailing_zeros())
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn segments_read_as_the_poster_writes_them() {
    let cluster = testbed::cluster(4, 0, MIB, None);
    // One process: 256 KiB in sequence are spread over all four disks, 16 KiB stay on one, for which the smallest stripe that holds them does.
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let small = testbed::class(Direction::Read, 16 * KIB, Order::Random);
    let large = testbed::class(Direction::Read, 256 * KIB, Order::Sequential);
    let files =
        [testbed::file("/data/a", 5 * MIB, MIB, &[small, large], &[&[90, 0], &[80, 0], &[0, 9], &[0, 9], &[70, 0]])];
    let mut request = testbed::request(&cluster, &profile, &files);
    request.concurrency = Some(Concurrency { processes: 1, processes_per_node: 1 });
    let made = plan(PolicyName::Segment, &request).unwrap();
    let list = segment_list(made.files[0].initial());
    assert_eq!(list, "<0,16KiB:2MiB,64KiB:4MiB,16KiB>");
    assert!(stripewise_planner::plan_text(&made, &cluster, "next").contains(&format!("segments {list}")));
}
