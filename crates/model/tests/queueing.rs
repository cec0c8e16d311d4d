//! The queueing model against exact results and against a plain event simulation.

use stripewise_layout::{Direction, Layout, Order, ServerClass, ServerId};
use stripewise_model::queueing::{Network, Streaming, request_demand};
use stripewise_model::{Line, NetworkProfile, NetworkSource, PROFILE_VERSION, Profile, ServerProfile};
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
        }
    });
    Profile {
        version: PROFILE_VERSION,
        cluster: "testbed".to_owned(),
        emulated: false,
        measured_at: "2024-01-01T00:00:00Z".to_owned(),
        servers: servers.collect(),
        network: NetworkProfile { e_s, t_s_per_byte, source: NetworkSource::Given },
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
    AccessClass { direction: Direction::Read, request_bytes, order: Order::Random }
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
    use stripewise_layout::RegionOffset;

    /// SplitMix64.
    pub(super) struct Random(pub(super) u64);

    impl Random {
        pub(super) fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut bits = self.0;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            bits ^ (bits >> 31)
        }

        /// In [0, 1).
        pub(super) fn unit(&mut self) -> f64 {
            (self.next() >> 11) as f64 / (1u64 << 53) as f64
        }

        pub(super) fn below(&mut self, bound: u64) -> u64 {
            (self.unit() * bound as f64) as u64
        }
    }

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
        let mut random = Random(seed);
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
                let line = profile.servers[server].line(stream.class.direction, stream.class.order);
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

fn cases() -> Vec<(String, Profile, Vec<Stream>)> {
    let mut cases = Vec::new();
    let whole = |server: u16, weight: f64, bytes: u64| Stream {
        weight,
        class: reads(bytes),
        layout: layout([(server, 4 * MIB)]),
    };
    let flat = profile(&[(5e-3, 1e-8); 16], 0.0, 0.0);
    for (name, profile) in [("flat", flat), ("testbed", testbed())] {
        for bytes in [64 * KIB, 256 * KIB, MIB, 4 * MIB] {
            let size = bytes / KIB;
            cases.push((
                format!("{name} whole {size}K balanced disks"),
                profile.clone(),
                (0..12).map(|s| whole(s, 1.0, bytes)).collect(),
            ));
            cases.push((
                format!("{name} whole {size}K, ssds 5x"),
                profile.clone(),
                (0..16).map(|s| whole(s, if s < 12 { 1.0 } else { 5.0 }, bytes)).collect(),
            ));
            cases.push((
                format!("{name} def {size}K"),
                profile.clone(),
                vec![Stream { weight: 1.0, class: reads(bytes), layout: layout((0..16).map(|s| (s, 64 * KIB))) }],
            ));
            cases.push((
                format!("{name} 12 disks {size}K"),
                profile.clone(),
                vec![Stream {
                    weight: 1.0,
                    class: reads(bytes),
                    layout: layout((0..12).map(|s| (s, (bytes / 12).next_multiple_of(4096)))),
                }],
            ));
            cases.push((
                format!("{name} 4 ssds {size}K half, disks {size}K half"),
                profile.clone(),
                vec![
                    Stream { weight: 1.0, class: reads(bytes), layout: layout((12..16).map(|s| (s, bytes / 4))) },
                    Stream {
                        weight: 1.0,
                        class: reads(bytes),
                        layout: layout((0..12).map(|s| (s, (bytes / 12).next_multiple_of(4096)))),
                    },
                ],
            ));
            cases.push((
                format!("{name} groups of 4 {size}K"),
                profile.clone(),
                (0..12)
                    .map(|s| Stream {
                        weight: 1.0,
                        class: reads(bytes),
                        layout: layout((0..4).map(|i| ((s + i * 5) % 12, bytes / 4))),
                    })
                    .collect(),
            ));
            cases.push((
                format!("{name} pairs {size}K over whole"),
                profile.clone(),
                (0..12)
                    .flat_map(|s| {
                        [
                            Stream {
                                weight: 1.0,
                                class: reads(bytes),
                                layout: layout([(s, bytes / 2), ((s + 5) % 12, bytes / 2)]),
                            },
                            whole(s, 1.0, bytes),
                        ]
                    })
                    .collect(),
            ));
        }
        cases.push((
            format!("{name} mixed sizes whole"),
            profile.clone(),
            (0..12).flat_map(|s| [whole(s, 1.0, MIB), whole(s, 4.0, 64 * KIB)]).collect(),
        ));
        cases.push((
            format!("{name} mixed sizes def"),
            profile.clone(),
            [MIB, 64 * KIB, 256 * KIB]
                .iter()
                .map(|b| Stream { weight: 1.0, class: reads(*b), layout: layout((0..16).map(|s| (s, 64 * KIB))) })
                .collect(),
        ));
    }
    cases
}

#[test]
fn the_estimate_is_near_an_event_simulation() {
    let mut errors = Vec::new();
    for (name, profile, streams) in cases() {
        let network = network(&profile, &streams, 4 * MIB);
        let mut line = String::new();
        for processes in [1u32, 2, 4, 8, 16, 32, 64, 128] {
            let simulated = simulation::rate(&profile, &streams, 4 * MIB, processes, 0.0, 20_000, 7);
            let predicted = network.throughput(processes, 0.0);
            let bound = network.bound(processes, 0.0);
            line += &format!(" {:>6.1}({:.2})", (predicted / simulated - 1.0) * 100.0, simulated / bound);
            errors.push((predicted / simulated - 1.0).abs());
        }
        println!("{name:<45}{line}");
    }
    errors.sort_by(f64::total_cmp);
    let at = |share: f64| errors[((errors.len() - 1) as f64 * share) as usize] * 100.0;
    println!(
        "{} cases: median {:.1} p75 {:.1} p90 {:.1} p95 {:.1} max {:.1}",
        errors.len(),
        at(0.5),
        at(0.75),
        at(0.9),
        at(0.95),
        at(1.0)
    );
    assert!(at(0.5) < 1.0 && at(0.9) < 10.0, "{errors:?}");
}
