//! Bandwidth of each policy: one panel for each operation, in it one column for each request size and one row for each policy.
//!
//! Rows name their policies, so that colour is only a help, and eleven policies are as legible as two.

use super::scale::Scale;
use super::svg::{Anchor, Svg};
use crate::results::{Results, RunResult};
use stripewise_layout::Direction;
use stripewise_layout::figures::{bytes, number};
use stripewise_planner::{PolicyName, within};

/// What a bandwidth is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Operation {
    Only(Direction),
    Both,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Only(direction) => direction_name(direction),
            Operation::Both => "Reads and writes together",
        }
    }
}

/// One bar.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Bar {
    pub(super) policy: String,
    pub(super) operation: Operation,
    /// None where the figure is of a whole run with requests of many sizes.
    pub(super) request_bytes: Option<u64>,
    /// Measured or simulated; None when there is only a prediction.
    pub(super) found_mb_s: Option<f64>,
    pub(super) predicted_mb_s: Option<f64>,
    /// Relative spread of the prediction.
    pub(super) predicted_spread: f64,
    /// The machine and not the devices was the bottleneck: no result.
    pub(super) host_bound: bool,
}

impl Bar {
    /// Of the prediction: a time that is longer or shorter by its spread.
    fn range(&self) -> Option<(f64, f64)> {
        let predicted = self.predicted_mb_s?;
        Some((predicted * (1.0 - self.predicted_spread).max(0.0), predicted * (1.0 + self.predicted_spread)))
    }
}

/// A bandwidth that no placement by the layouts that were weighed exceeds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Bound {
    pub(super) operation: Operation,
    pub(super) request_bytes: Option<u64>,
    pub(super) mb_s: f64,
}

pub(super) const BOUND: &str = "bound of the layout set";

/// The bars of measured runs, by operation and size; policies keep the order in which they ran.
pub(super) fn of_results(results: &Results) -> Vec<Bar> {
    let bar = |run: &RunResult| Bar {
        policy: run.policy.clone(),
        operation: Operation::Only(run.op),
        request_bytes: Some(run.request_bytes),
        found_mb_s: Some(run.bandwidth_mb_s),
        predicted_mb_s: run.predicted_mb_s,
        predicted_spread: run.predicted_spread,
        host_bound: run.host_bound,
    };
    let mut bars: Vec<Bar> = results.runs.iter().map(bar).collect();
    bars.sort_by_key(|bar| (bar.operation, bar.request_bytes));
    bars
}

/// Reads and writes of the same policy and size as one run, the one after the other.
pub(super) fn together(results: &Results) -> Vec<Bar> {
    let writes = results.runs.iter().filter(|run| run.op == Direction::Write);
    let mut bars: Vec<Bar> = writes
        .filter_map(|write| {
            let same = |run: &&RunResult| {
                run.op == Direction::Read && run.policy == write.policy && run.request_bytes == write.request_bytes
            };
            let read = results.runs.iter().find(same)?;
            let (first, second) = (write.bytes as f64, read.bytes as f64);
            let rate = |write_mb_s: f64, read_mb_s: f64| (first + second) / (first / write_mb_s + second / read_mb_s);
            Some(Bar {
                policy: write.policy.clone(),
                operation: Operation::Both,
                request_bytes: Some(write.request_bytes),
                found_mb_s: Some(rate(write.bandwidth_mb_s, read.bandwidth_mb_s)),
                predicted_mb_s: write.predicted_mb_s.zip(read.predicted_mb_s).map(|(write, read)| rate(write, read)),
                predicted_spread: write.predicted_spread.max(read.predicted_spread),
                host_bound: write.host_bound || read.host_bound,
            })
        })
        .collect();
    bars.sort_by_key(|bar| bar.request_bytes);
    bars
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 70.0;
const GAP: f64 = 18.0;
/// Room for the figure behind the longest bar.
const FIGURE: f64 = 40.0;
const HEAD: f64 = 48.0;
const ROW: f64 = 20.0;
const FOOT: f64 = 38.0;
const BOUND_FOOT: f64 = 16.0;
/// A bound so many times above all bars is said rather than drawn: it would press the bars flat.
const FAR: f64 = 2.5;

/// Classes that paint policies, by their positions in the table of policies.
const POLICY_CLASSES: [&str; 14] =
    ["p-0", "p-1", "p-2", "p-3", "p-4", "p-5", "p-6", "p-7", "p-8", "p-9", "p-10", "p-11", "p-12", "p-13"];

/// The class that paints a policy. What is no policy's name, and policies beyond the colours that there are, share one.
pub(super) fn policy_class(policy: &str) -> &'static str {
    let position = policy.parse().ok().map(PolicyName::position);
    position.and_then(|position| POLICY_CLASSES.get(position)).copied().unwrap_or("p-other")
}

/// Whether the policy states a bound, which others are compared with.
fn states_bound(policy: &str) -> bool {
    policy.parse().is_ok_and(PolicyName::states_bound)
}

/// The values in the order in which they first occur.
pub(super) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// The chart; an empty text without bars. `found` says what the figures are: measured or simulated.
pub(super) fn chart(bars: &[Bar], bounds: &[Bound], found: &str) -> String {
    if bars.is_empty() {
        return String::new();
    }
    let operations = distinct(bars.iter().map(|bar| bar.operation));
    let most =
        bars.iter().flat_map(|bar| [bar.found_mb_s, bar.range().map(|(_, high)| high)]).flatten().fold(0.0, f64::max);
    let near = bounds.iter().map(|bound| bound.mb_s).filter(|bound| *bound <= most * FAR);
    let columns = distinct(bars.iter().map(|bar| bar.request_bytes)).len();
    let scale = Scale::decimal(near.fold(most, f64::max), if columns > 2 { 3.0 } else { 6.0 });
    let panels: Vec<Panel<'_>> = operations
        .into_iter()
        .map(|operation| Panel {
            operation,
            bars: bars.iter().filter(|bar| bar.operation == operation).collect(),
            bounds: bounds.iter().filter(|bound| bound.operation == operation).collect(),
            scale,
            found,
        })
        .collect();
    let mut svg = Svg::new(WIDTH, panels.iter().map(Panel::height).sum());
    let mut top = 0.0;
    for panel in &panels {
        panel.draw(&mut svg, top);
        top += panel.height();
    }
    svg.finish(&format!("Bandwidth of each policy, {found}"), &spoken(bars))
}

/// The slowest and the fastest bar of each operation; all figures stand in a table beside the chart.
fn spoken(bars: &[Bar]) -> String {
    let rate = |bar: &Bar| if bar.host_bound { None } else { bar.found_mb_s.or(bar.predicted_mb_s) };
    let mut text = String::new();
    for operation in distinct(bars.iter().map(|bar| bar.operation)) {
        let rated = bars.iter().filter(|bar| bar.operation == operation).filter_map(|bar| Some((bar, rate(bar)?)));
        let (mut least, mut most) = (None::<(&Bar, f64)>, None::<(&Bar, f64)>);
        for one in rated {
            least = least.filter(|known| known.1 <= one.1).or(Some(one));
            most = most.filter(|known| known.1 >= one.1).or(Some(one));
        }
        if let Some((least, most)) = least.zip(most) {
            let [slowest, fastest] =
                [least, most].map(|(bar, rate)| format!("{} with {} MB/s", bar.policy, number(rate)));
            text += &format!("{}: slowest {slowest}, fastest {fastest}. ", operation.name());
        }
    }
    text + "The table next to the chart has all figures."
}

pub(super) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "Reads",
        Direction::Write => "Writes",
    }
}

struct Panel<'a> {
    operation: Operation,
    bars: Vec<&'a Bar>,
    bounds: Vec<&'a Bound>,
    scale: Scale,
    found: &'a str,
}

/// Where one column of bars is.
struct Column {
    left: f64,
    width: f64,
    top: f64,
    floor: f64,
}

impl Panel<'_> {
    fn policies(&self) -> Vec<&str> {
        distinct(self.bars.iter().map(|bar| bar.policy.as_str()))
    }

    fn height(&self) -> f64 {
        let bound = if self.bounds.is_empty() { 0.0 } else { BOUND_FOOT };
        HEAD + ROW * self.policies().len() as f64 + FOOT + bound
    }

    fn draw(&self, svg: &mut Svg, top: f64) {
        let policies = self.policies();
        let sizes = distinct(self.bars.iter().map(|bar| bar.request_bytes));
        let head = top + HEAD;
        let floor = head + ROW * policies.len() as f64;
        svg.text((0.0, top + 16.0), Anchor::Start, "panel-title", format!("{}, MB/s", self.operation.name()));
        for (row, policy) in policies.iter().enumerate() {
            let class = if states_bound(policy) { "name strong" } else { "name" };
            svg.text((LEFT - 10.0, head + ROW * row as f64 + 14.0), Anchor::End, class, policy);
        }
        let pitch = (WIDTH - LEFT + GAP) / sizes.len() as f64;
        for (at, size) in sizes.iter().enumerate() {
            let left = LEFT + pitch * at as f64;
            let column = Column { left, width: pitch - GAP - FIGURE, top: head, floor };
            let label = size.map_or_else(|| "whole run".to_owned(), bytes);
            svg.text((left, head - 9.0), Anchor::Start, "tick strong", label);
            self.axis(svg, &column);
            for (row, policy) in policies.iter().enumerate() {
                let found = self.bars.iter().find(|bar| bar.request_bytes == *size && bar.policy == *policy);
                if let Some(bar) = found {
                    self.bar(svg, bar, &column, head + ROW * row as f64);
                }
            }
            for bound in self.bounds.iter().filter(|bound| bound.request_bytes == *size) {
                self.bound(svg, bound, &column);
            }
        }
    }

    fn axis(&self, svg: &mut Svg, column: &Column) {
        for tick in self.scale.ticks() {
            let x = column.left + self.scale.at(tick, column.width);
            svg.line((x, column.top - 2.0), (x, column.floor + 2.0), if tick == 0.0 { "axis" } else { "grid" });
            let anchor = if tick == 0.0 { Anchor::Start } else { Anchor::Middle };
            svg.text((x, column.floor + 16.0), anchor, "tick", number(tick));
        }
    }

    fn bar(&self, svg: &mut Svg, bar: &Bar, column: &Column, y: f64) {
        let class = policy_class(&bar.policy);
        let size = bar.request_bytes.map_or_else(String::new, |size| format!(" at {}", bytes(size)));
        let said = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{} MB/s", number(value)));
        let range = bar.predicted_mb_s.map_or_else(String::new, |_| format!(" {}", within(bar.predicted_spread)));
        if bar.host_bound {
            svg.text((column.left + 5.0, y + 14.0), Anchor::Start, "value quiet", "host");
            return;
        }
        let title = format!(
            "{}{size}: {} {}, predicted {}{range}",
            bar.policy,
            self.found,
            said(bar.found_mb_s),
            said(bar.predicted_mb_s)
        );
        let Some(value) = bar.found_mb_s.or(bar.predicted_mb_s) else { return };
        let length = self.scale.at(value, column.width);
        let class = if bar.found_mb_s.is_some() { format!("bar {class}") } else { format!("bar foretold {class}") };
        svg.rect([column.left, y + 3.0, length, ROW - 6.0], &class, &title);
        let mut label_at = column.left + length;
        if let Some((low, high)) = bar.range() {
            let [from, to] = [low, high].map(|end| column.left + self.scale.at(end, column.width));
            let middle = y + ROW / 2.0;
            svg.line((from, middle), (to, middle), "reach-halo");
            svg.line((from, middle), (to, middle), "reach");
            if to > label_at - 4.0 && from < label_at + FIGURE {
                label_at = label_at.max(to);
            }
        }
        if let (Some(_), Some(predicted)) = (bar.found_mb_s, bar.predicted_mb_s) {
            let x = column.left + self.scale.at(predicted, column.width);
            svg.line((x, y + 1.0), (x, y + ROW - 1.0), "marker-halo");
            svg.line((x, y + 1.0), (x, y + ROW - 1.0), "marker");
            // The figure gives way to a mark that would cross it.
            if x > label_at - 4.0 && x < label_at + FIGURE {
                label_at = label_at.max(x);
            }
        }
        svg.text((label_at + 5.0, y + 14.0), Anchor::Start, "value", number(value.round()));
    }

    fn bound(&self, svg: &mut Svg, bound: &Bound, column: &Column) {
        let x = column.left + self.scale.at(bound.mb_s, column.width);
        let text = format!("{BOUND} {}", number(bound.mb_s.round()));
        let y = column.floor + 16.0 + BOUND_FOOT;
        if bound.mb_s > self.scale.top {
            svg.text((column.left, y), Anchor::Start, "bound-name", format!("{text} \u{2192}"));
            return;
        }
        svg.line((x, column.top - 6.0), (x, column.floor + 4.0), "bound");
        let is_left = x < column.left + column.width / 2.0;
        svg.text((x, y), if is_left { Anchor::Start } else { Anchor::End }, "bound-name", text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::samples::run;

    fn bar(policy: &str, found_mb_s: Option<f64>, host_bound: bool) -> Bar {
        Bar {
            policy: policy.into(),
            operation: Operation::Only(Direction::Read),
            request_bytes: Some(65536),
            found_mb_s,
            predicted_mb_s: Some(90.0),
            predicted_spread: 0.1,
            host_bound,
        }
    }

    #[test]
    fn a_host_bound_run_shows_no_figure() {
        let chart = chart(&[bar("def", Some(40.0), false), bar("h2dp", Some(777.0), true)], &[], "measured");
        assert!(chart.contains(">40<") && chart.contains(">host<") && !chart.contains(">777<"), "{chart}");
        assert!(chart.contains("64 KiB") && chart.contains("Reads, MB/s") && !chart.contains("Writes"));
    }

    #[test]
    fn without_a_run_the_prediction_is_the_bar() {
        let chart = chart(&[bar("h2dp", None, false)], &[], "measured");
        assert!(chart.contains("foretold") && chart.contains(">90<"), "{chart}");
    }

    #[test]
    fn every_policy_has_a_row_and_a_colour_of_its_own() {
        let classes: std::collections::HashSet<_> =
            PolicyName::ALL.iter().map(|policy| policy_class(policy.name())).collect();
        assert!(classes.len() == PolicyName::ALL.len() && !classes.contains("p-other"), "{classes:?}");
        let style = include_str!("style.css");
        assert!(POLICY_CLASSES.iter().chain(&["p-other"]).all(|class| style.contains(&format!(".{class} {{"))));
        assert_eq!((policy_class("a plan"), policy_class("def")), ("p-other", "p-0"));
        let bars: Vec<Bar> = PolicyName::ALL.iter().map(|policy| bar(policy.name(), Some(40.0), false)).collect();
        let chart = chart(&bars, &[], "measured");
        for policy in PolicyName::ALL {
            assert!(chart.contains(&format!(">{policy}</text>")), "{policy}");
        }
    }

    #[test]
    fn a_bound_is_a_line_where_it_holds_and_is_only_said_when_far_off() {
        let bound = |mb_s, request_bytes| Bound { operation: Operation::Only(Direction::Read), request_bytes, mb_s };
        let bars = [bar("def", Some(40.0), false)];
        let near = chart(&bars, &[bound(100.0, Some(65536))], "measured");
        // The axis ends at 100, the column is 850 wide.
        assert!(
            near.contains(r#"<line class="bound" x1="920""#) && near.contains("bound of the layout set 100"),
            "{near}"
        );
        let far = chart(&bars, &[bound(1000.0, Some(65536))], "measured");
        assert!(!far.contains(r#"class="bound""#) && far.contains("bound of the layout set 1,000 \u{2192}"), "{far}");
        let elsewhere = chart(&bars, &[bound(100.0, Some(4096))], "measured");
        assert!(!elsewhere.contains(">bound of"), "{elsewhere}");
    }

    #[test]
    fn reads_and_writes_together_take_the_sum_of_their_times() {
        let mut read = run("opt", Direction::Read, 65536, 300.0);
        let write = run("opt", Direction::Write, 65536, 100.0);
        read.host_bound = true;
        let runs = vec![write, read, run("def", Direction::Write, 65536, 5.0)];
        let null = serde_json::Value::Null;
        let results = Results { version: 1, emulated: true, runs, profile: null.clone(), cluster: null, live: None };
        let bars = together(&results);
        assert_eq!(bars.len(), 1, "def has no reads");
        assert!((bars[0].found_mb_s.unwrap() - 150.0).abs() < 1e-9 && bars[0].host_bound);
    }
}
