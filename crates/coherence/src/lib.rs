//! The protocol between the master of a cluster and its other hosts, for one file whose regions move and which is truncated: state machines
//! without I/O, clock or threads. The broker's threads drive them; the tests of this crate explore them.
//!
//! - [`host`] is a host's side: what it was told of the file, which messages come too late, and what becomes of the file's shared memory.
//! - [`moving`] is the master's side of a region's move: which step follows which, and what hosts are asked.
//! - [`stopping`] is the master's side of stopping all I/O on the file, for a truncation.
//! - [`truncating`] is the order in which a file is truncated then.
//! - [`seats`] is who has to be asked.
//!
//! # The rules
//!
//! Moves and stops have *turns*, which rise from master to master; the messages of one move are numbered within its turn. A host remembers the last of each
//! region, and takes no step that is not later. So a message that is repeated, or comes late, changes nothing.
//!
//! A host takes part in a move from its begin on, or from when it opens the file: the answer to the open says how far the file's moves are. A host
//! without shared memory of the file has no writers; it only remembers what it hears, until the answer comes.
//!
//! A move is committed only after every host that may have the file open has handed over its marks under the seal and forgotten where the region lies.
#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

pub mod host;
pub mod moving;
pub mod safeguard;
pub mod seats;
pub mod stopping;
pub mod truncating;

#[cfg(test)]
mod model;
