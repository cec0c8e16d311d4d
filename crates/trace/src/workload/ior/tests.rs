use super::super::Benchmark;
use super::super::checks::{accesses, program, refusal};
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

proptest! {
    /// Every byte once in each pass, where IOR's formula says.
    #[test]
    fn a_pass_covers_the_file_once(
        processes in 1u32..6, segments in 1u64..5, per_block in 1u64..5, transfer in 1u64..100,
        alone: bool, random: bool, seed: u64,
    ) {
        let block = per_block * transfer;
        let pattern = if random { "random" } else { "sequential" };
        let alone_word = if alone { "yes" } else { "no" };
        let text = format!(
            "ior:pattern={pattern},block={block},segments={segments},transfer={transfer},processes={processes},\
             file_per_process={alone_word},op=both,seed={seed}"
        );
        let program = program(&text);
        let share = block * segments;
        prop_assert_eq!(program.files().len(), if alone { processes as usize } else { 1 });
        for file in program.files() {
            prop_assert_eq!(file.size_bytes, if alone { share } else { share * u64::from(processes) });
        }
        let mut found: BTreeMap<(bool, u32, u64), u32> = BTreeMap::new();
        for process in 0..processes {
            let made = accesses(&*program, process);
            prop_assert_eq!(made.len() as u64, 2 * segments * per_block);
            for (number, request) in made.iter().enumerate() {
                prop_assert_eq!(request.bytes, transfer);
                *found.entry((request.direction() == Direction::Read, request.file.0, request.offset.0)).or_insert(0) += 1;
                if !random {
                    let number = number as u64 % (segments * per_block);
                    let (segment, within) = (number / per_block, number % per_block * transfer);
                    let blocks = if alone { segment } else { segment * u64::from(processes) + u64::from(process) };
                    prop_assert_eq!(request.offset.0, blocks * block + within);
                }
            }
        }
        prop_assert!(found.values().all(|count| *count == 1));
        prop_assert_eq!(found.len() as u64, 2 * u64::from(processes) * segments * per_block);
    }

    #[test]
    fn texts_read_as_they_print(
        a in 0.0..4.0, size in 1u64..1 << 50, transfer in 1u64..1 << 30, phases in 1u32..9, reads in 0.0..1.0, think in 0u64..1 << 40,
        alone: bool, seed: u64, nodes in proptest::option::of(1u32..9), requests in proptest::option::of(1u64..99),
    ) {
        let run = Run {
            nodes, seed, think: std::time::Duration::from_nanos(think), file: "/scratch/a=b:c".to_owned(), ..Run::default()
        };
        let ior = Ior {
            pattern: IorPattern::Zipf, a, phases, size: Some(ByteCount(size)), transfer: ByteCount(transfer), requests,
            file_per_process: alone, op: IorOperation::Mixed, reads, run, ..Ior::default()
        };
        let benchmark = Benchmark::Ior(ior);
        prop_assert_eq!(benchmark.to_string().parse::<Benchmark>(), Ok(benchmark));
    }
}

/// The modified IOR is the documented sequence, which the C program makes too.
#[test]
fn zipf_is_the_documented_sequence() {
    let text = "ior:pattern=zipf,a=0.8,size=1GiB,region=4MiB,transfer=64KiB,processes=4,op=read,seed=42";
    let program = program(text);
    let workload = super::super::Workload {
        pattern: super::super::Pattern::Zipf { exponent: 0.8, region_size: ByteCount(4 << 20) },
        file_size: ByteCount(1 << 30),
        request_size: ByteCount(64 << 10),
        direction: Direction::Read,
        ranks: 4,
        requests_per_rank: 4096,
        seed: 42,
    };
    let generator = workload.generator().unwrap();
    for process in 0..4 {
        let expected: Vec<u64> = generator.requests(process).map(|request| request.offset.0).collect();
        let made: Vec<u64> = accesses(&*program, process).iter().map(|request| request.offset.0).collect();
        assert_eq!(made, expected);
    }
}

#[test]
fn each_phase_has_its_own_popular_regions() {
    let text =
        "ior:pattern=zipf,a=1.2,size=1GiB,region=4MiB,transfer=64KiB,processes=4,phases=4,op=both,repetitions=2,seed=5";
    let program = program(text);
    assert_eq!(program.phases(), 8);
    let mut counts = vec![BTreeMap::<u64, u64>::new(); 8];
    for process in 0..4 {
        let (mut phase, mut barriers) = (0, 0);
        for step in program.steps(process) {
            match step {
                Step::Access(request) => *counts[phase].entry(request.offset.0 / (4 << 20)).or_insert(0) += 1,
                Step::Phase => phase += 1,
                Step::Barrier => barriers += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((phase, barriers), (7, 8));
    }
    let popular: Vec<BTreeSet<u64>> = counts
        .iter()
        .map(|counts| {
            let mut regions: Vec<(u64, u64)> = counts.iter().map(|(region, count)| (*count, *region)).collect();
            regions.sort_unstable();
            regions.iter().rev().take(8).map(|(_, region)| *region).collect()
        })
        .collect();
    for phase in 0..4 {
        for other in 0..phase {
            assert!(popular[phase].is_disjoint(&popular[other]), "{phase} {other}");
        }
        // The second repetition is the first again.
        assert_eq!(counts[phase], counts[phase + 4]);
    }
}

#[test]
fn a_mix_has_its_share_of_reads_and_the_offsets_of_a_pass() {
    let mixed = program("ior:pattern=random,size=64MiB,transfer=4KiB,processes=4,op=mixed,reads=0.25");
    let read = program("ior:pattern=random,size=64MiB,transfer=4KiB,processes=4,op=read");
    let mut reads = 0;
    for process in 0..4 {
        let (made, plain) = (accesses(&*mixed, process), accesses(&*read, process));
        reads += made.iter().filter(|request| request.direction() == Direction::Read).count();
        assert!(made.iter().zip(&plain).all(|(left, right)| left.offset == right.offset) && made.len() == plain.len());
    }
    // 16,384 requests; six standard deviations are 333.
    assert!((reads as f64 - 4096.0).abs() < 333.0, "{reads}");
}

#[test]
fn reordered_reads_are_those_of_the_next_node() {
    let program = program("ior:block=4MiB,transfer=1MiB,processes=8,nodes=4,reorder=yes,op=both");
    for process in 0..8u32 {
        let made = accesses(&*program, process);
        let (writes, reads) = made.split_at(4);
        assert_eq!(writes[0].offset.0, u64::from(process) * (4 << 20));
        assert_eq!(reads[0].offset.0, u64::from((process + 2) % 8) * (4 << 20));
    }
}

#[test]
fn processes_march_through_a_file_together() {
    let program = program("ior:size=64MiB,block=1MiB,transfer=1MiB,processes=4,op=write,requests=20");
    for process in 0..4u64 {
        let offsets: Vec<u64> =
            accesses(&*program, process as u32).iter().map(|request| request.offset.0 >> 20).collect();
        let expected: Vec<u64> = (0..20).map(|number| (number % 16) * 4 + process).collect();
        assert_eq!(offsets, expected);
    }
}

#[test]
fn think_times_follow_requests_and_stay_within_the_jitter() {
    let program = program("ior:block=1MiB,transfer=256KiB,processes=2,op=write,think=1ms,jitter=0.5");
    for process in 0..2 {
        let steps: Vec<Step> = program.steps(process).collect();
        assert_eq!(steps.len(), 8);
        for pair in steps.chunks(2) {
            assert!(matches!(pair[0], Step::Access(_)));
            assert!(matches!(pair[1], Step::Think { nanoseconds: 500_000..=1_500_000 }), "{pair:?}");
        }
        assert_eq!(program.steps(process).collect::<Vec<_>>(), steps);
    }
    let steps = |process| program.steps(process).collect::<Vec<_>>();
    assert_ne!(steps(0), steps(1));
}

#[test]
fn what_does_not_fit_is_refused_by_key_and_value() {
    for (text, words) in [
        ("ior:transfer=0", "transfer=0B cannot be; want at least 1 byte"),
        ("ior:block=1MiB,transfer=300KiB", "block=1MiB cannot be; want a multiple of transfer=300KiB"),
        ("ior:size=1MiB,transfer=64KiB", "size=1MiB cannot be; want at least a transfer of 64KiB for each of 32"),
        ("ior:size=1GiB,block=1MiB,segments=2", "size=1GiB cannot be; want two of"),
        ("ior:size=1GiB,block=1GiB", "size=1GiB cannot be; want at least one segment: 32 blocks of 1GiB"),
        ("ior:segments=0", "segments=0 cannot be"),
        ("ior:block=4ZiB", "want a size such as"),
        ("ior:block=4096PiB", "an offset of 63 bits"),
        ("ior:phases=2", "phases=2 cannot be; want 1; only pattern=zipf"),
        ("ior:pattern=zipf,size=32MiB,region=64MiB", "region=64MiB cannot be; want at most the file of 32MiB"),
        ("ior:pattern=zipf,size=1GiB,region=1MiB,transfer=2MiB", "region=1MiB cannot be; want at least transfer=2MiB"),
        ("ior:pattern=zipf,size=128MiB,phases=3", "phases=3 cannot be; want at most 2"),
        ("ior:a=-1", "Zipf exponent of -1"),
        ("ior:op=mixed,reads=2", "reads=2 cannot be"),
        ("ior:processes=0", "processes=0 cannot be"),
        ("ior:processes=4,nodes=5", "nodes=5 cannot be; want 1 to 4 nodes"),
        ("ior:repetitions=0", "repetitions=0 cannot be"),
        ("ior:jitter=2", "jitter=2 cannot be"),
        ("ior:requests=0", "requests=0 cannot be"),
    ] {
        let found = refusal(text);
        assert!(found.contains(words), "{text}: {found}");
    }
}
