//! Tables 1 and 2: programs with the published shares of unaligned and random requests.

use super::{FILE, NODES, STRIPE, System, lab, striped};
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, Unit};
use crate::reproduce::script::{Generated, access};
use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use stripewise_layout::Direction;
use stripewise_trace::{Program, SMALL_REQUEST, Step};

/// Of each process.
pub(super) const REQUESTS: u64 = 2_000;
const PROCESSES: u32 = 8;
/// The longest request, in stripes.
const STRIPES: u64 = 4;

/// An application with what the tables print of it: shares in percent, service times in ms without and with iBridge.
struct Application {
    name: &'static str,
    unaligned: f64,
    random: f64,
    total: f64,
    stock_ms: f64,
    ibridge_ms: f64,
}

const fn application(name: &'static str, shares: [f64; 3], service_ms: [f64; 2]) -> Application {
    let ([unaligned, random, total], [stock_ms, ibridge_ms]) = (shares, service_ms);
    Application { name, unaligned, random, total, stock_ms, ibridge_ms }
}

const APPLICATIONS: [Application; 4] = [
    application("ALEGRA-2744", [35.2, 7.3, 42.5], [16.6, 14.2]),
    application("ALEGRA-5832", [35.7, 6.9, 42.6], [17.2, 14.0]),
    application("CTH", [24.3, 30.1, 54.4], [19.4, 14.4]),
    application("S3D", [62.8, 5.8, 68.6], [36.0, 25.3]),
];

/// A request of the drawn programs.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Drawn {
    offset: u64,
    bytes: u64,
}

impl Drawn {
    /// By the article's rule: larger than a stripe and off a stripe's border at either end.
    fn is_unaligned(self) -> bool {
        let is_off = |place: u64| !place.is_multiple_of(STRIPE.0);
        self.bytes > STRIPE.0 && (is_off(self.offset) || is_off(self.offset + self.bytes))
    }

    fn is_random(self) -> bool {
        self.bytes < SMALL_REQUEST.0
    }

    /// The same request on the borders of stripes, if it is unaligned: begin rounded down, length to the nearest whole stripe.
    fn aligned(self) -> Self {
        if !self.is_unaligned() {
            return self;
        }
        let stripes = (self.bytes + STRIPE.0 / 2) / STRIPE.0;
        Self { offset: self.offset / STRIPE.0 * STRIPE.0, bytes: stripes * STRIPE.0 }
    }
}

impl Application {
    /// A process goes on where it ended, as checkpoints do; unaligned and random requests have places of their own.
    fn requests(&self, process: u32, count: u64, seed: u64) -> impl Iterator<Item = Drawn> + Send + use<> {
        let mut random = StdRng::seed_from_u64(seed ^ u64::from(process) << 32);
        let (unaligned, small) = (self.unaligned / 100.0, (self.unaligned + self.random) / 100.0);
        let share_bytes = FILE.0 / u64::from(PROCESSES) / STRIPE.0 * STRIPE.0;
        let begin = u64::from(process) * share_bytes;
        let mut next = 0;
        (0..count).map(move |_| {
            let drawn: f64 = random.random();
            let anywhere = begin + random.random_range(0..share_bytes - STRIPES * STRIPE.0);
            if drawn < unaligned {
                // Not on a border, so that every one of them counts.
                let offset = anywhere / STRIPE.0 * STRIPE.0 + random.random_range(1..STRIPE.0);
                let bytes = random.random_range(STRIPE.0 + 1..STRIPES * STRIPE.0);
                Drawn { offset, bytes }
            } else if drawn < small {
                Drawn { offset: anywhere, bytes: random.random_range(1..SMALL_REQUEST.0) }
            } else {
                let bytes = random.random_range(1..=STRIPES) * STRIPE.0;
                let at = next % (share_bytes - STRIPES * STRIPE.0);
                next = at / STRIPE.0 * STRIPE.0 + bytes;
                Drawn { offset: begin + at / STRIPE.0 * STRIPE.0, bytes }
            }
        })
    }

    fn program(&'static self, count: u64, is_aligned: bool, seed: u64) -> impl Program {
        Generated::shared(FILE.0, (PROCESSES, NODES), 1, move |process| {
            self.requests(process, count, seed).map(move |drawn| -> Step {
                let Drawn { offset, bytes } = if is_aligned { drawn.aligned() } else { drawn };
                access(Direction::Read, offset, bytes)
            })
        })
    }
}

pub(super) fn table_1(setting: &Setting<'_>, count: u64) -> Result<Findings> {
    let mut findings = Findings::default();
    let mut means = [0.0; 2];
    let counted = setting.map(&APPLICATIONS, |application| {
        let (mut unaligned, mut random) = (0u64, 0u64);
        for drawn in (0..PROCESSES).flat_map(|process| application.requests(process, count, setting.seed)) {
            unaligned += u64::from(drawn.is_unaligned());
            random += u64::from(drawn.is_random());
        }
        let percent = |part: u64| part as f64 * 100.0 / (count * u64::from(PROCESSES)) as f64;
        Ok((percent(unaligned), percent(random)))
    })?;
    for (application, (unaligned, random)) in APPLICATIONS.iter().zip(counted) {
        let values = [
            ("unaligned", application.unaligned, unaligned),
            ("random", application.random, random),
            ("total", application.total, unaligned + random),
        ];
        for (what, published, ours) in values {
            let published = Published::Value(published);
            findings.rows.push(Row::new(application.name, what, Unit::Percent, published, ours));
        }
        means[0] += application.unaligned / APPLICATIONS.len() as f64;
        means[1] += unaligned / APPLICATIONS.len() as f64;
    }
    let printed = Published::Value(35.9);
    findings.rows.push(Row::new("mean", "unaligned, as the text says", Unit::Percent, printed, means[1]));
    let by_table = Published::Value(means[0]);
    findings.rows.push(Row::new("mean", "unaligned, of the table's rows", Unit::Percent, by_table, means[1]));
    Ok(findings)
}

pub(super) fn table_2(setting: &Setting<'_>, count: u64) -> Result<Findings> {
    let lab = lab()?;
    let kinds = [(false, System::Stock), (false, System::IBridge), (true, System::Stock)];
    let cases: Vec<_> = APPLICATIONS
        .iter()
        .flat_map(|application| kinds.map(|(is_aligned, system)| (application, is_aligned, system)))
        .collect();
    let found_ms = setting.map(&cases, |(application, is_aligned, system)| {
        let outcome = striped(&lab, &application.program(count, *is_aligned, setting.seed), *system)?;
        Ok(outcome.read.latency.mean_s * 1e3)
    })?;
    let mut findings = Findings::default();
    let by_application = || APPLICATIONS.iter().zip(found_ms.chunks(kinds.len()));
    for (application, ours_ms) in by_application() {
        let mut row = |what: &str, unit, published, ours| {
            findings.rows.push(Row::new(application.name, what, unit, published, ours));
        };
        row("service time, PVFS2", Unit::Milliseconds, Published::Value(application.stock_ms), ours_ms[0]);
        row("service time, iBridge", Unit::Milliseconds, Published::Value(application.ibridge_ms), ours_ms[1]);
        let saved = |without: f64, with: f64| (1.0 - with / without) * 100.0;
        let published = Published::Value(saved(application.stock_ms, application.ibridge_ms));
        row("saved by iBridge", Unit::Percent, published, saved(ours_ms[0], ours_ms[1]));
        let by_alignment = saved(ours_ms[0], ours_ms[2]);
        row("saved by aligned requests", Unit::Percent, Published::NotPrinted, by_alignment);
    }
    let groups = by_application().map(|(application, ours_ms)| {
        let values = [ours_ms[0], ours_ms[1], ours_ms[2], application.stock_ms, application.ibridge_ms];
        (application.name.to_owned(), values.map(Some).to_vec())
    });
    let series = ["ours, PVFS2", "ours, iBridge", "ours, aligned", "published, PVFS2", "published, iBridge"];
    findings.panels.push(Panel::new("Service time", Unit::Milliseconds, "application", series, groups));
    Ok(findings)
}
