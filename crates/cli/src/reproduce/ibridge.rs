//! iBridge: the patterns of figure 1, figures 2 and 3, tables 1 and 2, as far as they can be had without fragments on SSDs.
//!
//! The article prints of its servers that there are eight, each with a 7,200 rpm disk, on InfiniBand; so they are `hdd-7200` and
//! `infiniband` here, both by their published figures: the disk by its mechanics, in the elevator order of Linux's schedulers.

mod mixes;

use super::experiment::{Experiment, Findings, Panel, Published, Row, SIMULATED, Setting, Unit};
use super::lab::{Lab, Machine};
use anyhow::Result;
use stripewise_device::{DeviceModel, DiskOrder, lookup_device, lookup_disk, lookup_link};
use stripewise_layout::{ByteCount, Layout, Placement, ServerClass, ServerId};
use stripewise_sim::{FilePlacements, Outcome, ServerDetail, SimOptions};
use stripewise_trace::{Benchmark, Program};

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
        testbeds: SIMULATED,
        setup: "As figure 2, reads and writes, 16 to 512 processes on 8 nodes; the article does not print its numbers. The rows with iBridge come with \
                fragments on SSDs, which Stripewise does not serve yet. What stands in for them is the bound that they cannot pass: the same data in aligned requests.",
        discussion: "iBridge makes mpi-io-test more than twice as fast by the article. The bound here, all data in aligned requests of 64 \
                KiB, is 1.3 to 1.6 times for reads and 1.7 to 8 times for writes, which no read-ahead of the disk helps. Reads of 512 \
                processes are an exception: 65 KiB is ahead there. Why is not clear to us; the order in which so many requests reach a \
                disk is not that of the file in either case.",
        run: |setting| figure_3(setting, FILE),
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
                article's replay is known. Mean time from issue to completion without iBridge; the rows with it come with fragments on SSDs. Beside it the same programs \
                with every unaligned request moved to a stripe's border.",
        discussion: "With 8 processes both ALEGRA traces come out at the published service times. That is less than it seems: the number of \
                processes is not published, and the times are nearly proportional to it (with 32 they are four times as long); 8 makes \
                them of the published size. What can be compared is the order. S3D, with most unaligned requests, is slowest here too, \
                but 1.3 times ALEGRA's and not 2.2 times: its requests must have been larger than those drawn for all four alike. CTH, \
                with many small random requests, is faster than ALEGRA here and slower in the article. Aligning all requests saves 15 \
                to 20 %, where iBridge saved 14 to 30 %: it also serves the small random requests from SSDs, which explains CTH. The \
                article's text says 13.9 % for ALEGRA-2744, its table gives 14.5 %.",
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

fn lab() -> Result<Lab> {
    let (device, link) = (lookup_device("hdd-7200")?, lookup_link("infiniband")?);
    let machine = Machine { class: ServerClass::Hdd, device, link: Some(link), room: None };
    Ok(Lab::new(&[machine; SERVERS], REGION).with_client_link(link))
}

/// The outcome of a program on stripes of 64 KiB over all servers.
fn striped(lab: &Lab, program: &dyn Program) -> Result<Outcome> {
    let stripe_bytes = u32::try_from(STRIPE.0)?;
    let layout = Layout::new((0..SERVERS).map(|id| (ServerId(id as u16), stripe_bytes)))?;
    let files = [FilePlacements::fixed(Placement::uniform(REGION, layout.clone(), layout))];
    let device = DeviceModel::Disk { spec: lookup_disk("hdd-7200")?, order: DiskOrder::Elevator };
    let detail = vec![ServerDetail { device, cache: None }; SERVERS];
    lab.simulate_with(&files, program, SimOptions { detail, ..SimOptions::default() })
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

    fn mb_per_s(&self, lab: &Lab, file: ByteCount) -> Result<f64> {
        let Self { block, offset, processes, has_barriers, is_write } = *self;
        let (barrier, op) = (if has_barriers { "yes" } else { "no" }, if is_write { "write" } else { "read" });
        let text = format!(
            "mpi-io-test:block={block},offset={offset},size={file},processes={processes},nodes={NODES},barrier={barrier},op={op}"
        );
        Ok(striped(lab, &*text.parse::<Benchmark>()?.program()?)?.mb_per_s)
    }
}

fn patterns(setting: &Setting<'_>, file: ByteCount) -> Result<Findings> {
    let lab = lab()?;
    let aligned = Test::reads(STRIPE);
    let kinds = [("I", aligned), ("II", Test::reads(UNALIGNED)), ("III", Test { offset: HEADER, ..aligned })];
    let cases: Vec<Test> =
        kinds.iter().flat_map(|(_, test)| [true, false].map(|has_barriers| Test { has_barriers, ..*test })).collect();
    let found = setting.map(&cases, |test| test.mb_per_s(&lab, file))?;
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
    let found = setting.map(&sizes, |size| Test::reads(*size).mb_per_s(&lab, file))?;
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
    let mut findings = Findings::default();
    for (name, is_write) in [("read", false), ("write", true)] {
        let of_count = |processes| [UNALIGNED, STRIPE].map(|block| Test { processes, is_write, ..Test::reads(block) });
        let cases: Vec<Test> = counts.into_iter().flat_map(of_count).collect();
        let found = setting.map(&cases, |test| test.mb_per_s(&lab, file))?;
        for (count, pair) in counts.iter().zip(found.chunks(2)) {
            let case = format!("{count} processes {name}");
            let what = "aligned over 65KiB, the bound of iBridge over PVFS2";
            // Printed is of iBridge itself only "more than a factor of two".
            findings.rows.push(Row::new(case, what, Unit::Ratio, Published::NotPrinted, pair[1] / pair[0]));
        }
        let groups = counts.iter().zip(found.chunks(2));
        let groups = groups.map(|(count, pair)| (count.to_string(), pair.iter().copied().map(Some).collect()));
        let title = format!("mpi-io-test {name}");
        let series = ["65KiB, without iBridge", "64KiB, aligned"];
        findings.panels.push(Panel::new(title, Unit::MbPerS, "processes", series, groups));
    }
    findings.notes.push(NO_FRAGMENTS.to_owned());
    Ok(findings)
}

const NO_FRAGMENTS: &str =
    "The article's rows with iBridge are missing: fragments on SSDs come with the live data path.";

#[cfg(test)]
mod tests;
