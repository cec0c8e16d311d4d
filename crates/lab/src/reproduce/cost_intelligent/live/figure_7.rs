//! Figure 7: IOR on a file for each process, read and written.

use super::super::{DEFAULT_STRIPE, FILE, GROUP_SERVERS, Ior, LAYOUTS, REGION, Site, Stripes};
use super::{
    KEPT, NETWORK, REPLICATED, Tried, best_single, by_run, complete, details, each_kept, emulated, remark, requests,
    rows, totals,
};
use crate::reproduce::emulated::replicated::WrittenRun;
use crate::reproduce::emulated::{EmulatedLab, EmulatedRun, Prepared};
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, Unit};
use crate::reproduce::run_log::Scale;
use crate::reproduce::script::Generated;
use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use stripewise_layout::{ByteCount, Direction, FileOffset, Layout, Order, ServerId};
use stripewise_trace::{IoRequest, ProgramFile, Step};

/// What replicas are to gain on the best single layout at least: the least that the paper has.
const GOAL: f64 = 1.2;
/// Every other one of the printed numbers.
const PROCESSES: [u32; 4] = [1, 4, 16, 64];
/// Every third of the printed sizes.
const SIZES: [ByteCount; 4] = [ByteCount(4 << 10), ByteCount(32 << 10), ByteCount(256 << 10), ByteCount(2 << 20)];
/// Of requests that are written, in each run the whole of the files.
const WRITTEN: [ByteCount; 2] = [ByteCount(32 << 10), ByteCount(256 << 10)];
const SCALE: Scale = Scale { files: 8, regions: 8 };

/// Servers that each layout strips a file over.
fn widths() -> [u32; LAYOUTS.len()] {
    [NETWORK.servers, 1, GROUP_SERVERS]
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
            Stripes::Default => DEFAULT_STRIPE,
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
            Step::Access(IoRequest { file: ProgramFile(process), kind: ior.direction.into(), offset, bytes })
        })
    };
    Generated::file_per_process(file.0, (ior.processes, NETWORK.nodes.min(ior.processes)), steps)
}

fn order_name(order: Order) -> &'static str {
    if order == Order::Random { "random" } else { "sequential" }
}

pub(in super::super) fn figure_7(setting: &Setting<'_>) -> Result<Findings> {
    let scale = setting.scale(SCALE);
    let (file, region) = (scale.file(FILE), scale.region(REGION));
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
            findings.rows.extend(rows(&case, tried, &names, (GOAL, Published::Range(20.0, 74.0))));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use stripewise_trace::Program as _;

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
