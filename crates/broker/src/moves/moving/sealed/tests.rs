use crate::agent_counts::AgentCounts;
use crate::agent_identity::AgentIdentity;
use crate::connection::Connection;
use crate::context::Sharing;
use crate::guard;
use crate::host_keys::HostKeys;
use crate::hosts::ClusterKey;
use crate::managed::Managed;
use crate::membership::Membership;
use crate::others::Others;
use crate::rmt::MemoryStore;
use crate::{Broker, BrokerHandle, BrokerOptions};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};
use stripewise_layout::{
    ByteCount, Cluster, Coordinator, FileId, Layout, Placement, RegionIndex, Server, ServerClass, ServerId, ServerUrl,
};
use stripewise_store::protocol::{Admin, MoveOrder, Reply, Request};
use stripewise_store::server::watched::Patience;
use stripewise_store::server::{Decorator, ObjectName, ObjectStore, ServerError, Transfer, directory};
use stripewise_store::shared::control::RegionState;
use stripewise_store::shared::marking::Motion;
use stripewise_store::state::StateDirectory;
use tempfile::TempDir;

const REGION: u32 = 64 << 10;
const HOST_TIMEOUT_S: u32 = 2;
/// For what must come. Calls of servers are waited for longer.
const LONG: Duration = Duration::from_secs(60);

/// A server whose transfers do not end while it hangs.
#[derive(Default)]
struct Hang {
    hangs: Mutex<bool>,
    changed: Condvar,
}

struct Hanging {
    inner: Box<dyn ObjectStore>,
    hang: Arc<Hang>,
}

impl Decorator for Hanging {
    fn inner(&self) -> Result<&dyn ObjectStore, ServerError> {
        Ok(self.inner.as_ref())
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn submit(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        if self.inner.name() == "b" {
            drop(self.hang.changed.wait_while(guard(&self.hang.hangs), |hangs| *hangs).unwrap());
        }
        self.inner.submit(batch, others);
    }
}

impl Hang {
    fn set(&self, hangs: bool) {
        *guard(&self.hangs) = hangs;
        self.changed.notify_all();
    }
}

/// The master of a cluster of many hosts, and a file of one region on server a.
struct World {
    broker: BrokerHandle,
    hang: Arc<Hang>,
    managed: Arc<Managed>,
    file: FileId,
    /// When each seal began, and each move was given up.
    events: Arc<Mutex<Vec<(&'static str, Instant)>>>,
    /// A writer marks something just before each seal.
    marks: Arc<AtomicBool>,
    _root: TempDir,
}

fn on(server: u16) -> Layout {
    Layout::new([(ServerId(server), REGION)]).unwrap()
}

impl World {
    fn new() -> Self {
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
        let mut cluster = Cluster::new("c", root.path().join("state"), ByteCount(REGION.into()), servers);
        let mut coordination = Coordinator::in_etcd(Vec::new());
        coordination.host_timeout_s = HOST_TIMEOUT_S;
        cluster.coordinator = Some(coordination);
        let state = StateDirectory::make(&cluster.state).unwrap();
        let lock = Arc::new(state.try_lock().unwrap().unwrap());
        let key = root.path().join("key");
        ClusterKey::make(&key).unwrap();
        let counts = Arc::new(AgentCounts::new(2, Arc::default()));
        let sharing = Sharing {
            table: Box::new(MemoryStore::default()),
            others: Some(Arc::new(Others::new([], LONG, 0, &counts))),
            first_number: 0,
            membership: Arc::new(Membership::of_master("master", 1)),
            counts,
            keys: Arc::new(HostKeys::load(&key).unwrap()),
            under_way: Arc::default(),
            agent: AgentIdentity::default(),
        };
        let (hang, events) = (Arc::new(Hang::default()), Arc::new(Mutex::new(Vec::new())));
        let (marks, known) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::<Arc<Managed>>::new()));
        let steps = {
            let (hang, events, marks, known) =
                (Arc::clone(&hang), Arc::clone(&events), Arc::clone(&marks), Arc::clone(&known));
            move |step: &'static str| {
                if step == "move: sealed" && marks.load(SeqCst) {
                    let managed = known.get().unwrap();
                    (0..4).for_each(|slot| managed.extent.marks(slot).mark(0..=0));
                    hang.set(true);
                }
                if ["move: sealed", "move: given up"].contains(&step) {
                    guard(&events).push((step, Instant::now()));
                }
            }
        };
        let wrapped = Arc::clone(&hang);
        let options = BrokerOptions {
            steps: Some(Arc::new(steps)),
            wrap_server: Some(Arc::new(move |inner| Box::new(Hanging { inner, hang: Arc::clone(&wrapped) }))),
            patience: Patience { call: 10 * LONG, bulk: 10 * LONG },
            ..BrokerOptions::default()
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
        ask(Request::Place { file, first: RegionIndex(0), last: RegionIndex(0) }, Vec::new());
        let managed = broker.core.managed(file).unwrap();
        managed.extent.extend_to(REGION.into());
        assert!(known.set(Arc::clone(&managed)).is_ok());
        let world = Self { broker, hang, managed, file, events, marks, _root: root };
        world.object().write_all_at(&vec![7; REGION as usize], 0).unwrap();
        world
    }

    fn place(&self) -> (ServerId, Motion) {
        match self.managed.control.regions().get(RegionIndex(0)) {
            RegionState::Placed { view, motion, .. } => (view.stripes()[0].server, motion),
            _ => panic!("it has no place"),
        }
    }

    fn object(&self) -> File {
        let region = RegionIndex(0);
        let RegionState::Placed { generation, view, .. } = self.managed.control.regions().get(region) else {
            panic!("it has no place")
        };
        let server = self.broker.core.context().server(view.stripes()[0].server).unwrap();
        let opened = server.open(ObjectName { file: self.file, region, generation }, true).unwrap();
        opened.into_descriptor(server.name()).unwrap().into()
    }

    fn order(&self) {
        let order = MoveOrder { file: self.file, first: RegionIndex(0), last: RegionIndex(0), layout: on(1) };
        self.broker.queue_moves(&[order]).unwrap();
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < LONG, "never: {what}; {:?}", self.broker.moves(None));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_server_that_hangs_under_the_seal_has_the_move_put_back_and_holds_up_no_writer_for_long() {
    let world = World::new();
    world.marks.store(true, SeqCst);
    world.order();
    world.wait_until("the move is given up", || guard(&world.events).iter().any(|(step, _)| *step == "move: given up"));
    assert_eq!(world.place(), (ServerId(0), Motion::Still), "writers go on");
    let events = guard(&world.events).clone();
    let last_seal = |end: usize| events[..end].iter().rev().find(|(step, _)| *step == "move: sealed").unwrap().1;
    let given_up = events.iter().position(|(step, _)| *step == "move: given up").unwrap();
    let waited = events[given_up].1 - last_seal(given_up);
    // A machine that is busy adds to it.
    assert!(waited < 10 * Duration::from_secs(HOST_TIMEOUT_S.into()), "writers waited for {waited:?}");
    // It is tried again, and the server is named that does not answer.
    world.wait_until("the move fails", || world.broker.move_totals().failed == 1);
    let moves = format!("{:?}", world.broker.moves(None).0);
    assert!(moves.contains("server b has not answered"), "{moves}");
    assert_eq!(world.place(), (ServerId(0), Motion::Still));

    world.marks.store(false, SeqCst);
    world.hang.set(false);
    world.wait_until("the region moves", || {
        if world.broker.move_totals().done == 0 {
            world.order();
        }
        world.broker.move_totals().done > 0
    });
    assert_eq!(world.place().0, ServerId(1));
    let mut found = vec![0; REGION as usize];
    world.object().read_exact_at(&mut found, 0).unwrap();
    assert!(found == vec![7; REGION as usize]);
}
