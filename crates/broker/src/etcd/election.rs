//! The election: whoever creates the key `master` under a lease is master until the lease ends or the key is removed.

use super::client::{Call, Client, EtcdOptions, ask, transact};
use super::error::EtcdError;
use super::keys::Keys;
use super::messages::{Bytes, Compare, Entry, Found, Lease, Number, Operation, Range, Streamed, Transaction};
use super::salvaging::Salvaging;
use super::store::{EtcdStore, Fence};
use super::watch::events;
use crate::coordination::{self, Candidate, Coordinator, Master, Mastership, Salvage, boot_time_ms};
use crate::rmt::{MappingStore, RmtError};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time after which a master that is not heard of is followed by another; a second is what etcd counts in, two are its least.
const USUAL_LEASE: Duration = Duration::from_secs(3);
/// So many times in a lease is it renewed: etcd, or the way to it, may be slow for most of a lease.
const RENEWALS: u32 = 6;
/// A candidate looks again after so long, whether or not it was told of anything.
const RETRY: Duration = Duration::from_secs(2);

/// The table and the election of one cluster in etcd.
pub struct EtcdCoordinator {
    calls: Arc<dyn Call>,
    keys: Keys,
    lease: Duration,
}

impl EtcdCoordinator {
    /// Of the cluster with this id. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// An endpoint that is none, or a TLS file that cannot be used.
    pub fn new(options: &EtcdOptions, cluster: &str) -> Result<Self, EtcdError> {
        Ok(Self::over(Arc::new(Client::new(options)?), cluster))
    }

    pub(super) fn over(calls: Arc<dyn Call>, cluster: &str) -> Self {
        Self { calls, keys: Keys::new(cluster), lease: USUAL_LEASE }
    }

    /// How long a master that does not renew stays master; whole seconds, at least 2.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    fn grant(&self) -> Result<Lease, EtcdError> {
        let request = Lease { id: Number(0), seconds: Number(self.lease.as_secs().max(2) as i64) };
        ask(self.calls.as_ref(), "/v3/lease/grant", &request)
    }

    /// The term of the master, if there is one, and the revision of etcd.
    fn read_election(&self) -> Result<(Option<u64>, i64), EtcdError> {
        let success = vec![Operation::Range(Range::of(&self.keys.master()))];
        let mut outcome = transact(self.calls.as_ref(), &Transaction { success, ..Transaction::default() })?;
        let term = outcome.take(0).kvs.first().map(|entry| entry.create_revision.0 as u64);
        Ok((term, outcome.header.revision.0))
    }

    /// Creates the key unless it is there; returns it as it is then, and the revision of etcd.
    fn stand(&self, candidate: &Candidate, lease: &Lease) -> Result<(Option<Entry>, i64), EtcdError> {
        let master = self.keys.master();
        let value = Bytes(serde_json::to_vec(candidate).expect("strings"));
        let put = Operation::Put { key: Bytes(master.clone()), value, lease: lease.id };
        let found = || Operation::Range(Range::of(&master));
        let transaction = Transaction {
            compare: vec![Compare::created(&master, 0)],
            success: vec![put, found()],
            failure: vec![found()],
        };
        let mut outcome = transact(self.calls.as_ref(), &transaction)?;
        let index = usize::from(outcome.succeeded);
        Ok((outcome.take(index).kvs.pop(), outcome.header.revision.0))
    }

    fn won(&self, candidate: &Candidate, lease: Lease, create_revision: i64, asked: i64) -> EtcdMastership {
        let fence = Fence { create_revision, candidate: candidate.clone() };
        let store = Arc::new(EtcdStore::new(Arc::clone(&self.calls), self.keys.clone(), Some(fence)));
        let renewal = Arc::new(Renewal {
            calls: Arc::clone(&self.calls),
            lease,
            renewed_ms: AtomicI64::new(asked),
            is_over: AtomicBool::new(false),
            ended: Mutex::new(false),
            woken: Condvar::new(),
        });
        let renewing = Arc::clone(&renewal);
        let started = std::thread::Builder::new().name("etcd-lease".into()).spawn(move || renewing.run());
        // Without the thread the mastership is lost when the lease ends, and says so.
        drop(started);
        let master = Master { candidate: candidate.clone(), term: create_revision as u64 };
        EtcdMastership { master, keys: self.keys.clone(), store, renewal }
    }
}

impl Coordinator for EtcdCoordinator {
    fn table(&self) -> Box<dyn MappingStore> {
        Box::new(EtcdStore::new(Arc::clone(&self.calls), self.keys.clone(), None))
    }

    fn salvage(&self) -> Result<Salvage, RmtError> {
        let table = EtcdStore::new(Arc::clone(&self.calls), self.keys.clone(), None);
        Ok(Salvaging { table: &table, calls: self.calls.as_ref(), keys: &self.keys }.run()?)
    }

    fn master(&self) -> Result<Option<Master>, RmtError> {
        let master = self.keys.master();
        let found: Found = ask(self.calls.as_ref(), "/v3/kv/range", &Range::of(&master))?;
        let Some(entry) = found.kvs.first() else { return Ok(None) };
        let candidate = serde_json::from_slice(&entry.value.0).map_err(|error| EtcdError::Damaged {
            key: String::from_utf8_lossy(&master).into_owned(),
            what: error.to_string(),
        })?;
        Ok(Some(Master { candidate, term: entry.create_revision.0 as u64 }))
    }

    fn campaign(&self, candidate: &Candidate, patience: Duration) -> Result<Option<Box<dyn Mastership>>, RmtError> {
        let deadline = Instant::now() + patience;
        loop {
            let (master, mut revision) = self.read_election()?;
            if master.is_none() {
                // A lease of its own for every attempt: one that nobody renews ends by itself.
                let asked = boot_time_ms();
                let lease = self.grant()?;
                let (found, stood) = self.stand(candidate, &lease)?;
                if let Some(entry) = found.filter(|entry| entry.lease == lease.id) {
                    return Ok(Some(Box::new(self.won(candidate, lease, entry.create_revision.0, asked))));
                }
                revoke(self.calls.as_ref(), &lease);
                revision = stood;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.wait_for_change(revision, left.min(RETRY));
        }
    }

    fn wait_for_end_of(&self, term: u64, patience: Duration) -> Result<bool, RmtError> {
        let deadline = Instant::now() + patience;
        loop {
            let (master, revision) = self.read_election()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if master != Some(term) || left.is_zero() {
                return Ok(master != Some(term));
            }
            self.wait_for_change(revision, left.min(RETRY));
        }
    }

    fn end_term(&self, term: u64) -> Result<(), RmtError> {
        Ok(remove_master(self.calls.as_ref(), &self.keys, term)?)
    }
}

impl EtcdCoordinator {
    /// Returns when the key `master` changes after `revision`, or after about `patience`.
    fn wait_for_change(&self, revision: i64, patience: Duration) {
        let master = self.keys.master();
        match events(self.calls.as_ref(), (&master, &[]), revision + 1, patience) {
            Ok(mut events) => drop(events.find(|events| events.as_ref().is_none_or(|events| !events.is_empty()))),
            Err(_) => std::thread::sleep(patience.min(RETRY / 10)),
        }
    }
}

/// Nobody is master any more, if that of this term still was.
fn remove_master(calls: &dyn Call, keys: &Keys, term: u64) -> Result<(), EtcdError> {
    let master = keys.master();
    let transaction = Transaction {
        compare: vec![Compare::created(&master, term as i64)],
        success: vec![Operation::delete(&master)],
        failure: Vec::new(),
    };
    transact(calls, &transaction).map(drop)
}

fn revoke(calls: &dyn Call, lease: &Lease) {
    // One that is not revoked ends by itself.
    let _: Result<serde_json::Value, _> = ask(calls, "/v3/lease/revoke", lease);
}

struct Renewal {
    calls: Arc<dyn Call>,
    lease: Lease,
    /// When the last renewal that etcd granted was asked for.
    renewed_ms: AtomicI64,
    /// etcd said so.
    is_over: AtomicBool,
    ended: Mutex<bool>,
    woken: Condvar,
}

impl Renewal {
    fn run(&self) {
        let interval = Duration::from_secs(self.lease.seconds.0.unsigned_abs()) / RENEWALS;
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended && !self.is_over.load(Ordering::Relaxed) {
            (ended, _) = self.woken.wait_timeout(ended, interval).unwrap_or_else(PoisonError::into_inner);
            if *ended {
                return;
            }
            drop(ended);
            self.renew();
            ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn renew(&self) {
        let asked = boot_time_ms();
        let request = Lease { seconds: Number(0), ..self.lease.clone() };
        let answer: Result<Streamed<Lease>, _> = ask(self.calls.as_ref(), "/v3/lease/keepalive", &request);
        // Without an answer the time goes on.
        let Ok(Streamed { result: Some(lease) }) = answer else { return };
        match lease.seconds.0 > 0 {
            true => self.renewed_ms.store(asked, Ordering::Relaxed),
            false => self.is_over.store(true, Ordering::Relaxed),
        }
    }

    fn end(&self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.notify_all();
    }
}

impl coordination::Lease for Renewal {
    fn is_over(&self) -> bool {
        let age_ms = boot_time_ms() - self.renewed_ms.load(Ordering::Relaxed);
        self.is_over.load(Ordering::Relaxed) || age_ms >= self.lease.seconds.0 * 1000
    }
}

struct EtcdMastership {
    master: Master,
    keys: Keys,
    store: Arc<EtcdStore>,
    renewal: Arc<Renewal>,
}

impl Drop for EtcdMastership {
    fn drop(&mut self) {
        self.renewal.end();
    }
}

impl Mastership for EtcdMastership {
    fn master(&self) -> &Master {
        &self.master
    }

    fn table(&self) -> Box<dyn MappingStore> {
        // All tables of one mastership are one writer.
        Box::new(Arc::clone(&self.store))
    }

    fn lease(&self) -> Arc<dyn coordination::Lease> {
        Arc::clone(&self.renewal) as _
    }

    fn resign(self: Box<Self>) -> Result<(), RmtError> {
        self.renewal.end();
        remove_master(self.renewal.calls.as_ref(), &self.keys, self.master.term)?;
        revoke(self.renewal.calls.as_ref(), &self.renewal.lease);
        self.renewal.is_over.store(true, Ordering::Relaxed);
        Ok(())
    }
}
