//! Time to plan 1,600 regions, 1 million requests of 32 classes, on 12 HServers and 4 SServers. The mix of classes differs from region
//! to region, so that mean requests do too. Prints one JSON object: the median of the slowest policy of the papers, in ms, beside its
//! floor, one pass over the same counts, measured in turn with it.
//!
//! `cargo bench -p stripewise-planner --bench plan`; with `-- --papers`, the papers' policies alone; with `-- --all`, every policy on two
//! mixes too, on standard error.

use std::hint::black_box;
use std::time::Instant;
use stripewise_layout::{ByteCount, Cluster, Direction, Order, RegionIndex, Server, ServerClass, ServerUrl};
use stripewise_model::{Concurrency, Line, NetworkProfile, NetworkSource, PROFILE_VERSION, Profile, ServerProfile};
use stripewise_planner::{PlanKey, PlanOptions, PlanRequest, PolicyName, Source, Sources, compare, plan};
use stripewise_trace::{
    AccessClass, ClassIndex, Company, FileAccess, RegionAccess, Slices, Synchronizations, WindowAccess, WindowProcesses,
};

const REGIONS: u64 = 1_600;
const REQUESTS: u64 = 1_000_000;
const REPETITIONS: usize = 21;

/// The policy that takes seconds, not milliseconds.
const SLOW: PolicyName = PolicyName::ONLINE;
const SLOW_REPETITIONS: usize = 3;
const LARGE_REGIONS: u64 = 100_000;

/// The policies of the five papers.
fn of_papers() -> Vec<PolicyName> {
    PolicyName::ALL.into_iter().filter(|policy| matches!(policy.about().source, Source::Paper(_))).collect()
}

fn cluster() -> Cluster {
    cluster_for(REGIONS)
}

/// SSD space for a sixth of so many regions.
fn cluster_for(regions: u64) -> Cluster {
    let server = |class: ServerClass, index: usize| Server {
        capacity: (class == ServerClass::Ssd).then_some(ByteCount((regions << 26) / 24)),
        ..Server::new(format!("{class}{index}"), class, ServerUrl::new("file", format!("/servers/{class}{index}")))
    };
    let hdd = (0..12).map(|index| server(ServerClass::Hdd, index));
    let ssd = (0..4).map(|index| server(ServerClass::Ssd, index));
    Cluster::new("bench", "/state", ByteCount(64 << 20), hdd.chain(ssd).collect())
}

fn profile(cluster: &Cluster) -> Profile {
    let servers = cluster.servers.iter().map(|server| {
        let line = |hdd: (f64, f64), ssd: (f64, f64)| {
            let (alpha_s, beta_s_per_byte) = if server.class == ServerClass::Hdd { hdd } else { ssd };
            Line { alpha_s, beta_s_per_byte, r2: 0.99, spread: 0.05, samples: 100 }
        };
        ServerProfile {
            name: server.name.clone(),
            class: server.class,
            read_sequential: line((0.4e-3, 10e-9), (0.10e-3, 4e-9)),
            read_random: line((5.0e-3, 10e-9), (0.12e-3, 4e-9)),
            write_sequential: line((0.5e-3, 10e-9), (0.15e-3, 6e-9)),
            write_random: line((4.0e-3, 10e-9), (0.30e-3, 6e-9)),
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
        network: NetworkProfile { e_s: 1e-4, t_s_per_byte: 8.5e-9, source: NetworkSource::Given },
        caveats: Vec::new(),
    }
}

/// Eight sizes from 32 KiB to 4 MiB, read and written, in sequence and at random; every region with its own mix.
fn file(uniform: bool) -> FileAccess {
    let mut classes = Vec::new();
    for size in (0..8).map(|power| (32 << 10) << power) {
        for direction in [Direction::Read, Direction::Write] {
            for order in [Order::Sequential, Order::Random] {
                classes.push(AccessClass { kind: direction.into(), request_bytes: size, order });
            }
        }
    }
    let mut state = 42u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mean = REQUESTS / REGIONS / classes.len() as u64;
    let regions = (0..REGIONS).map(|region| {
        let counts =
            (0..classes.len()).map(|class| (ClassIndex(class as u16), if uniform { mean } else { 1 + next(2 * mean) }));
        RegionAccess {
            region: RegionIndex(region as u32),
            counts: counts.collect(),
            processes: 32,
            processes_per_node: 1,
            slices: Slices::ALL,
        }
    });
    FileAccess {
        path: "/data/file".to_owned(),
        size_bytes: REGIONS << 26,
        region_size: ByteCount(64 << 20),
        windows: vec![WindowAccess {
            start_s: 0.0,
            end_s: 600.0,
            company: Company::default(),
            processes: WindowProcesses::default(),
            synchronizations: Synchronizations::default(),
            regions: regions.collect(),
        }],
        classes,
    }
}

/// The floor: one pass over the same counts that touches each once. The bytes that all requests move.
fn bytes_moved(files: &[FileAccess]) -> u64 {
    let mut sum = 0;
    for file in files {
        for (class, count) in file.windows.iter().flat_map(|window| &window.regions).flat_map(|region| &region.counts) {
            sum += count * file.classes[usize::from(class.0)].request_bytes;
        }
    }
    sum
}

fn asked(wish: &str) -> bool {
    std::env::args().any(|argument| argument == wish)
}

fn repetitions() -> usize {
    // `cargo test --all-targets` runs this too, without the flag that `cargo bench` gives: once shows that it works.
    if asked("--bench") { REPETITIONS } else { 1 }
}

fn ms_of(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn median_ms(mut work: impl FnMut()) -> f64 {
    median((0..repetitions()).map(|_| ms_of(&mut work)).collect())
}

fn slow_ms(request: &PlanRequest<'_>) -> f64 {
    ms_of(|| drop(black_box(plan(SLOW, request).expect("the input is sound"))))
}

/// 6 TB: Zipf-like heat over regions in drawn order, two classes.
fn large_file() -> FileAccess {
    let mut state = 7u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let classes = [64 << 10, 1 << 20].map(|request_bytes| AccessClass {
        kind: Direction::Read.into(),
        request_bytes,
        order: Order::Random,
    });
    let regions = (0..LARGE_REGIONS).map(|region| {
        let heat = (1e6 / (1.0 + next(LARGE_REGIONS) as f64).powf(0.8)) as u64;
        RegionAccess {
            region: RegionIndex(region as u32),
            counts: vec![(ClassIndex(0), 1 + heat), (ClassIndex(1), 1 + next(1 + heat))],
            processes: 32,
            processes_per_node: 1,
            slices: Slices::ALL,
        }
    });
    FileAccess {
        path: "/data/large".to_owned(),
        size_bytes: LARGE_REGIONS << 26,
        region_size: ByteCount(64 << 20),
        windows: vec![WindowAccess {
            start_s: 0.0,
            end_s: 600.0,
            company: Company::default(),
            processes: WindowProcesses::default(),
            synchronizations: Synchronizations::default(),
            regions: regions.collect(),
        }],
        classes: classes.to_vec(),
    }
}

fn main() {
    let cluster = cluster();
    let profile = profile(&cluster);
    let mixes = [("own mix per region", file(false)), ("one mix", file(true))];
    let request_of = |file| PlanRequest {
        cluster: &cluster,
        profile: &profile,
        files: std::slice::from_ref(file),
        key: PlanKey::new("bench", 32),
        sources: Sources::default(),
        options: PlanOptions::default(),
        free_bytes: &[],
        promises_whole_regions: false,
        concurrency: Some(Concurrency { processes: 32, processes_per_node: 1 }),
    };
    let request = request_of(&mixes[0].1);
    // The policies in turn, so that a disturbance meets all of them.
    let papers = of_papers();
    let (mut planning, mut passing) = (vec![Vec::new(); papers.len()], Vec::new());
    for _ in 0..repetitions() {
        for (policy, times) in papers.iter().zip(&mut planning) {
            times.push(ms_of(|| drop(black_box(plan(*policy, &request).expect("the input is sound")))));
        }
        passing.push(ms_of(|| {
            black_box(bytes_moved(black_box(request.files)));
        }));
    }
    let medians: Vec<(PolicyName, f64)> = papers.into_iter().zip(planning.into_iter().map(median)).collect();
    medians.iter().for_each(|(policy, ms)| eprintln!("plan.{policy:<10} {ms:8.2} ms"));
    let slowest = medians.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let ((policy, value), floor) = (slowest.expect("there are policies"), median(passing));
    let ratio = value / floor;
    println!(
        r#"{{"name": "plan.paper.1M", "value": {value:.3}, "unit": "ms", "floor": {floor:.5}, "ratio": {ratio:.1}}}"#
    );
    eprintln!("the slowest is {policy}");
    if asked("--papers") {
        return;
    }
    let value = median((0..repetitions().min(SLOW_REPETITIONS)).map(|_| slow_ms(&request)).collect());
    println!(r#"{{"name": "plan.{SLOW}.1M", "value": {value:.1}, "unit": "ms"}}"#);
    let large = large_file();
    let (cluster, profile) = (cluster_for(LARGE_REGIONS), &profile);
    let request =
        PlanRequest { cluster: &cluster, profile, files: std::slice::from_ref(&large), ..request_of(&mixes[0].1) };
    println!(r#"{{"name": "plan.{SLOW}.100k", "value": {:.1}, "unit": "ms"}}"#, slow_ms(&request));
    if !asked("--all") {
        return;
    }
    for (name, file) in &mixes {
        let request = request_of(file);
        for policy in PolicyName::ALL {
            let ms = median_ms(|| drop(black_box(plan(policy, &request).expect("the input is sound"))));
            eprintln!("plan.{policy:<10} {name:<20} {ms:8.2} ms");
        }
        let ms = median_ms(|| drop(black_box(compare(&request, &PolicyName::ALL).expect("the input is sound"))));
        eprintln!("plan.all        {name:<20} {ms:8.2} ms");
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
        let ms = median_ms(|| alone.install(|| drop(black_box(plan(PolicyName::DEFAULT, &request)))));
        eprintln!("plan.{:<10} {:<20} {ms:8.2} ms", PolicyName::DEFAULT, format!("{name}, 1 thread"));
    }
}
