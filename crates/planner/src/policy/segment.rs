//! `segment`: stripe sizes per segment of a file, loading all servers evenly.
//!
//! **Paper.** Segment-level layout (poster), its five steps.
//!
//! **Assumptions.** All servers are alike, n of them. Requests lie at request-aligned offsets of their region, each equally often: plans are
//! made from counts, where the poster counts the stripes of the requests themselves.
//!
//! **Algorithm.** (1) Segments are the regions. (2) The average pattern of each: s, p and m are byte-weighted means, alpha the mean over
//! requests, beta over bytes. (3) The stripe of least cost ([`stripewise_model::segment`]) among the powers of two from 4 KiB to 4 MiB; of equally
//! cheap ones that with the fewest stripes for a request, which is the poster's measure of work, and of those the smaller. (The poster does
//! not say. Every stripe that holds a whole request costs the same; the largest would always be 4 MiB, on which neighbouring requests meet,
//! while the poster's own lists have 4 KiB and 16 KiB.) (4) Where the stripes accessed are spread more unevenly over the servers than the
//! threshold allows, sigma > 0.2, the nearest candidate that passes (the smaller of two equally near), or the least sigma if none does.
//! (5) Neighbours are merged when their
//! stripes are equal or one step apart; the merged segment has the byte-weighted mean of their exponents, rounded, and is
//! what the next one is compared with. A region without requests has the file's average pattern and next to no weight. Room is not looked
//! at: regions are drawn as for `def`, and those that find the SServers full have the same stripe over the HServers.
//!
//! **Complexity.** O(regions x (11 + classes)) and, once for each size of request, 11 n log(region).

use super::fill::{FileLayouts, RegionLayouts, fill_at_random};
use super::process_oriented::pure_servers;
use super::{About, FileChoice, Policy, Source, Task, region_bytes, region_count};
use rayon::prelude::*;
use std::collections::HashMap;
use stripewise_layout::{Layout, RegionIndex, ServerId};
use stripewise_model::segment::{SegmentPattern, imbalance, stripes_accessed};
use stripewise_model::{Coefficients, Concurrency, UniformParameters};
use stripewise_trace::{AccessClass, FileAccess};

pub(crate) struct Segment;

/// Costs within this part of each other, and imbalances within this of each other or of the threshold, are equal: rounding must not decide.
const TIE_SHARE: f64 = 1e-9;

/// 4 KiB to 4 MiB.
const EXPONENTS: std::ops::RangeInclusive<u32> = 12..=22;

impl Policy for Segment {
    fn about(&self) -> About {
        About {
            section: "segment",
            source: Source::Paper("Segment-level (poster)"),
            stripes_differ_by: "segment",
            ssd_regions: "drawn",
            moves_data: "no",
        }
    }

    fn makes_segments(&self) -> bool {
        true
    }

    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice> {
        let tiers: Vec<Vec<ServerId>> = task.tiers().iter().map(|tier| tier.groups.all().collect()).collect();
        let hservers = pure_servers(task);
        let layouts = task.request.files.iter().map(|file| {
            let of_tiers: Vec<Vec<u32>> = tiers.iter().map(|servers| exponents(task, file, servers)).collect();
            let count = EXPONENTS.count() as u32;
            let mut layouts = Vec::new();
            for servers in tiers.iter().chain([&hservers]) {
                layouts.extend(EXPONENTS.map(|exponent| striped(servers, 1 << exponent)));
            }
            let numbered = |tier: usize, exponents: &[u32]| {
                let first = tier as u32 * count;
                RegionLayouts::Each(exponents.iter().map(|exponent| first + exponent - EXPONENTS.start()).collect())
            };
            let hybrid = of_tiers.iter().enumerate().map(|(tier, exponents)| numbered(tier, exponents)).collect();
            FileLayouts { layouts, hybrid, pure: numbered(tiers.len(), &of_tiers[0]) }
        });
        fill_at_random(task, layouts.collect())
    }
}

fn striped(servers: &[ServerId], stripe_bytes: u32) -> Layout {
    Layout::new(servers.iter().map(|id| (*id, stripe_bytes))).expect("at least one server, each once, with a stripe")
}

/// The sums that an average pattern is made of.
#[derive(Clone, Copy, Default)]
struct Sums {
    requests: f64,
    bytes: f64,
    squares: f64,
    p_bytes: f64,
    m_bytes: f64,
    alpha_s: f64,
    beta_bytes: f64,
}

impl Sums {
    fn add(&mut self, class: AccessClass, count: f64, line: Coefficients, concurrency: Concurrency) {
        let size = class.request_bytes as f64;
        let (bytes, (p, m)) = (count * size, concurrency.factors());
        self.requests += count;
        self.bytes += bytes;
        self.squares += bytes * size;
        self.p_bytes += bytes * p;
        self.m_bytes += bytes * m;
        self.alpha_s += count * line.alpha_s;
        self.beta_bytes += bytes * line.beta_s_per_byte;
    }

    fn join(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.squares += other.squares;
        self.p_bytes += other.p_bytes;
        self.m_bytes += other.m_bytes;
        self.alpha_s += other.alpha_s;
        self.beta_bytes += other.beta_bytes;
    }

    fn pattern(&self, parameters: &UniformParameters) -> SegmentPattern {
        let mean = |sum: f64| (sum / self.bytes).round();
        SegmentPattern {
            servers: parameters.servers,
            request_bytes: mean(self.squares) as u64,
            concurrency: Concurrency {
                processes: mean(self.p_bytes) as u32,
                processes_per_node: mean(self.m_bytes) as u32,
            },
            line: Coefficients { alpha_s: self.alpha_s / self.requests, beta_s_per_byte: self.beta_bytes / self.bytes },
            e_s: parameters.e_s,
            v_s_per_byte: parameters.v_s_per_byte,
        }
    }
}

/// Counts of one region over all windows, and the sums over them.
#[derive(Clone, Default)]
struct RegionSums {
    sums: Sums,
    counts: Vec<(u16, f64)>,
}

/// The stripe of every region after all five steps, as an exponent of two.
fn exponents(task: &Task<'_>, file: &FileAccess, servers: &[ServerId]) -> Vec<u32> {
    let has = |number: usize| servers.iter().any(|id| usize::from(id.0) == number);
    let parameters = UniformParameters::of_servers(task.request.profile, has);
    let regions = region_sums(task, file, &parameters);
    let mut whole = Sums::default();
    regions.iter().for_each(|region| whole.join(&region.sums));
    if whole.bytes <= 0.0 {
        return vec![16; regions.len()];
    }
    let average = cheapest(&whole.pattern(&parameters));
    let balance = Balance::of(file, servers.len() as u32);
    let threshold = task.request.options.imbalance;
    let chosen: Vec<u32> = regions
        .par_iter()
        .enumerate()
        .with_min_len(64)
        .map(|(index, region)| {
            if region.sums.bytes <= 0.0 {
                return average;
            }
            let optimum = cheapest(&region.sums.pattern(&parameters));
            let bytes = region_bytes(file, RegionIndex(index as u32));
            balanced(optimum, threshold, |exponent| balance.sigma(&region.counts, bytes, exponent))
        })
        .collect();
    merged(chosen.into_iter().zip(regions.iter().map(|region| region.sums.bytes)))
}

fn region_sums(task: &Task<'_>, file: &FileAccess, parameters: &UniformParameters) -> Vec<RegionSums> {
    let mut regions = vec![RegionSums::default(); region_count(file) as usize];
    let lines: Vec<Coefficients> =
        file.classes.iter().map(|class| parameters.of_class(class.kind, class.order)).collect();
    for (window, concurrency) in file.windows.iter().zip(&task.windows) {
        for access in &window.regions {
            let region = &mut regions[access.region.0 as usize];
            for (class, count) in access.counts.iter().filter(|(_, count)| *count > 0) {
                region.sums.add(file.class(*class), *count as f64, lines[usize::from(class.0)], *concurrency);
                region.counts.push((class.0, *count as f64));
            }
        }
    }
    regions
}

/// Step 3.
fn cheapest(pattern: &SegmentPattern) -> u32 {
    let costs_s = EXPONENTS.map(|exponent| pattern.cost(1 << exponent).total_s());
    let least_s = costs_s.clone().fold(f64::INFINITY, f64::min);
    let cheap = EXPONENTS.zip(costs_s).filter(|(_, cost_s)| *cost_s <= least_s * (1.0 + TIE_SHARE));
    let stripes = |exponent: u32| pattern.request_bytes.div_ceil(1 << exponent);
    cheap.map(|(exponent, _)| exponent).min_by_key(|exponent| stripes(*exponent)).expect("the least is one of them")
}

/// Step 4.
fn balanced(optimum: u32, threshold: f64, sigma: impl Fn(u32) -> f64) -> u32 {
    let mut by_distance: Vec<u32> = EXPONENTS.collect();
    by_distance.sort_by_key(|exponent| (exponent.abs_diff(optimum), *exponent));
    let mut least = (f64::INFINITY, optimum);
    for exponent in by_distance {
        let found = sigma(exponent);
        if found <= threshold + TIE_SHARE {
            return exponent;
        }
        if found < least.0 - TIE_SHARE {
            least = (found, exponent);
        }
    }
    least.1
}

/// Step 5, over (exponent, bytes accessed) of every region.
fn merged(regions: impl Iterator<Item = (u32, f64)>) -> Vec<u32> {
    struct Merged {
        exponent: u32,
        regions: usize,
        weight: f64,
        weighted: f64,
    }
    let mut segments: Vec<Merged> = Vec::new();
    for (exponent, bytes) in regions {
        let weight = bytes.max(1.0);
        match segments.last_mut() {
            Some(last) if last.exponent.abs_diff(exponent) <= 1 => {
                last.regions += 1;
                last.weight += weight;
                last.weighted += weight * f64::from(exponent);
                last.exponent = (last.weighted / last.weight).round() as u32;
            }
            _ => segments.push(Merged { exponent, regions: 1, weight, weighted: weight * f64::from(exponent) }),
        }
    }
    segments.iter().flat_map(|segment| std::iter::repeat_n(segment.exponent, segment.regions)).collect()
}

/// How the requests of each class load the servers, worked out once for each size, stripe and length of region.
struct Balance {
    servers: u32,
    /// Region lengths, that of whole regions first.
    lengths: Vec<u64>,
    /// For every class its size's position in `shares`.
    sizes: Vec<usize>,
    /// By size, then length, then stripe: stripes accessed on each server per request; `None` where all servers have the same.
    shares: Vec<Vec<Vec<Option<Vec<f64>>>>>,
    /// As `shares`: stripes accessed on all servers together per request.
    totals: Vec<Vec<Vec<f64>>>,
}

impl Balance {
    fn of(file: &FileAccess, servers: u32) -> Self {
        let mut lengths = vec![file.region_size.0];
        if let Some(last) = region_count(file).checked_sub(1) {
            lengths.push(region_bytes(file, RegionIndex(last)));
        }
        // Regions between the end of the file and the last accessed one count whole; the one that the end cuts may lie before.
        let truncated = (file.size_bytes / file.region_size.0) as u32;
        if truncated < region_count(file) {
            lengths.push(region_bytes(file, RegionIndex(truncated)));
        }
        let mut numbers: HashMap<u64, usize> = HashMap::new();
        let mut distinct = Vec::new();
        let sizes = file
            .classes
            .iter()
            .map(|class| {
                *numbers.entry(class.request_bytes).or_insert_with(|| {
                    distinct.push(class.request_bytes);
                    distinct.len() - 1
                })
            })
            .collect();
        let of_size = |size: &u64| -> Vec<Vec<(Option<Vec<f64>>, f64)>> {
            let of_length =
                |length: &u64| EXPONENTS.map(|exponent| share(*length, 1 << exponent, *size, servers)).collect();
            lengths.iter().map(of_length).collect()
        };
        let found: Vec<_> = distinct.par_iter().map(of_size).collect();
        let totals =
            found.iter().map(|size| size.iter().map(|l| l.iter().map(|(_, total)| *total).collect()).collect());
        let totals = totals.collect();
        let shares = found
            .into_iter()
            .map(|size| size.into_iter().map(|length| length.into_iter().map(|(share, _)| share).collect()).collect());
        Self { servers, sizes, shares: shares.collect(), totals, lengths }
    }

    /// sigma of a region's requests.
    fn sigma(&self, counts: &[(u16, f64)], region_bytes: u64, exponent: u32) -> f64 {
        let length = self.lengths.iter().position(|length| *length == region_bytes).unwrap_or(0);
        let stripe = (exponent - EXPONENTS.start()) as usize;
        let mut even = 0.0;
        let mut stripes: Option<Vec<f64>> = None;
        for (class, count) in counts {
            let size = self.sizes[usize::from(*class)];
            match &self.shares[size][length][stripe] {
                None => even += count * self.totals[size][length][stripe] / f64::from(self.servers),
                Some(share) => {
                    let stripes = stripes.get_or_insert_with(|| vec![0.0; self.servers as usize]);
                    stripes.iter_mut().zip(share).for_each(|(sum, share)| *sum += count * share);
                }
            }
        }
        stripes.map_or(0.0, |stripes| imbalance(stripes.iter().map(|uneven| uneven + even)))
    }
}

/// Stripes accessed on each server per request, unless all have the same, and on all together.
fn share(length: u64, stripe_bytes: u64, request_bytes: u64, servers: u32) -> (Option<Vec<f64>>, f64) {
    let stripes = stripes_accessed(length, stripe_bytes, request_bytes, servers);
    let requests = length.div_ceil(request_bytes) as f64;
    let total = stripes.iter().map(|accessed| *accessed as f64).sum::<f64>() / requests;
    let is_even = stripes.iter().all(|accessed| *accessed == stripes[0]);
    (if is_even { None } else { Some(stripes.iter().map(|accessed| *accessed as f64 / requests).collect()) }, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_joins_equal_and_neighbouring_stripes_by_their_bytes() {
        let merge = |regions: &[(u32, f64)]| merged(regions.iter().copied());
        assert_eq!(merge(&[(12, 1.0), (12, 9.0), (20, 1.0), (20, 1.0)]), [12, 12, 20, 20]);
        // One step apart: the heavier wins.
        assert_eq!(merge(&[(12, 1e6), (13, 9e6)]), [13, 13]);
        assert_eq!(merge(&[(12, 9e6), (13, 1e6)]), [12, 12]);
        // No drifting along a chain of single steps: the third is compared with what the first two became.
        assert_eq!(merge(&[(12, 9e6), (13, 1e6), (14, 9e6), (15, 9e6)]), [12, 12, 15, 15]);
        // A region without bytes joins but does not pull.
        assert_eq!(merge(&[(12, 9e6), (13, 0.0), (12, 1e6)]), [12, 12, 12]);
    }

    #[test]
    fn balancing_takes_the_nearest_that_passes_or_the_least() {
        let sigma = |table: &'static [(u32, f64)]| {
            move |exponent: u32| table.iter().find(|(of, _)| *of == exponent).map_or(9.0, |(_, sigma)| *sigma)
        };
        assert_eq!(balanced(16, 0.2, sigma(&[(16, 0.2)])), 16);
        assert_eq!(balanced(16, 0.2, sigma(&[(18, 0.0), (15, 0.1)])), 15);
        assert_eq!(balanced(16, 0.2, sigma(&[(17, 0.1), (15, 0.1)])), 15);
        assert_eq!(balanced(16, 0.2, sigma(&[(19, 0.3), (13, 0.4)])), 19);
        assert_eq!(balanced(16, 0.2, sigma(&[(16, 0.3), (13, 0.4)])), 16);
    }
}
