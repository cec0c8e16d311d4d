//! Servers that are alike: one kind each.
//!
//! A layout over all servers of a kind loads them equally, so the program needs one row per kind and station, not per server, and no
//! assignment problem is left. Loads are still computed with each server's own lines.

use super::super::Task;
use std::ops::Range;
use stripewise_layout::{Direction, MAX_SERVERS_PER_LAYOUT, Order, ServerClass};
use stripewise_model::ServerProfile;

/// Lines whose startup and transfer differ by no more than this are alike: calibration does not tell closer.
const ALIKE: f64 = 0.05;

/// Servers of one class, with lines alike and equal room, in cluster order; no more than a layout can name.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Kind {
    pub(crate) class: ServerClass,
    pub(crate) servers: Vec<usize>,
    /// Of each server; `None` is unbounded.
    pub(crate) room_bytes: Option<u64>,
}

/// All servers, grouped. Kinds come in the order of their first servers, HServers before SServers.
pub(crate) fn kinds(task: &Task<'_>) -> Vec<Kind> {
    let profile = task.request.profile;
    let mut kinds: Vec<Kind> = Vec::new();
    for id in task.groups.hdd.iter().chain(&task.groups.ssd) {
        let server = usize::from(id.0);
        let class = task.request.cluster.servers[server].class;
        let room_bytes = task.room.bytes(server);
        let found = kinds.iter_mut().find(|kind| {
            kind.class == class
                && kind.servers.len() < MAX_SERVERS_PER_LAYOUT
                && kind.room_bytes == room_bytes
                && alike(&profile.servers[kind.servers[0]], &profile.servers[server])
        });
        match found {
            Some(kind) => kind.servers.push(server),
            None => kinds.push(Kind { class, servers: vec![server], room_bytes }),
        }
    }
    kinds
}

fn alike(a: &ServerProfile, b: &ServerProfile) -> bool {
    let close = |a: f64, b: f64| (a - b).abs() <= ALIKE * a.abs().max(b.abs());
    [Direction::Read, Direction::Write].into_iter().all(|direction| {
        [Order::Sequential, Order::Random].into_iter().all(|order| {
            let (a, b) = (a.line(direction, order), b.line(direction, order));
            close(a.alpha_s, b.alpha_s) && close(a.beta_s_per_byte, b.beta_s_per_byte)
        })
    })
}

/// Sets of kinds that a layout may span: each alone, all of a class, all.
pub(crate) fn spans(kinds: &[Kind]) -> Vec<Range<usize>> {
    let hdd = kinds.iter().take_while(|kind| kind.class == ServerClass::Hdd).count();
    let mut spans: Vec<Range<usize>> = (0..kinds.len()).map(|kind| kind..kind + 1).collect();
    for span in [0..hdd, hdd..kinds.len(), 0..kinds.len()] {
        if span.len() > 1 && !spans.contains(&span) {
            spans.push(span);
        }
    }
    spans
}
