//! H2DP sections 2, 5.2 and 5.3: figures 2 and 5 to 11.
//!
//! One laboratory for all of them: the Sun Fire cluster of section 5.1, with the devices and the network that the group's papers publish.

use super::experiment::{Experiment, Findings, Panel, Published, Row, SIMULATED, Setting, Unit};
use super::lab::Lab;
use super::script::{Generated, access};
use anyhow::Result;
use stripewise_device::{lookup_device, lookup_link};
use stripewise_layout::{ByteCount, Direction};
use stripewise_planner::PolicyName;
use stripewise_sim::Migration;
use stripewise_trace::{Generator, Pattern, Program, Step, Workload};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    id: "h2dp-fig5",
    paper: "H2DP",
    place: "figure 5",
    title: "IOR bandwidth with various request sizes",
    testbeds: SIMULATED,
    setup: "IOR with Zipf-distributed requests (a = 0.8) on a shared file of 128 GiB, 32 processes on 32 nodes, 12 HServers and 4 SServers \
            with room for 1/6 of the file. All data is accessed once over on average, and halfway the popular regions change; the paper says \
            only that \"the access frequencies change at run-time\".",
    discussion: "",
    run: figure_5,
}];

const REGION: ByteCount = ByteCount(64 << 20);
const FILE: ByteCount = ByteCount(128 << 30);
const ZIPF: f64 = 0.8;
/// "We assume that SServers can accommodate 1/6 data of the tested files at most."
const SSD_SHARE: u64 = 6;
/// Those that the paper compares, and ours.
const POLICIES: [PolicyName; 4] = [PolicyName::Def, PolicyName::Padp, PolicyName::Psa, PolicyName::H2dp];
const DIRECTIONS: [Direction; 2] = [Direction::Read, Direction::Write];

/// The paper's cluster with other numbers of servers.
fn lab((hservers, sservers): (usize, usize), file: ByteCount) -> Result<Lab> {
    let (hdd, ssd, link) = (lookup_device("paper-hdd")?, lookup_device("paper-ssd")?, lookup_link("gigabit")?);
    let room = (sservers > 0).then(|| ByteCount(file.0 / SSD_SHARE / sservers as u64));
    Ok(Lab::hybrid((hservers, hdd), (sservers, ssd), link, room, REGION).with_client_link(link))
}

/// Zipf-distributed requests with the popular regions changing between phases.
struct Zipf {
    phases: Vec<Generator>,
    direction: Direction,
    ranks: u32,
}

impl Zipf {
    /// All phases together access as many bytes as the file has.
    fn once_over(direction: Direction, request: ByteCount, ranks: u32, phases: u32, seed: u64) -> Result<Self> {
        let requests_per_rank = (FILE.0 / request.0 / u64::from(ranks * phases)).max(1);
        let phase = |number| {
            let workload = Workload {
                pattern: Pattern::Zipf { exponent: ZIPF, region_size: REGION },
                file_size: FILE,
                request_size: request,
                direction,
                ranks,
                requests_per_rank,
                seed: seed + u64::from(number),
            };
            workload.generator()
        };
        Ok(Self { phases: (0..phases).map(phase).collect::<Result<_, _>>()?, direction, ranks })
    }

    fn program(&self, nodes: u32) -> Generated<'_> {
        let steps = move |process| {
            let direction = self.direction;
            self.phases.iter().enumerate().flat_map(move |(number, generator)| {
                let mark = (number > 0).then_some(Step::Phase);
                let requests = generator.requests(process);
                mark.into_iter().chain(requests.map(move |request| access(direction, request.offset.0, request.bytes)))
            })
        };
        Generated::shared(FILE.0, (self.ranks, nodes), self.phases.len() as u32, steps)
    }
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

/// Bandwidth of each policy, planned for the program and run on it.
fn bandwidths(setting: &Setting<'_>, lab: &Lab, program: &dyn Program) -> Result<Vec<Option<f64>>> {
    let files = lab.count(program);
    let one = |policy: &PolicyName| -> Result<Option<f64>> {
        let plan = lab.plan_counted(*policy, program, &files, setting.seed)?;
        Ok(Some(lab.simulate(&plan, program, Migration::Free)?.mb_per_s))
    };
    POLICIES.iter().map(one).collect()
}

fn figure_5(setting: &Setting<'_>) -> Result<Findings> {
    let sizes = [64 << 10, 256 << 10, 1 << 20, 4 << 20].map(ByteCount);
    let lab = lab((12, 4), FILE)?;
    let cases: Vec<(Direction, ByteCount)> =
        DIRECTIONS.iter().flat_map(|direction| sizes.map(|size| (*direction, size))).collect();
    let figures = setting.map(&cases, |(direction, size)| {
        let zipf = Zipf::once_over(*direction, *size, 32, 2, setting.seed)?;
        bandwidths(setting, &lab, &zipf.program(32))
    })?;
    let mut findings = Findings::default();
    for (direction, most) in DIRECTIONS.into_iter().zip([[219.0, 103.0, 49.0], [253.0, 115.0, 56.0]]) {
        let of_direction = cases.iter().zip(&figures).filter(|((found, _), _)| *found == direction);
        let groups = of_direction.map(|((_, size), figures)| (size.to_string(), figures.clone()));
        let name = direction_name(direction);
        let panel = Panel::new(format!("IOR {name}"), Unit::MbPerS, "request size", POLICIES, groups);
        for (base, published) in ["def", "padp", "psa"].into_iter().zip(most) {
            let ours = panel.most_gain_percent("h2dp", base).unwrap_or(f64::NAN);
            let what = format!("h2dp over {base}");
            findings.rows.push(Row::new(name, what, Unit::Percent, Published::UpTo(published), ours));
        }
        findings.panels.push(panel);
    }
    Ok(findings)
}
