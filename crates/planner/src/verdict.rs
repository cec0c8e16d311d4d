//! Whether a plan is worth its move, said in a sentence.
//!
//! Placing the data costs its writing, all servers at once, sequentially, as the profile predicts; reading it from where it is now is not
//! known to the model and not counted. Moves between windows recur in every run and are taken off what a run saves.

use crate::fit::{self, Unfit};
use crate::moves::{move_seconds, per_server_seconds};
use crate::plan::{Gain, PlannedFile, Verdict};
use crate::policy::Task;
use crate::predict::{MODEL_SPREAD, within};
use stripewise_layout::figures::{bytes, duration};
use stripewise_layout::{Direction, Layout, Order, Placement, RegionGeometry, RegionIndex};
use stripewise_model::{Profile, ServerProfile};

/// `plan_s` is what a run is predicted to take, `gain` what it gains over `def` by that, `unfit` what the servers have no space for.
pub(crate) fn verdict(
    task: &Task<'_>,
    files: &[PlannedFile],
    (plan_s, saved_s): (f64, f64),
    gain: Gain,
    unfit: &[Unfit],
) -> Verdict {
    let profile = task.request.profile;
    let mut load_s = vec![0.0; task.groups.count];
    let (mut place_bytes, mut move_bytes, mut move_s) = (0, 0, 0.0);
    for file in files {
        place_bytes += file.size_bytes;
        add_load(&mut load_s, profile, file.initial(), file.size_bytes, Direction::Write);
        let mut from: Vec<&Layout> = layouts_by_region(file.initial()).collect();
        for window in &file.windows[1..] {
            let to: Vec<&Layout> = layouts_by_region(&window.placement).collect();
            for one in &window.moves {
                let region = one.region.0 as usize;
                move_bytes += one.bytes;
                move_s += move_seconds(profile, from[region], to[region], one.bytes);
            }
            from = to;
        }
    }
    let place_s = load_s.into_iter().fold(0.0, f64::max);
    let spread = placing_spread(profile);
    let costs = Costs { place_bytes, place_s, move_s, spread };
    let (low_s, high_s) = gain.saved_s(plan_s);
    // What files have today fits, wherever they lie.
    let unfit = if gain.is_none() { None } else { fit::reason(unfit) };
    let fits = unfit.is_none();
    let (apply, reason) = unfit.map_or_else(
        || judge([low_s, saved_s, high_s], gain, costs, task.request.options.worth_runs),
        |reason| (false, reason),
    );
    Verdict { apply, fits, reason, place_bytes, place_s, move_bytes, move_s, saved_s, spread }
}

/// Adds the seconds that each server needs for the whole of a file, read or written sequentially.
fn add_load(load_s: &mut [f64], profile: &Profile, placement: &Placement, size_bytes: u64, direction: Direction) {
    let geometry = RegionGeometry::new(placement.region_size.0);
    let mut first = 0;
    for run in &placement.runs {
        // Consecutive regions of one layout differ in their bytes only where the file ends.
        let mut of_bytes: Option<(u64, Vec<(usize, f64)>)> = None;
        for region in first..first + run.regions {
            let used_bytes = geometry.used_bytes(RegionIndex(region), size_bytes);
            if of_bytes.as_ref().is_none_or(|(known, _)| *known != used_bytes) {
                let layout = &placement.layouts[run.layout as usize];
                of_bytes = Some((used_bytes, per_server_seconds(profile, layout, direction, used_bytes).collect()));
            }
            let (_, seconds) = of_bytes.as_ref().expect("just worked out");
            seconds.iter().for_each(|(server, seconds)| load_s[*server] += seconds);
        }
        first += run.regions;
    }
}

/// Seconds to bring files of these sizes from one placement to another, with their relative spread: all servers read and write at once, each
/// what it holds before and afterwards.
#[must_use]
pub fn copying_seconds<'a>(
    profile: &Profile,
    files: impl IntoIterator<Item = (&'a Placement, &'a Placement, u64)>,
) -> (f64, f64) {
    let mut load_s = vec![0.0; profile.servers.len()];
    for (from, to, size_bytes) in files {
        add_load(&mut load_s, profile, from, size_bytes, Direction::Read);
        add_load(&mut load_s, profile, to, size_bytes, Direction::Write);
    }
    let lines = |server: &ServerProfile| {
        [Direction::Read, Direction::Write].map(|direction| server.line(direction, Order::Sequential).deviation())
    };
    let deviation = profile.servers.iter().flat_map(lines).fold(0.0, f64::max);
    (load_s.into_iter().fold(0.0, f64::max), deviation.hypot(MODEL_SPREAD))
}

/// Of the time that placing or moving takes: that of the least certain line of sequential writes, and the model's.
fn placing_spread(profile: &Profile) -> f64 {
    let lines = profile.servers.iter().map(|server| server.line(Direction::Write, Order::Sequential).deviation());
    lines.fold(0.0, f64::max).hypot(MODEL_SPREAD)
}

/// What applying a plan takes.
#[derive(Clone, Copy)]
struct Costs {
    place_bytes: u64,
    place_s: f64,
    move_s: f64,
    spread: f64,
}

/// `saved_s` of a run: at the low end, as expected, at the high end.
fn judge(saved_s: [f64; 3], gain: Gain, costs: Costs, worth_runs: f64) -> (bool, String) {
    let Costs { place_bytes, place_s, move_s, spread } = costs;
    let [low_s, saved_s, high_s] = saved_s;
    if gain.is_none() {
        return (false, "leave it: this is the default placement, the measure of the others".to_owned());
    }
    if saved_s <= 0.0 {
        let range = format!("{} to {}", signed_duration(-high_s), signed_duration(-low_s));
        return (false, format!("leave it: a run is predicted to lose {} against def ({range})", duration(-saved_s)));
    }
    if gain.low <= 0.0 {
        let spread = (gain.expected - gain.low) * 100.0;
        return (
            false,
            format!(
                "leave it: the predicted gain of {:.0} % is within the prediction's spread of {spread:.0} %",
                gain.expected * 100.0
            ),
        );
    }
    let net_s = saved_s - move_s;
    if net_s <= 0.0 {
        return (
            false,
            format!(
                "leave it: a run saves {}, but moving data between its windows takes {} {}",
                duration(saved_s),
                duration(move_s),
                within(spread)
            ),
        );
    }
    let runs = (place_s / net_s).ceil().max(1.0);
    let placing = format!("placing {} takes {} {}", bytes(place_bytes), duration(place_s), within(spread));
    let runs_text = if runs == 1.0 { "the first run wins back".to_owned() } else { format!("{runs:.0} runs win back") };
    if runs > worth_runs {
        (false, format!("leave it: {placing}, which only {runs_text}; at most {worth_runs} are allowed"))
    } else {
        let [low, high] = [low_s, high_s].map(|end_s| signed_duration(end_s - move_s));
        (true, format!("apply: {placing}, which {runs_text} (each saves {}, {low} to {high})", duration(net_s)))
    }
}

fn signed_duration(seconds: f64) -> String {
    if seconds < 0.0 { format!("-{}", duration(-seconds)) } else { duration(seconds) }
}

/// Layouts of regions 0, 1, ..
pub(crate) fn layouts_by_region(placement: &stripewise_layout::Placement) -> impl Iterator<Item = &Layout> {
    placement
        .runs
        .iter()
        .flat_map(|run| std::iter::repeat_n(&placement.layouts[run.layout as usize], run.regions as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losing_and_moving_too_much_are_said() {
        let gain = |low, expected| Gain { low, expected, high: 2.0 * expected - low };
        let judge = |saved_s: f64, move_s, (place_s, place_bytes), gain: Gain, worth_runs| {
            let plan_s = saved_s / gain.expected;
            let saved_s = [plan_s * gain.low, saved_s, plan_s * gain.high];
            judge(saved_s, gain, Costs { place_bytes, place_s, move_s, spread: 0.13 }, worth_runs)
        };
        assert_eq!(
            judge(-2.0, 0.0, (1.0, 4096), gain(-0.3, -0.2), 10.0),
            (false, "leave it: a run is predicted to lose 2 s against def (1 s to 3 s)".to_owned())
        );
        assert_eq!(
            judge(60.0, 120.0, (1.0, 4096), gain(0.3, 0.4), 10.0),
            (
                false,
                "leave it: a run saves 60 s, but moving data between its windows takes 2 min \u{b1}13 %".to_owned()
            )
        );
        assert_eq!(
            judge(60.0, 20.0, (6000.0, 5 << 30), gain(0.1, 0.4), 200.0),
            (
                true,
                "apply: placing 5 GiB takes 100 min \u{b1}13 %, which 150 runs win back (each saves 40 s, -5 s to 85 s)"
                    .to_owned()
            )
        );
    }
}
