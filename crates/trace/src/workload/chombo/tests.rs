use super::super::checks::{accesses, covers_once, program, refusal};
use std::collections::BTreeSet;
use stripewise_layout::Direction;

#[test]
fn levels_of_boxes_cover_the_file_once() {
    for processes in [1, 3, 32, 700] {
        let program = program(&format!("chombo:processes={processes},boxes=100,levels=3,op=both,seed=9"));
        assert!(covers_once(&*program, Direction::Write) && covers_once(&*program, Direction::Read), "{processes}");
    }
}

#[test]
fn sizes_are_those_of_boxes_and_mixed() {
    let program = program("chombo:processes=8,boxes=256,levels=2,growth=4,max_box=32,block_factor=8,components=5");
    let mut sizes = BTreeSet::new();
    let mut boxes = 0;
    for process in 0..8 {
        for request in accesses(&*program, process) {
            if request.bytes.is_multiple_of(8 * 8 * 8 * 40) {
                boxes += 1;
                sizes.insert(request.bytes);
            }
        }
    }
    assert_eq!(boxes, 256 + 1024);
    // Products of three of 8, 16, 24 and 32: 16 volumes.
    assert_eq!(sizes.len(), 16);
    assert_eq!((sizes.first(), sizes.last()), (Some(&(512 * 40)), Some(&(32_768 * 40))));
}

#[test]
fn processes_have_about_equal_shares_side_by_side() {
    let program = program("chombo:processes=16,boxes=2000,levels=1");
    let total: u64 = program.files()[0].size_bytes;
    for process in 0..16 {
        let made = accesses(&*program, process);
        let bytes: u64 = made.iter().map(|request| request.bytes).sum();
        assert!((bytes as f64 / (total as f64 / 16.0) - 1.0).abs() < 0.05, "{process}: {bytes} of {total}");
        assert!(made.windows(2).all(|pair| pair[0].offset.0 + pair[0].bytes == pair[1].offset.0 || process == 0));
    }
}

#[test]
fn another_seed_is_another_mesh() {
    let of = |seed: u32| accesses(&*program(&format!("chombo:seed={seed}")), 5);
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn what_cannot_be_is_refused() {
    for (text, words) in [
        ("chombo:levels=0", "levels=0 cannot be"),
        ("chombo:boxes=0", "boxes=0 cannot be"),
        ("chombo:levels=30", "boxes=512 (549755813376 in all levels) cannot be; want at most 16777216 boxes"),
        ("chombo:max_box=4", "max_box=4 cannot be; want block_factor=8 to 65536 cells"),
        ("chombo:growth=-1", "growth=-1 cannot be"),
        ("chombo:components=9000000000000000", "an offset of 63 bits"),
    ] {
        let found = refusal(text);
        assert!(found.contains(words), "{text}: {found}");
    }
}
