//! `apply` and `release` ended at many points of their work, by Ctrl-C and by kill.
//!
//! The point is chosen by the bytes that the command has read and written by then, as the kernel counts them. Invariants after each:
//! - the file at the path is the whole original or the whole managed file;
//! - after the next command there are no temporary files, and objects of managed files only;
//! - whatever that command had to clean up it says; after a Ctrl-C there is nothing to.

use crate::plans::{names, plan};
use crate::support::{Place, noise};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::{Child, Stdio};

const REGIONS: usize = 12;

struct Stage {
    place: Place,
    data: Vec<u8>,
    /// What stands in the place's directory while nothing is under way.
    names: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Ordinary,
    Managed,
}

impl Stage {
    fn new() -> Self {
        let place = Place::with_cluster();
        let data = noise(REGIONS << 20);
        place.write("data", &data);
        place.write("plan.json", plan(&place, "data").to_string().as_bytes());
        place.done(&["ls"]);
        let names = names(&place);
        Self { place, data, names }
    }

    fn words(from: State) -> &'static [&'static str] {
        if from == State::Ordinary { &["apply", "plan.json"] } else { &["release", "data"] }
    }

    /// What stands at the path now; it must be whole.
    fn state(&self) -> State {
        let text = self.place.read("data");
        if text == self.data {
            return State::Ordinary;
        }
        assert!(text.starts_with(b"stripewise stub"), "neither the original nor a stub: {} bytes", text.len());
        State::Managed
    }

    /// Names of all objects on all servers, and of the directories that hold them.
    fn objects(&self) -> usize {
        let servers = ["h0", "h1", "s0", "s1"].map(|server| self.place.path(server).join("stripewise-objects"));
        let files = servers.iter().flat_map(|server| std::fs::read_dir(server).unwrap());
        files.map(|file| 1 + std::fs::read_dir(file.unwrap().path()).unwrap().count()).sum()
    }

    /// Memory that programs share, of managed files.
    fn memory(&self) -> usize {
        let run = std::fs::read_dir(self.place.path("stripewise-state/run")).unwrap();
        run.filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().ends_with(".ctl")).count()
    }

    fn is_settled(&self, state: State) -> bool {
        let objects = if state == State::Managed { 1 + REGIONS } else { 0 };
        names(&self.place) == self.names && self.objects() == objects
    }

    /// All that must hold once the next command has run; its words on standard error.
    fn check(&self) -> (State, String) {
        let was_settled = self.is_settled(self.state());
        let next = self.place.say(&["ls"]);
        assert_eq!(next.status, 0, "{}", next.err);
        let state = self.state();
        assert!(was_settled || next.err.contains("cleaned up: the interrupted `stripewise "), "{}", next.err);
        assert!(self.is_settled(state), "{state:?}: {} objects, {:?}", self.objects(), names(&self.place));
        assert_eq!(next.out.contains("HERE/data"), state == State::Managed, "{}", next.out);
        if state == State::Managed {
            assert!(self.place.command(&["cat", "data"]).output().unwrap().stdout == self.data);
        } else {
            assert_eq!(self.memory(), 0);
        }
        (state, next.err)
    }

    /// Begins at `from`, ends the command with `signal` once it has moved `bytes`. Whether it was still at work, and what it said.
    fn end_at(&self, from: State, signal: Signal, bytes: u64) -> (bool, crate::support::Said) {
        if self.state() != from {
            let back = if from == State::Ordinary { State::Managed } else { State::Ordinary };
            self.place.done(Self::words(back));
        }
        let mut command = self.place.command(Self::words(from));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while moved_bytes(&child) < bytes && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let at_work = child.try_wait().unwrap().is_none();
        if at_work {
            // It may end by itself at any moment, and is waited for below.
            let _ = kill_process(Pid::from_child(&child), signal);
        }
        (at_work, self.place.said(child.wait_with_output().unwrap()))
    }

    /// Most bytes that the command was seen to have moved when nothing disturbed it.
    fn whole_way(&self, from: State) -> u64 {
        let mut child =
            self.place.command(Self::words(from)).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let mut most = 0;
        while child.try_wait().unwrap().is_none() {
            most = most.max(moved_bytes(&child));
        }
        assert!(child.wait().unwrap().success());
        assert!(most > (2 * REGIONS as u64) << 20, "the kernel does not count what was moved: {most} bytes");
        most
    }
}

/// What the process has read and written so far; 0 when it has ended.
fn moved_bytes(child: &Child) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    value("rchar:").unwrap_or(0) + value("wchar:").unwrap_or(0)
}

/// Points spread over the whole way and a little beyond, each at random in its part of it.
fn points(whole: u64, count: u64) -> impl Iterator<Item = u64> {
    let mut seed: u64 = std::env::var("STRIPEWISE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("STRIPEWISE_SEED={seed}, of {whole} bytes");
    (0..count).map(move |part| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let width = whole / count + whole / count / count;
        part * width + (seed >> 33) % width
    })
}

/// So many times at most, until enough were caught at work.
const ROUNDS: usize = 4;

fn kill_everywhere(from: State) {
    let stage = Stage::new();
    if from == State::Managed {
        stage.place.done(Stage::words(State::Ordinary));
    }
    let whole = stage.whole_way(from);
    let (mut undone, mut tried) = (0, 0);
    // On a busy machine the command may be through before it is killed: once more then.
    for _ in 0..ROUNDS {
        for bytes in points(whole, 14) {
            println!("killed at {bytes} bytes");
            let (at_work, _) = stage.end_at(from, Signal::KILL, bytes);
            let (state, said) = stage.check();
            tried += usize::from(at_work);
            undone += usize::from(state == from && said.contains("was undone"));
        }
        if tried > 7 && undone > 3 {
            break;
        }
    }
    assert!(tried > 7 && undone > 3, "{tried} were killed at work, {undone} undone");
}

fn interrupt_everywhere(from: State) {
    let stage = Stage::new();
    if from == State::Managed {
        stage.place.done(Stage::words(State::Ordinary));
    }
    let whole = stage.whole_way(from);
    let mut stopped = 0;
    for _ in 0..ROUNDS {
        for bytes in points(whole, 8) {
            println!("interrupted at {bytes} bytes");
            let (_, said) = stage.end_at(from, Signal::INT, bytes);
            let state = stage.state();
            assert!(stage.is_settled(state), "left behind: {:?}", names(&stage.place));
            // Before the command has begun to note signals, one ends it as any program: nothing was done yet.
            match said.status {
                0 => assert_ne!(state, from),
                130 => {
                    assert!(
                        said.err.contains("stopped before HERE/data was replaced; nothing was changed"),
                        "{}",
                        said.err
                    )
                }
                status => assert_eq!((status, state), (-1, from), "{}", said.err),
            }
            stopped += usize::from(said.status == 130 && state == from);
            let (after, said) = stage.check();
            assert!(after == state && !said.contains("cleaned up"), "{said}");
        }
        if stopped > 3 {
            break;
        }
    }
    assert!(stopped > 3, "{stopped} were stopped at work");
}

#[test]
fn apply_killed_anywhere() {
    kill_everywhere(State::Ordinary);
}

#[test]
fn release_killed_anywhere() {
    kill_everywhere(State::Managed);
}

#[test]
fn apply_interrupted_anywhere() {
    interrupt_everywhere(State::Ordinary);
}

#[test]
fn release_interrupted_anywhere() {
    interrupt_everywhere(State::Managed);
}
