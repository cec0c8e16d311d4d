//! The section on bandwidth: what each policy reached or would reach, beside the bound where one is known.

use crate::bars::{self, Bar, Bound, Operation};
use crate::material::Material;
use crate::results::{Results, dilation_range};
use serde::Serialize;
use stripewise_layout::Direction;
use stripewise_layout::figures::{bytes, number, signed_percent};
use stripewise_planner::{Plan, PolicyName, Prediction, within};

#[derive(Serialize)]
pub(super) struct Bandwidth {
    chart: String,
    measured: bool,
    host_bound: usize,
    /// "0.5 to 8.2", where emulated devices did not run in their own time.
    dilation: Option<String>,
    bounds: Vec<String>,
    groups: Vec<Group>,
    rows: Vec<PolicyRow>,
}

/// The columns of one operation.
#[derive(Serialize)]
struct Group {
    operation: &'static str,
    sizes: Vec<String>,
}

#[derive(Serialize)]
struct PolicyRow {
    policy: String,
    cells: Vec<Cell>,
}

#[derive(Default, Serialize)]
struct Cell {
    rate: String,
    predicted: String,
    gain: String,
}

pub(super) fn section(material: &Material) -> Option<Bandwidth> {
    let bounds = bounds(&material.plans, material.results.as_ref());
    let has_both = bounds.iter().any(|bound| bound.operation == Operation::Both);
    let bars = match &material.results {
        Some(results) => {
            let together = if has_both { bars::together(results) } else { Vec::new() };
            bars::of_results(results).into_iter().chain(together).collect()
        }
        None => predicted_bars(&material.plans, has_both),
    };
    if bars.is_empty() {
        return None;
    }
    let policies = bars::distinct(bars.iter().map(|bar| bar.policy.as_str()));
    let keys = bars::distinct(bars.iter().map(|bar| (bar.operation, bar.request_bytes)));
    let rows = policies.iter().map(|policy| PolicyRow {
        policy: (*policy).to_owned(),
        cells: keys.iter().map(|key| cell(&bars, policy, *key)).collect(),
    });
    Some(Bandwidth {
        chart: bars::chart(&bars, &bounds, "measured"),
        measured: material.results.is_some(),
        dilation: material.results.as_ref().and_then(|results| dilation_range(&results.runs)).map(range),
        host_bound: bars.iter().filter(|bar| bar.host_bound && bar.operation != Operation::Both).count(),
        bounds: bounds.iter().map(words).collect(),
        groups: groups(&keys),
        rows: rows.collect(),
    })
}

fn range((least, most): (f64, f64)) -> String {
    format!("{} to {}", number(least), number(most))
}

fn size_words(size: Option<u64>) -> String {
    size.map_or_else(|| "whole run".to_owned(), bytes)
}

fn groups(keys: &[(Operation, Option<u64>)]) -> Vec<Group> {
    let of_operation = keys.chunk_by(|a, b| a.0 == b.0);
    let group = |keys: &[(Operation, Option<u64>)]| Group {
        operation: keys[0].0.name(),
        sizes: keys.iter().map(|(_, size)| size_words(*size)).collect(),
    };
    of_operation.map(group).collect()
}

fn words(bound: &Bound) -> String {
    let of = match bound.operation {
        Operation::Only(Direction::Read) => "reads",
        Operation::Only(Direction::Write) => "writes",
        Operation::Both => "reads and writes together",
    };
    let size = bound.request_bytes.map_or_else(String::new, |size| format!(" of {}", bytes(size)));
    format!("{} MB/s for {of}{size}", number(bound.mb_s.round()))
}

/// The bounds that plans state, each where a bar can be compared with it: beside predictions those of the whole run, beside measured runs those
/// of plans for requests of one of the measured sizes and as many processes.
fn bounds(plans: &[Plan], results: Option<&Results>) -> Vec<Bound> {
    let mut found: Vec<Bound> = Vec::new();
    for plan in plans {
        let Some(bound) = bound(plan) else { continue };
        let bound = match results {
            None => bound,
            Some(results) => {
                let total = &plan.predicted.total;
                let size = total
                    .bytes
                    .checked_div(total.requests)
                    .filter(|size| size.checked_mul(total.requests) == Some(total.bytes));
                let is_of = |size: u64| {
                    let mut runs = results.runs.iter();
                    runs.any(|run| run.request_bytes == size && run.ranks == plan.key.all_processes())
                };
                let Some(size) = size.filter(|size| is_of(*size)) else { continue };
                Bound { request_bytes: Some(size), ..bound }
            }
        };
        let key = (bound.operation, bound.request_bytes);
        match found.iter_mut().find(|other| (other.operation, other.request_bytes) == key) {
            Some(other) => other.mb_s = other.mb_s.min(bound.mb_s),
            None => found.push(bound),
        }
    }
    found
}

/// Of the whole run, if the plan's policy knows one.
fn bound(plan: &Plan) -> Option<Bound> {
    let bound_s = plan.optimum.as_ref().map(|optimum| optimum.bound_s).filter(|bound_s| *bound_s > 0.0)?;
    let any = |throughput: Option<stripewise_planner::Throughput>| throughput.is_some_and(|found| found.requests > 0);
    let operation = match (any(plan.predicted.read), any(plan.predicted.write)) {
        (true, false) => Operation::Only(Direction::Read),
        (false, true) => Operation::Only(Direction::Write),
        _ => Operation::Both,
    };
    Some(Bound { operation, request_bytes: None, mb_s: plan.predicted.total.bytes as f64 / bound_s / 1e6 })
}

/// Without measured runs: one bar for each plan and operation, the baseline first.
fn predicted_bars(plans: &[Plan], has_both: bool) -> Vec<Bar> {
    let mut operations = vec![Operation::Only(Direction::Read), Operation::Only(Direction::Write)];
    operations.extend(has_both.then_some(Operation::Both));
    let mut bars = Vec::new();
    for operation in operations {
        let rate = |prediction: &Prediction| match operation {
            Operation::Only(Direction::Read) => prediction.read.map(|read| read.mb_per_s),
            Operation::Only(Direction::Write) => prediction.write.map(|write| write.mb_per_s),
            Operation::Both => Some(prediction.total.mb_per_s),
        };
        let default = plans.iter().filter(|_| plans.iter().all(|plan| plan.policy != PolicyName::BASELINE)).take(1);
        let named = default
            .map(|plan| (PolicyName::BASELINE.name(), &plan.default))
            .chain(plans.iter().map(|plan| (plan.policy.name(), &plan.predicted)));
        for (policy, prediction) in named {
            if let Some(predicted) = rate(prediction) {
                bars.push(Bar {
                    policy: policy.to_owned(),
                    operation,
                    request_bytes: None,
                    found_mb_s: None,
                    predicted_mb_s: Some(predicted),
                    predicted_spread: prediction.spread(),
                    host_bound: false,
                });
            }
        }
    }
    bars
}

fn cell(bars: &[Bar], policy: &str, key: (Operation, Option<u64>)) -> Cell {
    let of = |policy: &str| bars.iter().find(|bar| bar.policy == policy && (bar.operation, bar.request_bytes) == key);
    let rate = |bar: &Bar| if bar.host_bound { None } else { bar.found_mb_s.or(bar.predicted_mb_s) };
    let Some(bar) = of(policy) else { return Cell { rate: "\u{2013}".to_owned(), ..Cell::default() } };
    let shown = rate(bar);
    let gain = match (shown, of(PolicyName::BASELINE.name()).and_then(rate)) {
        (Some(shown), Some(default)) if policy != PolicyName::BASELINE.name() && default > 0.0 => {
            signed_percent(shown / default - 1.0)
        }
        _ => String::new(),
    };
    let predicted = bar.found_mb_s.and(bar.predicted_mb_s);
    Cell {
        rate: match (bar.host_bound, shown) {
            (true, _) => "host".to_owned(),
            (false, None) => "\u{2013}".to_owned(),
            (false, Some(rate)) if bar.found_mb_s.is_some() => number(rate),
            (false, Some(rate)) => format!("{} {}", number(rate), within(bar.predicted_spread)),
        },
        predicted: predicted
            .map_or_else(String::new, |rate| format!("{} {}", number(rate), within(bar.predicted_spread))),
        gain,
    }
}
