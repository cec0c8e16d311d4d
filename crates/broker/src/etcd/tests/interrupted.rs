//! A writer that ends between any two requests.

use super::super::client::{Answer, Call, Client, ask, transact};
use super::super::error::EtcdError;
use super::super::keys::{Keys, behind};
use super::super::messages::{Found, Operation, Range, Transaction};
use super::super::store::{EtcdStore, Fence};
use super::server::Etcd;
use crate::coordination::Coordinator;
use crate::coordination::tests::{LONG_LEASE, all, applied, candidate, elected, key, large_batch, put_all};
use crate::etcd::EtcdCoordinator;
use crate::rmt::MappingStore;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What becomes of the last request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Last {
    /// It is not sent.
    Unsent,
    /// It is sent, and its answer is lost.
    Unanswered,
    /// It arrives when its master, which went on, has written again. The fence does not help then.
    Late,
}

/// Lets so many requests through; those after the last one are not sent.
struct Interrupted {
    client: Arc<Client>,
    left: AtomicUsize,
    last: Last,
    is_over: AtomicUsize,
    held_back: Mutex<Option<(String, Vec<u8>)>>,
}

impl Call for Interrupted {
    fn call(&self, path: &str, request: &[u8]) -> Result<Answer<Vec<u8>>, EtcdError> {
        let ended = EtcdError::Unreachable { tried: "the writer has ended".into() };
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => return self.client.call(path, request),
            Err(_) if self.is_over.fetch_add(1, Ordering::Relaxed) > 0 => {}
            Err(_) => match self.last {
                Last::Unsent => {}
                Last::Unanswered => drop(self.client.call(path, request)?),
                Last::Late => *self.held_back.lock().unwrap() = Some((path.to_owned(), request.to_vec())),
            },
        }
        Err(ended)
    }

    fn stream(&self, _: &str, _: &[u8], _: Duration) -> Result<Answer<Box<dyn Read + Send>>, EtcdError> {
        unreachable!("a writer does not watch")
    }
}

fn check(client: &Arc<Client>, last: Last, requests: usize, seen: &mut [bool; 2]) -> bool {
    let cluster = format!("{last:?}-{requests}");
    let coordinator = EtcdCoordinator::over(Arc::clone(client) as Arc<dyn Call>, &cluster).with_lease(LONG_LEASE);
    let master = elected(&coordinator, "first");
    assert!(master.table().commit(&put_all(0..300, b"old")).unwrap());
    let before = all(master.table().as_ref());
    let after = applied(&before, &large_batch());
    let interrupted = Arc::new(Interrupted {
        client: Arc::clone(client),
        left: AtomicUsize::new(requests),
        last,
        is_over: AtomicUsize::new(0),
        held_back: Mutex::default(),
    });
    let fence = Fence { create_revision: master.master().term as i64, candidate: candidate("first") };
    let writer = EtcdStore::new(Arc::clone(&interrupted) as Arc<dyn Call>, Keys::new(&cluster), Some(fence.clone()));
    let committed = writer.commit(&large_batch());

    let reader = coordinator.table();
    let found = all(reader.as_ref());
    let took_effect = found == after;
    assert!(took_effect || found == before, "{cluster}: a part of the batch shows");
    assert!(took_effect || committed.is_err(), "{cluster}: acknowledged, but not there");
    seen[usize::from(took_effect)] = true;
    let (mut paged, mut last_key) = (Vec::new(), None::<Vec<u8>>);
    loop {
        let page = reader.scan(b"k", last_key.as_deref(), 83).unwrap();
        let Some((last, _)) = page.last() else { break };
        last_key = Some(last.clone());
        paged.extend(page);
    }
    assert_eq!(paged, found, "{cluster}");
    for number in (90..410).step_by(37) {
        let value = found.iter().find(|(found, _)| *found == key(number)).map(|(_, value)| value.clone());
        assert_eq!(reader.get(&key(number)).unwrap(), value, "{cluster}");
    }

    // It stays master until the end.
    let successor;
    let goes_on: Box<dyn MappingStore> = match last {
        Last::Late => {
            Box::new(EtcdStore::new(Arc::clone(client) as Arc<dyn Call>, Keys::new(&cluster), Some(fence.clone())))
        }
        Last::Unsent | Last::Unanswered => {
            master.resign().unwrap();
            successor = elected(&coordinator, "second");
            successor.table()
        }
    };
    assert!(goes_on.compare_and_swap(b"z", None, Some(b"z")).unwrap());
    let expected: Vec<_> = found.into_iter().chain([(b"z".to_vec(), b"z".to_vec())]).collect();
    assert_eq!(all(reader.as_ref()), expected, "{cluster}");
    if let Some((path, request)) = interrupted.held_back.lock().unwrap().take() {
        client.call(&path, &request).unwrap();
        assert_eq!(all(reader.as_ref()), expected, "{cluster}: a late request took effect");
    }
    let staged = format!("stripewise/{cluster}/s/").into_bytes();
    let left: Found = ask(client.as_ref(), "/v3/kv/range", &Range::between(&staged, &behind(&staged))).unwrap();
    assert!(left.kvs.is_empty(), "{cluster}: staged parts are left");
    interrupted.is_over.load(Ordering::Relaxed) == 0
}

#[test]
fn a_writer_that_ends_between_any_two_requests_leaves_all_or_nothing() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let client = Arc::new(Client::new(&etcd.options()).unwrap());
    for last in [Last::Unsent, Last::Unanswered, Last::Late] {
        let mut seen = [false; 2];
        let needed = (0..).find(|requests| check(&client, last, *requests, &mut seen)).unwrap();
        assert!(needed > 10, "the batch took {needed} requests");
        assert_eq!(seen, [true; 2], "some writers end before the decision and some after it");
    }
}

/// Loses the answer of every second request, and sends it again, as a client does that turns to another endpoint.
struct Repeating(Arc<Client>, AtomicUsize);

impl Call for Repeating {
    fn call(&self, path: &str, request: &[u8]) -> Result<Answer<Vec<u8>>, EtcdError> {
        if self.1.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            self.0.call(path, request)?;
        }
        self.0.call(path, request)
    }

    fn stream(&self, path: &str, request: &[u8], silence: Duration) -> Result<Answer<Box<dyn Read + Send>>, EtcdError> {
        self.0.stream(path, request, silence)
    }
}

#[test]
fn a_request_that_is_sent_again_takes_effect_once() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let client = Arc::new(Client::new(&etcd.options()).unwrap());
    for shift in 0..2 {
        let repeating = Arc::new(Repeating(Arc::clone(&client), AtomicUsize::new(shift)));
        let coordinator = EtcdCoordinator::over(repeating, &format!("again-{shift}")).with_lease(LONG_LEASE);
        let master = elected(&coordinator, "one");
        let store = master.table();
        for number in 0..20_u8 {
            let old = number.checked_sub(1).map(|old| vec![old]);
            assert!(store.compare_and_swap(b"counter", old.as_deref(), Some(&[number])).unwrap());
            assert!(!store.compare_and_swap(b"counter", old.as_deref(), Some(&[number])).unwrap());
        }
        assert!(store.commit(&put_all(0..300, b"old")).unwrap());
        assert!(store.commit(&large_batch()).unwrap());
        assert!(!store.commit(&large_batch()).unwrap(), "what it expects no longer holds");
    }
}

#[test]
fn a_staged_batch_that_lost_a_part_is_damage() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let client = Arc::new(Client::new(&etcd.options()).unwrap());
    let coordinator = EtcdCoordinator::over(Arc::clone(&client) as Arc<dyn Call>, "lost").with_lease(LONG_LEASE);
    let master = elected(&coordinator, "first");
    // Settling, three parts and the decision.
    let interrupted = Interrupted {
        client: Arc::clone(&client),
        left: AtomicUsize::new(5),
        last: Last::Unsent,
        is_over: AtomicUsize::new(0),
        held_back: Mutex::default(),
    };
    let fence = Fence { create_revision: master.master().term as i64, candidate: candidate("first") };
    let writer = EtcdStore::new(Arc::new(interrupted), Keys::new("lost"), Some(fence));
    assert!(writer.commit(&put_all(0..300, b"1")).unwrap());
    let parts = |batch: &str| Operation::delete_between(batch.as_bytes(), b"stripewise/lost/s0");
    let lose = Transaction { success: vec![parts("stripewise/lost/s/")], ..Default::default() };
    transact(client.as_ref(), &lose).unwrap();
    let store = master.table();
    let errors = [store.get(&key(1)).unwrap_err(), store.put(&key(1), b"2").unwrap_err()];
    for said in errors.map(|error| error.to_string()) {
        assert!(said.contains("stripewise/lost/s/") && said.contains("missing"), "{said}");
    }
}

#[test]
fn a_state_of_a_later_format_is_refused_by_name() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let client = Client::new(&etcd.options()).unwrap();
    let coordinator = etcd.coordinator("later");
    let master = elected(&coordinator, "first");
    let state = Operation::put(b"stripewise/later/state", br#"{"format":2,"parts":{}}"#);
    transact(&client, &Transaction { success: vec![state], ..Transaction::default() }).unwrap();
    let store = master.table();
    let errors = [store.get(&key(1)).unwrap_err(), store.put(&key(1), b"2").unwrap_err()];
    for said in errors.map(|error| error.to_string()) {
        assert!(said.contains("stripewise/later/state") && said.contains("format 2"), "{said}");
    }
}
