//! The cost equations against plain transcriptions of the papers' tables, and their identities.

use proptest::prelude::*;
use stripewise_layout::{Direction, Layout, Order, RegionOffset, ServerClass, ServerId};
use stripewise_model::padp::PadpPattern;
use stripewise_model::psa::PsaExtent;
use stripewise_model::queueing::{KINDS, Streaming, Tally, kind};
use stripewise_model::{
    ClassParameters, Coefficients, Concurrency, Line, NetworkProfile, NetworkSource, Picoseconds, Profile,
    ServerProfile, StripePair, h2dp, striped,
};
use stripewise_trace::AccessClass;

type FourLines = [(f64, f64); 4];

fn profile(m: usize, n: usize, hdd: FourLines, ssd: FourLines, e_s: f64, t_s_per_byte: f64) -> Profile {
    let server = |class: ServerClass, lines: FourLines, index: usize| {
        let line = |(alpha_s, beta_s_per_byte)| Line { alpha_s, beta_s_per_byte, r2: 1.0, spread: 0.1, samples: 1 };
        ServerProfile {
            name: format!("{class}{index}"),
            class,
            read_sequential: line(lines[0]),
            read_random: line(lines[1]),
            write_sequential: line(lines[2]),
            write_random: line(lines[3]),
            buffered_write: None,
            synchronous_write: None,
            flush_wait: None,
        }
    };
    let hdd = (0..m).map(|index| server(ServerClass::Hdd, hdd, index));
    let ssd = (0..n).map(|index| server(ServerClass::Ssd, ssd, index));
    Profile {
        version: stripewise_model::PROFILE_VERSION,
        cluster: "c".to_owned(),
        emulated: false,
        measured_at: String::new(),
        servers: hdd.chain(ssd).collect(),
        network: NetworkProfile { e_s, t_s_per_byte, source: NetworkSource::Given },
        caveats: Vec::new(),
    }
}

fn four_lines() -> impl Strategy<Value = FourLines> {
    let line = || (0.0..1e-2f64, 0.0..2e-8f64);
    (line(), line(), line(), line()).prop_map(|(a, b, c, d)| [a, b, c, d])
}

prop_compose! {
    fn case()(
        m in 1usize..13, n in 1usize..9, hdd in four_lines(), ssd in four_lines(),
        e in prop_oneof![Just(0.0), 0.0..1e-3f64], t in prop_oneof![Just(0.0), 0.0..1e-8f64],
        p in 1u32..65, c in 1u32..9, write in any::<bool>(), random in any::<bool>(),
        h in 1u64..200, s in 1u64..200,
    ) -> Case {
        let direction = if write { Direction::Write } else { Direction::Read };
        let order = if random { Order::Random } else { Order::Sequential };
        let slot = usize::from(write) * 2 + usize::from(random);
        Case {
            profile: profile(m, n, hdd, ssd, e, t),
            m, n, hdd: hdd[slot], ssd: ssd[slot], e, t, direction, order,
            concurrency: Concurrency { processes: p, processes_per_node: c },
            h_bytes: h * 4096, s_bytes: s * 4096,
        }
    }
}

#[derive(Debug)]
struct Case {
    profile: Profile,
    m: usize,
    n: usize,
    hdd: (f64, f64),
    ssd: (f64, f64),
    e: f64,
    t: f64,
    direction: Direction,
    order: Order,
    concurrency: Concurrency,
    h_bytes: u64,
    s_bytes: u64,
}

impl Case {
    fn class(&self, request_bytes: u64) -> AccessClass {
        AccessClass { kind: self.direction.into(), request_bytes, order: self.order }
    }

    fn pattern(&self, request_bytes: u64) -> PadpPattern {
        let coefficients = |(alpha_s, beta_s_per_byte)| Coefficients { alpha_s, beta_s_per_byte };
        PadpPattern {
            hservers: self.m as u32,
            sservers: self.n as u32,
            request_bytes: request_bytes as f64,
            concurrency: self.concurrency,
            hdd: coefficients(self.hdd),
            ssd: coefficients(self.ssd),
            e_s: self.e,
            t_s_per_byte: self.t,
        }
    }

    fn layout(&self, h_bytes: u64, s_bytes: u64) -> Layout {
        let stripe = |id: usize| if id < self.m { h_bytes } else { s_bytes };
        Layout::new((0..self.m + self.n).map(|id| (ServerId(id as u16), stripe(id) as u32))).unwrap()
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()) + 1e-15
}

/// H2DP table 2 as printed, row by row, for r = m h + n s and s > h.
fn table_2(case: &Case, h: f64, s: f64) -> f64 {
    let (m, n) = (case.m as f64, case.n as f64);
    let (p, c) = (f64::from(case.concurrency.processes), f64::from(case.concurrency.processes_per_node));
    let r = m * h + n * s;
    let establish = if p <= c * (m + n) { c * (m + n) * case.e } else { p * case.e };
    let transfer = (c * r * case.t).max(p * s * case.t);
    establish + transfer + p * (case.hdd.0 + h * case.hdd.1).max(case.ssd.0 + s * case.ssd.1)
}

/// H2DP table 3 as printed, for r = m h.
fn table_3(case: &Case, h: f64) -> f64 {
    let m = case.m as f64;
    let (p, c) = (f64::from(case.concurrency.processes), f64::from(case.concurrency.processes_per_node));
    let r = m * h;
    let establish = if p <= c * m { c * m * case.e } else { p * case.e };
    establish + (c * r * case.t).max(p * r * case.t / m) + p * case.hdd.0 + p * h * case.hdd.1
}

proptest! {
    #[test]
    fn whole_cycle_requests_cost_what_the_tables_print(case in case()) {
        let parameters = ClassParameters::of(&case.profile);
        let (h, s) = (case.h_bytes.min(case.s_bytes), case.h_bytes.max(case.s_bytes) + 1);
        let pair = StripePair::new(h, s);
        let whole = case.class(pair.cycle_bytes(case.m as u32, case.n as u32));
        let cost = h2dp::hybrid_cost(&parameters, pair, whole, case.concurrency).total_s();
        prop_assert!(close(cost, table_2(&case, h as f64, s as f64)));
        let whole = case.class(case.m as u64 * h);
        let cost = h2dp::hservers_cost(&parameters, h, whole, case.concurrency).total_s();
        prop_assert!(close(cost, table_3(&case, h as f64)));
    }

    #[test]
    fn the_padp_cost_is_h2dps_table_2_with_any_order_of_stripes(case in case()) {
        let parameters = ClassParameters::of(&case.profile);
        let pair = StripePair::new(case.h_bytes, case.s_bytes);
        let r = pair.cycle_bytes(case.m as u32, case.n as u32);
        let pattern = case.pattern(r);
        for pair in [pair, StripePair::new(r / case.m as u64, 0), StripePair::new(0, r / case.n as u64)] {
            let r = pair.cycle_bytes(case.m as u32, case.n as u32);
            let pattern = PadpPattern { request_bytes: r as f64, ..pattern };
            let cost = h2dp::hybrid_cost(&parameters, pair, case.class(r), case.concurrency).total_s();
            prop_assert!(close(cost, pattern.cost_s(pair.h_bytes as f64, pair.s_bytes as f64)));
        }
        // With both classes present the cost is equation 3's connections and equation 5.
        let (p, c) = case.concurrency.factors();
        let connections = p.max(c * (case.m + case.n) as f64) * case.e;
        let (h, s) = (case.h_bytes as f64, case.s_bytes as f64);
        prop_assert!(close(pattern.cost_s(h, s), connections + pattern.objective_s(h, s)));
    }

    #[test]
    fn costs_grow_with_request_processes_and_parameters(case in case(), request in 1u64..(16 << 20), more in 1u64..(1 << 20)) {
        let parameters = ClassParameters::of(&case.profile);
        let pair = StripePair::new(case.h_bytes, case.s_bytes);
        let cost = |parameters: &ClassParameters, request, concurrency| {
            h2dp::hybrid_cost(parameters, pair, case.class(request), concurrency).total_s()
        };
        let base = cost(&parameters, request, case.concurrency);
        prop_assert!(cost(&parameters, request + more, case.concurrency) >= base);
        let Concurrency { processes, processes_per_node } = case.concurrency;
        let more_processes = Concurrency { processes: processes + 1, processes_per_node };
        let more_per_node = Concurrency { processes, processes_per_node: processes_per_node + 1 };
        prop_assert!(cost(&parameters, request, more_processes) >= base);
        prop_assert!(cost(&parameters, request, more_per_node) >= base);
        let mut slower = case.profile.clone();
        slower.servers.iter_mut().for_each(|server| server.read_random.alpha_s += 1e-3);
        slower.network.e_s += 1e-5;
        prop_assert!(cost(&ClassParameters::of(&slower), request, case.concurrency) >= base);
    }

    #[test]
    fn a_class_with_stripe_zero_is_as_if_it_were_not_there(case in case(), request in 1u64..(16 << 20)) {
        let parameters = ClassParameters::of(&case.profile);
        let without = |class: ServerClass| {
            let mut profile = case.profile.clone();
            profile.servers.retain(|server| server.class != class);
            ClassParameters::of(&profile)
        };
        let class = case.class(request);
        let only_s = StripePair::new(0, case.s_bytes);
        prop_assert_eq!(
            h2dp::hybrid_cost(&parameters, only_s, class, case.concurrency),
            h2dp::hybrid_cost(&without(ServerClass::Hdd), only_s, class, case.concurrency)
        );
        prop_assert_eq!(
            h2dp::hservers_cost(&parameters, case.h_bytes, class, case.concurrency),
            h2dp::hybrid_cost(&without(ServerClass::Ssd), StripePair::new(case.h_bytes, case.s_bytes), class, case.concurrency)
        );
    }

    #[test]
    fn any_layout_costs_what_its_pair_costs(case in case(), request in 1u64..(16 << 20)) {
        let parameters = ClassParameters::of(&case.profile);
        for (h, s) in [(case.h_bytes, case.s_bytes), (case.h_bytes, 0), (0, case.s_bytes)] {
            let class = case.class(request);
            let table = h2dp::hybrid_cost(&parameters, StripePair::new(h, s), class, case.concurrency).total_s();
            let found = striped::request_cost(&case.profile, &case.layout(h, s), class, case.concurrency);
            // The class mean of equal servers is that value up to rounding.
            prop_assert!(close(found.cost.total_s(), table));
            let exact = striped::exact_cost(&case.profile, &case.layout(h, s), class, case.concurrency, 64 << 20);
            prop_assert!(exact.total_s() <= found.cost.total_s() * (1.0 + 1e-9), "true offsets never cost more than the worst");
        }
    }

    /// Sixteen sampled offsets gave loads of 37 and 8 s where all were 16: their distances were nearly those of the cycle.
    #[test]
    fn the_load_is_that_of_every_request_of_a_region(
        sizes in proptest::collection::vec(1u32..30, 2..5), request in 1u64..150, more in 0u64..300, alpha in 0.0..1e-3f64, beta in 0.0..1e-6f64,
    ) {
        let lines = [(alpha, beta); 4];
        let profile = profile(sizes.len(), 0, lines, lines, 0.0, 0.0);
        let layout = Layout::new(sizes.iter().enumerate().map(|(id, size)| (ServerId(id as u16), *size))).unwrap();
        let region_bytes = request * (1 + more);
        let count = 1 + more;
        let mut expected = vec![0.0; sizes.len()];
        for i in 0..count {
            for sub in layout.view().split(RegionOffset(i * request), request) {
                expected[usize::from(sub.server.0)] += alpha + sub.length as f64 * beta;
            }
        }
        let mut tally = Tally::new(&profile, &vec![Streaming::AS_TRACED; sizes.len()], region_bytes);
        let mut counts = [0.0; KINDS];
        counts[kind(Direction::Read, Order::Random)] = count as f64;
        tally.add(&layout, request, counts);
        let mut found = vec![0.0; sizes.len()];
        tally.add_load(&mut found);
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert!((found - expected).abs() <= 1e-9 * expected.max(1e-12), "{found} is not {expected}");
        }
    }

    #[test]
    fn psa_splits_requests_by_room(requests in 1u64..10_000, r in 1u64..(1 << 20), file in 1u64..(1 << 34), room in 0u64..(1 << 32), s in 1u64..(1 << 20)) {
        let extent = PsaExtent { requests, request_bytes: r, file_bytes: file, room_bytes: room };
        let hybrid = extent.hybrid_requests(s);
        prop_assert!(hybrid <= requests);
        prop_assert!(extent.hybrid_requests(s + 1) <= hybrid, "a larger stripe never makes space for more");
        let distinct = file.div_ceil(r);
        if requests <= distinct {
            prop_assert_eq!(hybrid, requests.min(room / s));
        } else {
            let share = ((room / s) as f64 / distinct as f64).min(1.0);
            prop_assert!((hybrid as f64 - requests as f64 * share).abs() <= 1.0);
        }
        let (fast, slow) = (Picoseconds(u128::from(requests) * 1_000), Picoseconds(u128::from(requests) * 5_000));
        prop_assert_eq!(extent.file_cost(s, fast, slow).0, u128::from(hybrid) * 1_000 + u128::from(requests - hybrid) * 5_000);
    }
}

/// Evenly spaced offsets of a region that is shorter than a period may be those of the cycle: of requests of 4,000 bytes in 64 MiB, one out of 65 was
/// looked at, 256 KiB apart, and nearly all of those were split by the end of a stripe of 64 KiB, where 6 % of all are.
#[test]
fn sampled_offsets_do_not_follow_the_cycle() {
    const REGION_BYTES: u64 = 64 << 20;
    let (fast, slow) = ([(1e-4, 4e-9); 4], [(5e-3, 1e-8); 4]);
    let (e_s, t_s_per_byte, p, c) = (1e-4, 8e-9, 32, 16);
    let profile = profile(12, 4, slow, fast, e_s, t_s_per_byte);
    let mut checked = 0;
    for (h, s) in [(65_536, 65_536), (65_536, 524_288), (4_096, 1_028_096), (12_288, 229_376), (0, 262_144)] {
        let stripes = (0..16).map(|id| (ServerId(id), if id < 12 { h } else { s })).filter(|(_, size)| *size > 0);
        let layout = Layout::new(stripes).unwrap();
        for request_bytes in [1_000, 4_000, 4_096, 4_160, 65_500, 100_000, 262_140] {
            let class = AccessClass { kind: Direction::Read.into(), request_bytes, order: Order::Random };
            let concurrency = Concurrency { processes: p, processes_per_node: c };
            let found = striped::exact_cost(&profile, &layout, class, concurrency, REGION_BYTES).total_s();
            let count = REGION_BYTES / request_bytes;
            let mut sum_s = 0.0;
            for offset in (0..count).map(|number| number * request_bytes) {
                let (mut servers, mut fullest, mut slowest_s) = (0u32, 0u64, 0.0f64);
                for sub in layout.view().split(RegionOffset(offset), request_bytes) {
                    let (alpha_s, beta_s) = if sub.server.0 < 12 { slow[0] } else { fast[0] };
                    servers += 1;
                    fullest = fullest.max(sub.length);
                    slowest_s = slowest_s.max(alpha_s + beta_s * sub.length as f64);
                }
                let establish_s = f64::from(p.max(c * servers)) * e_s;
                let transfer_s = (f64::from(c) * request_bytes as f64).max(f64::from(p) * fullest as f64);
                sum_s += establish_s + transfer_s * t_s_per_byte + f64::from(p) * slowest_s;
            }
            let mean_s = sum_s / count as f64;
            let error = (found / mean_s - 1.0).abs();
            assert!(error <= 0.03, "<{h},{s}>, {request_bytes} bytes: {found} s instead of {mean_s} s");
            checked += u32::from(count > striped::EXACT_OFFSETS);
        }
    }
    // Of the two smallest sizes there are more.
    assert_eq!(checked, 10);
}

/// C_s / s and the share of k are both rounded down.
#[test]
fn psa_counts_whole_requests_on_hybrid_servers_only() {
    let hybrid = |requests, room_bytes| {
        let extent = PsaExtent { requests, request_bytes: 40 * 1024, file_bytes: 4 * 40 * 1024, room_bytes };
        extent.hybrid_requests(12 * 1024)
    };
    // Each piece of the file is asked for once.
    assert_eq!([12 * 1024 - 1, 12 * 1024, 30 * 1024, 1 << 20].map(|room| hybrid(4, room)), [0, 1, 2, 4]);
    // Ten requests to four pieces, two of which fit, and one of which fits: 10 x 2 / 4, and 10 x 1 / 4 less the half.
    assert_eq!([30 * 1024, 12 * 1024].map(|room| hybrid(10, room)), [5, 2]);
}

#[test]
fn servers_of_a_class_that_differ_count_with_their_mean() {
    let lines = [(2e-3, 1e-8); 4];
    let mut profile = profile(2, 1, lines, lines, 0.0, 0.0);
    profile.servers[1].read_random.alpha_s = 4e-3;
    let parameters = ClassParameters::of(&profile);
    assert_eq!((parameters.hservers, parameters.sservers), (2, 1));
    let mean = parameters.of_class(ServerClass::Hdd, Direction::Read, Order::Random);
    assert_eq!(mean, Coefficients { alpha_s: 3e-3, beta_s_per_byte: 1e-8 });
    assert_eq!(parameters.of_class(ServerClass::Ssd, Direction::Read, Order::Random).alpha_s, 2e-3);
    // The prediction for a layout sees the slow server itself.
    let layout = Layout::new([(ServerId(0), 4096), (ServerId(1), 4096)]).unwrap();
    let class = AccessClass { kind: Direction::Read.into(), request_bytes: 8192, order: Order::Random };
    let concurrency = Concurrency { processes: 1, processes_per_node: 1 };
    let found = striped::request_cost(&profile, &layout, class, concurrency).cost.storage_s;
    assert!(close(found, 4e-3 + 4096.0 * 1e-8));
}
