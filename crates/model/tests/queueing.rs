//! The queueing model against exact results and against a plain event simulation.

use proptest::prelude::*;
use stripewise_layout::{Direction, Layout, Order, RequestKind, ServerClass, ServerId, WriteClass};
use stripewise_model::queueing::{
    Fork, KINDS, Network, Part, RequestDemand, ServerDemand, Side, Streaming, Tally, Work, kind, request_demand,
};
use stripewise_model::{Line, NetworkProfile, NetworkSource, OrderedLines, PROFILE_VERSION, Profile, ServerProfile};
use stripewise_trace::AccessClass;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Lines (startup, per byte) of each server, the same for all directions and orders.
fn profile(lines: &[(f64, f64)], e_s: f64, t_s_per_byte: f64) -> Profile {
    let servers = lines.iter().enumerate().map(|(index, (alpha_s, beta_s_per_byte))| {
        let line = Line { alpha_s: *alpha_s, beta_s_per_byte: *beta_s_per_byte, r2: 1.0, spread: 0.0, samples: 9 };
        ServerProfile {
            name: format!("s{index}"),
            class: ServerClass::Hdd,
            read_sequential: line,
            read_random: line,
            write_sequential: line,
            write_random: line,
            buffered_write: None,
            synchronous_write: None,
            flush_wait: None,
        }
    });
    Profile {
        version: PROFILE_VERSION,
        cluster: "testbed".to_owned(),
        emulated: false,
        measured_at: "2024-01-01T00:00:00Z".to_owned(),
        servers: servers.collect(),
        network: NetworkProfile { e_s, t_s_per_byte, source: NetworkSource::Given },
        caveats: Vec::new(),
    }
}

/// 12 disks and 4 SSDs on gigabit links, random order.
fn testbed() -> Profile {
    let disk = (12.66e-3, 8e-9);
    let flash = (80e-6, 1.0 / 550e6);
    let lines: Vec<(f64, f64)> = (0..16).map(|server| if server < 12 { disk } else { flash }).collect();
    profile(&lines, 0.3e-3, 1.0 / 120e6)
}

fn reads(request_bytes: u64) -> AccessClass {
    AccessClass { kind: Direction::Read.into(), request_bytes, order: Order::Random }
}

fn layout(pairs: impl IntoIterator<Item = (u16, u64)>) -> Layout {
    Layout::new(pairs.into_iter().map(|(server, size)| (ServerId(server), size as u32))).unwrap()
}

/// Requests of a weight, size and layout.
struct Stream {
    weight: f64,
    class: AccessClass,
    layout: Layout,
}

fn network(profile: &Profile, streams: &[Stream], region_bytes: u64) -> Network {
    let mut network = Network::new(profile.servers.len());
    for stream in streams {
        let demand = request_demand(profile, &stream.layout, stream.class, Streaming::AS_TRACED, region_bytes);
        network.add(&demand, stream.weight);
    }
    network
}

mod simulation {
    //! A closed loop on first-come-first-served stations, event by event, which shares no formula with the model.

    use super::{Profile, Stream};
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use stripewise_layout::{RegionOffset, SplitMix64};

    /// Requests per second of `processes` processes over `requests` requests. Issues are taken in order of time, so every first station serves in
    /// order of arrival, and every second one in the order in which its first one finishes.
    pub(super) fn rate(
        profile: &Profile,
        streams: &[Stream],
        region_bytes: u64,
        processes: u32,
        think_s: f64,
        requests: u64,
        seed: u64,
    ) -> f64 {
        let mut random = SplitMix64::new(seed);
        let total: f64 = streams.iter().map(|stream| stream.weight).sum();
        let mut device_free = vec![0.0f64; profile.servers.len()];
        let mut link_free = device_free.clone();
        // Whole femtoseconds, to be ordered.
        let key = |seconds: f64| Reverse((seconds * 1e15) as u128);
        let mut issues: BinaryHeap<_> =
            (0..processes).map(|process| (key(f64::from(process) * 1e-6), process)).collect();
        let warm = requests / 5;
        let (mut started_s, mut last_s) = (0.0, 0.0);
        for number in 0..requests {
            let (Reverse(at), process) = issues.pop().unwrap();
            let now_s = at as f64 / 1e15;
            if number == warm {
                started_s = now_s;
            }
            last_s = now_s;
            let mut draw = random.unit() * total;
            let stream = streams.iter().find(|stream| {
                draw -= stream.weight;
                draw < 0.0
            });
            let stream = stream.unwrap_or(&streams[streams.len() - 1]);
            let bytes = stream.class.request_bytes;
            let offset = random.below(region_bytes / bytes) * bytes;
            let mut done_s = now_s;
            for sub in stream.layout.view().split(RegionOffset(offset), bytes) {
                let server = usize::from(sub.server.0);
                let line = profile.servers[server].line(stream.class.kind, stream.class.order);
                let device_end =
                    device_free[server].max(now_s) + line.alpha_s + sub.length as f64 * line.beta_s_per_byte;
                device_free[server] = device_end;
                let link_s = profile.network.e_s + sub.length as f64 * profile.network.t_s_per_byte;
                let link_end = link_free[server].max(device_end) + link_s;
                link_free[server] = link_end;
                done_s = done_s.max(link_end);
            }
            issues.push((key(done_s + think_s), process));
        }
        (requests - warm) as f64 / (last_s - started_s)
    }
}

/// One layout per stream, all requests of `bytes`.
fn alike(bytes: u64, layouts: impl IntoIterator<Item = (f64, Layout)>) -> Vec<Stream> {
    layouts.into_iter().map(|(weight, layout)| Stream { weight, class: reads(bytes), layout }).collect()
}

fn whole(server: u16) -> Layout {
    layout([(server, 4 * MIB)])
}

/// Mixes of requests of one size on 12 disks (servers 0 to 11) and 4 SSDs.
fn mixes(bytes: u64) -> Vec<(&'static str, Vec<Stream>)> {
    let over_disks = || layout((0..12).map(|server| (server, (bytes / 12).next_multiple_of(4 * KIB))));
    let over_flash = || layout((12..16).map(|server| (server, bytes / 4)));
    let group = |first: u16| layout((0..4).map(|turn| ((first + turn * 5) % 12, bytes / 4)));
    let pair = |first: u16| layout([(first, bytes / 2), ((first + 5) % 12, bytes / 2)]);
    vec![
        ("whole on disks", alike(bytes, (0..12).map(|server| (1.0, whole(server))))),
        ("whole, SSDs more", alike(bytes, (0..16).map(|server| (if server < 12 { 1.0 } else { 5.0 }, whole(server))))),
        ("whole, disks uneven", alike(bytes, (0..12).map(|server| (f64::from(server + 4), whole(server))))),
        ("64KiB over all", alike(bytes, [(1.0, layout((0..16).map(|server| (server, 64 * KIB))))])),
        ("over disks", alike(bytes, [(1.0, over_disks())])),
        ("over disks, over SSDs", alike(bytes, [(1.0, over_disks()), (1.0, over_flash())])),
        ("groups of 4", alike(bytes, (0..12).map(|first| (1.0, group(first))))),
        ("pairs and whole", alike(bytes, (0..12).flat_map(|server| [(1.0, pair(server)), (1.0, whole(server))]))),
    ]
}

fn cases() -> Vec<(String, Profile, Vec<Stream>)> {
    let flat = profile(&[(5e-3, 1e-8); 16], 0.0, 0.0);
    let mut cases = Vec::new();
    for (servers, profile) in [("disks without links", flat), ("disks and SSDs", testbed())] {
        for bytes in [64 * KIB, MIB] {
            for (mix, streams) in mixes(bytes) {
                cases.push((format!("{servers}, {} KiB {mix}", bytes / KIB), profile.clone(), streams));
            }
        }
        let sizes = [MIB, 64 * KIB, 256 * KIB];
        let over_all = || layout((0..16).map(|server| (server, 64 * KIB)));
        let mixed = |layout: &dyn Fn(u16) -> Layout, count: u16| -> Vec<Stream> {
            let one =
                |(number, bytes): (u16, &u64)| Stream { weight: 1.0, class: reads(*bytes), layout: layout(number) };
            (0..count).flat_map(|number| sizes.iter().map(move |bytes| (number, bytes))).map(one).collect()
        };
        cases.push((format!("{servers}, three sizes whole"), profile.clone(), mixed(&whole, 12)));
        cases.push((format!("{servers}, three sizes 64KiB over all"), profile.clone(), mixed(&|_| over_all(), 1)));
    }
    cases
}

#[test]
fn the_estimate_is_near_an_event_simulation() {
    let (mut all, mut busy) = (Vec::new(), Vec::new());
    for (name, profile, streams) in cases() {
        let network = network(&profile, &streams, 4 * MIB);
        let mut line = String::new();
        for processes in [1u32, 2, 4, 8, 16, 32, 64, 128] {
            let simulated = simulation::rate(&profile, &streams, 4 * MIB, processes, 0.0, 12_000, 7);
            let error = network.throughput(processes, 0.0) / simulated - 1.0;
            line += &format!(" {:>6.1}({:.2})", error * 100.0, simulated / network.bound(processes, 0.0));
            all.push(error.abs());
            if processes >= 16 {
                busy.push(error.abs());
            }
        }
        println!("{name:<52}{line}");
    }
    let share = |errors: &mut Vec<f64>, share: f64| {
        errors.sort_by(f64::total_cmp);
        errors[((errors.len() - 1) as f64 * share) as usize]
    };
    for (what, errors) in [("all", &mut all), ("16 processes and more", &mut busy)] {
        let [median, p90, p95, most] = [0.5, 0.9, 0.95, 1.0].map(|at| share(errors, at) * 100.0);
        println!(
            "{what}: {} cases, median {median:.1} %, 90 % {p90:.1} %, 95 % {p95:.1} %, most {most:.1} %",
            errors.len()
        );
    }
    for (errors, limits) in [(&mut all, [0.015, 0.05, 0.12]), (&mut busy, [0.02, 0.04, 0.06])] {
        let found = [0.5, 0.9, 1.0].map(|at| share(errors, at));
        assert!(found.iter().zip(limits).all(|(found, limit)| *found < limit), "{found:?}, allowed {limits:?}");
    }
}

#[test]
fn thinking_processes_are_estimated_as_well() {
    let streams = alike(256 * KIB, (0..12).map(|server| (1.0, whole(server))));
    let (profile, processes) = (testbed(), 32);
    for think_s in [5e-3, 20e-3, 200e-3] {
        let simulated = simulation::rate(&profile, &streams, 4 * MIB, processes, think_s, 20_000, 3);
        let estimated = network(&profile, &streams, 4 * MIB).throughput(processes, think_s);
        assert!((estimated / simulated - 1.0).abs() < 0.03, "{think_s} s: {estimated} and {simulated}");
    }
}

/// One request on one of `stations` devices, each with the same probability, with service of a squared variation.
fn balanced(stations: usize, mean_s: f64, squared_variation: f64) -> Network {
    let mut network = Network::new(stations);
    for server in 0..stations {
        let device = Work { mean_s, mean_square_s2: mean_s * mean_s * (1.0 + squared_variation) };
        let servers = vec![ServerDemand { server, visits: 1.0, device, link: Work::default(), flushes: 0.0 }];
        let parts = vec![Part { server, device_s: mean_s, link_s: 0.0 }];
        network.add(&RequestDemand { servers, unloaded_s: mean_s, forks: vec![Fork { share: 1.0, parts }] }, 1.0);
    }
    network
}

#[test]
fn balanced_exponential_stations_are_solved_exactly() {
    // X = p / (D (p + K - 1)), D the demand on each of K stations: Lazowska et al., Quantitative System Performance, chapter 6.
    for stations in [1usize, 2, 5, 16, 100] {
        for processes in [1u32, 2, 7, 32, 128, 200] {
            let exact =
                f64::from(processes) / (2e-3 / stations as f64 * (f64::from(processes) + stations as f64 - 1.0));
            let found = balanced(stations, 2e-3, 1.0).throughput(processes, 0.0);
            assert!((found / exact - 1.0).abs() < 1e-9, "{stations} stations, {processes} processes: {found}, {exact}");
        }
    }
}

/// Requests a second of processes that each go around all stations in the same turn, from station to station, with services as they come from `service_s`.
fn rate_of_a_ring(stations: usize, processes: u32, mut service_s: impl FnMut(usize) -> f64) -> f64 {
    let mut free = vec![0.0f64; stations];
    let mut next: Vec<(f64, usize)> = (0..processes).map(|process| (0.0, process as usize * 3 % stations)).collect();
    let (warm, requests) = (20_000, 100_000);
    let mut begun_s = 0.0;
    for number in 0..requests {
        let (at, station) = next.iter_mut().min_by(|(one, _), (other, _)| one.total_cmp(other)).unwrap();
        if number == warm {
            begun_s = *at;
        }
        free[*station] = free[*station].max(*at) + service_s(*station);
        (*at, *station) = (free[*station], (*station + 1) % stations);
    }
    let ended_s = next.iter().map(|(at, _)| *at).fold(f64::INFINITY, f64::min);
    f64::from(requests - warm) / (ended_s - begun_s)
}

#[test]
fn a_ring_of_constant_services_reaches_the_bound() {
    for (stations, processes) in [(8usize, 4u32), (8, 16), (5, 64)] {
        let ring = rate_of_a_ring(stations, processes, |_| 2e-3);
        let constant = balanced(stations, 2e-3, 0.0);
        let found = constant.throughput_in_turn(processes, 0.0, 1.0);
        assert!((found / ring - 1.0).abs() < 0.01, "{stations} stations, {processes} processes: {found}, not {ring}");
        assert!(constant.throughput(processes, 0.0) < 0.97 * ring || processes == 64);
        // Of exponential services the turn makes no difference.
        let mut random = stripewise_layout::SplitMix64::new(u64::from(processes));
        let ring = rate_of_a_ring(stations, processes, |_| -2e-3 * (1.0 - random.unit()).ln());
        let found = balanced(stations, 2e-3, 1.0).throughput_in_turn(processes, 0.0, 1.0);
        assert!((found / ring - 1.0).abs() < 0.02, "{stations} stations, {processes} processes: {found}, not {ring}");
    }
}

#[test]
fn large_populations_are_solved_in_longer_steps() {
    for (stations, processes) in [(16usize, 1_000u32), (1_000, 5_000), (1_000, 100_000)] {
        let exact = f64::from(processes) / (2e-3 / stations as f64 * (f64::from(processes) + stations as f64 - 1.0));
        let found = balanced(stations, 2e-3, 1.0).throughput(processes, 0.0);
        assert!((found / exact - 1.0).abs() < 0.01, "{stations} stations, {processes} processes: {found}, {exact}");
    }
}

#[test]
fn one_constant_station_is_always_busy() {
    for processes in [1u32, 2, 3, 64] {
        let found = balanced(1, 2e-3, 0.0).throughput(processes, 0.0);
        assert!((found - 500.0).abs() < 1e-9, "{processes}: {found}");
    }
}

#[test]
fn the_demand_is_that_of_the_sub_requests() {
    let profile = profile(&[(1e-3, 1e-8), (2e-3, 3e-8)], 1e-4, 1e-9);
    // Requests of 8 KiB on a cycle of 4 + 12 KiB: the first takes 4 KiB of each server, the second 8 KiB of server 1.
    let demand = request_demand(
        &profile,
        &layout([(0, 4 * KIB), (1, 12 * KIB)]),
        reads(8 * KIB),
        Streaming::AS_TRACED,
        64 * KIB,
    );
    let device = |server: usize, bytes: u64| profile.servers[server].read_random.seconds(bytes as f64);
    let link = |bytes: u64| 1e-4 + bytes as f64 * 1e-9;
    let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-12, "{found}, not {expected}");
    assert_eq!(demand.servers.iter().map(|one| (one.server, one.visits)).collect::<Vec<_>>(), [(0, 0.5), (1, 1.0)]);
    near(demand.servers[0].device_s(), device(0, 4 * KIB) / 2.0);
    near(demand.servers[1].device_s(), (device(1, 4 * KIB) + device(1, 8 * KIB)) / 2.0);
    near(demand.servers[1].link_s(), (link(4 * KIB) + link(8 * KIB)) / 2.0);
    near(demand.servers[1].device.mean_square_s2, (device(1, 4 * KIB).powi(2) + device(1, 8 * KIB).powi(2)) / 2.0);
    near(demand.unloaded_s, (device(1, 4 * KIB) + link(4 * KIB) + device(1, 8 * KIB) + link(8 * KIB)) / 2.0);
    assert_eq!(
        demand.forks.iter().map(|fork| (fork.share, fork.parts.len())).collect::<Vec<_>>(),
        [(0.5, 2), (0.5, 1)]
    );
}

#[test]
fn requests_that_continue_pay_the_sequential_startup() {
    let mut profile = profile(&[(10e-3, 1e-8)], 0.0, 0.0);
    profile.servers[0].read_sequential.alpha_s = 1e-3;
    let mean_s = |order: Order, streams: Streaming| {
        let class = AccessClass { kind: Direction::Read.into(), request_bytes: 4 * KIB, order };
        request_demand(&profile, &whole(0), class, streams, 4 * MIB).unloaded_s
    };
    let (sequential_s, random_s) = (1e-3 + 4096e-8, 10e-3 + 4096e-8);
    let streams = |processes, adjoining| Streaming { processes, presence: 1.0, touching: 1.0, adjoining };
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found}, not {expected}");
    close(mean_s(Order::Sequential, streams(8, 0.0)), sequential_s);
    close(mean_s(Order::Sequential, streams(9, 0.0)), random_s);
    close(mean_s(Order::Random, streams(8, 0.0)), random_s);
    close(mean_s(Order::Random, streams(32, 0.75)), 0.75 * sequential_s + 0.25 * random_s);
}

#[test]
fn processes_that_stay_meet_those_only_who_are_there() {
    let mut profile = profile(&[(10e-3, 1e-8); 2], 0.0, 0.0);
    profile.servers.iter_mut().for_each(|server| server.read_sequential.alpha_s = 1e-3);
    // Everybody has been on the disk when a process comes back to it, and hardly anybody is there while it stays.
    let streams = Streaming { processes: 32, presence: 1.0, touching: 0.01, adjoining: 0.0 };
    let startup_s = |stripe_bytes: u64, streams| {
        let class = AccessClass { kind: Direction::Read.into(), request_bytes: MIB, order: Order::Sequential };
        let over_both = layout([(0, stripe_bytes), (1, stripe_bytes)]);
        request_demand(&profile, &over_both, class, streams, 64 * MIB).unloaded_s - MIB as f64 * 1e-8
    };
    for (stripe_bytes, staying) in [(MIB, 0.0), (4 * MIB, 0.75), (16 * MIB, 15.0 / 16.0)] {
        let expected = staying * 1e-3 + (1.0 - staying) * 10e-3;
        let found = startup_s(stripe_bytes, streams);
        assert!((found / expected - 1.0).abs() < 1e-6, "{stripe_bytes}: {found}, not {expected}");
        assert!((startup_s(stripe_bytes, Streaming { touching: 1.0, ..streams }) / 10e-3 - 1.0).abs() < 1e-9);
    }
}

fn any_layout() -> impl Strategy<Value = Layout> {
    let stripes = proptest::collection::vec(0u64..64, 6);
    stripes.prop_filter_map("a layout needs a stripe", |stripes| {
        Layout::new(stripes.iter().enumerate().map(|(server, kib)| (ServerId(server as u16), (kib * KIB) as u32))).ok()
    })
}

proptest! {
    #[test]
    fn a_tally_gives_the_network_of_its_requests(
        layouts in proptest::collection::vec((any_layout(), 1u64..300, [0u64..5, 0..5, 0..5, 0..5, 0..5, 0..5]), 1..6),
        lines in proptest::collection::vec((1e-4..1e-2f64, 1e-10..2e-8f64), 6), adjoining in 0.0..1.0f64,
        split in 0usize..6, region_bytes in (1u64..64).prop_map(|count| count * 128 * KIB),
    ) {
        let mut profile = profile(&lines, 1e-4, 8e-9);
        profile.servers.iter_mut().for_each(|server| server.write_random.alpha_s *= 1.5);
        profile.servers.iter_mut().for_each(|server| server.read_sequential.alpha_s *= 0.25);
        for server in &mut profile.servers {
            let line = Line { alpha_s: 1e-4, ..server.write_random };
            server.buffered_write = Some(OrderedLines { sequential: Line { alpha_s: 0.0, ..line }, random: line });
        }
        let streams = Streaming { processes: 32, presence: 0.5, touching: 0.2, adjoining };
        let empty = || Tally::new(&profile, &[streams; 6], region_bytes);
        let mut tallies = [empty(), empty()];
        let mut expected = [Network::new(6), Network::new(6), Network::new(6)];
        for (number, (layout, kib, counts)) in layouts.iter().enumerate() {
            let mut by_kind = [0.0; KINDS];
            for (which, count) in counts.iter().enumerate() {
                let written = [WriteClass::Direct, WriteClass::Buffered].map(RequestKind::Write);
                let request = [RequestKind::Read, written[0], written[1]][which / 2];
                let order = if which % 2 == 0 { Order::Random } else { Order::Sequential };
                let class = AccessClass { kind: request, request_bytes: kib * KIB, order };
                let demand = request_demand(&profile, layout, class, streams, region_bytes);
                expected[which / 2].add(&demand, 0.5 * *count as f64);
                by_kind[kind(request, order)] = *count as f64;
            }
            tallies[usize::from(number >= split)].add(layout, kib * KIB, by_kind);
        }
        let [mut tally, rest] = tallies;
        tally.merge(&rest);
        let of_writes = tally.service_s(Direction::Write).all_s;
        let written_s: f64 = expected[1..]
            .iter()
            .map(|network| (0..6).map(|server| network.device_load_s(server) + network.link_load_s(server)).sum::<f64>())
            .sum();
        prop_assert!((0.5 * of_writes - written_s).abs() <= 1e-9 * written_s);
        prop_assert_eq!(expected[2].unloaded_s(), 0.0, "nobody waits for what is written back");
        for (expected, side) in expected.iter().zip(Side::ALL) {
            let mut found = Network::new(6);
            found.add_tally(&tally, side, 0.5);
            prop_assert_eq!(found.requests(), expected.requests());
            let near = |found: f64, expected: f64| found == expected || (found / expected - 1.0).abs() < 1e-9;
            prop_assert!(near(found.unloaded_s(), expected.unloaded_s()));
            let service_s = (0..6).map(|server| expected.device_load_s(server) + expected.link_load_s(server));
            if side == Side::Reads {
                prop_assert!(near(0.5 * tally.service_s(Direction::Read).all_s, service_s.sum()));
            }
            for server in 0..6 {
                prop_assert!(near(found.device_load_s(server), expected.device_load_s(server)));
                prop_assert!(near(found.link_load_s(server), expected.link_load_s(server)));
            }
            for processes in [1, 8, 64] {
                let rates = (found.throughput(processes, 0.0), expected.throughput(processes, 0.0));
                prop_assert!(near(rates.0, rates.1), "{} processes: {:?}", processes, rates);
            }
        }
    }

    #[test]
    fn no_estimate_exceeds_the_bound_and_more_processes_never_complete_less(
        layouts in proptest::collection::vec((any_layout(), 1u64..300, 0.1..10.0f64), 1..5),
        lines in proptest::collection::vec((0.0..1e-2f64, 1e-10..2e-8f64), 6),
        link in (0.0..1e-3f64, 0.0..2e-8f64), think_s in prop_oneof![Just(0.0), 0.0..0.1f64],
    ) {
        let profile = profile(&lines, link.0, link.1);
        let streams: Vec<Stream> = layouts
            .into_iter()
            .map(|(layout, kib, weight)| Stream { weight, class: reads(kib * KIB), layout })
            .collect();
        let network = network(&profile, &streams, MIB);
        let mut before = 0.0;
        for processes in [1u32, 2, 3, 8, 32, 100, 300, 1000] {
            let (rate, bound) = (network.throughput(processes, think_s), network.bound(processes, think_s));
            prop_assert!(rate > 0.0 && rate <= bound * (1.0 + 1e-9), "{} processes: {} of {}", processes, rate, bound);
            prop_assert!(rate >= before, "{} processes: {} after {}", processes, rate, before);
            before = rate;
        }
        // Alone, a request waits for nobody.
        let alone = 1.0 / (network.unloaded_s() + think_s);
        prop_assert!((network.throughput(1, think_s) / alone - 1.0).abs() < 1e-9);
        // Loads are demands times requests, and the busiest station is the one with the most.
        let total: f64 = streams.iter().map(|stream| stream.weight).sum();
        prop_assert!((network.requests() - total).abs() < 1e-9 * total);
        let most = (0..6).flat_map(|server| [network.device_load_s(server), network.link_load_s(server)]).fold(0.0, f64::max);
        prop_assert!((network.bottleneck().unwrap().demand_s * total / most - 1.0).abs() < 1e-9);
    }
}

/// Sixteen offsets 4 MiB apart lie 32 KiB apart in a cycle of 4,128 KiB: they met two servers only, which were predicted to be all that is busy.
#[test]
fn sampled_offsets_that_fall_together_in_the_cycle_do_not_change_loads() {
    let profile = profile(&[(5e-3, 8e-9); 16], 1e-5, 8e-9);
    let layout = layout((0..16).map(|server| (server, 258 * KIB)));
    let demand = request_demand(&profile, &layout, reads(64 * KIB), Streaming::AS_TRACED, 64 * MIB);
    assert_eq!(demand.servers.len(), 16);
    let mean_s: f64 = demand.servers.iter().map(ServerDemand::device_s).sum::<f64>() / 16.0;
    for server in &demand.servers {
        // The region ends within a cycle, so its last servers have a stripe less than 16.
        let ratio = server.device_s() / mean_s;
        assert!((0.93..1.02).contains(&ratio), "server {}: {ratio}", server.server);
    }
}

/// Requests a second that processes complete on stations of constant service, each followed by a flush behind what its station has then.
fn flushing_rate(stations: usize, mean_s: f64, processes: usize, seed: u64) -> f64 {
    use rand::{Rng, SeedableRng};
    let mut draws = rand::rngs::SmallRng::seed_from_u64(seed);
    let mut free_s = vec![0.0f64; stations];
    // When each process goes on, and the station whose flush it asks for then.
    let mut processes: Vec<(f64, Option<usize>)> = vec![(0.0, None); processes];
    let (mut done, mut now_s) = (0, 0.0);
    while done < 20_000 {
        let next = (0..processes.len()).min_by(|a, b| processes[*a].0.total_cmp(&processes[*b].0)).unwrap();
        let (at_s, flush) = processes[next];
        now_s = at_s;
        processes[next] = match flush {
            Some(station) => {
                done += 1;
                (free_s[station].max(now_s), None)
            }
            None => {
                let station = draws.random_range(0..stations);
                free_s[station] = free_s[station].max(now_s) + mean_s;
                (free_s[station], Some(station))
            }
        };
    }
    f64::from(done) / now_s
}

#[test]
fn flushes_wait_behind_what_came_before_and_keep_nobody_waiting() {
    const SEED: u64 = 1;
    for stations in [1usize, 4, 8] {
        for processes in [1u32, 4, 16, 64] {
            let mut network = Network::new(stations);
            for server in 0..stations {
                let device = Work { mean_s: 0.01, mean_square_s2: 1e-4 };
                let servers = vec![ServerDemand { server, visits: 1.0, device, link: Work::default(), flushes: 1.0 }];
                let parts = vec![Part { server, device_s: 0.01, link_s: 0.0 }];
                let forks = vec![Fork { share: 1.0, parts }];
                network.add(&RequestDemand { servers, unloaded_s: 0.01, forks }, 1.0);
            }
            let (found, exact) =
                (network.throughput(processes, 0.0), flushing_rate(stations, 0.01, processes as usize, SEED));
            let error = found / exact - 1.0;
            println!("{stations} stations, {processes} processes: {found:.1} {exact:.1} {error:+.3}");
            assert!(error.abs() < 0.08, "seed {SEED}, {stations} stations, {processes} processes: {found} {exact}");
        }
    }
}
