//! Commands and redirected calls killed before any system call that changes something, with the broker that they are themselves.
//!
//! `STRIPED_NAME_KILLS=0` kills at every call; otherwise at that many of each command, 1 unless given.

use super::settled::{nothing_beside, one_of};
use super::traced::{Act, Traced, Whom, run};
use crate::support::plan::plan;
use crate::support::{Place, noise, preload};
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::time::Instant;

const OLD: usize = 0;
const NEW: usize = 1;
const EMPTY: usize = 2;

/// What stands at `a` before the command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A managed file with the old bytes.
    Managed,
    /// An ordinary one, which the plan expects to be managed.
    Ordinary,
    /// The stub was removed without redirection.
    StubGone,
    /// Nothing, and a new file of that name becomes managed.
    Nothing,
}

struct Killing {
    name: &'static str,
    before: Before,
    words: &'static [&'static str],
    /// Which of the contents `a` may have afterwards; `None`: nothing stands there.
    expected: &'static [Option<usize>],
}

const fn killing(
    name: &'static str,
    before: Before,
    words: &'static [&'static str],
    expected: &'static [Option<usize>],
) -> Killing {
    Killing { name, before, words, expected }
}

const fn python(script: &'static str) -> [&'static str; 5] {
    ["run", "--", "python3", "-c", script]
}

const TRUNCATE: [&str; 5] = python("import os; os.truncate('a', 0)");
const CREAT: [&str; 5] = python("import os; os.open('a', os.O_CREAT | os.O_WRONLY)");
const EXCL: [&str; 5] = python("import os; os.open('a', os.O_CREAT | os.O_EXCL | os.O_WRONLY)");
const TRUNC: [&str; 5] = python("import os; os.open('a', os.O_CREAT | os.O_TRUNC | os.O_WRONLY)");

const KILLINGS: [Killing; 15] = [
    killing("cp", Before::Managed, &["cp", "new", "a"], &[Some(OLD), Some(NEW)]),
    killing("cp --managed", Before::Nothing, &["cp", "--managed", "new", "a"], &[None, Some(NEW)]),
    killing("cp --ordinary", Before::Ordinary, &["cp", "--ordinary", "new", "a"], &[Some(OLD), Some(NEW)]),
    killing("apply", Before::Ordinary, &["apply", "plan"], &[Some(OLD)]),
    killing("rm", Before::Managed, &["rm", "a"], &[Some(OLD), None]),
    killing("release", Before::Managed, &["release", "a"], &[Some(OLD)]),
    killing("restripe", Before::Managed, &["restripe", "a", "--layout", "h0..h1 64KiB"], &[Some(OLD)]),
    killing("check", Before::StubGone, &["check", "--repair"], &[Some(OLD)]),
    killing("rename", Before::Managed, &["run", "--", "mv", "-f", "m", "a"], &[Some(OLD), Some(NEW)]),
    killing("ordinary", Before::Managed, &["run", "--", "mv", "-f", "new", "a"], &[Some(OLD), Some(NEW)]),
    killing("unlink", Before::Managed, &["run", "--", "unlink", "a"], &[Some(OLD), None]),
    killing("truncate", Before::Managed, &TRUNCATE, &[Some(OLD), Some(EMPTY)]),
    killing("O_CREAT", Before::Nothing, &CREAT, &[None, Some(EMPTY)]),
    killing("O_EXCL", Before::Nothing, &EXCL, &[None, Some(EMPTY)]),
    killing("O_TRUNC", Before::Managed, &TRUNC, &[Some(OLD), Some(EMPTY)]),
];

fn scale(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// A managed file `m` and an ordinary file `new`, both with the new bytes; what the command finds at `a`.
fn set_up(before: Before) -> (Place, [Vec<u8>; 3]) {
    let place = Place::with_cluster();
    let contents = [noise(150_000), vec![9; 90_000], Vec::new()];
    place.write("old", &contents[OLD]);
    place.write("new", &contents[NEW]);
    place.done(&["cp", "--managed", "new", "m"]);
    place.done(&["cp", "--managed", "old", "a"]);
    match before {
        Before::Managed => {}
        Before::Ordinary => {
            place.done(&["rm", "a"]);
            place.write("a", &contents[OLD]);
        }
        Before::StubGone => std::fs::remove_file(place.path("a")).unwrap(),
        Before::Nothing => _ = place.done(&["rm", "a"]),
    }
    place.write("plan", plan(&place, "a").to_string().as_bytes());
    (place, contents)
}

fn killed_at(killing: &Killing, kill: Option<(usize, Whom)>, context: &str) -> Traced {
    let (place, contents) = set_up(killing.before);
    let traced = run(place.command(killing.words), kill.map(|(before, whom)| (before, Act::Kill(whom))));
    let all: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    let found = one_of(&place, "a", &all, context);
    assert!(killing.expected.contains(&found), "{context}: {found:?}");
    if kill.is_none() {
        assert_eq!(Some(&found), killing.expected.last(), "{context} has done nothing");
    }
    nothing_beside(&place, &["a", "m", "old", "new", "plan"], context);
    if killing.name == "rename" {
        // Exactly one of the names has the file.
        let moved = one_of(&place, "m", &[&contents[NEW]], context);
        assert_eq!((found, moved.is_some()), (Some(usize::from(moved.is_none())), moved.is_some()), "{context}");
    }
    traced
}

/// Between the link and the rename the copy has a name of its own, which stayed for ever.
#[test]
fn a_copy_over_an_ordinary_file_leaves_no_temporary_name_wherever_it_is_killed() {
    let killing = KILLINGS.iter().find(|killing| killing.name == "cp --ordinary").unwrap();
    let Traced::Ended { calls, status: 0 } = killed_at(killing, None, killing.name) else { panic!("{}", killing.name) };
    // It takes its name among the last.
    for call in calls - 15..calls {
        let context = format!("killed at call {call} of {calls}");
        killed_at(killing, Some((call, Whom::All)), &context);
    }
}

#[test]
fn whichever_command_is_killed_at_whichever_call_one_whole_file_is_left() {
    preload();
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let (begun, mut kills) = (Instant::now(), 0);
    for killing in &KILLINGS {
        let whole = killed_at(killing, None, killing.name);
        let Traced::Ended { calls, status: 0 } = whole else { panic!("{}: {whole:?}", killing.name) };
        assert!(calls > 10, "{}: {calls} calls", killing.name);
        let count = match scale("STRIPED_NAME_KILLS", 1) {
            0 => calls,
            count => count as usize,
        };
        println!("{} makes {calls} calls ({kills} kills in {} s so far)", killing.name, begun.elapsed().as_secs());
        for before in (0..calls).choose_multiple(&mut dice, count) {
            let whom = if dice.random_bool(0.5) { Whom::All } else { Whom::Caller };
            let context = format!("seed {seed}: {} killed ({whom:?}) at call {before} of {calls}", killing.name);
            killed_at(killing, Some((before, whom)), &context);
            kills += 1;
        }
    }
    println!("{kills} kills in {} s", begun.elapsed().as_secs());
}
