use super::*;
use crate::agent_identity::AgentIdentity;
use crate::context::Sharing;
use crate::host_keys::HostKeys;
use crate::hosts::ClusterKey;
use crate::membership::Membership;
use crate::proof::Granted;
use crate::rmt::MemoryStore;
use crate::under_way::UnderWay;
use crate::{BrokerOptions, WrapServer};
use stripewise_layout::{ByteCount, Cluster, FileId, Generation, RegionIndex, Server, ServerClass};
use stripewise_store::server::memory::MemoryServer;
use stripewise_store::server::{Decorator, ObjectStore, Ownership, Then};
use stripewise_store::state::{BrokerLock, StateDirectory};
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(60);
const OBJECT: ObjectName = ObjectName { file: FileId(7), region: RegionIndex(0), generation: Generation(1) };
/// By its number, the server that hangs, and the one that does not.
const HANGS: u16 = 0;
const ANSWERS: u16 = 1;

/// What a server has begun, and does not answer.
#[derive(Default)]
struct Unended {
    hangs: AtomicBool,
    begun: Mutex<Vec<(LentTransfer, Then)>>,
}

struct Hanging {
    inner: MemoryServer,
    unended: Arc<Unended>,
}

impl Decorator for Hanging {
    fn inner(&self) -> Result<&dyn ObjectStore, ServerError> {
        Ok(&self.inner)
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    unsafe fn begin(&self, transfer: LentTransfer, then: Then) {
        if self.unended.hangs.load(SeqCst) && self.inner.name() == "hangs" {
            return guard(&self.unended.begun).push((transfer, then));
        }
        // SAFETY: the caller's promise.
        unsafe { self.inner.begin(transfer, then) };
    }
}

/// A host whose agent takes one role after the other, and a program there.
struct World {
    cluster: Cluster,
    lock: Arc<BrokerLock>,
    servers: [MemoryServer; 2],
    unended: Arc<Unended>,
    table: Arc<MemoryStore>,
    keys: Arc<HostKeys>,
    under_way: Arc<UnderWay>,
    lane: AgentLane,
    file: OwnedFd,
    _root: TempDir,
}

struct Role {
    context: Arc<Context>,
    lanes: Arc<AgentLanes>,
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let server = |name: &str| Server::new(name, ServerClass::Hdd, format!("rados://{name}").parse().unwrap());
        let servers = vec![server("hangs"), server("answers")];
        let cluster = Cluster::new("c", root.path().join("state"), ByteCount(1 << 20), servers);
        let lock = Arc::new(StateDirectory::make(&cluster.state).unwrap().try_lock().unwrap().unwrap());
        let key = root.path().join("key");
        ClusterKey::make(&key).unwrap();
        let servers = ["hangs", "answers"].map(MemoryServer::new);
        for server in &servers {
            server.create(OBJECT, Ownership { mode: 0o600, uid: 0, gid: 0 }).unwrap();
        }
        let (lane, file) = AgentLane::make().unwrap();
        Self {
            cluster,
            lock,
            servers,
            unended: Arc::default(),
            table: Arc::default(),
            keys: Arc::new(HostKeys::load(&key).unwrap()),
            under_way: Arc::default(),
            lane,
            file,
            _root: root,
        }
    }

    /// The next role, by which no program is served yet.
    fn role(&self) -> Role {
        let (servers, unended) = (self.servers.clone(), Arc::clone(&self.unended));
        let wrap: WrapServer = Arc::new(move |opened| {
            let inner = servers.iter().find(|server| server.name() == opened.name()).unwrap().clone();
            Box::new(Hanging { inner, unended: Arc::clone(&unended) })
        });
        let options = BrokerOptions {
            wrap_server: Some(wrap),
            open_by_agent: Some(|_, name, _| Ok(Box::new(MemoryServer::new(name)))),
            ..BrokerOptions::default()
        };
        let sharing = Sharing {
            table: Box::new(Arc::clone(&self.table)),
            others: None,
            first_number: 0,
            membership: Arc::new(Membership::of_follower("h1")),
            counts: Arc::new(AgentCounts::new(2, Arc::default())),
            keys: Arc::clone(&self.keys),
            under_way: Arc::clone(&self.under_way),
            agent: AgentIdentity::default(),
        };
        let state = StateDirectory::make(&self.cluster.state).unwrap();
        let context = Context::open(&self.cluster, state, Arc::clone(&self.lock), options, Some(sharing)).unwrap();
        Role { context: Arc::new(context), lanes: Arc::default() }
    }

    /// The program connects to the role, and shows what it had opened.
    fn connect(&self, role: &Role, claim: (ProcessSlot, Incarnation)) {
        let client = Arc::new(Mutex::new(Client { claim: Some(claim), ..Client::default() }));
        guard(&client).opened.insert(OBJECT.file, Granted { readable: true, writable: true });
        role.lanes.serve(&role.context, &client, &self.file).unwrap();
    }

    /// Asks for a write of these bytes in a slot of its own.
    fn write(&self, server: u16, bytes: &[u8]) -> usize {
        let slot = self.lane.claim(0..SLOTS).unwrap();
        let memory = self.lane.memory(slot, bytes.len()).unwrap();
        // SAFETY: the slot is claimed.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len()) };
        let ObjectName { file, region, generation } = OBJECT;
        let (server, epoch, length) = (ServerId(server), EPOCH, bytes.len());
        let order = Order { ask: Ask::Write, server, file, region, generation, epoch, offset: 0, length };
        self.lane.submit(slot, &order);
        self.lane.wake_agent();
        slot
    }

    fn begun(&self) -> usize {
        guard(&self.unended.begun).len()
    }

    /// A role in which a write of `late` is under way that its server does not answer; the slot.
    fn hung(&self, role: &Role, claim: (ProcessSlot, Incarnation)) -> usize {
        self.unended.hangs.store(true, SeqCst);
        self.connect(role, claim);
        let slot = self.write(HANGS, b"late");
        wait_until("the write has begun", || self.begun() == 1);
        slot
    }

    /// The server that hung goes on, with what was under way.
    fn answer(&self) {
        self.unended.hangs.store(false, SeqCst);
        let begun = std::mem::take(&mut *guard(&self.unended.begun));
        for (transfer, then) in begun {
            // SAFETY: the lane's memory is lent until its end.
            unsafe { self.servers[usize::from(HANGS)].begin(transfer, then) };
        }
    }

    fn shut_out(&self) {
        self.unended.hangs.store(false, SeqCst);
        let begun = std::mem::take(&mut *guard(&self.unended.begun));
        begun.into_iter().for_each(|(_, then)| then(Err(ServerError::ShutOut { server: "hangs".to_owned() })));
    }

    fn end_of(&self, slot: usize) -> Result<u64, Failure> {
        let begun = Instant::now();
        loop {
            if let Some(result) = self.lane.wait(slot, Duration::from_millis(100)) {
                self.lane.free(slot);
                return result;
            }
            assert!(begun.elapsed() < LONG, "slot {slot} is never over");
        }
    }

    fn holds(&self, server: u16, bytes: &[u8]) -> bool {
        let mut found = vec![0; bytes.len()];
        let server = &self.servers[usize::from(server)];
        let buffers = &mut [std::io::IoSliceMut::new(&mut found)];
        let read = server.read_at(Handle::Named(OBJECT), ObjectOffset(0), buffers).unwrap();
        read == bytes.len() && found == bytes
    }
}

/// Ends the role as another follows.
fn end(role: Role, unanswered: &Unanswered) -> std::sync::Weak<Servers> {
    role.lanes.are_followed();
    role.lanes.stop();
    unanswered.keep(role.context.log(), role.context.all_servers(), &role.lanes);
    Arc::downgrade(role.context.all_servers())
}

#[test]
fn what_a_server_does_not_answer_keeps_no_host_from_its_next_role_and_is_ended_once() {
    let (world, unanswered) = (World::new(), Unanswered::default());
    let first = world.role();
    let claim = first.context.processes().claim().unwrap();
    let late = world.hung(&first, claim);
    let before = end(first, &unanswered);

    let second = world.role();
    world.connect(&second, claim);
    let prompt = world.write(ANSWERS, b"prompt");
    assert_eq!(world.end_of(prompt), Ok(6));
    assert!(world.holds(ANSWERS, b"prompt"));
    // The other one is under way still, once, and counts as such.
    assert!(world.begun() == 1 && world.lane.wait(late, Duration::ZERO).is_none());
    assert!(second.context.under_way().is_any_of(claim.0, claim.1));
    unanswered.close_answered();
    assert!(before.upgrade().is_some(), "its server is open");

    world.answer();
    assert_eq!(world.end_of(late), Ok(4));
    assert!(world.holds(HANGS, b"late"));
    wait_until("nothing is under way", || !second.context.under_way().is_any_of(claim.0, claim.1));
    unanswered.close_answered();
    assert!(before.upgrade().is_none());
    // The slot is as any other.
    let next = world.write(HANGS, b"next");
    assert_eq!((next, world.end_of(next)), (late, Ok(4)));
    assert!(world.holds(HANGS, b"next"));
    end(second, &unanswered);
}

#[test]
fn what_a_client_had_begun_that_was_shut_out_is_done_again_by_the_next_role() {
    let unanswered = Unanswered::default();
    // Whether the server says so before the role ends, before the program has come to the next, or after that.
    for when in 0..3 {
        let world = World::new();
        let first = world.role();
        let claim = first.context.processes().claim().unwrap();
        let late = world.hung(&first, claim);
        if when == 0 {
            world.shut_out();
            wait_until("it is over", || !world.under_way.is_any_of(claim.0, claim.1));
            assert!(world.lane.wait(late, Duration::ZERO).is_none(), "the program is not told");
        }
        end(first, &unanswered);
        let second = world.role();
        if when == 1 {
            world.shut_out();
        }
        world.connect(&second, claim);
        if when == 2 {
            assert!(world.lane.wait(late, Duration::ZERO).is_none() && world.begun() == 1);
            world.shut_out();
        }
        assert_eq!(world.end_of(late), Ok(4), "{when}");
        assert!(world.holds(HANGS, b"late"));
        end(second, &unanswered);
    }
}

#[test]
fn what_is_asked_between_two_roles_is_taken_by_the_next() {
    let (world, unanswered) = (World::new(), Unanswered::default());
    let first = world.role();
    let claim = first.context.processes().claim().unwrap();
    world.connect(&first, claim);
    end(first, &unanswered);
    let slot = world.write(ANSWERS, b"between");
    assert!(world.lane.is_submitted(slot));
    let second = world.role();
    world.connect(&second, claim);
    assert_eq!(world.end_of(slot), Ok(7));
    end(second, &unanswered);
}
