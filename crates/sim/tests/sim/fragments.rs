//! Fragments on an SSD beside a server, as iBridge has them.

use crate::script::{Script, read, run, servers, striped, uniform};
use stripewise_layout::{ByteCount, ServerId};
use stripewise_sim::{FragmentService, Scenario, ServerDetail, SimError, SimOptions, simulate};

const KIB: u64 = 1 << 10;

/// Servers 0 and 1 have their fragments on server 2.
fn beside(small_requests: bool) -> SimOptions {
    let service = FragmentService { on: ServerId(2), below: ByteCount(20 * KIB), small_requests };
    let disk = ServerDetail { fragments: Some(service), ..ServerDetail::default() };
    SimOptions { detail: vec![disk, disk, ServerDetail::default()], ..SimOptions::default() }
}

/// Bytes of each server when one request is made of files in stripes of 64 KiB over servers 0 and 1.
fn bytes_of(offset: u64, bytes: u64, options: SimOptions) -> [u64; 3] {
    let system = servers(&["hdd-7200", "hdd-7200", "sata-ssd-2012"], None);
    let program = Script::new(1, vec![vec![read(offset, bytes)]]);
    let outcome = run(&system, &program, &uniform(striped([0, 1], 64 << 10)), options);
    [0, 1, 2].map(|server| outcome.servers[server].bytes)
}

#[test]
fn short_ends_of_long_requests_go_to_the_ssd() {
    assert_eq!(bytes_of(0, 65 * KIB, beside(false)), [64 * KIB, 0, KIB]);
    assert_eq!(bytes_of(63 * KIB, 65 * KIB, beside(false)), [0, 64 * KIB, KIB]);
    // Both ends lie on server 0, together one sub-request of 14 KiB.
    assert_eq!(bytes_of(60 * KIB, 78 * KIB, beside(false)), [0, 64 * KIB, 14 * KIB]);
    // Ends of 20 KiB and more, requests no longer than a stripe, and short requests are none.
    assert_eq!(bytes_of(0, 84 * KIB, beside(false)), [64 * KIB, 20 * KIB, 0]);
    assert_eq!(bytes_of(60 * KIB, 64 * KIB, beside(false)), [4 * KIB, 60 * KIB, 0]);
    assert_eq!(bytes_of(0, 4 * KIB, beside(false)), [4 * KIB, 0, 0]);
    assert_eq!(bytes_of(0, 65 * KIB, SimOptions::default()), [64 * KIB, KIB, 0]);
}

#[test]
fn short_requests_go_there_if_that_is_asked_for() {
    assert_eq!(bytes_of(0, 4 * KIB, beside(true)), [0, 0, 4 * KIB]);
    assert_eq!(bytes_of(0, 20 * KIB, beside(true)), [20 * KIB, 0, 0]);
}

#[test]
fn an_ssd_that_is_not_there_is_named() {
    let system = servers(&["hdd-7200"], None);
    let program = Script::new(1, vec![vec![read(0, 4 * KIB)]]);
    let files = [uniform(striped([0], 64 << 10))];
    let service = FragmentService { on: ServerId(1), below: ByteCount(20 * KIB), small_requests: false };
    let detail = vec![ServerDetail { fragments: Some(service), ..ServerDetail::default() }];
    let options = SimOptions { detail, ..SimOptions::default() };
    let scenario = Scenario { system: &system, program: &program, files: &files, options };
    let refused = simulate(&scenario, &mut |_| {}).unwrap_err();
    assert_eq!(refused, SimError::Fragments { server: 0, on: ServerId(1), servers: 1 });
}
