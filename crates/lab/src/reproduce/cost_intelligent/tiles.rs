//! Figure 8: MPI-Tile-IO on copies with three stripe sizes.

use super::{BEST, CHOSEN, LAYOUTS, NETWORKS, Site, Total, least, placed};
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, Unit};
use anyhow::Result;
use stripewise_layout::{ByteCount, Direction, Layout, Order, ServerId};
use stripewise_model::cost_intelligent::TableForm;
use stripewise_sim::SimOptions;
use stripewise_trace::{AccessClass, Benchmark, Program};

/// Width and height of a tile in bytes, as printed.
pub(super) const TILES: [(u64, u64); 3] = [(1024, 1024), (1024, 2048), (2048, 2048)];
const PROCESSES: [u32; 5] = [4, 16, 64, 128, 256];
/// Of the copies that stand for [`LAYOUTS`], in its order: 1-DH, 1-DV, 2-D.
pub(super) const STRIPES: [ByteCount; 3] = [ByteCount(16 << 10), ByteCount(4 << 20), ByteCount(256 << 10)];
/// ROMIO's `cb_buffer_size`.
pub(super) const BUFFER: ByteCount = ByteCount(16 << 20);

/// One MPI-Tile-IO, not collective.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Tile {
    pub(super) processes: u32,
    /// Width and height.
    pub(super) sides: (u64, u64),
}

/// All combinations of the figure.
pub(super) fn all() -> Vec<Tile> {
    PROCESSES.iter().flat_map(|processes| TILES.map(|sides| Tile { processes: *processes, sides })).collect()
}

impl Tile {
    pub(super) fn bytes(self) -> u64 {
        self.sides.0 * self.sides.1
    }

    /// What the storage sees of one process: the tile is one request.
    pub(super) fn class(self) -> AccessClass {
        AccessClass { kind: Direction::Read.into(), request_bytes: self.bytes(), order: Order::Random }
    }

    fn program(self, nodes: u32, is_collective: bool, seed: u64) -> Result<Box<dyn Program>> {
        let (width, height) = self.sides;
        let nodes = nodes.min(self.processes);
        let across = if is_collective { self.tiles_across() } else { 1 };
        let method = if is_collective { "collective" } else { "rows" };
        let text = format!(
            "tile-io:nr_tiles_x={across},nr_tiles_y={},sz_tile_x={width},sz_tile_y={height},sz_element=1,method={method},buffer={BUFFER},\
             nodes={nodes},seed={seed}",
            self.processes / across,
        );
        Ok(text.parse::<Benchmark>()?.program()?)
    }

    /// Of an array as square as can be: 2 of 4, 8 of 128, 16 of 256.
    fn tiles_across(self) -> u32 {
        1 << (self.processes.ilog2() / 2)
    }

    /// On the copies, in the order of [`LAYOUTS`].
    pub(super) fn all_mb_per_s(self, site: &Site, is_collective: bool, seed: u64) -> Result<[f64; 3]> {
        let program = self.program(site.network.nodes, is_collective, seed)?;
        let mut found = [0.0; 3];
        for (found, stripe) in found.iter_mut().zip(STRIPES) {
            let stripe_bytes = u32::try_from(stripe.0)?;
            let layout = Layout::new((0..site.network.servers).map(|id| (ServerId(id as u16), stripe_bytes)))?;
            *found = site.lab.simulate_with(&[placed(layout)], &*program, SimOptions::default())?.mb_per_s;
        }
        Ok(found)
    }

    /// Which of [`LAYOUTS`] the model chooses; in collective I/O for the requests of the aggregators, one on each node.
    fn choice(self, site: &Site, is_collective: bool) -> usize {
        let nodes = site.network.nodes.min(self.processes);
        let (processes, class) = if is_collective {
            let share = (u64::from(self.processes) * self.bytes()).div_ceil(u64::from(nodes));
            (nodes, AccessClass { request_bytes: share.min(BUFFER.0), ..self.class() })
        } else {
            (self.processes, self.class())
        };
        least(&site.costs_s(class, site.network.concurrency(processes), TableForm::Corrected))
    }
}

pub(super) fn figure_8(setting: &Setting<'_>) -> Result<Findings> {
    let mut findings = Findings::default();
    for network in NETWORKS {
        let site = network.site()?;
        let mut groups = Vec::new();
        for (name, is_collective) in [("collective", true), ("not collective", false)] {
            let cases = all();
            let rates = setting.map(&cases, |tile| tile.all_mb_per_s(&site, is_collective, setting.seed))?;
            let mut total = Total::default();
            for (tile, rates) in cases.iter().zip(rates) {
                let bytes = f64::from(tile.processes) * tile.bytes() as f64;
                total.add(bytes, rates.map(|rate| bytes / 1e6 / rate), tile.choice(&site, is_collective));
            }
            groups.push((name.to_owned(), total.mb_per_s()));
        }
        let series = STRIPES.map(|stripe| stripe.to_string()).into_iter().chain([CHOSEN, BEST].map(str::to_owned));
        let panel = Panel::new(network.name, Unit::MbPerS, "access", series, groups);
        for group in &panel.groups {
            for (stripe, layout) in STRIPES.iter().zip(LAYOUTS) {
                let gain = panel.gain_percent(group, CHOSEN, &stripe.to_string()).unwrap_or(f64::NAN);
                let case = format!("{} {group}", network.name);
                let what = format!("hybrid replication over {stripe} ({layout})");
                findings.rows.push(Row::new(case, what, Unit::Percent, Published::Range(13.0, 23.0), gain));
            }
            let gain = panel.gain_percent(group, BEST, CHOSEN).unwrap_or(f64::NAN);
            let case = format!("{} {group}", network.name);
            let what = format!("{BEST} over hybrid replication");
            findings.rows.push(Row::new(case, what, Unit::Percent, Published::NotPrinted, gain));
        }
        findings.panels.push(panel);
    }
    Ok(findings)
}
