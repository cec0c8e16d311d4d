//! Servers that are alike: one kind each.
//!
//! A layout over all servers of a kind loads them equally, so the program needs one row per kind and station, not per server, and no
//! assignment problem is left. Loads are still computed with each server's own lines.

use super::super::Task;
use std::ops::Range;
use stripewise_layout::{MAX_SERVERS_PER_LAYOUT, Order, RequestKind, ServerClass};
use stripewise_model::ServerProfile;

/// Lines whose times differ by no more than this are alike: calibration does not tell closer.
const ALIKE: f64 = 0.05;

/// Lines are alike, too, where they differ by less than their measured times were spread about them, but not by more than this: so much is a
/// slower device, however roughly it was measured.
const MAX_NOISE: f64 = 0.15;

/// Requests that lines are compared by. Startup and transfer by themselves are fitted less well than the times that they add up to: on an SSD
/// neither decides alone over most of the sizes.
const COMPARED_BYTES: [f64; 3] = [4096.0, 131_072.0, 4_194_304.0];

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
        let room_bytes = task.capacity.bytes(server);
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
    RequestKind::ALL.into_iter().all(|kind| {
        [Order::Sequential, Order::Random].into_iter().all(|order| {
            let (a, b) = (a.line(kind, order), b.line(kind, order));
            let noise = a.spread.max(b.spread).clamp(ALIKE, MAX_NOISE);
            COMPARED_BYTES.into_iter().all(|bytes| {
                let (a_s, b_s) = (a.seconds(bytes), b.seconds(bytes));
                (a_s - b_s).abs() <= noise * a_s.max(b_s)
            })
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

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::Line;

    /// Lines of (startup in microseconds, nanoseconds per byte) with this spread.
    fn server(lines: [(f64, f64); 4], spread: f64) -> ServerProfile {
        let line = |(alpha_us, beta_ns): (f64, f64)| Line {
            alpha_s: alpha_us * 1e-6,
            beta_s_per_byte: beta_ns * 1e-9,
            r2: 0.99,
            spread,
            samples: 44,
        };
        ServerProfile {
            name: String::new(),
            class: ServerClass::Ssd,
            read_sequential: line(lines[0]),
            read_random: line(lines[1]),
            write_sequential: line(lines[2]),
            write_random: line(lines[3]),
            buffered_write: None,
            synchronous_write: None,
            flush_wait: None,
        }
    }

    const FLASH: [(f64, f64); 4] = [(80.0, 1.8), (85.0, 1.8), (90.0, 1.9), (95.0, 1.9)];

    fn scaled(startup: f64, transfer: f64, spread: f64) -> ServerProfile {
        server(FLASH.map(|(alpha_us, beta_ns)| (alpha_us * startup, beta_ns * transfer)), spread)
    }

    #[test]
    fn servers_that_differ_within_the_spread_of_their_times_are_alike() {
        assert!(alike(&scaled(1.0, 1.0, 0.0), &scaled(1.04, 0.97, 0.0)));
        assert!(!alike(&scaled(1.0, 1.0, 0.01), &scaled(1.0, 1.1, 0.01)));
        assert!(alike(&scaled(1.0, 1.0, 0.12), &scaled(1.0, 1.1, 0.01)), "the rougher of two decides");
        assert!(!alike(&scaled(1.0, 1.0, 0.4), &scaled(1.0, 1.3, 0.4)), "so much is no noise");
        // A startup that cannot be seen behind the transfers: sequential lines of disks have hardly any.
        let disk = |alpha_us| server([(alpha_us, 10.0); 4], 0.02);
        assert!(alike(&disk(0.0), &disk(1.0)));
        assert!(!alike(&disk(0.0), &disk(20.0)), "but behind small ones it is");
    }
}
