//! iBridge: the patterns of figure 1, figures 2 and 3, tables 1 and 2, fragments on SSDs included.
//!
//! The article prints of its servers that there are eight, each with a 7,200 rpm disk, on InfiniBand; so they are `hdd-7200` and
//! `infiniband` here, both by their published figures: the disk by its mechanics, in the elevator order of Linux's schedulers.

mod mixes;
mod passes;

use super::experiment::{BOTH, Experiment, Findings, Panel, Published, Row, SIMULATED, Setting, TestbedKind, Unit};
use anyhow::Result;
use stripewise::laboratory::Lab;
use stripewise_device::{DeviceModel, DiskOrder, lookup_device, lookup_disk, lookup_link};
use stripewise_layout::{ByteCount, Layout, Placement, ServerId};
use stripewise_sim::{FilePlacements, FragmentService, Outcome, ServerDetail, SimOptions};
use stripewise_trace::{Benchmark, Program, SMALL_REQUEST};

const PAPER: &str = "iBridge";

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: "ibridge-fig1",
        paper: PAPER,
        place: "the patterns of figure 1",
        title: "mpi-io-test bandwidth of the three alignment patterns",
        testbeds: SIMULATED,
        setup: "64 processes on 8 nodes read a file of 10 GB from 8 servers with stripes of 64 KiB, with and without a barrier in each iteration. Pattern I: requests of 64 KiB; \
                II: 65 KiB; III: 64 KiB behind a header of 4 KiB. The article only draws the patterns; sizes and header are ours.",
        discussion: "Unaligned access costs a third of the bandwidth, aligned is 1.6 times as fast in either pattern, where the article has \
                about twice. All of it is the disk's: two requests that share a stripe reach its server as two pieces, each an access \
                of its own. Without the barriers that mpi-io-test has, processes drift apart and the pieces of a stripe come at \
                different times; then a disk seeks for most of them and bandwidth falls by a factor of 10 to 30. Servers that read \
                ahead, which are not simulated here, would soften that.",
        run: |setting| patterns(setting, FILE),
    },
    Experiment {
        id: "ibridge-fig2",
        paper: PAPER,
        place: "figure 2",
        title: "mpi-io-test bandwidth by request size, pattern II",
        testbeds: SIMULATED,
        setup: "As the patterns, with barriers as the benchmark has them; the article does not print its request sizes, here 64 KiB, which is aligned, and six that are not.",
        discussion: "On average aligned access is 1.4 times as fast, at 65 KiB 1.6 times and at 112 KiB 1.9 times; the article says \
                \"approximately twice\". The disk is modelled by its mechanics in elevator order, with its own cache but no page cache \
                of the server; in order of arrival and with mean seek times, tried beside this, 65 KiB was slower by a factor of 6, so \
                the scheduler decides how much fragments cost.",
        run: |setting| figure_2(setting, FILE),
    },
    Experiment {
        id: "ibridge-fig3",
        paper: PAPER,
        place: "figure 3",
        title: "mpi-io-test bandwidth of 65 KiB requests by number of processes",
        testbeds: BOTH,
        setup: "As figure 2, reads and writes, 16 to 512 processes on 8 nodes; the article does not print its numbers. With iBridge, sub-requests below 20 KiB (and \
                half a stripe) of requests longer than a stripe are served by the SSD of their server, `sata-ssd-2012`. All of them lie there from the start: the \
                simulation has no admission, no limit of space and no writing back, and each SSD has a link of its own. On emulated servers it is the store's own fragments, with all of \
                that, on disks that need 5 ms to start what continues no stream (`paper-hdd-5ms`): ranks that go through a file twice, in order or at random, without barriers; \
                also with a threshold of half a stripe.",
        discussion: "The article's factor of more than two is not reached. For reads of up to 128 processes fragments on SSDs bring 1.1 to \
                1.3, nearly all that aligned requests would bring (1.3 to 1.6): in the simulation unaligned access costs less than in \
                the article to begin with, as figure 2 says. With 256 and 512 processes the disks seek whatever the requests are. For \
                writes fragments on SSDs make it worse here, down to half: what stays on a disk then has holes of 1 to 20 KiB, a disk \
                without a write cache loses a revolution at each, and whole runs of adjoining pieces become single accesses. iBridge \
                itself would not have admitted those fragments, since it weighs what each saves its disk, and the servers' page caches \
                would have filled many of the holes; neither is simulated. On emulated servers 64 ranks at random gain 1.4 with the article's threshold and 1.9 with half a \
                stripe, reading and writing: a request of 65 KiB is then one seek instead of two, and with 20 KiB six in ten are. In order \
                they gain 1.1 with 20 KiB, and with half a stripe 2.0 writing and 1.5 reading; single runs lie between 1.35 and 2.3, since ranks without barriers drift apart in \
                another way each time, and a busy machine adds to that. With 8 and 16 ranks writes lose, down to a third. There hardly anything seeks without fragments: requests \
                come to each disk in the order of the file. Where some parts are served at once, ranks run ahead of each other, what is left comes out of order, and disks \
                that serve in order of arrival seek. The article's disks reorder what waits for them, as does the scheduler before them. They also lose a revolution where a stream \
                has a hole in it, which ours, that know streams and no revolutions, do not; both make fragments dearer there than here.",
        run: |setting| match setting.testbed {
            TestbedKind::Simulated => figure_3(setting, FILE),
            TestbedKind::Emulated => passes::figure_3(setting),
        },
    },
    Experiment {
        id: "ibridge-table1",
        paper: PAPER,
        place: "table 1",
        title: "Unaligned and random requests of four applications",
        testbeds: SIMULATED,
        setup: "The article's traces are not in it, so this is no measurement of those applications: for each of them a program whose requests are drawn with the \
                published shares, unaligned ones of 64 to 256 KiB at any byte, random ones below 20 KiB, the others aligned multiples of 64 KiB, and what is counted of it by \
                the article's rules.",
        discussion: "Programs drawn with the published shares have those shares; the rows show that unaligned and random are counted as the \
                article defines them. The article's text says 35.9 % unaligned on average, its table gives 39.5 %.",
        run: |setting| mixes::table_1(setting, mixes::REQUESTS),
    },
    Experiment {
        id: "ibridge-table2",
        paper: PAPER,
        place: "table 2",
        title: "Service times when the applications' requests are replayed",
        testbeds: SIMULATED,
        setup: "The programs of table 1, 8 processes on 8 nodes that each wait for their request, reads of a file of 10 GB; neither the number of processes nor the pace of the \
                article's replay is known. Mean time from issue to completion, without iBridge and with it, as for figure 3 and requests below 20 KiB on the \
                SSDs too. Beside them the same programs with every unaligned request moved to a stripe's border.",
        discussion: "With 8 processes both ALEGRA traces come out at the published service times, without iBridge (16.9 and 17.1 ms) and \
                with it (13.8 and 14.1 ms). The times are less than they seem: the number of processes is not published, they are \
                nearly proportional to it (with 32 they are four times as long), and 8 makes them of the published size. The share \
                saved does not depend on that choice so much: 18 % for ALEGRA, as published. S3D, with most unaligned requests, is \
                slowest here too, but 1.3 times ALEGRA's time and not 2.2 times: its requests must have been larger than those drawn \
                for all four alike. CTH, with many small random requests, is faster than ALEGRA here and slower in the article, and \
                gains more by the SSDs (38 % instead of 26 %). The article's text says 13.9 % for ALEGRA-2744, its table gives 14.5 %.",
        run: |setting| mixes::table_2(setting, mixes::REQUESTS),
    },
];

const SERVERS: usize = 8;
const NODES: u32 = 8;
const REGION: ByteCount = ByteCount(64 << 20);
const STRIPE: ByteCount = ByteCount(64 << 10);
const UNALIGNED: ByteCount = ByteCount(65 << 10);
const FILE: ByteCount = ByteCount(10_000_000_000);
const HEADER: ByteCount = ByteCount(4 << 10);
const PROCESSES: u32 = 64;

/// Who serves fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    /// The disks, as everything else.
    Stock,
    /// The SSD of each server, with all small requests.
    IBridge,
}

/// The disks, then an SSD for each of them.
fn lab() -> Result<Lab> {
    let link = lookup_link("infiniband")?;
    let (disk, ssd) = (lookup_device("hdd-7200")?, lookup_device("sata-ssd-2012")?);
    Ok(Lab::hybrid((SERVERS, disk), (SERVERS, ssd), link, None, REGION).with_client_link(link))
}

/// The outcome of a program on stripes of 64 KiB over all disks.
fn striped(lab: &Lab, program: &dyn Program, system: System) -> Result<Outcome> {
    let stripe_bytes = u32::try_from(STRIPE.0)?;
    let layout = Layout::new((0..SERVERS).map(|id| (ServerId(id as u16), stripe_bytes)))?;
    let files = [FilePlacements::fixed(Placement::uniform(REGION, layout.clone(), layout))];
    let device = DeviceModel::Disk { spec: lookup_disk("hdd-7200")?, order: DiskOrder::Elevator };
    let disk = |id: usize| {
        let service =
            FragmentService { on: ServerId((SERVERS + id) as u16), below: SMALL_REQUEST, small_requests: true };
        ServerDetail { device, cache: None, fragments: (system == System::IBridge).then_some(service) }
    };
    let detail = (0..SERVERS).map(disk).chain(vec![ServerDetail::default(); SERVERS]).collect();
    Ok(lab.simulate_with(&files, program, SimOptions { detail, ..SimOptions::default() })?)
}

/// One run of mpi-io-test.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Test {
    block: ByteCount,
    offset: ByteCount,
    processes: u32,
    has_barriers: bool,
    is_write: bool,
}

impl Test {
    const fn reads(block: ByteCount) -> Self {
        Self { block, offset: ByteCount(0), processes: PROCESSES, has_barriers: true, is_write: false }
    }

    fn mb_per_s(&self, lab: &Lab, system: System, file: ByteCount) -> Result<f64> {
        let Self { block, offset, processes, has_barriers, is_write } = *self;
        let (barrier, op) = (if has_barriers { "yes" } else { "no" }, if is_write { "write" } else { "read" });
        let text = format!(
            "mpi-io-test:block={block},offset={offset},size={file},processes={processes},nodes={NODES},barrier={barrier},op={op}"
        );
        Ok(striped(lab, &*text.parse::<Benchmark>()?.program()?, system)?.mb_per_s)
    }
}

fn patterns(setting: &Setting<'_>, file: ByteCount) -> Result<Findings> {
    let lab = lab()?;
    let aligned = Test::reads(STRIPE);
    let kinds = [("I", aligned), ("II", Test::reads(UNALIGNED)), ("III", Test { offset: HEADER, ..aligned })];
    let cases: Vec<Test> =
        kinds.iter().flat_map(|(_, test)| [true, false].map(|has_barriers| Test { has_barriers, ..*test })).collect();
    let found = setting.map(&cases, |test| test.mb_per_s(&lab, System::Stock, file))?;
    let series = ["with barriers", "without barriers"];
    let groups = kinds.iter().zip(found.chunks(2));
    let groups = groups.map(|((name, _), pair)| ((*name).to_owned(), pair.iter().copied().map(Some).collect()));
    let panel = Panel::new("mpi-io-test", Unit::MbPerS, "pattern", series, groups);
    let mut findings = Findings::default();
    for name in ["II", "III"] {
        for series in series {
            let rate = |group| panel.value(group, series).unwrap_or(f64::NAN);
            let case = format!("pattern {name}, {series}");
            let what = "aligned over unaligned";
            findings.rows.push(Row::new(case, what, Unit::Ratio, Published::NotPrinted, rate("I") / rate(name)));
        }
    }
    findings.panels.push(panel);
    Ok(findings)
}

fn figure_2(setting: &Setting<'_>, file: ByteCount) -> Result<Findings> {
    let lab = lab()?;
    let sizes = [64, 65, 72, 80, 96, 112, 127].map(|kib: u64| ByteCount(kib << 10));
    let found = setting.map(&sizes, |size| Test::reads(*size).mb_per_s(&lab, System::Stock, file))?;
    let mut findings = Findings::default();
    let ratios: Vec<f64> = found[1..].iter().map(|rate| found[0] / rate).collect();
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    // "Throughput for aligned access is approximately twice that for unaligned access."
    let what = "aligned over unaligned";
    findings.rows.push(Row::new("mean of the unaligned sizes", what, Unit::Ratio, Published::Value(2.0), mean));
    for (size, ratio) in sizes[1..].iter().zip(&ratios) {
        findings.rows.push(Row::new(size.to_string(), what, Unit::Ratio, Published::NotPrinted, *ratio));
    }
    let groups = sizes.iter().zip(&found).map(|(size, rate)| (size.to_string(), vec![Some(*rate)]));
    findings.panels.push(Panel::new("mpi-io-test read", Unit::MbPerS, "request size", ["without iBridge"], groups));
    Ok(findings)
}

fn figure_3(setting: &Setting<'_>, file: ByteCount) -> Result<Findings> {
    let lab = lab()?;
    let counts = [16, 32, 64, 128, 256, 512];
    let kinds = [(UNALIGNED, System::Stock), (UNALIGNED, System::IBridge), (STRIPE, System::Stock)];
    let mut findings = Findings::default();
    for (name, is_write) in [("read", false), ("write", true)] {
        let of_count =
            |processes| kinds.map(|(block, system)| (Test { processes, is_write, ..Test::reads(block) }, system));
        let cases: Vec<(Test, System)> = counts.into_iter().flat_map(of_count).collect();
        let found = setting.map(&cases, |(test, system)| test.mb_per_s(&lab, *system, file))?;
        let by_count = || counts.iter().zip(found.chunks(kinds.len()));
        for (count, rates) in by_count() {
            let case = format!("{count} processes {name}");
            // "IBridge provides more than a factor of two performance improvement."
            let published = Published::AtLeast(2.0);
            findings.rows.push(Row::new(&case, "iBridge over PVFS2", Unit::Ratio, published, rates[1] / rates[0]));
            let what = "aligned requests over PVFS2";
            findings.rows.push(Row::new(&case, what, Unit::Ratio, Published::NotPrinted, rates[2] / rates[0]));
        }
        let groups = by_count().map(|(count, rates)| (count.to_string(), rates.iter().copied().map(Some).collect()));
        let series = ["65KiB, PVFS2", "65KiB, iBridge", "64KiB, aligned"];
        findings.panels.push(Panel::new(format!("mpi-io-test {name}"), Unit::MbPerS, "processes", series, groups));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests;
