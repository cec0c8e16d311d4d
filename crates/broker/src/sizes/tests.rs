use super::*;
use crate::agent_counts::AgentCounts;
use crate::agent_identity::AgentIdentity;
use crate::connection::Connection;
use crate::context::Sharing;
use crate::guard;
use crate::host_keys::HostKeys;
use crate::hosts::ClusterKey;
use crate::membership::Membership;
use crate::others::Line;
use crate::rmt::{Changes, MemoryStore};
use crate::{Broker, BrokerHandle, BrokerOptions, WrapServer};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};
use stripewise_layout::{ByteCount, Cluster, FileId, Layout, Placement, Server, ServerClass, ServerId, ServerUrl};
use stripewise_store::errno::ToErrno;
use stripewise_store::protocol::{Admin, MoveOrder, Reply, Request};
use stripewise_store::server::{Decorator, ObjectStore, Outcome, directory};
use stripewise_store::shared::control::RegionState;
use stripewise_store::state::StateDirectory;
use tempfile::TempDir;

const REGION: u32 = 64 * 1024;
const REGION_BYTES: u64 = REGION as u64;
const LONG: Duration = Duration::from_secs(60);
/// Of the file, as all know but the host that is silent.
const KNOWN: u64 = 10;
/// What that one has written.
const END: u64 = REGION_BYTES + 5000;

/// The way to a host that answers nothing.
struct Unheard;

impl Line for Unheard {
    fn ask(&self, _: &[u8], _: Duration) -> Result<Vec<u8>, String> {
        Err("it does not answer".to_owned())
    }

    fn number(&self) -> u64 {
        1
    }

    fn last_heard(&self) -> Instant {
        Instant::now()
    }

    fn end(&self) {}
}

fn on(server: u16) -> Layout {
    Layout::new([(ServerId(server), REGION)]).unwrap()
}

/// The master of a cluster with a file of two regions, which host `silent` has open and made longer than anybody else knows.
struct World {
    broker: BrokerHandle,
    others: Arc<Others>,
    connection: Connection,
    file: FileId,
    managed: Arc<Managed>,
    _root: TempDir,
}

/// A server that does not answer how long objects are, so many times.
struct Away {
    inner: Box<dyn ObjectStore>,
    times: Arc<AtomicU32>,
}

impl Decorator for Away {
    fn inner(&self) -> Result<&dyn ObjectStore, ServerError> {
        Ok(self.inner.as_ref())
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn perform(&self, operation: Operation<'_>) -> Result<Outcome, ServerError> {
        let is_left = |left: u32| left.checked_sub(1);
        if matches!(operation, Operation::Size(_)) && self.times.fetch_update(SeqCst, SeqCst, is_left).is_ok() {
            return Err(ServerError::NotAnswering { server: self.inner.name().to_owned(), waited_s: 5 });
        }
        operation.run_on(self.inner.as_ref())
    }
}

impl World {
    fn new() -> Self {
        Self::with(BrokerOptions::default())
    }

    fn with(options: BrokerOptions) -> Self {
        let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let data = root.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let server = |name: &str| {
            let directory = root.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            directory::prepare("c", name, &directory).unwrap();
            Server::new(name, ServerClass::Hdd, ServerUrl::new("file", directory))
        };
        let servers = vec![server("a"), server("b")];
        let cluster = Cluster::new("c", root.path().join("state"), ByteCount(REGION.into()), servers);
        let state = StateDirectory::make(&cluster.state).unwrap();
        let lock = Arc::new(state.try_lock().unwrap().unwrap());
        let key = root.path().join("key");
        ClusterKey::make(&key).unwrap();
        let counts = Arc::new(AgentCounts::new(2, Arc::default()));
        // Whoever does not answer at once is silent.
        let others = Arc::new(Others::new([], Duration::ZERO, 0, &counts));
        let sharing = Sharing {
            table: Box::new(MemoryStore::default()),
            others: Some(Arc::clone(&others)),
            first_number: 0,
            membership: Arc::new(Membership::of_master("master", 1)),
            counts,
            keys: Arc::new(HostKeys::load(&key).unwrap()),
            under_way: Arc::default(),
            agent: AgentIdentity::default(),
        };
        let broker = Broker::serve(&cluster, state, lock, options, Some(sharing)).unwrap();
        let connection = Connection::of_host("asks");
        let ask = |request, descriptors| match broker.core.answer(&connection, request, descriptors).0 {
            Reply::Refused(refusal) => panic!("{refusal}"),
            reply => reply,
        };
        let directory = data.to_str().unwrap().to_owned();
        let placement = Placement::uniform(ByteCount(REGION.into()), on(0), on(0));
        ask(Request::Admin(Admin::Manage { directory, placement, min_bytes: None }), Vec::new());
        let path = data.join("x");
        let stub = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let create = Request::Create { path: path.to_str().unwrap().to_owned() };
        let Reply::Opened { file, .. } = ask(create, vec![stub.into()]) else { panic!("not made") };
        ask(Request::Linked { file }, Vec::new());
        ask(Request::Place { file, first: RegionIndex(0), last: RegionIndex(1) }, Vec::new());
        let managed = broker.core.managed(file).unwrap();
        managed.extent.extend_to(KNOWN);
        others.holds("silent", Arc::new(Unheard), vec![file]);
        let world = Self { broker, others, connection, file, managed, _root: root };
        world.write();
        world
    }

    /// What the silent host does.
    fn write(&self) {
        self.object(0).write_all_at(&vec![7; REGION as usize], 0).unwrap();
        self.object(1).write_all_at(&vec![7; (END - REGION_BYTES) as usize], 0).unwrap();
    }

    fn object(&self, region: u32) -> File {
        let region = RegionIndex(region);
        let RegionState::Placed { generation, view, .. } = self.managed.control.regions().get(region) else {
            panic!("it has no place")
        };
        let server = self.broker.core.context().server(view.stripes()[0].server).unwrap();
        let opened = server.open(ObjectName { file: self.file, region, generation }, true).unwrap();
        opened.into_descriptor(server.name()).unwrap().into()
    }

    fn ask(&self, request: Request) -> Result<(), Refusal> {
        match self.broker.core.answer(&self.connection, request, Vec::new()).0 {
            Reply::Refused(refusal) => Err(refusal),
            _ => Ok(()),
        }
    }

    fn refresh(&self) -> Result<(), Refusal> {
        self.ask(Request::Refresh { file: self.file, first: RegionIndex(0), last: RegionIndex(0) })
    }

    fn truncate(&self, size_bytes: u64) -> Result<(), Refusal> {
        self.ask(Request::Truncate { file: self.file, size_bytes, number: 0 })
    }

    fn size(&self) -> u64 {
        self.managed.extent.size_bytes()
    }

    /// Up to where the objects hold anything.
    fn held(&self) -> u64 {
        let is_placed = !self.managed.control.regions().is_absent(RegionIndex(1));
        let last = if is_placed { self.object(1).metadata().unwrap().len() } else { 0 };
        if last > 0 { REGION_BYTES + last } else { self.object(0).metadata().unwrap().len() }
    }

    fn leave_something_over(&self, is_left: bool) {
        let mut inner = guard(&self.managed.inner);
        inner.record.has_leftovers = is_left;
        let mut changes = Changes::default();
        changes.put_file(self.file, &inner.record);
        self.broker.core.context().table().commit(&changes).unwrap();
    }
}

#[test]
fn what_a_silent_host_wrote_is_seen_by_whoever_asks_for_the_size() {
    let world = World::new();
    world.refresh().unwrap();
    assert_eq!(world.size(), END);
    // It goes on.
    world.object(1).write_all_at(&[7], END - REGION_BYTES).unwrap();
    world.refresh().unwrap();
    assert_eq!(world.size(), END + 1);
    assert!(world.truncate(2 * END).is_err(), "it cannot be shut out of directories");
    assert_eq!((world.size(), world.held()), (END + 1, END + 1));
}

#[test]
fn whoever_asks_for_the_size_waits_for_a_server_that_does_not_answer() {
    let times = Arc::new(AtomicU32::new(3));
    let away = Arc::clone(&times);
    let wrap: WrapServer = Arc::new(move |inner| Box::new(Away { inner, times: Arc::clone(&away) }));
    let world = World::with(BrokerOptions { wrap_server: Some(wrap), ..BrokerOptions::default() });
    world.refresh().unwrap();
    assert_eq!((world.size(), times.load(SeqCst)), (END, 0));
}

#[test]
fn a_size_that_objects_do_not_tell_is_an_error_while_a_host_is_silent() {
    let world = World::new();
    world.leave_something_over(true);
    let refusal = world.refresh().unwrap_err();
    assert_eq!(refusal.errno(), Errno::IO);
    assert!(refusal.to_string().contains("host silent, which does not answer"), "{refusal}");
    assert_eq!(world.size(), KNOWN, "what was removed does not come back");
    let context = world.broker.core.context();
    let unclear = || unclear_file(context, &world.others, "silent").unwrap();
    assert_eq!(unclear(), Some(world.file));
    world.leave_something_over(false);
    assert_eq!(unclear(), None);
    world.refresh().unwrap();
    assert_eq!(world.size(), END);
}

#[test]
fn what_a_host_wrote_that_has_departed_is_not_cut_off_by_an_extension() {
    let world = World::new();
    world.others.departs("silent");
    world.truncate(2 * END).unwrap();
    assert_eq!((world.size(), world.held()), (2 * END, END));
}

#[test]
fn a_truncation_to_less_than_a_departed_host_wrote_removes_what_lies_beyond_and_that_stays_gone() {
    let world = World::new();
    world.others.departs("silent");
    // More than others know.
    world.truncate(KNOWN + 1).unwrap();
    assert_eq!((world.size(), world.held()), (KNOWN + 1, KNOWN + 1));
    world.others.holds("another", Arc::new(Unheard), vec![world.file]);
    world.refresh().unwrap();
    world.others.departs("another");
    world.truncate(END).unwrap();
    assert_eq!((world.size(), world.held()), (END, KNOWN + 1));
}

#[test]
fn a_region_moves_with_what_a_host_wrote_that_has_departed() {
    let world = World::new();
    world.others.departs("silent");
    let orders = [MoveOrder { file: world.file, first: RegionIndex(0), last: RegionIndex(1), layout: on(1) }];
    world.broker.queue_moves(&orders).unwrap();
    let begun = Instant::now();
    while world.broker.move_totals().done < 2 {
        assert!(begun.elapsed() < LONG, "{:?}", world.broker.move_totals());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((world.size(), world.held()), (END, END));
}

#[test]
fn a_size_that_only_a_departed_host_knew_is_in_the_table_when_the_file_is_closed() {
    let world = World::new();
    world.others.departs("silent");
    world.ask(Request::Close { file: world.file }).unwrap();
    let record = world.broker.core.context().table().file(world.file).unwrap().unwrap();
    assert_eq!(record.size_bytes, END);
}
