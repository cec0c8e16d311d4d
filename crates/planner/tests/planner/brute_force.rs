//! Every policy against loops over everything: regions, pairs and single requests.

use crate::testbed::{self, KIB, MIB, has_requests};
use proptest::prelude::*;
use std::collections::BTreeSet;
use stripewise_layout::{ByteCount, Layout, RegionIndex, ServerId};
use stripewise_model::{ClassParameters, StripePair, h2dp, padp::PadpPattern, striped};
use stripewise_planner::{Plan, PlanRequest, PolicyName, plan, policy::padp::lattice_pair};
use stripewise_trace::{AccessClass, FileAccess, RegionAccess};

fn ceil_to(bytes: u64, step: u64) -> u64 {
    bytes.div_ceil(step) * step
}

/// The requests of a region one by one.
fn requests(file: &FileAccess, region: &RegionAccess) -> Vec<AccessClass> {
    let repeated = region.counts.iter().map(|(class, count)| std::iter::repeat_n(file.class(*class), *count as usize));
    repeated.flatten().collect()
}

fn mean_request(requests: &[AccessClass]) -> u64 {
    let bytes: u128 = requests.iter().map(|request| u128::from(request.request_bytes)).sum();
    let squares: u128 = requests.iter().map(|request| u128::from(request.request_bytes).pow(2)).sum();
    ((squares + bytes / 2) / bytes) as u64
}

struct Naive<'a> {
    request: &'a PlanRequest<'a>,
    parameters: ClassParameters,
    m: u64,
    n: u64,
    /// SServers at the front of their list that are left out; n counts the others.
    skip: u64,
}

/// A pair on all SServers but the first so many.
type Placed = (u64, StripePair);

impl<'a> Naive<'a> {
    fn new(request: &'a PlanRequest<'a>) -> Self {
        Self::without(request, 0)
    }

    fn without(request: &'a PlanRequest<'a>, skip: u64) -> Self {
        let m = ClassParameters::of(request.profile).hservers as usize;
        let parameters =
            ClassParameters::of_servers(request.profile, |server| server < m || server >= m + skip as usize);
        Self { request, m: m as u64, n: u64::from(parameters.sservers), parameters, skip }
    }

    fn step(&self) -> u64 {
        self.request.options.step.0
    }

    fn cost(&self, requests: &[AccessClass], pair: StripePair, window: usize) -> u128 {
        let concurrency = self.request.window_concurrency(window);
        let cost = |class: &AccessClass| {
            if self.request.options.exact {
                let region_bytes = self.request.cluster.region_size.0;
                striped::exact_cost(
                    self.request.profile,
                    &self.layout((self.skip, pair)),
                    *class,
                    concurrency,
                    region_bytes,
                )
            } else {
                h2dp::hybrid_cost(&self.parameters, pair, *class, concurrency)
            }
        };
        requests.iter().map(|class| cost(class).total().0).sum()
    }

    /// No stripe below the least that is asked for, none where there was none.
    fn raised(&self, pair: StripePair) -> StripePair {
        let least = self.request.options.min_stripe.map_or(0, |least| least.0);
        let raised = |bytes: u64| if bytes > 0 && bytes < least { least } else { bytes };
        StripePair::new(raised(pair.h_bytes), raised(pair.s_bytes))
    }

    fn pure(&self, request_bytes: u64) -> StripePair {
        self.raised(if self.m == 0 {
            StripePair::new(0, ceil_to(request_bytes.div_ceil(self.n), self.step()))
        } else {
            StripePair::new(ceil_to(request_bytes.div_ceil(self.m), self.step()), 0)
        })
    }

    /// Algorithm 1 with the request covered: every h, every s, every request.
    fn best_pair(&self, requests: &[AccessClass], window: usize) -> StripePair {
        let r = mean_request(requests);
        if self.m == 0 || self.n == 0 {
            return self.pure(r);
        }
        let mut best: Option<(u128, u64, StripePair)> = None;
        let mut h = 0;
        while h * (self.m + self.n) <= r {
            // The least s on the lattice with m h + n s >= r.
            let mut s = h + self.step();
            while self.m * h + self.n * s < r {
                s += self.step();
            }
            let covering = ceil_to((r - self.m * h).div_ceil(self.n), self.step());
            if s == covering {
                let pair = self.raised(StripePair::new(h, s));
                let cost = self.cost(requests, pair, window);
                let cycle = self.m * pair.h_bytes + self.n * pair.s_bytes;
                if best.is_none_or(|(least, least_cycle, _)| cost < least || (cost == least && cycle > least_cycle)) {
                    best = Some((cost, cycle, pair));
                }
            }
            h += self.step();
        }
        best.map_or(self.pure(r), |(_, _, pair)| pair)
    }

    fn layout(&self, (skip, pair): Placed) -> Layout {
        let stripe = |id: u64| match id {
            id if id < self.m => pair.h_bytes,
            id if id < self.m + skip => 0,
            _ => pair.s_bytes,
        };
        let servers = 0..self.m + self.n + self.skip;
        Layout::new(servers.map(|id| (ServerId(id as u16), stripe(id) as u32))).unwrap()
    }

    /// How many SServers are left out in each of the tiers: the servers' rooms must ascend.
    fn tiers(&self) -> Vec<u64> {
        let capacity = self.request.capacity();
        let of = |index: u64| capacity.bytes((self.m + index) as usize);
        (0..self.n).filter(|index| *index == 0 || of(*index) != of(*index - 1)).collect()
    }

    /// Bytes on each SServer, by walking over the region's stripes.
    fn ssd_use(&self, placed: Placed, mut bytes: u64) -> Vec<u64> {
        let mut used = vec![0; self.n as usize];
        let layout = self.layout(placed);
        while bytes > 0 {
            for stripe in layout.stripes() {
                let (server, stripe) = (u64::from(stripe.server.0), u64::from(stripe.size_bytes).min(bytes));
                bytes -= stripe;
                if server >= self.m {
                    used[(server - self.m) as usize] += stripe;
                }
            }
        }
        used
    }

    fn region_bytes(&self, file: &FileAccess, region: u32) -> u64 {
        let (start, size) = (u64::from(region) * file.region_size.0, file.region_size.0);
        match file.size_bytes.saturating_sub(start).min(size) {
            0 => size,
            used => used,
        }
    }

    /// H2DP's pair of every region of every file in every window.
    fn h2dp(&self, regions: &[usize]) -> Vec<Vec<Vec<Placed>>> {
        let files = self.request.files;
        let hybrid = self.m > 0 && self.n > 0;
        let capacity = self.request.capacity();
        let windows = files.iter().map(|file| file.windows.len()).max().unwrap();
        let fallback: Vec<StripePair> = files.iter().map(|file| self.pure(self.file_request(file))).collect();
        let mut current: Vec<Vec<Placed>> =
            regions.iter().zip(&fallback).map(|(count, pair)| vec![(0, *pair); *count]).collect();
        let tiers: Vec<Naive<'_>> = self.tiers().into_iter().map(|skip| Naive::without(self.request, skip)).collect();
        let mut history = Vec::new();
        for window in 0..windows {
            let mut used = vec![0u64; self.n as usize];
            let mut book = |placed: Placed, bytes: u64| {
                let more = self.ssd_use(placed, bytes);
                let fits = (0..self.n as usize).all(|i| {
                    let server = self.m as usize + i;
                    more[i] == 0 || capacity.bytes(server).is_none_or(|capacity| used[i] + more[i] <= capacity)
                });
                if fits {
                    used.iter_mut().zip(more).for_each(|(used, more)| *used += more);
                }
                fits
            };
            let mut next = current.clone();
            let mut ranked: Vec<(u128, u64, usize, u32, Vec<Placed>)> = Vec::new();
            let mut accessed: BTreeSet<(usize, u32)> = BTreeSet::new();
            for (number, file) in files.iter().enumerate() {
                let Some(accesses) = file.windows.get(window) else { continue };
                for region in &accesses.regions {
                    let requests = requests(file, region);
                    let (best, pure) = (self.best_pair(&requests, window), self.pure(mean_request(&requests)));
                    accessed.insert((number, region.region.0));
                    next[number][region.region.0 as usize] = (0, pure);
                    let (t_hybrid, t_pure) = (self.cost(&requests, best, window), self.cost(&requests, pure, window));
                    if hybrid && t_hybrid < t_pure {
                        let bytes = self.region_bytes(file, region.region.0);
                        let weight = match self.request.options.benefit_per_ssd_byte {
                            true => self.ssd_use((0, best), bytes).iter().sum::<u64>().max(1),
                            false => 1,
                        };
                        let benefit = t_pure - t_hybrid;
                        let of_tiers = tiers.iter().filter_map(|tier| {
                            let pair = tier.best_pair(&requests, window);
                            (tier.cost(&requests, pair, window) < t_pure).then_some((tier.skip, pair))
                        });
                        ranked.push((benefit, weight, number, region.region.0, of_tiers.collect()));
                    }
                }
            }
            ranked.sort_by(|a, b| {
                let (left, right) = (a.0 * u128::from(b.1), b.0 * u128::from(a.1));
                right.cmp(&left).then((a.2, a.3).cmp(&(b.2, b.3)))
            });
            for (_, _, file, region, wanted) in ranked {
                let bytes = self.region_bytes(&files[file], region);
                if let Some(placed) = wanted.into_iter().find(|placed| book(*placed, bytes)) {
                    next[file][region as usize] = placed;
                }
            }
            for (file, pairs) in current.iter().enumerate() {
                for (region, placed) in pairs.iter().enumerate() {
                    let idle = !accessed.contains(&(file, region as u32));
                    if hybrid
                        && idle
                        && placed.1.s_bytes > 0
                        && !book(*placed, self.region_bytes(&files[file], region as u32))
                    {
                        next[file][region] = (0, fallback[file]);
                    }
                }
            }
            current = next;
            history.push(current.clone());
        }
        history
    }

    fn file_request(&self, file: &FileAccess) -> u64 {
        let all: Vec<AccessClass> =
            file.windows.iter().flat_map(|window| &window.regions).flat_map(|region| requests(file, region)).collect();
        if all.is_empty() { self.step() } else { mean_request(&all) }
    }
}

fn region_counts(plan: &Plan) -> Vec<usize> {
    plan.files.iter().map(|file| file.initial().planned_regions() as usize).collect()
}

fn assert_h2dp_is_naive(request: &PlanRequest<'_>) -> Result<(), TestCaseError> {
    let made = plan(PolicyName::H2dp, request).unwrap();
    let naive = Naive::new(request);
    let counts = region_counts(&made);
    for (window, pairs) in naive.h2dp(&counts).iter().enumerate() {
        for (file, pairs) in pairs.iter().enumerate() {
            for (region, pair) in pairs.iter().enumerate() {
                let Some(start_s) = request.files[file].windows.get(window).map(|window| window.start_s) else {
                    continue;
                };
                prop_assert_eq!(
                    made.files[file].placement_at(start_s).layout_of(RegionIndex(region as u32)),
                    &naive.layout(*pair),
                    "window {}, file {}, region {}",
                    window,
                    file,
                    region
                );
            }
        }
    }
    Ok(())
}

fn min_stripe() -> impl Strategy<Value = Option<ByteCount>> {
    proptest::option::of((1..=512u64).prop_map(|sectors| ByteCount(512 * sectors)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn h2dp_is_what_naive_loops_over_requests_give(
        (m, n) in (0usize..5, 0usize..4).prop_filter("servers", |(m, n)| m + n > 0),
        files in testbed::files(MIB, 3).prop_filter("requests", |files| has_requests(files)),
        hdd in testbed::lines(), ssd in testbed::lines(),
        e_s in prop_oneof![Just(0.0), 0.0..1e-3f64], t in prop_oneof![Just(0.0), 0.0..1e-8f64],
        capacity in proptest::option::of(1..3 * MIB), unequal in prop_oneof![Just(0), 0..MIB],
        per_byte in any::<bool>(), exact in any::<bool>(), step in 1u64..9, min_stripe in min_stripe(),
    ) {
        let mut cluster = testbed::cluster(m, n, MIB, capacity.filter(|_| m > 0));
        for (index, server) in cluster.servers[m..].iter_mut().enumerate() {
            server.capacity.iter_mut().for_each(|capacity| capacity.0 += unequal * index as u64);
        }
        let profile = testbed::profile(&cluster, hdd, ssd, e_s, t);
        let mut request = testbed::request(&cluster, &profile, &files);
        request.options.benefit_per_ssd_byte = per_byte;
        request.options.exact = exact;
        request.options.step.0 = step * 2 * KIB;
        request.options.min_stripe = min_stripe;
        request.concurrency = None;
        assert_h2dp_is_naive(&request)?;
    }

    #[test]
    fn psa_is_the_least_of_all_lattice_points(
        m in 1usize..5, n in 1usize..4,
        files in testbed::files(MIB, 2).prop_filter("requests", |files| has_requests(files)),
        hdd in testbed::lines(), ssd in testbed::lines(), capacity in 4 * KIB..4 * MIB, min_stripe in min_stripe(),
    ) {
        let cluster = testbed::cluster(m, n, MIB, Some(capacity));
        let profile = testbed::profile(&cluster, hdd, ssd, 1e-4, 8e-9);
        let mut request = testbed::request(&cluster, &profile, &files);
        request.options.min_stripe = min_stripe;
        let naive = Naive::new(&request);
        let made = plan(PolicyName::Psa, &request).unwrap();
        let all_bytes: u64 = files.iter().map(|file| file.size_bytes).sum();
        for (file, planned) in files.iter().zip(&made.files) {
            let all: Vec<AccessClass> = file.windows.iter().flat_map(|w| &w.regions).flat_map(|r| requests(file, r)).collect();
            if all.is_empty() {
                continue;
            }
            let r = mean_request(&all);
            let share = (u128::from(capacity) * u128::from(file.size_bytes) / u128::from(all_bytes)) as u64;
            let pure = naive.cost(&all, naive.pure(r), 0);
            let (m, n, k) = (m as u64, n as u64, all.len() as u128);
            let mut all_pairs: Vec<(u128, u64, StripePair)> = Vec::new();
            let first = (0..).map(|i| i * 4096).find(|h| h * (m + n) >= r).unwrap();
            let first = if first * m < r { first } else { first - 4096 };
            for h in (0..r).step_by(4096).filter(|h| *h >= first && h * m < r) {
                let pair = naive.raised(StripePair::new(h, ceil_to((r - m * h).div_ceil(n), 4096)));
                let s = pair.s_bytes;
                let distinct = u128::from(file.size_bytes.max(1).div_ceil(r));
                let fitting = u128::from(share / s);
                let hybrid = if k > distinct { k * fitting.min(distinct) / distinct } else { k.min(fitting) };
                let cost = (naive.cost(&all, pair, 0) * hybrid + pure * (k - hybrid)) / k;
                all_pairs.push((cost, s, pair));
            }
            let least = all_pairs.iter().map(|one| one.0).min().unwrap();
            all_pairs.retain(|one| one.0 <= least + least / 1_000_000_000);
            let best = all_pairs.into_iter().min_by_key(|one| one.1);
            let (hybrid, pure) = (naive.layout((0, best.unwrap().2)), naive.layout((0, naive.pure(r))));
            let planned = planned.initial();
            for region in 0..planned.planned_regions() {
                let layout = planned.layout_of(RegionIndex(region as u32));
                prop_assert!(layout == &hybrid || layout == &pure, "{layout:?}, expected {hybrid:?} or {pure:?}");
            }
            prop_assert_eq!(planned.fallback_layout(), &pure);
        }
    }

    #[test]
    fn padp_is_within_one_step_of_the_best_of_the_whole_lattice(
        m in 1u32..13, n in 1u32..9, r in 1u64..4 * MIB, p in 1u32..65, c in 1u32..9,
        hdd in testbed::lines(), ssd in testbed::lines(), e_s in 0.0..1e-3f64, t in 0.0..1e-8f64,
    ) {
        let coefficients = |(alpha_s, beta_s_per_byte)| stripewise_model::Coefficients { alpha_s, beta_s_per_byte };
        let pattern = PadpPattern {
            hservers: m, sservers: n, request_bytes: r as f64,
            concurrency: stripewise_model::Concurrency { processes: p, processes_per_node: c },
            hdd: coefficients(hdd[0]), ssd: coefficients(ssd[0]), e_s, t_s_per_byte: t,
        };
        let (m, n, step) = (u64::from(m), u64::from(n), 4096);
        let cost = |h: u64, s: u64| pattern.cost_s(h as f64, s as f64);
        let best = (0..=r.div_ceil(m)).step_by(step as usize)
            .map(|h| cost(h, ceil_to(r.saturating_sub(m * h).div_ceil(n), step)))
            .chain([cost(ceil_to(r.div_ceil(m), step), 0)])
            .fold(f64::INFINITY, f64::min);
        let pair = lattice_pair(&pattern, step, |pair| pair);
        prop_assert!(pair.cycle_bytes(m as u32, n as u32) >= r);
        let found = pattern.cost_s(pair.h_bytes as f64, pair.s_bytes as f64);
        // F is convex along m h + n s = r and s is rounded up by less than a step, which moves F by at most p (t + beta_s) step.
        let slack = f64::from(p) * (t + pattern.ssd.beta_s_per_byte) * step as f64;
        prop_assert!(found <= best + slack + best * 1e-12, "found {found}, best {best}, slack {slack}");
        prop_assert!(found >= best * (1.0 - 1e-12));
    }
}

#[test]
fn h2dp_is_naive_on_an_input_of_a_few_hundred_regions() {
    use stripewise_layout::{Direction, Order};
    let cluster = testbed::cluster(12, 4, 4 * MIB, Some(40 * MIB));
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8.5e-9);
    let classes: Vec<AccessClass> = [64 * KIB, 256 * KIB, MIB, 4 * MIB]
        .into_iter()
        .flat_map(|size| {
            [(Direction::Read, Order::Random), (Direction::Write, Order::Sequential)]
                .map(|(direction, order)| testbed::class(direction, size, order))
        })
        .collect();
    let counts: Vec<Vec<u64>> =
        (0..300u64).map(|region| (0..8).map(|class| (region * 7919 + class * 104_729) % 11).collect()).collect();
    let counts: Vec<&[u64]> = counts.iter().map(Vec::as_slice).collect();
    let files = [testbed::file("/data/a", 300 * 4 * MIB, 4 * MIB, &classes, &counts)];
    assert_h2dp_is_naive(&testbed::request(&cluster, &profile, &files)).unwrap();
}
