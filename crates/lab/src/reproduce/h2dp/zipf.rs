//! Section 5.2.1: IOR with requests by Zipf's law.

use super::schemes::{Moves, Testbed, bandwidths, gains, most_gains, outcomes, rows, schemes};
use super::{DIRECTIONS, MIGRATION, NODES, REGION, SCALE, benchmark, direction_name};
use crate::reproduce::emulated::least_s;
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, TestbedKind, Unit};
use anyhow::Result;
use stripewise_layout::{ByteCount, Direction, ServerClass};
use stripewise_sim::Outcome;
use stripewise_trace::{FileAccess, Program};

/// Disks and SSDs.
pub(super) const SERVERS: (usize, usize) = (12, 4);

pub(super) const SETUP_5: &str = "IOR with Zipf-distributed requests (a = 0.8) on a shared file of 128 GiB in regions of 64 MiB, 32 processes \
    on 32 nodes, 12 HServers and 4 SServers with space for a sixth of the file. As many bytes are accessed as the file has, and halfway the \
    popular regions change: the paper says only that \"the access frequencies change at run-time\". Planned from a run and judged by the \
    same run, as section 5.1 does. On emulated servers requests of 1 MiB and more access the file several times, lest a run be too short.";
pub(super) const DISCUSSION_5: &str = "What the paper says of the schemes that plan is found in direction: H2DP is ahead of PADP and PSA, most for small requests, over PSA by more than is printed. Its lead over PADP is a seventh of that printed, and its lead over DEF is not found at all: below 1 MiB DEF is the fastest of the four. \
    With 32 requests in flight the servers are busy all the time, and what counts is the work that a request makes for all servers together. In stripes of \
    64 KiB a request of 64 KiB is one access of one server; in H2DP's pairs it is up to 16 accesses that each pay a startup. Only from 1 MiB on, where DEF cuts \
    requests into 16 as well, is H2DP faster. Disks as in Cost-intelligent's table 4 give the same order. With stripes of 64 KiB or more and free moves H2DP leads DEF by up to 70 %. And the lead \
    hangs on the profile: on disks that seek (h2dp-fig5-seek) and with free moves the published gains are found from 1 MiB on, and with stripes of at least \
    64 KiB at every size. `opt` weighs that work and is 1.3 to 1.8 times as fast as the best of the four. \
    On emulated servers DEF, PADP and PSA have the simulated bandwidths within 6 %. H2DP, whose moves take none of the time there, is up to 95 % ahead of PADP, \
    nearly as far as printed, and still ahead of DEF from 1 MiB on only. \
    On a real Ceph with throttled servers H2DP leads DEF at 256 KiB and 1 MiB: [h2dp-on-ceph.md](h2dp-on-ceph.md).";
pub(super) const DISCUSSION_6: &str = "The paper's bars are not in its text. It says that H2DP's SServers are busier than those of PADP and PSA, because more requests meet \
    them: found, they are busy twice as long. It also says that PADP, PSA and H2DP load the two classes far more evenly than DEF; that is not found. Five sixths of the \
    file's bytes lie on HServers under each of the four, in regions on HServers alone and as the HServers' part of the others, and that outweighs how stripes are balanced. Only `opt`, which puts regions on SServers \
    without a part on HServers, keeps both classes busy alike.";
pub(super) const DISCUSSION_7: &str = "As in figure 5, H2DP is ahead of PADP and PSA by a few percent where the paper has tens, and behind DEF, whose eight stripes of 64 KiB \
    make less work than H2DP's twelve and sixteen smaller ones. The paper's bandwidths fall with more processes; ours rise until the servers are busy, \
    since the simulated servers do not slow down when more clients connect.";
pub(super) const DISCUSSION_8: &str = "With 4 HServers and 12 SServers H2DP leads all three, by 14 to 25 %; its gains grow with the share of SServers as the paper says, but \
    from a lower start. With more SServers and fewer HServers the whole becomes slower here and faster in the paper: SServers keep space for a sixth of the file \
    in all, so the other five sixths fall on ever fewer disks. For the paper's result the SServers' space must have grown with their number, against its section 5.1.";

pub(super) const PROCESSES: u32 = 32;
/// About what the emulated servers deliver.
const EMULATED_BYTES_PER_S: f64 = 400e6;
/// Phases with other popular regions.
pub(super) const PHASES: u32 = 2;
pub(super) const SIZES: [ByteCount; 4] =
    [ByteCount(64 << 10), ByteCount(256 << 10), ByteCount(1 << 20), ByteCount(4 << 20)];
pub(super) const USUAL_SIZE: ByteCount = ByteCount(512 << 10);
const FILE: ByteCount = ByteCount(128 << 30);

/// The paper's IOR.
pub(super) fn ior(
    setting: &Setting<'_>,
    direction: Direction,
    size: ByteCount,
    processes: u32,
) -> Result<Box<dyn Program>> {
    let file = setting.scale(SCALE).file(FILE);
    let passes = match setting.testbed {
        TestbedKind::Simulated => 1,
        TestbedKind::Emulated => {
            let bytes = least_s(processes, size.0) * EMULATED_BYTES_PER_S;
            (bytes * f64::from(PHASES) / file.0 as f64).ceil().max(1.0) as u64
        }
    };
    ior_with(setting, direction, size, processes, passes * file.0 / size.0 / u64::from(processes * PHASES))
}

/// As [`ior`], with so many requests of each process in each phase.
pub(super) fn ior_with(
    setting: &Setting<'_>,
    direction: Direction,
    size: ByteCount,
    processes: u32,
    requests: u64,
) -> Result<Box<dyn Program>> {
    let nodes = processes.min(NODES);
    let (seed, scale) = (setting.seed, setting.scale(SCALE));
    let (file, region) = (scale.file(FILE), scale.region(REGION));
    let op = direction_name(direction);
    benchmark(&format!(
        "ior:pattern=zipf,a=0.8,size={file},region={region},transfer={size},processes={processes},nodes={nodes},op={op},phases={PHASES},\
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
        Panel::new(title, Unit::MbPerS, axis, schemes(Moves::of(setting)), groups)
    };
    Ok([panel(0), panel(1)])
}

pub(super) fn figure_5(setting: &Setting<'_>, testbed: Testbed) -> Result<Findings> {
    // On real time, a request of 64 KiB that seeks on every disk would take minutes for each figure, and one of 4 MiB shows what 1 MiB does.
    let is_short = setting.testbed == TestbedKind::Emulated && testbed == Testbed::Seeking;
    let sizes = if is_short { &SIZES[1..3] } else { &SIZES[..] };
    let values: Vec<(String, ByteCount)> = sizes.iter().map(|size| (size.to_string(), *size)).collect();
    let panels = by_direction(setting, "request size", &values, |direction, size| {
        let program = ior(setting, direction, size, PROCESSES)?;
        bandwidths(setting, &testbed.lab_for(setting, &*program, SERVERS)?, &*program, Moves::of(setting), MIGRATION)
    })?;
    let (mut findings, moves) = (Findings::default(), Moves::of(setting));
    findings.rows.extend(most_gains(&panels[0], "read", [219.0, 103.0, 49.0].map(Published::UpTo), moves));
    findings.rows.extend(most_gains(&panels[1], "write", [253.0, 115.0, 56.0].map(Published::UpTo), moves));
    findings.panels.extend(panels);
    Ok(findings)
}

/// Mean busy time of the devices of a class.
fn busy_s(outcome: &Outcome, classes: &[ServerClass], class: ServerClass) -> f64 {
    let of_class = outcome.servers.iter().zip(classes).filter(|(_, found)| **found == class);
    let times: Vec<f64> = of_class.map(|(server, _)| server.device_busy_s).collect();
    times.iter().sum::<f64>() / times.len() as f64
}

pub(super) fn figure_6(setting: &Setting<'_>, testbed: Testbed) -> Result<Findings> {
    let program = ior(setting, Direction::Read, SIZES[1], PROCESSES)?;
    let lab = testbed.lab_for(setting, &*program, SERVERS)?;
    let classes: Vec<ServerClass> = lab.cluster.servers.iter().map(|server| server.class).collect();
    let found = setting.map(&[()], |()| outcomes(setting, &lab, &*program))?;
    let times: Vec<(f64, f64)> = found[0]
        .iter()
        .map(|outcome| (busy_s(outcome, &classes, ServerClass::Hdd), busy_s(outcome, &classes, ServerClass::Ssd)))
        .collect();
    let named: Vec<(String, (f64, f64))> =
        schemes(Moves::AsSaid).iter().map(ToString::to_string).zip(times.iter().copied()).collect();
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

pub(super) fn figure_7(setting: &Setting<'_>, testbed: Testbed) -> Result<Findings> {
    let values = [8u32, 16, 32, 64].map(|processes| (processes.to_string(), processes));
    let panels = by_direction(setting, "processes", &values, |direction, processes| {
        let program = ior(setting, direction, USUAL_SIZE, processes)?;
        bandwidths(setting, &testbed.lab_for(setting, &*program, SERVERS)?, &*program, Moves::of(setting), MIGRATION)
    })?;
    let (mut findings, moves) = (Findings::default(), Moves::of(setting));
    findings.rows.extend(most_gains(&panels[0], "read", [188.0, 82.0, 49.0].map(Published::UpTo), moves));
    findings.rows.extend(most_gains(&panels[1], "write", [204.0, 75.0, 51.0].map(Published::UpTo), moves));
    findings.panels.extend(panels);
    Ok(findings)
}

pub(super) fn figure_8(setting: &Setting<'_>, testbed: Testbed) -> Result<Findings> {
    let values = [(12usize, 4usize), (8, 8), (4, 12)].map(|(h, s)| (format!("{h}H{s}S"), (h, s)));
    let panels = by_direction(setting, "servers", &values, |direction, servers| {
        let program = ior(setting, direction, USUAL_SIZE, PROCESSES)?;
        bandwidths(setting, &testbed.lab_for(setting, &*program, servers)?, &*program, Moves::of(setting), MIGRATION)
    })?;
    let (mut findings, moves) = (Findings::default(), Moves::of(setting));
    let [read, write] = &panels;
    findings.rows.extend(gains(read, "12H4S read", "12H4S", [143.0, 71.0, 34.0].map(Published::Value), moves));
    findings.rows.extend(gains(write, "12H4S write", "12H4S", [173.0, 74.0, 38.0].map(Published::Value), moves));
    // "When the ratio is 4H12S, the improvements become up to 197, 62, and 40 percent": of reads and writes the larger.
    findings.rows.extend(rows("4H12S", [197.0, 62.0, 40.0].map(Published::UpTo), moves, |series, base| {
        let gain = |panel: &Panel| panel.gain_percent("4H12S", series, base);
        gain(read).into_iter().chain(gain(write)).max_by(f64::total_cmp)
    }));
    findings.panels.extend(panels);
    Ok(findings)
}

/// The accesses of each file's first window.
pub(super) fn first_window(files: &[FileAccess]) -> Vec<FileAccess> {
    let first = |file: &FileAccess| FileAccess { windows: file.windows[..1].to_vec(), ..file.clone() };
    files.iter().map(first).collect()
}
