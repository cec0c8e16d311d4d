use super::*;
use crate::policy::Task;
use crate::policy::fixtures::{REGION_BYTES, cluster, file, profile};
use crate::{PlanKey, PlanOptions, PlanRequest, PolicyName, Sources};
use proptest::prelude::*;
use stripewise_model::Concurrency;

/// What `then` makes of the block of one file and of the plan by `start`.
fn with_block<T>(
    servers: (usize, usize, u64),
    requests: &[u64],
    start: PolicyName,
    then: impl FnOnce(&Block<'_>, Candidate) -> T,
) -> T {
    let cluster = cluster(servers.0, servers.1, servers.2);
    let (profile, files) = (profile(&cluster), [file(requests, 16)]);
    let request = PlanRequest {
        cluster: &cluster,
        profile: &profile,
        files: &files,
        key: PlanKey::new("polishing", 16),
        sources: Sources::default(),
        options: PlanOptions::default(),
        free_bytes: &[],
        promises_whole_regions: false,
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
