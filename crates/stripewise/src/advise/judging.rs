//! What layouts are predicted to bring in every case of what counters leave open, and the sentences that say so.

use super::activity::Activity;
use serde::Serialize;
use std::collections::HashMap;
use stripewise_layout::figures::{bytes, counted, duration, signed_percent};
use stripewise_layout::{Placement, ServerClass};
use stripewise_planner::native::{Export, ExportedFile, NativeLayout, Part, Turn, Whereabouts, drawings, mean};
use stripewise_planner::site::Site;
use stripewise_planner::{
    Gain, Plan, PlanRequest, RequestError, Throughput, copying_seconds, predict_placements, within,
};
use stripewise_trace::FileAccess;
use stripewise_trace::darshan::LustreLayout;
use stripewise_trace::darshan::coarse::{Arrangement, Assumed, Density};

/// A gain below this is not worth a person's time.
const MIN_GAIN: f64 = 0.03;
/// Reads and writes that take a smaller share of the run are none to begin with.
const MIN_SHARE: f64 = 0.01;
/// By how much a prediction may differ from what was measured before it is said.
const MISFIT: f64 = 3.0;

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
    /// Files of which only counters are known.
    pub files: usize,
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
}

/// Predictions in one case.
struct Times {
    assumed: Assumed,
    now: Throughput,
    advised: Throughput,
    /// Of the plan that the file system cannot express wholly.
    ideal: Throughput,
}

impl Times {
    fn gain(&self) -> Gain {
        Gain::of(self.advised, self.now, self.now == self.advised)
    }
}

/// The layouts that are advised, and what they do in every case.
pub(super) struct Judged {
    plan: Plan,
    pub(super) exported: Export,
    times: Vec<Times>,
    moving: PredictedTime,
    /// How many of the files' present layouts a log says.
    known_layouts: usize,
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
    let mut known = 0;
    let layout = |(number, file): (usize, &FileAccess)| {
        let found = lustre.get(file.path.as_str()).and_then(|layout| of_lustre(site, layout, number));
        known += usize::from(found.is_some());
        match found {
            Some(layout) => Whereabouts::Known(layout.placement(file.region_size, file.size_bytes)),
            None => Whereabouts::by_default(site, number, file.region_size, file.size_bytes),
        }
    };
    let files = files.iter().enumerate().map(layout).collect();
    Now { files, known }
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
    let times = drawings(files).map(|placements| Ok(predict_placements(request, &placements)?.total));
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
        let judged = Judged { plan, exported, times, moving, known_layouts: first.now.known };
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
    let of_drawing = |placements: Vec<Placement>| {
        let (from, to) = placements.split_at(files.len());
        let moved = files
            .iter()
            .zip(from)
            .zip(to)
            .filter_map(|((file, from), to)| Some((from, to, exported_file(exported, &file.path)?.size_bytes)));
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
        let low = gains().map(|gain| gain.low).fold(f64::INFINITY, f64::min);
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

    /// What a run saves: at the low end, as expected, at the high end.
    fn saved_s(&self) -> [f64; 3] {
        let (gain, advised_s) = (self.gain(), self.advised().time_s);
        [gain.low, gain.expected, gain.high].map(|share| share * advised_s)
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

    /// The answer in one sentence; an error where it is to leave the files. `limit`: share of the run that I/O takes at most.
    pub(super) fn answer(
        &self,
        files: usize,
        limit: Option<f64>,
        site: &Site,
        worth_runs: f64,
    ) -> Result<String, String> {
        let (title, gain, moving) = (site.fs.title, self.gain(), self.moving());
        let range = format!("{} .. {}", signed_percent(gain.low), signed_percent(gain.high));
        if let Some(share) = limit.filter(|share| *share < MIN_SHARE) {
            return Err(format!(
                "leave it: no process spends more than {:.2} % of the run in reads and writes, so no layout can win more",
                share * 100.0
            ));
        }
        if gain.expected < MIN_GAIN {
            return Err(format!(
                "leave it: no layout of {title} is predicted to gain {} or more",
                signed_percent(MIN_GAIN)
            ));
        }
        if gain.low <= 0.0 {
            let expected = signed_percent(gain.expected);
            return Err(format!(
                "leave it: the predicted gain of {expected} is within the prediction's range ({range})"
            ));
        }
        let [least_s, saved_s, most_s] = self.saved_s();
        if moving.runs.is_none_or(|runs| runs > worth_runs) {
            return Err(format!(
                "leave it: a run would save {} ({} .. {}), and moving {} takes {}, more than {worth_runs} runs win back",
                duration(saved_s),
                duration(least_s),
                duration(most_s),
                bytes(moving.bytes),
                moving.time
            ));
        }
        Ok(format!(
            "lay out {} again on {title}: I/O is predicted to take {} instead of {} ({}, {range})",
            counted(files, "file", "files"),
            self.advised(),
            self.now(),
            signed_percent(gain.expected)
        ))
    }

    /// One sentence where the log measured quite another time than is predicted for the files as they lie.
    pub(super) fn misfit(&self, of: &Activity) -> Option<String> {
        let (predicted, measured) = (self.now(), of.busiest_data_s);
        let is_off = measured > 0.0 && !(1.0 / MISFIT..MISFIT).contains(&(predicted.time_s / measured));
        is_off.then(|| {
            format!(
                "the busiest process spent {} in reads and writes, but {} are predicted for the files as they lie: the site's figures, or what ran next to the job, do not fit this log",
                duration(measured),
                predicted
            )
        })
    }

    pub(super) fn coarse(&self, files: usize, of_files: usize) -> Coarse {
        let range = |times: &mut dyn Iterator<Item = &Times>| {
            times
                .map(|times| times.gain().expected)
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), gain| (least.min(gain), most.max(gain)))
        };
        let (least_gain, most_gain) = range(&mut self.times.iter());
        let even: Vec<&Times> = self.times.iter().filter(|times| times.assumed.density == Density::Even).collect();
        let (least_skewed, most_skewed) =
            range(&mut self.times.iter().filter(|times| times.assumed.density != Density::Even));
        let known = if files == of_files {
            "only counters are known, not the requests".to_owned()
        } else {
            format!("of {files} of {of_files} files only counters are known, not the requests")
        };
        let order = match even[..] {
            [apart, together] => format!(
                "the gain is {} if ranks work in parts of their own, and {} if they go through the files side by side",
                signed_percent(apart.gain().expected),
                signed_percent(together.gain().expected)
            ),
            _ => format!(
                "they decide the order, and the gain is {} if requests are spread evenly over the files",
                signed_percent(even[0].gain().expected)
            ),
        };
        let text = format!(
            "{known}: {order}; if two thirds of the requests lie in one half, it is {} to {}; a run with DXT (DXT_ENABLE_IO_TRACE=1) decides it",
            signed_percent(least_skewed),
            signed_percent(most_skewed)
        );
        Coarse { files, of_files, least_gain, most_gain, orders: even.len(), text }
    }

    /// What the layouts change.
    pub(super) fn layout(&self, site: &Site) -> Vec<String> {
        let holding = |placement: &Placement| {
            let layouts = placement.layouts.iter().flat_map(|layout| layout.stripes());
            let mut servers: Vec<u16> = layouts.map(|stripe| stripe.server.0).collect();
            servers.sort_unstable();
            servers.dedup();
            servers.len()
        };
        let targets = self.exported.files.iter().map(|file| holding(&file.placement)).max().unwrap_or(0);
        let (_, default, stripe) = site.default_layout();
        let before = match self.known_layouts {
            0 => format!(
                "files get {} of {} by default",
                counted(default, site.fs.target, &format!("{}s", site.fs.target)),
                bytes(stripe.0)
            ),
            known => format!("the layouts that {} had in the run are known", counted(known, "file", "files")),
        };
        let mut found =
            vec![format!("{before}; the layout puts a file on up to {targets} of the site's {}", site.targets.len())];
        let of_class = |class| self.plan.servers.iter().filter(move |server| server.class == class);
        let sum = |class| of_class(class).map(|server| server.used_bytes).fold(0u64, u64::saturating_add);
        let (fast, slow) = (sum(ServerClass::Ssd), sum(ServerClass::Hdd));
        if fast > 0 && slow > 0 {
            found.push(format!(
                "{} of {} go to the {} fast targets",
                bytes(fast),
                bytes(fast.saturating_add(slow)),
                of_class(ServerClass::Ssd).count()
            ));
        }
        found
    }
}

/// The measured facts that decide.
pub(super) fn why(of: &Activity) -> Vec<String> {
    let mut why = Vec::new();
    if let Some(share) = of.most_share() {
        why.push(format!(
            "no process spends more than {:.1} % of the run ({}) in reads and writes: no layout can save more",
            share * 100.0,
            duration(of.run_s)
        ));
    }
    let (reads, writes) = (of.read.bytes as f64, of.write.bytes as f64);
    let (word, most) = if reads >= writes { ("read", &of.read) } else { ("written", &of.write) };
    if let Some(mean) = most.bytes.checked_div(most.count) {
        let random = match most.ordered {
            0 => String::new(),
            ordered => format!(", {:.0} % of them forward", most.forward as f64 * 100.0 / ordered as f64),
        };
        why.push(format!(
            "{} of the {} are {word}, in requests of {} on average{random}",
            bytes(most.bytes),
            bytes(of.read.bytes.saturating_add(of.write.bytes)),
            bytes(mean)
        ));
    }
    why
}

#[cfg(test)]
mod tests;
