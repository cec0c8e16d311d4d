//! What layouts are predicted to bring in every case of what counters leave open.

use serde::Serialize;
use std::collections::HashMap;
use stripewise_layout::figures::duration;
use stripewise_planner::native::{Export, ExportedFile, NativeLayout, Part, Turn, Whereabouts, drawings, mean};
use stripewise_planner::site::Site;
use stripewise_planner::{
    Gain, Laid, Plan, PlanRequest, RequestError, Throughput, copying_seconds, predict_laid, within,
};
use stripewise_trace::FileAccess;
use stripewise_trace::darshan::LustreLayout;
use stripewise_trace::darshan::coarse::{Arrangement, Assumed, Density};

/// A time that is predicted.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct PredictedTime {
    /// Seconds.
    pub time_s: f64,
    /// By which share of it what happens may be less or more.
    pub spread: f64,
}

impl From<Throughput> for PredictedTime {
    fn from(Throughput { time_s, spread, .. }: Throughput) -> Self {
        Self { time_s, spread }
    }
}

impl std::fmt::Display for PredictedTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", duration(self.time_s), within(self.spread))
    }
}

impl PredictedTime {
    /// The shortest and the longest time of its range.
    fn ends(self) -> (f64, f64) {
        (self.time_s * (1.0 - self.spread).max(0.0), self.time_s * (1.0 + self.spread))
    }
}

/// What logs measured of some files.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Measured {
    /// Seconds in reads and writes of the process that spent most time in I/O on them.
    pub busiest_s: f64,
    /// Seconds that no process spent more of in reads and writes of them.
    pub most_s: f64,
}

/// What limits a gain: a layout saves no more than was spent.
#[derive(Default)]
pub(super) struct Limits {
    /// Of all files that were planned.
    pub(super) planned: Option<Measured>,
    /// Of those that get a layout.
    pub(super) laid_out: Option<Measured>,
    pub(super) run_s: f64,
    /// The program has other files as well.
    pub(super) has_others: bool,
}

/// What it costs to bring files that exist into their layouts.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Moving {
    /// Bytes of the files.
    pub bytes: u64,
    /// Of reading them from where they lie and writing them, all targets at once.
    pub time: PredictedTime,
    /// Runs after which it is won back; `None` where a run saves nothing.
    pub runs: Option<f64>,
    /// The same where it goes worst within the ranges; `None` where a run saves nothing then.
    pub most_runs: Option<f64>,
}

/// What rests on counters alone.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Coarse {
    /// Files whose accesses are made from counters.
    pub files: usize,
    /// Of them, those of which DXT has some of the requests.
    pub partly: usize,
    /// Of so many that are laid out.
    pub of_files: usize,
    /// The least gain in the cases that were tried, without the prediction's own spread.
    pub least_gain: f64,
    /// The most.
    pub most_gain: f64,
    /// Orders that were tried: 1 where the counters decide it.
    pub orders: usize,
    /// One sentence.
    pub text: String,
}

/// The files in one case.
pub(super) struct Variant<'a> {
    pub(super) assumed: Assumed,
    pub(super) request: PlanRequest<'a>,
    pub(super) now: Now,
}

impl Variant<'_> {
    /// Where each file lies by its number and path, or else as it does now.
    fn placed(&self, of: impl Fn(usize, &str) -> Option<Whereabouts>) -> Vec<Whereabouts> {
        let files = self.request.files.iter().zip(&self.now.files).enumerate();
        files.map(|(number, (file, now))| of(number, &file.path).unwrap_or_else(|| now.clone())).collect()
    }
}

/// How the files lie.
pub(super) struct Now {
    files: Vec<Whereabouts>,
    /// Of how many of them a log says it.
    known: usize,
    /// Of how many of them a log says how they lay on a file system of another kind.
    elsewhere: usize,
}

/// Predictions in one case.
pub(super) struct Times {
    pub(super) assumed: Assumed,
    now: Throughput,
    advised: Throughput,
    /// Of the plan that the file system cannot express wholly.
    ideal: Throughput,
}

impl Times {
    pub(super) fn gain(&self) -> Gain {
        Gain::of(self.advised, self.now, self.now == self.advised)
    }

    /// The same if I/O as the files lie takes what was measured, and with the layouts as long as the range allows.
    fn least_gain(&self, measured: &Measured) -> f64 {
        let (_, longest_s) = PredictedTime::from(self.advised).ends();
        if self.gain().is_none() || longest_s <= 0.0 { f64::INFINITY } else { measured.most_s / longest_s - 1.0 }
    }
}

/// The layouts that are advised, and what they do in every case.
pub(super) struct Judged {
    pub(super) exported: Export,
    pub(super) times: Vec<Times>,
    moving: PredictedTime,
    /// How many of the files' present layouts a log says.
    pub(super) known_layouts: usize,
    /// How many layouts a log says that are those of another kind of file system.
    pub(super) foreign_layouts: usize,
    /// Nothing, until it is known what was measured.
    pub(super) limits: Limits,
}

/// The cases besides each rank working in a part of its own with requests everywhere alike.
pub(super) fn others(is_coarse: bool, is_open: bool) -> Vec<Assumed> {
    let arrangements: &[Arrangement] =
        if is_open { &[Arrangement::Apart, Arrangement::Together] } else { &[Arrangement::Apart] };
    let densities: &[Density] =
        if is_coarse { &[Density::Even, Density::Front, Density::Back] } else { &[Density::Even] };
    let all = arrangements.iter().flat_map(|arrangement| {
        densities.iter().map(|density| Assumed { arrangement: *arrangement, density: *density })
    });
    all.skip(1).collect()
}

/// How each file lies: as its run's log says, otherwise as the site's files do by default.
pub(super) fn layouts_now(site: &Site, files: &[FileAccess], lustre: &HashMap<&str, &LustreLayout>) -> Now {
    let (mut known, mut elsewhere) = (0, 0);
    let is_logged = site.fs.has_logged_layouts;
    let layout = |(number, file): (usize, &FileAccess)| {
        let said = lustre.get(file.path.as_str());
        elsewhere += usize::from(said.is_some() && !is_logged);
        let found = said.filter(|_| is_logged).and_then(|layout| of_lustre(site, layout, number));
        known += usize::from(found.is_some());
        match found {
            Some(layout) => Whereabouts::Known(layout.placement(file.region_size, file.size_bytes)),
            None => Whereabouts::by_default(site, number, file.region_size, file.size_bytes),
        }
    };
    let files = files.iter().enumerate().map(layout).collect();
    Now { files, known, elsewhere }
}

/// On the site's targets of those numbers; where the site has others, on as many.
fn of_lustre(site: &Site, layout: &LustreLayout, file: usize) -> Option<NativeLayout> {
    // Of a composite layout the log does not say where its parts begin.
    let [(stripe_size, count, _)] = &layout.components[..] else { return None };
    let (stripe_size, count) = (*stripe_size, usize::try_from(*count).ok()?.min(site.targets.len()));
    if stripe_size == 0 || count == 0 || stripe_size > u64::from(u32::MAX) {
        return None;
    }
    let of_number = |number: &u64| {
        site.targets.iter().position(|target| target.number.is_some_and(|known| u64::from(known) == *number))
    };
    let known: Option<Vec<usize>> = layout.targets.iter().take(count).map(of_number).collect();
    let rotated = || (0..count).map(|turn| (file * count + turn) % site.targets.len()).collect();
    let targets = known.filter(|known| known.len() == count).unwrap_or_else(rotated);
    let turns = targets.into_iter().map(|target| Turn { target, bytes: stripe_size }).collect();
    Some(NativeLayout { parts: vec![Part { end: None, turns, pool: None }] })
}

/// The time of a case's accesses, by the drawings that exports are predicted by, so that both say the same of one layout.
fn predicted(request: &PlanRequest<'_>, files: &[Whereabouts]) -> Result<Throughput, RequestError> {
    let times = drawings(files).map(|laid| Ok(predict_laid(request, &laid)?.total));
    Ok(mean(&times.collect::<Result<Vec<_>, RequestError>>()?))
}

/// The candidate that gains most in the worse arrangement; `None` without candidates.
pub(super) fn best(
    site: &Site,
    variants: &[Variant<'_>],
    candidates: Vec<(Plan, Export)>,
) -> Result<Option<Judged>, RequestError> {
    let mut best: Option<(f64, Judged)> = None;
    let Some(first) = variants.first() else { return Ok(None) };
    let now = variants.iter().map(|variant| predicted(&variant.request, &variant.now.files));
    let now = now.collect::<Result<Vec<Throughput>, RequestError>>()?;
    for (plan, exported) in candidates {
        let advised = |variant: &Variant<'_>| {
            variant.placed(|number, path| Some(Whereabouts::exported(site, exported_file(&exported, path)?, number)))
        };
        let planned = |path: &str| plan.files.iter().find(|file| file.path == path);
        let mut times = Vec::new();
        for (variant, now) in variants.iter().zip(&now) {
            let ideal = variant.placed(|_, path| Some(Whereabouts::Known(planned(path)?.initial().clone())));
            times.push(Times {
                assumed: variant.assumed,
                now: *now,
                advised: predicted(&variant.request, &advised(variant))?,
                ideal: predicted(&variant.request, &ideal)?,
            });
        }
        let moving = moving(first, &advised(first), &exported);
        // The same files lie the same way in every case.
        let (known_layouts, foreign_layouts) = (first.now.known, first.now.elsewhere);
        let judged = Judged { exported, times, moving, known_layouts, foreign_layouts, limits: Limits::default() };
        let worst = judged.gain().expected;
        if best.as_ref().is_none_or(|(known, _)| worst > *known) {
            best = Some((worst, judged));
        }
    }
    Ok(best.map(|(_, judged)| judged))
}

/// Of bringing the exported files from where they lie to where they are advised to, all others staying where they are.
fn moving(variant: &Variant<'_>, advised: &[Whereabouts], exported: &Export) -> PredictedTime {
    let files = variant.request.files;
    let both: Vec<Whereabouts> = variant.now.files.iter().chain(advised).cloned().collect();
    let of_drawing = |laid: Vec<Laid>| {
        let (from, to) = laid.split_at(files.len());
        let moved = files.iter().zip(from).zip(to).filter_map(|((file, from), to)| {
            Some((&from.placement, &to.placement, exported_file(exported, &file.path)?.size_bytes))
        });
        let (time_s, spread) = copying_seconds(variant.request.profile, moved);
        Throughput { time_s, spread, ..Throughput::default() }
    };
    mean(&drawings(&both).map(of_drawing).collect::<Vec<_>>()).into()
}

fn exported_file<'e>(exported: &'e Export, path: &str) -> Option<&'e ExportedFile> {
    exported.files.iter().find(|file| file.path == path)
}

impl Judged {
    /// Expected of the worse arrangement, with the range of all cases.
    pub(super) fn gain(&self) -> Gain {
        let gains = || self.times.iter().map(Times::gain);
        let measured = self.limits.planned.iter();
        let by_measured = measured.flat_map(|measured| self.times.iter().map(|times| times.least_gain(measured)));
        let low = gains().map(|gain| gain.low).chain(by_measured).fold(f64::INFINITY, f64::min);
        let high = gains().map(|gain| gain.high).fold(f64::NEG_INFINITY, f64::max);
        Gain { low, expected: self.worst().gain().expected, high }
    }

    /// The arrangement of which times are said.
    fn worst(&self) -> &Times {
        let even = self.times.iter().filter(|times| times.assumed.density == Density::Even);
        let least = even.min_by(|one, two| one.gain().expected.total_cmp(&two.gain().expected));
        least.unwrap_or(&self.times[0])
    }

    pub(super) fn now(&self) -> PredictedTime {
        self.worst().now.into()
    }

    pub(super) fn advised(&self) -> PredictedTime {
        self.worst().advised.into()
    }

    pub(super) fn ideal(&self) -> PredictedTime {
        self.worst().ideal.into()
    }

    /// What a run saves: at the low end, as expected, at the high end. Of a shorter time than is predicted, which was measured, the same share.
    pub(super) fn saved_s(&self) -> [f64; 3] {
        let (gain, advised_s) = (self.gain(), self.advised().time_s);
        let spent_s = self.limits.laid_out.map_or(f64::INFINITY, |measured| measured.most_s);
        [gain.low, gain.expected, gain.high].map(|gain| {
            let before_s = (advised_s * (1.0 + gain)).min(spent_s);
            let after_s = if gain > -1.0 { before_s / (1.0 + gain) } else { advised_s };
            before_s - after_s
        })
    }

    /// What was measured, if it is less than the layouts are predicted to take at least.
    pub(super) fn measured_below_advised(&self) -> Option<f64> {
        let (shortest_s, _) = self.advised().ends();
        self.limits.planned.map(|measured| measured.most_s).filter(|most_s| *most_s < shortest_s)
    }

    pub(super) fn moving(&self) -> Moving {
        let [least_s, saved_s, _] = self.saved_s();
        let time = self.moving;
        let runs = |time_s: f64, saved_s: f64| (saved_s > 0.0).then(|| time_s / saved_s);
        Moving {
            bytes: self.exported.files.iter().map(|file| file.size_bytes).sum(),
            time,
            runs: runs(time.time_s, saved_s),
            most_runs: runs(time.time_s * (1.0 + time.spread), least_s),
        }
    }
}

#[cfg(test)]
mod tests;
