//! H2DP sections 2, 5.2, 5.3 and 5.4: figures 2 and 5 to 11, and the overheads.
//!
//! One laboratory for all of them: the Sun Fire cluster of section 5.1. H2DP prints none of its servers' parameters; PADP ran on the same
//! cluster and prints the stripe pairs that were optimal on it, from which its profile follows ([`super::padp`]). That one is used here.

mod benchmarks;
mod live;
mod migration;
mod motivation;
mod zipf;

use super::experiment::{BOTH, Experiment, Panel, Published, Row, SIMULATED, Setting, Unit};
use super::run_log::Scale;
use anyhow::Result;
use stripewise::laboratory::{Lab, placements};
use stripewise_layout::{ByteCount, Direction};
use stripewise_planner::PolicyName;
use stripewise_sim::{Borders, Migration, Outcome, SimOptions};
use stripewise_trace::{Benchmark, Program};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: "h2dp-fig2",
        paper: "H2DP",
        place: "figure 2",
        title: "Fixed stripes on HServers, on SServers and on both",
        testbeds: BOTH,
        setup: "IOR on a file of 16 GiB, 16 processes, requests of 512 KiB, sequential (every process its own share) and random; 4 HServers, \
                4 SServers, and all 8, in stripes of 64 KiB.",
        discussion: motivation::DISCUSSION,
        run: motivation::figure_2,
    },
    Experiment {
        id: "h2dp-fig5",
        paper: "H2DP",
        place: "figure 5",
        title: "IOR bandwidth with various request sizes",
        testbeds: BOTH,
        setup: zipf::SETUP_5,
        discussion: zipf::DISCUSSION_5,
        run: zipf::figure_5,
    },
    Experiment {
        id: "h2dp-fig6",
        paper: "H2DP",
        place: "figure 6",
        title: "I/O time of HServers and SServers",
        testbeds: SIMULATED,
        setup: "Reads of figure 5 with requests of 256 KiB. The time that the servers' devices are busy, mean over the servers of a class, \
                over that of the SServers under H2DP.",
        discussion: zipf::DISCUSSION_6,
        run: zipf::figure_6,
    },
    Experiment {
        id: "h2dp-fig7",
        paper: "H2DP",
        place: "figure 7",
        title: "IOR bandwidth with various numbers of processes",
        testbeds: BOTH,
        setup: "As figure 5 with requests of 512 KiB. The text does not print the numbers of processes; here 8 to 64, beyond 32 two on a node.",
        discussion: zipf::DISCUSSION_7,
        run: zipf::figure_7,
    },
    Experiment {
        id: "h2dp-fig8",
        paper: "H2DP",
        place: "figure 8",
        title: "IOR bandwidth with various server ratios",
        testbeds: BOTH,
        setup: "As figure 5 with requests of 512 KiB and other numbers of servers; SServers always have space for a sixth of the file.",
        discussion: zipf::DISCUSSION_8,
        run: zipf::figure_8,
    },
    Experiment {
        id: "h2dp-fig9",
        paper: "H2DP",
        place: "figure 9",
        title: "HPIO bandwidth with various region sizes",
        testbeds: BOTH,
        setup: "HPIO with 16 processes, 40,960 regions each, no spacing, 12 HServers and 4 SServers with space for a sixth of the file. The paper \
                names sizes up to 512 KB in its set-up and up to 1 MB in its results; here the latter.",
        discussion: benchmarks::DISCUSSION_9,
        run: benchmarks::figure_9,
    },
    Experiment {
        id: "h2dp-fig10",
        paper: "H2DP",
        place: "figure 10",
        title: "BTIO bandwidth with various numbers of processes",
        testbeds: SIMULATED,
        setup: benchmarks::SETUP_10,
        discussion: benchmarks::DISCUSSION_10,
        run: benchmarks::figure_10,
    },
    Experiment {
        id: "h2dp-fig11",
        paper: "H2DP",
        place: "figure 11",
        title: "IOR bandwidth without and with dynamic data migration",
        testbeds: BOTH,
        setup: "As figure 5. Without migration the placement of the first half stays; with it regions are copied through the servers while the \
                program goes on. On emulated servers each half takes about 12 s, the program's rank 0 marks the change, and `stripewise run \
                --migrate` moves the regions, without a limit to its bandwidth.",
        discussion: migration::DISCUSSION_11,
        run: migration::figure_11,
    },
    Experiment {
        id: "h2dp-overheads",
        paper: "H2DP",
        place: "section 5.4",
        title: "Size of the mapping table",
        testbeds: SIMULATED,
        setup: "A file of 100 GB in regions of 64 MiB, each with a layout of its own on 12 HServers and 4 SServers.",
        discussion: migration::DISCUSSION_54,
        run: migration::overheads,
    },
];

const REGION: ByteCount = ByteCount(64 << 20);
/// 128 GiB become 1 GiB in 256 regions of 4 MiB.
const SCALE: Scale = Scale { files: 128, regions: 16 };
/// "We assume that SServers can accommodate 1/6 data of the tested files at most."
const SSD_SHARE: u64 = 6;
/// Computing nodes that run clients.
const NODES: u32 = 32;
const DIRECTIONS: [Direction; 2] = [Direction::Read, Direction::Write];
/// Asynchronous, as section 4.5; the paper names no limit to its bandwidth.
const MIGRATION: Migration = Migration::Copied { bandwidth_bytes_per_s: None, chunk: ByteCount(1 << 20) };

/// Those that the paper compares, and ours where it exists.
fn policies() -> Vec<PolicyName> {
    let named = ["def", "padp", "psa", "h2dp", "opt"];
    named.iter().filter_map(|name| name.parse().ok()).collect()
}

/// The paper's cluster with so many HServers and SServers, the SServers with space for a share of the file.
fn lab((hservers, sservers): (usize, usize), ssd_room: Option<ByteCount>, region: ByteCount) -> Result<Lab> {
    let (hdd, ssd) = super::padp::devices()?;
    let link = super::padp::link()?;
    Ok(Lab::hybrid((hservers, hdd), (sservers, ssd), link, ssd_room, region).with_client_link(link))
}

/// As [`lab`], for one program's files.
fn lab_for(setting: &Setting<'_>, program: &dyn Program, servers: (usize, usize)) -> Result<Lab> {
    let bytes: u64 = program.files().iter().map(|file| file.size_bytes).sum();
    lab(servers, Some(ByteCount(bytes / SSD_SHARE / servers.1 as u64)), setting.scale(SCALE).region(REGION))
}

fn benchmark(text: &str) -> Result<Box<dyn Program>> {
    Ok(text.parse::<Benchmark>()?.program()?)
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

/// What each policy does, planned for the program and run on it.
fn outcomes(setting: &Setting<'_>, lab: &Lab, program: &dyn Program) -> Result<Vec<Outcome>> {
    let files = lab.count(program);
    let one = |policy: PolicyName| -> Result<Outcome> {
        let plan = lab.plan_counted(policy, program, &files, setting.seed)?;
        Ok(lab.simulate(&plan, program, MIGRATION)?)
    };
    policies().into_iter().map(one).collect()
}

/// Bandwidth of both directions together with each policy, planned for the program and run on it.
fn bandwidths(setting: &Setting<'_>, lab: &Lab, program: &dyn Program) -> Result<Vec<Option<f64>>> {
    let bench = setting.bench(lab, program)?;
    let files = bench.lab().count(program);
    let one = |policy: PolicyName| -> Result<Option<f64>> {
        let plan = bench.lab().plan_counted(policy, program, &files, setting.seed)?;
        let options = SimOptions { borders: Borders::Phase, migration: MIGRATION, ..SimOptions::default() };
        bench.mb_per_s(&placements(&plan, program), options)
    };
    policies().into_iter().map(one).collect()
}

/// Rows "up to": our most over all groups beside the paper's, over `def`, `padp` and `psa`.
fn most_gains(panel: &Panel, case: &str, published: [Published; 3]) -> Vec<Row> {
    let bases = ["def", "padp", "psa"].into_iter().zip(published);
    let row = |(base, published)| {
        let ours = panel.most_gain_percent("h2dp", base).unwrap_or(f64::NAN);
        Row::new(case, format!("h2dp over {base}"), Unit::Percent, published, ours)
    };
    bases.map(row).collect()
}

/// Rows of one group beside the paper's.
fn gains(panel: &Panel, case: &str, group: &str, published: [Published; 3]) -> Vec<Row> {
    let bases = ["def", "padp", "psa"].into_iter().zip(published);
    let row = |(base, published)| {
        let ours = panel.gain_percent(group, "h2dp", base).unwrap_or(f64::NAN);
        Row::new(case, format!("h2dp over {base}"), Unit::Percent, published, ours)
    };
    bases.map(row).collect()
}
