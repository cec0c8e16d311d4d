//! How a client waits, what it keeps open, and how it opens servers and starts brokers.

use crate::server::stations::Stations;
use crate::server::{ObjectStore, ServerError};
use rustix::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stripewise_layout::{ServerId, ServerUrl};

/// Opens a server; [`crate::server::open`] unless a test puts faults before it.
pub type OpenServer =
    fn(&str, ServerId, &str, &ServerUrl, Option<&Arc<Stations>>) -> Result<Box<dyn ObjectStore>, ServerError>;

/// How a client waits and what it keeps open. The default is for an application's process.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Lowest number for the library's own descriptors; [`crate::descriptors::default_base`] unless given.
    pub descriptor_base: Option<RawFd>,
    /// Most object descriptors kept open; fewer where the hard limit of open files leaves less room.
    pub object_descriptors: usize,
    /// How long the first connection is tried for.
    pub connect_patience: Duration,
    /// How long a lost broker is waited for, and a file that another holds exclusively.
    pub patience: Duration,
    /// Whether the close of a file that leaves nothing to be recorded, and a change of names that was noted, return only when the broker knows of it. Without, it
    /// knows an instant later, as of a process that ended.
    pub waits_for_closes: bool,
    /// Opens each server at its first use.
    pub open_server: OpenServer,
    /// Starts a broker of a state directory whose broker is gone. It returns whether one may come now, which is then waited for with new patience. A request
    /// calls it once at most, with the client's lock held.
    pub start_broker: Option<fn(&Path) -> bool>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            descriptor_base: None,
            object_descriptors: 4096,
            connect_patience: Duration::from_secs(2),
            patience: Duration::from_secs(20),
            waits_for_closes: true,
            open_server: crate::server::open,
            start_broker: None,
        }
    }
}
