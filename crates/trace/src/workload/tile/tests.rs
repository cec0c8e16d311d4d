use super::super::checks::{accesses, covers_once, program, refusal};
use proptest::prelude::*;
use stripewise_layout::Direction;

proptest! {
    /// Element by element, as the subarray type of MPI has them.
    #[test]
    fn rows_are_the_tiles(
        x in 1u32..4, y in 1u32..4, width in 1u64..5, height in 1u64..5, over_x in 0u64..3, over_y in 0u64..3,
        element in 1u64..4, header in 0u64..9,
    ) {
        let text = format!(
            "tile-io:nr_tiles_x={x},nr_tiles_y={y},sz_tile_x={},sz_tile_y={},overlap_x={over_x},overlap_y={over_y},\
             sz_element={element},header_bytes={header}",
            width + over_x, height + over_y
        );
        let program = program(&text);
        let columns = u64::from(x) * (width + over_x) - u64::from(x - 1) * over_x;
        let rows = u64::from(y) * (height + over_y) - u64::from(y - 1) * over_y;
        prop_assert_eq!(program.processes(), x * y);
        prop_assert_eq!(program.files()[0].size_bytes, header + columns * rows * element);
        for process in 0..x * y {
            let (tile_x, tile_y) = (u64::from(process % x), u64::from(process / x));
            let mut expected = Vec::new();
            for row in tile_y * height..tile_y * height + height + over_y {
                for column in tile_x * width..tile_x * width + width + over_x {
                    let at = header + (row * columns + column) * element;
                    expected.extend(at..at + element);
                }
            }
            let made = accesses(&*program, process);
            prop_assert_eq!(made.len() as u64, if x == 1 { 1 } else { height + over_y });
            let found: Vec<u64> =
                made.iter().flat_map(|request| request.offset.0..request.offset.0 + request.bytes).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn sieving_reads_from_a_tiles_first_byte_to_its_last() {
    let program = program(
        "tile-io:nr_tiles_x=2,nr_tiles_y=2,sz_tile_x=10,sz_tile_y=10,sz_element=1,method=sieve,sieve_buffer=50",
    );
    let made = accesses(&*program, 3);
    let found: Vec<(u64, u64)> = made.iter().map(|request| (request.offset.0, request.bytes)).collect();
    // Rows 10 to 19 of 20 elements, from column 10: 210 to 400.
    assert_eq!(found, [(210, 50), (260, 50), (310, 50), (360, 40)]);
}

#[test]
fn collective_tiles_cover_the_array_once() {
    let program = program(
        "tile-io:nr_tiles_x=4,nr_tiles_y=2,sz_tile_x=10,sz_tile_y=10,overlap_x=3,overlap_y=1,sz_element=3,method=collective,\
         buffer=100,op=both,nodes=3",
    );
    assert!(covers_once(&*program, Direction::Write) && covers_once(&*program, Direction::Read));
}

#[test]
fn what_cannot_be_is_refused() {
    for (text, words) in [
        ("tile-io:nr_tiles_x=0", "nr_tiles_x=0 and nr_tiles_y=4 cannot be"),
        ("tile-io:nr_tiles_x=100000,nr_tiles_y=100000", "fewer than 2^32 tiles"),
        ("tile-io:sz_tile_x=4,overlap_x=4", "sz_tile_x=4 cannot be; want more than the 4 that overlap"),
        ("tile-io:sz_element=0", "sz_element=0B cannot be"),
        ("tile-io:method=sieve,op=write", "method=sieve cannot be; want rows or collective"),
        ("tile-io:sz_tile_x=9000000000000000000", "an offset of 63 bits"),
        ("tile-io:processes=4", "`processes` (= 4) is not one of its parameters"),
    ] {
        let found = refusal(text);
        assert!(found.contains(words), "{text}: {found}");
    }
}
