//! The same requests from one host and from several: what m of Cost-intelligent, the processes of a client node, changes.

use crate::testbed::{KIB, MIB, cluster, profile, request};
use stripewise_layout::{ByteCount, Direction, Order};
use stripewise_model::cost_intelligent::{ProcessLayout, TableForm, request_cost};
use stripewise_model::{Concurrency, UniformParameters};
use stripewise_planner::{PlanRequest, PolicyName, plan};
use stripewise_trace::{
    AccessClass, CountOptions, FileAccess, Pattern, Trace, TraceShape, Workload, count, write_trace,
};

const SERVERS: u32 = 8;
const PROCESSES: u32 = 4;
const REQUEST_BYTES: u64 = 512 * KIB;
/// A transfer of a request from a server takes four times as long as a connection.
const E_S: f64 = 1.05e-3;
const LINE: (f64, f64) = (1e-3, 8e-9);

/// Four processes read a file, whose trace has so many nodes.
fn accesses(nodes: u32) -> Vec<FileAccess> {
    let workload = Workload {
        pattern: Pattern::Zipf { exponent: 0.0, region_size: ByteCount(MIB) },
        file_size: ByteCount(64 * MIB),
        request_size: ByteCount(REQUEST_BYTES),
        direction: Direction::Read,
        ranks: PROCESSES,
        requests_per_rank: 64,
        seed: 5,
    };
    let directory = tempfile::tempdir().unwrap();
    write_trace(&workload.generator().unwrap(), &TraceShape { nodes, ..TraceShape::default() }, directory.path())
        .unwrap();
    let options = CountOptions { region_size: ByteCount(MIB), ..CountOptions::default() };
    count(&Trace::open(directory.path()).unwrap(), &options).unwrap()
}

/// With all processes on one node its link takes m connections in turn, so a request goes to one server; with one on each node a second connection costs less
/// than it saves.
#[test]
fn requests_of_several_hosts_are_spread_over_more_servers_than_those_of_one() {
    let cluster = cluster(SERVERS as usize, 0, MIB, None);
    let profile = profile(&cluster, [LINE; 4], [LINE; 4], E_S, 0.0);
    let stripe_of = |nodes: u32| {
        let files = accesses(nodes);
        let request = PlanRequest { concurrency: None, ..request(&cluster, &profile, &files) };
        let expected = Concurrency { processes: PROCESSES, processes_per_node: PROCESSES / nodes };
        assert_eq!(request.concurrency(), expected);
        let plan = plan(PolicyName::Cost, &request).unwrap();
        assert_eq!(plan.concurrency, expected, "what was planned for is in the plan");
        let layout = plan.files[0].windows[0].placement.layout_of(stripewise_layout::RegionIndex(0)).clone();
        layout.stripes()[0].size_bytes
    };
    assert_eq!((stripe_of(1), stripe_of(4)), (REQUEST_BYTES as u32, REQUEST_BYTES as u32 / 2));

    // The difference is that of table 2: m connections in turn, each of the g servers of a group its own.
    let parameters = UniformParameters::of_servers(&profile, |_| true);
    let class = AccessClass { kind: Direction::Read.into(), request_bytes: REQUEST_BYTES, order: Order::Random };
    let cost_s = |layout, processes_per_node| {
        let concurrency = Concurrency { processes: PROCESSES, processes_per_node };
        request_cost(&parameters, layout, TableForm::Corrected, class, concurrency).total().0 as f64 * 1e-12
    };
    for (layout, connections) in [(ProcessLayout::OneDv, 1.0), (ProcessLayout::TwoD { groups: 4 }, 2.0)] {
        let saved_s = cost_s(layout, 4) - cost_s(layout, 1);
        assert!((saved_s - 3.0 * connections * E_S).abs() < 1e-6, "{layout:?}: {saved_s}");
    }
}
