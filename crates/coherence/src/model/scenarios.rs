//! What is explored: what happens in each scenario, and what may go wrong there.

use super::Label;
use super::search::{Found, Near, Order, explore, wander};
use super::world::{Faults, HOSTS, Memory, Scenario, World};
use crate::host::{HostView, Known, News};
use crate::safeguard::{Safeguard, leave_out};
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

const CALM: Faults = Faults { lost: 0, repeated: 0, late: 0, slow: 0, killed: 0, silent: None, next_master: None };
const LOST: Faults = Faults { lost: 1, ..CALM };
const REPEATED: Faults = Faults { repeated: 1, ..CALM };
const LATE: Faults = Faults { late: 1, ..CALM };
const EACH_MESSAGE: Faults = Faults { lost: 1, repeated: 1, late: 1, ..CALM };
const KILLED: Faults = Faults { killed: 1, ..CALM };
const SLOW: Faults = Faults { slow: 1, ..CALM };
const SILENT: Faults = Faults { silent: Some(1), ..CALM };
const NEXT_MASTER: Faults = Faults { next_master: Some(1), ..CALM };

/// A move and a write, by a host that follows.
const PLAIN: Scenario = Scenario {
    name: "",
    fences: false,
    moves: 1,
    truncates: false,
    writer: Some(1),
    reader: None,
    opens: None,
    closes: None,
    faults: CALM,
};

/// Explores all of it; a fault is a panic with a trace, a shortest one in [`Order::Shortest`].
fn check_in(scenario: &Scenario, order: Order) {
    let begun = Instant::now();
    let found = explore(&World::new(scenario), order, true);
    report(scenario.name, &found, begun);
    assert!(found.fault.is_some() || found.ends > 0, "{scenario:?} never ends");
    must_be_right(scenario, found);
}

fn report<L>(name: &str, found: &Found<L>, begun: Instant) {
    let (Found { states, transitions, ends, .. }, seconds) = (found, begun.elapsed().as_secs_f64());
    eprintln!("{name}: {states} states, {transitions} transitions, {ends} ends, {seconds:.1} s");
}

fn must_be_right(scenario: &Scenario, found: Found<Label>) {
    if let Some((fault, trace)) = found.fault {
        panic!("{fault}, in {scenario:?}:\n{}", shown(&trace));
    }
}

fn shown(trace: &[Label]) -> String {
    trace.iter().enumerate().map(|(number, (what, who))| format!("{:3} {what} ({who})\n", number + 1)).collect()
}

/// Whether the long form was asked for.
fn is_long() -> bool {
    std::env::var("STRIPEWISE_EXPLORE").is_ok_and(|form| form == "all")
}

/// Of a group, those that take long only in the long form. `STRIPEWISE_EXPLORE=WORD` names some.
fn check_all(short: &[Scenario], long: &[Scenario]) {
    check_all_in(short, long, Order::Shortest);
}

fn check_all_in(short: &[Scenario], long: &[Scenario], order: Order) {
    let only = std::env::var("STRIPEWISE_EXPLORE").unwrap_or_default();
    let is_wanted = |scenario: &&Scenario| is_long() || scenario.name.contains(&only);
    let long = long.iter().filter(|_| !only.is_empty());
    short.iter().chain(long).filter(is_wanted).for_each(|scenario| check_in(scenario, order));
}

#[test]
fn regions_move_while_hosts_write_read_open_and_close() {
    check_all(
        &[
            Scenario { name: "a write", ..PLAIN },
            Scenario { name: "a write of the master", writer: Some(0), ..PLAIN },
            Scenario { name: "a write and a read", reader: Some(2), ..PLAIN },
            Scenario { name: "a slow writer", reader: Some(0), faults: SLOW, ..PLAIN },
            Scenario { name: "a write of a host that opens", opens: Some(1), reader: Some(0), ..PLAIN },
            Scenario { name: "a write of a host that opens and closes", opens: Some(1), closes: Some(1), ..PLAIN },
            Scenario { name: "a write of a host that closes", closes: Some(1), ..PLAIN },
            Scenario { name: "two moves", moves: 2, ..PLAIN },
            Scenario { name: "two moves and an open", moves: 2, opens: Some(1), ..PLAIN },
        ],
        &[
            Scenario { name: "two moves, a write and a read", moves: 2, reader: Some(2), ..PLAIN },
            Scenario { name: "two moves, an open and a close", moves: 2, opens: Some(1), closes: Some(1), ..PLAIN },
        ],
    );
}

#[test]
fn files_are_truncated_while_they_move() {
    let truncates = Scenario { truncates: true, ..PLAIN };
    check_all(
        &[
            Scenario { name: "a truncation", ..truncates },
            Scenario { name: "a truncation alone", moves: 0, ..truncates },
            Scenario { name: "a truncation and a read", moves: 0, reader: Some(2), ..truncates },
            Scenario { name: "a truncation and an open", opens: Some(1), ..truncates },
            Scenario { name: "a truncation and a killed agent", moves: 0, faults: KILLED, ..truncates },
        ],
        &[
            Scenario { name: "two moves and a truncation", moves: 2, ..truncates },
            Scenario { name: "a truncation, a lost message", faults: LOST, ..truncates },
            Scenario { name: "a truncation, a killed agent", faults: KILLED, ..truncates },
            Scenario { name: "a truncation, a late message", faults: LATE, ..truncates },
            Scenario { name: "a truncation, a repeated message", faults: REPEATED, ..truncates },
            Scenario { name: "a truncation, a silent host", faults: SILENT, ..truncates },
            Scenario { name: "a truncation, a silent host shut out", fences: true, faults: SILENT, ..truncates },
        ],
    );
}

#[test]
fn messages_are_lost_repeated_and_late() {
    check_all(
        &[
            Scenario { name: "a lost message", faults: LOST, ..PLAIN },
            Scenario { name: "a repeated message", faults: REPEATED, ..PLAIN },
            Scenario { name: "a late message", faults: LATE, ..PLAIN },
            Scenario { name: "a truncation with a lost message", moves: 0, truncates: true, faults: LOST, ..PLAIN },
            Scenario { name: "a truncation with a late message", moves: 0, truncates: true, faults: LATE, ..PLAIN },
            Scenario {
                name: "a truncation with a repeated message",
                moves: 0,
                truncates: true,
                faults: REPEATED,
                ..PLAIN
            },
            Scenario { name: "an open with a repeated message", opens: Some(1), faults: REPEATED, ..PLAIN },
            Scenario {
                name: "a close with a late truncation",
                moves: 0,
                truncates: true,
                closes: Some(1),
                faults: LATE,
                ..PLAIN
            },
        ],
        &[
            Scenario { name: "lost and repeated", faults: Faults { lost: 1, repeated: 1, ..CALM }, ..PLAIN },
            Scenario { name: "repeated and late", faults: Faults { repeated: 1, late: 1, ..CALM }, ..PLAIN },
            Scenario { name: "two moves, a repeated message", moves: 2, faults: REPEATED, ..PLAIN },
            Scenario { name: "two moves, a lost message", moves: 2, faults: LOST, ..PLAIN },
        ],
    );
}

#[test]
fn hosts_fall_silent() {
    check_all(
        &[
            Scenario { name: "a silent host", faults: SILENT, ..PLAIN },
            Scenario { name: "a silent host shut out", fences: true, faults: SILENT, ..PLAIN },
            Scenario { name: "a truncation without a silent host", moves: 0, truncates: true, faults: SILENT, ..PLAIN },
            Scenario {
                name: "a truncation without a silent host shut out",
                fences: true,
                moves: 0,
                truncates: true,
                faults: SILENT,
                ..PLAIN
            },
        ],
        &[
            Scenario { name: "two moves, a silent host", moves: 2, faults: SILENT, ..PLAIN },
            Scenario { name: "two moves, a silent host shut out", moves: 2, fences: true, faults: SILENT, ..PLAIN },
            Scenario {
                name: "a silent host and a lost message",
                faults: Faults { lost: 1, silent: Some(1), ..CALM },
                ..PLAIN
            },
        ],
    );
}

#[test]
fn the_master_changes() {
    let changes = Scenario { faults: NEXT_MASTER, ..PLAIN };
    let truncates = Scenario { moves: 0, truncates: true, ..changes };
    check_all(
        &[
            Scenario { name: "another master, that fences, and a move", writer: None, fences: true, ..changes },
            Scenario { name: "another master and a truncation", writer: None, ..truncates },
        ],
        &[
            Scenario { name: "another master, a move and a read", writer: None, reader: Some(2), ..changes },
            Scenario { name: "another master, a truncation and a write", ..truncates },
            Scenario { name: "another master that fences, a truncation and a write", fences: true, ..truncates },
            Scenario { name: "another master, a move and a write", ..changes },
            Scenario { name: "another master that fences, a move and a write", fences: true, ..changes },
            Scenario { name: "another master, a write of the third", writer: Some(2), ..changes },
            Scenario { name: "another master, a write of the first", writer: Some(0), ..changes },
            Scenario {
                name: "another master and a lost commit",
                writer: None,
                faults: Faults { lost: 1, ..NEXT_MASTER },
                ..changes
            },
        ],
    );
}

/// Two moves, a write and a truncation, with all that may go wrong: a message is lost, one is repeated and one late, an agent is killed, a host is silent, and the master changes. Hosts 1 and
/// 2 differ by their names alone until one of them is the next master.
fn all_together() -> Vec<Scenario> {
    let all = Scenario { name: "all together", moves: 2, truncates: true, ..PLAIN };
    let roles = (0..HOSTS).flat_map(|writer| (0..HOSTS).map(move |silent| (writer, silent)));
    let with = |(writer, silent)| {
        let faults = Faults { killed: 1, silent: Some(silent), next_master: Some(1), ..EACH_MESSAGE };
        [false, true].map(|fences| Scenario { fences, writer: Some(writer), faults, ..all })
    };
    roles.flat_map(with).collect()
}

/// All that happens, with one fault: as a whole. With another master it is too many states.
#[test]
fn each_fault_comes_while_regions_move_and_a_file_is_truncated() {
    let scenario = Scenario { moves: 2, truncates: true, ..PLAIN };
    check_all_in(
        &[],
        &[
            Scenario { name: "all that happens, a lost message", faults: LOST, ..scenario },
            Scenario { name: "all that happens, a repeated message", faults: REPEATED, ..scenario },
            Scenario { name: "all that happens, a late message", faults: LATE, ..scenario },
            Scenario { name: "all that happens, a killed agent", faults: KILLED, ..scenario },
            Scenario { name: "all that happens, a silent host", faults: SILENT, ..scenario },
            Scenario { name: "all that happens, a silent host shut out", fences: true, faults: SILENT, ..scenario },
        ],
        Order::Newest,
    );
}

/// What of all together can be gone through as a whole.
#[test]
fn faults_come_together() {
    if !is_long() {
        return eprintln!("only in the long form");
    }
    for scenario in all_together() {
        let name = "all faults and a truncation";
        check_in(&Scenario { name, moves: 0, ..scenario }, Order::Newest);
    }
}

/// What cannot be gone through as a whole: every place at which each fault can come, with so many departures from one order of all other steps.
#[test]
fn all_faults_come_together_near_one_order_of_steps() {
    if !is_long() {
        return eprintln!("only in the long form");
    }
    let departures_left = number_of("STRIPEWISE_EXPLORE_DEPARTURES", 0) as u8;
    for scenario in all_together() {
        let begun = Instant::now();
        let found = explore(&Near { state: World::new(&scenario), departures_left }, Order::Newest, false);
        report(&format!("{}, {departures_left} departures", in_words(&scenario)), &found, begun);
        must_be_right(&scenario, found);
    }
}

/// The same by chance: `STRIPEWISE_EXPLORE_RUNS` runs of each scenario, `STRIPEWISE_EXPLORE_SEED`.
#[test]
fn all_faults_come_together_by_chance() {
    let seed = number_of("STRIPEWISE_EXPLORE_SEED", RandomState::new().hash_one(0));
    let runs = number_of("STRIPEWISE_EXPLORE_RUNS", if is_long() { 20_000 } else { 30 });
    eprintln!("STRIPEWISE_EXPLORE_SEED={seed}");
    for (number, scenario) in (0..).zip(all_together()) {
        let begun = Instant::now();
        let found = wander(&World::new(&scenario), seed.wrapping_add(number), runs);
        eprintln!(
            "{runs} runs, {}: {} steps, {} ends with {} faults in all, {:.1} s",
            in_words(&scenario),
            found.steps,
            found.ends,
            found.faults,
            begun.elapsed().as_secs_f64()
        );
        if let Some((fault, trace)) = found.fault {
            panic!("{fault}, seed {seed}, in {scenario:?}:\n{}", shown(&trace));
        }
        assert!(found.ends > 0 && found.faults > found.ends, "{scenario:?}");
    }
}

fn in_words(scenario: &Scenario) -> String {
    let Scenario { writer, faults, fences, .. } = scenario;
    format!("{}: {writer:?} writes, {:?} is silent, fences: {fences}", scenario.name, faults.silent)
}

fn number_of(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// What is wrong without the safeguard, with a shortest way to it.
fn found_without(safeguard: Safeguard, scenario: &Scenario) -> (&'static str, usize) {
    leave_out(Some(safeguard));
    let found = explore(&World::new(scenario), Order::Shortest, true);
    leave_out(None);
    let Some((fault, trace)) = found.fault else { panic!("nothing goes wrong without {safeguard:?}") };
    eprintln!("without {safeguard:?}, after {} states: {fault}:\n{}", found.states, shown(&trace));
    (fault, trace.len())
}

#[test]
fn a_move_committed_before_its_region_is_recalled_is_found() {
    let scenario = Scenario { writer: Some(0), reader: Some(1), ..PLAIN };
    assert!(found_without(Safeguard::Recall, &scenario).0.contains("read"));
}

#[test]
fn marks_handed_over_before_writers_are_out_are_found() {
    assert!(found_without(Safeguard::Drain, &PLAIN).0.contains("lands in a place"));
}

/// It did: what a host knew before a truncation made the file long again under the next master, which does not truncate it a second time.
#[test]
fn a_size_from_before_a_truncation_is_found() {
    let scenario = Scenario { moves: 0, truncates: true, writer: None, faults: NEXT_MASTER, ..PLAIN };
    let (fault, _) = found_without(Safeguard::Heard, &scenario);
    assert!(fault.contains("size"), "{fault}");
}

/// It did: a repeated question for the marks took those that nobody had asked for yet, and a repeated unseal let writers in during the commit.
#[test]
fn a_step_that_comes_twice_is_found() {
    assert!(found_without(Safeguard::Order, &Scenario { faults: REPEATED, ..PLAIN }).0.contains("written last"));
}

/// A move whose commit was not answered was given up, and its objects removed, though the table had them.
#[test]
fn a_commit_taken_back_that_took_effect_is_found() {
    let _ = found_without(Safeguard::KnownOutcome, &Scenario { faults: LOST, ..PLAIN });
}

/// A host that came back waited for the lock of a truncation, which waited for the host, which then said that it had nothing open.
#[test]
fn a_host_that_answers_before_it_is_back_is_found() {
    let scenario = Scenario { writer: Some(2), moves: 0, truncates: true, faults: NEXT_MASTER, ..PLAIN };
    let _ = found_without(Safeguard::Coming, &scenario);
}

/// They did: a host that came back in the middle of a truncation heard of its end before it had the file's memory again, and then took the old size for a new one.
#[test]
fn sizes_follow_the_truncations_that_memory_has_seen() {
    let memory = RefCell::new(Memory { word: None, is_marked: false, is_shut: true, size: 2, truncations: 0 });
    let (mut heard, truncations) = (HostView::default(), 1001);
    heard.resume(None::<&RefCell<Memory>>, 7, Known { size_bytes: 1, truncations });
    let news = News { as_of: 7, is_shut: false, size_bytes: 1, truncations, recalls: 0, moves: Vec::new() };
    heard.take_news(&memory, true, &news);
    assert_eq!(*memory.borrow(), Memory { word: None, is_marked: false, is_shut: false, size: 1, truncations });
}

#[test]
fn a_move_committed_without_a_host_that_has_departed_is_found() {
    if !is_long() {
        return eprintln!("only in the long form");
    }
    let scenario = Scenario { fences: true, moves: 2, faults: SILENT, ..PLAIN };
    let _ = found_without(Safeguard::Departures, &scenario);
}
