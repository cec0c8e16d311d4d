//! Busy seconds of every server under each plan, side by side on one scale.

use super::scale::Scale;
use super::svg::{Anchor, Svg};
use stripewise_layout::ServerClass;
use stripewise_layout::figures::{duration, number};

/// The predicted service seconds of each server under one plan.
pub(super) struct Load<'a> {
    pub(super) policy: &'a str,
    pub(super) seconds: &'a [f64],
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 76.0;
const ROW: f64 = 15.0;
const TOP: f64 = 44.0;
const GAP: f64 = 26.0;
const FOOT: f64 = 30.0;
/// Plans side by side; narrower columns could not be read.
const MAX_COLUMNS: usize = 4;

/// The busiest server over the mean of those that serve anything: 1 is perfect balance.
pub(super) fn imbalance(seconds: &[f64]) -> Option<f64> {
    let busy: Vec<f64> = seconds.iter().copied().filter(|seconds| *seconds > 0.0).collect();
    let mean = busy.iter().sum::<f64>() / busy.len() as f64;
    (!busy.is_empty()).then(|| busy.iter().copied().fold(0.0, f64::max) / mean)
}

/// The chart; an empty text without plans.
pub(super) fn chart(servers: &[(&str, ServerClass)], loads: &[Load<'_>]) -> String {
    if loads.is_empty() || servers.is_empty() {
        return String::new();
    }
    let most = loads.iter().flat_map(|load| load.seconds).copied().fold(0.0, f64::max);
    // As many columns in each row as leave the last row least empty.
    let per_row = loads.len().div_ceil(loads.len().div_ceil(MAX_COLUMNS));
    let width = ((WIDTH - LEFT) - GAP * (per_row - 1) as f64) / per_row as f64;
    let scale = Scale::time(most, if per_row > 2 { 2.0 } else { 4.0 });
    let height = TOP + ROW * servers.len() as f64 + FOOT;
    let mut svg = Svg::new(WIDTH, height * loads.len().div_ceil(per_row) as f64);
    for (number, loads) in loads.chunks(per_row).enumerate() {
        let top = height * number as f64;
        for (row, (name, _)) in servers.iter().enumerate() {
            svg.text((LEFT - 8.0, top + TOP + ROW * row as f64 + 11.0), Anchor::End, "tick small", name);
        }
        for (column, load) in loads.iter().enumerate() {
            let left = LEFT + (width + GAP) * column as f64;
            one(&mut svg, (left, top), width, scale, servers, load);
        }
    }
    let words = loads.iter().map(|load| {
        let busiest = servers.iter().zip(load.seconds).max_by(|one, other| one.1.total_cmp(other.1));
        let busiest =
            busiest.map_or_else(String::new, |((name, _), seconds)| format!(", {name} for {}", duration(*seconds)));
        let balance =
            imbalance(load.seconds).map_or_else(String::new, |found| format!(", {} times the mean", number(found)));
        format!("{}: busiest{busiest}{balance}", load.policy)
    });
    let description = words.collect::<Vec<_>>().join("; ");
    svg.finish("Predicted busy time of each server under each plan", &description)
}

fn one(
    svg: &mut Svg,
    (left, top): (f64, f64),
    width: f64,
    scale: Scale,
    servers: &[(&str, ServerClass)],
    load: &Load<'_>,
) {
    svg.text((left, top + 16.0), Anchor::Start, "panel-title", load.policy);
    if let Some(imbalance) = imbalance(load.seconds) {
        let text = format!(
            "busiest {} \u{b7} {}\u{d7} the mean",
            duration(load.seconds.iter().copied().fold(0.0, f64::max)),
            number(imbalance)
        );
        svg.text((left, top + 32.0), Anchor::Start, "note", text);
    }
    let first = top + TOP;
    let floor = first + ROW * servers.len() as f64;
    for tick in scale.ticks() {
        let x = left + scale.at(tick, width);
        svg.line((x, first - 2.0), (x, floor), if tick == 0.0 { "axis" } else { "grid" });
        let anchor = if tick == 0.0 { Anchor::Start } else { Anchor::End };
        svg.text((x, floor + 15.0), anchor, "tick", duration(tick));
    }
    for (row, ((name, class), seconds)) in servers.iter().zip(load.seconds).enumerate() {
        let bar = [left, first + ROW * row as f64 + 2.0, scale.at(*seconds, width), ROW - 4.0];
        svg.rect(bar, &format!("bar c-{class}"), &format!("{name} under {}: {}", load.policy, duration(*seconds)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balance_is_judged_over_the_servers_that_serve() {
        assert_eq!(imbalance(&[2.0, 2.0, 0.0]), Some(1.0));
        assert_eq!(imbalance(&[1.0, 3.0]), Some(1.5));
        assert_eq!(imbalance(&[0.0]), None);
    }

    #[test]
    fn every_server_has_its_bar_under_every_plan() {
        let servers = [("hdd0", ServerClass::Hdd), ("ssd0", ServerClass::Ssd)];
        let loads = [Load { policy: "def", seconds: &[3.0, 1.0] }, Load { policy: "h2dp", seconds: &[1.0, 1.0] }];
        let chart = chart(&servers, &loads);
        for title in ["hdd0 under def: 3 s", "ssd0 under h2dp: 1 s"] {
            assert!(chart.contains(title), "{title}");
        }
    }

    #[test]
    fn many_plans_are_broken_into_rows_of_equal_length() {
        let servers = [("hdd0", ServerClass::Hdd)];
        let loads: Vec<Load<'_>> = (0..5).map(|_| Load { policy: "def", seconds: &[1.0] }).collect();
        // Three and two: two rows of names, each 44 + 15 + 30 high.
        let chart = chart(&servers, &loads);
        assert_eq!(chart.matches(">hdd0</text>").count(), 2);
        assert!(chart.contains("viewBox=\"0 0 960 178\""), "{chart}");
    }
}
