//! What an answer says of the hosts of a cluster and their agents.

use super::MoveTotals;
use serde::{Deserialize, Serialize};

/// A host of the cluster.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostInfo {
    /// As its kernel has it.
    pub name: String,
    /// Whether it is the one that changes the mapping table.
    pub is_master: bool,
    /// Whether the master has a link to it.
    pub answers: bool,
    /// How many files it has open; `None`: it has not said since the master changed, and may have any.
    pub files: Option<u64>,
    /// `None`: it has not come since the master changed.
    pub agent: Option<AgentInfo>,
    /// The number by which it was admitted last; higher than any before.
    pub admission: Option<u64>,
    /// Milliseconds since anything was heard of it; 0 of the master.
    pub unheard_ms: u64,
    /// Nothing was heard of it for the host timeout.
    pub is_silent: bool,
}

/// The process that serves a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AgentInfo {
    /// Its id on its host.
    pub process: u32,
    /// Of its stripewise.
    pub version: String,
    /// When it began, ns since 1970.
    pub since_ns: u64,
}

/// The role of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AgentRole {
    /// Of a cluster of one host.
    Alone,
    /// It changes the mapping table.
    Master,
    /// It follows the master.
    Follower,
}

/// What an agent has counted since it began, whatever its roles were.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgentReport {
    /// The process.
    pub agent: AgentInfo,
    /// What it is now.
    pub role: AgentRole,
    /// Files that programs of this host have open.
    pub files: u64,
    /// By direction and kind; each has one answer.
    pub questions: Vec<QuestionCount>,
    /// Links to a master after the first.
    pub reconnects: u64,
    /// Elections after which this host was master.
    pub elections_won: u64,
    /// Elections after which it followed another.
    pub elections_lost: u64,
    /// Hosts that it shut out of the servers, as master.
    pub fenced_hosts: u64,
    /// Requests of programs that were refused.
    pub refused_requests: u64,
    /// Connections of other hosts that were refused.
    pub refused_connections: u64,
    /// I/O that it did for programs, in the cluster's order; of servers that programs reach themselves all zeros.
    pub servers: Vec<ServerIo>,
    /// Moves under its present mastership; `None`: it is not the master.
    pub moves: Option<MoveTotals>,
}

/// Which way a question goes over a link between agents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum QuestionDirection {
    /// This agent asked its master.
    ToMaster,
    /// Its master asked it.
    FromMaster,
    /// As master, it asked another agent.
    ToAgent,
    /// As master, it was asked by another agent.
    FromAgent,
}

/// Upper bounds of [`QuestionCount::buckets`], in microseconds; the last bucket has none.
pub const LATENCY_BOUNDS_US: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_000_000, 10_000_000];

/// Questions of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QuestionCount {
    /// Who asked whom.
    pub direction: QuestionDirection,
    /// What was asked, in lower case.
    pub kind: String,
    /// How many, those that failed included.
    pub count: u64,
    /// Those without an answer, and where this agent was asked those that it refused.
    pub failed: u64,
    /// From the question to its answer, or to its failure, all together, in ns.
    pub total_ns: u64,
    /// How many took at most each of [`LATENCY_BOUNDS_US`] and longer than the one before; then those that took longer than all.
    pub buckets: Vec<u64>,
}

/// I/O on one server that an agent did for programs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ServerIo {
    /// Reads that ended well.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Writes that ended well.
    pub writes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Syncs of objects that ended well.
    pub syncs: u64,
    /// Those of all three that failed.
    pub failed: u64,
}
