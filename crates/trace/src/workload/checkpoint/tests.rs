use super::super::checks::{accesses, covers_once, extents, program, refusal};
use super::*;
use stripewise_layout::RequestKind;

#[test]
fn each_checkpoint_is_written_whole_and_the_last_is_read() {
    for alone in ["yes", "no"] {
        let text = format!(
            "checkpoint:checkpoints=3,keep=3,state=10KiB,transfer=4KiB,compute=2s,processes=5,file_per_process={alone}"
        );
        let program = program(&text);
        assert_eq!(program.files().len(), if alone == "yes" { 15 } else { 3 });
        assert!(covers_once(&*program, Direction::Write));
        let read = extents(&*program, Direction::Read);
        assert_eq!(read.iter().map(|(_, start, end)| end - start).sum::<u64>(), 5 * 10 * 1024);
        let last = if alone == "yes" { 10 } else { 2 };
        assert!(read.iter().all(|(file, ..)| *file >= last));
        // 4 + 4 + 2 KiB, thrice written and once read.
        let sizes: Vec<u64> = accesses(&*program, 4).iter().map(|request| request.bytes >> 10).collect();
        assert_eq!(sizes, [4, 4, 2].repeat(4));
    }
}

#[test]
fn computing_then_a_burst() {
    let program = program("checkpoint:checkpoints=2,state=1MiB,transfer=1MiB,compute=2s,processes=2");
    let file = |number| match program.steps(1).filter(|step| matches!(step, Step::Access(_))).nth(number) {
        Some(Step::Access(request)) => request.file.0,
        other => panic!("{other:?}"),
    };
    assert_eq!((file(0), file(1), file(2)), (0, 1, 1));
    let kinds: String = program
        .steps(1)
        .map(|step| match step {
            Step::Think { nanoseconds: 2_000_000_000 } => 't',
            Step::Barrier => 'b',
            Step::Access(IoRequest { kind: RequestKind::Write(_), .. }) => 'w',
            Step::Access(_) => 'r',
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, "tbwtbwbr");
}

#[test]
fn kept_checkpoints_are_written_over_in_turn() {
    let program = program("checkpoint:checkpoints=5,keep=2,state=1KiB,transfer=1KiB,processes=1,restart=no");
    let files: Vec<u32> = accesses(&*program, 0).iter().map(|request| request.file.0).collect();
    assert_eq!(files, [0, 1, 0, 1, 0]);
}

#[test]
fn what_cannot_be_is_refused() {
    for (text, words) in [
        ("checkpoint:checkpoints=0", "checkpoints=0 cannot be"),
        ("checkpoint:keep=0", "keep=0 cannot be"),
        ("checkpoint:state=0", "state=0B cannot be"),
        ("checkpoint:transfer=0", "transfer=0B cannot be"),
        ("checkpoint:state=8000PiB", "an offset of 63 bits"),
        ("checkpoint:compute=1h", "want a time such as"),
    ] {
        let found = refusal(text);
        assert!(found.contains(words), "{text}: {found}");
    }
}
