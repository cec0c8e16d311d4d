//! One master at a time.

use super::{Engine, PATIENCE, PAUSE, all, candidate, elected, key, put_all};
use crate::coordination::Coordinator;
use crate::rmt::RmtError;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const LEASE: Duration = Duration::from_secs(8);
/// Of a process that is a candidate: where its engine is.
const ADDRESS: &str = "STRIPEWISE_TEST_ENGINE";

/// Where the engine is, in a process that is a candidate.
pub(crate) fn address_of_candidate() -> Option<String> {
    std::env::var(ADDRESS).ok()
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never {what}");
        std::thread::sleep(PAUSE);
    }
}

/// What the candidate in a process of its own does: it is elected, and commits whenever it is told to.
pub(crate) fn run_candidate(coordinator: &dyn Coordinator) {
    let master = elected(coordinator, "first");
    let store = master.table();
    println!("answer: elected");
    for line in std::io::stdin().lines() {
        let said = match store.put(line.unwrap().as_bytes(), b"first") {
            Ok(()) => "committed".to_owned(),
            Err(error) => error.to_string(),
        };
        println!("answer: {said}");
    }
}

/// This test's program again, as a candidate. It ends when this is dropped.
struct CandidateProcess {
    process: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl CandidateProcess {
    fn start(test: &str, address: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(ADDRESS, address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, answers }
    }

    fn answer(&mut self) -> String {
        let mut lines = self.answers.by_ref().map(|line| line.expect("the candidate says something"));
        // The harness prints the test's name in front of what the test prints first.
        lines.find_map(|line| line.split_once("answer: ").map(|(_, said)| said.to_owned())).unwrap()
    }

    fn commit(&mut self, key: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{key}").unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for CandidateProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `coordinator` is that of the engine at `address`, which the candidate's process is given. The test calls [`run_candidate`] there.
pub(crate) fn a_master_that_was_stopped_is_followed_and_its_next_commit_is_refused(
    coordinator: &dyn Coordinator,
    address: &str,
) -> String {
    let name = std::thread::current().name().expect("the harness names its threads").to_owned();
    let mut first = CandidateProcess::start(&name, address);
    assert_eq!(first.answer(), "elected");
    first.commit("a");
    assert_eq!(first.answer(), "committed");
    assert_eq!(coordinator.master().unwrap().unwrap().candidate, candidate("first"));
    // It renews: another does not get in for longer than a lease lasts.
    assert!(coordinator.campaign(&candidate("second"), LEASE * 3 / 2).unwrap().is_none());

    first.signal(Signal::STOP);
    let second = elected(coordinator, "second");
    assert!(second.table().compare_and_swap(b"a", Some(b"first"), Some(b"second")).unwrap());
    first.commit("a");
    first.signal(Signal::CONT);
    let said = first.answer();
    assert!(said.starts_with("first is not the master"), "{said}");
    assert_eq!(coordinator.table().get(b"a").unwrap(), Some(b"second".to_vec()));
    assert_eq!(coordinator.master().unwrap().as_ref(), Some(second.master()));
    assert!(!second.is_lost());
    said
}

pub(crate) fn a_master_whose_lease_is_not_renewed_is_lost_and_followed(coordinator: &dyn Coordinator) {
    let first = elected(coordinator, "first");
    let store = first.table();
    store.put(b"a", b"first").unwrap();
    assert!(!first.is_lost());
    let term = first.master().term;
    // Dropped, it renews no more.
    drop(first);
    let second = elected(coordinator, "second");
    assert!(second.master().term > term);
    let refused = store.put(b"a", b"late").unwrap_err();
    assert!(matches!(&refused, RmtError::Deposed { name, .. } if name == "first"), "{refused}");
    // Also a batch in parts, and a copy.
    assert!(matches!(store.commit(&put_all(0..300, b"late")), Err(RmtError::Deposed { .. })));
    assert!(matches!(store.keep_copy("good"), Err(RmtError::Deposed { .. })));
    assert_eq!(all(coordinator.table().as_ref()), [(b"a".to_vec(), b"first".to_vec())]);
}

/// Whoever follows a master hears that it is none any more.
pub(crate) fn the_end_of_a_term_is_reported(engine: &dyn Engine) {
    let coordinator = engine.coordinator("elected", PATIENCE * 100);
    let coordinator = coordinator.as_ref();
    let first = elected(coordinator, "first");
    let term = first.master().term;
    assert!(!coordinator.wait_for_end_of(term, Duration::ZERO).unwrap());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| coordinator.wait_for_end_of(term, PATIENCE));
        first.resign().unwrap();
        assert!(waiting.join().unwrap().unwrap());
    });
    let second = elected(coordinator, "second");
    assert!(coordinator.wait_for_end_of(term, Duration::ZERO).unwrap());
    assert!(!coordinator.wait_for_end_of(second.master().term, Duration::ZERO).unwrap());
}

pub(crate) fn a_master_that_resigns_hands_over_at_once(engine: &dyn Engine) {
    // A lease that outlasts the test: without the resignation nobody follows.
    let coordinator = engine.coordinator("elected", PATIENCE * 100);
    let coordinator = coordinator.as_ref();
    let first = elected(coordinator, "first");
    let store = first.table();
    store.put(&key(1), b"first").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| elected(coordinator, "second"));
        first.resign().unwrap();
        let second = waiting.join().unwrap();
        assert!(matches!(store.put(&key(1), b"late"), Err(RmtError::Deposed { .. })));
        assert!(second.table().compare_and_swap(&key(1), Some(b"first"), Some(b"second")).unwrap());
        second.resign().unwrap();
    });
    assert_eq!(coordinator.master().unwrap(), None);
    let said = store.put(&key(1), b"late").unwrap_err().to_string();
    assert!(said.contains("the master is nobody"), "{said}");
    let said = coordinator.table().put(&key(1), b"reader").unwrap_err().to_string();
    assert!(said.contains("reader"), "{said}");
}

/// The lease outlasts the test: nobody waits for its end.
pub(crate) fn a_master_that_has_ended_for_certain_is_followed_at_once_and_none_but_it(coordinator: &dyn Coordinator) {
    let first = elected(coordinator, "first");
    let (store, term) = (first.table(), first.master().term);
    store.put(&key(1), b"first").unwrap();
    drop(first);
    coordinator.end_term(term).unwrap();
    assert_eq!(coordinator.master().unwrap(), None);
    let second = elected(coordinator, "second");
    assert!(store.put(&key(1), b"late").is_err());
    // Of a term that is over nothing is left to be ended.
    coordinator.end_term(term).unwrap();
    assert_eq!(coordinator.master().unwrap().as_ref(), Some(second.master()));
    second.table().put(&key(1), b"second").unwrap();
}
