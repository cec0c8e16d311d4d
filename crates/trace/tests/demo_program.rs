//! The demo's MPI program and the workload generator make the same requests: a plan made from a synthetic trace is a plan for the
//! program. The program prints its requests without starting MPI, but its compiler wrapper is an MPI's.

use std::path::Path;
use std::process::Command;
use stripewise_layout::{ByteCount, Direction};
use stripewise_trace::workload::{Pattern, Workload};

#[test]
fn the_program_and_the_generator_make_the_same_requests() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/zipf_io.c");
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("zipf_io");
    let compiler = Command::new("mpicc.mpich").arg("-O1").arg("-o").arg(&program).arg(&source).arg("-lm").status();
    assert!(compiler.expect("mpicc.mpich: run setup/install").success());

    for (size, region, request, exponent, seed) in [
        (1u64 << 30, 4u64 << 20, 64u64 << 10, 0.8, 1u64),
        (1 << 30, 4 << 20, 4 << 20, 0.8, 42),
        (5_000_000, 300_000, 1_000, 1.5, u64::MAX),
        (1 << 20, 1 << 20, 8, 0.0, 0),
    ] {
        let workload = Workload {
            pattern: Pattern::Zipf { exponent, region_size: ByteCount(region) },
            file_size: ByteCount(size),
            request_size: ByteCount(request),
            direction: Direction::Read,
            ranks: 3,
            requests_per_rank: 1000,
            seed,
        };
        let generator = workload.generator().unwrap();
        let expected: String = (0..3)
            .flat_map(|rank| generator.requests(rank).map(move |request| format!("{rank} {}\n", request.offset.0)))
            .collect();
        let printed = Command::new(&program)
            .args(["--print-requests", "1000", "--ranks", "3"])
            .args(["--size", &size.to_string(), "--region", &region.to_string(), "--request", &request.to_string()])
            .args(["--grain", "8", "--zipf", &exponent.to_string(), "--seed", &seed.to_string()])
            .output()
            .unwrap();
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        assert!(printed.stdout == expected.as_bytes(), "requests differ for {workload:?}");
    }
}
