use super::super::checks::{accesses, covers_once, program, refusal};
use super::*;
use proptest::prelude::*;
use stripewise_layout::Direction;

/// NPB's sizes: grid x grid x grid x 5 doubles for each of the outputs. H2DP section 5.2.3: class D is 135.8 GB; BT-IO's report gives 1.7
/// GB for class B and 6.8 GB for class C.
#[test]
fn totals_are_those_of_the_classes() {
    for (class, bytes) in [("A", 419_430_400u64), ("B", 1_697_932_800), ("C", 6_802_444_800), ("D", 135_834_624_000)] {
        let program = program(&format!("btio:class={class},op=write"));
        assert_eq!(program.files()[0].size_bytes, bytes, "{class}");
    }
    // Every request of class A on 4 processes, and class C's first process: the shares are equal where 2 divides the grid.
    let program = program("btio:class=A,processes=4,op=both");
    for process in 0..4 {
        let bytes: u64 = accesses(&*program, process).iter().map(|request| request.bytes).sum();
        assert_eq!(bytes, 2 * 419_430_400 / 4);
    }
}

proptest! {
    #[test]
    fn every_point_is_written_and_read_once(side in 1u32..5, class in proptest::sample::select(&["S", "W"][..]), full: bool) {
        let subtype = if full { "full" } else { "simple" };
        let text = format!("btio:class={class},subtype={subtype},processes={},time_steps=10,op=both,buffer=10KiB", side * side);
        let program = program(&text);
        prop_assert!(covers_once(&*program, Direction::Write) && covers_once(&*program, Direction::Read));
    }
}

/// The cells of a process, drawn from NPB's loop over cells rather than from the closed form.
#[test]
fn cells_follow_the_diagonal() {
    let program = program("btio:class=S,processes=9,time_steps=5,op=write");
    for process in 0..9u64 {
        let (mut x, mut y) = (process % 3, process / 3);
        let mut expected = Vec::new();
        for z in 0..3 {
            for plane in 0..4 {
                for row in 0..4 {
                    let point = 4 * x + 12 * (4 * y + row + 12 * (4 * z + plane));
                    expected.push((point * 40, 4 * 40));
                }
            }
            (x, y) = ((x + 1) % 3, (y + 2) % 3);
        }
        let made = accesses(&*program, process as u32);
        assert_eq!(made.iter().map(|request| (request.offset.0, request.bytes)).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn computing_comes_before_each_output_only() {
    let program = program("btio:class=S,processes=4,time_steps=15,compute=7ms,op=both");
    let thinks = program.steps(3).filter(|step| matches!(step, Step::Think { nanoseconds: 7_000_000 })).count();
    let barriers = program.steps(3).filter(|step| *step == Step::Barrier).count();
    assert_eq!((thinks, barriers), (3, 5));
}

#[test]
fn what_cannot_be_is_refused() {
    for (text, words) in [
        ("btio:processes=5", "processes=5 cannot be; want a square number; 4 and 9 are near"),
        ("btio:class=S,processes=25", "processes=25 cannot be; want at most 16"),
        ("btio:write_interval=0", "write_interval=0 cannot be; want 1 to 200"),
        ("btio:write_interval=201", "write_interval=201 cannot be"),
        ("btio:class=G", "want one of S, W, A, B, C, D, E, F"),
        ("btio:class=F,time_steps=4000000000,write_interval=1", "time_steps=4000000000 cannot be"),
    ] {
        let found = refusal(text);
        assert!(found.contains(words), "{text}: {found}");
    }
}
