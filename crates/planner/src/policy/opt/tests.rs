//! The program, its bound and its rounding against enumeration of everything.

use super::budget::Budget;
use super::closed_loop::{Drawn, Sample};
use super::dealing::Dealer;
use super::demand::{Demands, SeenClass};
use super::dual::{Aim, reference_s, relax};
use super::kinds::Kind;
use super::paths::Prices;
use super::program::{Assignment, Item, Program};
use super::rounding::round;
use super::shapes::shapes;
use super::side_by_side::Part;
use proptest::prelude::*;
use stripewise_layout::{Direction, Layout, Order, ServerClass, ServerId};
use stripewise_model::{Line, NetworkProfile, NetworkSource, PROFILE_VERSION, Profile, ServerProfile};
use stripewise_trace::{AccessClass, Company};

const REGION_BYTES: u64 = 1 << 20;

fn profile(alphas_s: &[f64]) -> Profile {
    let server = |(number, alpha_s): (usize, &f64)| {
        let line =
            |factor: f64| Line { alpha_s: alpha_s * factor, beta_s_per_byte: 8e-9, r2: 1.0, spread: 0.0, samples: 9 };
        ServerProfile {
            name: format!("server{number}"),
            class: ServerClass::Hdd,
            read_sequential: line(0.1),
            read_random: line(1.0),
            write_sequential: line(0.2),
            write_random: line(1.5),
            buffered_write: None,
            synchronous_write: None,
            flush_wait: None,
        }
    };
    Profile {
        version: PROFILE_VERSION,
        cluster: "c".to_owned(),
        emulated: false,
        measured_at: String::new(),
        servers: alphas_s.iter().enumerate().map(server).collect(),
        network: NetworkProfile { e_s: 1e-4, t_s_per_byte: 8e-9, source: NetworkSource::Given },
        caveats: Vec::new(),
    }
}

/// Two disks and one SSD with space for `capacity` regions; `counts` by item and window, of requests of 64 KiB and of 256 KiB.
fn program(counts: &[Vec<[u64; 2]>], capacity: u64, processes: f64, same_region: f64) -> Program {
    program_of_sizes([64 << 10, 256 << 10], counts, capacity, processes, same_region)
}

fn program_of_sizes(
    sizes: [u64; 2],
    counts: &[Vec<[u64; 2]>],
    capacity: u64,
    processes: f64,
    same_region: f64,
) -> Program {
    let profile = profile(&[5e-3, 5e-3, 1e-4]);
    let kinds = vec![
        Kind { class: ServerClass::Hdd, servers: vec![0, 1], room_bytes: None },
        Kind { class: ServerClass::Ssd, servers: vec![2], room_bytes: Some(capacity * REGION_BYTES) },
    ];
    let classes =
        sizes.map(|request_bytes| AccessClass { kind: Direction::Read.into(), request_bytes, order: Order::Random });
    let windows = counts[0].len();
    let items = counts.iter().enumerate().map(|(region, counts)| Item {
        file: 0,
        regions: vec![region as u32],
        region_bytes: REGION_BYTES,
        counts: counts
            .iter()
            .map(|of| of.iter().enumerate().filter(|(_, n)| **n > 0).map(|(c, n)| (c as u16, *n as f64)).collect())
            .collect(),
        shares: vec![1.0; windows],
        same_region: vec![same_region; windows],
        before: None,
    });
    let weighted: Vec<(AccessClass, f64)> = classes.iter().map(|class| (*class, 1.0)).collect();
    let shapes = shapes(&kinds, 3, &weighted, std::iter::empty(), 4096, REGION_BYTES, false);
    let seen: Vec<SeenClass> =
        classes.iter().map(|class| SeenClass { class: *class, part: Part::All, continuing: 0.0 }).collect();
    let demands =
        Demands::new(&profile, &kinds, &shapes, &vec![seen; windows], &vec![processes; windows], REGION_BYTES);
    Program::new(&profile, kinds, shapes, items.collect(), &demands, (0..windows).collect())
}

fn fits(program: &Program, sum: &Assignment) -> bool {
    let kinds = program.kinds.len();
    sum.room_bytes
        .iter()
        .enumerate()
        .all(|(at, used)| program.kinds[at % kinds].room_bytes.is_none_or(|capacity| *used <= capacity as f64 + 1e-3))
}

/// Every combination of options of every item in every window that fits, and the least time.
fn smallest_of_all(program: &Program, aim: &Aim) -> f64 {
    let places = program.items.len() * program.windows;
    let options: Vec<u16> = (0..places).map(|at| program.options(at / program.windows) as u16).collect();
    let mut chosen = vec![0u16; places];
    let mut least_s = f64::INFINITY;
    loop {
        let sum = program.sum(chosen.clone());
        if fits(program, &sum) {
            least_s = least_s.min(aim.seconds(program, &sum));
        }
        let Some(at) = (0..places).find(|at| chosen[*at] + 1 < options[*at]) else { return least_s };
        chosen[..at].fill(0);
        chosen[at] += 1;
    }
}

fn counts(windows: usize, items: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Vec<Vec<[u64; 2]>>> {
    let of_window = prop_oneof![3 => (0u64..40, 0u64..12).prop_map(|(a, b)| [a, b]), 1 => Just([0, 0])];
    proptest::collection::vec(proptest::collection::vec(of_window, windows), items)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_rounded_optimum_of_one_window_is_that_of_all_combinations(
        counts in counts(1, 1..=3), capacity in 0u64..3, processes in 1u32..40, same_region in prop_oneof![Just(0.0), 0.0..1.0f64],
    ) {
        let program = program(&counts, capacity, f64::from(processes), same_region);
        prop_assume!((0..program.items.len()).map(|item| program.options(item)).product::<usize>() < 20_000);
        let aim = Aim::plain(&program);
        let relaxed = relax(&program, &aim, reference_s(&program), None, &Budget::new(None));
        let found = round(&program, &aim, &relaxed);
        let (found_s, least_s) = (aim.seconds(&program, &found), smallest_of_all(&program, &aim));
        prop_assert!(fits(&program, &found));
        prop_assert!((found_s - least_s).abs() <= 1e-6 * least_s.max(1e-12), "{found_s} found, {least_s} possible");
        prop_assert!(relaxed.bound_s <= least_s * (1.0 + 1e-6), "bound {} above {least_s}", relaxed.bound_s);
    }

    /// With moves between windows the rounding is no enumeration any more, but the bound must hold.
    #[test]
    fn no_combination_with_moves_beats_the_bound_and_the_rounding_fits(
        counts in counts(2, 1..=2), capacity in 0u64..2, processes in 1u32..40,
    ) {
        let program = program(&counts, capacity, f64::from(processes), 0.0);
        let all: usize = (0..program.items.len()).map(|item| program.options(item).pow(2)).product();
        prop_assume!(all < 40_000);
        let aim = Aim::plain(&program);
        let relaxed = relax(&program, &aim, reference_s(&program), None, &Budget::new(None));
        let found = round(&program, &aim, &relaxed);
        let least_s = smallest_of_all(&program, &aim);
        prop_assert!(fits(&program, &found));
        prop_assert!(relaxed.bound_s <= least_s * (1.0 + 1e-6), "bound {} above {least_s}", relaxed.bound_s);
        prop_assert!(aim.seconds(&program, &found) >= least_s * (1.0 - 1e-6));
    }

    #[test]
    fn the_best_path_is_the_cheapest_of_all_paths(
        counts in counts(3, 1..=1), rows in proptest::collection::vec(0.0..1.0f64, 15), capacity in proptest::collection::vec(0.0..1e-8f64, 6),
        haste in 0.0..1.0f64,
    ) {
        let program = program(&counts, 1, 8.0, 0.0);
        let prices = Prices { rows, capacity, haste };
        let options = program.options(0) as u16;
        let (cost_s, path) = program.best_path(0, &prices, &vec![true; program.shapes.len()]);
        let mut least_s = f64::INFINITY;
        for number in 0..usize::from(options).pow(3) {
            let digits = [number, number / usize::from(options), number / usize::from(options).pow(2)];
            let path = digits.map(|digit| (digit % usize::from(options)) as u16);
            least_s = least_s.min(program.priced_path_s(0, &path, &prices));
        }
        prop_assert!((cost_s - least_s).abs() <= 1e-9 * least_s.max(1e-12));
        prop_assert!((program.priced_path_s(0, &path, &prices) - least_s).abs() <= 1e-9 * least_s.max(1e-12));
    }

    #[test]
    fn any_prices_bound_any_assignment(
        counts in counts(2, 2..=5), raw in proptest::collection::vec(0.01..1.0f64, 10), capacity_price in 0.0..1e-8f64,
        picks in proptest::collection::vec(any::<u16>(), 10),
    ) {
        let program = program(&counts, 4, 8.0, 0.0);
        let aim = Aim::plain(&program);
        let rows: Vec<f64> = raw.chunks(5).flat_map(|of| of.iter().map(|price| price / of.iter().sum::<f64>()).collect::<Vec<_>>()).collect();
        let prices = Prices { rows, capacity: vec![0.0, capacity_price, 0.0, capacity_price], haste: 0.0 };
        let chosen: Vec<u16> = (0..program.items.len() * 2).map(|at| picks[at % picks.len()] % program.options(at / 2) as u16).collect();
        let sum = program.sum(chosen);
        prop_assume!(fits(&program, &sum));
        let all: f64 = (0..program.items.len()).map(|item| program.best_path(item, &prices, &aim.allowed).0).sum();
        let capacity_s = 2.0 * capacity_price * 4.0 * REGION_BYTES as f64;
        prop_assert!(all - capacity_s <= aim.seconds(&program, &sum) * (1.0 + 1e-6));
    }
}

#[test]
fn a_region_moves_when_what_it_gains_exceeds_its_move() {
    // One region fits the SSD; the hot one changes. Requests of 64 KiB cost 5 ms more on a disk; a move of 1 MiB twice about 40 ms.
    let of = |requests: u64| {
        let counts = vec![vec![[requests, 0], [0, 0]], vec![[0, 0], [requests, 0]]];
        let program = program(&counts, 1, 4.0, 0.0);
        let aim = Aim::plain(&program);
        let relaxed = relax(&program, &aim, reference_s(&program), None, &Budget::new(None));
        let sum = round(&program, &aim, &relaxed);
        (0..2).filter(|item| program.path(&sum, *item)[0] != program.path(&sum, *item)[1]).count()
    };
    assert_eq!(of(2), 0);
    assert!(of(2000) > 0);
}

#[test]
fn a_sample_of_a_march_meets_layouts_that_take_turns() {
    let profile = profile(&[5e-3, 5e-3, 1e-4]);
    let program = program(&vec![vec![[64, 0]]; 512], 512, 4.0, 1.0);
    let seen = [64 << 10, 256 << 10].map(|request_bytes| SeenClass {
        class: AccessClass { kind: Direction::Read.into(), request_bytes, order: Order::Random },
        part: Part::All,
        continuing: 0.9,
    });
    let on = |server: u16| Layout::new([(ServerId(server), 65536)]).unwrap();
    let (slow, fast) = (on(0), on(2));
    for seed in 0..4 {
        let drawn = Drawn { seed, ..drawn_march(&profile, &program, &seen, Company::default()) };
        let sample = Sample::draw(&drawn);
        let seconds = |is_slow: &dyn Fn(usize) -> bool| {
            let layouts: Vec<&Layout> = (0..512).map(|item| if is_slow(item) { &slow } else { &fast }).collect();
            sample.seconds(&profile, None, &layouts, &[])
        };
        let (least, most) = (seconds(&|_| false), seconds(&|_| true));
        for every in 2..=8 {
            let mixed = seconds(&|item| item % every == 0);
            // Changes of the layout may cost more than either layout.
            assert!(least < mixed && mixed != most, "every {every}, seed {seed}: {least} {mixed} {most}");
        }
    }
}

/// Requests that 4 ranks issue one behind the other through `program`'s regions of one file.
fn drawn_march<'a>(
    profile: &'a Profile,
    program: &'a Program,
    classes: &'a [SeenClass],
    company: Company,
) -> Drawn<'a> {
    Drawn {
        profile,
        items: &program.items[..],
        window: 0,
        periods: 0..1,
        classes,
        companies: vec![company],
        region_sizes: vec![REGION_BYTES],
        processes: 4,
        seed: 1,
        part: Part::All,
        march: true,
        redrawn: false,
    }
}

#[test]
fn requests_in_flight_that_are_longer_than_a_region_are_a_march_all_the_same() {
    let profile = profile(&[5e-3, 5e-3, 1e-4]);
    // Four requests of 256 KiB are a region.
    let program = program(&vec![vec![[0, 4]]; 512], 512, 4.0, 0.4);
    let class = |request_bytes| AccessClass { kind: Direction::Read.into(), request_bytes, order: Order::Random };
    let seen = [64 << 10, 256 << 10].map(|bytes| SeenClass { class: class(bytes), part: Part::All, continuing: 0.75 });
    let crowd = |adjoining: f64| {
        let company = Company { same_region: 0.4, adjoining, ..Company::default() };
        Sample::draw(&Drawn { march: false, ..drawn_march(&profile, &program, &seen, company) })
    };
    assert!(crowd(0.75).is_empty(), "three of four begin where another one ends");
    assert!(!crowd(0.0).is_empty());
}

#[test]
fn a_march_begins_requests_at_their_multiples_in_the_file() {
    let profile = profile(&[5e-3, 5e-3, 1e-4]);
    let sizes = [3000, 256 << 10];
    let program = program_of_sizes(sizes, &vec![vec![[349, 0]]; 64], 64, 4.0, 1.0);
    let class = |request_bytes| AccessClass { kind: Direction::Read.into(), request_bytes, order: Order::Random };
    let seen = sizes.map(|bytes| SeenClass { class: class(bytes), part: Part::All, continuing: 0.75 });
    let company = Company { same_region: 1.0, adjoining: 0.75, ..Company::default() };
    let drawn = drawn_march(&profile, &program, &seen, company);
    let first: Vec<u64> = (0..4).map(|item| drawn.first_offset(item, 3000)).collect();
    // 2^20 = 349 x 3000 + 1576.
    assert_eq!(first, [0, 1424, 2848, 1272]);
    // Stripes of one request hold whole requests in region 0 only: two servers serve nearly all of the others. Of stripes of four they
    // serve a quarter.
    let seconds = |stripe: u32| {
        let layout = Layout::new([(ServerId(0), stripe), (ServerId(1), stripe)]).unwrap();
        Sample::draw(&drawn).seconds(&profile, None, &vec![&layout; 64], &[])
    };
    assert!(seconds(3000) > 1.2 * seconds(12_000), "{} {}", seconds(3000), seconds(12_000));
}

#[test]
fn regions_that_ranks_march_through_lie_together_when_alike() {
    let program = program(&vec![vec![[64, 0]]; 96], 30, 4.0, 1.0);
    let aim = Aim::plain(&program);
    let relaxed = relax(&program, &aim, reference_s(&program), None, &Budget::new(None));
    let sum = round(&program, &aim, &relaxed);
    let changes = sum.chosen.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let mut distinct = sum.chosen.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 1 && changes == distinct.len() - 1, "{:?}", sum.chosen);
}

/// Dealt in order of heat, the first of two disks got the hotter region of every pair: 13 % more work than the other.
#[test]
fn whole_regions_are_dealt_longest_first_to_the_server_with_the_least_work() {
    let requests: Vec<u64> = (0..60).map(|rank| (10_000.0 / f64::from(rank + 1).powf(0.8)) as u64).collect();
    let counts: Vec<Vec<[u64; 2]>> = requests.iter().map(|requests| vec![[0, *requests]]).collect();
    // A request is as long as a region, so that the stripe that holds it puts the region on one server.
    let program = program_of_sizes([64 << 10, REGION_BYTES], &counts, 0, 4.0, 0.0);
    let kind_of = [0, 0, 1];
    let whole = |item: usize| {
        let is_whole = |option: &u16| {
            let stripes = program.shapes[program.shape(item, *option)].layout.stripes();
            stripes.len() == 2 && stripes.iter().all(|stripe| u64::from(stripe.size_bytes) == REGION_BYTES)
        };
        (0..program.options(item) as u16).find(is_whole).expect("it is not beaten")
    };
    let mut dealer = Dealer::new(&program, 0, &kind_of);
    let mut work = [0u64; 2];
    for (item, requests) in requests.iter().enumerate() {
        let layout = dealer.deal(item, whole(item), REGION_BYTES, |_| true).expect("there is room");
        assert_eq!(layout.stripes().len(), 1);
        work[usize::from(layout.stripes()[0].server.0)] += requests;
    }
    let [less, more] = [work[0].min(work[1]), work[0].max(work[1])];
    assert!(more - less <= requests[59], "{work:?}");
}
