//! Two commands or programs at once on one name: afterwards one of their files stands there, whole.
//!
//! `STRIPED_NAME_PAIRS=0` runs all pairs; otherwise that many, 10 unless given.

use super::settled::one_of;
use crate::support::plan::plan;
use crate::support::{Place, noise, preload};
use rand::seq::IteratorRandom;
use rand::{SeedableRng, rngs::StdRng};
use std::process::{Command, Stdio};

/// What one of the two does to the managed file `f`; `N` stands for what it is named in this round. Sources: `m` (managed) and `o` (ordinary) of that
/// round.
struct Doing {
    name: &'static str,
    redirected: bool,
    /// Whether `f` may be gone afterwards.
    removes: bool,
    /// In Python where redirected, in a shell otherwise (`$S`: the command).
    script: &'static str,
}

const DOINGS: [Doing; 13] = [
    Doing { name: "cp", redirected: false, removes: false, script: "$S cp --managed oN fN" },
    Doing { name: "release", redirected: false, removes: false, script: "$S release fN" },
    Doing { name: "apply", redirected: false, removes: false, script: "$S cp --ordinary oN fN; $S apply planN" },
    Doing { name: "restripe", redirected: false, removes: false, script: "$S restripe fN --layout 'h0..h1 64KiB'" },
    Doing { name: "check", redirected: false, removes: false, script: "$S check --repair; $S check --repair" },
    Doing { name: "mv", redirected: false, removes: false, script: "mv oN fN" },
    Doing { name: "rm", redirected: false, removes: true, script: "rm -f fN" },
    Doing { name: "rename", redirected: true, removes: false, script: "os.rename('mN', 'fN')" },
    Doing { name: "unlink", redirected: true, removes: true, script: "os.unlink('fN')" },
    Doing { name: "truncate", redirected: true, removes: false, script: "os.truncate('fN', 0)" },
    Doing { name: "O_CREAT", redirected: true, removes: false, script: "os.open('fN', os.O_CREAT | os.O_WRONLY)" },
    Doing {
        name: "O_EXCL",
        redirected: true,
        removes: false,
        script: "os.open('fN', os.O_CREAT | os.O_EXCL | os.O_WRONLY)",
    },
    Doing {
        name: "O_TRUNC",
        redirected: true,
        removes: false,
        script: "os.open('fN', os.O_CREAT | os.O_TRUNC | os.O_WRONLY)",
    },
];

fn command(place: &Place, doing: &Doing, round: usize) -> Command {
    let script = doing.script.replace("N", &round.to_string()).replace(&format!("{round}oO"), "NoO");
    if doing.redirected {
        let script = doing.script.replace("N'", &format!("{round}'"));
        let script = format!("import os\ntry:\n    {script}\nexcept OSError as error:\n    print(error)\n");
        return place.command(&["run", "--", "python3", "-c", &script]);
    }
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(place.path("")).env("S", env!("CARGO_BIN_EXE_stripewise"));
    shell
}

fn scale(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

#[test]
fn whatever_two_do_to_one_name_at_once_one_whole_file_is_left() {
    preload();
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let pairs = (0..DOINGS.len()).flat_map(|first| (first..DOINGS.len()).map(move |second| (first, second)));
    let pairs: Vec<_> = match scale("STRIPED_NAME_PAIRS", 10) {
        0 => pairs.collect(),
        count => pairs.choose_multiple(&mut dice, count as usize),
    };
    let place = Place::with_cluster();
    let contents = [noise(120_000), vec![1; 70_000], vec![2; 90_000], Vec::new()];
    place.write("old", &contents[0]);
    for (round, (first, second)) in pairs.into_iter().enumerate() {
        let pair = [&DOINGS[first], &DOINGS[second]];
        let context = format!("seed {seed}, round {round}: {} and {}", pair[0].name, pair[1].name);
        let name = format!("f{round}");
        place.write(&format!("o{round}"), &contents[1]);
        place.write("moved", &contents[2]);
        place.done(&["cp", "--managed", "moved", &format!("m{round}")]);
        place.done(&["cp", "--managed", "old", &name]);
        place.write(&format!("plan{round}"), plan(&place, &name).to_string().as_bytes());
        let mut running = pair
            .map(|doing| command(&place, doing, round).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        running.iter_mut().for_each(|one| _ = one.wait().unwrap());
        let all: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
        let found = one_of(&place, &name, &all, &context);
        assert!(found.is_some() || pair.iter().any(|doing| doing.removes), "{context}");
        // Nothing that was asked about is left for the next round.
        for finding in place.say(&["check"]).out.split("stripewise rescue ").skip(1) {
            let id = finding.split(' ').next().unwrap().to_owned();
            place.done(&["rm", "--id", &id]);
        }
        for left in [&name, &format!("m{round}"), &format!("o{round}")] {
            if place.path(left).exists() && place.say(&["rm", left]).status != 0 {
                std::fs::remove_file(place.path(left)).unwrap();
            }
        }
    }
}
