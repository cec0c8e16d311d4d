//! The results of experiments as text, CSV and JSON.

use super::experiment::{Experiment, Findings, Panel, Published, Row, TestbedKind, Unit};
use super::run_log::Scale;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::path::Path;
use stripewise::table::Table;

/// An experiment that was run.
pub struct Done {
    pub(super) experiment: &'static Experiment,
    pub(super) testbed: TestbedKind,
    pub(super) seed: u64,
    pub(super) findings: Findings,
}

/// A figure with as many decimals as its unit deserves.
pub(super) fn figure(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => format!("{value:.0}"),
        Unit::Percent if value.abs() >= 9.95 => format!("{value:.0}"),
        Unit::Percent | Unit::Milliseconds | Unit::Seconds | Unit::KiB if value.abs() < 0.05 && value != 0.0 => {
            format!("{value:.4}")
        }
        Unit::Percent | Unit::KiB => format!("{value:.1}"),
        Unit::Ratio => format!("{value:.3}"),
        Unit::MbPerS | Unit::Seconds | Unit::Milliseconds if value.abs() >= 99.95 => format!("{value:.0}"),
        Unit::MbPerS | Unit::Seconds | Unit::Milliseconds => format!("{value:.2}"),
    }
}

fn published(row: &Row) -> String {
    let figure = |value| figure(value, row.unit);
    match row.published {
        Published::Value(value) => figure(value),
        Published::UpTo(value) => format!("up to {}", figure(value)),
        Published::Below(limit) => format!("below {}", figure(limit)),
        Published::AtLeast(goal) => format!("at least {}", figure(goal)),
        Published::Range(low, high) => format!("{} to {}", figure(low), figure(high)),
        Published::NotPrinted => "not printed".to_owned(),
    }
}

fn difference(row: &Row) -> String {
    match row.difference() {
        None => "-".to_owned(),
        Some(points) if row.unit == Unit::Percent => format!("{points:+.0} points"),
        Some(share) => format!("{:+.0} %", share * 100.0),
    }
}

/// Where a comparison is shown: units have a column of their own in the text, and stand behind each figure in the document.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Text,
    Document,
}

/// One table of rows that are alike: goals of our own, what is published, or figures that stand by themselves.
pub(super) struct Comparison {
    /// Names of columns; one that starts with `>` is aligned to the right.
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Comparison {
    /// The tables of an experiment's rows: goals first. Empty ones are left out.
    pub(super) fn of(rows: &[Row], layout: Layout) -> Vec<Self> {
        let (goals, others): (Vec<&Row>, Vec<&Row>) =
            rows.iter().partition(|row| matches!(row.published, Published::AtLeast(_)));
        let is_published = others.iter().any(|row| row.published != Published::NotPrinted);
        let mut tables = vec![Self::table(&goals, layout, &[">goal", ">ours", "met"], |row, with_unit| {
            vec![with_unit(published(row)), with_unit(figure(row.ours, row.unit)), met(row)]
        })];
        tables.push(match is_published {
            true => Self::table(&others, layout, &[">published", ">ours", ">difference"], |row, with_unit| {
                let published = published(row);
                let published = if row.difference().is_some() { with_unit(published) } else { published };
                vec![published, with_unit(figure(row.ours, row.unit)), difference(row)]
            }),
            false => {
                Self::table(&others, layout, &[">ours"], |row, with_unit| vec![with_unit(figure(row.ours, row.unit))])
            }
        });
        tables.retain(|table| !table.rows.is_empty());
        tables
    }

    fn table(
        rows: &[&Row],
        layout: Layout,
        figures: &[&'static str],
        cells: impl Fn(&Row, &dyn Fn(String) -> String) -> Vec<String>,
    ) -> Self {
        let mut head = vec!["case", "what"];
        head.extend((layout == Layout::Text).then_some("unit"));
        head.extend(figures);
        let row = |row: &&Row| {
            let unit = row.unit.name();
            let with_unit = |figure: String| match (layout, unit) {
                (Layout::Text, _) | (_, "") => figure,
                (Layout::Document, unit) => format!("{figure} {unit}"),
            };
            let mut line = vec![row.case.clone(), row.quantity.clone()];
            line.extend((layout == Layout::Text).then(|| unit.to_owned()));
            line.extend(cells(row, &with_unit));
            line
        };
        Self { head, rows: rows.iter().map(row).collect() }
    }
}

/// Whether a goal is met, and by how much it is missed.
fn met(row: &Row) -> String {
    match row.difference() {
        Some(0.0) => "yes".to_owned(),
        _ => format!("no, {}", difference(row)),
    }
}

/// The comparisons as text.
fn comparisons(rows: &[Row]) -> impl Iterator<Item = String> {
    Comparison::of(rows, Layout::Text).into_iter().map(|Comparison { head, rows }| {
        let mut table = Table::new(&head);
        for row in rows {
            table.row(row);
        }
        table.to_string()
    })
}

fn of_panel(panel: &Panel) -> String {
    let group_width = panel.groups.iter().map(|group| group.chars().count()).max().unwrap_or(0).max(8);
    let cell = |value: &Option<f64>| value.map_or_else(|| "-".to_owned(), |value| figure(value, panel.unit));
    let widths: Vec<usize> = panel
        .series
        .iter()
        .enumerate()
        .map(|(place, name)| {
            let figures = panel.values.iter().map(|row| cell(&row[place]).chars().count());
            figures.chain([name.chars().count()]).max().unwrap_or(0)
        })
        .collect();
    let line = |head: &str, cells: Vec<String>| {
        let mut text = format!("{head:<group_width$}");
        for (cell, width) in cells.iter().zip(&widths) {
            text.push_str(&format!("  {cell:>width$}"));
        }
        text
    };
    let mut lines = vec![match panel.unit.name() {
        "" => panel.title.clone(),
        unit => format!("{}, {unit}", panel.title),
    }];
    lines.push(line(&panel.axis.chars().take(group_width).collect::<String>(), panel.series.clone()));
    for (group, values) in panel.groups.iter().zip(&panel.values) {
        lines.push(line(group, values.iter().map(cell).collect()));
    }
    lines.join("\n")
}

/// What a person sees.
pub fn text(done: &Done) -> String {
    let Experiment { id, paper, place, title, setup, .. } = done.experiment;
    let mut parts = vec![format!("{id}: {paper}, {place}: {title} ({}, seed {})\n{setup}", done.testbed, done.seed)];
    parts.extend(done.findings.panels.iter().map(of_panel));
    parts.extend(comparisons(&done.findings.rows));
    parts.extend(done.findings.notes.iter().cloned());
    parts.join("\n\n") + "\n"
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(super) struct DoneJson<'a> {
    /// As the command takes it.
    id: &'static str,
    /// Short name of the paper.
    paper: &'static str,
    /// Figure, table or section of the paper.
    place: &'static str,
    /// What the experiment shows.
    title: &'static str,
    /// Where it was run.
    testbed: TestbedKind,
    /// None at the papers' size.
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<Scale>,
    /// Of all random draws.
    seed: u64,
    /// What was run, and where that differs from what the paper ran.
    setup: &'static str,
    /// Figures of the paper beside ours.
    rows: Vec<RowJson<'a>>,
    /// What is plotted.
    panels: Vec<PanelJson<'a>>,
    /// Further information, one sentence each.
    notes: &'a [String],
    /// What came out, and why where it differs from the paper.
    discussion: &'static str,
    /// What it says besides; of one experiment alone that stands beside `experiments`.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    details: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct RowJson<'a> {
    /// Of the x axis, as in `256KiB read`.
    case: &'a str,
    /// What is compared, as in `h2dp over padp`.
    quantity: &'a str,
    /// Of `published` and `ours`.
    unit: Unit,
    /// None where the paper prints nothing.
    published: Option<Published>,
    /// What we found.
    ours: f64,
    /// In points for percentages, else a share.
    difference: Option<f64>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct PanelJson<'a> {
    /// Of the panel.
    title: &'a str,
    /// Of all values.
    unit: Unit,
    /// What the groups are, as in `request size`.
    axis: &'a str,
    /// Names of the series.
    series: &'a [String],
    /// In the order of the axis.
    groups: Vec<GroupJson<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct GroupJson<'a> {
    /// Place on the axis.
    group: &'a str,
    /// One for each series; null where it has no figure.
    values: &'a [Option<f64>],
}

impl<'a> DoneJson<'a> {
    /// `has_details`: with what it says besides.
    pub(super) fn of(done: &'a Done, has_details: bool) -> Self {
        let Experiment { id, paper, place, title, setup, discussion, .. } = *done.experiment;
        let row = |row: &'a Row| RowJson {
            case: &row.case,
            quantity: &row.quantity,
            unit: row.unit,
            published: (row.published != Published::NotPrinted).then_some(row.published),
            ours: row.ours,
            difference: row.difference(),
        };
        let panel = |panel: &'a Panel| PanelJson {
            title: &panel.title,
            unit: panel.unit,
            axis: &panel.axis,
            series: &panel.series,
            groups: panel.groups.iter().zip(&panel.values).map(|(group, values)| GroupJson { group, values }).collect(),
        };
        Self {
            id,
            paper,
            place,
            title,
            testbed: done.testbed,
            scale: done.findings.scale,
            seed: done.seed,
            setup,
            rows: done.findings.rows.iter().map(row).collect(),
            panels: done.findings.panels.iter().map(panel).collect(),
            notes: &done.findings.notes,
            discussion,
            details: if has_details { done.findings.details.clone() } else { serde_json::Map::new() },
        }
    }
}

/// Every figure in one table: those of the panels, then the comparison.
pub(super) fn csv(done: &Done) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    writer.write_record(["experiment", "testbed", "kind", "case", "quantity", "unit", "published", "ours"])?;
    let (id, testbed) = (done.experiment.id, done.testbed.to_string());
    for panel in &done.findings.panels {
        for (group, values) in panel.groups.iter().zip(&panel.values) {
            for (series, value) in panel.series.iter().zip(values) {
                let case = format!("{}: {group}", panel.title);
                writer.write_record([id, &testbed, "figure", &case, series, panel.unit.name(), "", &number(*value)])?;
            }
        }
    }
    for row in &done.findings.rows {
        let published = match row.published {
            Published::NotPrinted => String::new(),
            _ => published(row),
        };
        let ours = row.ours.to_string();
        writer.write_record([
            id,
            &testbed,
            "comparison",
            &row.case,
            &row.quantity,
            row.unit.name(),
            &published,
            &ours,
        ])?;
    }
    Ok(String::from_utf8(writer.into_inner().context("writing CSV")?)?)
}

pub(super) fn write_whole(path: &Path, text: &str) -> Result<()> {
    stripewise_layout::output::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
