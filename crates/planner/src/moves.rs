//! Moves between windows (H2DP algorithm 2 as a list) and what copying data costs.
//!
//! Two deviations from the printed algorithm: a region that keeps to its side but changes its stripes is listed too, as `restripe`; and
//! all regions of the file are looked at, not only those that the last window handled, so regions first seen in the current window move.

use serde::{Deserialize, Serialize};
use stripewise_layout::{Direction, Layout, Order, RegionIndex, ServerId};
use stripewise_model::Profile;

/// One region that changes its layout at the start of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// Region of the window's file.
    pub region: RegionIndex,
    /// Which way it goes, and so when.
    pub kind: MoveKind,
    /// Bytes to copy.
    pub bytes: u64,
}

/// In the order in which they are to be done: room on SServers is freed before it is taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum MoveKind {
    /// From hybrid servers to HServers.
    Outgoing,
    /// Stays on its side with other stripes (not in H2DP algorithm 2).
    Restripe,
    /// From HServers to hybrid servers.
    Incoming,
}
/// The moves of one file from the layouts of one window (`before`) to those of the next (`after`), one number per region, in the order in
/// which they are to be done.
pub(crate) fn moves_between(
    layouts: &[Layout],
    before: &[u32],
    after: &[u32],
    ssd: &[ServerId],
    region_bytes: impl Fn(RegionIndex) -> u64,
) -> Vec<Move> {
    let hybrid: Vec<bool> =
        layouts.iter().map(|layout| layout.stripes().iter().any(|stripe| ssd.contains(&stripe.server))).collect();
    let mut moves: Vec<Move> = before
        .iter()
        .zip(after)
        .enumerate()
        .filter(|(_, (before, after))| layouts[**before as usize] != layouts[**after as usize])
        .map(|(index, (before, after))| {
            let kind = match (hybrid[*before as usize], hybrid[*after as usize]) {
                (true, false) => MoveKind::Outgoing,
                (false, true) => MoveKind::Incoming,
                _ => MoveKind::Restripe,
            };
            let region = RegionIndex(index as u32);
            Move { region, kind, bytes: region_bytes(region) }
        })
        .collect();
    moves.sort_by_key(|one| (one.kind, one.region));
    moves
}

/// Seconds to copy a region from one layout to another: reading it from all its servers at once, then writing it to all its new ones, each
/// server with one sequential request over its own link.
pub(crate) fn move_seconds(profile: &Profile, from: &Layout, to: &Layout, region_bytes: u64) -> f64 {
    let slowest = |layout: &Layout, direction| {
        per_server_seconds(profile, layout, direction, region_bytes).map(|(_, seconds)| seconds).fold(0.0, f64::max)
    };
    slowest(from, Direction::Read) + slowest(to, Direction::Write)
}

/// Seconds that each server of `layout` needs for its part of one region, read or written sequentially.
pub(crate) fn per_server_seconds(
    profile: &Profile,
    layout: &Layout,
    direction: Direction,
    region_bytes: u64,
) -> impl Iterator<Item = (usize, f64)> {
    let view = layout.view();
    layout.stripes().iter().enumerate().map(move |(turn, stripe)| {
        let (server, bytes) = (usize::from(stripe.server.0), view.object_bytes(turn, region_bytes) as f64);
        let line = profile.servers[server].line(direction, Order::Sequential);
        let network = &profile.network;
        (server, if bytes > 0.0 { line.seconds(bytes) + network.e_s + bytes * network.t_s_per_byte } else { 0.0 })
    })
}
