use super::super::checks::{accesses, covers_once, extents, program, refusal};
use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn regions_lie_where_the_help_of_hpio_says(
        processes in 1u32..6, count in 1u64..8, size in 1u64..20, spacing in 0u64..5, in_turns: bool,
    ) {
        let noncontig = if in_turns { "nc-nc" } else { "nc-c" };
        let program = program(&format!(
            "hpio:processes={processes},region_count={count},region_size={size},region_spacing={spacing},noncontig={noncontig}"
        ));
        for process in 0..processes {
            let made = accesses(&*program, process);
            prop_assert_eq!(made.len() as u64, 2 * count);
            for (number, request) in made.iter().enumerate() {
                let writes = (number as u64) < count;
                prop_assert_eq!(request.direction(), if writes { Direction::Write } else { Direction::Read });
                let number = number as u64 % count;
                let expected = match in_turns {
                    true => (number * u64::from(processes) + u64::from(process)) * (size + spacing),
                    false => (u64::from(process) * count + number) * size,
                };
                prop_assert_eq!((request.offset.0, request.bytes), (expected, size));
            }
        }
        if spacing == 0 || !in_turns {
            prop_assert!(covers_once(&*program, Direction::Read) && covers_once(&*program, Direction::Write));
        }
    }
}

/// HPIO's own help: "procs=2, region_count=2, region_size=1, region_spacing=3: 0___1___0___1".
#[test]
fn the_example_of_hpio() {
    let program = program("hpio:processes=2,region_count=2,region_size=1,region_spacing=3,noncontig=c-nc,op=write");
    let mut file = vec!['_'; program.files()[0].size_bytes as usize];
    for process in 0..2 {
        for request in accesses(&*program, process) {
            file[request.offset.0 as usize] = char::from_digit(process, 10).unwrap();
        }
    }
    assert_eq!(file.into_iter().collect::<String>(), "0___1___0___1");
}

#[test]
fn collective_writes_with_holes_read_first() {
    let text =
        "hpio:processes=4,nodes=2,region_count=8,region_size=10,region_spacing=2,method=collective,buffer=100,op=write";
    let program = program(text);
    assert!(covers_once(&*program, Direction::Write));
    assert_eq!(extents(&*program, Direction::Read), extents(&*program, Direction::Write));
    assert!(accesses(&*program, 1).is_empty() && !accesses(&*program, 2).is_empty());
    let whole = super::super::checks::program(&text.replace("region_spacing=2", "region_spacing=0"));
    assert!(covers_once(&*whole, Direction::Write) && extents(&*whole, Direction::Read).is_empty());
}

#[test]
fn what_cannot_be_is_refused() {
    for (text, words) in [
        ("hpio:region_count=0", "region_count=0 cannot be"),
        ("hpio:region_size=0", "region_size=0B cannot be"),
        ("hpio:buffer=0", "buffer=0B cannot be"),
        ("hpio:region_size=1PiB,region_count=1000000", "an offset of 63 bits"),
        ("hpio:noncontig=x", "want one of c-c, nc-c, c-nc, nc-nc"),
        ("hpio:repetitions=4294967295", "repetitions=4294967295 cannot be; want fewer"),
    ] {
        let found = refusal(text);
        assert!(found.contains(words), "{text}: {found}");
    }
}
