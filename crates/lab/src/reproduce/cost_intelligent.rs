//! Cost-intelligent layout: figure 2, tables 4 and 5, figures 5 to 8.
//!
//! Two laboratories, the paper's clusters with Gigabit Ethernet and with InfiniBand, of the parameters that its table 4 prints. The model
//! is given the same parameters, so what these experiments test is its view of queues and links.

mod accuracy;
mod calibration;
mod live;
mod mixed;
mod tiles;

use super::experiment::{BOTH, Experiment, Findings, Panel, Published, Row, SIMULATED, Setting, TestbedKind, Unit};
use anyhow::Result;
use stripewise::laboratory::{Lab, Machine};
use stripewise_device::{lookup_device, lookup_link};
use stripewise_layout::{ByteCount, Direction, Layout, Order, Placement, ServerClass, ServerId};
use stripewise_model::cost_intelligent::{ProcessLayout, TableForm, request_cost};
use stripewise_model::{Concurrency, UniformParameters};
use stripewise_sim::{FilePlacements, SimOptions};
use stripewise_trace::{AccessClass, Benchmark, Program};

const PAPER: &str = "Cost-intelligent";

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: "cost-fig2",
        paper: PAPER,
        place: "figure 2",
        title: "IOR bandwidth under 1-DV and 2-D over that under 1-DH",
        testbeds: SIMULATED,
        setup: "Sequential IOR reads with a file for each process, on 4 servers, 8 client nodes and Gigabit Ethernet. 1-DH stripes each file over all servers, 1-DV puts it on \
                one, 2-D on two, in PVFS2's stripes of 64 KiB. The paper prints neither the fixed request size of its part (a) nor the fixed number of clients of (b); here 256 KiB \
                and 16.",
        discussion: "The plots' values are not printed; what the text says of them holds. With few clients 1-DH is fastest, from 8 on 2-D, \
                from 16 on 1-DV, by a third. Request sizes up to the stripe of 64 KiB are the same in all layouts here, since such a \
                request is on one server in each; from 128 KiB on 1-DV leads by up to 36 %, and at 4 MiB the layouts meet again \
                because transfer is all that is left. A client alone gets 54 MB/s at most: its link, the server's link and the disk \
                come one after the other.",
        run: |setting| figure_2(setting, 64),
    },
    Experiment {
        id: "cost-table4",
        paper: PAPER,
        place: "table 4",
        title: "Parameters that calibration finds",
        testbeds: SIMULATED,
        setup: "One client measures one server, requests of 4 KiB to 4 MiB one at a time, random and sequential: without a network for alpha and beta, over the \
                network and the client's link for e and v, half of what is added for each of the two links. Lines by our robust fit.",
        discussion: "All parameters come back within 1 %. The simulated devices have the published parameters, so this shows that measuring \
                and fitting lose nothing, random and sequential apart, and that e and v can be told from the storage they are measured \
                with. What the paper's cluster would give is not at stake here.",
        run: calibration::table_4,
    },
    Experiment {
        id: "cost-table5",
        paper: PAPER,
        place: "table 5",
        title: "How often the model chooses the layout that is fastest",
        testbeds: SIMULATED,
        setup: "IOR reads with a file of 64 MiB for each process; as many cases as in the paper, which does not print what they are: here 60 numbers of processes from 1 \
                to 96 and 70 request sizes from 4 KiB to 4 MiB on Ethernet (16 servers, 48 client nodes), 44 from 1 to 64 and 50 on InfiniBand (8 \
                servers, 8 nodes). In each, the layout of 1-DH, 1-DV and 2-D (two servers for a file) with the least cost by table 2 as corrected, and the \
                layout with the most bandwidth in simulation of the first 12 requests of each process. Files have PVFS2's stripes of 64 KiB; the last rows of \
                each case have stripes that put every request on all servers of its file, as table 2 assumes.",
        discussion: "On InfiniBand the model chooses as well as in the paper (87 and 88 % against 85 and 80 %), on Ethernet worse (71 and \
                72 % against 91 and 88 %). The cases differ, since the paper does not print its own, and the share depends on how many \
                of them lie in the plain part of figure 5. Where the model errs is clear from the panels: it chooses 1-DV, or 2-D, \
                where a wider layout is faster. It adds the time on the client's link, on the server's link and on the disk, each for \
                the longest queue, while in the simulation (and in any cluster) a server reads for the next request while the last one \
                is on the wire; 1-DH keeps more of these stages busy at once. With InfiniBand there is little on the wire to overlap. \
                A wrong choice costs on average 5 % on Ethernet and 1.5 % on InfiniBand. With stripes that put each request on all \
                servers of its file, as the model assumes, it is right in 1 to 4 % more of the cases. The printed form of table 2, \
                which contradicts itself in 2-D, loses 6 to 8 points on InfiniBand and nothing on Ethernet, where its faulty case does \
                not arise.",
        run: |setting| accuracy::table_5(setting, 1),
    },
    Experiment {
        id: "cost-fig5",
        paper: PAPER,
        place: "figure 5",
        title: "Which layout is fastest, by number of processes and request size",
        testbeds: SIMULATED,
        setup: "As table 5, sequential, for 1 to 64 processes in powers of two and 16 KiB to 4 MiB in powers of two.",
        discussion: "The points themselves are not printed. The order of the regions is: 1-DH for few processes and large requests, 1-DV \
                for many processes, 2-D between. Requests of at most 64 KiB lie on one server in every layout when stripes have 64 \
                KiB; 1-DV is ahead there, as in the paper, but only by the first seeks of each file. The model is right less often \
                than over all cases of table 5, since half of these points have up to 8 processes; there it errs as described for \
                table 5.",
        run: accuracy::figure_5,
    },
    Experiment {
        id: "cost-fig6",
        paper: PAPER,
        place: "figure 6",
        title: "Layout by overall cost under mixed workloads",
        testbeds: SIMULATED,
        setup: "Ten scenarios of 6 to 10 runs one after the other, each an IOR with a file of 64 MiB for each process (random or sequential) or an MPI-Tile-IO, drawn \
                from the sizes and numbers of processes of figures 7 and 8, which are printed; the paper does not print what its scenarios are. For every scenario \
                the layout of the least sum of request costs. Gains are of the average bandwidth over all ten, 1-DH the base. Files of IOR are laid out once in PVFS2's stripes of 64 KiB and once in stripes that \
                put each request on all servers of its file: the paper does not print its stripes.",
        discussion: "The paper's 57 and 35 % lie between our two readings of 1-DH. With PVFS2's default stripes small requests do not \
                suffer from 1-DH, and the choice gains 8 to 10 %; with every request on all servers they suffer enormously, and it \
                gains 110 to 220 %. The paper's stripes were between the two, or its scenarios had larger requests. In all ten \
                scenarios, on both networks, the overall cost chooses 1-DV: the sum of request costs is ruled by the runs with many \
                processes, which the model (rightly) puts there. No choice of one layout for each scenario would have gained more than \
                2.1 % on it.",
        run: |setting| mixed::figure_6(setting, 10),
    },
    Experiment {
        id: "cost-fig7",
        paper: PAPER,
        place: "figure 7",
        title: "Hybrid replication under IOR",
        testbeds: BOTH,
        setup: "IOR with a file of 64 MiB for each process, 1 to 96 processes (InfiniBand: 64) and 4 KiB to 4 MiB as printed, written and then read. Three \
                copies of each file, in 1-DH, 1-DV and 2-D; every access goes to the copy that the model finds cheapest. Copies are not kept in step here: the simulation \
                counts the access to the chosen copy alone, as the paper counts it. Bandwidth is all bytes over all time, each combination's time from the first 64 \
                requests of each process. Stripes as for figure 6. On the emulated testbed the store keeps the copies, chooses one for every read by what stands in \
                the servers' queues, and brings them in step with what was written; InfiniBand's eight servers.",
        discussion: "Against 1-DH and 2-D the published range lies between our two readings of the layouts, or is met, as in figure 6. \
                Against the best single layout, 1-DV, hybrid replication gains 2 to 4 % here and at least 20 % in the paper. That is \
                not the model's choice: the best copy for every access, known beforehand, would gain 3 % more at most. It follows from \
                the average, all bytes over all time: nearly all of the time is spent on small requests, for which 1-DV is best, and \
                what large requests gain on other copies hardly shows in it. An average of the bandwidths of the single runs would \
                show more, but the text says that it is not that. The simulation deals files out to servers in turn, so that no server has more of \
                them than another. PVFS2 begins each file on a random server unless it is told otherwise, and that is what the emulated testbed does: some servers have \
                several files then while others stand idle, most of all in 1-DV. To take for every read the copy whose servers are done first evens that out, which a choice by the number of \
                processes cannot, and it is what replicas gain most by. They gain more where requests are on all servers of their file, since small requests \
                want 1-DV there and large ones 1-DH. With stripes of 64 KiB a small request is on one server in every layout, 1-DH spreads such requests by \
                itself, and what is left to gain is how evenly.",
        run: |setting| match setting.testbed {
            TestbedKind::Simulated => mixed::figure_7(setting, 64),
            TestbedKind::Emulated => live::figure_7(setting),
        },
    },
    Experiment {
        id: "cost-fig8",
        paper: PAPER,
        place: "figure 8",
        title: "Hybrid replication under MPI-Tile-IO",
        testbeds: BOTH,
        setup: "MPI-Tile-IO reads of one shared file, tiles of 1024 x 1024, 1024 x 2048 and 2048 x 2048 bytes, 4 to 256 processes, three copies with stripes of 16 KiB, \
                256 KiB and 4 MiB, taken for 1-DH, 2-D and 1-DV as the paper does. Collective: one aggregator on each node with ROMIO's 16 MiB \
                buffer. Not collective: each tile is one request, as list I/O of PVFS2 sends it, in an array one tile wide. On the emulated testbed the store \
                keeps the copies and chooses by what stands in the servers' queues; there tiles are also read row by row, in arrays as square as can be, and once more on disks of 5 ms (`paper-hdd-5ms`).",
        discussion: "Where each tile is one request, the choice is ahead of every single stripe size on both networks, by 2 to 10 % where \
                the paper has 13 to 23 %. In collective I/O it is behind 16 KiB and 256 KiB by 9 to 11 %: the model sees requests of \
                up to 16 MiB from one process on each of 48 (or 8) nodes and takes a stripe of 4 MiB for 1-DV, on which such a request \
                would be on one server, while really it is on four and meets others there. Chosen with that known, copies would gain 9 \
                to 13 % there. The baseline is 16 KiB by the caption and 4 KB by the text; it is the former here. On the emulated testbed the store, which sees \
                queues and not processes, makes no such mistake. Still, where requests are large, all of them lie on all servers in stripes of 256 KiB (or nearly so), and with \
                a startup of 0.3 ms to 1 MiB and more one stripe size is within some percent of the best for every run: the row that takes the best size for \
                each run shows how little any choice of one copy could add. Read row by row, neighbours read the same stripes at the same time, and \
                copies with other stripes take them apart. That alone brings 13 %. On disks whose random reads take 5 ms to start, as they do when nothing is \
                cached, replicas bring 20 % where each tile is one request and nearly twice the bandwidth row by row; collective requests, of megabytes, gain nothing on either.",
        run: |setting| match setting.testbed {
            TestbedKind::Simulated => tiles::figure_8(setting),
            TestbedKind::Emulated => live::figure_8(setting),
        },
    },
];

/// Of each process (section 6.4).
const FILE: ByteCount = ByteCount(64 << 20);
const REGION: ByteCount = ByteCount(64 << 20);

/// One of the paper's two clusters (section 6.1).
#[derive(Clone, Copy, PartialEq, Debug)]
struct Network {
    name: &'static str,
    link: &'static str,
    servers: u32,
    nodes: u32,
}

const ETHERNET: Network = Network { name: "Ethernet", link: "gigabit", servers: 16, nodes: 48 };
const INFINIBAND: Network = Network { name: "InfiniBand", link: "infiniband", servers: 8, nodes: 8 };
const NETWORKS: [Network; 2] = [ETHERNET, INFINIBAND];

impl Network {
    fn site(self) -> Result<Site> {
        self.site_with("paper-hdd")
    }

    /// With other disks than those of table 4.
    fn site_with(self, disk: &str) -> Result<Site> {
        let (device, link) = (lookup_device(disk)?, lookup_link(self.link)?);
        let machine = Machine { class: ServerClass::Hdd, device, link: Some(link), capacity: None };
        let lab = Lab::new(&vec![machine; self.servers as usize], REGION).with_client_link(link);
        let parameters = UniformParameters::of_servers(&lab.profile, |_| true);
        Ok(Site { network: self, lab, parameters })
    }

    /// p and m of the model for so many processes.
    fn concurrency(self, processes: u32) -> Concurrency {
        Concurrency { processes, processes_per_node: processes.div_ceil(self.nodes.min(processes)) }
    }
}

/// A cluster with the model's parameters of it.
struct Site {
    network: Network,
    lab: Lab,
    parameters: UniformParameters,
}

/// The layouts that the paper compares; "2-D means each file was striped on 2 storage nodes".
const LAYOUTS: [&str; 3] = ["1-DH", "1-DV", "2-D"];
const GROUP_SERVERS: u32 = 2;

fn layouts(servers: u32) -> [ProcessLayout; 3] {
    [ProcessLayout::OneDh, ProcessLayout::OneDv, ProcessLayout::TwoD { groups: servers / GROUP_SERVERS }]
}

/// An IOR run with a file for each process.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Ior {
    processes: u32,
    request: ByteCount,
    order: Order,
    direction: Direction,
    /// Most of each process.
    requests: u64,
}

impl Ior {
    fn program(&self, nodes: u32, seed: u64) -> Result<Box<dyn Program>> {
        let Self { processes, request, .. } = *self;
        let in_file = FILE.0 / request.0;
        let block = ByteCount(in_file * request.0);
        let pattern = if self.order == Order::Random { "random" } else { "sequential" };
        let op = if self.direction == Direction::Read { "read" } else { "write" };
        let text = format!(
            "ior:file_per_process=yes,pattern={pattern},op={op},transfer={request},block={block},requests={},processes={processes},\
             nodes={},seed={seed}",
            self.requests.min(in_file),
            nodes.min(processes),
        );
        Ok(text.parse::<Benchmark>()?.program()?)
    }

    fn class(&self) -> AccessClass {
        AccessClass { kind: self.direction.into(), request_bytes: self.request.0, order: self.order }
    }

    /// Bytes of the whole run, of which a simulation may do the beginning.
    fn bytes(&self) -> f64 {
        f64::from(self.processes) * (FILE.0 / self.request.0 * self.request.0) as f64
    }
}

/// The stripes of a process's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stripes {
    /// PVFS2's 64 KiB. Section 6.1 says that files are striped "across all storage nodes" or "on 2" and names no size, so the file system's
    /// own; a request smaller than that is on one server whatever the layout.
    Default,
    /// Those with which each request is on all servers of its file, as table 2 has it.
    Request,
}

const DEFAULT_STRIPE: ByteCount = ByteCount(64 << 10);

/// The file of process `rank`, requests of which are `request` long: on all servers, on one, on a group. Group and first server of it rotate
/// by file, as PVFS2 spreads first servers: processes that go through their files in step would else meet on one server after the other.
fn process_layout(
    layout: ProcessLayout,
    stripes: Stripes,
    servers: u32,
    rank: u32,
    request: ByteCount,
) -> Result<Layout> {
    let width = match layout {
        ProcessLayout::OneDh => servers,
        ProcessLayout::OneDv => 1,
        ProcessLayout::TwoD { groups } => servers / groups,
    };
    let stripe_bytes = match stripes {
        Stripes::Default => DEFAULT_STRIPE.0,
        Stripes::Request => request.0.div_ceil(u64::from(width)),
    };
    let stripe_bytes = u32::try_from(stripe_bytes)?;
    let groups = servers / width;
    let (group, first) = (rank % groups, rank / groups);
    let server = |turn| ServerId((group * width + (first + turn) % width) as u16);
    Ok(Layout::new((0..width).map(|turn| (server(turn), stripe_bytes)))?)
}

fn placed(layout: Layout) -> FilePlacements {
    FilePlacements::fixed(Placement::uniform(REGION, layout.clone(), layout))
}

impl Stripes {
    const ALL: [Stripes; 2] = [Stripes::Default, Stripes::Request];

    fn name(self) -> &'static str {
        match self {
            Stripes::Default => "64KiB stripes",
            Stripes::Request => "requests on all servers",
        }
    }
}

impl Site {
    /// MB/s of the run on files laid out so.
    fn mb_per_s(&self, ior: &Ior, layout: ProcessLayout, stripes: Stripes, seed: u64) -> Result<f64> {
        let program = ior.program(self.network.nodes, seed)?;
        let files = (0..ior.processes)
            .map(|rank| Ok(placed(process_layout(layout, stripes, self.network.servers, rank, ior.request)?)))
            .collect::<Result<Vec<_>>>()?;
        Ok(self.lab.simulate_with(&files, &*program, SimOptions::default())?.mb_per_s)
    }

    /// In the order of [`LAYOUTS`].
    fn all_mb_per_s(&self, ior: &Ior, stripes: Stripes, seed: u64) -> Result<[f64; 3]> {
        let mut found = [0.0; 3];
        for (found, layout) in found.iter_mut().zip(layouts(self.network.servers)) {
            *found = self.mb_per_s(ior, layout, stripes, seed)?;
        }
        Ok(found)
    }

    /// Seconds that the model gives one request, in the order of [`LAYOUTS`].
    fn costs_s(&self, class: AccessClass, concurrency: Concurrency, form: TableForm) -> [f64; 3] {
        layouts(self.network.servers)
            .map(|layout| request_cost(&self.parameters, layout, form, class, concurrency).total_s())
    }

    /// Which of [`LAYOUTS`] the model chooses.
    fn choice(&self, ior: &Ior) -> usize {
        least(&self.costs_s(ior.class(), self.network.concurrency(ior.processes), TableForm::Corrected))
    }
}

/// Bytes and, in the order of [`LAYOUTS`], seconds; sums of runs one after the other.
#[derive(Clone, Copy, Default)]
struct Total {
    bytes: f64,
    seconds: [f64; 3],
    /// With the layout that the model chooses.
    chosen_s: f64,
    /// With the layout that is fastest, which no model can beat.
    best_s: f64,
}

impl Total {
    /// Adds what took so long under each layout.
    fn add(&mut self, bytes: f64, seconds: [f64; 3], chosen: usize) {
        self.bytes += bytes;
        for (sum, one) in self.seconds.iter_mut().zip(seconds) {
            *sum += one;
        }
        self.chosen_s += seconds[chosen];
        self.best_s += seconds[least(&seconds)];
    }

    /// MB/s of the three layouts, of the choice and of the best, in the order of [`series`].
    fn mb_per_s(&self) -> Vec<Option<f64>> {
        let seconds = self.seconds.into_iter().chain([self.chosen_s, self.best_s]);
        seconds.map(|seconds| Some(self.bytes / 1e6 / seconds)).collect()
    }
}

const CHOSEN: &str = "cost";
const BEST: &str = "best of each";

fn series() -> impl Iterator<Item = &'static str> {
    LAYOUTS.into_iter().chain([CHOSEN, BEST])
}

/// The position of the least; of equals the first.
fn least(values: &[f64]) -> usize {
    (0..values.len()).min_by(|a, b| values[*a].total_cmp(&values[*b])).unwrap_or(0)
}

fn most(values: &[f64]) -> usize {
    (0..values.len()).rev().max_by(|a, b| values[*a].total_cmp(&values[*b])).unwrap_or(0)
}

fn figure_2(setting: &Setting<'_>, requests: u64) -> Result<Findings> {
    let site = Network { servers: 4, nodes: 8, ..ETHERNET }.site()?;
    let ior = |processes, request| Ior {
        processes,
        request: ByteCount(request),
        order: Order::Sequential,
        direction: Direction::Read,
        requests,
    };
    let clients = [1, 2, 4, 8, 16, 32, 64].map(|processes| (processes.to_string(), ior(processes, 256 << 10)));
    let sizes = (12..=22).map(|exponent| (ByteCount(1 << exponent).to_string(), ior(16, 1 << exponent)));
    let parts =
        [("(a) 256KiB requests", "processes", clients.to_vec()), ("(b) 16 processes", "request size", sizes.collect())];
    let mut findings = Findings::default();
    for (title, axis, cases) in parts {
        let found = setting.map(&cases, |(_, ior)| site.all_mb_per_s(ior, Stripes::Default, setting.seed))?;
        let groups = cases.iter().zip(&found).map(|((group, _), found)| (group.clone(), found.map(Some).to_vec()));
        let panel = Panel::new(title, Unit::MbPerS, axis, LAYOUTS, groups);
        for group in &panel.groups {
            for layout in ["1-DV", "2-D"] {
                let gain = panel.gain_percent(group, layout, "1-DH").unwrap_or(f64::NAN);
                let case = format!("{title}, {group}");
                let what = format!("{layout} over 1-DH");
                findings.rows.push(Row::new(case, what, Unit::Percent, Published::NotPrinted, gain));
            }
        }
        findings.panels.push(panel);
    }
    Ok(findings)
}

#[cfg(test)]
mod tests;
