//! Figures 7 and 8 with replicas that the store keeps and chooses among: real processes on emulated servers.
//!
//! Where the paper's library chooses a copy by the number of processes and the request, the store chooses by the time at which servers would be done, given
//! what stands in their queues. Writes go to one copy, and the others are rebuilt: their time is told by itself and together with the writing's.

use super::{FILE, INFINIBAND, Ior, LAYOUTS, Network, Site, Stripes};
use crate::replay::Ranks;
use crate::reproduce::emulated::replicated::WrittenRun;
use crate::reproduce::emulated::{EmulatedLab, EmulatedRun, Prepared, least_s};
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, Unit};
use crate::reproduce::run_log::Scale;
use crate::reproduce::script::{Generated, access};
use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use stripewise_layout::{ByteCount, Direction, FileOffset, Layout, Order, Placement, ServerId};
use stripewise_trace::{IoRequest, ProgramFile, Step};

/// The one whose servers this machine can carry; its client links, which are left out, are also the ones that matter less.
const NETWORK: Network = INFINIBAND;
/// Devices and links are so many times slower than the paper's: two cores do not make requests of 4 KiB as fast as eight servers answer them.
const DILATION: f64 = 4.0;
/// Of a run on this machine at least, about, where servers are busy.
const RUN_S: f64 = 1.5;
/// Every other one of the printed numbers.
const PROCESSES: [u32; 4] = [1, 4, 16, 64];
/// Every third of the printed sizes.
const SIZES: [ByteCount; 4] = [ByteCount(4 << 10), ByteCount(32 << 10), ByteCount(256 << 10), ByteCount(2 << 20)];
/// Of requests that are written, in each run the whole of the files.
const WRITTEN: [ByteCount; 2] = [ByteCount(32 << 10), ByteCount(256 << 10)];
/// What replicas are to gain on the best single layout at least, for each figure: the least that the paper has.
const GOAL_7: f64 = 1.2;
const GOAL_8: f64 = 1.13;
const SCALE: Scale = Scale { files: 8, regions: 8 };
const REPLICATED: &str = "replicas";
/// The single layouts, then all three with a choice.
const KEPT: usize = LAYOUTS.len() + 1;
/// Of [`LAYOUTS`] the one where data of files with replicas is placed and written: figure 6 finds it for every mix.
const PLACE: usize = 1;

/// Servers that each layout strips a file over.
fn widths() -> [u32; LAYOUTS.len()] {
    [NETWORK.servers, 1, super::GROUP_SERVERS]
}

/// From a random first server on in turn, as PVFS2 distributes a file unless it is told otherwise (`PVFS_SYS_LAYOUT_ROUND_ROBIN`: "choose the first datafile
/// randomly, and then round-robin in-order").
fn from_random_server(width: u32, stripe: ByteCount, random: &mut StdRng) -> Result<Layout> {
    let first = random.random_range(0..NETWORK.servers);
    let stripe_bytes = u32::try_from(stripe.0)?;
    let stripes = (0..width).map(|turn| (ServerId(((first + turn) % NETWORK.servers) as u16), stripe_bytes));
    Ok(Layout::new(stripes)?)
}

/// By process and layout.
fn file_layouts(stripes: Stripes, request: ByteCount, seed: u64) -> Result<Vec<[Layout; LAYOUTS.len()]>> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut one = |width| {
        let stripe = match stripes {
            Stripes::Default => super::DEFAULT_STRIPE,
            Stripes::Request => ByteCount(request.0.div_ceil(u64::from(width))),
        };
        from_random_server(width, stripe, &mut random)
    };
    let mut file = || -> Result<[Layout; LAYOUTS.len()]> {
        let [wide, whole, group] = widths().map(&mut one);
        Ok([wide?, whole?, group?])
    };
    (0..most_processes()).map(|_| file()).collect()
}

fn most_processes() -> u32 {
    PROCESSES.into_iter().max().unwrap_or(1)
}

/// `each` accesses of every process to its own file, which begins again at its end.
fn own_files(ior: Ior, file: ByteCount, seed: u64) -> Generated<'static> {
    let slots = (file.0 / ior.request.0).max(1);
    let bytes = ior.request.0;
    let steps = move |process: u32| {
        let mut random = StdRng::seed_from_u64(seed ^ u64::from(process) << 32);
        (0..ior.requests).map(move |number| {
            let slot = if ior.order == Order::Random { random.random_range(0..slots) } else { number % slots };
            let offset = FileOffset(slot * bytes);
            Step::Access(IoRequest { file: ProgramFile(process), direction: ior.direction, offset, bytes })
        })
    };
    Generated::file_per_process(file.0, (ior.processes, NETWORK.nodes.min(ior.processes)), steps)
}

/// Requests of each process that take about [`RUN_S`] where each is on one server, or longer where their first ones alone take this machine long.
fn requests(site: &Site, processes: u32, bytes: u64) -> u64 {
    let server = &site.lab.profile.servers[0];
    let service_s = server.read_random.seconds(bytes as f64)
        + site.lab.profile.network.e_s
        + bytes as f64 * site.lab.profile.network.t_s_per_byte;
    let rounds = f64::from(processes.div_ceil(NETWORK.servers));
    (RUN_S.max(least_s(processes, bytes)) / DILATION / (service_s * rounds)).ceil().max(2.0) as u64
}

/// Bytes of a run at the paper's size, and its bandwidth by layout, replicas last; `None` where the machine set the pace.
struct Tried {
    what: serde_json::Value,
    bytes: f64,
    mb_per_s: [Option<f64>; KEPT],
}

/// All bytes over all time of the runs of which every figure is known, replicas last.
fn totals(tried: &[Tried]) -> [Option<f64>; KEPT] {
    let mut sums = (0.0, [0.0; KEPT]);
    for one in tried {
        let known: Vec<f64> = one.mb_per_s.iter().flatten().copied().collect();
        if let Ok(known) = <[f64; KEPT]>::try_from(known) {
            sums.0 += one.bytes;
            sums.1.iter_mut().zip(known).for_each(|(sum, mb_per_s)| *sum += one.bytes / mb_per_s);
        }
    }
    sums.1.map(|sum| (sum > 0.0).then(|| sums.0 / sum))
}

/// How many of the runs [`totals`] takes.
fn complete(tried: &[Tried]) -> usize {
    tried.iter().filter(|one| one.mb_per_s.iter().all(Option::is_some)).count()
}

/// What the reader should know of all runs.
fn remark(processes: &[u32], complete: usize, all: usize) -> String {
    let counts = processes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "{}'s {} servers, {counts} forked processes. Devices and links are {DILATION} times slower than printed, and the times that are told as many times shorter \
         than they took. Totals are over the runs with every layout's figure, {complete} of {all}.",
        NETWORK.name, NETWORK.servers,
    )
}

/// Best of the single ones.
fn best_single(totals: &[Option<f64>; KEPT]) -> Option<usize> {
    let known = (0..LAYOUTS.len()).filter_map(|layout| Some((layout, totals[layout]?)));
    known.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(layout, _)| layout)
}

/// Geometric mean over the runs of what replicas gain on one layout.
fn mean_gain(tried: &[Tried], layout: usize) -> f64 {
    let gains = tried.iter().filter_map(|one| Some((one.mb_per_s[KEPT - 1]? / one.mb_per_s[layout]?).ln()));
    let gains: Vec<f64> = gains.collect();
    (gains.iter().sum::<f64>() / gains.len() as f64).exp()
}

/// The most that a choice of one layout for each run could gain on the best single one.
fn most_by_run(tried: &[Tried], layout: usize) -> f64 {
    let (mut single, mut best) = (0.0, 0.0);
    for one in tried {
        let known: Vec<f64> = one.mb_per_s[..LAYOUTS.len()].iter().flatten().copied().collect();
        if known.len() == LAYOUTS.len() && one.mb_per_s[KEPT - 1].is_some() {
            single += one.bytes / known[layout];
            best += one.bytes / known.iter().copied().fold(0.0, f64::max);
        }
    }
    single / best
}

/// Rows of one mix of runs.
fn rows(case: &str, tried: &[Tried], names: &[String], (goal, published): (f64, Published)) -> Vec<Row> {
    let totals = totals(tried);
    let over =
        |layout: usize| totals[KEPT - 1].zip(totals[layout]).map_or(f64::NAN, |(replicas, single)| replicas / single);
    let Some(best) = best_single(&totals) else { return Vec::new() };
    let mut rows = vec![Row::new(
        case,
        format!("replicas over the best single layout, {}", names[best]),
        Unit::Ratio,
        Published::AtLeast(goal),
        over(best),
    )];
    rows.extend((0..LAYOUTS.len()).map(|layout| {
        let what = format!("replicas over {}", names[layout]);
        Row::new(case, what, Unit::Percent, published, (over(layout) - 1.0) * 100.0)
    }));
    let other = [
        ("best layout for each run over the best single one", most_by_run(tried, best)),
        ("replicas over the best single layout, mean of the runs' gains", mean_gain(tried, best)),
    ];
    rows.extend(other.map(|(what, ours)| Row::new(case, what, Unit::Ratio, Published::NotPrinted, ours)));
    rows
}

fn order_name(order: Order) -> &'static str {
    if order == Order::Random { "random" } else { "sequential" }
}

fn details(findings: &mut Findings, key: &str, case: &str, names: &[String], tried: &[Tried]) {
    let runs = tried.iter().map(|one| {
        let rates: serde_json::Map<_, _> =
            names.iter().cloned().zip(one.mb_per_s.iter().map(|rate| json!(rate))).collect();
        json!({ "case": case, "run": one.what, "mb_s": rates })
    });
    let list = findings.details.entry(key).or_insert_with(|| json!([]));
    list.as_array_mut().expect("a list").extend(runs);
}

fn emulated(setting: &Setting<'_>, site: &Site, bytes: u64) -> Result<EmulatedLab> {
    EmulatedLab::build_dilated(setting.voice, &site.lab, ByteCount(bytes), (Ranks::Forked, DILATION))
}

fn placed(region: ByteCount, layout: &Layout) -> Placement {
    Placement::uniform(region, layout.clone(), layout.clone())
}

/// Files as each layout keeps them, then with replicas: `run` is done on each, and gives what is told of it.
fn each_kept<T>(
    (lab, prepared): (&EmulatedLab, &Prepared<'_>),
    region: ByteCount,
    layouts: &[[Layout; LAYOUTS.len()]],
    mut run: impl FnMut(usize) -> Result<T>,
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    for kept in 0..KEPT {
        let place = if kept < LAYOUTS.len() { kept } else { PLACE };
        let placements: Vec<Placement> = layouts.iter().map(|file| placed(region, &file[place])).collect();
        let replicas = |file: &[Layout; LAYOUTS.len()]| {
            let others = (0..LAYOUTS.len()).filter(|other| kept == LAYOUTS.len() && *other != PLACE);
            others.map(|other| file[other].clone()).collect()
        };
        lab.place_with(prepared, &placements, &layouts.iter().map(replicas).collect::<Vec<_>>())?;
        found.push(run(kept)?);
        lab.clear(prepared)?;
    }
    Ok(found)
}

/// By kept layout and run to by run and kept layout.
fn by_run<T: Copy>(found: &[Vec<T>], run: usize) -> [T; KEPT] {
    std::array::from_fn(|kept| found[kept][run])
}

pub(super) fn figure_7(setting: &Setting<'_>) -> Result<Findings> {
    let scale = setting.scale(SCALE);
    let (file, region) = (scale.file(FILE), scale.region(super::REGION));
    let mut site = NETWORK.site()?;
    site.lab = site.lab.with_regions(region);
    let lab = emulated(setting, &site, file.0 * u64::from(most_processes()))?;
    let whole = Ior {
        processes: most_processes(),
        request: ByteCount(1 << 20),
        order: Order::Sequential,
        direction: Direction::Read,
        requests: file.0 >> 20,
    };
    let whole = own_files(whole, file, 0);
    let prepared = lab.prepare(&whole)?;
    let mut findings = Findings::default();
    let mut counts = (0, 0);
    let names: Vec<String> = LAYOUTS.into_iter().chain([REPLICATED]).map(str::to_owned).collect();
    for stripes in Stripes::ALL {
        // Requests of all sizes on the same files, or files for each size.
        let sizes = match stripes {
            Stripes::Default => vec![SIZES.to_vec()],
            Stripes::Request => SIZES.map(|size| vec![size]).to_vec(),
        };
        let mut tried: [Vec<Tried>; 2] = Default::default();
        let orders = [Order::Sequential, Order::Random];
        for group in setting.map(&sizes, |sizes| {
            let layouts = file_layouts(stripes, sizes[0], setting.seed)?;
            let runs = runs(&site, sizes, &orders);
            let found = each_kept((&lab, &prepared), region, &layouts, |_| {
                let one = |ior: &Ior| {
                    let run = lab.run_placed(&prepared, &own_files(*ior, file, setting.seed))?;
                    Ok(setting.log.mb_per_s(&run))
                };
                runs.iter().map(one).collect::<Result<Vec<_>>>()
            })?;
            Ok((0..).zip(runs).map(|(run, ior)| (ior, by_run(&found, run))).collect::<Vec<_>>())
        })? {
            for (ior, mb_per_s) in group {
                let order = orders.iter().position(|order| *order == ior.order).unwrap_or(0);
                let what = json!({ "processes": ior.processes, "request_bytes": ior.request.0 });
                tried[order].push(Tried { what, bytes: ior.bytes(), mb_per_s });
            }
        }
        let mut groups = Vec::new();
        for (order, tried) in orders.into_iter().zip(&tried) {
            let case = format!("reads, {} {}", stripes.name(), order_name(order));
            findings.rows.extend(rows(&case, tried, &names, (GOAL_7, Published::Range(20.0, 74.0))));
            details(&mut findings, "cost_fig7_reads", &case, &names, tried);
            counts = (counts.0 + complete(tried), counts.1 + tried.len());
            groups.push((order_name(order).to_owned(), totals(tried).to_vec()));
        }
        let title = format!("{}, reads, {}", NETWORK.name, stripes.name());
        findings.panels.push(Panel::new(title, Unit::MbPerS, "access", names.clone(), groups));
    }
    writes(setting, (&site, &lab, &prepared), (file, region), &mut findings)?;
    findings.notes.push(remark(&PROCESSES, counts.0, counts.1));
    findings.notes.push(
        "Every file begins on a random server in each of its layouts, as PVFS2 distributes files by default; the simulation deals them out in turn. Files with \
         replicas lie in 1-DV, where writes go, and have the other two layouts as replicas. What is written is copied there when the program has ended, through the \
         same servers; the time from that end until all replicas are there again is the synchronisation."
            .to_owned(),
    );
    Ok(findings)
}

fn runs(site: &Site, sizes: &[ByteCount], orders: &[Order]) -> Vec<Ior> {
    let mut runs = Vec::new();
    for order in orders {
        for processes in PROCESSES {
            runs.extend(sizes.iter().map(|request| Ior {
                processes,
                request: *request,
                order: *order,
                direction: Direction::Read,
                requests: requests(site, processes, request.0),
            }));
        }
    }
    runs
}

/// Every process writes its file once.
fn writes(
    setting: &Setting<'_>,
    (site, lab, prepared): (&Site, &EmulatedLab, &Prepared<'_>),
    (file, region): (ByteCount, ByteCount),
    findings: &mut Findings,
) -> Result<()> {
    let layouts = file_layouts(Stripes::Default, WRITTEN[0], setting.seed)?;
    let runs: Vec<Ior> = self::runs(site, &WRITTEN, &[Order::Sequential])
        .into_iter()
        .map(|ior| Ior { direction: Direction::Write, requests: file.0 / ior.request.0, ..ior })
        .collect();
    let found = setting.map(&[()], |()| {
        each_kept((lab, prepared), region, &layouts, |_| {
            let one = |ior: &Ior| lab.write_placed(prepared, &own_files(*ior, file, setting.seed));
            runs.iter().map(one).collect::<Result<Vec<_>>>()
        })
    })?;
    let found = &found[0];
    let names: Vec<String> = LAYOUTS.into_iter().chain([REPLICATED]).map(str::to_owned).collect();
    let (mut written, mut both) = (Vec::new(), Vec::new());
    let mut sync = EmulatedRun::default();
    for (run, ior) in runs.iter().enumerate() {
        let of_run: [WrittenRun; KEPT] = by_run(found, run);
        let what = json!({
            "processes": ior.processes,
            "request_bytes": ior.request.0,
            "sync_s": of_run[KEPT - 1].sync_s,
            "write_s": of_run[KEPT - 1].run.seconds,
        });
        let whole = |one: &WrittenRun| EmulatedRun { seconds: one.run.seconds + one.sync_s, ..one.run };
        let mb_per_s = of_run.map(|one| setting.log.mb_per_s(&one.run));
        let with_sync = of_run.map(|one| (!one.run.host_bound).then(|| whole(&one).mb_per_s()));
        if mb_per_s.iter().all(Option::is_some) {
            let last = of_run[KEPT - 1];
            sync = EmulatedRun::sum(&[sync, EmulatedRun { seconds: last.sync_s, ..last.run }]);
        }
        written.push(Tried { what: what.clone(), bytes: ior.bytes(), mb_per_s });
        both.push(Tried { what, bytes: ior.bytes(), mb_per_s: with_sync });
    }
    details(findings, "cost_fig7_writes", "writes, 64KiB stripes sequential", &names, &written);
    let (write_totals, both_totals) = (totals(&written), totals(&both));
    let case = "writes, 64KiB stripes sequential";
    if let Some(best) = best_single(&write_totals) {
        let share = |totals: [Option<f64>; KEPT]| {
            totals[KEPT - 1].zip(write_totals[best]).map_or(f64::NAN, |(replicas, single)| replicas / single)
        };
        let name = &names[best];
        for (what, totals) in [("without synchronisation", write_totals), ("with synchronisation", both_totals)] {
            let what = format!("replicas over the best single layout, {name}, {what}");
            findings.rows.push(Row::new(case, what, Unit::Ratio, Published::NotPrinted, share(totals)));
        }
    }
    let of_sync = (sync.seconds > 0.0).then(|| sync.mb_per_s());
    let series = names.iter().cloned().chain(["sync alone".to_owned(), "written and synchronised".to_owned()]);
    let values = write_totals.iter().copied().chain([of_sync, both_totals[KEPT - 1]]).collect();
    let title = format!("{}, writes, 64KiB stripes", NETWORK.name);
    findings.panels.push(Panel::new(title, Unit::MbPerS, "access", series, [("sequential".to_owned(), values)]));
    Ok(())
}

/// Stripes of figure 8's copies, in the order of [`LAYOUTS`].
const TILE_STRIPES: [ByteCount; LAYOUTS.len()] = super::tiles::STRIPES;
/// Of the shared file: the largest array of figure 8 for [`PROCESSES`], smaller ones one after the other.
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
                let one = share.min(super::tiles::BUFFER.0);
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

pub(super) fn figure_8(setting: &Setting<'_>) -> Result<Findings> {
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
    site.lab = site.lab.with_regions(super::REGION);
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
        TILE_PROCESSES
            .into_iter()
            .flat_map(move |processes| super::tiles::TILES.map(|sides| tile(processes, sides, method)))
    };
    let runs: Vec<Tiles> = Method::ALL.into_iter().flat_map(of_method).collect();
    let found = each_kept((&lab, &prepared), super::REGION, &[layouts], |_| {
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
        findings.rows.extend(rows(&case, &tried, &names, (GOAL_8, Published::Range(13.0, 23.0))));
        details(findings, "cost_fig8_reads", &case, &names, &tried);
        groups.push((method.name().to_owned(), totals(&tried).to_vec()));
        all.extend(tried);
    }
    let case = format!("{on}, all methods");
    findings.rows.extend(rows(&case, &all, &names, (GOAL_8, Published::Range(13.0, 23.0))));
    let title = format!("{}, {on}", NETWORK.name);
    findings.panels.push(Panel::new(title, Unit::MbPerS, "access", names, groups));
    Ok((complete(&all), all.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use stripewise_trace::Program as _;

    fn tried(bytes: f64, mb_per_s: [f64; KEPT]) -> Tried {
        Tried { what: json!({}), bytes, mb_per_s: mb_per_s.map(Some) }
    }

    #[test]
    fn totals_are_all_bytes_over_all_time_of_complete_runs() {
        let mut all = vec![tried(100.0, [10.0, 20.0, 25.0, 50.0]), tried(300.0, [30.0, 10.0, 15.0, 30.0])];
        assert_eq!(totals(&all), [20.0, 400.0 / 35.0, 400.0 / 24.0, 400.0 / 12.0].map(Some));
        assert_eq!(best_single(&totals(&all)), Some(0));
        assert!((most_by_run(&all, 0) - 20.0 / 14.0).abs() < 1e-12);
        assert!((mean_gain(&all, 0) - 5f64.sqrt()).abs() < 1e-12);
        all.push(Tried { what: json!({}), bytes: 1e9, mb_per_s: [Some(1.0), None, Some(1.0), Some(1.0)] });
        assert_eq!((complete(&all), totals(&all)[0]), (2, Some(20.0)));
        assert_eq!(totals(&all[2..]), [None; KEPT]);
        assert!(rows("none", &all[2..], &[], (1.0, Published::NotPrinted)).is_empty());
        let names: Vec<String> = LAYOUTS.into_iter().chain([REPLICATED]).map(str::to_owned).collect();
        let found = rows("some", &all, &names, (1.2, Published::NotPrinted));
        assert_eq!(
            (found[0].quantity.as_str(), found[0].ours),
            ("replicas over the best single layout, 1-DH", 400.0 / 240.0)
        );
    }

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

    #[test]
    fn files_begin_on_random_servers_in_each_layout() {
        let layouts = file_layouts(Stripes::Request, ByteCount(256 << 10), 1).unwrap();
        for (turn, width) in widths().into_iter().enumerate() {
            let firsts: BTreeSet<u16> = layouts.iter().map(|file| file[turn].stripes()[0].server.0).collect();
            assert_eq!(firsts.len(), NETWORK.servers as usize);
            for file in &layouts {
                let stripes = file[turn].stripes();
                let servers: BTreeSet<u16> = stripes.iter().map(|stripe| stripe.server.0).collect();
                assert_eq!((servers.len(), stripes.len()), (width as usize, width as usize));
                assert!(stripes.iter().all(|stripe| stripe.size_bytes * width == 256 << 10));
            }
        }
        assert_eq!(file_layouts(Stripes::Request, ByteCount(256 << 10), 1).unwrap(), layouts);
    }

    #[test]
    fn processes_stay_within_their_files() {
        let file = ByteCount(8 << 20);
        for order in [Order::Sequential, Order::Random] {
            let ior = Ior { processes: 4, request: ByteCount(3 << 20), order, direction: Direction::Read, requests: 9 };
            let program = own_files(ior, file, 1);
            for process in 0..4 {
                let steps: Vec<Step> = program.steps(process).collect();
                let offsets: BTreeSet<u64> = steps
                    .iter()
                    .map(|step| match step {
                        Step::Access(request) => {
                            assert_eq!((request.file.0, request.bytes), (process, 3 << 20));
                            request.offset.0
                        }
                        other => panic!("{other:?}"),
                    })
                    .collect();
                assert_eq!((steps.len(), offsets), (9, BTreeSet::from([0, 3 << 20])));
            }
        }
    }
}
