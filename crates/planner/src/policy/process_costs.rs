//! What the process-oriented layouts cost by table 2 of Cost-intelligent: of `cost`, for its choice and for its replicas.

use super::Task;
use stripewise_layout::ServerId;
use stripewise_model::cost_intelligent::{ProcessLayout, TableForm, request_cost};
use stripewise_model::{Concurrency, Picoseconds, UniformParameters};
use stripewise_trace::AccessClass;

/// 1-DH, 1-DV, and 2-D for every number of groups between them that divides n, in the order in which ties are decided.
pub(super) fn candidates(servers: usize) -> Vec<ProcessLayout> {
    let n = servers as u32;
    let mut candidates = vec![ProcessLayout::OneDh];
    candidates.extend((2..n).filter(|groups| n.is_multiple_of(*groups)).map(|groups| ProcessLayout::TwoD { groups }));
    if n > 1 {
        candidates.push(ProcessLayout::OneDv);
    }
    candidates
}

pub(super) fn parameters_of(task: &Task<'_>, servers: &[ServerId]) -> UniformParameters {
    UniformParameters::of_servers(task.request.profile, |number| servers.iter().any(|id| usize::from(id.0) == number))
}

pub(super) fn cost_of(
    parameters: &UniformParameters,
    layout: ProcessLayout,
    class: AccessClass,
    concurrency: Concurrency,
) -> Picoseconds {
    request_cost(parameters, layout, TableForm::Corrected, class, concurrency).total()
}
