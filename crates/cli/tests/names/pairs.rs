//! Two commands or programs at once on one name: afterwards stands there what some order gives that agrees with when each began and returned, and every
//! call and command has ended as it must in that order.
//!
//! `STRIPED_NAME_PAIRS=0` runs all pairs in all courses; otherwise that many, 10 unless given.

use super::serial::{Ended, Kind, Operation, Performed, State, overlaps_outside, states_after};
use super::settled::one_of;
use super::traced::{Act, Traced, run};
use crate::support::plan::plan;
use crate::support::{Place, noise, preload};
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

const OLD: usize = 1;

/// One of the two, with sources of its own: an ordinary file and a managed one.
#[derive(Clone, Copy)]
struct Side(usize);

impl Side {
    /// As its sources are named.
    fn named(self, text: &str) -> String {
        text.replace('@', &self.0.to_string())
    }

    fn ordinary(self) -> usize {
        2 + 2 * self.0
    }

    fn moved(self) -> usize {
        3 + 2 * self.0
    }
}

enum Way {
    /// The command.
    Command(&'static [&'static str]),
    /// A program without redirection.
    Outside(&'static [&'static str]),
    /// A call of a redirected program.
    Redirected(&'static str),
}

struct Step {
    way: Way,
    operation: fn(Side) -> Operation,
}

/// What one of the two does to the managed file `f`; `@` stands for its side.
struct Doing {
    name: &'static str,
    steps: &'static [Step],
}

macro_rules! doing {
    ($name:literal: $($way:ident($what:expr) => $operation:expr),+) => {
        Doing { name: $name, steps: &[$(Step { way: Way::$way($what), operation: $operation }),+] }
    };
}

const DOINGS: [Doing; 13] = [
    doing!("cp": Command(&["cp", "--managed", "o@", "f"]) => |side| Operation::Copy(side.ordinary(), Kind::Managed)),
    doing!("release": Command(&["release", "f"]) => |_| Operation::Release),
    doing!("apply":
        Command(&["cp", "--ordinary", "o@", "f"]) => |side| Operation::Copy(side.ordinary(), Kind::Ordinary),
        Command(&["apply", "plan"]) => |_| Operation::Apply),
    doing!("restripe": Command(&["restripe", "f", "--layout", "h0..h1 64KiB"]) => |_| Operation::Restripe),
    doing!("check":
        Command(&["check", "--repair"]) => |_| Operation::Check,
        Command(&["check", "--repair"]) => |_| Operation::Check),
    doing!("mv": Outside(&["mv", "-f", "o@", "f"]) => |side| Operation::MoveOutside(side.ordinary())),
    doing!("rm": Outside(&["rm", "-f", "f"]) => |_| Operation::RemoveOutside),
    doing!("rename": Redirected("os.rename('m@', 'f')") => |side| Operation::Rename(side.moved())),
    doing!("unlink": Redirected("os.unlink('f')") => |_| Operation::Unlink),
    doing!("truncate": Redirected("os.truncate('f', 0)") => |_| Operation::Truncate),
    doing!("O_CREAT": Redirected("os.close(os.open('f', os.O_CREAT | os.O_WRONLY))") => |_| Operation::Open),
    doing!("O_EXCL": Redirected("os.close(os.open('f', os.O_CREAT | os.O_EXCL | os.O_WRONLY))") => |_| Operation::OpenNew),
    doing!("O_TRUNC": Redirected("os.close(os.open('f', os.O_CREAT | os.O_TRUNC | os.O_WRONLY))") => |_| Operation::OpenEmpty),
];

/// When the second begins.
#[derive(Clone, Copy, Debug)]
enum Course {
    Together,
    /// When the first is about to make this one of its calls, or has ended.
    Amid(usize),
    After,
}

/// Tells in `ended@` when its call began and returned, and its errno.
const PROGRAM: &str = "\
import os, sys, time
print('ready', flush=True)
sys.stdin.readline()
error, begun = 0, time.monotonic_ns()
try:
    CALL
except OSError as failed:
    error = failed.errno
returned = time.monotonic_ns()
with open('ended@', 'w') as told:
    told.write(f'{begun} {returned} {error}')
";

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn command(place: &Place, step: &Step, side: Side) -> Command {
    let named = |words: &[&str]| words.iter().map(|word| side.named(word)).collect::<Vec<_>>();
    match step.way {
        Way::Command(words) => place.command(&named(words)),
        Way::Outside(words) => {
            let words = named(words);
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).current_dir(place.path(""));
            command
        }
        Way::Redirected(call) => {
            let program = side.named(&PROGRAM.replace("CALL", call));
            place.command(&["run", "--", "python3", "-c", &program])
        }
    }
}

/// What a step that ran from `begun_ns` on has done.
fn performed(place: &Place, step: &Step, side: Side, begun_ns: u64, status: Option<i32>, said: String) -> Performed {
    let operation = (step.operation)(side);
    let (mut times, ended) = (
        (begun_ns, now_ns()),
        match (operation, status) {
            // With findings.
            (_, Some(0)) | (Operation::Check, Some(1)) => Ended::Done,
            (Operation::Apply | Operation::Release | Operation::Restripe, Some(2)) => Ended::Refused,
            _ => panic!("{operation:?} ended with {status:?}: {said}"),
        },
    );
    if matches!(step.way, Way::Redirected(_)) {
        let told = String::from_utf8(place.read(&side.named("ended@"))).unwrap();
        let told: Vec<u64> = told.split(' ').map(|number| number.parse().unwrap()).collect();
        times = (told[0], told[1]);
        if told[2] != 0 {
            return performed_at(operation, times, Ended::Failed(told[2] as i32), said);
        }
    }
    performed_at(operation, times, ended, said)
}

fn performed_at(operation: Operation, (begun_ns, returned_ns): (u64, u64), ended: Ended, said: String) -> Performed {
    Performed { operation, begun_ns, returned_ns, gone_ns: now_ns(), ended, said }
}

/// A program that is ready for its call and waits to be told.
fn ready(command: &mut Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

/// Does its steps, the first when it is told.
fn act(place: &Place, doing: &Doing, side: Side, is_ready: &Sender<()>, begin: &Receiver<()>) -> Vec<Performed> {
    let mut all = Vec::new();
    for (number, step) in doing.steps.iter().enumerate() {
        let mut command = command(place, step, side);
        let waiting = matches!(step.way, Way::Redirected(_)).then(|| ready(&mut command));
        if number == 0 {
            is_ready.send(()).unwrap();
            begin.recv().unwrap();
        }
        let begun_ns = now_ns();
        let output = match waiting {
            Some(child) => child.wait_with_output().unwrap(),
            None => command.stdin(Stdio::null()).output().unwrap(),
        };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        all.push(performed(place, step, side, begun_ns, output.status.code(), said));
    }
    all
}

/// As [`act`], and lets the other begin when one of the calls comes, or at the end.
fn act_traced(place: &Place, doing: &Doing, side: Side, before: usize, begin_other: &Sender<()>) -> Vec<Performed> {
    let mut all = Vec::new();
    // Of several steps, either.
    let traced = before % doing.steps.len();
    let mut is_told = false;
    for (number, step) in doing.steps.iter().enumerate() {
        let (command, begun_ns) = (command(place, step, side), now_ns());
        let mut report_capture = || {
            is_told = true;
            begin_other.send(()).unwrap();
        };
        let at = (number == traced).then_some((before, Act::Call(&mut report_capture)));
        let Traced::Ended { status, .. } = run(command, at) else { panic!("{} was killed", doing.name) };
        all.push(performed(place, step, side, begun_ns, Some(status), String::new()));
    }
    if !is_told {
        begin_other.send(()).unwrap();
    }
    all
}

fn both(place: &Place, pair: [&Doing; 2], course: Course) -> Vec<Performed> {
    let ((is_ready, wait_ready), (begin, wait_begin)) = (channel(), channel());
    std::thread::scope(|scope| {
        let second = scope.spawn(move || act(place, pair[1], Side(1), &is_ready, &wait_begin));
        wait_ready.recv().unwrap();
        let mut all = match course {
            Course::Together => {
                let ((is_ready, wait_ready), (begin_first, wait_begin)) = (channel(), channel());
                let first = scope.spawn(move || act(place, pair[0], Side(0), &is_ready, &wait_begin));
                wait_ready.recv().unwrap();
                begin_first.send(()).unwrap();
                begin.send(()).unwrap();
                first.join().unwrap()
            }
            Course::Amid(call) => act_traced(place, pair[0], Side(0), call, &begin),
            Course::After => act_traced(place, pair[0], Side(0), usize::MAX, &begin),
        };
        all.extend(second.join().unwrap());
        all
    })
}

fn scale(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// What stands at `f` in the end, and what is kept without a name.
fn found(place: &Place, contents: &[&[u8]], context: &str) -> State {
    let content = one_of(place, "f", contents, context);
    let kind = |content: usize| if place.read("f") == contents[content] { Kind::Ordinary } else { Kind::Managed };
    let at = content.map(|content| (content, kind(content)));
    let mut lost = Vec::new();
    for (number, finding) in place.say(&["check"]).out.split("stripewise rescue ").skip(1).enumerate() {
        let (id, name) = (finding.split(' ').next().unwrap(), format!("rescued{number}"));
        place.done(&["rescue", id, &name]);
        let output = place.command(&["cat", &name]).output().unwrap().stdout;
        let content = contents.iter().position(|content| **content == output[..]);
        lost.push(content.unwrap_or_else(|| panic!("{context}: {id} holds {} bytes that nobody wrote", output.len())));
    }
    lost.sort_unstable();
    State { at, lost }
}

fn try_pair(pair: [&Doing; 2], course: Course, context: &str) -> bool {
    let place = Place::with_cluster();
    let contents = [Vec::new(), noise(120_000), vec![2; 70_000], vec![3; 90_000], vec![4; 80_000], vec![5; 60_000]];
    place.write("old", &contents[OLD]);
    place.done(&["cp", "--managed", "old", "f"]);
    for side in [Side(0), Side(1)] {
        place.write(&side.named("o@"), &contents[side.ordinary()]);
        place.write("moved", &contents[side.moved()]);
        place.done(&["cp", "--managed", "moved", &side.named("m@")]);
    }
    place.write("plan", plan(&place, "f").to_string().as_bytes());
    let mut all = both(&place, pair, course);
    let overlapped = all[0].begun_ns <= all[all.len() - 1].returned_ns
        && all[pair[0].steps.len()].begun_ns <= all[pair[0].steps.len() - 1].returned_ns;
    let begun_ns = now_ns();
    let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    let found = found(&place, &contents, context);
    // To look at it is to repair it.
    all.push(performed_at(Operation::Check, (begun_ns, now_ns()), Ended::Done, String::new()));
    let initial = State { at: Some((OLD, Kind::Managed)), lost: Vec::new() };
    let states = states_after(initial, &all);
    let may_be_freed = overlaps_outside(&all);
    let agrees = |state: &State| {
        state.at == found.at
            && (state.lost == found.lost || may_be_freed && found.lost.iter().all(|lost| state.lost.contains(lost)))
    };
    assert!(states.iter().any(agrees), "{context}: {found:?} is none of {states:?} after {all:#?}");
    overlapped
}

#[test]
fn whatever_two_do_to_one_name_at_once_what_stands_there_is_what_some_order_of_them_gives() {
    preload();
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let pairs = DOINGS.iter().flat_map(|first| DOINGS.iter().map(move |second| [first, second]));
    let rounds: Vec<_> = match scale("STRIPED_NAME_PAIRS", 10) {
        0 => pairs.flat_map(|pair| [0, 1, 2].map(|course| (pair, course))).collect(),
        count => pairs.zip((0..3).cycle()).choose_multiple(&mut dice, count as usize),
    };
    let (count, mut overlapped) = (rounds.len(), 0);
    for (round, (pair, course)) in rounds.into_iter().enumerate() {
        let course = [Course::Together, Course::Amid(dice.random_range(0..150)), Course::After][course];
        let context = format!("seed {seed}, round {round}: {} and {}, {course:?}", pair[0].name, pair[1].name);
        overlapped += usize::from(try_pair(pair, course, &context));
    }
    println!("{count} pairs, of which {overlapped} overlapped");
}
