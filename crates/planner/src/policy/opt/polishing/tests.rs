use super::*;
use crate::policy::Task;
use crate::{PlanKey, PlanOptions, PlanRequest, PolicyName, Sources};
use proptest::prelude::*;
use stripewise_layout::{ByteCount, Cluster, Direction, Order, RegionIndex, Server, ServerClass, ServerUrl};
use stripewise_model::{Concurrency, Line, NetworkProfile, NetworkSource, PROFILE_VERSION, Profile, ServerProfile};
use stripewise_trace::{
    AccessClass, ClassIndex, Company, FileAccess, RegionAccess, Slices, WindowAccess, WindowProcesses,
};

const REGION_BYTES: u64 = 1 << 20;

fn cluster(hservers: usize, sservers: usize, ssd_regions: u64) -> Cluster {
    let server = |class: ServerClass, index: usize| Server {
        capacity: (class == ServerClass::Ssd).then_some(ByteCount(ssd_regions * REGION_BYTES)),
        ..Server::new(format!("{class}{index}"), class, ServerUrl::new("file", format!("/servers/{class}{index}")))
    };
    let hdd = (0..hservers).map(|index| server(ServerClass::Hdd, index));
    let ssd = (0..sservers).map(|index| server(ServerClass::Ssd, index));
    Cluster::new("polishing", "/state", ByteCount(REGION_BYTES), hdd.chain(ssd).collect())
}

fn profile(cluster: &Cluster) -> Profile {
    let servers = cluster.servers.iter().map(|server| {
        let alpha_s = if server.class == ServerClass::Hdd { 5e-3 } else { 1e-4 };
        let line = || Line { alpha_s, beta_s_per_byte: 8e-9, r2: 1.0, spread: 0.0, samples: 100 };
        ServerProfile {
            name: server.name.clone(),
            class: server.class,
            read_sequential: line(),
            read_random: line(),
            write_sequential: line(),
            write_random: line(),
            buffered_write: None,
            synchronous_write: None,
            flush_wait: None,
        }
    });
    Profile {
        version: PROFILE_VERSION,
        cluster: cluster.id.clone(),
        emulated: false,
        measured_at: String::new(),
        servers: servers.collect(),
        network: NetworkProfile { e_s: 1e-4, t_s_per_byte: 8e-9, source: NetworkSource::Given },
        caveats: Vec::new(),
    }
}

/// Reads of 64 KiB, so many of each region.
fn file(requests: &[u64]) -> FileAccess {
    let regions = requests.iter().enumerate().filter(|(_, count)| **count > 0).map(|(region, count)| RegionAccess {
        region: RegionIndex(region as u32),
        counts: vec![(ClassIndex(0), *count)],
        processes: 16,
        processes_per_node: 1,
        slices: Slices::ALL,
    });
    FileAccess {
        path: "/data/a".to_owned(),
        size_bytes: requests.len() as u64 * REGION_BYTES,
        region_size: ByteCount(REGION_BYTES),
        classes: vec![AccessClass { kind: Direction::Read.into(), request_bytes: 64 << 10, order: Order::Random }],
        windows: vec![WindowAccess {
            start_s: 0.0,
            end_s: 600.0,
            company: Company::default(),
            processes: WindowProcesses::default(),
            regions: regions.collect(),
        }],
    }
}

/// What `then` makes of the block of one file and of the plan by `start`.
fn with_block<T>(
    servers: (usize, usize, u64),
    requests: &[u64],
    start: PolicyName,
    then: impl FnOnce(&Block<'_>, Candidate) -> T,
) -> T {
    let cluster = cluster(servers.0, servers.1, servers.2);
    let (profile, files) = (profile(&cluster), [file(requests)]);
    let request = PlanRequest {
        cluster: &cluster,
        profile: &profile,
        files: &files,
        key: PlanKey::new("polishing", 16),
        sources: Sources::default(),
        options: PlanOptions::default(),
        free_bytes: &[],
        concurrency: Some(Concurrency { processes: 16, processes_per_node: 1 }),
    };
    let capacity = request.capacity();
    let task = Task::new(&request, &capacity);
    let block = Block::new(&task, 0..1, &[], None, None);
    let choices = task.choose(start);
    let start = Candidate { time_s: block.time_s(&choices), choices };
    then(&block, start)
}

fn unseen_s(block: &Block<'_>, choices: &[FileChoice]) -> f64 {
    UNSEEN_RUNS.map(|run| block.time_of_run_s(&block.other_run(run), choices)).sum()
}

fn used_bytes(block: &Block<'_>, choices: &[FileChoice]) -> Vec<u64> {
    let polisher = Polisher::new(block);
    let mut filling = Filling::empty(block.task.groups.count);
    for (part, layout) in polisher.parts.iter().zip(polisher.layouts(choices)) {
        polisher.scene.book(&layout, part.item, &mut filling);
    }
    filling.used_bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn polished_plans_are_never_slower_fit_the_ssds_and_repeat_themselves(
        requests in proptest::collection::vec(0u64..200, 4..20), ssd_regions in 0u64..6,
        start in prop_oneof![Just(PolicyName::Def), Just(PolicyName::H2dp), Just(PolicyName::Segment)],
    ) {
        prop_assume!(requests.iter().any(|count| *count > 0));
        with_block((3, 2, ssd_regions), &requests, start, |block, start| {
            let budget = Budget::new(None);
            let polished = polish(block, start.clone(), &budget);
            prop_assert!(unseen_s(block, &polished.choices) <= unseen_s(block, &start.choices));
            prop_assert_eq!(polished.time_s, block.time_s(&polished.choices));
            prop_assert!(used_bytes(block, &polished.choices)[3..].iter().all(|used| *used <= ssd_regions * REGION_BYTES));
            let again = polish(block, start, &budget);
            prop_assert_eq!(again.choices, polished.choices);
            Ok(())
        })?;
    }
}

/// Everything on two disks; the SSD has space for two regions.
#[test]
fn of_few_regions_the_best_placement_of_all_is_found() {
    let requests = [40, 900, 30, 1000, 50];
    with_block((2, 1, 2), &requests, PolicyName::Def, |block, _| {
        let polisher = Polisher::new(block);
        let whole = |server: u16| Layout::new([(ServerId(server), REGION_BYTES as u32)]).unwrap();
        let of_number = |number: usize| -> Vec<Layout> {
            (0..requests.len()).map(|part| whole((number / 3usize.pow(part as u32) % 3) as u16)).collect()
        };
        let all = (0..3usize.pow(requests.len() as u32)).map(of_number);
        let fitting = all.filter(|layouts| layouts.iter().filter(|layout| **layout == whole(2)).count() <= 2);
        let least_s = fitting.map(|layouts| unseen_s(block, &polisher.choices(&layouts))).fold(f64::INFINITY, f64::min);
        let choices = polisher.choices(&vec![whole(0); requests.len()]);
        let start = Candidate { time_s: block.time_s(&choices), choices };
        let polished = polish(block, start, &Budget::new(None));
        let found_s = unseen_s(block, &polished.choices);
        assert!(found_s <= least_s * (1.0 + MIN_UNSEEN_GAIN), "{found_s} found, {least_s} possible");
    });
}

#[test]
fn without_time_left_nothing_is_polished() {
    with_block((2, 1, 2), &[10, 400, 20], PolicyName::Def, |block, start| {
        let polished = polish(block, start.clone(), &Budget::new(Some(0.0)));
        assert_eq!(polished.choices, start.choices);
    });
}
