//! Bandwidth over time of a program whose hot set changes, on regions that stay and on regions that are moved meanwhile; beneath it what
//! movers wrote.
//!
//! The two lines differ in lightness, hue and width, and each is named at its end.

use super::scale::Scale;
use super::svg::{Anchor, Path, Svg};
use crate::results::{LiveResult, LiveRun};
use stripewise_layout::figures::{duration, number};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 96.0;
/// For the names of lines.
const RIGHT: f64 = 118.0;
const PLOT: f64 = WIDTH - LEFT - RIGHT;
const HEAD: f64 = 40.0;
const RATE: f64 = 210.0;
const BETWEEN: f64 = 16.0;
const COPIED: f64 = 48.0;
/// More slices than this are no picture.
const MAX_SLICES: usize = 2000;

/// A run's part of a slice of time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Slice {
    pub(super) start_s: f64,
    pub(super) end_s: f64,
    pub(super) mb_s: f64,
    pub(super) copied_mb_s: f64,
}

/// The slices of a run up to its end; a last one of less than half the length says little and is left out. None where the figures make no time.
pub(super) fn slices(live: &LiveResult, run: &LiveRun) -> Vec<Slice> {
    let (slice_s, end_s) = (live.slice_s, run.end_s());
    if !(slice_s > 0.0 && slice_s.is_finite() && end_s.is_finite()) || run.slice_bytes.len() > MAX_SLICES {
        return Vec::new();
    }
    let slice = |(number, bytes): (usize, &u64)| {
        let start_s = number as f64 * slice_s;
        let slice_end_s = (start_s + slice_s).min(end_s);
        let length_s = slice_end_s - start_s;
        let rate = |bytes: u64| bytes as f64 / 1e6 / length_s;
        let copied = run.slice_copied_bytes.get(number).copied().unwrap_or(0);
        (length_s >= slice_s / 2.0).then(|| Slice {
            start_s,
            end_s: slice_end_s,
            mb_s: rate(*bytes),
            copied_mb_s: rate(copied),
        })
    };
    let found: Vec<Slice> = run.slice_bytes.iter().enumerate().filter_map(slice).collect();
    let is_sound = found.iter().all(|slice| slice.mb_s.is_finite() && slice.copied_mb_s.is_finite());
    if is_sound { found } else { Vec::new() }
}

struct Axes {
    span_s: f64,
    rate: Scale,
    copied: Scale,
}

impl Axes {
    fn x(&self, time_s: f64) -> f64 {
        LEFT + (time_s / self.span_s).clamp(0.0, 1.0) * PLOT
    }

    fn y(&self, mb_s: f64) -> f64 {
        HEAD + RATE - self.rate.at(mb_s, RATE)
    }
}

/// Empty where there is nothing to draw.
pub(super) fn chart(live: &LiveResult) -> String {
    let runs: Vec<(&LiveRun, Vec<Slice>)> = live.runs.iter().map(|run| (run, slices(live, run))).collect();
    let all = || runs.iter().flat_map(|(_, slices)| slices);
    let most = |of: fn(&Slice) -> f64| all().map(of).fold(0.0, f64::max);
    let span_s = most(|slice| slice.end_s);
    if span_s <= 0.0 {
        return String::new();
    }
    let axes = Axes {
        span_s,
        rate: Scale::decimal(most(|slice| slice.mb_s), 4.0),
        copied: Scale::decimal(most(|slice| slice.copied_mb_s), 1.0),
    };
    let copied_base = HEAD + RATE + BETWEEN + COPIED;
    let mut svg = Svg::new(WIDTH, copied_base + 42.0);
    svg.rect([LEFT, HEAD, PLOT, RATE], "plot", "");
    if let Some((run, slices)) = runs.iter().find(|(run, _)| run.migrate) {
        band(&mut svg, run, slices, &axes);
        copied(&mut svg, slices, &axes, copied_base);
    }
    grid(&mut svg, &axes);
    change(&mut svg, live, &axes);
    for (run, slices) in &runs {
        line(&mut svg, run, slices, &axes);
    }
    time_axis(&mut svg, &axes, copied_base);
    svg.finish(
        "Bandwidth over time before and after the hot set changes, without and with moves; beneath it what movers wrote",
        "The tables of this section have the figures of both halves, and the values over time.",
    )
}

/// Where movers were at work. Moves are ordered by the change, which may lie within a slice.
fn band(svg: &mut Svg, run: &LiveRun, slices: &[Slice], axes: &Axes) {
    let moving = |slice: &&Slice| slice.copied_mb_s > 0.0;
    let (Some(first), Some(last)) = (slices.iter().find(moving), slices.iter().rfind(moving)) else { return };
    let changed_s = run.changed_s().filter(|changed_s| *changed_s < first.end_s);
    let (from, to) = (axes.x(changed_s.map_or(first.start_s, |s| s.max(first.start_s))), axes.x(last.end_s));
    svg.rect([from, HEAD, to - from, RATE + BETWEEN + COPIED], "moving-band", "regions are moved");
}

fn copied(svg: &mut Svg, slices: &[Slice], axes: &Axes, base: f64) {
    let mut bars = Path::default();
    for slice in slices.iter().filter(|slice| slice.copied_mb_s > 0.0) {
        let height = axes.copied.at(slice.copied_mb_s, COPIED);
        let (x, next) = (axes.x(slice.start_s), axes.x(slice.end_s));
        bars.rect([x + 0.5, base - height, (next - x - 1.0).max(0.5), height]);
    }
    svg.path(&bars, r#"class="cell copied""#);
    for (tick, class) in [(0.0, "axis"), (axes.copied.top, "grid over")] {
        let y = base - axes.copied.at(tick, COPIED);
        svg.line((LEFT, y), (LEFT + PLOT, y), class);
        svg.text((LEFT - 8.0, y + 4.0), Anchor::End, "tick", number(tick));
    }
    let middle = base - COPIED / 2.0 + 4.0;
    svg.text((LEFT - 8.0, middle), Anchor::End, "unit", "moves, MB/s");
}

fn grid(svg: &mut Svg, axes: &Axes) {
    for tick in axes.rate.ticks() {
        let y = axes.y(tick);
        svg.line((LEFT, y), (LEFT + PLOT, y), if tick == 0.0 { "axis" } else { "grid over" });
        svg.text((LEFT - 8.0, y + 4.0), Anchor::End, "tick", number(tick));
    }
    svg.text((LEFT - 8.0, HEAD - 10.0), Anchor::End, "unit", "MB/s");
}

/// Runs that change within a slice of each other share a mark.
fn change(svg: &mut Svg, live: &LiveResult, axes: &Axes) {
    let mut marked: Vec<f64> = Vec::new();
    for changed_s in live.runs.iter().rev().filter_map(LiveRun::changed_s).filter(|time_s| time_s.is_finite()) {
        if marked.iter().any(|other| (other - changed_s).abs() < live.slice_s) {
            continue;
        }
        marked.push(changed_s);
        let x = axes.x(changed_s);
        svg.line((x, HEAD - 6.0), (x, HEAD + RATE + BETWEEN + COPIED), "change");
    }
    if let Some(first) = marked.iter().copied().reduce(f64::min) {
        let note = format!("the hot set changes, {}", duration(first));
        svg.text((axes.x(first), HEAD - 12.0), Anchor::Middle, "note strong", note);
    }
}

/// The class of a run's line, and its name.
pub(super) fn kind(migrate: bool) -> (&'static str, &'static str) {
    if migrate { ("live-moving", "regions move") } else { ("live-staying", "regions stay") }
}

fn line(svg: &mut Svg, run: &LiveRun, slices: &[Slice], axes: &Axes) {
    let middle = |slice: &Slice| (axes.x((slice.start_s + slice.end_s) / 2.0), axes.y(slice.mb_s));
    let mut path = Path::default();
    path.polyline(slices.iter().map(middle));
    let (class, name) = kind(run.migrate);
    let host_bound = if run.host_bound { " host-bound" } else { "" };
    svg.path(&path, r#"class="live-halo""#);
    svg.path(&path, &format!(r#"class="live {class}{host_bound}""#));
    let Some((x, y)) = slices.last().map(middle) else { return };
    svg.text((x + 9.0, y + 1.0), Anchor::Start, &format!("end t-{class}"), name);
    let ends = if run.host_bound { "host-bound".to_owned() } else { format!("done, {}", duration(run.end_s())) };
    svg.text((x + 9.0, y + 15.0), Anchor::Start, "note", ends);
}

fn time_axis(svg: &mut Svg, axes: &Axes, base: f64) {
    let time = Scale::time(axes.span_s, 8.0);
    for tick in time.ticks().take_while(|tick| *tick <= axes.span_s * (1.0 + 1e-9)) {
        let x = axes.x(tick);
        svg.line((x, base), (x, base + 4.0), "axis");
        svg.text((x, base + 17.0), Anchor::Middle, "tick", duration(tick));
    }
    svg.text((LEFT + PLOT / 2.0, base + 36.0), Anchor::Middle, "unit", "time since the ranks' start");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::samples::live;

    #[test]
    fn lines_go_through_the_middles_of_slices_and_end_with_their_names() {
        let chart = chart(&live());
        // 746 wide for 12 s, 210 high for 40 MB/s of the first half; the floor is at 250.
        assert!(chart.contains(r#"class="live live-staying" d="M111.54 40L142.63 40"#), "{chart}");
        assert!(chart.contains("L360.21 145L"), "20 MB/s after the change: {chart}");
        assert!(chart.contains(">regions stay</text>") && chart.contains(">done, 8.5 s</text>"), "{chart}");
        // Eight MiB in half a second are 16.8 MB/s, for two seconds from the change on.
        assert!(chart.contains(r#"class="moving-band" x="344.67" y="40" width="124.33""#), "{chart}");
        assert_eq!(chart.matches(r#"class="change""#).count(), 1, "both runs change at once");
        assert!(!chart.contains("host-bound"));
    }

    #[test]
    fn a_run_that_the_machine_paced_is_marked_and_two_changes_have_two_marks() {
        let mut live = live();
        live.runs[0].host_bound = true;
        live.runs[1].halves[1].start_s = 3.0;
        let chart = chart(&live);
        assert!(chart.contains("live-staying host-bound") && chart.contains(">host-bound</text>"), "{chart}");
        assert_eq!(chart.matches(r#"class="change""#).count(), 2);
    }

    #[test]
    fn a_short_last_slice_is_left_out_and_senseless_times_draw_nothing() {
        let mut live = live();
        live.runs[1].halves[1].seconds = 4.2;
        let last = slices(&live, &live.runs[1]).last().copied().unwrap();
        assert_eq!((last.start_s, last.end_s), (7.5, 8.0));
        for (slice_s, seconds) in [(0.0, 4.0), (-1.0, 4.0), (1e308, 4.0), (0.5, 1e308), (0.5, -9.0)] {
            live.slice_s = slice_s;
            live.runs.iter_mut().flat_map(|run| &mut run.halves).for_each(|half| half.seconds = seconds);
            let chart = chart(&live);
            assert!(!chart.contains("NaN") && !chart.contains("inf"), "{slice_s} {seconds}: {chart}");
        }
        live.runs.clear();
        assert_eq!(chart(&live), "");
    }
}
