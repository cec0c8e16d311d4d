use super::super::{Batch, Changes, Entries, MappingStore, MemoryStore, NameKind};
use super::*;
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
use crate::{Broker, BrokerHandle, BrokerOptions};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use stripewise_layout::{
    ByteCount, Cluster, FileId, Generation, Layout, Placement, RegionIndex, Server, ServerClass, ServerId, ServerUrl,
};
use stripewise_store::protocol::{Admin, MigrateBandwidth, MoveControl, MoveOrder, Refusal, Reply, Request};
use stripewise_store::server::directory;
use stripewise_store::shared::control::RegionState;
use stripewise_store::shared::marking::Motion;
use stripewise_store::state::StateDirectory;
use tempfile::TempDir;

/// What becomes of a commit.
#[derive(Clone, Copy)]
enum Happens {
    Applied,
    Lost,
    Unanswered,
    Full,
    /// The one by which the quota is reached.
    FullAfterwards,
    Deposed,
    /// It takes effect after the next commit that takes effect, if what it expects stands there then.
    Late,
}

#[derive(Default)]
struct Unlucky {
    inner: MemoryStore,
    plan: Mutex<VecDeque<Happens>>,
    held_back: Mutex<Option<Batch>>,
    /// Whether that found what it expects.
    arrived: Mutex<Option<bool>>,
}

fn engine(is_full: bool) -> RmtError {
    RmtError::Engine { is_full, source: "a test".into() }
}

impl MappingStore for Unlucky {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RmtError> {
        self.inner.get(key)
    }

    fn commit(&self, batch: &Batch) -> Result<bool, RmtError> {
        let happens = guard(&self.plan).pop_front().unwrap_or(Happens::Applied);
        let commit = || self.inner.commit(batch);
        match happens {
            Happens::Applied => {
                let committed = commit();
                if let Some(late) = guard(&self.held_back).take() {
                    *guard(&self.arrived) = Some(self.inner.commit(&late)?);
                }
                committed
            }
            Happens::Lost => Err(engine(false)),
            Happens::Unanswered => commit().and(Err(engine(false))),
            Happens::Full => Err(engine(true)),
            Happens::FullAfterwards => commit().and(Err(engine(true))),
            Happens::Deposed => Err(RmtError::Deposed { name: "a".to_owned(), master: "b".to_owned() }),
            Happens::Late => {
                *guard(&self.held_back) = Some(batch.clone());
                Err(engine(false))
            }
        }
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Entries, RmtError> {
        self.inner.scan(prefix, after, limit)
    }

    fn watch(&self, prefix: &[u8]) -> mpsc::Receiver<Vec<u8>> {
        self.inner.watch(prefix)
    }

    fn keep_copy(&self, name: &str) -> Result<(), RmtError> {
        self.inner.keep_copy(name)
    }
}

const REGION: u32 = 64 << 10;
const LONG: Duration = Duration::from_secs(60);
const SERVERS: [&str; 2] = ["a", "b"];

fn on(server: u16) -> Layout {
    Layout::new([(ServerId(server), REGION)]).unwrap()
}

fn placement() -> Placement {
    Placement::uniform(ByteCount(REGION.into()), on(0), on(0))
}

/// What is found to have come of a commit to which the first of these happens, while the others happen to what follows; and whether it came late.
fn found(plan: &[Happens]) -> (Fate, Option<bool>) {
    let store = Arc::new(Unlucky::default());
    let table = Table::new(Box::new(Arc::clone(&store))).unwrap();
    let mut changes = Changes::default();
    changes.put_name(NameKind::Managed, "/a", &placement()).unwrap();
    *guard(&store.plan) = plan.iter().copied().collect();
    let error = table.commit(&changes).unwrap_err();
    let fate = fate_of(&table, &error, |_| Ok(store.scan(b"m", None, 1)?.len() == 1));
    let arrived = *guard(&store.arrived);
    (fate, arrived)
}

#[test]
fn what_came_of_a_commit_is_known_once_another_has_taken_effect() {
    assert_eq!(found(&[Happens::Lost]).0, Fate::NotApplied);
    assert_eq!(found(&[Happens::Unanswered]).0, Fate::Applied);
    assert_eq!(found(&[Happens::Late]), (Fate::NotApplied, Some(false)), "what arrives late changes nothing");
    for first in [Happens::Lost, Happens::Unanswered] {
        assert_eq!(found(&[first, Happens::Lost]).0, Fate::Unknown);
        assert_eq!(found(&[first, Happens::Deposed]).0, Fate::Deposed);
    }
}

#[test]
fn an_engine_that_refuses_all_for_want_of_space_has_said_what_came_of_it() {
    assert_eq!(found(&[Happens::Full, Happens::Full]).0, Fate::NotApplied);
    assert_eq!(found(&[Happens::FullAfterwards, Happens::Full]).0, Fate::Applied);
}

#[test]
fn without_space_an_answer_that_was_lost_leaves_open_what_may_still_arrive() {
    assert_eq!(found(&[Happens::Unanswered, Happens::Full]).0, Fate::Applied);
    assert_eq!(found(&[Happens::Late, Happens::Full]).0, Fate::Unknown);
}

/// The master of a cluster of many hosts, of which no other has come, and a file of four regions.
struct World {
    broker: BrokerHandle,
    store: Arc<Unlucky>,
    /// By the name of a step, what happens to the commits after it.
    plans: Arc<Mutex<HashMap<&'static str, VecDeque<Happens>>>>,
    connection: Connection,
    file: FileId,
    managed: Arc<Managed>,
    _root: TempDir,
}

/// A broker over what is below `root`, master by a term whose first number is 0.
fn serve(root: &Path, store: &Arc<Unlucky>, options: BrokerOptions) -> BrokerHandle {
    let server = |name: &str| Server::new(name, ServerClass::Hdd, ServerUrl::new("file", root.join(name)));
    let servers = SERVERS.map(server).to_vec();
    let cluster = Cluster::new("c", root.join("state"), ByteCount(REGION.into()), servers);
    let state = StateDirectory::make(&cluster.state).unwrap();
    let lock = Arc::new(state.try_lock().unwrap().unwrap());
    let counts = Arc::new(AgentCounts::new(2, Arc::default()));
    let sharing = Sharing {
        table: Box::new(Arc::clone(store)),
        others: Some(Arc::new(Others::new([], LONG, 0, &counts))),
        first_number: 0,
        membership: Arc::new(Membership::of_master("master", 1)),
        counts,
        keys: Arc::new(HostKeys::load(&root.join("key")).unwrap()),
        under_way: Arc::default(),
        agent: AgentIdentity::default(),
    };
    Broker::serve(&cluster, state, lock, options, Some(sharing)).unwrap()
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let data = root.path().join("data");
        std::fs::create_dir(&data).unwrap();
        for name in SERVERS {
            let directory = root.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            directory::prepare("c", name, &directory).unwrap();
        }
        ClusterKey::make(&root.path().join("key")).unwrap();
        let store = Arc::new(Unlucky::default());
        let plans: Arc<Mutex<HashMap<_, _>>> = Arc::default();
        let steps = {
            let (plans, store) = (Arc::clone(&plans), Arc::clone(&store));
            move |step| {
                if let Some(plan) = guard(&plans).remove(step) {
                    *guard(&store.plan) = plan;
                }
            }
        };
        let options = BrokerOptions { steps: Some(Arc::new(steps)), ..BrokerOptions::default() };
        let broker = serve(root.path(), &store, options);
        let connection = Connection::of_host("h");
        let ask = |request, descriptors| match broker.core.answer(&connection, request, descriptors).0 {
            Reply::Refused(refusal) => panic!("{refusal}"),
            reply => reply,
        };
        let directory = data.to_str().unwrap().to_owned();
        let manage = Admin::Manage { directory, placement: placement(), min_bytes: None };
        ask(Request::Admin(manage), Vec::new());
        let path = data.join("x");
        let stub = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let create = Request::Create { path: path.to_str().unwrap().to_owned() };
        let Reply::Opened { file, .. } = ask(create, vec![stub.into()]) else { panic!("not made") };
        ask(Request::Linked { file }, Vec::new());
        ask(Request::Place { file, first: RegionIndex(0), last: RegionIndex(3) }, Vec::new());
        let managed = broker.core.managed(file).unwrap();
        managed.extent.extend_to(4 * u64::from(REGION));
        broker.control_moves(MoveControl::Bandwidth(MigrateBandwidth::Unlimited));
        Self { broker, store, plans, connection, file, managed, _root: root }
    }

    /// What happens to the commits after this step; after the first of them always the same.
    fn plan(&self, step: &'static str, first: Happens, then: Happens) {
        let plan = std::iter::once(first).chain(std::iter::repeat_n(then, 1 << 16)).collect();
        guard(&self.plans).insert(step, plan);
    }

    /// From here on the table is well.
    fn is_well_again(&self) {
        guard(&self.store.plan).clear();
    }

    fn truncate(&self, size_bytes: u64) -> Result<(), Refusal> {
        self.truncate_by(0, size_bytes)
    }

    fn truncate_by(&self, number: u64, size_bytes: u64) -> Result<(), Refusal> {
        let request = Request::Truncate { file: self.file, size_bytes, number };
        match self.broker.core.answer(&self.connection, request, Vec::new()).0 {
            Reply::Refused(refusal) => Err(refusal),
            _ => Ok(()),
        }
    }

    /// The size, whether the gate is shut, and to which size the table says that the file is being truncated.
    fn stands(&self) -> (u64, bool, Option<u64>) {
        let record = self.broker.core.context().table().file(self.file).unwrap().unwrap();
        (self.managed.extent.size_bytes(), self.managed.control.gate().is_shut(), record.truncating_to_bytes)
    }

    /// Moves the first region; nobody waits for it.
    fn begin_move(&self) {
        let (file, region) = (self.file, RegionIndex(0));
        self.broker.queue_moves(&[MoveOrder { file, first: region, last: region, layout: on(1) }]).unwrap();
    }

    fn place(&self) -> (Generation, ServerId, Motion) {
        match self.managed.control.regions().get(RegionIndex(0)) {
            RegionState::Placed { generation, view, motion, .. } => (generation, view.stripes()[0].server, motion),
            RegionState::Absent => panic!("it has no place"),
        }
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const INTENT: &str = "truncate: before the intent";
const OLD_SIZE: u64 = 4 * REGION as u64;
const NEW_SIZE: u64 = REGION as u64 + 7;

#[test]
fn a_truncation_is_carried_out_if_the_table_recorded_it_and_its_answer_was_lost() {
    let world = World::new();
    world.plan(INTENT, Happens::Unanswered, Happens::Applied);
    world.truncate(NEW_SIZE).unwrap();
    assert_eq!(world.stands(), (NEW_SIZE, false, None));
}

#[test]
fn a_truncation_that_the_table_did_not_record_and_never_will_fails() {
    for (first, then) in
        [(Happens::Lost, Happens::Applied), (Happens::Late, Happens::Applied), (Happens::Full, Happens::Full)]
    {
        let world = World::new();
        world.plan(INTENT, first, then);
        world.truncate(NEW_SIZE).unwrap_err();
        assert_eq!(world.stands(), (OLD_SIZE, false, None));
        world.is_well_again();
        world.truncate(NEW_SIZE).unwrap();
        assert_eq!(world.stands(), (NEW_SIZE, false, None));
    }
}

/// Whoever is master next does what is recorded, and asks nobody: nobody may write until then.
#[test]
fn a_file_stays_shut_while_the_next_master_may_truncate_it() {
    let world = World::new();
    world.plan(INTENT, Happens::Unanswered, Happens::Deposed);
    world.truncate(NEW_SIZE).unwrap_err();
    assert_eq!(world.stands(), (OLD_SIZE, true, Some(NEW_SIZE)));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(world.stands(), (OLD_SIZE, true, Some(NEW_SIZE)), "also when it is looked at again");
    world.truncate(NEW_SIZE - 1).unwrap_err();
    assert_eq!(world.stands(), (OLD_SIZE, true, Some(NEW_SIZE)));
    // It is master all the same.
    world.is_well_again();
    wait_until("it stays shut", || world.stands() == (OLD_SIZE, false, None));
    world.truncate(NEW_SIZE).unwrap();
    assert_eq!(world.stands(), (NEW_SIZE, false, None));
}

#[test]
fn a_file_stays_shut_until_the_table_says_that_its_truncation_is_over() {
    let world = World::new();
    world.plan("truncate: objects truncated", Happens::Lost, Happens::Lost);
    world.truncate(NEW_SIZE).unwrap_err();
    assert_eq!(world.stands(), (NEW_SIZE, true, Some(NEW_SIZE)));
    world.is_well_again();
    wait_until("it stays shut", || world.stands() == (NEW_SIZE, false, None));
    assert!(world.managed.control.regions().is_absent(RegionIndex(2)));
}

/// Its client heard no answer. What others wrote since, and were told so, stays.
#[test]
fn a_truncation_that_is_asked_for_again_takes_effect_once() {
    let world = World::new();
    let writes_to = |end| world.managed.extent.extend_to(end);
    let record = || world.broker.core.context().table().file(world.file).unwrap().unwrap();
    for (number, size_bytes) in [(7, NEW_SIZE), (8, OLD_SIZE)] {
        world.truncate_by(number, size_bytes).unwrap();
        assert_eq!(world.stands(), (size_bytes, false, None), "shorter, and longer");
        assert_eq!(record().size_bytes, size_bytes, "also for the next master");
        writes_to(size_bytes + 1000);
        world.truncate_by(number, size_bytes).unwrap();
        assert_eq!(world.stands(), (size_bytes + 1000, false, None));
    }
    let truncations = record().truncations;
    world.truncate_by(9, NEW_SIZE).unwrap();
    assert_eq!(world.stands(), (NEW_SIZE, false, None), "another one");
    assert_eq!((record().truncation_numbers, record().truncations), (vec![7, 8, 9], truncations + 1));
    for number in 100..200 {
        world.truncate_by(number, NEW_SIZE + number).unwrap();
    }
    assert_eq!(record().truncation_numbers, (136..200).collect::<Vec<_>>());
}

/// What a host knows of the size since the last truncation counts, though the file was loaded again within the term.
#[test]
fn truncations_of_a_file_that_is_loaded_again_count_on() {
    let world = World::new();
    for size_bytes in [NEW_SIZE, OLD_SIZE, NEW_SIZE] {
        world.truncate(size_bytes).unwrap();
    }
    let World { broker, store, managed, file, _root: root, .. } = world;
    let heard = managed.truncations.load(SeqCst);
    drop(managed);
    broker.stop();
    let broker = serve(root.path(), &store, BrokerOptions::default());
    let again = broker.core.managed(file).unwrap();
    again.raise_to(NEW_SIZE + 1, heard - 1);
    assert_eq!(again.extent.size_bytes(), NEW_SIZE, "from before the last truncation");
    again.raise_to(NEW_SIZE + 1, heard);
    assert_eq!(again.extent.size_bytes(), NEW_SIZE + 1);
    broker.stop();
}

/// Whoever does what is recorded knows who asked for it.
#[test]
fn a_truncation_whose_end_is_not_recorded_is_known_when_it_is_asked_for_again() {
    let world = World::new();
    world.plan("truncate: objects truncated", Happens::Lost, Happens::Lost);
    world.truncate_by(7, NEW_SIZE).unwrap_err();
    let record = || world.broker.core.context().table().file(world.file).unwrap().unwrap();
    assert_eq!((record().truncating_number, record().truncation_numbers), (Some(7), Vec::new()));
    assert!(record().truncations > 0, "sizes from before count no more");
    world.is_well_again();
    wait_until("it stays shut", || world.stands() == (NEW_SIZE, false, None));
    world.managed.extent.extend_to(OLD_SIZE);
    world.truncate_by(7, NEW_SIZE).unwrap();
    assert_eq!(world.stands(), (OLD_SIZE, false, None));
    assert_eq!((record().truncating_number, record().truncation_numbers), (None, vec![7]));
}

const COMMIT: &str = "move: before the commit";

#[test]
fn a_move_ends_although_the_table_has_no_space_to_commit_it() {
    let world = World::new();
    let before = world.place();
    world.plan(COMMIT, Happens::Full, Happens::Full);
    world.begin_move();
    wait_until("the move goes on", || world.broker.move_totals().failed == 1);
    assert_eq!(world.place(), before);
    wait_until("somebody has the file in hand", || world.managed.inner.try_lock().is_ok());
    world.is_well_again();
}

#[test]
fn a_move_by_whose_commit_the_quota_is_reached_is_done() {
    let world = World::new();
    let before = world.place();
    world.plan(COMMIT, Happens::FullAfterwards, Happens::Full);
    world.begin_move();
    wait_until("the region is not published", || world.place() != before && world.place().2 == Motion::Still);
    let (generation, server, _) = world.place();
    assert!(generation > before.0 && server == ServerId(1));
    assert_eq!(world.broker.core.context().table().regions(world.file).unwrap()[0].1.generation, generation);
    world.is_well_again();
}

#[test]
fn a_move_whose_commit_may_still_arrive_is_not_given_up_while_there_is_no_space() {
    let world = World::new();
    let before = world.place();
    world.plan(COMMIT, Happens::Late, Happens::Full);
    world.begin_move();
    wait_until("it is not committed", || guard(&world.store.held_back).is_some());
    std::thread::sleep(Duration::from_millis(300));
    assert!(matches!(world.place().2, Motion::Sealed(_)), "{:?}", world.place());
    world.is_well_again();
    wait_until("the move goes on", || world.broker.move_totals().failed == 1);
    assert_eq!((world.place(), *guard(&world.store.arrived)), (before, Some(false)));
}
