//! The answer in sentences.

use super::activity::Activity;
use super::judging::{Coarse, Judged, Times};
use stripewise_layout::figures::{bytes, counted, duration, signed_percent};
use stripewise_layout::{Placement, ServerClass};
use stripewise_planner::site::Site;
use stripewise_trace::darshan::coarse::Density;

/// A gain below this is not worth a person's time.
const MIN_GAIN: f64 = 0.03;
/// Reads and writes that take a smaller share of the run are none to begin with.
const MIN_SHARE: f64 = 0.01;
/// By how much a prediction may differ from what was measured before it is said.
const MISFIT: f64 = 3.0;

impl Judged {
    /// The answer in one sentence; an error where it is to leave the files.
    pub(super) fn answer(&self, site: &Site, worth_runs: f64) -> Result<String, String> {
        let (title, gain, moving) = (site.fs.title, self.gain(), self.moving());
        let range = format!("{} .. {}", signed_percent(gain.low), signed_percent(gain.high));
        let of_files = self.of_files();
        if let Some(share) = self.most_share().filter(|share| *share < MIN_SHARE) {
            return Err(format!(
                "leave it: no process spends more than {:.2} % of the run in reads and writes{of_files}, so no layout can win more",
                share * 100.0
            ));
        }
        if gain.expected < MIN_GAIN {
            return Err(format!(
                "leave it: no layout of {title} is predicted to gain {} or more",
                signed_percent(MIN_GAIN)
            ));
        }
        if let Some(measured_s) = self.measured_below_advised() {
            return Err(format!(
                "leave it: no process spent more than {} in reads and writes{of_files}, less than the {} that are predicted with layouts of {title}",
                duration(measured_s),
                self.advised()
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
        let left = match self.exported.refused.len() {
            0 => String::new(),
            left => format!(" and leave {left} that no layout holds"),
        };
        Ok(format!(
            "lay out {} again on {title}{left}: I/O is predicted to take {} instead of {} ({}, {range})",
            counted(self.exported.files.len(), "file", "files"),
            self.advised(),
            self.now(),
            signed_percent(gain.expected)
        ))
    }

    /// Most of the run time that the layouts can save: they make no metadata call faster. `None` where times are not known.
    fn most_share(&self) -> Option<f64> {
        let measured = self.limits.laid_out.filter(|_| self.limits.run_s > 0.0)?;
        Some((measured.most_s / self.limits.run_s).min(1.0))
    }

    /// Which files times are of, where the program has others.
    fn of_files(&self) -> &'static str {
        if self.limits.has_others { " of the files to lay out" } else { "" }
    }

    /// One sentence where the logs measured quite another time than is predicted for the files as they lie.
    pub(super) fn misfit(&self) -> Option<String> {
        let (predicted, measured_s) = (self.now(), self.limits.planned?.busiest_s);
        let is_off = measured_s > 0.0 && !(1.0 / MISFIT..MISFIT).contains(&(predicted.time_s / measured_s));
        is_off.then(|| {
            format!(
                "the busiest process spent {} in reads and writes{}, but {predicted} are predicted for the files as they lie: the site's figures, or what ran next to the job, do not fit this log",
                duration(measured_s),
                self.of_files()
            )
        })
    }

    /// `files` of `of_files` have accesses made from counters; `partly`: of them, those of which some requests are known.
    pub(super) fn coarse(&self, files: usize, partly: usize, of_files: usize) -> Coarse {
        let range = |times: &mut dyn Iterator<Item = &Times>| {
            times
                .map(|times| times.gain().expected)
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), gain| (least.min(gain), most.max(gain)))
        };
        let (least_gain, most_gain) = range(&mut self.times.iter());
        let even: Vec<&Times> = self.times.iter().filter(|times| times.assumed.density == Density::Even).collect();
        let (least_skewed, most_skewed) =
            range(&mut self.times.iter().filter(|times| times.assumed.density != Density::Even));
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
        let remedy = if partly == 0 {
            "a run with DXT (DXT_ENABLE_IO_TRACE=1) decides it"
        } else {
            "a run in which DXT keeps all requests (DXT_ENABLE_IO_TRACE=1, a larger DARSHAN_MODMEM) decides it"
        };
        let text = format!(
            "{}: {order}; if two thirds of the requests lie in one half, it is {} to {}; {remedy}",
            known_by_counters(files, partly, of_files),
            signed_percent(least_skewed),
            signed_percent(most_skewed)
        );
        Coarse { files, partly, of_files, least_gain, most_gain, orders: even.len(), text }
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
        let foreign = match self.foreign_layouts {
            0 => String::new(),
            files => format!(" ({} lay on Lustre in the run)", counted(files, "file", "files")),
        };
        let before = match self.known_layouts {
            0 => format!(
                "files get {} of {} by default{foreign}",
                counted(default, site.fs.target, &format!("{}s", site.fs.target)),
                bytes(stripe.0)
            ),
            known => format!("the layouts that {} had in the run are known", counted(known, "file", "files")),
        };
        let mut found =
            vec![format!("{before}; the layout puts a file on up to {targets} of the site's {}", site.targets.len())];
        let [fast, slow] = self.bytes_by_class(site);
        if fast > 0 && slow > 0 {
            let is_fast = |target: &usize| site.class(*target) == ServerClass::Ssd;
            found.push(format!(
                "{} of {} go to the {} fast targets",
                bytes(fast),
                bytes(fast.saturating_add(slow)),
                (0..site.targets.len()).filter(is_fast).count()
            ));
        }
        found
    }

    /// What the layouts put on SSDs, and on HDDs.
    fn bytes_by_class(&self, site: &Site) -> [u64; 2] {
        let mut sums = [0u64; 2];
        for file in &self.exported.files {
            for (target, bytes) in file.target_bytes(site.targets.len()).into_iter().enumerate() {
                let sum = &mut sums[usize::from(site.class(target) == ServerClass::Hdd)];
                *sum = sum.saturating_add(bytes);
            }
        }
        sums
    }

    /// The measured facts that decide.
    pub(super) fn why(&self, of: &Activity) -> Vec<String> {
        let mut why = Vec::new();
        if let Some(share) = self.most_share() {
            why.push(format!(
                "no process spends more than {:.1} % of the run ({}) in reads and writes{}: no layout can save more",
                share * 100.0,
                duration(of.run_s),
                self.of_files()
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
}

fn known_by_counters(files: usize, partly: usize, of_files: usize) -> String {
    match (partly, files == of_files) {
        (0, true) => "only counters are known, not the requests".to_owned(),
        (0, false) => format!("of {files} of {of_files} files only counters are known, not the requests"),
        (partly, _) => format!(
            "DXT has only some of the requests of {partly} of {}, so that counters are taken of {files}",
            counted(of_files, "file", "files")
        ),
    }
}
