//! The accesses of a program by window, region and class, as [`crate::count`] gives them of a trace.
//!
//! A program knows no time, so its phases are the windows, each of a nominal length, and the slices of a window are equal shares of
//! each process's requests. What is simultaneous is taken from the processes' positions: request i of one process meets request i of
//! the others.

use super::{IoRequest, Program, Step};
use crate::access::{AccessClass, ClassIndex, Company, FileAccess, RegionAccess, SLICES, Slices, WindowAccess};
use std::collections::{BTreeMap, HashMap};
use stripewise_layout::{ByteCount, Order, RegionGeometry, RegionIndex};

/// How a program is counted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProgramCountOptions {
    pub region_size: ByteCount,
    /// Nominal seconds of a phase.
    pub window_s: f64,
    /// As [`crate::CountOptions::forward_skip_bytes`].
    pub forward_skip_bytes: u64,
}

impl Default for ProgramCountOptions {
    fn default() -> Self {
        Self { region_size: ByteCount(64 << 20), window_s: 600.0, forward_skip_bytes: 64 << 10 }
    }
}

/// Most requests per process that the company of a window is looked for in.
const SAMPLES: usize = 512;
/// Most classes of one file; programs with more should be counted as traces are, where classes are merged.
const CLASS_LIMIT: usize = 1 << 16;

#[derive(Default)]
struct Cell {
    counts: BTreeMap<u32, u64>,
    processes: u32,
    last_process: Option<u32>,
    nodes: BTreeMap<u32, u32>,
    slices: u64,
}

/// The accesses of every file of the program, in the order of [`Program::files`]; files without accesses have empty windows.
///
/// # Panics
/// When a file has more than 65,536 classes of requests.
#[must_use]
pub fn count_program(program: &dyn Program, options: &ProgramCountOptions) -> Vec<FileAccess> {
    let files = program.files().len();
    let phases = program.phases() as usize;
    let geometry = RegionGeometry::new(options.region_size.0);
    let mut classes: Vec<HashMap<AccessClass, u32>> = vec![HashMap::new(); files];
    let mut cells: Vec<Vec<HashMap<u32, Cell>>> =
        (0..files).map(|_| (0..phases).map(|_| HashMap::new()).collect()).collect();
    let mut gatherings: Vec<Vec<Gathering>> =
        (0..files).map(|_| (0..phases).map(|_| Gathering::default()).collect()).collect();
    for process in 0..program.processes() {
        let node = program.node_of(process);
        let mut ends: Vec<Option<u64>> = vec![None; files];
        for (phase, requests) in requests_by_phase(program, process).into_iter().enumerate() {
            let total = requests.len().max(1) as u64;
            let stride = requests.len().div_ceil(SAMPLES).max(1);
            for (number, request) in requests.iter().enumerate() {
                let file = request.file.0 as usize;
                let skip = ends[file].and_then(|end| request.offset.0.checked_sub(end));
                let order = match skip {
                    Some(gap) if gap <= options.forward_skip_bytes => Order::Sequential,
                    _ => Order::Random,
                };
                ends[file] = Some(request.offset.0 + request.bytes);
                let slice = (number as u64 * u64::from(SLICES) / total).min(u64::from(SLICES) - 1);
                for piece in geometry.pieces(request.offset, request.bytes) {
                    let class = AccessClass { direction: request.direction, request_bytes: piece.length, order };
                    let known = classes[file].len() as u32;
                    let class = *classes[file].entry(class).or_insert(known);
                    let cell = cells[file][phase].entry(piece.region.0).or_default();
                    *cell.counts.entry(class).or_insert(0) += 1;
                    cell.slices |= 1 << slice;
                    if cell.last_process != Some(process) {
                        cell.last_process = Some(process);
                        cell.processes += 1;
                        *cell.nodes.entry(node).or_insert(0) += 1;
                    }
                }
                if number % stride == 0 {
                    gatherings[file][phase].note(number / stride, *request);
                }
            }
        }
    }
    let shapes = program.files().iter().enumerate();
    shapes
        .map(|(file, shape)| {
            let (sorted, map) = settle(std::mem::take(&mut classes[file]));
            let windows = std::mem::take(&mut cells[file]).into_iter().enumerate().map(|(phase, cells)| WindowAccess {
                start_s: phase as f64 * options.window_s,
                end_s: (phase + 1) as f64 * options.window_s,
                company: gatherings[file][phase].company(options),
                regions: regions(cells, &map),
            });
            FileAccess {
                path: shape.path.clone(),
                size_bytes: shape.size_bytes,
                region_size: options.region_size,
                windows: windows.collect(),
                classes: sorted,
            }
        })
        .collect()
}

fn requests_by_phase(program: &dyn Program, process: u32) -> Vec<Vec<IoRequest>> {
    let mut phases = vec![Vec::new(); program.phases() as usize];
    let mut phase = 0;
    for step in program.steps(process) {
        match step {
            Step::Access(request) => phases[phase].push(request),
            Step::Phase => phase += 1,
            Step::Think { .. } | Step::Until { .. } | Step::Barrier => {}
        }
    }
    phases
}

/// Classes ascending, and the new number of every old one.
fn settle(classes: HashMap<AccessClass, u32>) -> (Vec<AccessClass>, Vec<u16>) {
    assert!(classes.len() <= CLASS_LIMIT, "{} classes of requests in one file", classes.len());
    let mut sorted: Vec<(AccessClass, u32)> = classes.into_iter().collect();
    sorted.sort_unstable();
    let mut map = vec![0; sorted.len()];
    for (new, (_, old)) in sorted.iter().enumerate() {
        map[*old as usize] = new as u16;
    }
    (sorted.into_iter().map(|(class, _)| class).collect(), map)
}

fn regions(cells: HashMap<u32, Cell>, map: &[u16]) -> Vec<RegionAccess> {
    let mut regions: Vec<RegionAccess> = cells
        .into_iter()
        .map(|(region, cell)| {
            let mut counts: Vec<(ClassIndex, u64)> =
                cell.counts.into_iter().map(|(class, count)| (ClassIndex(map[class as usize]), count)).collect();
            counts.sort_unstable();
            RegionAccess {
                region: RegionIndex(region),
                counts,
                processes: cell.processes,
                processes_per_node: cell.nodes.values().copied().max().unwrap_or(0),
                slices: Slices(cell.slices),
            }
        })
        .collect();
    regions.sort_unstable_by_key(|region| region.region);
    regions
}

/// The requests of all processes at sampled positions of one phase.
#[derive(Default)]
struct Gathering {
    instants: Vec<Vec<IoRequest>>,
}

impl Gathering {
    fn note(&mut self, sample: usize, request: IoRequest) {
        if self.instants.len() <= sample {
            self.instants.resize_with(sample + 1, Vec::new);
        }
        self.instants[sample].push(request);
    }

    fn company(&self, options: &ProgramCountOptions) -> Company {
        let instants = self.instants.iter().map(|instant| {
            instant.iter().map(|request| (request.offset.0, request.bytes)).collect::<Vec<(u64, u64)>>()
        });
        Company::of_instants(instants, options.region_size.0, options.forward_skip_bytes)
    }
}
