use super::*;
use crate::trace::Trace;
use stripewise_layout::Direction;
use stripewise_layout::SplitMix64;

fn zipf(exponent: f64) -> Workload {
    Workload {
        pattern: Pattern::Zipf { exponent, region_size: ByteCount(4 << 20) },
        file_size: ByteCount(1 << 30),
        request_size: ByteCount(64 << 10),
        direction: Direction::Read,
        ranks: 4,
        requests_per_rank: 50_000,
        seed: 42,
    }
}

/// A C program with the same definition printed these.
#[test]
fn the_sequence_is_the_documented_one() {
    let mut random = SplitMix64::new(0);
    assert_eq!([random.next(), random.next()], [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
    let generator = zipf(0.8).generator().unwrap();
    let places = |rank| generator.requests(rank).map(|request| request.offset.0 >> 16);
    assert_eq!(places(0).take(4).collect::<Vec<_>>(), [13_005, 2_456, 8_044, 10_443]);
    assert_eq!(places(3).take(4).collect::<Vec<_>>(), [15_745, 6_490, 15_392, 8_004]);
    let digest = |rank| places(rank).fold(0u64, |digest, place| digest.wrapping_mul(31).wrapping_add(place));
    assert_eq!([digest(0), digest(3)], [10_948_157_683_335_090_644, 11_376_126_666_976_339_816]);
}

#[test]
fn regions_are_as_popular_as_zipf_says() {
    for exponent in [0.0, 0.8, 1.5] {
        let workload = zipf(exponent);
        let generator = workload.generator().unwrap();
        let mut counts = vec![0f64; 256];
        for request in (0..4).flat_map(|rank| generator.requests(rank)) {
            assert!(request.offset.0.is_multiple_of(request.bytes) && request.bytes == 64 << 10);
            counts[(request.offset.0 / (4 << 20)) as usize] += 1.0;
        }
        counts.sort_by(|left, right| right.total_cmp(left));
        let total: f64 = (1..=256).map(|k| f64::from(k).powf(-exponent)).sum();
        for (k, count) in counts.iter().enumerate().take(8) {
            let expected = 200_000.0 * (k as f64 + 1.0).powf(-exponent) / total;
            // Six standard deviations; sorting biases the uniform case upward.
            assert!((count - expected).abs() < 6.0 * expected.sqrt() + 60.0, "{exponent} {k}: {count} {expected}");
        }
    }
}

#[test]
fn sequential_and_strided_cover_the_file_once() {
    for pattern in [Pattern::Sequential, Pattern::Strided] {
        let workload = Workload { pattern, requests_per_rank: 4096, ..zipf(0.8) };
        let generator = workload.generator().unwrap();
        let mut places: Vec<u64> =
            (0..4).flat_map(|rank| generator.requests(rank).map(|request| request.offset.0)).collect();
        if pattern == Pattern::Sequential {
            assert!(places.is_sorted());
        }
        places.sort_unstable();
        assert_eq!(places, (0..16_384).map(|index| index << 16).collect::<Vec<u64>>());
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let refuse = |workload: Workload| workload.generator().unwrap_err().to_string();
    assert!(refuse(Workload { request_size: ByteCount(8 << 20), ..zipf(0.8) }).contains("8MiB do not fit a region"));
    assert!(refuse(Workload { request_size: ByteCount(0), ..zipf(0.8) }).contains("0B"));
    assert!(refuse(Workload { file_size: ByteCount(1 << 20), ..zipf(0.8) }).contains("the file of 1MiB"));
    assert!(refuse(Workload { ranks: 0, ..zipf(0.8) }).contains("0 ranks"));
    assert!(refuse(zipf(f64::NAN)).contains("NaN"));
}

#[test]
fn a_synthetic_trace_holds_the_requests() {
    let directory = tempfile::tempdir().unwrap();
    let generator = Workload { requests_per_rank: 100, ..zipf(0.8) }.generator().unwrap();
    write_trace(&generator, &TraceShape { nodes: 2, ..TraceShape::default() }, directory.path()).unwrap();
    let trace = Trace::open(directory.path()).unwrap();
    assert_eq!(
        (&trace.warnings[..], trace.mpi_size(), &trace.nodes[..]),
        (&[][..], 4, &["node0".into(), "node1".into()][..])
    );
    assert_eq!(trace.origin_unix_ns(), TraceShape::default().start_unix_ns);
    for (rank, process) in trace.process_indices().enumerate() {
        assert_eq!(trace.process(process).mpi_rank, Some(rank as u32));
        let found: Vec<u64> =
            trace.events_of(process).filter(|event| event.operation().is_data()).map(|event| event.offset.0).collect();
        assert_eq!(found, generator.requests(rank as u32).map(|request| request.offset.0).collect::<Vec<_>>());
    }
}

#[test]
fn a_generator_is_a_program() {
    use crate::program::{Program, Step};
    let generator = Workload { requests_per_rank: 100, ..zipf(0.8) }.generator().unwrap();
    assert_eq!((generator.processes(), generator.nodes(), generator.phases()), (4, 1, 1));
    assert_eq!(generator.files()[0].size_bytes, 1 << 30);
    for rank in 0..4 {
        let steps = Program::steps(&generator, rank).map(|step| match step {
            Step::Access(request) => Request { offset: request.offset, bytes: request.bytes },
            other => panic!("{other:?}"),
        });
        assert!(steps.eq(generator.requests(rank)));
    }
}
