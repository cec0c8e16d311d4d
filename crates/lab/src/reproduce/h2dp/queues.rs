//! A guess at what DEF lacks in the paper: each server serves one file's requests in order of arrival, and those of many region files sorted.

use super::schemes::{Moves, READINGS, Reading, Scheme, Testbed, schemes};
use super::zipf::{PROCESSES, SERVERS, USUAL_SIZE, ior};
use super::{DIRECTIONS, MIGRATION, direction_name};
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, Unit};
use anyhow::Result;
use stripewise::laboratory::{Lab, placements};
use stripewise_device::{DeviceModel, DiskOrder, lookup_disk};
use stripewise_planner::PolicyName;
use stripewise_sim::{Borders, Migration, ServerDetail, SimOptions};
use stripewise_trace::Program;

pub(super) const SETUP: &str = "As figure 8 with 12 HServers and 4 SServers on disks that seek, but the disks are simulated by their mechanics (`hdd-7200`), in either of two \
    orders: waiting requests as they arrive, as if a server had one queue for each open file, or sorted by address (the elevator). DEF has one file, \
    and runs in both; H2DP keeps regions in files of their own, and it, PADP and PSA are sorted. Published are figure 8's gains, and those of PADP over DEF \
    that follow from them.";
pub(super) const DISCUSSION: &str = "The guess explains little. Serving in order of arrival costs DEF 5 %, since with 32 requests in flight few wait for any one disk and sorting saves few seeks. PADP is 6 % over DEF \
    at the most where 42 and 57 % follow from the paper, and 25 % behind with stripes as printed. H2DP with free moves and stripes of 64 KiB or more comes near what is printed, 133 of 143 % reading and 131 of 173 % writing, but 120 of that it has with a sorted DEF as \
    well. What slowed the paper's DEF is still not described.";

const FIRST_COME: &str = "in order of arrival";
const SORTED: &str = "sorted";

pub(super) fn queues(setting: &Setting<'_>) -> Result<Findings> {
    let published = [(PolicyName::H2dp, [143.0, 173.0]), (PolicyName::Padp, [42.0, 57.0])];
    let compared: Vec<(Scheme, DiskOrder)> = schemes(Moves::AlsoFree)
        .into_iter()
        .filter(|scheme| scheme.policy != PolicyName::Opt)
        .flat_map(|scheme| {
            let first_come = (scheme.policy == PolicyName::Def).then_some((scheme, DiskOrder::Fifo));
            first_come.into_iter().chain([(scheme, DiskOrder::Elevator)])
        })
        .collect();
    let cases: Vec<_> = DIRECTIONS.iter().flat_map(|direction| compared.iter().map(|one| (*direction, *one))).collect();
    let figures = setting.map(&cases, |(direction, (scheme, order))| {
        let program = ior(setting, *direction, USUAL_SIZE, PROCESSES)?;
        let lab = Testbed::Seeking.lab_for(setting, &*program, SERVERS)?;
        run(setting, &lab, &*program, *scheme, *order).map(Some)
    })?;
    let names = compared.iter().map(|(scheme, order)| named(*scheme, *order));
    let names: Vec<String> = names.collect();
    let groups = DIRECTIONS.iter().zip(figures.chunks(compared.len()));
    let groups = groups.map(|(direction, figures)| (direction_name(*direction).to_owned(), figures.to_vec()));
    let panel = Panel::new("IOR, 512 KiB", Unit::MbPerS, "access", names, groups);
    let def = Scheme { policy: PolicyName::Def, reading: Reading::AsPrinted, free_moves: false };
    let mut findings = Findings::default();
    for (place, direction) in DIRECTIONS.into_iter().enumerate() {
        let group = direction_name(direction);
        for reading in READINGS {
            for (policy, published) in published {
                let scheme = Scheme { policy, reading, free_moves: policy == PolicyName::H2dp };
                for order in [DiskOrder::Fifo, DiskOrder::Elevator] {
                    let (series, base) = (named(scheme, DiskOrder::Elevator), named(def, order));
                    let ours = panel.gain_percent(group, &series, &base).unwrap_or(f64::NAN);
                    let published = Published::Value(published[place]);
                    let what = format!("{scheme} over {base}");
                    findings.rows.push(Row::new(group, what, Unit::Percent, published, ours));
                }
            }
        }
    }
    findings.panels.push(panel);
    Ok(findings)
}

fn named(scheme: Scheme, order: DiskOrder) -> String {
    match (scheme.policy, order) {
        (PolicyName::Def, DiskOrder::Fifo) => format!("{scheme} {FIRST_COME}"),
        (PolicyName::Def, _) => format!("{scheme} {SORTED}"),
        _ => scheme.to_string(),
    }
}

/// Million bytes per second with mechanical disks that serve in this order.
fn run(setting: &Setting<'_>, lab: &Lab, program: &dyn Program, scheme: Scheme, order: DiskOrder) -> Result<f64> {
    let migration = if scheme.free_moves { Migration::Free } else { MIGRATION };
    let plan = scheme.plan(setting, lab, program, &lab.count(program), migration)?;
    let device = DeviceModel::Disk { spec: lookup_disk("hdd-7200")?, order };
    let disks = vec![ServerDetail { device, ..ServerDetail::default() }; SERVERS.0];
    let detail = disks.into_iter().chain(vec![ServerDetail::default(); SERVERS.1]).collect();
    let options = SimOptions { borders: Borders::Phase, migration, detail, ..SimOptions::default() };
    Ok(lab.simulate_with(&placements(&plan, program), program, options)?.mb_per_s)
}
