//! What the process that serves a host counts, from its begin to its end, whatever roles it takes.
//!
//! Questions between agents are counted by direction and kind, where they are asked and where they are heard. Pings, which links send each second when
//! there is nothing else to send, are not among them. Nothing here is counted on the path of a read or a write but I/O that the agent does itself: two
//! atomic additions for each operation.

use crate::guard;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use stripewise_layout::{Direction, ServerId};
use stripewise_store::protocol::{
    AgentInfo, AgentReport, AgentRole, LATENCY_BOUNDS_US, MoveTotals, QuestionCount, QuestionDirection, ServerIo,
};

/// The counts of one process.
pub(crate) struct AgentCounts {
    agent: AgentInfo,
    questions: Mutex<BTreeMap<(QuestionDirection, &'static str), Tally>>,
    links: AtomicU64,
    elections_won: AtomicU64,
    elections_lost: AtomicU64,
    fenced_hosts: AtomicU64,
    refused_requests: AtomicU64,
    /// The listener's.
    refused_connections: Arc<AtomicU64>,
    /// In the cluster's order.
    servers: Vec<IoCounts>,
}

#[derive(Clone, Copy, Default)]
struct Tally {
    count: u64,
    failed: u64,
    total_ns: u64,
    buckets: [u64; LATENCY_BOUNDS_US.len() + 1],
}

#[derive(Default)]
struct IoCounts {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
    failed: AtomicU64,
}

/// What an agent did for a program.
#[derive(Clone, Copy)]
pub(crate) enum Io {
    Transfer(Direction),
    Sync,
}

impl AgentCounts {
    /// Of this process, which begins to serve a cluster of so many servers.
    pub(crate) fn new(servers: usize, refused_connections: Arc<AtomicU64>) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let agent = AgentInfo {
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        };
        Self {
            agent,
            questions: Mutex::default(),
            links: AtomicU64::new(0),
            elections_won: AtomicU64::new(0),
            elections_lost: AtomicU64::new(0),
            fenced_hosts: AtomicU64::new(0),
            refused_requests: AtomicU64::new(0),
            refused_connections,
            servers: (0..servers).map(|_| IoCounts::default()).collect(),
        }
    }

    /// This process.
    pub(crate) fn agent(&self) -> &AgentInfo {
        &self.agent
    }

    /// Does what asks or answers a question, and counts it by how it ends.
    pub(crate) fn time<T, E>(
        &self,
        direction: QuestionDirection,
        kind: &'static str,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let begun = Instant::now();
        let ended = work();
        self.note_question(direction, kind, begun.elapsed(), ended.is_ok());
        ended
    }

    /// A question, asked or answered, that took so long.
    pub(crate) fn note_question(
        &self,
        direction: QuestionDirection,
        kind: &'static str,
        took: Duration,
        is_answered: bool,
    ) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = LATENCY_BOUNDS_US.iter().position(|bound| took_us <= *bound).unwrap_or(LATENCY_BOUNDS_US.len());
        let mut questions = guard(&self.questions);
        let tally = questions.entry((direction, kind)).or_default();
        tally.count += 1;
        tally.failed += u64::from(!is_answered);
        tally.total_ns += u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        tally.buckets[bucket] += 1;
    }

    pub(crate) fn note_link(&self) {
        self.links.fetch_add(1, Relaxed);
    }

    /// An election has given this host a role.
    pub(crate) fn note_election(&self, is_won: bool) {
        let count = if is_won { &self.elections_won } else { &self.elections_lost };
        count.fetch_add(1, Relaxed);
    }

    pub(crate) fn note_fenced_host(&self) {
        self.fenced_hosts.fetch_add(1, Relaxed);
    }

    pub(crate) fn note_refused_request(&self) {
        self.refused_requests.fetch_add(1, Relaxed);
    }

    /// I/O on a server that was done for a program; `None`: it failed.
    pub(crate) fn note_io(&self, server: ServerId, io: Io, bytes: Option<u64>) {
        let Some(counts) = self.servers.get(usize::from(server.0)) else { return };
        let Some(bytes) = bytes else {
            counts.failed.fetch_add(1, Relaxed);
            return;
        };
        let (times, amount) = match io {
            Io::Transfer(Direction::Read) => (&counts.reads, Some(&counts.read_bytes)),
            Io::Transfer(Direction::Write) => (&counts.writes, Some(&counts.written_bytes)),
            Io::Sync => (&counts.syncs, None),
        };
        times.fetch_add(1, Relaxed);
        if let Some(amount) = amount {
            amount.fetch_add(bytes, Relaxed);
        }
    }

    /// All of it, with what the present role adds.
    pub(crate) fn report(&self, role: AgentRole, files: u64, moves: Option<MoveTotals>) -> AgentReport {
        let count = |((direction, kind), tally): (&(QuestionDirection, &'static str), &Tally)| QuestionCount {
            direction: *direction,
            kind: (*kind).to_owned(),
            count: tally.count,
            failed: tally.failed,
            total_ns: tally.total_ns,
            buckets: tally.buckets.to_vec(),
        };
        AgentReport {
            agent: self.agent.clone(),
            role,
            files,
            questions: guard(&self.questions).iter().map(count).collect(),
            reconnects: self.links.load(Relaxed).saturating_sub(1),
            elections_won: self.elections_won.load(Relaxed),
            elections_lost: self.elections_lost.load(Relaxed),
            fenced_hosts: self.fenced_hosts.load(Relaxed),
            refused_requests: self.refused_requests.load(Relaxed),
            refused_connections: self.refused_connections.load(Relaxed),
            servers: self.servers.iter().map(IoCounts::report).collect(),
            moves,
        }
    }
}

impl IoCounts {
    fn report(&self) -> ServerIo {
        ServerIo {
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_counted_by_direction_and_kind_and_in_the_bucket_of_what_they_took() {
        let counts = AgentCounts::new(1, Arc::default());
        let to = QuestionDirection::ToMaster;
        counts.note_question(to, "open", Duration::from_micros(100), true);
        counts.note_question(to, "open", Duration::from_micros(101), true);
        counts.note_question(to, "open", Duration::from_secs(3600), false);
        counts.note_question(QuestionDirection::FromMaster, "open", Duration::ZERO, true);
        let report = counts.report(AgentRole::Follower, 3, None);
        let [open, heard] = &report.questions[..] else { panic!("{:?}", report.questions) };
        assert_eq!((open.direction, &*open.kind, open.count, open.failed), (to, "open", 3, 1));
        assert_eq!(open.total_ns, 3_600_000_201_000);
        let mut buckets = [0; LATENCY_BOUNDS_US.len() + 1];
        (buckets[0], buckets[1], buckets[LATENCY_BOUNDS_US.len()]) = (1, 1, 1);
        assert_eq!(open.buckets, buckets);
        assert_eq!((heard.direction, heard.count), (QuestionDirection::FromMaster, 1));
    }

    #[test]
    fn io_is_counted_by_server_and_the_first_link_is_no_reconnection() {
        let counts = AgentCounts::new(2, Arc::default());
        counts.note_io(ServerId(1), Io::Transfer(Direction::Read), Some(5));
        counts.note_io(ServerId(1), Io::Transfer(Direction::Write), Some(7));
        counts.note_io(ServerId(1), Io::Transfer(Direction::Write), None);
        counts.note_io(ServerId(1), Io::Sync, Some(0));
        counts.note_io(ServerId(9), Io::Sync, Some(0));
        counts.note_link();
        assert_eq!(counts.report(AgentRole::Alone, 0, None).reconnects, 0);
        counts.note_link();
        let report = counts.report(AgentRole::Alone, 0, None);
        assert_eq!(report.reconnects, 1);
        let expected = ServerIo { reads: 1, read_bytes: 5, writes: 1, written_bytes: 7, syncs: 1, failed: 1 };
        assert_eq!(report.servers, [ServerIo::default(), expected]);
    }
}
