//! Figures 6 and 7: one layout for several runs by their overall cost, and a copy in each layout.

use super::tiles::{self, Tile};
use super::{ETHERNET, FILE, INFINIBAND, Ior, LAYOUTS, MIB, NETWORKS, Network, Site, least};
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, Unit};
use anyhow::Result;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use stripewise_layout::{ByteCount, Direction, Order};
use stripewise_model::cost_intelligent::TableForm;

/// Requests of each process that the runs of a scenario are simulated for.
const SCENARIO_REQUESTS: u64 = 32;
const CHOSEN: &str = "cost";

fn order_name(order: Order) -> &'static str {
    if order == Order::Random { "random" } else { "sequential" }
}

fn process_counts(network: Network) -> &'static [u32] {
    if network == ETHERNET { &[1, 2, 4, 8, 16, 32, 48, 96] } else { &[1, 2, 4, 8, 16, 32, 64] }
}

fn sizes() -> impl Iterator<Item = ByteCount> {
    (12..=22).map(|exponent| ByteCount(1 << exponent))
}

/// Bytes and, in the order of [`LAYOUTS`], seconds; sums of runs one after the other.
#[derive(Clone, Copy, Default)]
struct Total {
    bytes: f64,
    seconds: [f64; 3],
    /// With the layout that the model chooses.
    chosen_s: f64,
}

impl Total {
    fn add(&mut self, bytes: f64, seconds: [f64; 3], chosen: usize) {
        self.bytes += bytes;
        for (sum, one) in self.seconds.iter_mut().zip(seconds) {
            *sum += one;
        }
        self.chosen_s += seconds[chosen];
    }

    /// MB/s of the three layouts and of the choice.
    fn mb_per_s(&self) -> Vec<Option<f64>> {
        let seconds = self.seconds.into_iter().chain([self.chosen_s]);
        seconds.map(|seconds| Some(self.bytes / 1e6 / seconds)).collect()
    }
}

fn series() -> impl Iterator<Item = &'static str> {
    LAYOUTS.into_iter().chain([CHOSEN])
}

/// What a run of a scenario is.
#[derive(Clone, Copy, Debug)]
enum Run {
    /// Its order is the scenario's.
    Ior {
        processes: u32,
        request: ByteCount,
    },
    Tiles(Tile),
}

/// Six to ten runs.
fn scenario(network: Network, random: &mut StdRng) -> Vec<Run> {
    let sizes: Vec<ByteCount> = sizes().collect();
    let one = |random: &mut StdRng| {
        if random.random_bool(0.5) {
            let processes = *process_counts(network).choose(random).expect("not empty");
            Run::Ior { processes, request: *sizes.choose(random).expect("not empty") }
        } else {
            Run::Tiles(*tiles::all().choose(random).expect("not empty"))
        }
    };
    let count = random.random_range(6..=10);
    (0..count).map(|_| one(random)).collect()
}

/// Bytes, seconds under each layout, and the sum of request costs under each.
fn try_run(site: &Site, run: Run, order: Order, seed: u64) -> Result<(f64, [f64; 3], [f64; 3])> {
    match run {
        Run::Ior { processes, request } => {
            let ior = Ior { processes, request, order, direction: Direction::Read, requests: SCENARIO_REQUESTS };
            let rates = site.all_mb_per_s(&ior, seed)?;
            let requests = ior.bytes() / request.0 as f64;
            let costs = site.costs_s(ior.class(), site.network.concurrency(processes), TableForm::Corrected);
            Ok((ior.bytes(), rates.map(|rate| ior.bytes() / 1e6 / rate), costs.map(|cost| cost * requests)))
        }
        Run::Tiles(tile) => {
            // A tile is one request; a layout that is meant for processes is one of stripes here (section 4).
            let rates = tile.all_mb_per_s(site, tile.process_stripes(site.network.servers), seed)?;
            // As many bytes as an IOR of these processes moves.
            let bytes = f64::from(tile.processes) * (FILE.0 / MIB * MIB) as f64;
            let costs = site.costs_s(tile.class(), site.network.concurrency(tile.processes), TableForm::Corrected);
            let requests = bytes / tile.bytes() as f64;
            Ok((bytes, rates.map(|rate| bytes / 1e6 / rate), costs.map(|cost| cost * requests)))
        }
    }
}

pub(super) fn figure_6(setting: &Setting<'_>, scenarios: usize) -> Result<Findings> {
    let mut findings = Findings::default();
    for (network, up_to) in [(ETHERNET, 57.0), (INFINIBAND, 35.0)] {
        let site = network.site()?;
        let mut random = StdRng::seed_from_u64(setting.seed);
        let scenarios: Vec<Vec<Run>> = (0..scenarios).map(|_| scenario(network, &mut random)).collect();
        let mut groups = Vec::new();
        let mut both = Total::default();
        for order in [Order::Sequential, Order::Random] {
            let totals = setting.map(&scenarios, |runs| {
                let (mut bytes, mut seconds, mut costs) = (0.0, [0.0; 3], [0.0; 3]);
                for run in runs {
                    let (run_bytes, run_s, run_costs) = try_run(&site, *run, order, setting.seed)?;
                    bytes += run_bytes;
                    for layout in 0..LAYOUTS.len() {
                        seconds[layout] += run_s[layout];
                        costs[layout] += run_costs[layout];
                    }
                }
                Ok((bytes, seconds, least(&costs)))
            })?;
            let mut total = Total::default();
            for (bytes, seconds, chosen) in totals {
                total.add(bytes, seconds, chosen);
                both.add(bytes, seconds, chosen);
            }
            groups.push((order_name(order).to_owned(), total.mb_per_s()));
        }
        groups.push(("total".to_owned(), both.mb_per_s()));
        let panel = Panel::new(network.name, Unit::MbPerS, "access", series(), groups);
        let most = panel.most_gain_percent(CHOSEN, "1-DH").unwrap_or(f64::NAN);
        findings.rows.push(Row::new(network.name, "cost over 1-DH", Unit::Percent, Published::UpTo(up_to), most));
        for group in &panel.groups {
            for base in LAYOUTS {
                let gain = panel.gain_percent(group, CHOSEN, base).unwrap_or(f64::NAN);
                let case = format!("{} {group}", network.name);
                let what = format!("cost over {base}");
                findings.rows.push(Row::new(case, what, Unit::Percent, Published::NotPrinted, gain));
            }
        }
        findings.panels.push(panel);
    }
    Ok(findings)
}

/// `requests`: of each process, at most.
pub(super) fn figure_7(setting: &Setting<'_>, requests: u64) -> Result<Findings> {
    let mut findings = Findings::default();
    for network in NETWORKS {
        let site = network.site()?;
        let mut groups = Vec::new();
        for order in [Order::Sequential, Order::Random] {
            let of_count = |processes: &u32| {
                let processes = *processes;
                let of_size = move |request| {
                    [Direction::Write, Direction::Read].map(|direction| Ior {
                        processes,
                        request,
                        order,
                        direction,
                        requests,
                    })
                };
                sizes().flat_map(of_size).collect::<Vec<_>>()
            };
            let cases: Vec<Ior> = process_counts(network).iter().flat_map(of_count).collect();
            let rates = setting.map(&cases, |ior| site.all_mb_per_s(ior, setting.seed))?;
            let mut total = Total::default();
            for (ior, rates) in cases.iter().zip(rates) {
                total.add(ior.bytes(), rates.map(|rate| ior.bytes() / 1e6 / rate), site.choice(ior));
            }
            groups.push((order_name(order).to_owned(), total.mb_per_s()));
        }
        let panel = Panel::new(network.name, Unit::MbPerS, "access", series(), groups);
        for group in &panel.groups {
            for base in LAYOUTS {
                let gain = panel.gain_percent(group, CHOSEN, base).unwrap_or(f64::NAN);
                let case = format!("{} {group}", network.name);
                let what = format!("hybrid replication over {base}");
                findings.rows.push(Row::new(case, what, Unit::Percent, Published::Range(20.0, 74.0), gain));
            }
        }
        findings.panels.push(panel);
    }
    Ok(findings)
}
