//! Figure 8: MPI-Tile-IO on a shared file, by three methods.

use super::super::{LAYOUTS, REGION, tiles};
use super::{
    NETWORK, REPLICATED, Tried, by_run, complete, details, each_kept, emulated, remark, requests, rows, totals,
};
use crate::reproduce::experiment::{Findings, Panel, Published, Setting, Unit};
use crate::reproduce::script::{Generated, access};
use anyhow::Result;
use serde_json::json;
use stripewise_layout::{ByteCount, Direction, Layout, ServerId};

/// What replicas are to gain on the best single layout at least: the least that the paper has.
const GOAL: f64 = 1.13;
/// Stripes of figure 8's copies, in the order of [`LAYOUTS`].
const TILE_STRIPES: [ByteCount; LAYOUTS.len()] = tiles::STRIPES;
/// Of the shared file: the largest array of figure 8 for [`TILE_PROCESSES`], smaller ones one after the other.
const ARRAYS: ByteCount = ByteCount(256 << 20);
const TILE_PROCESSES: [u32; 3] = [4, 16, 64];

/// How the processes of an MPI-Tile-IO get their tiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    /// One aggregator on each node reads its share in requests of ROMIO's buffer.
    Collective,
    /// Each tile is one request, as PVFS2's list I/O sends it, in an array one tile wide.
    List,
    /// Row by row, in an array as square as can be.
    Rows,
}

impl Method {
    const ALL: [Method; 3] = [Method::Collective, Method::List, Method::Rows];

    fn name(self) -> &'static str {
        match self {
            Self::Collective => "collective",
            Self::List => "not collective, a request for each tile",
            Self::Rows => "not collective, a request for each row",
        }
    }
}

/// One MPI-Tile-IO, read again and again on arrays one after the other.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Tiles {
    processes: u32,
    sides: (u64, u64),
    method: Method,
}

impl Tiles {
    fn frame(self) -> u64 {
        u64::from(self.processes) * self.sides.0 * self.sides.1
    }

    fn readers(self) -> u32 {
        if self.method == Method::Collective { NETWORK.nodes.min(self.processes) } else { self.processes }
    }

    /// Offset and bytes of the requests of one reader for one array.
    fn requests(self, reader: u32) -> Vec<(u64, u64)> {
        let (width, height) = self.sides;
        match self.method {
            Method::List => vec![(u64::from(reader) * width * height, width * height)],
            Method::Collective => {
                let share = self.frame() / u64::from(self.readers());
                let one = share.min(tiles::BUFFER.0);
                (0..share / one).map(|number| (u64::from(reader) * share + number * one, one)).collect()
            }
            Method::Rows => {
                let across = u64::from(1u32 << (self.processes.ilog2() / 2));
                let (column, line) = (u64::from(reader) % across, u64::from(reader) / across);
                let start = line * height * across * width + column * width;
                (0..height).map(|row| (start + row * across * width, width)).collect()
            }
        }
    }

    /// So many accesses of every reader.
    fn program(self, each: u64) -> Generated<'static> {
        let arrays = ARRAYS.0 / self.frame();
        let readers = self.readers();
        let steps = move |reader: u32| {
            let own = self.requests(reader);
            (0..each).map(move |number| {
                let (array, at) = (number / own.len() as u64 % arrays, number % own.len() as u64);
                let (offset, bytes) = own[at as usize];
                access(Direction::Read, array * self.frame() + offset, bytes)
            })
        };
        Generated::shared(ARRAYS.0, (readers, NETWORK.nodes.min(readers)), 1, steps)
    }
}

/// Figure 8's disks: table 4's, whose random reads start so fast that they must have come from caches, and the same where nothing is cached.
const DISKS: [(&str, &str); 2] = [("paper-hdd", "table 4's disks"), ("paper-hdd-5ms", "disks of 5 ms")];

pub(in super::super) fn figure_8(setting: &Setting<'_>) -> Result<Findings> {
    let mut findings = Findings::default();
    let mut counts = (0, 0);
    for (disk, name) in DISKS {
        let (complete, all) = tiles_on(setting, disk, name, &mut findings)?;
        counts = (counts.0 + complete, counts.1 + all);
    }
    findings.notes.push(remark(&TILE_PROCESSES, counts.0, counts.1));
    findings.notes.push(
        "Tiles are read again and again, of arrays that lie one after the other in the file, and processes do not wait for each other.".to_owned(),
    );
    Ok(findings)
}

/// Returns how many of the runs have every figure, and how many there are.
fn tiles_on(setting: &Setting<'_>, disk: &str, on: &str, findings: &mut Findings) -> Result<(usize, usize)> {
    let mut site = NETWORK.site_with(disk)?;
    site.lab = site.lab.with_regions(REGION);
    let lab = emulated(setting, &site, ARRAYS.0)?;
    let chunk = 1u64 << 20;
    let whole = Generated::shared(ARRAYS.0, (1, 1), 1, |_| {
        (0..ARRAYS.0 / chunk).map(move |number| access(Direction::Read, number * chunk, chunk))
    });
    let prepared = lab.prepare(&whole)?;
    let mut layouts = Vec::new();
    for stripe in TILE_STRIPES {
        let stripe_bytes = u32::try_from(stripe.0)?;
        layouts.push(Layout::new((0..NETWORK.servers).map(|id| (ServerId(id as u16), stripe_bytes)))?);
    }
    let layouts: [Layout; LAYOUTS.len()] = layouts.try_into().expect("as many as there are stripes");
    let tile = |processes, sides, method| Tiles { processes, sides, method };
    let of_method = |method| {
        TILE_PROCESSES.into_iter().flat_map(move |processes| tiles::TILES.map(|sides| tile(processes, sides, method)))
    };
    let runs: Vec<Tiles> = Method::ALL.into_iter().flat_map(of_method).collect();
    let found = each_kept((&lab, &prepared), REGION, &[layouts], |_| {
        setting.map(&runs, |tiles| {
            let bytes = tiles.requests(0)[0].1;
            let program = tiles.program(requests(&site, tiles.readers(), bytes));
            Ok(setting.log.mb_per_s(&lab.run_placed(&prepared, &program)?))
        })
    })?;
    let names: Vec<String> = TILE_STRIPES.iter().map(ToString::to_string).chain([REPLICATED.to_owned()]).collect();
    let mut groups = Vec::new();
    let mut all = Vec::new();
    for method in Method::ALL {
        let tried: Vec<Tried> = (0..)
            .zip(&runs)
            .filter(|(_, tiles)| tiles.method == method)
            .map(|(run, tiles)| Tried {
                what: json!({ "processes": tiles.processes, "tile": [tiles.sides.0, tiles.sides.1] }),
                bytes: tiles.frame() as f64,
                mb_per_s: by_run(&found, run),
            })
            .collect();
        let case = format!("{on}, {}", method.name());
        findings.rows.extend(rows(&case, &tried, &names, (GOAL, Published::Range(13.0, 23.0))));
        details(findings, "cost_fig8_reads", &case, &names, &tried);
        groups.push((method.name().to_owned(), totals(&tried).to_vec()));
        all.extend(tried);
    }
    let case = format!("{on}, all methods");
    findings.rows.extend(rows(&case, &all, &names, (GOAL, Published::Range(13.0, 23.0))));
    let title = format!("{}, {on}", NETWORK.name);
    findings.panels.push(Panel::new(title, Unit::MbPerS, "access", names, groups));
    Ok((complete(&all), all.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_trace::Program as _;

    #[test]
    fn tiles_are_the_whole_array_however_they_are_read() {
        for method in Method::ALL {
            for (processes, sides) in [(4, (1024, 1024)), (16, (1024, 2048)), (64, (2048, 2048))] {
                let tiles = Tiles { processes, sides, method };
                let mut all: Vec<(u64, u64)> = (0..tiles.readers()).flat_map(|reader| tiles.requests(reader)).collect();
                all.sort_unstable();
                let end = all.iter().try_fold(0, |end, (offset, bytes)| (*offset == end).then_some(end + bytes));
                assert_eq!(end, Some(tiles.frame()), "{tiles:?}");
                assert_eq!(ARRAYS.0 % tiles.frame(), 0);
                // Array after array, and the first again.
                let each = tiles.requests(0).len() as u64 * (ARRAYS.0 / tiles.frame()) + 1;
                let program = tiles.program(each);
                let mut steps = program.steps(0);
                assert_eq!(steps.next(), steps.last());
            }
        }
    }
}
