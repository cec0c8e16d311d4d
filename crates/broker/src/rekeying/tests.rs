//! Changes of the key that are interrupted everywhere, on hosts whose files are real.

use super::*;
use crate::agent_counts::AgentCounts;
use crate::host_messages::{decode, encode};
use crate::others::Line;
use crate::rmt::MemoryStore;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NAMES: [&str; 3] = ["h0", "h1", "h2"];

/// Three hosts whose key files are their own, and the table that they share.
struct Hosts {
    root: TempDir,
    table: Arc<MemoryStore>,
}

/// Where the master ends: before this step of the change, counted from 0, on whichever host it would be taken.
struct Crash {
    left: AtomicU64,
}

/// What a master panics with that ends.
struct Ended;

impl Crash {
    fn pass(&self) {
        if self.left.fetch_sub(1, SeqCst) == 0 {
            panic_any(Ended);
        }
    }
}

/// A host that hears what the master asks.
struct Hearing {
    keys: HostKeys,
    crash: Arc<Crash>,
}

impl Line for Hearing {
    fn ask(&self, question: &[u8], _: Duration) -> Result<Vec<u8>, String> {
        self.crash.pass();
        let ToAgent::Keys(step) = decode(question)? else { return Err("a question about keys is asked".to_owned()) };
        let taken = self.keys.take(&step);
        let refused =
            |error: crate::host_keys::KeysError| FromAgent::Refused(Refusal::Invalid { what: error.to_string() });
        Ok(encode(&taken.map_or_else(refused, |()| FromAgent::Done)))
    }

    fn number(&self) -> u64 {
        1
    }

    fn last_heard(&self) -> Instant {
        Instant::now()
    }

    fn end(&self) {}
}

impl Hosts {
    fn new() -> Self {
        let hosts = Self { root: tempfile::tempdir().unwrap(), table: Arc::default() };
        ClusterKey::make(&hosts.path(NAMES[0])).unwrap();
        for name in &NAMES[1..] {
            std::fs::copy(hosts.path(NAMES[0]), hosts.path(name)).unwrap();
        }
        hosts
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn table(&self) -> Table {
        Table::new(Box::new(Arc::clone(&self.table))).unwrap()
    }

    /// As a host's agent has them that begins now.
    fn keys(&self, name: &str) -> HostKeys {
        HostKeys::load(&self.path(name)).unwrap()
    }

    /// The key is changed under a new master, which ends before step `crash` of it. None: it ended.
    fn change(&self, master: &str, order: u64, crash: u64) -> Option<Result<Changed, Refusal>> {
        let crash = Arc::new(Crash { left: AtomicU64::new(crash) });
        let counts = Arc::new(AgentCounts::new(0, Arc::default()));
        let others = Others::new([], Duration::from_secs(1 << 30), 0, &counts);
        let (table, keys) = (self.table(), self.keys(master));
        keys.catch_up(key_record(&table).unwrap().as_ref()).unwrap();
        for name in NAMES.iter().filter(|name| **name != master) {
            let keys = self.keys(name);
            keys.catch_up(key_record(&table).unwrap().as_ref()).unwrap();
            others.holds(name, Arc::new(Hearing { keys, crash: Arc::clone(&crash) }), Vec::new());
        }
        let step = |_: &'static str| crash.pass();
        let change = Change { table: &table, others: &others, keys: &keys, host: master, step: &step };
        match catch_unwind(AssertUnwindSafe(|| change.make(order))) {
            Ok(made) => Some(made),
            Err(ended) if ended.is::<Ended>() => None,
            Err(other) => std::panic::resume_unwind(other),
        }
    }

    /// Any two hosts accept each other, as they are and as they begin again.
    fn check_that_all_talk(&self, when: &str) {
        let record = key_record(&self.table()).unwrap();
        for caught_up in 0..1 << NAMES.len() {
            let keys = NAMES.iter().enumerate().map(|(number, name)| {
                let root = tempfile::tempdir().unwrap();
                for kind in ["", ".next", ".previous"] {
                    let _ = std::fs::copy(self.path(&format!("{name}{kind}")), root.path().join(format!("key{kind}")));
                }
                let keys = HostKeys::load(&root.path().join("key")).unwrap();
                if caught_up & (1 << number) != 0 {
                    keys.catch_up(record.as_ref()).unwrap();
                }
                keys.key()
            });
            let keys: Vec<_> = keys.collect();
            for (a, b) in keys.iter().flat_map(|a| keys.iter().map(move |b| (a, b))) {
                assert!(a.accepts_key(b), "{when}: two hosts refuse each other ({caught_up:b})");
            }
        }
    }
}

#[test]
fn a_change_that_ends_anywhere_leaves_hosts_that_talk_and_goes_through_when_it_is_asked_for_again() {
    let reached = Cell::new(0);
    for (crash, next_master, is_repeated) in
        (0..).flat_map(|crash| NAMES.map(|next| [(crash, next, true), (crash, next, false)])).flatten()
    {
        let hosts = Hosts::new();
        let old = hosts.keys("h0").key();
        let first = hosts.change("h0", 1, crash);
        if first.is_some() {
            assert!(crash > 8, "every step is one that a crash can precede");
            reached.set(crash);
            break;
        }
        let when = format!("the master ended before step {crash}, and {next_master} follows");
        hosts.check_that_all_talk(&when);
        let order = if is_repeated { 1 } else { 2 };
        let changed = hosts.change(next_master, order, u64::MAX).unwrap().unwrap();
        assert!(changed.missed.is_none() && changed.record.has_ended, "{when}");
        for name in NAMES {
            let key = hosts.keys(name).key();
            assert_eq!(key.fingerprint(), changed.record.fingerprint, "{when}: {name} has the new key");
            assert!(!key.accepts_key(&old), "{when}: {name} accepts the old key");
        }
        hosts.check_that_all_talk(&when);
        // Asked once more with the same number, nothing changes.
        let again = hosts.change("h1", changed.record.order, u64::MAX).unwrap().unwrap();
        assert_eq!(again.record, changed.record, "{when}");
    }
    println!("{} steps", reached.get());
}

#[test]
fn a_host_that_missed_a_change_is_told_what_to_do_and_takes_part_again_with_the_copied_file() {
    let hosts = Hosts::new();
    let stale = hosts.root.path().join("stale");
    std::fs::copy(hosts.path("h0"), &stale).unwrap();
    let changed = hosts.change("h0", 1, u64::MAX).unwrap().unwrap();
    let keys = HostKeys::load(&stale).unwrap();
    let said = keys.catch_up(Some(&changed.record)).unwrap_err().to_string();
    for part in [stale.to_str().unwrap(), &keys.shown(), &changed.record.fingerprint, "copy the file", "mode 600"] {
        assert!(said.contains(part), "{said}");
    }
    std::fs::copy(hosts.path("h2"), &stale).unwrap();
    keys.catch_up(Some(&changed.record)).unwrap();
    assert_eq!(keys.shown(), changed.record.fingerprint);
}

#[test]
fn a_key_is_not_replaced_while_a_host_does_not_answer() {
    let hosts = Hosts::new();
    let counts = Arc::new(AgentCounts::new(0, Arc::default()));
    let others = Others::new([("h1".to_owned(), Default::default())], Duration::from_secs(1 << 30), 0, &counts);
    let (table, keys) = (hosts.table(), hosts.keys("h0"));
    let change = Change { table: &table, others: &others, keys: &keys, host: "h0", step: &|_| {} };
    let before = keys.shown();
    let said = change.make(1).err().unwrap().to_string();
    assert!(said.contains("host h1") && said.contains("stripewise host forget h1"), "{said}");
    assert_eq!((keys.shown(), key_record(&table).unwrap()), (before, None));
    others.leaves("h1");
    assert_eq!(change.make(2).unwrap().record.fingerprint, keys.shown());
}
