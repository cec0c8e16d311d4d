//! What becomes of a request of which a server fails a part, and of a write that would go beyond the limit on the size of files in a log.

use super::{IoMode, StripedFile};
use crate::client::stand_in::{SLOT, STRIPE, StandIn};
use crate::client::{Client, ClientOptions, OpenServer};
use crate::errno::ToErrno;
use crate::server::memory::MemoryServer;
use crate::server::{Capabilities, Decorator, ObjectStore, Ownership, ServerError, Transfer};
use crate::shared::control::Life;
use crate::shared::fragments::State;
use crate::size_limit::tests::in_child;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{BTreeMap, VecDeque};
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};
use stripewise_layout::{Direction, FileOffset, ServerId};

const BUFFERED: IoMode = IoMode { direct: false, durable: false };
const DURABLE: IoMode = IoMode { direct: false, durable: true };
const URLS: [&str; 2] = ["file:///a", "file:///b"];
const BOTH: usize = 2 * STRIPE as usize;

/// What a server does with a transfer.
#[derive(Clone, Copy)]
enum Reaction {
    Whole,
    /// All but the last byte.
    Short,
    Full,
    /// As the kernel tells of a write-back that failed: once.
    Fails,
}
use Reaction::{Fails, Full, Short, Whole};

/// A server that does with its next transfers what a test says.
#[derive(Clone)]
struct Scripted {
    inner: MemoryServer,
    next: Arc<Mutex<VecDeque<Reaction>>>,
    overlaps: bool,
}

impl Decorator for Scripted {
    fn inner(&self) -> Result<&dyn ObjectStore, ServerError> {
        Ok(&self.inner)
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { overlaps: self.overlaps, ..self.inner.capabilities() }
    }

    fn submit(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        for transfer in batch {
            let is_write = transfer.memory.direction() == Direction::Write;
            let (end, limit) = (transfer.offset.0 + transfer.memory.bytes() as u64, getrlimit(Resource::Fsize).current);
            assert!(!is_write || limit.is_none_or(|most| end <= most), "the kernel would end the program");
            let reaction = self.next.lock().unwrap().pop_front();
            let server = self.inner.name().to_owned();
            transfer.completion = match reaction.unwrap_or(Whole) {
                Fails => Some(Err(ServerError::Os { server, action: "using an object", source: Errno::IO })),
                Full => Some(Err(ServerError::NoSpace { server })),
                reaction => {
                    self.inner.submit(std::slice::from_mut(transfer), &mut || ());
                    let is_short = matches!(reaction, Short);
                    transfer.completion.take().map(|done| done.map(|bytes| bytes - usize::from(is_short)))
                }
            };
        }
        others();
    }
}

/// By cluster and name.
static SERVERS: Mutex<BTreeMap<(String, String), Scripted>> = Mutex::new(BTreeMap::new());

const OPEN_SCRIPTED: OpenServer =
    |cluster, _, name, _, _| Ok(Box::new(SERVERS.lock().unwrap()[&(cluster.to_owned(), name.to_owned())].clone()));

/// An empty file on two servers, a stripe on each in turn.
struct World {
    broker: StandIn,
    _client: Client,
    file: Arc<StripedFile>,
    servers: Vec<Scripted>,
}

impl World {
    fn new(cluster: &str, overlaps: bool) -> Self {
        Self::on(StandIn::start(cluster, &URLS, 0), cluster, overlaps)
    }

    fn on(broker: StandIn, cluster: &str, overlaps: bool) -> Self {
        let server = |name: &str| {
            let server = Scripted { inner: MemoryServer::new(name), next: Arc::default(), overlaps };
            for object in [StandIn::object(), StandIn::log()] {
                server.inner.create(object, Ownership { mode: 0o600, uid: 0, gid: 0 }).unwrap();
            }
            SERVERS.lock().unwrap().insert((cluster.to_owned(), name.to_owned()), server.clone());
            server
        };
        let servers = ["a", "b"].map(server).to_vec();
        let client = broker.client(ClientOptions { open_server: OPEN_SCRIPTED, ..ClientOptions::default() });
        let file = broker.open(&client);
        Self { broker, _client: client, file, servers }
    }

    fn react(&self, reactions: [&[Reaction]; 2]) {
        for (server, reactions) in self.servers.iter().zip(reactions) {
            *server.next.lock().unwrap() = reactions.iter().copied().collect();
        }
    }

    /// Reads a stripe of each server, while the servers do this.
    fn read(&self, reactions: [&[Reaction]; 2]) -> Result<usize, Errno> {
        self.react(reactions);
        let mut bytes = [0; BOTH];
        let read = self.file.read_at(FileOffset(0), &mut [IoSliceMut::new(&mut bytes)]);
        read.inspect(|count| assert_eq!(bytes[..*count], [7; BOTH][..*count])).map_err(|error| error.errno())
    }

    /// Writes a stripe to each server, in pieces of so many bytes, while the servers do this.
    fn write(&self, piece: usize, mode: IoMode, reactions: [&[Reaction]; 2]) -> Result<usize, Errno> {
        self.react(reactions);
        let bytes = [7; BOTH];
        let pieces: Vec<IoSlice<'_>> = bytes.chunks(piece).map(IoSlice::new).collect();
        self.file.write_with(FileOffset(0), &pieces, mode).map_err(|error| error.errno())
    }
}

#[test]
fn a_durable_write_of_which_a_server_failed_a_part_is_no_short_write() {
    for overlaps in [false, true] {
        let world = World::new(&format!("durable-{overlaps}"), overlaps);
        assert_eq!(world.write(BOTH, DURABLE, [&[Whole], &[Fails]]), Err(Errno::IO), "{overlaps}");
        assert_eq!(world.file.size_bytes(), 0);
        // The failure counts also behind another reason, and after a pass that went well.
        assert_eq!(world.write(BOTH, DURABLE, [&[Whole], &[Full, Fails]]), Err(Errno::IO), "{overlaps}");
        assert_eq!(world.write(BOTH, DURABLE, [&[], &[]]), Ok(BOTH), "told once");
        assert_eq!(world.file.size_bytes(), BOTH as u64);
    }
    let world = World::new("durable-reasons", true);
    assert_eq!(world.write(BOTH, DURABLE, [&[Full], &[Fails]]), Err(Errno::IO));
}

#[test]
fn a_buffered_write_ends_before_the_part_that_a_server_failed() {
    for overlaps in [false, true] {
        let world = World::new(&format!("buffered-{overlaps}"), overlaps);
        let expected = Ok(STRIPE as usize);
        assert_eq!(world.write(BOTH, BUFFERED, [&[Whole], &[Fails]]), expected, "{overlaps}");
        assert_eq!(world.file.size_bytes(), u64::from(STRIPE));
    }
}

/// A program took the prefix for all there is: it was told nothing of the loss, and the rest of the file was missing.
#[test]
fn of_a_file_that_was_taken_from_its_host_no_prefix_is_told() {
    for overlaps in [false, true] {
        let world = World::new(&format!("taken-{overlaps}"), overlaps);
        assert_eq!(world.write(BOTH, BUFFERED, [&[], &[]]), Ok(BOTH));
        // A read that fails beside others is asked once more in turn.
        assert_eq!(world.read([&[Whole], &[Fails, Fails]]), Ok(STRIPE as usize), "{overlaps}");
        world.broker.control.set_life(Life::Lost);
        // Both were inside when that happened, so no gate holds them up.
        assert_eq!(world.read([&[Whole], &[Fails, Fails]]), Err(Errno::IO), "{overlaps}");
        assert_eq!(world.write(BOTH, BUFFERED, [&[Whole], &[Fails]]), Err(Errno::IO), "{overlaps}");
        // The end of the file is no fault.
        assert_eq!(world.read([&[], &[]]), Ok(BOTH), "{overlaps}");
    }
}

/// A server's part in more pieces than one call takes.
#[test]
fn a_failure_behind_a_short_call_for_the_same_object_is_told() {
    let world = World::new("pieces", true);
    assert_eq!(world.write(1, DURABLE, [&[], &[Short, Fails]]), Err(Errno::IO));
    assert_eq!(world.write(1, DURABLE, [&[Short], &[Whole, Short]]), Ok(BOTH), "what is short is gone on with");
}

/// The log is far longer than the file.
#[test]
fn the_limit_on_the_size_of_files_does_not_count_for_logs() {
    in_child("file::tests::the_limit_on_the_size_of_files_does_not_count_for_logs", || {
        let world = World::on(StandIn::start_with_log("limited", &URLS, 0), "limited", false);
        let write = |at: usize, byte: u8| {
            let written = world.file.write_at(FileOffset(at as u64), &[IoSlice::new(&[byte; 512])]);
            written.map_err(|error| error.errno())
        };
        let limit = |hard: Option<u64>| {
            let limits = Rlimit { current: Some(BOTH as u64), maximum: hard };
            setrlimit(Resource::Fsize, limits).unwrap();
        };
        assert_eq!(world.write(BOTH, BUFFERED, [&[], &[]]), Ok(BOTH));
        let sets = world.broker.table.log(ServerId(0)).unwrap().sets;
        // Every slot that is left lies behind the limit to come.
        while sets.take_slot().is_some_and(|slot| (u64::from(slot) + 1) * SLOT < BOTH as u64) {}
        world.broker.hints.note_small_write(ServerId(0), 10_000_000);
        assert_eq!(write(0, 1), Ok(512));
        let entries = || sets.all().map(|seen| (seen.range.offset.0, seen.state())).collect::<Vec<_>>();
        assert_eq!(entries(), [(0, State::Dirty)]);

        let hard = getrlimit(Resource::Fsize).maximum;
        limit(hard);
        assert_eq!(write(SLOT as usize, 2), Ok(512));
        assert_eq!(entries(), [(0, State::Dirty)], "what is new goes to the disk");
        assert_eq!(write(0, 3), Ok(512), "what is there already has to go where it is");
        assert_eq!(getrlimit(Resource::Fsize).current, Some(BOTH as u64));
        let found = || {
            let mut found = [0; BOTH];
            assert_eq!(world.file.read_at(FileOffset(0), &mut [IoSliceMut::new(&mut found)]).unwrap(), BOTH);
            found
        };
        let mut expected = [7; BOTH];
        expected[..512].fill(3);
        expected[SLOT as usize..][..512].fill(2);
        assert_eq!(found(), expected);
        limit(Some(BOTH as u64));
        assert_eq!(write(0, 4), Err(Errno::IO), "no way to write it, and no signal");
        assert_eq!(found(), expected);
    });
}
