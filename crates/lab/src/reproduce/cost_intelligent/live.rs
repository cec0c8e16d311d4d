//! Figures 7 and 8 with replicas that the store keeps and chooses among: real processes on emulated servers.
//!
//! Where the paper's library chooses a copy by the number of processes and the request, the store chooses by the time at which servers would be done, given
//! what stands in their queues. Writes go to one copy, and the others are rebuilt: their time is told by itself and together with the writing's.

mod figure_7;
mod figure_8;

pub(super) use figure_7::figure_7;
pub(super) use figure_8::figure_8;

use super::{INFINIBAND, LAYOUTS, Network, Site};
use crate::replay::Ranks;
use crate::reproduce::emulated::{EmulatedLab, Prepared, least_s};
use crate::reproduce::experiment::{Findings, Published, Row, Setting, Unit};
use anyhow::Result;
use serde_json::json;
use stripewise_layout::{ByteCount, Layout, Placement};

/// The one whose servers this machine can carry; its client links, which are left out, are also the ones that matter less.
const NETWORK: Network = INFINIBAND;
/// Devices and links are so many times slower than the paper's: two cores do not make requests of 4 KiB as fast as eight servers answer them.
const DILATION: f64 = 4.0;
/// Of a run on this machine at least, about, where servers are busy.
const RUN_S: f64 = 1.5;
const REPLICATED: &str = "replicas";
/// The single layouts, then all three with a choice.
const KEPT: usize = LAYOUTS.len() + 1;
/// Of [`LAYOUTS`] the one where data of files with replicas is placed and written: figure 6 finds it for every mix.
const PLACE: usize = 1;

/// Requests of each process that take about [`RUN_S`] where each is on one server, or longer where their first ones alone take this machine long.
fn requests(site: &Site, processes: u32, bytes: u64) -> u64 {
    let server = &site.lab.profile.servers[0];
    let service_s = server.read_random.seconds(bytes as f64)
        + site.lab.profile.network.e_s
        + bytes as f64 * site.lab.profile.network.t_s_per_byte;
    let rounds = f64::from(processes.div_ceil(NETWORK.servers));
    (RUN_S.max(least_s(processes, bytes)) / DILATION / (service_s * rounds)).ceil().max(2.0) as u64
}

/// Bytes of a run at the paper's size, and its bandwidth by layout, replicas last; `None` where the machine set the pace.
struct Tried {
    what: serde_json::Value,
    bytes: f64,
    mb_per_s: [Option<f64>; KEPT],
}

/// All bytes over all time of the runs of which every figure is known, replicas last.
fn totals(tried: &[Tried]) -> [Option<f64>; KEPT] {
    let mut sums = (0.0, [0.0; KEPT]);
    for one in tried {
        let known: Vec<f64> = one.mb_per_s.iter().flatten().copied().collect();
        if let Ok(known) = <[f64; KEPT]>::try_from(known) {
            sums.0 += one.bytes;
            sums.1.iter_mut().zip(known).for_each(|(sum, mb_per_s)| *sum += one.bytes / mb_per_s);
        }
    }
    sums.1.map(|sum| (sum > 0.0).then(|| sums.0 / sum))
}

/// How many of the runs [`totals`] takes.
fn complete(tried: &[Tried]) -> usize {
    tried.iter().filter(|one| one.mb_per_s.iter().all(Option::is_some)).count()
}

/// What the reader should know of all runs.
fn remark(processes: &[u32], complete: usize, all: usize) -> String {
    let counts = processes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "{}'s {} servers, {counts} forked processes. Devices and links are {DILATION} times slower than printed, and the times that are told as many times shorter \
         than they took. Totals are over the runs with every layout's figure, {complete} of {all}.",
        NETWORK.name, NETWORK.servers,
    )
}

/// Best of the single ones.
fn best_single(totals: &[Option<f64>; KEPT]) -> Option<usize> {
    let known = (0..LAYOUTS.len()).filter_map(|layout| Some((layout, totals[layout]?)));
    known.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(layout, _)| layout)
}

/// Geometric mean over the runs of what replicas gain on one layout.
fn mean_gain(tried: &[Tried], layout: usize) -> f64 {
    let gains = tried.iter().filter_map(|one| Some((one.mb_per_s[KEPT - 1]? / one.mb_per_s[layout]?).ln()));
    let gains: Vec<f64> = gains.collect();
    (gains.iter().sum::<f64>() / gains.len() as f64).exp()
}

/// The most that a choice of one layout for each run could gain on the best single one.
fn most_by_run(tried: &[Tried], layout: usize) -> f64 {
    let (mut single, mut best) = (0.0, 0.0);
    for one in tried {
        let known: Vec<f64> = one.mb_per_s[..LAYOUTS.len()].iter().flatten().copied().collect();
        if known.len() == LAYOUTS.len() && one.mb_per_s[KEPT - 1].is_some() {
            single += one.bytes / known[layout];
            best += one.bytes / known.iter().copied().fold(0.0, f64::max);
        }
    }
    single / best
}

/// Rows of one mix of runs.
fn rows(case: &str, tried: &[Tried], names: &[String], (goal, published): (f64, Published)) -> Vec<Row> {
    let totals = totals(tried);
    let over =
        |layout: usize| totals[KEPT - 1].zip(totals[layout]).map_or(f64::NAN, |(replicas, single)| replicas / single);
    let Some(best) = best_single(&totals) else { return Vec::new() };
    let mut rows = vec![Row::new(
        case,
        format!("replicas over the best single layout, {}", names[best]),
        Unit::Ratio,
        Published::AtLeast(goal),
        over(best),
    )];
    rows.extend((0..LAYOUTS.len()).map(|layout| {
        let what = format!("replicas over {}", names[layout]);
        Row::new(case, what, Unit::Percent, published, (over(layout) - 1.0) * 100.0)
    }));
    let other = [
        ("best layout for each run over the best single one", most_by_run(tried, best)),
        ("replicas over the best single layout, mean of the runs' gains", mean_gain(tried, best)),
    ];
    rows.extend(other.map(|(what, ours)| Row::new(case, what, Unit::Ratio, Published::NotPrinted, ours)));
    rows
}

fn details(findings: &mut Findings, key: &str, case: &str, names: &[String], tried: &[Tried]) {
    let runs = tried.iter().map(|one| {
        let rates: serde_json::Map<_, _> =
            names.iter().cloned().zip(one.mb_per_s.iter().map(|rate| json!(rate))).collect();
        json!({ "case": case, "run": one.what, "mb_s": rates })
    });
    let list = findings.details.entry(key).or_insert_with(|| json!([]));
    list.as_array_mut().expect("a list").extend(runs);
}

fn emulated(setting: &Setting<'_>, site: &Site, bytes: u64) -> Result<EmulatedLab> {
    EmulatedLab::build_dilated(setting.voice, &site.lab, ByteCount(bytes), (Ranks::Forked, DILATION))
}

fn placed(region: ByteCount, layout: &Layout) -> Placement {
    Placement::uniform(region, layout.clone(), layout.clone())
}

/// Files as each layout keeps them, then with replicas: `run` is done on each, and gives what is told of it.
fn each_kept<T>(
    (lab, prepared): (&EmulatedLab, &Prepared<'_>),
    region: ByteCount,
    layouts: &[[Layout; LAYOUTS.len()]],
    mut run: impl FnMut(usize) -> Result<T>,
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    for kept in 0..KEPT {
        let place = if kept < LAYOUTS.len() { kept } else { PLACE };
        let placements: Vec<Placement> = layouts.iter().map(|file| placed(region, &file[place])).collect();
        let replicas = |file: &[Layout; LAYOUTS.len()]| {
            let others = (0..LAYOUTS.len()).filter(|other| kept == LAYOUTS.len() && *other != PLACE);
            others.map(|other| file[other].clone()).collect()
        };
        lab.place_with(prepared, &placements, &layouts.iter().map(replicas).collect::<Vec<_>>())?;
        found.push(run(kept)?);
        lab.clear(prepared)?;
    }
    Ok(found)
}

/// By kept layout and run to by run and kept layout.
fn by_run<T: Copy>(found: &[Vec<T>], run: usize) -> [T; KEPT] {
    std::array::from_fn(|kept| found[kept][run])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(bytes: f64, mb_per_s: [f64; KEPT]) -> Tried {
        Tried { what: json!({}), bytes, mb_per_s: mb_per_s.map(Some) }
    }

    #[test]
    fn totals_are_all_bytes_over_all_time_of_complete_runs() {
        let mut all = vec![tried(100.0, [10.0, 20.0, 25.0, 50.0]), tried(300.0, [30.0, 10.0, 15.0, 30.0])];
        assert_eq!(totals(&all), [20.0, 400.0 / 35.0, 400.0 / 24.0, 400.0 / 12.0].map(Some));
        assert_eq!(best_single(&totals(&all)), Some(0));
        assert!((most_by_run(&all, 0) - 20.0 / 14.0).abs() < 1e-12);
        assert!((mean_gain(&all, 0) - 5f64.sqrt()).abs() < 1e-12);
        all.push(Tried { what: json!({}), bytes: 1e9, mb_per_s: [Some(1.0), None, Some(1.0), Some(1.0)] });
        assert_eq!((complete(&all), totals(&all)[0]), (2, Some(20.0)));
        assert_eq!(totals(&all[2..]), [None; KEPT]);
        assert!(rows("none", &all[2..], &[], (1.0, Published::NotPrinted)).is_empty());
        let names: Vec<String> = LAYOUTS.into_iter().chain([REPLICATED]).map(str::to_owned).collect();
        let found = rows("some", &all, &names, (1.2, Published::NotPrinted));
        assert_eq!(
            (found[0].quantity.as_str(), found[0].ours),
            ("replicas over the best single layout, 1-DH", 400.0 / 240.0)
        );
    }
}
