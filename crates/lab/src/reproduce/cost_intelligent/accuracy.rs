//! Table 5 and figure 5: does the model choose the layout that is fastest?

use super::{ETHERNET, INFINIBAND, Ior, LAYOUTS, NETWORKS, Network, Site, Stripes, least, most};
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, Unit};
use anyhow::Result;
use stripewise_layout::{ByteCount, Direction, Order};
use stripewise_model::cost_intelligent::TableForm;

const REQUESTS: u64 = 12;
/// A layout this near to the best is as good in any measurement that repeats itself within 5 %.
const NEAR: f64 = 0.95;

/// What became of one case.
struct Judged {
    best: usize,
    /// By the corrected form of table 2.
    chosen: usize,
    is_correct: bool,
    is_correct_printed: bool,
    is_near: bool,
    /// Bandwidth of the chosen layout over that of the best.
    share: f64,
}

fn judge(site: &Site, ior: &Ior, stripes: Stripes, seed: u64) -> Result<Judged> {
    let found = site.all_mb_per_s(ior, stripes, seed)?;
    let best = most(&found);
    let concurrency = site.network.concurrency(ior.processes);
    let [chosen, printed] =
        [TableForm::Corrected, TableForm::Printed].map(|form| least(&site.costs_s(ior.class(), concurrency, form)));
    let share = |layout: usize| found[layout] / found[best];
    Ok(Judged {
        best,
        chosen,
        is_correct: share(chosen) == 1.0,
        is_correct_printed: share(printed) == 1.0,
        is_near: share(chosen) >= NEAR,
        share: share(chosen),
    })
}

/// `count` sizes from 4 KiB to 4 MiB, each so much larger than the one before, in whole sectors.
fn sizes(count: u32) -> impl Iterator<Item = ByteCount> {
    (0..count).map(move |number| {
        let bytes = 4096.0 * 1024f64.powf(f64::from(number) / f64::from(count - 1));
        ByteCount((bytes / 512.0).round() as u64 * 512)
    })
}

/// Every number of processes up to 48 or 24, then in steps of 4 or 2.
fn process_counts(network: Network) -> Vec<u32> {
    if network == ETHERNET {
        (1..=48).chain((52..=96).step_by(4)).collect()
    } else {
        (1..=24).chain((26..=64).step_by(2)).collect()
    }
}

pub(super) fn cases(network: Network, order: Order) -> Vec<Ior> {
    let size_count = if network == ETHERNET { 70 } else { 50 };
    let of_size = |request| {
        process_counts(network).into_iter().map(move |processes| Ior {
            processes,
            request,
            order,
            direction: Direction::Read,
            requests: REQUESTS,
        })
    };
    sizes(size_count).flat_map(of_size).collect()
}

/// Of all cases every `every`-th.
pub(super) fn table_5(setting: &Setting<'_>, every: usize) -> Result<Findings> {
    let published = [
        (ETHERNET, Order::Random, 90.98),
        (ETHERNET, Order::Sequential, 88.14),
        (INFINIBAND, Order::Random, 84.86),
        (INFINIBAND, Order::Sequential, 80.14),
    ];
    let mut findings = Findings::default();
    for (network, order, rate) in published {
        let site = network.site()?;
        let cases: Vec<Ior> = cases(network, order).into_iter().step_by(every).collect();
        let judged = setting.map(&cases, |ior| judge(&site, ior, Stripes::Default, setting.seed))?;
        let as_modelled = setting.map(&cases, |ior| judge(&site, ior, Stripes::Request, setting.seed))?;
        let order = if order == Order::Random { "random" } else { "sequential" };
        let case = format!("{} {order}", network.name);
        let mut row = |what: &str, unit, published, ours| {
            findings.rows.push(Row::new(case.clone(), what, unit, published, ours));
        };
        let total = Published::Value(if network == ETHERNET { 4_200.0 } else { 2_200.0 });
        row("cases", Unit::Count, total, judged.len() as f64);
        row(
            "chosen layout is the fastest",
            Unit::Percent,
            Published::Value(rate),
            percent(&judged, |one| one.is_correct),
        );
        let none = Published::NotPrinted;
        row("the same, table 2 as printed", Unit::Percent, none, percent(&judged, |one| one.is_correct_printed));
        row("chosen layout within 5 % of the fastest", Unit::Percent, none, percent(&judged, |one| one.is_near));
        row("bandwidth lost by the choice, mean", Unit::Percent, none, mean_loss_percent(&judged));
        let what = "fastest chosen, each request on all servers of its file";
        row(what, Unit::Percent, none, percent(&as_modelled, |one| one.is_correct));
        let what = "within 5 %, each request on all servers of its file";
        row(what, Unit::Percent, none, percent(&as_modelled, |one| one.is_near));
        findings.panels.push(confusion(&case, &judged));
    }
    Ok(findings)
}

fn percent(judged: &[Judged], holds: impl Fn(&Judged) -> bool) -> f64 {
    judged.iter().filter(|one| holds(one)).count() as f64 * 100.0 / judged.len() as f64
}

fn mean_loss_percent(judged: &[Judged]) -> f64 {
    judged.iter().map(|one| 1.0 - one.share).sum::<f64>() / judged.len() as f64 * 100.0
}

/// How often each layout is the fastest and how often each was chosen then.
fn confusion(case: &str, judged: &[Judged]) -> Panel {
    let groups = LAYOUTS.iter().enumerate().map(|(best, name)| {
        let of_best = |chosen: usize| judged.iter().filter(|one| one.best == best && one.chosen == chosen).count();
        (format!("{name} fastest"), (0..LAYOUTS.len()).map(|chosen| Some(of_best(chosen) as f64)).collect())
    });
    Panel::new(case, Unit::Count, "cases", LAYOUTS.map(|name| format!("{name} chosen")), groups)
}

pub(super) fn figure_5(setting: &Setting<'_>) -> Result<Findings> {
    let mut findings = Findings::default();
    for network in NETWORKS {
        let site = network.site()?;
        let processes = [1, 2, 4, 8, 16, 32, 64];
        let requests: Vec<ByteCount> = (14..=22).map(|exponent| ByteCount(1 << exponent)).collect();
        let ior = |processes, request| Ior {
            processes,
            request,
            order: Order::Sequential,
            direction: Direction::Read,
            requests: 4 * REQUESTS,
        };
        let grid: Vec<Ior> =
            requests.iter().flat_map(|request| processes.map(|processes| ior(processes, *request))).collect();
        let judged = setting.map(&grid, |ior| judge(&site, ior, Stripes::Default, setting.seed))?;
        for (what, share) in [
            ("points where the fastest is the estimated one", percent(&judged, |one| one.is_correct)),
            ("points where the estimated one is within 5 % of the fastest", percent(&judged, |one| one.is_near)),
        ] {
            findings.rows.push(Row::new(network.name, what, Unit::Percent, Published::NotPrinted, share));
        }
        let counted = |count: u32| {
            let of_count = grid.iter().zip(&judged).filter(move |(ior, _)| ior.processes == count);
            let best: Vec<usize> = of_count.map(|(_, one)| one.best).collect();
            (0..LAYOUTS.len()).map(|layout| Some(best.iter().filter(|best| **best == layout).count() as f64)).collect()
        };
        let groups = processes.map(|count| (count.to_string(), counted(count)));
        let title = format!("{}: request sizes at which a layout is fastest", network.name);
        findings.panels.push(Panel::new(title, Unit::Count, "processes", LAYOUTS, groups));
        findings.details.insert(format!("fastest_{}", network.name.to_lowercase()), points(&grid, &judged));
    }
    Ok(findings)
}

/// The points of the figure.
fn points(grid: &[Ior], judged: &[Judged]) -> serde_json::Value {
    let point = |(ior, one): (&Ior, &Judged)| {
        serde_json::json!({
            "processes": ior.processes,
            "request_bytes": ior.request.0,
            "fastest": LAYOUTS[one.best],
            "estimated": LAYOUTS[one.chosen],
        })
    };
    grid.iter().zip(judged).map(point).collect()
}
