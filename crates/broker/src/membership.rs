//! A host as one of those that share a cluster's servers.
//!
//! The master admits hosts, each time by a higher number. A server that another host may shut this one out of is opened with the number of the present
//! admission, and refuses one that is not above the number by which the host was shut out last. So an agent that was stopped, and goes on after the
//! others went on without it, opens nothing any more before it was admitted again.

use crate::coordination::Lease;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Who opens servers.
pub(crate) struct Membership {
    host: String,
    is_master: bool,
    /// 0: not admitted.
    admission: AtomicU64,
    is_over: AtomicBool,
    /// The master's.
    lease: Option<Arc<dyn Lease>>,
}

impl Membership {
    /// The master's: `first_number` is higher than whatever a master before it gave out.
    pub(crate) fn of_master(host: &str, first_number: u64) -> Self {
        Self::new(host, true, first_number)
    }

    /// Of a host that has yet to be admitted.
    pub(crate) fn of_follower(host: &str) -> Self {
        Self::new(host, false, 0)
    }

    fn new(host: &str, is_master: bool, admission: u64) -> Self {
        let (admission, is_over) = (AtomicU64::new(admission), AtomicBool::new(false));
        Self { host: host.to_owned(), is_master, admission, is_over, lease: None }
    }

    /// The master's, for as long as its lease is renewed.
    pub(crate) fn under(self, lease: Arc<dyn Lease>) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// Whether another may be master by now, which has gone on without this one. What changes the table is fenced. Whatever else this host would answer as
    /// master may be true no more.
    pub(crate) fn may_be_followed(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.is_over())
    }

    /// The role is over. A server that is being opened since, for an operation that waits for it, is not opened: by now the host may be another client there, and
    /// have been shut out in between.
    pub(crate) fn end(&self) {
        self.is_over.store(true, SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    pub(crate) fn admit(&self, admission: u64) {
        self.admission.store(admission, SeqCst);
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn is_master(&self) -> bool {
        self.is_master
    }

    /// `None`: no master has admitted the host yet.
    pub(crate) fn admission(&self) -> Option<u64> {
        Some(self.admission.load(SeqCst)).filter(|admission| *admission != 0)
    }
}

/// Whether the other hosts know that this one has nothing open any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leave {
    /// They do.
    Said,
    /// The master has not heard it.
    Unheard,
    /// Programs have files open, or another role follows.
    Stays,
}
