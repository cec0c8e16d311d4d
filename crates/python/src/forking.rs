//! Forks. `os.register_at_fork` calls these, and Python calls no other code of the process between them.
//!
//! A child has its parent's memory and none of its threads, so no lock may be held when memory is copied: the clients take theirs, and requests under way
//! are waited for ([`requests`]), whose threads need no interpreter to end. The child is then a process of its own to the store and uses what is open.

use crate::connection;
use crate::requests;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::sync::RwLockWriteGuard;
use stripewise_store::client::{self, Child, Client};

thread_local! {
    /// Of the fork that this thread is about to make.
    static FORK: RefCell<Option<Fork>> = const { RefCell::new(None) };
}

struct Fork {
    _no_requests: RwLockWriteGuard<'static, ()>,
    clients: Vec<Client>,
}

/// Before `os.fork()`.
#[pyfunction]
pub(crate) fn before_fork() {
    // The interpreter is not given up: whoever has a request under way does not wait for it.
    let _no_requests = requests::none();
    let clients = connection::all();
    client::before_fork(&clients);
    FORK.with_borrow_mut(|fork| *fork = Some(Fork { _no_requests, clients }));
}

/// In the parent, after `os.fork()` or its failure.
#[pyfunction]
pub(crate) fn after_fork_in_parent() {
    if let Some(fork) = FORK.take() {
        client::after_fork_in_parent(&fork.clients, Child::OfProgram);
    }
}

/// In the child.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    if let Some(fork) = FORK.take() {
        client::after_fork_in_child(&fork.clients);
    }
}
