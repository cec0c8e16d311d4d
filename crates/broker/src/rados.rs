//! Ceph RADOS: what is asked of a cluster's pools, in safe words.
//!
//! librados is loaded when the first connection is made ([`Library`]), so that nothing links it and one binary serves hosts without Ceph. A
//! process that has connected has a dozen threads more, and a child that it forks must not use what it inherited. So the broker
//! connects and nobody else does.
//!
//! Every object carries an [`Epoch`] as an attribute. An operation on an object names the epoch that it expects, and the server
//! compares it in the same round trip: an operation of another epoch is refused ([`RadosError::WrongEpoch`]), and so is one whose object is gone
//! ([`RadosError::Missing`]). Without that, a write that arrives late would make a removed object again.
//!
//! A full pool refuses what adds to it ([`RadosError::Full`]) instead of keeping it waiting. An operation on a server that is
//! down waits until the server is back, unless [`ConnectOptions::operation_patience`] ends it. What became of an operation that was
//! given up so is unknown: it may yet take effect. What an operation acknowledged is as durable as its pool.

mod connection;
mod coordination;
// Other C libraries have no `on_exit`.
#[cfg(target_env = "gnu")]
mod ending;
mod error;
mod library;
mod lock;
mod members;
mod monitors;
mod operation;
mod pool;
mod probe;
mod scratch;
mod store;
mod survey;
mod throttled;
mod waiting;

pub use connection::{ConnectOptions, Connection, shared};
pub use coordination::{RadosCoordinator, RadosOptions, RadosTable, RadosTableError};
pub use error::RadosError;
pub use library::Library;
pub use lock::{LockState, Renewal};
pub(crate) use members::open_shared;
use monitors::space_of;
pub use operation::{Completion, Epoch, KeyRange, Operation, Piece};
pub use pool::{Pool, Request};
pub(crate) use probe::probe;
pub use scratch::scratch;
pub use store::{RadosServer, connect, inspect, open, prepare, prepare_url};
pub use survey::{CephCommand, Osd, PoolFacts, Survey, free_bytes, probe_blocklist};
