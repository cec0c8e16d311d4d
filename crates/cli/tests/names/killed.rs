//! Commands and redirected calls killed before any system call that changes something, with the broker that they are themselves.
//!
//! `STRIPED_NAME_KILLS=0` kills at every call; otherwise at that many of each command, 3 unless given.

use super::settled::{nothing_beside, one_of};
use super::traced::{Traced, run};
use crate::support::{Place, noise, preload};
use rand::seq::IteratorRandom;
use rand::{SeedableRng, rngs::StdRng};

const OLD: usize = 0;

struct Killing {
    name: &'static str,
    words: &'static [&'static str],
    /// Which of the contents `a` may have afterwards; `None`: nothing stands there.
    expected: &'static [Option<usize>],
}

const KILLINGS: [Killing; 8] = [
    Killing { name: "cp", words: &["cp", "new", "a"], expected: &[Some(OLD), Some(1)] },
    Killing { name: "rm", words: &["rm", "a"], expected: &[Some(OLD), None] },
    Killing { name: "release", words: &["release", "a"], expected: &[Some(OLD)] },
    Killing { name: "restripe", words: &["restripe", "a", "--layout", "h0..h1 64KiB"], expected: &[Some(OLD)] },
    Killing { name: "check", words: &["check", "--repair"], expected: &[Some(OLD)] },
    Killing { name: "rename", words: &["run", "--", "mv", "-f", "m", "a"], expected: &[Some(OLD), Some(1)] },
    Killing { name: "ordinary", words: &["run", "--", "mv", "-f", "new", "a"], expected: &[Some(OLD), Some(1)] },
    Killing { name: "unlink", words: &["run", "--", "unlink", "a"], expected: &[Some(OLD), None] },
];

fn scale(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// Managed files `a`, with the old bytes, and `m`, with the new ones; an ordinary file `new` with the new ones.
fn set_up() -> (Place, [Vec<u8>; 2]) {
    let place = Place::with_cluster();
    let contents = [noise(150_000), vec![9; 90_000]];
    place.write("old", &contents[0]);
    place.write("new", &contents[1]);
    place.done(&["cp", "--managed", "old", "a"]);
    place.done(&["cp", "--managed", "new", "m"]);
    (place, contents)
}

fn killed_at(killing: &Killing, call: Option<usize>, context: &str) -> Traced {
    let (place, contents) = set_up();
    if killing.name == "check" {
        // To be made anew.
        std::fs::remove_file(place.path("a")).unwrap();
    }
    let traced = run(place.command(killing.words), call);
    let found = one_of(&place, "a", &[&contents[0], &contents[1]], context);
    assert!(killing.expected.contains(&found), "{context}: {found:?}");
    nothing_beside(&place, &["a", "m", "old", "new"], context);
    if killing.name == "rename" {
        // Exactly one of the names has the file.
        let moved = one_of(&place, "m", &[&contents[1]], context);
        assert_eq!((found, moved.is_some()), (Some(usize::from(moved.is_none())), moved.is_some()), "{context}");
    }
    traced
}

#[test]
fn whichever_command_is_killed_at_whichever_call_one_whole_file_is_left() {
    preload();
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    for killing in &KILLINGS {
        let whole = killed_at(killing, None, killing.name);
        let Traced::Ended { calls, status: 0 } = whole else { panic!("{}: {whole:?}", killing.name) };
        assert!(calls > 10, "{}: {calls} calls", killing.name);
        let count = match scale("STRIPED_NAME_KILLS", 3) {
            0 => calls,
            count => count as usize,
        };
        for call in (0..calls).choose_multiple(&mut dice, count) {
            killed_at(killing, Some(call), &format!("seed {seed}: {} killed at call {call} of {calls}", killing.name));
        }
    }
}
