//! What a plan may count on: which servers take anything, and how much.
//!
//! The broker of the cluster knows which servers are drained and what files that are managed already may come to occupy. It is asked if the cluster has a state
//! directory; a cluster that nobody has used yet has neither, and its servers are asked for their free space alone.

use crate::free_space;
use crate::moves::layout_of;
use crate::session::Session;
use crate::store::{Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use stripewise_layout::{Cluster, ServerId};
use stripewise_planner::Plan;
use stripewise_store::protocol::ServerUsage;
use stripewise_store::server::Standing;

/// Of what a file system has free, this part is left to whatever writes there between planning and applying.
const LEFT_SHARE: u64 = 64;
/// It is no more than this.
const MAX_LEFT_BYTES: u64 = 16 << 20;

/// What a plan may count on.
pub(crate) struct PlanSpace {
    /// Of each server, in cluster order: bytes that the plan's files and what is to stay free may take together; `None`: not known.
    pub(crate) free_bytes: Vec<Option<u64>>,
    /// Names of servers on which nothing new is placed.
    pub(crate) drained: Vec<String>,
    /// What a person should know of it, one sentence each.
    pub(crate) remarks: Vec<String>,
}

/// What the broker says of a server, as far as a plan needs it.
struct Held {
    standing: Result<Standing, String>,
    /// Bytes that regions of other files may come to occupy.
    promised_bytes: u64,
    /// Bytes that regions of the plan's files may come to occupy.
    own_bytes: u64,
}

/// What a plan of the files with these absolute paths may count on. Space that the files have already is theirs.
pub(crate) fn find(session: &Session, cluster: &Cluster, paths: &BTreeSet<String>) -> PlanSpace {
    let (mut drained, mut remarks) = (Vec::new(), Vec::new());
    let of_broker = match cluster.state.exists().then(|| asked(session, cluster, paths)) {
        Some(Ok((held, names))) => {
            drained = names;
            Some(held)
        }
        Some(Err(error)) => {
            remarks.push(format!(
                "which servers are drained and what they hold is not known, so the plan counts on all of them: {error}"
            ));
            None
        }
        None => None,
    };
    let held = of_broker.unwrap_or_else(|| {
        let standings = free_space::of_servers(cluster).into_iter();
        let alone = |standing: Result<Standing, _>| {
            standing.map_err(|error: stripewise_store::server::ServerError| error.to_string())
        };
        standings.map(|standing| Held { standing: alone(standing), promised_bytes: 0, own_bytes: 0 }).collect()
    });
    for (server, held) in cluster.servers.iter().zip(&held) {
        let Err(error) = &held.standing else { continue };
        let consequence = match server.capacity {
            Some(_) => "and the plan fills its capacity",
            None => "and the plan takes it to have space for everything; give it a capacity in cluster.toml",
        };
        remarks.push(free_space::unknown(&server.name, consequence, error));
    }
    remarks.extend(drained_remark(&drained));
    PlanSpace { free_bytes: free_bytes(cluster, &held), drained, remarks }
}

/// Says that nothing is planned for these servers.
fn drained_remark(drained: &[String]) -> Option<String> {
    let first = drained.first()?;
    Some(format!(
        "nothing is planned for {}, which `stripewise evacuate` drained; `stripewise evacuate {first} --undo` lets it be used again",
        drained.join(", ")
    ))
}

/// Says which servers of `plan` are drained now; `None`: none, or nobody knows.
pub(crate) fn stale(session: &Session, cluster: &Cluster, plan: &Plan) -> Option<String> {
    let drained = cluster.state.exists().then(|| Store::open(session).and_then(|store| store.drained()))?.ok()?;
    let servers = drained_of(plan, cluster, &drained);
    let first = servers.first()?;
    Some(format!(
        "the plan puts data on {}, which `stripewise evacuate` drained since: it cannot be applied. Plan again, or use it again with `stripewise evacuate {first} --undo`",
        servers.join(", ")
    ))
}

/// Names of the servers that are `drained` and that a place or a replica of `plan` is on.
pub(crate) fn drained_of(plan: &Plan, cluster: &Cluster, drained: &BTreeSet<ServerId>) -> Vec<String> {
    let windows = || plan.files.iter().flat_map(|file| &file.windows);
    let places = windows().flat_map(|window| &window.placement.layouts);
    let layouts = places.chain(windows().flat_map(|window| &window.replicas).map(|replica| &replica.layout));
    let used: BTreeSet<ServerId> = layouts.flat_map(|layout| layout.stripes()).map(|stripe| stripe.server).collect();
    used.intersection(drained).filter_map(|id| cluster.server(*id)).map(|server| server.name.clone()).collect()
}

/// Of servers that are drained.
fn names(usage: &[ServerUsage]) -> Vec<String> {
    usage.iter().filter(|usage| usage.drained).map(|usage| usage.name.clone()).collect()
}

fn asked(
    session: &Session,
    cluster: &Cluster,
    paths: &BTreeSet<String>,
) -> Result<(Vec<Held>, Vec<String>), StoreError> {
    let store = Store::open(session)?;
    let mut own_bytes = vec![0u64; cluster.servers.len()];
    for file in store.files()?.iter().filter(|file| paths.contains(&file.path)) {
        for layout in store.regions(file.file)?.iter().filter_map(|info| layout_of(info).ok()) {
            for (turn, stripe) in layout.stripes().iter().enumerate() {
                if let Some(own) = own_bytes.get_mut(usize::from(stripe.server.0)) {
                    *own += layout.view().object_bytes(turn, file.region_bytes);
                }
            }
        }
    }
    let usage = store.usage()?;
    let drained = names(&usage);
    let held = usage.into_iter().zip(own_bytes).map(|(usage, own_bytes)| Held {
        promised_bytes: usage.promised_bytes.saturating_sub(own_bytes),
        own_bytes,
        standing: usage.standing,
    });
    Ok((held.collect(), drained))
}

/// Of each server; what a file system has free is shared evenly by the servers on it, as far as each may take it.
fn free_bytes(cluster: &Cluster, held: &[Held]) -> Vec<Option<u64>> {
    let capacity = |id: ServerId, held: &Held| {
        let server = &cluster.servers[usize::from(id.0)];
        server.capacity.map(|capacity| capacity.0.saturating_sub(held.promised_bytes))
    };
    let mut free: Vec<Option<u64>> = cluster.ids().zip(held).map(|(id, held)| capacity(id, held)).collect();
    let mut stores: BTreeMap<u64, (u64, Vec<usize>)> = BTreeMap::new();
    for (number, held) in held.iter().enumerate() {
        let Ok(standing) = &held.standing else { continue };
        let store = standing.file_system.unwrap_or(u64::MAX - number as u64);
        stores.entry(store).or_insert((standing.free_bytes, Vec::new())).1.push(number);
    }
    for (mut left_bytes, mut servers) in stores.into_values() {
        left_bytes -= (left_bytes / LEFT_SHARE).min(MAX_LEFT_BYTES);
        left_bytes = servers.iter().fold(left_bytes, |sum, number| sum.saturating_add(held[*number].own_bytes));
        // Those that may take least first: what they do not take is the others'.
        servers.sort_by_key(|number| free[*number].unwrap_or(u64::MAX));
        for (turn, number) in servers.iter().enumerate() {
            let share = left_bytes / (servers.len() - turn) as u64;
            let taken = free[*number].map_or(share, |most| most.min(share));
            left_bytes -= taken;
            free[*number] = Some(taken);
        }
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn servers_share_what_their_file_system_has_free_and_hold_what_they_may() {
        let server = |name: &str, capacity: &str| {
            format!("[[server]]\nname = \"{name}\"\nclass = \"hdd\"\nurl = \"file:///{name}\"\n{capacity}")
        };
        let servers =
            [server("a", ""), server("b", "capacity = 1000\n"), server("c", ""), server("d", "capacity = 1000\n")];
        let toml = format!("version = 1\nid = \"c\"\nstate = \"s\"\n{}", servers.concat());
        let cluster = Cluster::parse(&toml, Path::new("/x/cluster.toml")).unwrap();
        let held = |file_system, free_bytes, promised_bytes, own_bytes| Held {
            standing: Ok(Standing { free_bytes, total_bytes: 1 << 40, file_system }),
            promised_bytes,
            own_bytes,
        };
        let together = |free_bytes| {
            let of_a = held(Some(7), free_bytes, 50, 0);
            [of_a, held(Some(7), free_bytes, 800, 0), held(None, 640, 0, 70), held(Some(7), free_bytes, 0, 0)]
        };
        assert_eq!(
            free_bytes(&cluster, &together(640)),
            [Some(215), Some(200), Some(700), Some(215)],
            "630 of 640 for three servers, b takes 200"
        );
        let unknown = Held { standing: Err("no answer".into()), promised_bytes: 300, own_bytes: 0 };
        let unknown = [unknown, held(Some(1), 64_000, 300, 0), held(Some(1), 64_000, 0, 0), held(None, 0, 0, 0)];
        assert_eq!(free_bytes(&cluster, &unknown), [None, Some(700), Some(62_300), Some(0)]);
    }
}
