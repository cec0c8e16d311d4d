//! The eight cases at a reduced size with real processes and real bytes, as the demo runs them.
//!
//! A file of 1 GiB in 256 regions of 4 MiB instead of 128 GiB in 2,048 of 64 MiB, MPI programs that verify every byte, emulated servers.
//! Only reads of the Zipf-distributed pattern.

use super::case::{Disk, HDDS, Pattern, SIZES, SSDS};
use super::{CaseResult, mean_and_spread};
use crate::demo::emulated_runs;
use crate::reproduce::experiment::{Setting, TestbedKind};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use stripewise_layout::ByteCount;
use stripewise_planner::PolicyName;
use stripewise_report::results::RunResult;

const PROCESSES: u32 = 32;

pub(super) fn measure_all(setting: &Setting<'_>) -> Result<Vec<CaseResult>> {
    let sizes = SIZES.map(ByteCount);
    let measured = setting.map(&[Disk::Fast, Disk::Seeking], |disk| {
        let servers = format!("{HDDS}x{},{SSDS}xpaper-ssd", disk.device_name());
        let runs = emulated_runs(&servers, "gigabit", (&sizes, &PolicyName::ALL), &repeats, PROCESSES, setting.seed)?;
        ensure!(runs.iter().all(|run| run.verified), "a run read other bytes than were written");
        Ok(SIZES.map(|request_bytes| result(*disk, request_bytes, &runs)))
    })?;
    Ok(measured.into_iter().flatten().collect())
}

/// `opt` several times, each on a file placed again: what differs then is the machine's doing.
fn repeats(policy: PolicyName) -> usize {
    if policy == PolicyName::Opt { 3 } else { 1 }
}

fn result(disk: Disk, request_bytes: u64, runs: &[RunResult]) -> CaseResult {
    let of_size = || runs.iter().filter(|run| run.request_bytes == request_bytes);
    let mut mb_s = BTreeMap::new();
    let mut spread = 0.0f64;
    for policy in PolicyName::ALL {
        let of_policy = of_size().filter(|run| run.policy == policy.name() && !run.host_bound);
        let figures: Vec<f64> = of_policy.map(|run| run.bandwidth_mb_s).collect();
        if !figures.is_empty() {
            let (mean, of_mean) = mean_and_spread(&figures);
            mb_s.insert(policy.name(), mean);
            spread = spread.max(of_mean);
        }
    }
    let mut host_bound: Vec<String> = of_size().filter(|run| run.host_bound).map(|run| run.policy.clone()).collect();
    host_bound.dedup();
    CaseResult {
        hdd: disk.name(),
        request_bytes,
        processes: PROCESSES,
        pattern: Pattern::Zipf,
        testbed: TestbedKind::Emulated,
        mb_s,
        bound_mb_s: None,
        spread,
        host_bound,
        starts: BTreeMap::new(),
        requests: of_size().map(|run| run.bytes / run.request_bytes).max().unwrap_or(0),
    }
}

/// What the reader of emulated figures should know.
pub(super) fn remark(results: &[CaseResult]) -> Option<String> {
    let first = results.iter().find(|result| result.testbed == TestbedKind::Emulated)?;
    let host_bound: usize = results.iter().map(|result| result.host_bound.len()).sum();
    Some(format!(
        "Emulated servers, {} real processes, a file of 1 GiB in 256 regions, one run for each figure and three for opt, whose spread (95 %) says \
         what to make of differences; {host_bound} runs were paced by this machine and are left out.",
        first.processes
    ))
}
