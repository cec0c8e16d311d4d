//! Profiles, policies, and plans.

use crate::connection::session;
use crate::failure::{StripewiseError, failed};
use crate::tables;
use crate::workers::on_workers;
use arrow_array::builder::{Float64Builder, StringBuilder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::path::PathBuf;
use std::sync::Arc;
use stripewise::inputs::Selection;
use stripewise::plan::{PlanningOptions, plan as make_plans};
use stripewise_layout::{ByteCount, Layout};
use stripewise_planner::{PlanOptions, PolicyName, UnknownPolicy};

/// Names and one line of help of all policies, the default first.
#[pyfunction]
pub(crate) fn policies() -> Vec<(&'static str, &'static str)> {
    PolicyName::ALL.map(|policy| (policy.name(), policy.summary())).to_vec()
}

pub(crate) fn policies_named(names: &[String]) -> PyResult<Vec<PolicyName>> {
    let parse = |name: &String| name.parse().map_err(|error: UnknownPolicy| failed(error));
    names.iter().map(parse).collect()
}

pub(crate) fn size(text: &str) -> PyResult<ByteCount> {
    text.parse().map_err(|error: stripewise_layout::ParseSizeError| StripewiseError::new_err(error.to_string()))
}

/// What a cluster's servers were measured to take; `stripewise.Profile` wraps it.
#[pyclass(frozen, module = "stripewise._stripewise")]
pub(crate) struct Profile {
    profile: stripewise_model::Profile,
}

#[pymethods]
impl Profile {
    #[new]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let profile = py.detach(|| stripewise_model::Profile::load(&path).map_err(failed))?;
        Ok(Self { profile })
    }

    /// As in its file.
    fn json(&self) -> PyResult<String> {
        serde_json::to_string(&self.profile).map_err(failed)
    }
}

/// Where each region of each file is to lie, and what that is predicted to gain; `stripewise.Plan` wraps it.
#[pyclass(frozen, module = "stripewise._stripewise")]
pub(crate) struct Plan {
    plan: stripewise_planner::Plan,
}

#[pymethods]
impl Plan {
    #[new]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let plan = py.detach(|| stripewise_planner::Plan::load(&path).map_err(failed))?;
        Ok(Self { plan })
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.plan.save(&path).map_err(failed))
    }

    /// As in its file.
    fn json(&self) -> String {
        self.plan.to_json()
    }

    /// A row for each run of regions with one layout, in each window of each file.
    fn stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        tables::table(py, regions(&self.plan).map_err(failed)?)
    }
}

/// `hdd0 64KiB, ssd0 256KiB`, as `stripewise restripe --layout` takes it: each server with its stripe, in the order of their turns.
fn in_words(layout: &Layout, plan: &stripewise_planner::Plan) -> String {
    let stripe = |stripe: &stripewise_layout::Stripe| {
        let name = plan.servers.get(usize::from(stripe.server.0)).map_or("?", |server| server.name.as_str());
        format!("{name} {}", ByteCount(stripe.size_bytes.into()))
    };
    layout.stripes().iter().map(stripe).collect::<Vec<_>>().join(", ")
}

fn regions(plan: &stripewise_planner::Plan) -> Result<RecordBatch, ArrowError> {
    let schema = Schema::new(vec![
        Field::new("path", DataType::Utf8, false),
        Field::new("window_start_s", DataType::Float64, false),
        Field::new("window_end_s", DataType::Float64, false),
        Field::new("first_region", DataType::UInt64, false),
        Field::new("regions", DataType::UInt64, false),
        Field::new("offset", DataType::UInt64, false),
        Field::new("bytes", DataType::UInt64, false),
        Field::new("layout", DataType::Utf8, false),
    ]);
    let (mut path, mut layout) = (StringBuilder::new(), StringBuilder::new());
    let (mut start, mut end) = (Float64Builder::new(), Float64Builder::new());
    let (mut first, mut count) = (UInt64Builder::new(), UInt64Builder::new());
    let (mut offset, mut bytes) = (UInt64Builder::new(), UInt64Builder::new());
    for file in &plan.files {
        for window in &file.windows {
            let placement = &window.placement;
            let planned = placement.runs.iter().map(|run| (u64::from(run.regions), run.layout));
            // A placement without runs has one layout for all regions.
            let all = file.size_bytes.div_ceil(placement.region_size.0).saturating_sub(placement.planned_regions());
            let mut number = 0;
            for (regions, position) in planned.chain((all > 0).then_some((all, placement.beyond))) {
                path.append_value(&file.path);
                start.append_value(window.start_s);
                end.append_value(window.end_s);
                first.append_value(number);
                count.append_value(regions);
                offset.append_value(number * placement.region_size.0);
                bytes.append_value(regions * placement.region_size.0);
                layout.append_value(in_words(&placement.layouts[position as usize], plan));
                number += regions;
            }
        }
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(path.finish()),
        Arc::new(start.finish()),
        Arc::new(end.finish()),
        Arc::new(first.finish()),
        Arc::new(count.finish()),
        Arc::new(offset.finish()),
        Arc::new(bytes.finish()),
        Arc::new(layout.finish()),
    ];
    RecordBatch::try_new(Arc::new(schema), columns)
}

/// Plans of policies for the files of traces, in the order of the policies, and what to know of the traces.
///
/// `options` are those of a plan file, as JSON; the others are as `stripewise plan` has them by default.
#[pyfunction]
#[pyo3(signature = (traces, names, options, cluster=None, profile=None, files=vec![], least="1MiB".to_owned(), window_s=600.0, region=None))]
#[expect(clippy::too_many_arguments, reason = "the package names them")]
pub(crate) fn plan(
    py: Python<'_>,
    traces: Vec<PathBuf>,
    names: Vec<String>,
    options: &str,
    cluster: Option<PathBuf>,
    profile: Option<PathBuf>,
    files: Vec<PathBuf>,
    least: String,
    window_s: f64,
    region: Option<String>,
) -> PyResult<(Vec<Plan>, Vec<String>)> {
    let options = PlanningOptions {
        traces,
        profile,
        selection: Selection { prefixes: files, least: size(&least)?, window_s },
        region: region.as_deref().map(size).transpose()?,
        strict: false,
        policies: if names.is_empty() { vec![PolicyName::DEFAULT] } else { policies_named(&names)? },
        options: plan_options(options)?,
    };
    let planned = on_workers(py, move || make_plans(&session(cluster), &options).map_err(failed))?;
    let plans = planned.comparison.plans.into_iter().map(|plan| Plan { plan }).collect();
    Ok((plans, planned.remarks))
}

/// The options of a plan, those of the JSON in place of the defaults.
fn plan_options(given: &str) -> PyResult<PlanOptions> {
    let given: serde_json::Map<String, serde_json::Value> = serde_json::from_str(given).map_err(failed)?;
    let mut options = serde_json::to_value(PlanOptions::default()).map_err(failed)?;
    if let Some(options) = options.as_object_mut() {
        options.extend(given);
    }
    serde_json::from_value(options).map_err(failed)
}
