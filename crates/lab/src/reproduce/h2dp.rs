//! H2DP sections 2, 5.2, 5.3 and 5.4: figures 2 and 5 to 11, and the overheads.
//!
//! One laboratory for all of them: the Sun Fire cluster of section 5.1. H2DP prints none of its servers' parameters; PADP ran on the same
//! cluster and prints the stripe pairs that were optimal on it, from which its profile follows ([`super::readings`]). That one is used here. Figures
//! 5 to 9 have experiments with disks that seek beside it.

mod benchmarks;
mod live;
mod migration;
mod motivation;
mod queues;
mod schemes;
mod seeking;
mod windows;
mod zipf;

use super::experiment::{BOTH, Experiment, SIMULATED};
use super::run_log::Scale;
use anyhow::Result;
use schemes::Testbed;
use stripewise::laboratory::Lab;
use stripewise_layout::{ByteCount, Direction};
use stripewise_sim::Migration;
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
        run: |setting| zipf::figure_5(setting, Testbed::Padp),
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
        run: |setting| zipf::figure_6(setting, Testbed::Padp),
    },
    Experiment {
        id: "h2dp-fig7",
        paper: "H2DP",
        place: "figure 7",
        title: "IOR bandwidth with various numbers of processes",
        testbeds: BOTH,
        setup: "As figure 5 with requests of 512 KiB. The text does not print the numbers of processes; here 8 to 64, beyond 32 two on a node.",
        discussion: zipf::DISCUSSION_7,
        run: |setting| zipf::figure_7(setting, Testbed::Padp),
    },
    Experiment {
        id: "h2dp-fig8",
        paper: "H2DP",
        place: "figure 8",
        title: "IOR bandwidth with various server ratios",
        testbeds: BOTH,
        setup: "As figure 5 with requests of 512 KiB and other numbers of servers; SServers always have space for a sixth of the file.",
        discussion: zipf::DISCUSSION_8,
        run: |setting| zipf::figure_8(setting, Testbed::Padp),
    },
    Experiment {
        id: "h2dp-fig9",
        paper: "H2DP",
        place: "figure 9",
        title: "HPIO bandwidth with various region sizes",
        testbeds: BOTH,
        setup: "HPIO with 16 processes, 40,960 regions each, no spacing, 12 HServers and 4 SServers with space for a sixth of the file. The paper \
                names sizes up to 512 KB in its set-up and up to 1 MB in its results; here the latter. Simulated in one window, and again in 16 that \
                follow the march, all processes entering each together and with moves that are free.",
        discussion: benchmarks::DISCUSSION_9,
        run: |setting| benchmarks::figure_9(setting, Testbed::Padp),
    },
    Experiment {
        id: "h2dp-fig10",
        paper: "H2DP",
        place: "figure 10",
        title: "BTIO bandwidth with various numbers of processes",
        testbeds: SIMULATED,
        setup: benchmarks::SETUP_10,
        discussion: benchmarks::DISCUSSION_10,
        run: |setting| benchmarks::figure_10(setting, Testbed::Padp),
    },
    Experiment {
        id: "h2dp-fig5-seek",
        paper: "H2DP",
        place: "figure 5 on disks that seek",
        title: "IOR bandwidth with various request sizes, disks that seek",
        testbeds: BOTH,
        setup: seeking::SETUP_5,
        discussion: seeking::DISCUSSION_5,
        run: |setting| zipf::figure_5(setting, Testbed::Seeking),
    },
    Experiment {
        id: "h2dp-fig6-seek",
        paper: "H2DP",
        place: "figure 6 on disks that seek",
        title: "I/O time of HServers and SServers, disks that seek",
        testbeds: SIMULATED,
        setup: "As figure 6, with the servers of figure 5 on disks that seek.",
        discussion: seeking::DISCUSSION_6,
        run: |setting| zipf::figure_6(setting, Testbed::Seeking),
    },
    Experiment {
        id: "h2dp-fig7-seek",
        paper: "H2DP",
        place: "figure 7 on disks that seek",
        title: "IOR bandwidth with various numbers of processes, disks that seek",
        testbeds: SIMULATED,
        setup: "As figure 7, with the servers of figure 5 on disks that seek.",
        discussion: seeking::DISCUSSION_7,
        run: |setting| zipf::figure_7(setting, Testbed::Seeking),
    },
    Experiment {
        id: "h2dp-fig8-seek",
        paper: "H2DP",
        place: "figure 8 on disks that seek",
        title: "IOR bandwidth with various server ratios, disks that seek",
        testbeds: SIMULATED,
        setup: "As figure 8, with the servers of figure 5 on disks that seek.",
        discussion: seeking::DISCUSSION_8,
        run: |setting| zipf::figure_8(setting, Testbed::Seeking),
    },
    Experiment {
        id: "h2dp-fig9-seek",
        paper: "H2DP",
        place: "figure 9 on disks that seek",
        title: "HPIO bandwidth with various region sizes, disks that seek",
        testbeds: SIMULATED,
        setup: "As figure 9, with the servers of figure 5 on disks that seek.",
        discussion: seeking::DISCUSSION_9,
        run: |setting| benchmarks::figure_9(setting, Testbed::Seeking),
    },
    Experiment {
        id: "h2dp-fig10-seek",
        paper: "H2DP",
        place: "figure 10 on disks that seek",
        title: "BTIO bandwidth with various numbers of processes, disks that seek",
        testbeds: SIMULATED,
        setup: "As figure 10, with the servers of figure 5 on disks that seek.",
        discussion: seeking::DISCUSSION_10,
        run: |setting| benchmarks::figure_10(setting, Testbed::Seeking),
    },
    Experiment {
        id: "h2dp-queues",
        paper: "H2DP",
        place: "figure 8 with one queue for each file",
        title: "IOR bandwidth where DEF's disks serve in order of arrival and the others' sort",
        testbeds: SIMULATED,
        setup: queues::SETUP,
        discussion: queues::DISCUSSION,
        run: queues::queues,
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

/// The paper's cluster with so many HServers and SServers, each SServer with so much space.
fn lab(servers: (usize, usize), ssd_room: Option<ByteCount>, region: ByteCount) -> Result<Lab> {
    lab_of(Testbed::Padp, servers, ssd_room, region)
}

fn lab_of(
    testbed: Testbed,
    (hservers, sservers): (usize, usize),
    ssd_room: Option<ByteCount>,
    region: ByteCount,
) -> Result<Lab> {
    let (hdd, ssd, link) = testbed.machines()?;
    Ok(Lab::hybrid((hservers, hdd), (sservers, ssd), link, ssd_room, region).with_client_link(link))
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
