//! Traces and logs of any form, and their counts.

use crate::failure::failed;
use crate::tables;
use crate::workers::on_workers;
use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::path::PathBuf;
use std::sync::Arc;
use stripewise::counts::count;
use stripewise_layout::{ByteCount, Direction};
use stripewise_trace::{CountOptions, FileAccess};

/// The calls of a run, read from what a tool recorded of it; `stripewise.Trace` wraps it.
#[pyclass(frozen, module = "stripewise._stripewise")]
pub(crate) struct Trace {
    path: PathBuf,
    trace: Arc<stripewise_trace::Trace>,
}

#[pymethods]
impl Trace {
    #[new]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let opened = path.clone();
        let trace = on_workers(py, move || stripewise_trace::Trace::open(&opened).map_err(failed))?;
        Ok(Self { path, trace: Arc::new(trace) })
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    #[getter]
    fn command(&self) -> Vec<String> {
        self.trace.manifest.as_ref().map_or_else(Vec::new, |manifest| manifest.command.clone())
    }

    #[getter]
    fn calls(&self) -> u64 {
        self.trace.processes.iter().map(|process| process.events).sum()
    }

    #[getter]
    fn processes(&self) -> usize {
        self.trace.processes.len()
    }

    #[getter]
    fn nodes(&self) -> Vec<String> {
        self.trace.nodes.clone()
    }

    #[getter]
    fn files(&self) -> Vec<String> {
        self.trace.files.iter().map(|file| file.path.clone()).collect()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.trace.warnings.iter().map(ToString::to_string).collect()
    }

    #[getter]
    fn start_ns(&self) -> u64 {
        self.trace.origin_unix_ns()
    }

    #[getter]
    fn duration_s(&self) -> f64 {
        self.trace.duration().seconds()
    }

    /// All calls, process after process.
    fn stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        tables::stream(py, stripewise_columnar::calls(Arc::clone(&self.trace)))
    }
}

/// Requests by file, window, region and class; `stripewise.Counts` wraps it.
#[pyclass(frozen, module = "stripewise._stripewise")]
pub(crate) struct Counts {
    batch: RecordBatch,
    #[pyo3(get)]
    remarks: Vec<String>,
    /// Path, direction, requests and bytes.
    #[pyo3(get)]
    sums: Vec<(String, &'static str, u64, u64)>,
}

/// Requests and bytes of each file and direction.
fn sums(files: &[FileAccess]) -> Vec<(String, &'static str, u64, u64)> {
    let mut found = Vec::new();
    for file in files {
        for (direction, name) in [(Direction::Read, "read"), (Direction::Write, "write")] {
            let regions = file.windows.iter().flat_map(|window| &window.regions);
            let counts = regions.flat_map(|region| &region.counts).map(|(class, count)| (file.class(*class), *count));
            let (requests, bytes) = counts.filter(|(class, _)| class.direction() == direction).fold(
                (0u64, 0u64),
                |(requests, bytes), (class, count)| {
                    (requests + count, bytes.saturating_add(class.request_bytes * count))
                },
            );
            if requests > 0 {
                found.push((file.path.clone(), name, requests, bytes));
            }
        }
    }
    found
}

#[pymethods]
impl Counts {
    /// Counts traces and logs, which are taken to begin at the same time.
    #[new]
    #[pyo3(signature = (paths, window_s, region_bytes))]
    fn of(py: Python<'_>, paths: Vec<PathBuf>, window_s: f64, region_bytes: u64) -> PyResult<Self> {
        let options = CountOptions { window_s, region_size: ByteCount(region_bytes), ..CountOptions::default() };
        on_workers(py, move || {
            let counted = count(&paths, &options).map_err(failed)?;
            let batch = stripewise_columnar::counts(&counted.files).map_err(failed)?;
            Ok(Self { batch, remarks: counted.remarks, sums: sums(&counted.files) })
        })
    }

    #[getter]
    fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    fn stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        tables::table(py, self.batch.clone())
    }
}
