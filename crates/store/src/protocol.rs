//! The messages between clients and the broker.
//!
//! The socket `run/broker.sock` is a `SOCK_SEQPACKET` Unix socket. One packet is one message in
//! [postcard](https://postcard.jamesmunns.com/wire-format), accompanied by up to 4 descriptors (`SCM_RIGHTS`). The broker answers
//! every request once, in order.
//!
//! A client proves its right to a file by the stub's descriptor: the broker takes device, inode and access mode from the
//! descriptor, never from the message. Every request may be repeated: a client that loses its broker connects to the successor,
//! says hello, opens its files again and repeats all requests without an answer.

mod accesses;
mod admin;
mod fragments;
mod hosts;
mod moves;
mod refusals;
mod replies;
mod requests;

pub use accesses::{Access, AccessStream, AccessedFile, HostAccesses};
pub use admin::{Admin, ExpectedFile, SharedFile, WantedReplicas};
pub use fragments::FragmentStatus;
pub use hosts::{
    AgentInfo, AgentReport, AgentRole, HostInfo, LATENCY_BOUNDS_US, QuestionCount, QuestionDirection, ServerIo,
};
pub use moves::{
    MigrateBandwidth, MoveControl, MoveNumber, MoveOrder, MoveState, MoveStatus, MoveTotals, ParseBandwidthError,
    WhichMoves,
};
pub use refusals::{Refusal, state_full};
pub use replies::{
    FileInfo, FileStatus, Finding, ObservedFile, ProbedHost, RegionInfo, ReplicaInfo, Reply, RequestCost, ServerInfo,
    ServerUsage,
};
pub use requests::{Event, NameCall, Request};

/// Raised with every change of a message; the broker refuses other versions by name.
pub const PROTOCOL_VERSION: u32 = 10;

/// Largest packet; a longer list is asked for in parts.
pub const MAX_PACKET_BYTES: usize = 128 << 10;
