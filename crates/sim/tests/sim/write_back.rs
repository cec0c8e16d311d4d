//! Buffered writes: the processes go on, the servers get them sorted, and the run waits for the last; synchronizations wait for those of their file.

use crate::script::{REGION_BYTES, Script, constant, run, servers, striped, uniform};
use proptest::prelude::*;
use stripewise_layout::{ByteCount, FileOffset, RequestKind, WriteClass};
use stripewise_sim::{Outcome, SimOptions, StationOrder, System};
use stripewise_trace::{FileShape, IoRequest, ProgramFile, Step};

const BLOCK: u64 = 64 << 10;

fn write(class: WriteClass, offset: u64) -> Step {
    let kind = RequestKind::Write(class);
    Step::Access(IoRequest { file: ProgramFile(0), kind, offset: FileOffset(offset), bytes: BLOCK })
}

/// Each process writes its own blocks, in this order of numbers.
fn outcome(system: &System, class: WriteClass, blocks: &[Vec<u64>], options: SimOptions) -> Outcome {
    let regions = blocks.iter().flatten().max().unwrap() * BLOCK / REGION_BYTES + 1;
    let of_process = |blocks: &Vec<u64>| blocks.iter().map(|block| write(class, block * BLOCK)).collect();
    let program = Script::new(regions, blocks.iter().map(of_process).collect());
    let every_server = striped(0..system.servers.len() as u16, BLOCK as u32);
    run(system, &program, &uniform(every_server), options)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// One server of a constant rate: the run takes as long as the bytes, however many processes write and whatever may
    /// be dirty; only a full queue makes a process wait.
    #[test]
    fn a_run_takes_as_long_as_its_bytes(
        processes in 1u64..9, each in 1u64..40, limit_blocks in prop_oneof![Just(1u64), Just(7), Just(1 << 20)],
    ) {
        let system = constant(0.001);
        let blocks: Vec<Vec<u64>> =
            (0..processes).map(|process| (process * each..(process + 1) * each).collect()).collect();
        let options = SimOptions { write_back: Some(ByteCount(limit_blocks * BLOCK)), ..SimOptions::default() };
        let found = outcome(&system, WriteClass::Buffered, &blocks, options);
        let expected_s = (processes * each * BLOCK) as f64 / 4096.0 * 0.001;
        prop_assert!((found.time_s / expected_s - 1.0).abs() < 1e-6, "{} {}", found.time_s, expected_s);
        prop_assert_eq!(found.write.bytes, processes * each * BLOCK);
        prop_assert_eq!(found.servers[0].bytes, found.write.bytes);
        let is_full = processes * each > limit_blocks;
        prop_assert_eq!(found.latency.max_s > 0.0, is_full, "{:?}", found.latency);
    }
}

#[test]
fn what_is_written_in_any_order_is_written_back_in_order_of_place() {
    let system = servers(&["hdd-7200"], None);
    // Every block once, far from the one before.
    let blocks: Vec<u64> = (0..512).map(|number| number * 197 % 512).collect();
    for order in [StationOrder::Network, StationOrder::DeviceFirst] {
        let options = SimOptions { order, ..SimOptions::default() };
        let time_s = |class| outcome(&system, class, std::slice::from_ref(&blocks), options.clone()).time_s;
        let (direct_s, buffered_s) = (time_s(WriteClass::Direct), time_s(WriteClass::Buffered));
        let transfer_s = 512.0 * BLOCK as f64 / 125e6;
        assert!(direct_s > transfer_s + 400.0 * 0.01, "{direct_s}: a seek each");
        assert!(buffered_s < 2.0 * transfer_s, "{buffered_s}: {transfer_s} s of transfer, and few seeks");
        assert_eq!(time_s(WriteClass::Synchronous), direct_s);
    }
}

#[test]
fn a_block_written_again_before_it_is_written_back_is_written_back_once() {
    let system = constant(0.001);
    // The first four are on their way when the others come.
    let blocks = vec![vec![10, 20, 30, 40, 5, 5, 5, 6]];
    let found = outcome(&system, WriteClass::Buffered, &blocks, SimOptions::default());
    assert_eq!((found.write.bytes, found.servers[0].bytes), (8 * BLOCK, 6 * BLOCK));
}

#[test]
fn without_write_back_buffered_writes_wait_as_direct_ones() {
    let system = servers(&["hdd-7200", "sata-ssd-2012"], None);
    let blocks = vec![vec![3, 9, 1, 30], vec![8, 2, 20]];
    for options in [SimOptions { write_back: None, ..SimOptions::default() }, SimOptions::testbed()] {
        let of = |class| outcome(&system, class, &blocks, options.clone());
        assert_eq!(of(WriteClass::Buffered), of(WriteClass::Direct));
    }
}

fn write_to(file: ProgramFile, block: u64) -> Step {
    let kind = RequestKind::Write(WriteClass::Buffered);
    Step::Access(IoRequest { file, kind, offset: FileOffset(block * BLOCK), bytes: BLOCK })
}

/// Ends of the program's phases, in seconds.
fn ends(found: &Outcome) -> Vec<f64> {
    found.phases.iter().map(|phase| phase.end_s).collect()
}

/// Of one server of a constant rate.
const BLOCK_S: f64 = BLOCK as f64 / 4096.0 * 0.001;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// The plain model: a server that is free from some time on takes the blocks as they come, and a synchronization waits for that time.
    #[test]
    fn a_synchronization_ends_when_the_server_has_written_what_was_dirty(
        rounds in proptest::collection::vec((0u64..12, 0u64..400_000_000, any::<bool>()), 1..12),
    ) {
        let (mut now_s, mut free_s, mut block) = (0f64, 0f64, 0);
        let (mut steps, mut expected) = (Vec::new(), Vec::new());
        for (blocks, think_ns, is_synchronized) in rounds {
            steps.extend((block..block + blocks).map(|block| write(WriteClass::Buffered, block * BLOCK)));
            block += blocks;
            if blocks > 0 {
                free_s = free_s.max(now_s) + blocks as f64 * BLOCK_S;
            }
            if is_synchronized {
                steps.push(Step::Synchronize(ProgramFile(0)));
                now_s = now_s.max(free_s);
            }
            expected.push(now_s);
            steps.extend([Step::Phase, Step::Think { nanoseconds: think_ns }]);
            now_s += think_ns as f64 * 1e-9;
        }
        expected.push(now_s.max(free_s));
        let program = Script::new(block * BLOCK / REGION_BYTES + 1, vec![steps]);
        let found = ends(&run(&constant(0.001), &program, &uniform(striped([0], BLOCK as u32)), SimOptions::default()));
        prop_assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }
}

#[test]
fn a_synchronization_waits_for_its_own_file_only() {
    let [own, other] = [ProgramFile(0), ProgramFile(1)];
    let others = (0..400).map(|block| write_to(other, 2 * block));
    let steps = others.chain([write_to(own, 0), Step::Synchronize(own), Step::Phase]).collect();
    let mut program = Script::new(1, vec![steps]);
    program.files.push(FileShape { path: "/g".into(), size_bytes: 800 * BLOCK });
    let found = ends(&run(&constant(0.001), &program, &uniform(striped([0], BLOCK as u32)), SimOptions::default()));
    // Its block is behind those that were on their way.
    assert!((found[0] - 5.0 * BLOCK_S).abs() < 1e-6 && (found[1] - 401.0 * BLOCK_S).abs() < 1e-6, "{found:?}");
}

#[test]
fn what_is_dirtied_again_on_its_way_is_waited_for_again_and_what_comes_later_is_not() {
    let own = ProgramFile(0);
    // On their way are the first four when the first is dirtied again; the other process writes meanwhile.
    let first = [0, 10, 20, 30, 0].map(|block| write_to(own, block)).into_iter();
    let first = first.chain([Step::Synchronize(own), Step::Phase]).collect();
    let pause = Step::Think { nanoseconds: (BLOCK_S * 1e9 / 2.0) as u64 };
    let later = std::iter::once(pause).chain((50..90).map(|block| write_to(own, 2 * block))).chain([Step::Phase]);
    let program = Script::new(12, vec![first, later.collect()]);
    let found = ends(&run(&constant(0.001), &program, &uniform(striped([0], BLOCK as u32)), SimOptions::default()));
    assert!((found[0] - 5.0 * BLOCK_S).abs() < 1e-6 && (found[1] - 45.0 * BLOCK_S).abs() < 1e-6, "{found:?}");
}

#[test]
fn without_write_back_a_synchronization_waits_for_nothing() {
    let steps = |ends: &[Step]| vec![[write_to(ProgramFile(0), 3)].iter().chain(ends).copied().collect()];
    let of = |ends: &[Step]| {
        let options = SimOptions { write_back: None, ..SimOptions::default() };
        run(&constant(0.001), &Script::new(1, steps(ends)), &uniform(striped([0], BLOCK as u32)), options).time_s
    };
    assert_eq!(of(&[]), of(&[Step::Synchronize(ProgramFile(0))]));
}
