//! `cost`: for each file the cheapest of 1-DH, 1-DV and 2-D, and replicas in the others.
//!
//! **Paper.** Cost-intelligent, sections 3 to 5, table 2.
//!
//! **Assumptions.** Those of table 2 ([`stripewise_model::cost_intelligent`]): n servers, all alike; the cost of a request depends on its
//! size and on how many servers a process's data is spread over.
//!
//! **Algorithm.** Overall cost (section 4): for each layout the sum of its requests' costs, the p and m of their window in each; the least
//! wins. 2-D is tried with every number of groups that divides n, where the paper has groups of two servers. Ties go to 1-DH, then to fewer
//! groups. What the layouts are in a shared file, and how the room is met, is as for `1-dh` (`process_oriented.rs`); the HServers alone are
//! chosen for like any other n servers. Replicas (section 5, hybrid replication): `replicas.rs`.
//!
//! **Complexity.** O(divisors of n x classes) per file and O(regions); with replicas O(regions x (divisors of n)^2 x classes).

use super::process_costs::{candidates, cost_of, parameters_of};
use super::process_oriented::choose_each;
use super::replicas::plan_replicas;
use super::{About, FileChoice, Policy, Replicas, Source, Task, phases};
use stripewise_layout::ServerId;
use stripewise_model::cost_intelligent::ProcessLayout;
use stripewise_trace::FileAccess;

pub(crate) struct Cost;

impl Policy for Cost {
    fn about(&self) -> About {
        About {
            section: "cost",
            source: Source::Paper("Cost-intelligent, sections 4 and 5"),
            stripes_differ_by: "file",
            ssd_regions: "drawn",
            moves_data: "no, but has replicas",
        }
    }

    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice> {
        choose_each(task, |_, file, servers| best_layout(task, file, servers))
    }

    fn plans_replicas(&self) -> bool {
        true
    }

    fn replicas(&self, task: &Task<'_>, choices: &[FileChoice]) -> Vec<Replicas> {
        match task.request.options.replica_room {
            Some(capacity) => plan_replicas(task, choices, capacity.0),
            None => choices.iter().map(|_| Replicas::default()).collect(),
        }
    }
}

/// The layout of the least overall cost.
pub(super) fn best_layout(task: &Task<'_>, file: &FileAccess, servers: &[ServerId]) -> ProcessLayout {
    let parameters = parameters_of(task, servers);
    let phases = phases(task, file);
    let overall = |layout: &ProcessLayout| {
        let costs = phases.iter().flat_map(|(concurrency, totals)| {
            let (parameters, layout) = (&parameters, *layout);
            totals.iter().map(move |(class, count)| {
                cost_of(parameters, layout, *class, *concurrency).0.saturating_mul(u128::from(*count))
            })
        });
        costs.fold(0, u128::saturating_add)
    };
    candidates(servers.len()).into_iter().min_by_key(overall).expect("1-DH is always one of them")
}
