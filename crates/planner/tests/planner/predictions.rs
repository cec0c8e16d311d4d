//! What is predicted of servers and streams.

use crate::testbed::{self, KIB, MIB};
use stripewise_layout::{ByteCount, Direction, Layout, Order, Placement, ServerId};
use stripewise_model::Concurrency;
use stripewise_planner::{Gain, MODEL_SPREAD, Plan, PolicyName, Prediction, plan, predict};
use stripewise_trace::FileAccess;

const REGION_BYTES: u64 = 64 * MIB;
const DISKS: u16 = 16;

/// As many requests of 64 KiB to each of so many regions as it has places.
fn access(regions: usize, order: Order) -> FileAccess {
    let read = testbed::class(Direction::Read, 64 * KIB, order);
    let counts = vec![&[1024u64][..]; regions];
    testbed::file("/data/a", regions as u64 * REGION_BYTES, REGION_BYTES, &[read], &counts)
}

fn predicted(access: &FileAccess, stripe_bytes: u64, processes: u32) -> Prediction {
    let cluster = testbed::cluster(usize::from(DISKS), 0, REGION_BYTES, None);
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let layout = Layout::new((0..DISKS).map(|server| (ServerId(server), stripe_bytes as u32))).unwrap();
    let placement = Placement::uniform(ByteCount(REGION_BYTES), layout.clone(), layout);
    predict(&placement, access, &profile, None, Concurrency { processes, processes_per_node: 1 })
}

/// Sixteen offsets 4 MiB apart lie 32 KiB apart in a cycle of 4,128 KiB: sampled there, two servers had twice the load of all others and the
/// prediction was half of what was simulated.
#[test]
fn loads_do_not_depend_on_where_sampled_offsets_lie_in_the_cycle() {
    let access = access(16, Order::Random);
    let aliased = predicted(&access, 258 * KIB, 32);
    let mean_s = aliased.server_load_s.iter().sum::<f64>() / f64::from(DISKS);
    for (server, load_s) in aliased.server_load_s.iter().enumerate() {
        assert!((load_s / mean_s - 1.0).abs() < 0.07, "server {server}: {load_s} s, {mean_s} s on average");
    }
    // With 256 KiB all samples lie alike; longer stripes cut one request in a few more.
    let plain = predicted(&access, 256 * KIB, 32);
    let ratio = aliased.total.mb_per_s / plain.total.mb_per_s;
    assert!((0.75..1.02).contains(&ratio), "{ratio}");
}

/// Every process in regions of its own: no region knows of another process, but the disks serve the streams of all of them.
#[test]
fn streams_meet_on_disks_wherever_in_the_file_their_processes_are() {
    let mut access = access(32, Order::Sequential);
    access.windows[0].regions.iter_mut().for_each(|region| region.processes = 1);
    let random_mb_s = f64::from(DISKS) * (64 * KIB) as f64 / testbed::DISK[1].0 / 1e6;
    let mb_s = |processes| predicted(&access, 64 * KIB, processes).total.mb_per_s;
    // Eight streams are followed; of 32 that meet on every disk none is.
    assert!(mb_s(8) > random_mb_s, "{} of {random_mb_s} MB/s", mb_s(8));
    assert!(mb_s(32) < random_mb_s, "{} of {random_mb_s} MB/s", mb_s(32));
}

/// As many regions, each asked for once or a thousand times.
#[test]
fn few_requests_are_predicted_with_a_wider_range_than_many() {
    let spread = |requests: u64| {
        let read = testbed::class(Direction::Read, 64 * KIB, Order::Random);
        let access = testbed::file("/data/a", REGION_BYTES, REGION_BYTES, &[read], &[&[requests]]);
        predicted(&access, 64 * KIB, 4).total.spread
    };
    let spreads = [1, 16, 2000, 1 << 40].map(spread);
    assert!(spreads.windows(2).all(|pair| pair[0] > pair[1]), "{spreads:?}");
    assert!(spreads[0] > 1.0 && (0.27..0.3).contains(&spreads[1]), "{spreads:?}");
    assert!(spreads[3] > MODEL_SPREAD, "the model is wrong however many requests there are: {spreads:?}");
}

#[test]
fn a_line_of_few_samples_is_trusted_less() {
    let spread = |samples: u32| {
        let cluster = testbed::cluster(usize::from(DISKS), 0, REGION_BYTES, None);
        let mut profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
        profile.servers.iter_mut().for_each(|server| server.read_random.samples = samples);
        let layout = Layout::new((0..DISKS).map(|server| (ServerId(server), 64 * KIB as u32))).unwrap();
        let placement = Placement::uniform(ByteCount(REGION_BYTES), layout.clone(), layout);
        let alone = Concurrency { processes: 4, processes_per_node: 1 };
        predict(&placement, &access(4, Order::Random), &profile, None, alone).total.spread
    };
    assert!(spread(3) > spread(10) && spread(10) > spread(1000), "{} {} {}", spread(3), spread(10), spread(1000));
    // A line that was given rather than measured.
    assert_eq!(spread(0), spread(2));
}

/// Lines without any deviation, and a plan as former versions wrote it: neither is a prediction that cannot be wrong.
#[test]
fn no_prediction_is_without_a_range() {
    let cluster = testbed::cluster(2, 2, REGION_BYTES, None);
    let mut profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 0.0, 0.0);
    for server in &mut profile.servers {
        for line in [
            &mut server.read_sequential,
            &mut server.read_random,
            &mut server.write_sequential,
            &mut server.write_random,
        ] {
            line.spread = 0.0;
        }
    }
    let files = [access(4, Order::Random)];
    let made = plan(PolicyName::Opt, &testbed::request(&cluster, &profile, &files)).unwrap();
    let is_range = |gain: Gain| gain.low < gain.expected && gain.expected < gain.high;
    assert!(is_range(made.gain.total) && is_range(made.gain.read.unwrap()), "{:?}", made.gain);
    assert!(made.predicted.total.spread >= MODEL_SPREAD && made.verdict.spread >= MODEL_SPREAD);
    let mut former: serde_json::Value = serde_json::from_str(&made.to_json()).unwrap();
    for of in ["predicted", "default"] {
        for part in ["read", "total"] {
            former[of][part]["spread"] = 0.0.into();
        }
    }
    for part in ["read", "total"] {
        let expected = former["gain"][part]["expected"].clone();
        (former["gain"][part]["low"], former["gain"][part]["high"]) = (expected.clone(), expected);
    }
    former["verdict"].as_object_mut().unwrap().remove("spread");
    let read = Plan::parse(&former.to_string(), std::path::Path::new("plan.json")).unwrap();
    assert!(is_range(read.gain.total) && is_range(read.gain.read.unwrap()), "{:?}", read.gain);
    assert_eq!((read.gain.total.expected, read.verdict.spread), (made.gain.total.expected, MODEL_SPREAD));
    let text = read.gain.total.to_string();
    let (low, high) = text.split_once('(').unwrap().1.split_once(" .. ").unwrap();
    assert_ne!(low, high.trim_end_matches(')'), "{text}");
    // What lies as `def` does differs from it by nothing, and says so.
    let def = plan(PolicyName::Def, &testbed::request(&cluster, &profile, &files)).unwrap();
    assert_eq!((def.gain.total.is_none(), def.gain.total.to_string()), (true, "none".to_owned()));
}
