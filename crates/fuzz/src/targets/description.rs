//! `stripewise-descriptions/ID`: what servers hold of a file's layout.

use crate::Outcome;
use sha2::{Digest, Sha256};
use stripewise_broker::description::{Described, Line, Sequence, line};
use stripewise_layout::RegionIndex;

pub fn run(bytes: &[u8]) -> Outcome {
    // As the store reads what is no text any more.
    let text = String::from_utf8_lossy(bytes);
    let found = [check(&text), check(&sealed(&text))];
    if found.contains(&Outcome::Read) { Outcome::Read } else { Outcome::Refused }
}

/// The text with the right checksum at the end of every line: otherwise nearly all mutants would end at the checksum.
fn sealed(text: &str) -> String {
    let seal = |line: &str| match line.rsplit_once(' ') {
        Some((said, _)) => {
            let sum = Sha256::digest(said);
            format!("{said} {:016x}\n", u64::from_be_bytes(*sum.first_chunk().expect("a digest is longer")))
        }
        None => format!("{line}\n"),
    };
    text.lines().map(seal).collect()
}

fn check(text: &str) -> Outcome {
    let mut described = Described::default();
    described.add(text);
    let mut twice = described.clone();
    twice.add(text);
    assert_eq!(twice.head(), described.head(), "what is said twice is said once");
    assert!(described.places().eq(twice.places()));
    for held in [0, 4096, u64::MAX] {
        let size = described.size_bytes(held);
        assert_eq!(size, twice.size_bytes(held));
    }
    // Written again, as when a text has grown long.
    let at = |step| Sequence { broker: described.last_broker(), step };
    let mut new = String::new();
    if let Some(head) = described.head() {
        new += &line(at(0), &Line::File(head.clone()));
    }
    let places: Vec<_> = described.places().collect();
    for (step, (region, place)) in (1..).zip(&places) {
        new += &line(at(step), &Line::Place { region: *region, place: (*place).clone(), size_bytes: 0 });
    }
    let mut again = Described::default();
    again.add(&new);
    assert_eq!((again.head(), again.damaged_lines), (described.head(), 0));
    assert_eq!(again.places().collect::<Vec<_>>(), places);
    assert!(places.iter().all(|(_, place)| !place.stripes.is_empty()));
    assert!(places.is_sorted_by_key(|(region, _): &(RegionIndex, _)| *region));
    match described.head() {
        Some(_) => Outcome::Read,
        None => Outcome::Refused,
    }
}
