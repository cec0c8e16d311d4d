//! Replicas of `cost`: within their budget, and worth what a loop over all copies and requests says.

use crate::testbed::{self, KIB, MIB, has_requests};
use proptest::prelude::*;
use stripewise_layout::{ByteCount, Direction, Order, RegionIndex, figures};
use stripewise_model::Concurrency;
use stripewise_planner::{Plan, PolicyName, RequestError, plan};

/// Bytes of all replicas of a plan, and how many times each region of the first file is replicated.
fn replicated(plan: &Plan, file_bytes: &[u64], region_bytes: u64) -> (u64, Vec<usize>) {
    let mut sum = 0;
    let mut times = Vec::new();
    for (file, size) in plan.files.iter().zip(file_bytes) {
        let regions = file.initial().planned_regions() as u32;
        let mut of_file = vec![0; regions as usize];
        for replica in &file.windows[0].replicas {
            for region in replica.first.0..replica.first.0 + replica.regions {
                of_file[region as usize] += 1;
                let left = size.saturating_sub(u64::from(region) * region_bytes);
                sum += if left == 0 { region_bytes } else { left.min(region_bytes) };
            }
        }
        times.extend(of_file);
    }
    (sum, times)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn replicas_keep_to_the_budget_and_the_servers_room(
        (m, n) in (1usize..6, 0usize..3), files in testbed::files(MIB, 2).prop_filter("requests", |files| has_requests(files)),
        hdd in testbed::lines(), ssd in testbed::lines(), budget in 0..20 * MIB, hdd_capacity in 8 * MIB..64 * MIB,
    ) {
        let mut cluster = testbed::cluster(m, n, MIB, Some(MIB));
        cluster.servers[..m].iter_mut().for_each(|server| server.capacity = Some(ByteCount(hdd_capacity)));
        let profile = testbed::profile(&cluster, hdd, ssd, 1e-4, 8e-9);
        let mut request = testbed::request(&cluster, &profile, &files);
        request.concurrency = None;
        let bare = match plan(PolicyName::Cost, &request) {
            Err(RequestError::Capacity { needed, capacity }) => {
                prop_assert!(needed > capacity);
                return Ok(());
            }
            bare => bare.unwrap(),
        };
        request.options.replica_room = Some(ByteCount(budget));
        let made = plan(PolicyName::Cost, &request).unwrap();
        let sizes: Vec<u64> = files.iter().map(|file| file.size_bytes).collect();
        let (bytes, _) = replicated(&made, &sizes, MIB);
        prop_assert!(bytes <= budget);
        prop_assert_eq!(bytes > 0, made.notes.iter().any(|note| note.starts_with(&format!("replicas take {} more;", figures::bytes(bytes)))));
        for (server, without) in made.servers.iter().zip(&bare.servers) {
            prop_assert!(server.used_bytes >= without.used_bytes);
            let overfull = server.room_bytes.is_some_and(|capacity| server.used_bytes > capacity);
            prop_assert!(!overfull || server.used_bytes == without.used_bytes, "{} took replicas past its room", server.name);
        }
        for (file, without) in made.files.iter().zip(&bare.files) {
            prop_assert_eq!(&file.windows[0].placement, &without.windows[0].placement);
            for replica in &file.windows[0].replicas {
                for region in replica.first.0..replica.first.0 + replica.regions {
                    prop_assert_ne!(&replica.layout, file.windows[0].placement.layout_of(RegionIndex(region)));
                }
            }
        }
    }
}

#[test]
fn mixed_requests_get_a_copy_for_each_size_while_the_budget_lasts() {
    // Large requests of few processes want all servers, small ones one: two windows with 1 and 64 processes.
    let cluster = testbed::cluster(8, 0, MIB, None);
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let small = testbed::class(Direction::Read, 16 * KIB, Order::Random);
    let large = testbed::class(Direction::Read, MIB, Order::Sequential);
    let counts: Vec<&[u64]> = vec![&[90, 9], &[10, 9], &[50, 9], &[90, 0]];
    let files = [testbed::file("/data/a", 4 * MIB, MIB, &[small, large], &counts)];
    let made = |budget: u64| {
        let mut request = testbed::request(&cluster, &profile, &files);
        request.concurrency = Some(Concurrency { processes: 2, processes_per_node: 1 });
        request.options.replica_room = Some(ByteCount(budget));
        plan(PolicyName::Cost, &request).unwrap()
    };
    let times = |budget| replicated(&made(budget), &[4 * MIB], MIB).1;
    assert_eq!(times(0), [0; 4]);
    // The region with the most to gain comes first; what a third layout gains is less than what a second one does elsewhere.
    let first = times(MIB);
    assert_eq!(first.iter().sum::<usize>(), 1);
    let second = times(2 * MIB);
    assert_eq!(second.iter().sum::<usize>(), 2);
    assert!(second.iter().zip(&first).all(|(more, less)| more >= less));
    // Without bounds every request finds its cheapest layout, and a region with one size of request needs at most one more copy.
    let all = times(1 << 40);
    assert!(all[3] <= 1 && all[..3].iter().all(|copies| *copies >= 1), "{all:?}");
}
