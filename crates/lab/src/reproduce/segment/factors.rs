//! The four plots of the key factors: request size and stripe size.

use super::{DEFAULT_STRIPE, NODES, SERVERS, fixed, lab};
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, Unit};
use anyhow::Result;
use stripewise::laboratory::Lab;
use stripewise_layout::{ByteCount, Direction, Order};
use stripewise_model::segment::SegmentPattern;
use stripewise_model::{Concurrency, UniformParameters};
use stripewise_sim::{FilePlacements, SimOptions};
use stripewise_trace::Benchmark;

const FIXED_REQUEST: ByteCount = ByteCount(256 << 10);
const PROCESSES: [u32; 2] = [8, 64];
const FILE: ByteCount = ByteCount(4 << 30);

fn range() -> impl Iterator<Item = ByteCount> {
    (12..=22).map(|exponent| ByteCount(1 << exponent))
}

/// One point of a plot.
#[derive(Clone, Copy)]
struct Point {
    request: ByteCount,
    stripe: ByteCount,
    processes: u32,
}

impl Point {
    fn mb_per_s(self, lab: &Lab, requests: u64, seed: u64) -> Result<f64> {
        let Self { request, stripe, processes } = self;
        let text = format!(
            "ior:pattern=random,op=read,size={FILE},transfer={request},requests={requests},processes={processes},nodes={NODES},seed={seed}"
        );
        let program = text.parse::<Benchmark>()?.program()?;
        let files = [FilePlacements::fixed(fixed(stripe)?)];
        Ok(lab.simulate_with(&files, &*program, SimOptions::default())?.mb_per_s)
    }
}

/// The stripe of least cost by the segment model.
fn modelled_best(lab: &Lab, processes: u32) -> ByteCount {
    let parameters = UniformParameters::of_servers(&lab.profile, |_| true);
    let pattern = SegmentPattern {
        servers: SERVERS,
        request_bytes: FIXED_REQUEST.0,
        concurrency: Concurrency { processes, processes_per_node: processes.div_ceil(NODES) },
        line: parameters.of_class(Direction::Read, Order::Random),
        e_s: parameters.e_s,
        v_s_per_byte: parameters.v_s_per_byte,
    };
    let cost = |stripe: &ByteCount| pattern.cost(stripe.0).total();
    // Of equal costs the larger stripe, as the policy does.
    range().collect::<Vec<_>>().into_iter().rev().min_by_key(cost).unwrap_or(DEFAULT_STRIPE)
}

pub(super) fn key_factors(setting: &Setting<'_>, requests: u64) -> Result<Findings> {
    let mut findings = Findings::default();
    for (network, link, plots) in [("Ethernet", "gigabit", ["a", "b"]), ("InfiniBand", "infiniband", ["c", "d"])] {
        let lab = lab(link)?;
        let by_request: Vec<(ByteCount, ByteCount)> = range().map(|request| (request, DEFAULT_STRIPE)).collect();
        let by_stripe: Vec<(ByteCount, ByteCount)> = range().map(|stripe| (FIXED_REQUEST, stripe)).collect();
        for (plot, (title, sizes)) in
            plots.into_iter().zip([("64KiB stripes", by_request), ("256KiB requests", by_stripe)])
        {
            let points: Vec<Point> = sizes
                .iter()
                .flat_map(|(request, stripe)| {
                    PROCESSES.map(|processes| Point { request: *request, stripe: *stripe, processes })
                })
                .collect();
            let rates = setting.map(&points, |point| point.mb_per_s(&lab, requests, setting.seed))?;
            let axis = if plot == plots[0] { "request size" } else { "stripe size" };
            let groups = range().zip(rates.chunks(PROCESSES.len()));
            let groups = groups.map(|(size, rates)| (size.to_string(), rates.iter().copied().map(Some).collect()));
            let title = format!("({plot}) {network}: {title}");
            let series = PROCESSES.map(|processes| format!("{processes} processes"));
            let panel = Panel::new(title.clone(), Unit::MbPerS, axis, series, groups);
            for (number, processes) in PROCESSES.into_iter().enumerate() {
                let rate = |size: &usize| panel.values[*size][number].unwrap_or(0.0);
                let best = (0..panel.groups.len()).max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(0);
                let best = range().nth(best).unwrap_or(DEFAULT_STRIPE);
                let case = format!("{title}, {processes} processes");
                let mut row = |what: &str, size: ByteCount| {
                    let kib = size.0 as f64 / 1024.0;
                    findings.rows.push(Row::new(case.clone(), what, Unit::KiB, Published::NotPrinted, kib));
                };
                row(&format!("fastest {axis}"), best);
                if plot == plots[1] {
                    row("stripe that the model chooses", modelled_best(&lab, processes));
                }
            }
            findings.panels.push(panel);
        }
    }
    Ok(findings)
}
