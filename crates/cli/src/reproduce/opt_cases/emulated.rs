//! The eight cases at a reduced size with real processes and real bytes, as the demo runs them.
//!
//! A file of 1 GiB in 256 regions of 4 MiB instead of 128 GiB in 2,048 of 64 MiB, MPI programs that verify every byte, emulated servers.
//! Only reads of the Zipf-distributed pattern.

use super::CaseResult;
use super::case::{Disk, HDDS, Pattern, SIZES, SSDS};
use crate::demo::emulated_runs;
use crate::reproduce::experiment::{Setting, TestbedKind};
use crate::results::RunResult;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use stripewise_layout::ByteCount;
use stripewise_planner::PolicyName;

const PROCESSES: u32 = 32;

pub(super) fn measure_all(setting: &Setting<'_>) -> Result<Vec<CaseResult>> {
    let sizes = SIZES.map(ByteCount);
    let measured = setting.map(&[Disk::Fast, Disk::Seeking], |disk| {
        let servers = format!("{HDDS}x{},{SSDS}xpaper-ssd", disk.device_name());
        let runs = emulated_runs(&servers, "gigabit", (&sizes, &PolicyName::ALL), PROCESSES, setting.seed)?;
        ensure!(runs.iter().all(|run| run.verified), "a run read other bytes than were written");
        Ok(SIZES.map(|request_bytes| result(*disk, request_bytes, &runs)))
    })?;
    Ok(measured.into_iter().flatten().collect())
}

fn result(disk: Disk, request_bytes: u64, runs: &[RunResult]) -> CaseResult {
    let of_size = || runs.iter().filter(|run| run.request_bytes == request_bytes);
    let figure = |run: &RunResult| {
        let policy = PolicyName::ALL.iter().find(|policy| policy.name() == run.policy)?;
        Some((policy.name(), run.bandwidth_mb_s))
    };
    let mb_s: BTreeMap<&'static str, f64> = of_size().filter(|run| !run.host_bound).filter_map(figure).collect();
    CaseResult {
        hdd: disk.name(),
        request_bytes,
        processes: PROCESSES,
        pattern: Pattern::Zipf,
        testbed: TestbedKind::Emulated,
        mb_s,
        bound_mb_s: None,
        spread: 0.0,
        host_bound: of_size().filter(|run| run.host_bound).map(|run| run.policy.clone()).collect(),
        requests: of_size().map(|run| run.bytes / run.request_bytes).max().unwrap_or(0),
    }
}

/// What the reader of emulated figures should know.
pub(super) fn remark(results: &[CaseResult]) -> Option<String> {
    let first = results.iter().find(|result| result.testbed == TestbedKind::Emulated)?;
    let host_bound: usize = results.iter().map(|result| result.host_bound.len()).sum();
    Some(format!(
        "Emulated servers, {} real processes, one run for each figure, a file of 1 GiB in 256 regions; {host_bound} runs were paced by this \
         machine and have no figure.",
        first.processes
    ))
}
