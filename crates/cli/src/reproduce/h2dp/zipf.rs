//! Section 5.2.1: IOR with requests by Zipf's law.

use super::{DIRECTIONS, NODES, bandwidths, benchmark, direction_name, gains, lab_for, most_gains, outcomes, policies};
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, Unit};
use anyhow::Result;
use stripewise_layout::{ByteCount, Direction, ServerClass};
use stripewise_sim::Outcome;
use stripewise_trace::Program;

pub(super) const SETUP_5: &str = "IOR with Zipf-distributed requests (a = 0.8) on a shared file of 128 GiB in regions of 64 MiB, 32 processes \
    on 32 nodes, 12 HServers and 4 SServers with room for a sixth of the file. As many bytes are accessed as the file has, and halfway the \
    popular regions change: the paper says only that \"the access frequencies change at run-time\". Planned from a run and judged by the \
    same run, as section 5.1 does.";
pub(super) const DISCUSSION_5: &str = "";
pub(super) const DISCUSSION_6: &str = "";
pub(super) const DISCUSSION_7: &str = "";
pub(super) const DISCUSSION_8: &str = "";

const SERVERS: (usize, usize) = (12, 4);
const PROCESSES: u32 = 32;
/// Phases with other popular regions.
pub(super) const PHASES: u32 = 2;
pub(super) const SIZES: [ByteCount; 4] =
    [ByteCount(64 << 10), ByteCount(256 << 10), ByteCount(1 << 20), ByteCount(4 << 20)];
const USUAL_SIZE: ByteCount = ByteCount(512 << 10);
const FILE: ByteCount = ByteCount(128 << 30);

/// The paper's IOR.
pub(super) fn ior(direction: Direction, size: ByteCount, processes: u32, seed: u64) -> Result<Box<dyn Program>> {
    let nodes = processes.min(NODES);
    let requests = FILE.0 / size.0 / u64::from(processes * PHASES);
    let op = direction_name(direction);
    benchmark(&format!(
        "ior:pattern=zipf,a=0.8,size={FILE},transfer={size},processes={processes},nodes={nodes},op={op},phases={PHASES},\
         requests={requests},seed={seed}"
    ))
}

/// A panel for reads and one for writes, with a group for each value.
fn by_direction<V: Copy + Sync>(
    setting: &Setting<'_>,
    axis: &str,
    values: &[(String, V)],
    run: impl Fn(Direction, V) -> Result<Vec<Option<f64>>> + Sync,
) -> Result<[Panel; 2]> {
    let cases: Vec<(Direction, V)> =
        DIRECTIONS.iter().flat_map(|direction| values.iter().map(|(_, value)| (*direction, *value))).collect();
    let figures = setting.map(&cases, |(direction, value)| run(*direction, *value))?;
    let panel = |place: usize| {
        let figures = figures[place * values.len()..].iter().cloned();
        let groups = values.iter().map(|(name, _)| name.clone()).zip(figures);
        let title = format!("IOR {}", direction_name(DIRECTIONS[place]));
        Panel::new(title, Unit::MbPerS, axis, policies(), groups)
    };
    Ok([panel(0), panel(1)])
}

pub(super) fn figure_5(setting: &Setting<'_>) -> Result<Findings> {
    let values: Vec<(String, ByteCount)> = SIZES.iter().map(|size| (size.to_string(), *size)).collect();
    let panels = by_direction(setting, "request size", &values, |direction, size| {
        let program = ior(direction, size, PROCESSES, setting.seed)?;
        bandwidths(setting, &lab_for(&*program, SERVERS), &*program)
    })?;
    let mut findings = Findings::default();
    findings.rows.extend(most_gains(&panels[0], "read", [219.0, 103.0, 49.0].map(Published::UpTo)));
    findings.rows.extend(most_gains(&panels[1], "write", [253.0, 115.0, 56.0].map(Published::UpTo)));
    findings.panels.extend(panels);
    Ok(findings)
}

/// Mean busy time of the devices of a class.
fn busy_s(outcome: &Outcome, classes: &[ServerClass], class: ServerClass) -> f64 {
    let of_class = outcome.servers.iter().zip(classes).filter(|(_, found)| **found == class);
    let times: Vec<f64> = of_class.map(|(server, _)| server.device_busy_s).collect();
    times.iter().sum::<f64>() / times.len() as f64
}

pub(super) fn figure_6(setting: &Setting<'_>) -> Result<Findings> {
    let program = ior(Direction::Read, SIZES[1], PROCESSES, setting.seed)?;
    let lab = lab_for(&*program, SERVERS);
    let classes: Vec<ServerClass> = lab.cluster.servers.iter().map(|server| server.class).collect();
    let found = setting.map(&[()], |()| outcomes(setting, &lab, &*program))?;
    let times: Vec<(f64, f64)> = found[0]
        .iter()
        .map(|outcome| (busy_s(outcome, &classes, ServerClass::Hdd), busy_s(outcome, &classes, ServerClass::Ssd)))
        .collect();
    let named: Vec<(String, (f64, f64))> =
        policies().iter().map(ToString::to_string).zip(times.iter().copied()).collect();
    let unit_s = named.iter().find(|(policy, _)| policy == "h2dp").map_or(1.0, |(_, (_, ssd_s))| *ssd_s);
    let groups =
        named.iter().map(|(policy, (hdd_s, ssd_s))| (policy.clone(), vec![Some(hdd_s / unit_s), Some(ssd_s / unit_s)]));
    let panel = Panel::new("I/O time", Unit::Ratio, "policy", ["HServers", "SServers"], groups);
    let skew = named.iter().filter(|(policy, _)| policy != "opt");
    let rows = skew.map(|(policy, (hdd_s, ssd_s))| {
        Row::new(policy, "HServers over SServers", Unit::Ratio, Published::NotPrinted, hdd_s / ssd_s)
    });
    Ok(Findings { rows: rows.collect(), panels: vec![panel], ..Findings::default() })
}

pub(super) fn figure_7(setting: &Setting<'_>) -> Result<Findings> {
    let values = [8u32, 16, 32, 64].map(|processes| (processes.to_string(), processes));
    let panels = by_direction(setting, "processes", &values, |direction, processes| {
        let program = ior(direction, USUAL_SIZE, processes, setting.seed)?;
        bandwidths(setting, &lab_for(&*program, SERVERS), &*program)
    })?;
    let mut findings = Findings::default();
    findings.rows.extend(most_gains(&panels[0], "read", [188.0, 82.0, 49.0].map(Published::UpTo)));
    findings.rows.extend(most_gains(&panels[1], "write", [204.0, 75.0, 51.0].map(Published::UpTo)));
    findings.panels.extend(panels);
    Ok(findings)
}

pub(super) fn figure_8(setting: &Setting<'_>) -> Result<Findings> {
    let values = [(12usize, 4usize), (8, 8), (4, 12)].map(|(h, s)| (format!("{h}H{s}S"), (h, s)));
    let panels = by_direction(setting, "servers", &values, |direction, servers| {
        let program = ior(direction, USUAL_SIZE, PROCESSES, setting.seed)?;
        bandwidths(setting, &lab_for(&*program, servers), &*program)
    })?;
    let mut findings = Findings::default();
    let [read, write] = &panels;
    findings.rows.extend(gains(read, "12H4S read", "12H4S", [143.0, 71.0, 34.0].map(Published::Value)));
    findings.rows.extend(gains(write, "12H4S write", "12H4S", [173.0, 74.0, 38.0].map(Published::Value)));
    // "When the ratio is 4H12S, the improvements become up to 197, 62, and 40 percent": of reads and writes the larger.
    for (base, published) in [("def", 197.0), ("padp", 62.0), ("psa", 40.0)] {
        let gain = |panel: &Panel| panel.gain_percent("4H12S", "h2dp", base).unwrap_or(f64::NAN);
        let ours = gain(read).max(gain(write));
        let what = format!("h2dp over {base}");
        findings.rows.push(Row::new("4H12S", what, Unit::Percent, Published::UpTo(published), ours));
    }
    findings.panels.extend(panels);
    Ok(findings)
}
