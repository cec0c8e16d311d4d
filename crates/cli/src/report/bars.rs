//! Bandwidth of each policy: one panel for each operation, one group of bars for each request size.

use super::scale::Scale;
use super::svg::{Anchor, Svg};
use crate::figures::{bytes, number};
use crate::results::{Results, RunResult};
use stripewise_layout::Direction;

/// One bar.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Bar {
    pub(super) policy: String,
    pub(super) direction: Direction,
    /// None where the figure is of a whole run with requests of many sizes.
    pub(super) request_bytes: Option<u64>,
    /// Of a run; None when there is only a prediction.
    pub(super) measured_mb_s: Option<f64>,
    pub(super) predicted_mb_s: Option<f64>,
    /// The machine and not the devices was the bottleneck: no result.
    pub(super) host_bound: bool,
}

/// The bars of measured runs, by operation and size; policies keep the order in which they ran.
pub(super) fn of_results(results: &Results) -> Vec<Bar> {
    let bar = |run: &RunResult| Bar {
        policy: run.policy.clone(),
        direction: run.op,
        request_bytes: Some(run.request_bytes),
        measured_mb_s: Some(run.bandwidth_mb_s),
        predicted_mb_s: run.predicted_mb_s,
        host_bound: run.host_bound,
    };
    let mut bars: Vec<Bar> = results.runs.iter().map(bar).collect();
    bars.sort_by_key(|bar| (bar.direction, bar.request_bytes));
    bars
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 62.0;
const PLOT: f64 = 190.0;
const PANEL: f64 = PLOT + 78.0;
const MOST_BAR: f64 = 46.0;

/// The class that paints a policy.
pub(super) fn policy_class(policy: &str) -> &'static str {
    match policy {
        "def" => "p-def",
        "padp" => "p-padp",
        "psa" => "p-psa",
        "h2dp" => "p-h2dp",
        "random" => "p-random",
        _ => "p-other",
    }
}

/// The values of `key` in the order in which they first occur.
pub(super) fn distinct<T: PartialEq + Clone>(bars: &[Bar], key: impl Fn(&Bar) -> T) -> Vec<T> {
    let mut found = Vec::new();
    for value in bars.iter().map(key) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// The chart; an empty text without bars.
pub(super) fn chart(bars: &[Bar]) -> String {
    if bars.is_empty() {
        return String::new();
    }
    let directions = distinct(bars, |bar| bar.direction);
    let most = bars.iter().flat_map(|bar| [bar.measured_mb_s, bar.predicted_mb_s]).flatten().fold(0.0, f64::max);
    let scale = Scale::decimal(most * 1.04, 5.0);
    let mut svg = Svg::new(WIDTH, PANEL * directions.len() as f64);
    for (number, direction) in directions.iter().enumerate() {
        let of_panel: Vec<&Bar> = bars.iter().filter(|bar| bar.direction == *direction).collect();
        panel(&mut svg, PANEL * number as f64, *direction, &of_panel, scale);
    }
    svg.finish("Bandwidth of each policy by request size, reads and writes apart, with the model's prediction")
}

pub(super) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "Reads",
        Direction::Write => "Writes",
    }
}

fn panel(svg: &mut Svg, top: f64, direction: Direction, bars: &[&Bar], scale: Scale) {
    let owned: Vec<Bar> = bars.iter().map(|bar| (*bar).clone()).collect();
    let sizes = distinct(&owned, |bar| bar.request_bytes);
    let policies = distinct(&owned, |bar| bar.policy.clone());
    let floor = top + 40.0 + PLOT;
    svg.text((LEFT, top + 16.0), Anchor::Start, "panel-title", format!("{}, MB/s", direction_name(direction)));
    for tick in scale.ticks() {
        let y = floor - scale.at(tick, PLOT);
        svg.line((LEFT, y), (WIDTH, y), if tick == 0.0 { "axis" } else { "grid" });
        svg.text((LEFT - 8.0, y + 4.0), Anchor::End, "tick", number(tick));
    }
    let group = (WIDTH - LEFT) / sizes.len() as f64;
    let width = ((group - 28.0) / policies.len() as f64).min(MOST_BAR);
    for (at, size) in sizes.iter().enumerate() {
        let middle = LEFT + group * (at as f64 + 0.5);
        let start = middle - width * policies.len() as f64 / 2.0;
        for (place, policy) in policies.iter().enumerate() {
            let found = bars.iter().find(|bar| bar.request_bytes == *size && &bar.policy == policy);
            if let Some(bar) = found {
                one(svg, bar, start + width * place as f64, width, floor, scale);
            }
        }
        let label = size.map_or_else(|| "whole run".to_owned(), bytes);
        svg.text((middle, floor + 20.0), Anchor::Middle, "tick strong", label);
    }
}

fn one(svg: &mut Svg, bar: &Bar, x: f64, width: f64, floor: f64, scale: Scale) {
    let inner = [x + width * 0.07, width * 0.86];
    let class = policy_class(&bar.policy);
    let size = bar.request_bytes.map_or_else(String::new, |size| format!(" at {}", bytes(size)));
    let said = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{} MB/s", number(value)));
    let title =
        format!("{}{size}: measured {}, predicted {}", bar.policy, said(bar.measured_mb_s), said(bar.predicted_mb_s));
    let shown = bar.measured_mb_s.filter(|_| !bar.host_bound);
    let height = shown.or(bar.predicted_mb_s).map_or(0.0, |value| scale.at(value, PLOT));
    if bar.host_bound {
        svg.text((x + width / 2.0, floor - 6.0), Anchor::Middle, "value quiet", "host");
        return;
    }
    let class = if shown.is_some() { format!("bar {class}") } else { format!("bar foretold {class}") };
    svg.rect([inner[0], floor - height, inner[1], height], &class, &title);
    let mut label_at = floor - height;
    if let (Some(_), Some(predicted)) = (shown, bar.predicted_mb_s) {
        let y = floor - scale.at(predicted, PLOT);
        svg.line((x, y), (x + width, y), "marker-halo");
        svg.line((x, y), (x + width, y), "marker");
        if (y - label_at).abs() < 19.0 {
            label_at = label_at.min(y);
        }
    }
    if let Some(value) = shown.or(bar.predicted_mb_s) {
        svg.text((x + width / 2.0, label_at - 5.0), Anchor::Middle, "value", number(value.round()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(policy: &str, measured_mb_s: Option<f64>, host_bound: bool) -> Bar {
        Bar {
            policy: policy.into(),
            direction: Direction::Read,
            request_bytes: Some(65536),
            measured_mb_s,
            predicted_mb_s: Some(90.0),
            host_bound,
        }
    }

    #[test]
    fn a_host_bound_run_shows_no_figure() {
        let chart = chart(&[bar("def", Some(40.0), false), bar("h2dp", Some(777.0), true)]);
        assert!(chart.contains(">40<") && chart.contains(">host<") && !chart.contains(">777<"), "{chart}");
        assert!(chart.contains("64 KiB") && chart.contains("Reads, MB/s") && !chart.contains("Writes"));
    }

    #[test]
    fn without_a_run_the_prediction_is_the_bar() {
        let chart = chart(&[bar("h2dp", None, false)]);
        assert!(chart.contains("foretold") && chart.contains(">90<"), "{chart}");
    }
}
