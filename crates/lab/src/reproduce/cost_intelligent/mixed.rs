//! Figures 6 and 7: one layout for several runs by their overall cost, and a copy in each layout.

use super::tiles::{self, Tile};
use super::{
    BEST, CHOSEN, ETHERNET, FILE, INFINIBAND, Ior, LAYOUTS, NETWORKS, Network, Site, Stripes, Total, least, series,
};
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, Unit};
use anyhow::Result;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use stripewise_layout::{ByteCount, Direction, Order};
use stripewise_model::cost_intelligent::TableForm;

/// Requests of each process that the runs of a scenario are simulated for.
const SCENARIO_REQUESTS: u64 = 32;

fn order_name(order: Order) -> &'static str {
    if order == Order::Random { "random" } else { "sequential" }
}

fn process_counts(network: Network) -> &'static [u32] {
    if network == ETHERNET { &[1, 2, 4, 8, 16, 32, 48, 96] } else { &[1, 2, 4, 8, 16, 32, 64] }
}

fn sizes() -> impl Iterator<Item = ByteCount> {
    (12..=22).map(|exponent| ByteCount(1 << exponent))
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
#[derive(Clone, Copy, Default)]
struct Tried {
    bytes: f64,
    seconds: [f64; 3],
    costs_s: [f64; 3],
}

fn try_run(site: &Site, run: Run, order: Order, stripes: Stripes, seed: u64) -> Result<Tried> {
    let (bytes, request_bytes, class, processes, rates) = match run {
        Run::Ior { processes, request } => {
            let ior = Ior { processes, request, order, direction: Direction::Read, requests: SCENARIO_REQUESTS };
            (ior.bytes(), request.0, ior.class(), processes, site.all_mb_per_s(&ior, stripes, seed)?)
        }
        Run::Tiles(tile) => {
            // As many bytes as an IOR of these processes moves. In a shared file a layout of processes is one of stripes (section 4): those
            // of figure 8.
            let bytes = f64::from(tile.processes) * FILE.0 as f64;
            (bytes, tile.bytes(), tile.class(), tile.processes, tile.all_mb_per_s(site, false, seed)?)
        }
    };
    let requests = bytes / request_bytes as f64;
    let costs_s = site.costs_s(class, site.network.concurrency(processes), TableForm::Corrected);
    Ok(Tried { bytes, seconds: rates.map(|rate| bytes / 1e6 / rate), costs_s: costs_s.map(|cost_s| cost_s * requests) })
}

/// All runs of a scenario under one layout, that of the least overall cost among them.
fn try_scenario(site: &Site, runs: &[Run], order: Order, stripes: Stripes, seed: u64) -> Result<(Tried, usize)> {
    let mut sum = Tried::default();
    for run in runs {
        let tried = try_run(site, *run, order, stripes, seed)?;
        sum.bytes += tried.bytes;
        for layout in 0..LAYOUTS.len() {
            sum.seconds[layout] += tried.seconds[layout];
            sum.costs_s[layout] += tried.costs_s[layout];
        }
    }
    Ok((sum, least(&sum.costs_s)))
}

/// Gains of the choice over each layout and of the best over the choice, for all groups of a panel.
fn gain_rows(panel: &Panel, name: &str, published: Published) -> Vec<Row> {
    let of_group = |group: &String| {
        let case = format!("{} {group}", panel.title);
        let gain = |series, base| panel.gain_percent(group, series, base).unwrap_or(f64::NAN);
        let over_static = LAYOUTS.map(|base| (format!("{name} over {base}"), published, gain(CHOSEN, base)));
        let over_choice = (format!("{BEST} over {name}"), Published::NotPrinted, gain(BEST, CHOSEN));
        over_static
            .into_iter()
            .chain([over_choice])
            .map(move |(what, published, ours)| Row::new(case.clone(), what, Unit::Percent, published, ours))
    };
    panel.groups.iter().flat_map(of_group).collect()
}

pub(super) fn figure_6(setting: &Setting<'_>, scenarios: usize) -> Result<Findings> {
    let mut findings = Findings::default();
    for (network, up_to) in [(ETHERNET, 57.0), (INFINIBAND, 35.0)] {
        let site = network.site()?;
        let mut random = StdRng::seed_from_u64(setting.seed);
        let scenarios: Vec<Vec<Run>> = (0..scenarios).map(|_| scenario(network, &mut random)).collect();
        for stripes in Stripes::ALL {
            let mut groups = Vec::new();
            let mut both = Total::default();
            for order in [Order::Sequential, Order::Random] {
                let tried = setting.map(&scenarios, |runs| try_scenario(&site, runs, order, stripes, setting.seed))?;
                let mut total = Total::default();
                for (sum, chosen) in tried {
                    total.add(sum.bytes, sum.seconds, chosen);
                    both.add(sum.bytes, sum.seconds, chosen);
                }
                groups.push((order_name(order).to_owned(), total.mb_per_s()));
            }
            groups.push(("total".to_owned(), both.mb_per_s()));
            let title = format!("{}, {}", network.name, stripes.name());
            let panel = Panel::new(title.clone(), Unit::MbPerS, "access", series(), groups);
            let most = panel.most_gain_percent(CHOSEN, "1-DH").unwrap_or(f64::NAN);
            findings.rows.push(Row::new(title, "cost over 1-DH", Unit::Percent, Published::UpTo(up_to), most));
            findings.rows.extend(gain_rows(&panel, CHOSEN, Published::NotPrinted));
            findings.panels.push(panel);
        }
    }
    Ok(findings)
}

/// Every combination of the figure in one order.
fn combinations(network: Network, order: Order, requests: u64) -> Vec<Ior> {
    let of_size = |processes: u32, request| {
        [Direction::Write, Direction::Read].map(|direction| Ior { processes, request, order, direction, requests })
    };
    let of_count = |processes: &u32| {
        let processes = *processes;
        sizes().flat_map(move |request| of_size(processes, request))
    };
    process_counts(network).iter().flat_map(of_count).collect()
}

/// `requests`: of each process, at most.
pub(super) fn figure_7(setting: &Setting<'_>, requests: u64) -> Result<Findings> {
    let mut findings = Findings::default();
    for network in NETWORKS {
        let site = network.site()?;
        for stripes in Stripes::ALL {
            let mut groups = Vec::new();
            for order in [Order::Sequential, Order::Random] {
                let cases = combinations(network, order, requests);
                let rates = setting.map(&cases, |ior| site.all_mb_per_s(ior, stripes, setting.seed))?;
                let mut total = Total::default();
                for (ior, rates) in cases.iter().zip(rates) {
                    total.add(ior.bytes(), rates.map(|rate| ior.bytes() / 1e6 / rate), site.choice(ior));
                }
                groups.push((order_name(order).to_owned(), total.mb_per_s()));
            }
            let title = format!("{}, {}", network.name, stripes.name());
            let panel = Panel::new(title, Unit::MbPerS, "access", series(), groups);
            findings.rows.extend(gain_rows(&panel, "hybrid replication", Published::Range(20.0, 74.0)));
            findings.panels.push(panel);
        }
    }
    Ok(findings)
}
