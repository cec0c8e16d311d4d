//! Simulations, advice and reports: each as the JSON or HTML that the command writes.

use crate::connection::session;
use crate::failure::{StripewiseError, failed};
use crate::planning::{policies_named, size};
use crate::workers::on_workers;
use pyo3::prelude::*;
use std::path::PathBuf;
use stripewise::advise::{AdviseOptions, advise as give_advice};
use stripewise::emulated::EmulatedServers;
use stripewise::simulate::{Disks, SimulateOptions, Ssds, simulate as run_simulation};
use stripewise_layout::ByteCount;
use stripewise_report::TraceSummary;
use stripewise_sim::Migration;

/// A workload under plans and policies on modelled servers, as `stripewise simulate -o` writes it.
#[pyfunction]
#[pyo3(signature = (workload, plans, names, servers, cluster=None, link=None, region="64MiB".to_owned(), processes=None, files=vec![], window_s=None, mechanical=false, seed=1))]
#[expect(clippy::too_many_arguments, reason = "the package names them")]
pub(crate) fn simulate(
    py: Python<'_>,
    workload: String,
    plans: Vec<PathBuf>,
    names: Vec<String>,
    servers: Vec<String>,
    cluster: Option<PathBuf>,
    link: Option<String>,
    region: String,
    processes: Option<u32>,
    files: Vec<PathBuf>,
    window_s: Option<f64>,
    mechanical: bool,
    seed: u64,
) -> PyResult<String> {
    let group = |text: &String| text.parse::<EmulatedServers>().map_err(StripewiseError::new_err);
    let options = SimulateOptions {
        workload,
        plans,
        policies: policies_named(&names)?,
        servers: servers.iter().map(group).collect::<PyResult<_>>()?,
        link,
        region: size(&region)?,
        client_link: None,
        order: None,
        processes,
        pacing: None,
        files,
        window_s,
        disks: if mechanical { Disks::Mechanical(stripewise_device::DiskOrder::Elevator) } else { Disks::Mean },
        ssds: if mechanical { Ssds::Parts } else { Ssds::Mean },
        cache: None,
        migration: Migration::Free,
        ssd_capacity: None,
        seed,
    };
    on_workers(py, move || {
        let simulated = run_simulation(&session(cluster), &options).map_err(failed)?;
        serde_json::to_string(&simulated.as_written(options.workload).map_err(failed)?).map_err(failed)
    })
}

/// Advice on a program's files from its logs, as `stripewise --json advise` prints it.
#[pyfunction]
#[pyo3(signature = (logs, site, files=vec![], least="1MiB".to_owned(), max_files=64, worth_runs=10.0))]
pub(crate) fn advise(
    py: Python<'_>,
    logs: Vec<PathBuf>,
    site: PathBuf,
    files: Vec<PathBuf>,
    least: String,
    max_files: usize,
    worth_runs: f64,
) -> PyResult<String> {
    let options = AdviseOptions { logs, site, prefixes: files, least: size(&least)?, max_files, worth_runs };
    on_workers(py, move || {
        let advice = give_advice(&session(None), &options).map_err(failed)?;
        serde_json::to_string(&advice).map_err(failed)
    })
}

/// The report of traces, plans, a profile, results and a simulation, as `stripewise report` writes it.
#[pyfunction]
pub(crate) fn report(py: Python<'_>, inputs: Vec<PathBuf>) -> PyResult<String> {
    on_workers(py, move || stripewise::report::report(&inputs).map_err(failed))
}

/// The pictures of a trace in the report, as numbers: for each file that has one its bytes by offset and time.
#[pyfunction]
pub(crate) fn heat(py: Python<'_>, trace: PathBuf, region_bytes: u64) -> PyResult<String> {
    on_workers(py, move || {
        let trace = stripewise_trace::Trace::open(&trace).map_err(failed)?;
        let summary = TraceSummary::of(&trace, ByteCount(region_bytes)).map_err(failed)?;
        serde_json::to_string(&summary.heats().collect::<Vec<_>>()).map_err(failed)
    })
}
