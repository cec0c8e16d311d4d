//! The mapping table and the election in etcd, version 3.4 or later, by its JSON gateway.
//!
//! All keys of a cluster begin with `stripewise/<cluster id>/`:
//!
//! | key | value |
//! |---|---|
//! | `t/` and a key of the table | the table's value |
//! | `state` | `State`: the last batch, and whether it still has to be copied into `t/` |
//! | `s/` batch, `/`, number | part of a batch that one transaction cannot hold ([`staging`]) |
//! | `master` | the master's [`crate::coordination::Candidate`]; it goes with the master's lease |
//! | `k/` name | which copy of the table this name means |
//! | `c/` name, `/`, copy, `/` and a key of the table | a value of that copy |
//!
//! # A commit
//!
//! Every transaction that changes the table expects two things besides what the batch expects: that `master` still has the creation
//! revision that this master's election gave it (the fence), and that `state` is as this master left it. It replaces `state` by the
//! name of its own batch. So a request whose answer was lost can be sent again, to another endpoint too: it takes effect once at most,
//! and a request that arrives late takes no effect.
//!
//! A batch of more changes or bytes than one transaction may hold is staged first. Then one transaction decides: it makes `state` name
//! the staged batch. From that moment on all readers see all of it, since they look into what is staged first. It is then copied into `t/`
//! part by part, and `state` says so at the end. A master that dies before the decision leaves parts that its successor drops;
//! one that dies after it leaves a batch that its successor's first commit finishes.

mod client;
mod election;
mod error;
mod keys;
mod messages;
mod salvaging;
mod staging;
mod store;
mod watch;

#[cfg(test)]
pub(crate) mod tests;

pub use client::{EtcdOptions, TlsFiles};
pub use election::EtcdCoordinator;
pub use error::EtcdError;
pub use store::EtcdStore;
