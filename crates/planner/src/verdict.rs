//! Whether a plan is worth its move, said in a sentence.
//!
//! Placing the data costs its writing, all servers at once, sequentially, as the profile predicts; reading it from where it is now is not
//! known to the model and not counted. Moves between windows recur in every run and are taken off what a run saves.

use crate::moves::{move_seconds, per_server_seconds};
use crate::plan::{Gain, PlannedFile, Verdict};
use crate::policy::Task;
use stripewise_layout::figures::{bytes, duration};
use stripewise_layout::{Direction, Layout, RegionGeometry};

pub(crate) fn verdict(task: &Task<'_>, files: &[PlannedFile], saved_s: f64, gain: Gain, is_default: bool) -> Verdict {
    let profile = task.request.profile;
    let mut load_s = vec![0.0; task.groups.count];
    let (mut place_bytes, mut move_bytes, mut move_s) = (0, 0, 0.0);
    for file in files {
        let geometry = RegionGeometry::new(task.request.cluster.region_size.0);
        place_bytes += file.size_bytes;
        let mut first = 0;
        for run in &file.initial().runs {
            // Consecutive regions of one layout differ in their bytes only where the file ends.
            let mut of_bytes: Option<(u64, Vec<(usize, f64)>)> = None;
            for region in first..first + run.regions {
                let used_bytes = geometry.used_bytes(stripewise_layout::RegionIndex(region), file.size_bytes);
                if of_bytes.as_ref().is_none_or(|(known, _)| *known != used_bytes) {
                    let layout = &file.initial().layouts[run.layout as usize];
                    of_bytes =
                        Some((used_bytes, per_server_seconds(profile, layout, Direction::Write, used_bytes).collect()));
                }
                let (_, seconds) = of_bytes.as_ref().expect("just worked out");
                seconds.iter().for_each(|(server, seconds)| load_s[*server] += seconds);
            }
            first += run.regions;
        }
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
    let (apply, reason) =
        judge(saved_s, move_s, place_s, place_bytes, gain, task.request.options.worth_runs, is_default);
    Verdict { apply, reason, place_bytes, place_s, move_bytes, move_s, saved_s }
}

fn judge(
    saved_s: f64,
    move_s: f64,
    place_s: f64,
    place_bytes: u64,
    gain: Gain,
    worth_runs: f64,
    is_default: bool,
) -> (bool, String) {
    if is_default {
        return (false, "leave it: this is the default placement, the measure of the others".to_owned());
    }
    if saved_s <= 0.0 {
        return (false, format!("leave it: a run is predicted to lose {} against def", duration(saved_s.abs())));
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
                "leave it: a run saves {}, but moving data between its windows takes {}",
                duration(saved_s),
                duration(move_s)
            ),
        );
    }
    let runs = (place_s / net_s).ceil().max(1.0);
    let placing = format!("placing {} takes {}", bytes(place_bytes), duration(place_s));
    let runs_text = if runs == 1.0 { "the first run wins back".to_owned() } else { format!("{runs:.0} runs win back") };
    if runs > worth_runs {
        (false, format!("leave it: {placing}, which only {runs_text}; at most {worth_runs} are allowed"))
    } else {
        (true, format!("apply: {placing}, which {runs_text} (each saves {})", duration(net_s)))
    }
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
        assert_eq!(
            judge(-2.0, 0.0, 1.0, 4096, gain(-0.3, -0.2), 10.0, false),
            (false, "leave it: a run is predicted to lose 2 s against def".to_owned())
        );
        assert_eq!(
            judge(60.0, 120.0, 1.0, 4096, gain(0.3, 0.4), 10.0, false),
            (false, "leave it: a run saves 60 s, but moving data between its windows takes 2 min".to_owned())
        );
        assert_eq!(
            judge(60.0, 20.0, 6000.0, 5 << 30, gain(0.3, 0.4), 200.0, false),
            (true, "apply: placing 5 GiB takes 100 min, which 150 runs win back (each saves 40 s)".to_owned())
        );
    }
}
