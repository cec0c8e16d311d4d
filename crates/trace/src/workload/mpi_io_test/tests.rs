use super::super::checks::{accesses, covers_once, program, refusal};
use super::*;
use proptest::prelude::*;
use stripewise_layout::Direction;

proptest! {
    #[test]
    fn the_blocks_of_an_iteration_lie_side_by_side(
        processes in 1u32..9, iterations in 1u32..9, block in 1u64..100, offset in 0u64..10,
    ) {
        let text = format!("mpi-io-test:processes={processes},iterations={iterations},block={block},offset={offset}");
        let program = program(&text);
        for process in 0..processes {
            let made = accesses(&*program, process);
            prop_assert_eq!(made.len() as u32, 2 * iterations);
            for (number, request) in made.iter().enumerate() {
                let round = number as u64 % u64::from(iterations);
                let place = offset + (round * u64::from(processes) + u64::from(process)) * block;
                prop_assert_eq!((request.offset.0, request.bytes), (place, block));
            }
        }
        if offset == 0 {
            prop_assert!(covers_once(&*program, Direction::Read) && covers_once(&*program, Direction::Write));
        }
    }
}

/// iBridge: 10 GB by blocks of 65 KiB.
#[test]
fn the_size_gives_the_iterations() {
    let program = program("mpi-io-test:block=65KiB,size=10GB,processes=64,op=read");
    assert_eq!(accesses(&*program, 0).len(), 2347);
    assert_eq!(program.files()[0].size_bytes, 2347 * 64 * 65 * 1024);
    assert_eq!(program.steps(0).filter(|step| *step == Step::Barrier).count(), 2346);
}

#[test]
fn without_barriers_only_the_passes_meet() {
    let program = program("mpi-io-test:block=64KiB,iterations=10,barrier=no,op=both,repetitions=2");
    assert_eq!(program.steps(0).filter(|step| *step == Step::Barrier).count(), 3);
}

#[test]
fn what_cannot_be_is_refused() {
    for (text, words) in [
        ("mpi-io-test:block=0", "block=0B cannot be"),
        ("mpi-io-test:iterations=0", "iterations=0 cannot be; want 1 to 2^32 - 1 iterations of 512MiB"),
        ("mpi-io-test:size=1MiB", "size=1MiB cannot be; want 1 to 2^32 - 1 iterations of 512MiB"),
        ("mpi-io-test:size=1GiB,iterations=2", "size=1GiB cannot be; want `size` or `iterations`, not both"),
        ("mpi-io-test:block=8000PiB", "an offset of 63 bits"),
        ("mpi-io-test:iterations=4000000000,repetitions=2", "repetitions=2 cannot be; want fewer"),
    ] {
        let found = refusal(text);
        assert!(found.contains(words), "{text}: {found}");
    }
}
