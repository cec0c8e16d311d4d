//! Queues whose behaviour is known by formula.

use crate::script::{Script, constant, constant_link, numbers, read, run, servers, striped, uniform};
use stripewise_sim::{SimOptions, StationOrder};
use stripewise_trace::Step;

const REQUEST: u64 = 4096;

fn assert_near(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((found / expected - 1.0).abs() < tolerance, "{what}: {found} instead of {expected}");
}

/// Poisson arrivals at a server of constant time S: the mean wait is load x S / (2 (1 - load)) (Pollaczek and Khinchine).
#[test]
fn poisson_arrivals_wait_as_in_m_d_1() {
    let service_s = 1e-3;
    for load in [0.3, 0.6, 0.8] {
        let mut next = numbers(11);
        let mut at_s = 0.0;
        let steps = (0..160_000).map(|_| {
            let share = ((next() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
            at_s += -share.ln() * service_s / load;
            vec![Step::Until { nanoseconds: (at_s * 1e9) as u64 }, read(0, REQUEST)]
        });
        let program = Script::new(1, steps.collect());
        let outcome = run(&constant(service_s), &program, &uniform(striped([0], 65536)), SimOptions::default());
        let wait_s = outcome.latency.mean_s - service_s;
        assert_near(wait_s, load * service_s / (2.0 * (1.0 - load)), 0.06, &format!("load {load}"));
    }
}

/// N processes that think for Z between requests of S each: N/(Z + S) requests a second until the server is always busy, then 1/S.
#[test]
fn a_closed_loop_with_think_time_saturates_at_the_servers_rate() {
    let (service_s, think_s) = (1e-3, 9e-3);
    for processes in [1u32, 5, 10, 11, 30] {
        let think = Step::Think { nanoseconds: (think_s * 1e9) as u64 };
        let steps = (0..processes).map(|_| (0..1000).flat_map(|_| [read(0, REQUEST), think]).collect());
        let program = Script::new(1, steps.collect());
        let outcome = run(&constant(service_s), &program, &uniform(striped([0], 65536)), SimOptions::default());
        let rate = outcome.read.requests as f64 / outcome.time_s;
        let expected = (f64::from(processes) / (think_s + service_s)).min(1.0 / service_s);
        assert_near(rate, expected, 0.01, &format!("{processes} processes"));
    }
}

/// Two stations in a row with constant times: N/(D + L) until the slower one is always busy.
#[test]
fn stations_in_a_row_go_at_the_pace_of_the_slowest() {
    for order in [StationOrder::Network, StationOrder::DeviceFirst] {
        for (device_s, link_s) in [(2e-3, 1e-3), (1e-3, 3e-3)] {
            for processes in [1u32, 2, 3, 8] {
                let mut system = constant(device_s);
                system.servers[0].link = Some(constant_link(link_s));
                let steps = (0..processes).map(|_| vec![read(0, REQUEST); 500]);
                let program = Script::new(1, steps.collect());
                let options = SimOptions { order, ..SimOptions::default() };
                let outcome = run(&system, &program, &uniform(striped([0], 65536)), options);
                let rate = outcome.read.requests as f64 / outcome.time_s;
                let expected = (f64::from(processes) / (device_s + link_s)).min(1.0 / f64::max(device_s, link_s));
                assert_near(rate, expected, 0.01, &format!("{order:?} {device_s} {link_s} {processes}"));
            }
        }
    }
}

/// Processes of one node share its link; those of two nodes have one each.
#[test]
fn a_nodes_processes_share_its_link() {
    let mut system = servers(&["nvme"; 8], None);
    system.client_link = Some(constant_link(1e-3));
    let steps = (0..8u64).map(|process| vec![read(process << 20, REQUEST); 200]);
    let mut program = Script::new(8, steps.collect());
    let placement = uniform(striped([0], 1 << 20));
    for nodes in [1, 2, 4] {
        program.nodes = nodes;
        let outcome = run(&system, &program, &placement, SimOptions::default());
        assert_near(outcome.time_s, 1600.0 * 1e-3 / f64::from(nodes), 0.01, &format!("{nodes} nodes"));
        let first = SimOptions { order: StationOrder::DeviceFirst, ..SimOptions::default() };
        assert!(run(&system, &program, &placement, first).time_s < 0.5 * outcome.time_s, "no client links there");
    }
}

#[test]
fn a_disk_serves_its_requests_one_after_the_other() {
    let system = servers(&["hdd-7200"], Some("gigabit"));
    for processes in [1u64, 4] {
        let steps = (0..processes).map(|process| {
            let place = |number| (number * processes + process) * 7 % 1000 * (1 << 20);
            (0..50).map(|number| read(place(number), 1 << 20)).collect()
        });
        let program = Script::new(1000, steps.collect());
        let outcome = run(&system, &program, &uniform(striped([0], 65536)), SimOptions::default());
        let (device_s, link_s) = (12.66e-3 + 1048576.0 / 125e6, 300e-6 + 1048576.0 / 120e6);
        let requests = processes as f64 * 50.0;
        // One process waits for both stations in turn; with several the disk never rests.
        let expected_s = if processes == 1 { requests * (device_s + link_s) } else { requests * device_s + link_s };
        assert_near(outcome.time_s, expected_s, 1e-6, &format!("{processes} processes"));
    }
}

/// Utilisation: what a device is busy is what all requests ask of it, whatever they wait for.
#[test]
fn devices_are_busy_for_what_is_asked_of_them() {
    let requests = 3 * 200;
    let steps =
        || (0..3u64).map(|process| (0..200).map(|n| read(((n * 3 + process) * 7 % 64) << 20, REQUEST)).collect());
    for (name, expected_s) in [
        // Reads elsewhere each time: startup and transfer each; of an SSD the channels, four side by side, are the busiest part.
        ("hdd-7200", f64::from(requests) * (12.66e-3 + REQUEST as f64 / 125e6)),
        ("sata-ssd-2012", f64::from(requests) * 80e-6 / 4.0),
    ] {
        let system = servers(&[name], Some("gigabit"));
        let outcome =
            run(&system, &Script::new(64, steps().collect()), &uniform(striped([0], 1 << 20)), SimOptions::default());
        assert_near(outcome.servers[0].device_busy_s, expected_s, 1e-6, name);
    }
}
