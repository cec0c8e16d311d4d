//! How fast programs give their steps, in million steps per second on one thread: the processes of each take turns, as in a simulation.
//! Prints one JSON object for each program.
//!
//! `cargo bench -p stripewise-trace --bench programs`

use std::hint::black_box;
use std::time::Instant;
use stripewise_trace::{Benchmark, Step};

const PROGRAMS: [(&str, &str); 8] = [
    ("ior-sequential", "ior:size=4TiB,transfer=64KiB,processes=1024,op=write"),
    ("ior-random", "ior:pattern=random,size=4TiB,transfer=64KiB,processes=1024,op=write"),
    ("ior-zipf", "ior:pattern=zipf,size=4TiB,region=1GiB,transfer=64KiB,processes=1024,op=read"),
    ("ior-mixed-think", "ior:size=4TiB,transfer=64KiB,processes=1024,op=mixed,think=1ms,jitter=0.1"),
    ("hpio", "hpio:processes=1024,op=write"),
    ("btio", "btio:class=D,processes=64,op=write"),
    ("mpi-io-test", "mpi-io-test:block=65KiB,iterations=65536,processes=1024,op=read"),
    ("chombo", "chombo:boxes=1000000,processes=1024"),
];
const STEPS: u64 = 20_000_000;
/// Taken of a process before the next one's turn.
const TURN: usize = 8;

fn main() {
    // `cargo test --all-targets` runs this too, without the flag that `cargo bench` gives: once, on little, shows that it works.
    let steps = if std::env::args().any(|argument| argument == "--bench") { STEPS } else { 20_000 };
    for (name, text) in PROGRAMS {
        let program = text.parse::<Benchmark>().expect("a benchmark").program().expect("a program");
        let mut processes: Vec<_> = (0..program.processes()).map(|process| program.steps(process)).collect();
        let begin = Instant::now();
        let (mut taken, mut sum) = (0u64, 0u64);
        while taken < steps {
            let before = taken;
            for process in &mut processes {
                for step in process.by_ref().take(TURN) {
                    taken += 1;
                    sum = sum.wrapping_add(match step {
                        Step::Access(request) => request.offset.0,
                        _ => 1,
                    });
                }
            }
            if taken == before {
                break;
            }
        }
        black_box(sum);
        let value = taken as f64 / begin.elapsed().as_secs_f64() / 1e6;
        println!(r#"{{"name": "trace.programs.{name}", "value": {value:.1}, "unit": "Msteps/s"}}"#);
    }
}
