//! What an experiment is and what it gives: the one vocabulary of all of them.

use super::run_log::{RunLog, Scale};
use anyhow::Result;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::fmt;
use stripewise::Voice;
use stripewise::progress::Task;

/// What the servers are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum TestbedKind {
    /// Modelled servers in a discrete-event simulation, at the papers' full size
    Simulated,
    /// Real processes and real bytes on emulated servers, at a reduced size
    Emulated,
}

impl fmt::Display for TestbedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Simulated => "simulated",
            Self::Emulated => "emulated",
        })
    }
}

pub(crate) const SIMULATED: &[TestbedKind] = &[TestbedKind::Simulated];
pub(crate) const BOTH: &[TestbedKind] = &[TestbedKind::Simulated, TestbedKind::Emulated];

/// The "paper" of an experiment that holds a goal of our own.
pub(crate) const OURS: &str = "ours";

/// One figure, table or claim of a paper, or one of our own goals.
pub struct Experiment {
    /// As in `h2dp-fig5`.
    pub id: &'static str,
    pub paper: &'static str,
    /// Figure, table or section there.
    pub place: &'static str,
    /// What it shows, in one line.
    pub title: &'static str,
    pub testbeds: &'static [TestbedKind],
    /// What is run, and where that differs from what the paper ran.
    pub(crate) setup: &'static str,
    /// What came out beside what the paper says, and why where they differ; written after looking at the results.
    pub(crate) discussion: &'static str,
    pub(crate) run: fn(&Setting<'_>) -> Result<Findings>,
}

/// How an experiment is to be run.
pub(crate) struct Setting<'a> {
    pub(crate) testbed: TestbedKind,
    /// Of everything random.
    pub(crate) seed: u64,
    /// The cases that were named after the experiment, for one that takes them; none for all.
    pub(crate) cases: &'a [String],
    pub(crate) voice: &'a Voice,
    pub(crate) progress: &'a dyn Task,
    /// Of the emulated testbed.
    pub(crate) log: RunLog,
}

impl Setting<'_> {
    /// Runs the cases on all cores (one after the other on the emulated testbed, which needs them itself); the results keep the order of
    /// the cases.
    pub(crate) fn map<C: Sync, T: Send>(&self, cases: &[C], run: impl Fn(&C) -> Result<T> + Sync) -> Result<Vec<T>> {
        match self.testbed {
            TestbedKind::Simulated => {
                self.progress.expect(cases.len());
                cases.par_iter().map(|case| run(case).inspect(|_| self.progress.one_done())).collect()
            }
            TestbedKind::Emulated => self.map_in_turn(cases, run),
        }
    }

    /// Runs the cases one after the other, for what is timed.
    pub(crate) fn map_in_turn<C, T>(&self, cases: &[C], run: impl Fn(&C) -> Result<T>) -> Result<Vec<T>> {
        self.progress.expect(cases.len());
        cases.iter().map(|case| run(case).inspect(|_| self.progress.one_done())).collect()
    }
}

/// What came out.
#[derive(Default)]
pub(crate) struct Findings {
    /// Published beside ours.
    pub(crate) rows: Vec<Row>,
    /// What is plotted, and the figures behind the rows.
    pub(crate) panels: Vec<Panel>,
    /// What the reader should know besides, one sentence each.
    pub(crate) notes: Vec<String>,
    /// How much smaller than the paper's, on the emulated testbed.
    pub(crate) scale: Option<Scale>,
    /// Further fields of the JSON object.
    pub(crate) details: serde_json::Map<String, serde_json::Value>,
}

/// In which unit a figure is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// 50 is a half; differences are points.
    Percent,
    MbPerS,
    /// One figure over another.
    Ratio,
    Seconds,
    Milliseconds,
    KiB,
    Count,
}

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Percent => "%",
            Unit::MbPerS => "MB/s",
            Unit::Ratio => "x",
            Unit::Seconds => "s",
            Unit::Milliseconds => "ms",
            Unit::KiB => "KiB",
            Unit::Count => "",
        }
    }
}

impl Unit {
    const ALL: [Unit; 7] =
        [Unit::Percent, Unit::MbPerS, Unit::Ratio, Unit::Seconds, Unit::Milliseconds, Unit::KiB, Unit::Count];
}

impl<'de> Deserialize<'de> for Unit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let found = Self::ALL.into_iter().find(|unit| unit.name() == name);
        found.ok_or_else(|| serde::de::Error::custom(format!("`{name}` is not a unit")))
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for Unit {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Unit".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let names = Self::ALL.map(Unit::name);
        schemars::json_schema!({ "enum": names, "description": "Unit of a figure; empty for counts." })
    }
}

impl Serialize for Unit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What the paper prints of a figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Published {
    /// A figure.
    Value(f64),
    /// The most over several cases, as in "up to 219 percent"; ours is the most as well.
    UpTo(f64),
    /// The paper gives only a limit that it stays below.
    Below(f64),
    /// A goal of our own.
    AtLeast(f64),
    /// Figures from the first to the second.
    Range(f64, f64),
    /// Only a plot shows it, which is not in the text that we have, or the paper does not say.
    NotPrinted,
}

/// One figure of the paper and the one that we found.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Row {
    /// Of the x axis, as in `256KiB read`.
    pub(crate) case: String,
    /// What is compared, as in `h2dp over padp`.
    pub(crate) quantity: String,
    pub(crate) unit: Unit,
    pub(crate) published: Published,
    pub(crate) ours: f64,
}

impl Row {
    pub(crate) fn new(
        case: impl Into<String>,
        quantity: impl Into<String>,
        unit: Unit,
        published: Published,
        ours: f64,
    ) -> Self {
        Self { case: case.into(), quantity: quantity.into(), unit, published, ours }
    }

    /// Ours less the published figure: in points for a percentage, else as a share of the published one. 0 within a published range or
    /// limit; `None` where nothing is printed.
    pub(crate) fn difference(&self) -> Option<f64> {
        let from = match self.published {
            Published::Value(value) | Published::UpTo(value) => value,
            Published::Below(limit) => limit.min(self.ours),
            Published::AtLeast(goal) => goal.max(self.ours),
            Published::Range(low, high) => self.ours.clamp(low, high),
            Published::NotPrinted => return None,
        };
        Some(match self.unit {
            Unit::Percent => self.ours - from,
            _ if from == self.ours => 0.0,
            _ => self.ours / from - 1.0,
        })
    }
}

/// One chart: groups of bars, a bar for each series.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) unit: Unit,
    /// What the groups are, as in `request size`.
    pub(crate) axis: String,
    pub(crate) groups: Vec<String>,
    pub(crate) series: Vec<String>,
    /// By group, then by series; `None` where a series has no figure.
    pub(crate) values: Vec<Vec<Option<f64>>>,
}

impl Panel {
    /// From one row of figures per group.
    ///
    /// # Panics
    /// When a group has not one figure for each series.
    pub(crate) fn new(
        title: impl Into<String>,
        unit: Unit,
        axis: impl Into<String>,
        series: impl IntoIterator<Item = impl fmt::Display>,
        groups: impl IntoIterator<Item = (String, Vec<Option<f64>>)>,
    ) -> Self {
        let (groups, values): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
        let series: Vec<String> = series.into_iter().map(|name| name.to_string()).collect();
        assert!(values.iter().all(|row: &Vec<_>| row.len() == series.len()), "one figure for each series");
        Self { title: title.into(), unit, axis: axis.into(), groups, series, values }
    }

    /// The figure of a series in a group.
    pub(crate) fn value(&self, group: &str, series: &str) -> Option<f64> {
        let group = self.groups.iter().position(|name| name == group)?;
        let series = self.series.iter().position(|name| name == series)?;
        self.values[group][series]
    }

    /// How much more `series` has than `base` in a group, in percent.
    pub(crate) fn gain_percent(&self, group: &str, series: &str, base: &str) -> Option<f64> {
        Some((self.value(group, series)? / self.value(group, base)? - 1.0) * 100.0)
    }

    /// The most of [`Self::gain_percent`] over all groups.
    pub(crate) fn most_gain_percent(&self, series: &str, base: &str) -> Option<f64> {
        self.groups.iter().filter_map(|group| self.gain_percent(group, series, base)).max_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_points_for_percentages_and_shares_otherwise() {
        let row = |unit, published, ours| Row::new("", "", unit, published, ours).difference();
        assert_eq!(row(Unit::Percent, Published::Value(219.0), 200.0), Some(-19.0));
        assert_eq!(row(Unit::MbPerS, Published::UpTo(200.0), 150.0), Some(-0.25));
        assert_eq!(row(Unit::Percent, Published::Range(80.0, 91.0), 85.0), Some(0.0));
        assert_eq!(row(Unit::Percent, Published::Range(80.0, 91.0), 95.0), Some(4.0));
        assert_eq!(row(Unit::Percent, Published::Below(6.0), 2.0), Some(0.0));
        assert_eq!(row(Unit::Percent, Published::Below(6.0), 7.5), Some(1.5));
        assert_eq!(row(Unit::Ratio, Published::AtLeast(0.75), 0.8), Some(0.0));
        assert_eq!(row(Unit::Ratio, Published::AtLeast(0.75), 0.6), Some(0.6 / 0.75 - 1.0));
        assert_eq!(row(Unit::Count, Published::Value(0.0), 0.0), Some(0.0));
        assert_eq!(row(Unit::Ratio, Published::NotPrinted, 2.0), None);
    }

    #[test]
    fn gains_are_looked_up_by_name() {
        let rows = [("a".to_owned(), vec![Some(100.0), Some(150.0)]), ("b".to_owned(), vec![Some(10.0), None])];
        let panel = Panel::new("t", Unit::MbPerS, "x", ["def", "h2dp"], rows);
        assert_eq!(panel.gain_percent("a", "h2dp", "def"), Some(50.0));
        assert_eq!((panel.gain_percent("b", "h2dp", "def"), panel.value("c", "def")), (None, None));
        assert_eq!(panel.most_gain_percent("h2dp", "def"), Some(50.0));
    }
}
