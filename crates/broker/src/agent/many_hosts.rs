//! Many hosts without data against one master: its handlers, its listener and the protocol of links are those that run; the hosts answer it as hosts do that have
//! files open and write nothing. The mapping table is in memory, objects are in a directory.
//!
//! `bench/hosts/many_hosts.py` runs [`figures_of_many_hosts`], which prints what it measures.

use super::links::MasterEars;
use super::master::Master;
use crate::agent_counts::AgentCounts;
use crate::agent_identity::AgentIdentity;
use crate::context::Sharing;
use crate::guard;
use crate::host_keys::HostKeys;
use crate::host_messages::{FromAgent, FromMaster, Known, Shown, ToAgent, ToMaster, decode, encode};
use crate::hosts::{ClusterKey, Hears, Introduction, Limits, LinkError, Listener, Peer, connect_with};
use crate::membership::Membership;
use crate::others::Others;
use crate::probing::{Act, Actor, Seen, What};
use crate::rmt::MemoryStore;
use crate::{Broker, BrokerHandle, BrokerOptions};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use stripewise_coherence::host::{Message, Step};
use stripewise_layout::{
    ByteCount, Cluster, FileId, Layout, Placement, RegionIndex, Server, ServerClass, ServerId, ServerUrl,
};
use stripewise_store::protocol::{
    Admin, AgentRole, MigrateBandwidth, MoveControl, MoveOrder, QuestionDirection, Reply, Request,
};
use stripewise_store::server::directory;
use stripewise_store::state::StateDirectory;
use tempfile::TempDir;

const REGION: u32 = 64 << 10;
/// For what must come; nobody waits so long otherwise.
const LONG: Duration = Duration::from_secs(600);
/// Regions that one answer shows.
const SHOWN_AT_ONCE: u32 = 1024;
const LIMITS: Limits = Limits { silence: LONG, handshake: LONG };

/// How much of everything.
#[derive(Clone, Copy)]
struct Scale {
    hosts: usize,
    files: u32,
    regions_of_file: u32,
}

/// A host of which only the agent's side of the protocol is there.
struct Host {
    link: OnceLock<Arc<Peer>>,
    known: Mutex<BTreeMap<FileId, Known>>,
    actor: Actor,
    locked: Mutex<Option<File>>,
}

impl Hears for Host {
    fn hear(&self, _: &Arc<Peer>, question: Vec<u8>) -> Vec<u8> {
        let known = |file: FileId| guard(&self.known).get(&file).copied();
        let answer = match decode(&question).expect("a message") {
            ToAgent::Size { file } | ToAgent::Shut { file, .. } => FromAgent::Size(known(file)),
            ToAgent::Move { file, message: Message { step: Step::Collect | Step::Seal, .. }, .. } => {
                FromAgent::Marked { marks: Vec::new(), known: known(file), has_died: false }
            }
            ToAgent::Accesses => FromAgent::Accessed(Vec::new()),
            ToAgent::Probe { act } => FromAgent::Probed(self.probe(&act)),
            ToAgent::Move { .. }
            | ToAgent::Open { .. }
            | ToAgent::Show { .. }
            | ToAgent::Drain { .. }
            | ToAgent::Holders { .. }
            | ToAgent::Keys(_) => FromAgent::Done,
        };
        encode(&answer)
    }

    fn notified(&self, _: &Arc<Peer>, _: Vec<u8>) {}

    fn met(&self, _: &Arc<Peer>) -> Result<(), String> {
        Ok(())
    }

    fn left(&self, _: &Arc<Peer>, _: &LinkError) {}
}

fn lock_open_file(file: &File, kind: libc::c_int) -> bool {
    // SAFETY: zeros are a lock of the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    // SAFETY: the descriptor is open, and the lock outlives the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}

impl Host {
    /// Locks of one process do not keep it out itself, and the master is in this one: a host locks by open file.
    fn probe(&self, act: &Act) -> Result<Seen, String> {
        match act.what {
            What::Lock => {
                let path = Path::new(&act.directory).join(&act.name);
                let file = File::options().read(true).write(true).open(path).map_err(|error| error.to_string())?;
                let is_taken = lock_open_file(&file, libc::F_WRLCK);
                *guard(&self.locked) = is_taken.then_some(file);
                Ok(Seen::Is(is_taken))
            }
            What::Unlock => {
                // A child that another test is just forking has the file open, too, and would keep the lock.
                assert!(guard(&self.locked).take().is_none_or(|file| lock_open_file(&file, libc::F_UNLCK)));
                Ok(Seen::Done)
            }
            _ => self.actor.perform(act),
        }
    }

    fn ask(&self, question: &ToMaster) -> FromMaster {
        let link = self.link.get().expect("it is connected");
        decode(&link.ask(&encode(question), LONG).unwrap()).unwrap()
    }

    fn request(&self, request: Request, shown: Vec<Shown>) -> (Reply, u32) {
        match self.ask(&ToMaster::Request { request, shown, known: None }) {
            FromMaster::Answer { reply, snapshot } => {
                let regions = snapshot.map_or(0, |snapshot| {
                    let known = Known { size_bytes: snapshot.news.size_bytes, truncations: snapshot.news.truncations };
                    guard(&self.known).insert(snapshot.file, known);
                    snapshot.regions.len() as u32
                });
                (*reply, regions)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Opens the file and gets to know all of its regions; returns how many.
    fn open(&self, file: FileId, path: &Path, regions: u32) -> u32 {
        let (reply, mut seen) = self.request(Request::Open { file }, vec![shown(path)]);
        assert_eq!(reply, Reply::Opened { file, writable: true });
        while seen < regions {
            let first = RegionIndex(seen);
            let last = RegionIndex(regions.min(seen + SHOWN_AT_ONCE) - 1);
            seen += self.request(Request::Refresh { file, first, last }, Vec::new()).1;
        }
        seen
    }
}

fn shown(path: &Path) -> Shown {
    let inode = std::fs::metadata(path).unwrap().ino();
    Shown { path: path.to_str().unwrap().to_owned(), file: None, inode, is_readable: true, is_writable: true }
}

/// A master, and hosts that have joined it.
struct World {
    hosts: Vec<Arc<Host>>,
    others: Arc<Others>,
    master: Arc<Master>,
    broker: BrokerHandle,
    counts: Arc<AgentCounts>,
    _listener: Listener,
    root: TempDir,
}

impl World {
    fn new(hosts: usize) -> Self {
        let memory = Path::new("/dev/shm");
        let root = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        std::fs::create_dir(root.path().join("data")).unwrap();
        let server = |name: &str| {
            let directory = root.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            directory::prepare("many", name, &directory).unwrap();
            Server::new(name, ServerClass::Hdd, ServerUrl::new("file", directory))
        };
        let servers = vec![server("a"), server("b")];
        let cluster = Cluster::new("many", root.path().join("state"), ByteCount(REGION.into()), servers);
        let state = StateDirectory::make(&cluster.state).unwrap();
        let lock = Arc::new(state.try_lock().unwrap().unwrap());
        let key_path = root.path().join("key");
        let key = ClusterKey::make(&key_path).unwrap();
        let (ears, counts) = (Arc::new(MasterEars::default()), Arc::new(AgentCounts::new(2, Arc::default())));
        let introduction = |host: &str| Introduction {
            cluster: "many".to_owned(),
            host: host.to_owned(),
            machine: format!("machine-of-{host}"),
            process: 1,
            version: 1,
            boot: None,
            directory: None,
        };
        let loopback = "127.0.0.1:0".parse().unwrap();
        let listener =
            Listener::start_with(loopback, &key, introduction("master"), Arc::clone(&ears) as _, LIMITS).unwrap();
        let others = Arc::new(Others::new([], LONG, 0, &counts));
        let table = Arc::new(MemoryStore::default());
        let master = Arc::new(Master::new(&others, Box::new(Arc::clone(&table)), &counts));
        ears.follow(Some((Arc::clone(&master), Arc::clone(&others))));
        let sharing = Sharing {
            table: Box::new(table),
            others: Some(Arc::clone(&others)),
            first_number: 0,
            membership: Arc::new(Membership::of_master("master", 1)),
            counts: Arc::clone(&counts),
            keys: Arc::new(HostKeys::load(&key_path).unwrap()),
            under_way: Arc::default(),
            agent: AgentIdentity::default(),
        };
        let broker = Broker::serve(&cluster, state, lock, BrokerOptions::default(), Some(sharing)).unwrap();
        master.serve(&broker.core);
        let join = |number: usize| {
            let host = Arc::new(Host {
                link: OnceLock::new(),
                known: Mutex::default(),
                actor: Actor::default(),
                locked: Mutex::default(),
            });
            let introduction = introduction(&format!("h{number}"));
            let ears = Arc::clone(&host) as _;
            let link = connect_with(listener.address(), &key, &introduction, ears, LONG, LIMITS).unwrap();
            host.link.set(link).unwrap();
            let FromMaster::Admitted { admission, .. } = host.ask(&ToMaster::Join { agent: counts.agent().clone() })
            else {
                panic!("not admitted")
            };
            let holding = ToMaster::Holding { admission, files: Vec::new(), key: String::new() };
            assert_eq!(host.ask(&holding), FromMaster::Heard);
            host
        };
        let hosts = (0..hosts).map(join).collect();
        let world = Self { hosts, others, master, broker, counts, _listener: listener, root };
        let on = |server| Layout::new([(ServerId(server), REGION)]).unwrap();
        let placement = Placement::uniform(ByteCount(REGION.into()), on(0), on(0));
        let directory = world.root.path().join("data").to_str().unwrap().to_owned();
        world.admin(Admin::Manage { directory, placement, min_bytes: None });
        world.admin(Admin::ControlMoves(MoveControl::Bandwidth(MigrateBandwidth::Unlimited)));
        world
    }

    fn admin(&self, admin: Admin) {
        match self.hosts[0].request(Request::Admin(admin), Vec::new()).0 {
            Reply::Done | Reply::MovesQueued { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    /// A file with so many regions that have objects, made by the first host.
    fn make(&self, number: u32, regions: u32) -> (FileId, PathBuf) {
        let path = self.root.path().join(format!("data/{number}"));
        File::create_new(&path).unwrap();
        let request = Request::Create { path: path.to_str().unwrap().to_owned() };
        let Reply::Opened { file, .. } = self.hosts[0].request(request, vec![shown(&path)]).0 else {
            panic!("not made")
        };
        self.hosts[0].request(Request::Linked { file }, Vec::new());
        for first in (0..regions).step_by(SHOWN_AT_ONCE as usize) {
            let last = RegionIndex(regions.min(first + SHOWN_AT_ONCE) - 1);
            self.hosts[0].request(Request::Place { file, first: RegionIndex(first), last }, Vec::new());
        }
        (file, path)
    }

    /// Every host opens every file, all at once; returns how many regions they got to know.
    fn open_everywhere(&self, files: &[(FileId, PathBuf)], regions: u32) -> u64 {
        let open =
            |host: &Host| files.iter().map(|(file, path)| u64::from(host.open(*file, path, regions))).sum::<u64>();
        std::thread::scope(|scope| {
            let opening: Vec<_> = self.hosts.iter().map(|host| scope.spawn(|| open(host))).collect();
            opening.into_iter().map(|opened| opened.join().unwrap()).sum()
        })
    }

    /// Orders move number `number` of regions that go round; each goes to the other server than before.
    fn order(&self, files: &[(FileId, PathBuf)], regions: u32, number: u32) {
        let count = files.len() as u32;
        let (file, region) = (files[(number % count) as usize].0, RegionIndex(number / count % regions));
        let server = u16::from((number / count / regions).is_multiple_of(2));
        let layout = Layout::new([(ServerId(server), REGION)]).unwrap();
        self.admin(Admin::Move { orders: vec![MoveOrder { file, first: region, last: region, layout }] });
    }

    fn waiting(&self) -> u64 {
        let totals = self.broker.move_totals();
        totals.queued + totals.active
    }

    fn wait_for_moves(&self) {
        while self.waiting() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Questions to agents by kind.
    fn asked(&self) -> BTreeMap<String, u64> {
        let report = self.counts.report(AgentRole::Master, 0, None);
        let to_agents = report.questions.into_iter().filter(|count| count.direction == QuestionDirection::ToAgent);
        to_agents.map(|count| (count.kind, count.count)).collect()
    }

    /// As [`Self::make`] and [`Self::open_everywhere`] of all files.
    fn prepare(scale: Scale) -> (Self, Vec<(FileId, PathBuf)>) {
        let world = Self::new(scale.hosts);
        let files: Vec<_> = (0..scale.files).map(|number| world.make(number, scale.regions_of_file)).collect();
        (world, files)
    }
}

/// The short form; what takes time is [`figures_of_many_hosts`].
#[test]
fn sixty_four_hosts_open_regions_and_each_is_asked_a_fixed_number_of_times_for_a_move() {
    let scale = Scale { hosts: 64, files: 2, regions_of_file: 20 };
    let (world, files) = World::prepare(scale);
    let opened = world.open_everywhere(&files, scale.regions_of_file);
    assert_eq!(opened, 64 * 2 * 20);
    assert!(world.others.list().iter().all(|host| host.answers && host.files == Some(2)));
    let (before, moves) = (world.asked(), 20);
    (0..moves).for_each(|number| world.order(&files, scale.regions_of_file, number));
    world.wait_for_moves();
    let totals = world.broker.move_totals();
    assert_eq!((totals.done, totals.failed), (u64::from(moves), 0));
    let asked = || -> BTreeMap<_, _> {
        let since = |(kind, count): (String, u64)| {
            let earlier = before.get(&kind).copied().unwrap_or(0);
            (kind, count - earlier)
        };
        world.asked().into_iter().map(since).collect()
    };
    let of_moves = || asked().iter().filter(|(kind, _)| *kind != "size").map(|(_, count)| *count).sum::<u64>();
    // A question counts with its answer, which may come after the move has ended.
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while of_moves() % (64 * u64::from(moves)) != 0 && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    let (asked, of_move) = (asked(), of_moves());
    println!("questions to 64 hosts for {moves} moves: {asked:?}");
    let each = of_move / (64 * u64::from(moves));
    assert!(each <= 6 && of_move == each * 64 * u64::from(moves), "{asked:?}");
    // What the master keeps of hosts goes with what they have open.
    for host in &world.hosts {
        files.iter().for_each(|(file, _)| drop(host.request(Request::Close { file: *file }, Vec::new())));
    }
    assert!(world.others.list().iter().all(|host| host.files == Some(0)));
}

fn number_of(variable: &str, usual: u32) -> u32 {
    std::env::var(variable).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// What such a master had refused by the time it noticed was the error that a program got, though the next master would have done it.
#[test]
fn a_master_whose_role_is_over_sends_every_host_to_the_next() {
    let world = World::new(1);
    let join = ToMaster::Join { agent: world.counts.agent().clone() };
    assert!(matches!(world.hosts[0].ask(&join), FromMaster::Admitted { .. }));
    world.master.stop();
    assert_eq!(world.hosts[0].ask(&join), FromMaster::NotMaster);
}

/// Prints a line of JSON.
#[test]
#[ignore = "measures; bench/hosts/many_hosts.py runs it"]
fn figures_of_many_hosts() {
    let hosts = number_of("HOSTS", 64) as usize;
    let (files, regions) = (number_of("FILES", 10), number_of("REGIONS", 1000));
    let (rate, seconds, backlog) =
        (number_of("MOVES_PER_MINUTE", 1000), number_of("SECONDS", 30), number_of("BACKLOG", 500));
    let scale = Scale { hosts, files, regions_of_file: regions };
    let begun = Instant::now();
    let (world, all) = World::prepare(scale);
    let placed_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let opened = world.open_everywhere(&all, regions);
    let opened_s = begun.elapsed().as_secs_f64();
    assert_eq!(opened, hosts as u64 * u64::from(files) * u64::from(regions));
    // Moves come at an even rate, and what waits is looked at before each.
    let (begun, count) = (Instant::now(), rate * seconds / 60);
    let mut waiting = Vec::new();
    for number in 0..count {
        let due = begun + Duration::from_secs(60) * number / rate;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        waiting.push(world.waiting());
        world.order(&all, regions, number);
    }
    world.wait_for_moves();
    let offered_s = begun.elapsed().as_secs_f64();
    let half = waiting.len() / 2;
    let longest = |part: &[u64]| part.iter().copied().max().unwrap_or(0);
    // All at once: the rate at which the queue would begin to grow.
    let begun = Instant::now();
    (count..count + backlog).for_each(|number| world.order(&all, regions, number));
    world.wait_for_moves();
    let backlog_s = begun.elapsed().as_secs_f64();
    let totals = world.broker.move_totals();
    assert_eq!((totals.done, totals.failed), (u64::from(count + backlog), 0));
    println!(
        "{{\"hosts\":{hosts},\"regions\":{},\"place_s\":{placed_s:.2},\"open_s\":{opened_s:.2},\"opens_per_s\":{:.0},\
         \"regions_shown_per_s\":{:.0},\"moves_per_minute_offered\":{rate},\"offered_for_s\":{offered_s:.1},\
         \"longest_queue_first_half\":{},\"longest_queue_second_half\":{},\"moves_per_minute_at_most\":{:.0}}}",
        files * regions,
        hosts as f64 * f64::from(files) / opened_s,
        opened as f64 / opened_s,
        longest(&waiting[..half]),
        longest(&waiting[half..]),
        f64::from(backlog) * 60.0 / backlog_s,
    );
}
