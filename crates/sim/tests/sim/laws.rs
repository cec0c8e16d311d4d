//! Laws that hold for every system, whatever is in it.

use crate::script::{REGION_BYTES, Script, access, run, servers, striped, uniform};
use proptest::prelude::*;
use stripewise_device::{DeviceModel, DiskOrder, PageCacheSpec, lookup_disk, lookup_flash, lookup_link};
use stripewise_layout::Direction;
use stripewise_sim::{Outcome, ServerDetail, SimOptions, StationOrder, System};
use stripewise_trace::Step;

const REGIONS: u64 = 8;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let request = (any::<bool>(), 0..REGIONS * REGION_BYTES - (1 << 18), 1..1u64 << 18);
    let step = prop_oneof![
        6 => request.prop_map(|(write, offset, bytes)| {
            access(if write { Direction::Write } else { Direction::Read }, offset, bytes)
        }),
        1 => (0..5_000_000u64).prop_map(|nanoseconds| Step::Think { nanoseconds }),
        1 => (0..50_000_000u64).prop_map(|nanoseconds| Step::Until { nanoseconds }),
    ];
    prop::collection::vec(step, 1..20)
}

fn detail(system: &System, kind: u8) -> Vec<ServerDetail> {
    let cache = (kind >= 2).then(|| PageCacheSpec::linux(1 << 20));
    let detail = |name: &str| {
        let device = match name {
            "hdd-7200" => DeviceModel::Disk { spec: lookup_disk(name).unwrap(), order: DiskOrder::ShortestPositioning },
            _ => DeviceModel::Flash { spec: lookup_flash(name).unwrap() },
        };
        ServerDetail {
            device: if kind % 2 == 1 { device } else { DeviceModel::Mean },
            cache,
            ..ServerDetail::default()
        }
    };
    if kind == 0 { Vec::new() } else { system.servers.iter().map(|server| detail(&server.name)).collect() }
}

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-9 * left.abs().max(right.abs()) + 1e-9
}

fn check(outcome: &Outcome, program: &Script, system: &System, slice_s: f64) -> Result<(), TestCaseError> {
    let requests = || {
        program.steps.iter().flatten().filter_map(|step| match step {
            Step::Access(request) => Some(request),
            _ => None,
        })
    };
    let count = requests().count() as u64;
    let bytes: u64 = requests().map(|request| request.bytes).sum();
    prop_assert_eq!(outcome.read.requests + outcome.write.requests, count);
    prop_assert_eq!(outcome.read.bytes + outcome.write.bytes, bytes);
    prop_assert_eq!(outcome.servers.iter().map(|server| server.bytes).sum::<u64>(), bytes);
    // Little: mean number on their way = rate x mean time, and so in sums.
    let spent_s = outcome.latency.mean_s * count as f64;
    prop_assert!(near(outcome.in_flight * outcome.time_s, spent_s), "{} {spent_s}", outcome.in_flight * outcome.time_s);
    for (server, model) in outcome.servers.iter().zip(&system.servers) {
        // Utilisation: busy time = demand of all that passed.
        let link = model.link.unwrap();
        let demand_s = server.sub_requests as f64 * link.message_s + server.bytes as f64 * link.transfer_s_per_byte;
        prop_assert!((server.link_busy_s - demand_s).abs() <= server.sub_requests as f64 * 1e-9, "{demand_s}");
        prop_assert!(server.link_busy_s <= outcome.time_s * (1.0 + 1e-9));
    }
    let sum = |of: fn(&stripewise_sim::TimeSlice) -> u64| outcome.timeline.iter().map(of).sum::<u64>();
    prop_assert_eq!(sum(|slice| slice.read_bytes), outcome.read.bytes);
    prop_assert_eq!(sum(|slice| slice.write_bytes), outcome.write.bytes);
    prop_assert!(outcome.timeline.len() as f64 >= (outcome.time_s / slice_s).floor().min(256.0));
    prop_assert!(outcome.latency.p50_s <= outcome.latency.p99_s && outcome.latency.p99_s <= outcome.latency.max_s);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn every_system_obeys_the_operational_laws_and_repeats_itself(
        names in prop::collection::vec(prop::sample::select(vec!["hdd-7200", "sata-ssd-2012"]), 1..5),
        stripe_kib in 1u32..300,
        steps in prop::collection::vec(steps(), 1..7),
        kind in 0u8..4,
        (device_first, client_link, nodes) in (any::<bool>(), any::<bool>(), 1u32..3),
    ) {
        let mut system = servers(&names, Some("gigabit"));
        system.client_link = client_link.then(|| lookup_link("infiniband").unwrap());
        let mut program = Script::new(REGIONS, steps);
        program.nodes = nodes.min(program.steps.len() as u32);
        let slice_s = 0.01;
        let options = SimOptions {
            slice_s,
            order: if device_first { StationOrder::DeviceFirst } else { StationOrder::Network },
            detail: detail(&system, kind),
            ..SimOptions::default()
        };
        let files = uniform(striped(0..names.len() as u16, stripe_kib << 10));
        let outcome = run(&system, &program, &files, options.clone());
        check(&outcome, &program, &system, slice_s)?;
        prop_assert_eq!(&outcome, &run(&system, &program, &files, options));
    }
}

#[test]
fn barriers_hold_until_all_have_come_or_ended() {
    let pause = |ms: u64| Step::Think { nanoseconds: ms * 1_000_000 };
    let program = Script::new(
        8,
        vec![
            vec![pause(1), Step::Barrier, pause(10), Step::Phase, pause(1)],
            vec![pause(5), Step::Barrier, pause(2), Step::Phase, pause(4)],
            vec![pause(3), Step::Barrier],
        ],
    );
    let outcome = run(&servers(&["nvme"], None), &program, &uniform(striped([0], 4096)), SimOptions::default());
    let phases: Vec<(f64, f64)> = outcome.phases.iter().map(|phase| (phase.start_s, phase.end_s)).collect();
    assert_eq!(phases, [(0.0, 0.015), (0.015, 0.019)]);
}
