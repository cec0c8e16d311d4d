//! What a request of 4 MiB over eight servers takes that each need 5 ms for a sub-request, in one thread and in many at once:
//!
//!     cargo bench -p stripewise-broker --bench parallel
//!
//! The servers end a sub-request 5 ms after it was submitted. They have no threads and move no byte, so that neither the scheduler's work for them nor
//! memory's speed has a part in it. Floor: one sub-request alone, measured in the same way. Medians over all requests of all threads in milliseconds, a JSON object for each line. Goal: a ratio of at most 1.2.

#[allow(unreachable_pub, dead_code, reason = "shared with tests")]
#[path = "../tests/hooked/server.rs"]
mod hooked;
#[allow(dead_code, reason = "shared with tests")]
#[path = "../tests/striped/world.rs"]
mod world;

use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};
use stripewise_layout::{Direction, FileOffset};
use stripewise_store::client::ClientOptions;
use stripewise_store::file::StripedFile;

const SERVERS: u16 = 8;
const STRIPE: usize = 512 << 10;
const SUB_REQUEST: Duration = Duration::from_millis(5);
const ROUNDS: usize = 15;
const MAX_THREADS: usize = 32;

/// Median of what a request of `bytes` takes while as many threads as that make one each, ms.
fn median_ms(file: &StripedFile, direction: Direction, bytes: usize, threads: usize) -> f64 {
    let (together, times) = (Barrier::new(threads), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (together, times) = (&together, &times);
            scope.spawn(move || {
                let mut buffer = vec![0; bytes];
                let at = FileOffset((thread * bytes) as u64);
                for _ in 0..ROUNDS {
                    together.wait();
                    let begun = Instant::now();
                    let moved = match direction {
                        Direction::Read => file.read_at(at, &mut [IoSliceMut::new(&mut buffer)]),
                        Direction::Write => file.write_at(at, &[IoSlice::new(&buffer)]),
                    };
                    times.lock().unwrap().push(begun.elapsed().as_secs_f64() * 1e3);
                    assert_eq!(moved.expect("a request"), bytes);
                }
            });
        }
    });
    let mut times = times.into_inner().unwrap();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let world = world::World::new(usize::from(SERVERS));
    let _broker = world.broker();
    let hold = || -> hooked::Held {
        let end = Instant::now() + SUB_REQUEST;
        Box::new(move || std::thread::sleep(end.saturating_duration_since(Instant::now())))
    };
    hooked::hold(&world.root, Arc::new(hold), false);
    let client = world.client_with(ClientOptions { open_server: hooked::OPEN_HELD, ..ClientOptions::default() });
    let stripes: Vec<(u16, u32)> = (0..SERVERS).map(|server| (server, STRIPE as u32)).collect();
    let (_stub, file) = world.create_unnamed(&client, world::uniform(256 << 20, &stripes));
    let request = STRIPE * usize::from(SERVERS);
    // Placed, as long as any thread reads, and every object open.
    median_ms(&file, Direction::Write, request, MAX_THREADS);
    for (name, direction) in [("read", Direction::Read), ("write", Direction::Write)] {
        for threads in [1, 8, MAX_THREADS] {
            let floor = median_ms(&file, direction, STRIPE, 1);
            let value = median_ms(&file, direction, request, threads);
            let ratio = value / floor;
            println!(
                r#"{{"name": "parallel.{name}.{threads}", "value": {value:.2}, "unit": "ms", "floor": {floor:.2}, "ratio": {ratio:.3}}}"#
            );
        }
    }
}
