//! Section 2.2: stripes of one size on servers of two kinds.

use super::{REGION, benchmark, direction_name, lab};
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, Unit};
use crate::reproduce::run_log::Scale;
use anyhow::Result;
use stripewise::laboratory::Lab;
use stripewise_layout::{ByteCount, Direction, Layout, Placement, ServerId};
use stripewise_sim::{FilePlacements, SimOptions};

pub(super) const DISCUSSION: &str = "The paper gives no numbers here, only that the hybrid servers are \"slightly better\" than the HServers and \"even \
    worse\" than the SServers. The second is found: every request of 512 KiB has a stripe on each of the eight servers and waits for the HServers. They \
    are better than the HServers alone by three quarters, more than slightly: half as many bytes lie on each disk. Sequential and \
    random are alike because 16 processes that each read their own share are 16 streams on every disk, and a disk follows 8.";

const FILE: ByteCount = ByteCount(16 << 30);
/// 1 GiB in 256 regions.
const SCALE: Scale = Scale { files: 16, regions: 16 };
const STRIPE_BYTES: u32 = 64 << 10;
const PLATFORMS: [(&str, (usize, usize)); 3] = [("4H", (4, 0)), ("4S", (0, 4)), ("4H4S", (4, 4))];

pub(super) fn figure_2(setting: &Setting<'_>) -> Result<Findings> {
    let patterns = ["sequential", "random"];
    let cases: Vec<(&str, Direction)> =
        patterns.iter().flat_map(|pattern| super::DIRECTIONS.map(|direction| (*pattern, direction))).collect();
    let figures = setting.map(&cases, |(pattern, direction)| {
        let (op, scale) = (direction_name(*direction), setting.scale(SCALE));
        let program = benchmark(&format!(
            "ior:pattern={pattern},size={},transfer=512KiB,processes=16,nodes=16,op={op},seed={}",
            scale.file(FILE),
            setting.seed
        ))?;
        let run = |(_, servers): (&str, (usize, usize))| -> Result<Option<f64>> {
            let lab = lab(servers, None, scale.region(REGION))?;
            let placements = [FilePlacements::fixed(striped(&lab)?)];
            setting.bench(&lab, &*program)?.mb_per_s(&placements, SimOptions::default())
        };
        PLATFORMS.into_iter().map(run).collect::<Result<Vec<_>>>()
    })?;
    let named = cases.iter().map(|(pattern, direction)| format!("{pattern} {}", direction_name(*direction)));
    let series = PLATFORMS.iter().map(|(name, _)| *name);
    let panel = Panel::new("IOR in stripes of 64 KiB", Unit::MbPerS, "access", series, named.zip(figures));
    let mut findings = Findings::default();
    for group in &panel.groups {
        let over = |base| panel.gain_percent(group, "4H4S", base).unwrap_or(f64::NAN) / 100.0 + 1.0;
        // "Slightly better than four homogeneous HServers", "even worse than four homogeneous SServers".
        findings.rows.push(Row::new(group, "4H4S over 4H", Unit::Ratio, Published::AtLeast(1.0), over("4H")));
        findings.rows.push(Row::new(group, "4H4S over 4S", Unit::Ratio, Published::Below(1.0), over("4S")));
    }
    findings.panels.push(panel);
    Ok(findings)
}

fn striped(lab: &Lab) -> Result<Placement> {
    let servers = 0..lab.cluster.servers.len() as u16;
    let layout = Layout::new(servers.map(|server| (ServerId(server), STRIPE_BYTES)))?;
    Ok(Placement::uniform(ByteCount(lab.cluster.region_size.0), layout.clone(), layout))
}
