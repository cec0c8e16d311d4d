//! Processes, brokers, and all of them at once, killed at random in the middle of everything: reads, writes, truncations, moves, syncs of replicas, imports
//! and exports. Each process has a file of its own and parts of a file that all share, and keeps a diary of what it is about to do and has done; what
//! it leaves is compared with that, byte by byte. It compares what it reads as it goes.
//!
//! What else is to go on while processes die is one more arm of [`Worker::act`].

use crate::every_call::check_repaired;
use crate::moves::{REGION, any_layout, ask, check, order, scale};
use crate::replicas::wanted;
use crate::world::{Dice, World, open_stub, read, uniform, write};
use std::io::{IoSlice, IoSliceMut, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripewise_layout::FileOffset;
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::errno::ToErrno;
use stripewise_store::file::StripedFile;
use stripewise_store::manage::{Moving, apply, release};
use stripewise_store::protocol::{Admin, Request};

const WORKERS: u64 = 3;
const OWN_BYTES: u64 = 3 * REGION;
const BLOCK_BYTES: u64 = 5000;
/// Of each worker, in the shared file.
const BLOCKS: u64 = 12;
const SHARED_BYTES: u64 = BLOCKS * WORKERS * BLOCK_BYTES;

/// What changes a file. `number` gives the bytes.
#[derive(Clone, Copy, Debug)]
enum Change {
    Write { at: u64, length: u64 },
    Truncate { to: u64 },
    Block { block: u64 },
}

impl Change {
    fn parse(words: &[&str]) -> Self {
        let number = |at: usize| words[at].parse().unwrap();
        match words[0] {
            "write" => Self::Write { at: number(1), length: number(2) },
            "truncate" => Self::Truncate { to: number(1) },
            "block" => Self::Block { block: number(1) },
            other => panic!("{other}"),
        }
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Write { at, length } => write!(f, "write {at} {length}"),
            Self::Truncate { to } => write!(f, "truncate {to}"),
            Self::Block { block } => write!(f, "block {block}"),
        }
    }
}

/// Of the change with this number, from `at` on.
fn bytes_of(number: u64, at: u64, length: u64) -> Vec<u8> {
    let mix = |at: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at.wrapping_mul(0xbf58_476d_1ce4_e5b9)) >> 24;
    (at..at + length).map(|at| 1 + (mix(at) % 255) as u8).collect()
}

/// What one worker's files hold: its own whole, and its blocks of the shared one.
#[derive(Clone, PartialEq)]
struct Content {
    own: Vec<u8>,
    blocks: Vec<u8>,
}

impl Content {
    fn new() -> Self {
        Self { own: Vec::new(), blocks: vec![0; (BLOCKS * BLOCK_BYTES) as usize] }
    }

    fn change(&mut self, number: u64, change: Change) {
        match change {
            Change::Write { at, length } => {
                let end = (at + length) as usize;
                self.own.resize(self.own.len().max(end), 0);
                self.own[at as usize..end].copy_from_slice(&bytes_of(number, at, length));
            }
            Change::Truncate { to } => self.own.resize(to as usize, 0),
            Change::Block { block } => {
                let at = (block * BLOCK_BYTES) as usize;
                self.blocks[at..at + BLOCK_BYTES as usize].copy_from_slice(&bytes_of(number, at as u64, BLOCK_BYTES));
            }
        }
    }

    fn load(world: &World, worker: u64) -> Self {
        let part = |kind: &str| std::fs::read(world.root.join(format!("{kind}{worker}"))).unwrap();
        Self { own: part("own"), blocks: part("blocks") }
    }

    fn save(&self, world: &World, worker: u64) {
        std::fs::write(world.root.join(format!("own{worker}")), &self.own).unwrap();
        std::fs::write(world.root.join(format!("blocks{worker}")), &self.blocks).unwrap();
    }

    fn found(own: &StripedFile, shared: &StripedFile, worker: u64) -> Self {
        let block = |block| read(shared, (block * WORKERS + worker) * BLOCK_BYTES, BLOCK_BYTES as usize);
        Self { own: all_of(own), blocks: (0..BLOCKS).flat_map(block).collect() }
    }
}

fn all_of(file: &StripedFile) -> Vec<u8> {
    let mut found = vec![0xa5; file.size_bytes() as usize];
    let read = file.read_at(FileOffset(0), &mut [IoSliceMut::new(&mut found)]).unwrap();
    found.truncate(read);
    found
}

fn ordinary(worker: u64) -> Vec<u8> {
    bytes_of(worker, 0, REGION + 777)
}

struct Worker<'a> {
    world: &'a World,
    me: u64,
    number: u64,
    dice: Dice,
    client: Client,
    own: Arc<StripedFile>,
    shared: Arc<StripedFile>,
    content: Content,
    diary: std::fs::File,
}

/// Of a worker whose broker may be killed while it connects: the next one reads everything first.
pub(crate) fn long_patience() -> ClientOptions {
    ClientOptions { connect_patience: Duration::from_secs(60), ..ClientOptions::default() }
}

/// Until it is killed.
pub(crate) fn work(world: &World, arguments: &[String]) -> ! {
    let numbers: Vec<u64> = arguments.iter().map(|text| text.parse().unwrap()).collect();
    let [me, number, seed] = numbers[..] else { panic!("{arguments:?}") };
    let client = world.client_with(long_patience());
    let (_stub, own) = world.open(&client, &format!("f{me}"), true);
    let (_shared_stub, shared) = world.open(&client, "shared", true);
    let content = Content::load(world, me);
    assert!(Content::found(&own, &shared, me) == content, "another process finds something else");
    let diary = std::fs::OpenOptions::new().append(true).open(world.root.join(format!("diary{me}"))).unwrap();
    let mut worker = Worker { world, me, number, dice: Dice(seed), client, own, shared, content, diary };
    loop {
        worker.act();
    }
}

impl Worker<'_> {
    fn act(&mut self) {
        match self.dice.roll(24) {
            0..7 => {
                let at = self.dice.roll(OWN_BYTES - 1);
                let most = if self.dice.roll(6) == 0 { OWN_BYTES } else { 9000 };
                let length = 1 + self.dice.roll(most.min(OWN_BYTES - at));
                self.change(Change::Write { at, length });
            }
            7..11 => {
                let block = self.dice.roll(BLOCKS);
                self.change(Change::Block { block });
            }
            11 | 12 => {
                let to = self.dice.roll(OWN_BYTES);
                self.change(Change::Truncate { to });
            }
            13..17 => {
                let at = self.dice.roll(OWN_BYTES);
                let length = self.dice.roll(30_000);
                let size = self.content.own.len() as u64;
                let expected = &self.content.own[at.min(size) as usize..(at + length).min(size) as usize];
                assert!(read(&self.own, at, length as usize) == expected, "{length} bytes at {at}");
            }
            17 => assert!(Content::found(&self.own, &self.shared, self.me) == self.content),
            18 => _ = unless_full(self.own.sync(false)),
            19 | 20 => {
                let (file, size) =
                    if self.dice.roll(2) == 0 { (&self.own, OWN_BYTES) } else { (&self.shared, SHARED_BYTES) };
                let region = self.dice.roll(size.div_ceil(REGION)) as u32;
                let orders = vec![order(file.id(), region, region, &any_layout(&mut self.dice, 4))];
                // The answer may be lost with the broker.
                let _ = self.client.request(&Request::Admin(Admin::Move { orders }), &[]);
            }
            21 => {
                let file = if self.dice.roll(2) == 0 { &self.own } else { &self.shared }.id();
                let _ = self.client.request(&Request::Admin(Admin::SyncReplicas { file }), &[]);
            }
            22 => {
                let path = self.world.path(&format!("ordinary{}", self.me));
                let placement = uniform(REGION, &[(1, 512), (2, 1024)]);
                // Refused while a broker that has just begun still settles what its predecessor left.
                let _ = match apply(&self.client, &path, &placement, &Moving::default()) {
                    Ok(_) => Ok(()),
                    Err(_) => release(&self.client, &path, &Moving::default()).map(|_| ()),
                };
            }
            _ => {
                // Another open, and its close.
                let stub = std::fs::File::open(self.world.path("shared")).unwrap();
                drop(unless_full(self.client.open(stub.as_fd(), self.shared.id())));
            }
        }
    }

    /// False: the state directory is full.
    fn try_change(&self, number: u64, change: Change) -> bool {
        let write = |file: &StripedFile, at: u64, bytes: &[u8]| {
            let written = unless_full(file.write_at(FileOffset(at), &[IoSlice::new(bytes)]));
            written.is_some_and(|written| written == bytes.len())
        };
        match change {
            Change::Write { at, length } => write(&self.own, at, &bytes_of(number, at, length)),
            Change::Truncate { to } => unless_full(self.own.truncate(to)).is_some(),
            Change::Block { block } => {
                let bytes = bytes_of(number, block * BLOCK_BYTES, BLOCK_BYTES);
                write(&self.shared, (block * WORKERS + self.me) * BLOCK_BYTES, &bytes)
            }
        }
    }

    fn change(&mut self, change: Change) {
        self.number += 1;
        let number = self.number;
        self.diary.write_all(format!("{number} {change}\n").as_bytes()).unwrap();
        // As long as the state directory is full it may fail, and is tried again.
        while !self.try_change(number, change) {
            self.diary.write_all(b"full\n").unwrap();
            std::thread::yield_now();
        }
        self.diary.write_all(b"done\n").unwrap();
        self.content.change(number, change);
    }
}

/// A result of something that may fail while the state directory is full.
fn unless_full<T, E: ToErrno + std::fmt::Debug>(result: Result<T, E>) -> Option<T> {
    match result {
        Err(error) if error.errno() == rustix::io::Errno::NOSPC => None,
        result => Some(result.unwrap()),
    }
}

/// One worker as those see it who start, kill and judge it.
struct Watched {
    child: Child,
    /// The last number that was used.
    number: u64,
}

/// The cluster and those who use it.
struct Killing {
    world: World,
    broker: Child,
    workers: Vec<Watched>,
    dice: Dice,
    context: String,
}

impl Killing {
    fn new(world: World, seed: u64) -> Self {
        let dice = Dice(seed);
        let broker = world.spawn_broker();
        let client = world.client();
        let copies = [&[(2, 1000), (3, 3000)][..], &[(3, 4096)]].map(|stripes| wanted(0, 4, stripes));
        for name in (0..WORKERS).map(|worker| format!("f{worker}")).chain(["shared".to_owned()]) {
            let (_stub, file) = world.create(&client, &name, uniform(REGION, &[(0, 4096), (1, 4096)]));
            ask(&client, Admin::SetReplicas { file: file.id(), wanted: copies.to_vec() });
            if name == "shared" {
                write(&file, 0, &vec![0; SHARED_BYTES as usize]);
            }
        }
        drop(client);
        let mut killing = Self { world, broker, workers: Vec::new(), dice, context: String::new() };
        for me in 0..WORKERS {
            std::fs::write(killing.world.path(&format!("ordinary{me}")), ordinary(me)).unwrap();
            Content::new().save(&killing.world, me);
            let child = killing.spawn(me, 0);
            killing.workers.push(Watched { child, number: 0 });
        }
        killing
    }

    fn spawn(&mut self, me: u64, number: u64) -> Child {
        std::fs::write(self.diary(me), b"").unwrap();
        let seed = self.dice.roll(1 << 30);
        self.world.spawn("worker", &[me, number, seed].map(|number: u64| number.to_string()))
    }

    fn diary(&self, me: u64) -> std::path::PathBuf {
        self.world.root.join(format!("diary{me}"))
    }

    /// Lets a worker come so far that it is somewhere in the middle of its program.
    fn let_work(&mut self, me: u64) {
        let written = |killing: &Self| std::fs::metadata(killing.diary(me)).unwrap().len();
        let until = written(self) + 1 + self.dice.roll(1500);
        let begun = Instant::now();
        while written(self) < until {
            let ended = self.workers[me as usize].child.try_wait().unwrap();
            assert!(ended.is_none(), "{}: worker {me} ended by itself: {ended:?}", self.context);
            assert!(begun.elapsed() < Duration::from_secs(100), "{}: worker {me} does not go on", self.context);
            std::thread::yield_now();
        }
    }

    fn kill_worker(&mut self, me: u64) {
        let context = self.context.clone();
        kill(&mut self.workers[me as usize].child, &context);
    }

    /// What a dead worker left is what its diary says.
    fn judge(&mut self, client: &Client, me: u64) {
        let context = format!("{}, worker {me}", self.context);
        let diary = std::fs::read_to_string(self.diary(me)).unwrap();
        let mut content = Content::load(&self.world, me);
        let mut pending = None;
        for line in diary.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match (words[0], pending) {
                ("full", Some(_)) => {}
                ("done", Some((number, change))) => {
                    content.change(number, change);
                    pending = None;
                }
                (number, None) => {
                    self.workers[me as usize].number = number.parse().unwrap();
                    pending = Some((number.parse().unwrap(), Change::parse(&words[1..])));
                }
                other => panic!("{context}: {other:?}"),
            }
        }
        let (_stub, own) = self.world.open(client, &format!("f{me}"), true);
        let (_shared_stub, shared) = self.world.open(client, "shared", true);
        let found = Content::found(&own, &shared, me);
        compare(&content, &found, pending, &context);
        found.save(&self.world, me);
        self.judge_ordinary(client, me, &context);
    }

    /// It is whole, an ordinary file or a managed one; what was under way is settled by the broker in its own time.
    fn judge_ordinary(&self, client: &Client, me: u64, context: &str) {
        let (path, begun) = (self.world.path(&format!("ordinary{me}")), Instant::now());
        loop {
            let bytes = std::fs::read(&path).unwrap();
            if bytes.len() != 1021 {
                return assert!(bytes == ordinary(me), "{context}: the ordinary file");
            }
            let stub = std::fs::File::open(&path).unwrap();
            if let Ok(Some(id)) = client.find(stub.as_fd())
                && client.open(stub.as_fd(), id).is_ok()
            {
                return assert!(all_of(&open_stub(client, &stub)) == ordinary(me), "{context}: the file brought in");
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{context}: never settled");
            std::thread::yield_now();
        }
    }

    fn start_again(&mut self, me: u64) {
        let number = self.workers[me as usize].number + 1;
        let child = self.spawn(me, number);
        self.workers[me as usize].child = child;
    }

    /// Kills somebody. Returns how many.
    fn kill_some(&mut self) -> u64 {
        let me = self.dice.roll(WORKERS);
        if self.world.has_small_state() && self.dice.roll(2) == 0 {
            self.world.fill_state();
            self.let_work(me);
            if self.dice.roll(3) == 0 {
                kill(&mut self.broker, &self.context);
                self.world.empty_state();
                self.broker = self.world.spawn_broker();
            }
            self.world.empty_state();
        }
        self.let_work(me);
        match self.dice.roll(8) {
            0..5 => {
                self.kill_worker(me);
                let client = self.world.client();
                self.judge(&client, me);
                self.start_again(me);
                1
            }
            5 | 6 => {
                // The others go on with its successor; one is looked at.
                kill(&mut self.broker, &self.context);
                self.broker = self.world.spawn_broker();
                self.let_work(me);
                self.kill_worker(me);
                let client = self.world.client();
                self.judge(&client, me);
                self.start_again(me);
                2
            }
            _ => {
                self.kill_all();
                self.broker = self.world.spawn_broker();
                let client = self.world.client();
                (0..WORKERS).for_each(|me| self.judge(&client, me));
                self.check(&client);
                (0..WORKERS).for_each(|me| self.start_again(me));
                1 + WORKERS
            }
        }
    }

    /// The broker first or last.
    fn kill_all(&mut self) {
        let broker_first = self.dice.roll(2) == 0;
        if broker_first {
            self.broker.kill().unwrap();
        }
        self.workers.iter_mut().for_each(|worker| worker.child.kill().unwrap());
        kill(&mut self.broker, &self.context);
        (0..WORKERS).for_each(|me| self.kill_worker(me));
    }

    /// What a broker that was killed may leave is what `check` repairs.
    fn check(&self, client: &Client) {
        let explained = |what: &str| {
            what.contains("are left over from")
                || what.contains("that are not in the mapping table")
                || what.contains("still occupies servers")
        };
        let findings = check(client);
        let log = || std::fs::read_to_string(self.world.root.join("state/log")).unwrap();
        assert!(findings.iter().all(|finding| explained(&finding.what)), "{}: {findings:?}\n{}", self.context, log());
        check_repaired(&self.world, client, &self.context);
    }
}

fn kill(child: &mut Child, context: &str) {
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "{context}: it had ended by itself");
}

/// `found` is `before`, or with the change under way done, or with a write in part.
fn compare(before: &Content, found: &Content, pending: Option<(u64, Change)>, context: &str) {
    let mut after = before.clone();
    if let Some((number, change)) = pending {
        after.change(number, change);
    }
    let sizes = if matches!(pending, Some((_, Change::Write { .. }))) {
        // A write that reaches into several regions raises the size as it goes.
        (before.own.len()..=after.own.len()).contains(&found.own.len())
    } else {
        [before.own.len(), after.own.len()].contains(&found.own.len())
    };
    assert!(sizes, "{context}: {} bytes, {pending:?} of {}", found.own.len(), before.own.len());
    let differs = |found: &[u8], before: &[u8], after: &[u8]| {
        let of = |content: &[u8], at: usize| content.get(at).copied().unwrap_or(0);
        (0..found.len()).find(|at| found[*at] != of(before, *at) && found[*at] != of(after, *at))
    };
    assert_eq!(differs(&found.own, &before.own, &after.own), None, "{context}: its own file, {pending:?}");
    assert_eq!(differs(&found.blocks, &before.blocks, &after.blocks), None, "{context}: its blocks, {pending:?}");
}

fn kill_at_random(world: World) {
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let mut killing = Killing::new(world, seed);
    let (mut kills, wanted) = (0, scale("STRIPED_KILLS", 24) / 2);
    while kills < wanted {
        killing.context = format!("seed {seed}, kill {kills}");
        kills += killing.kill_some();
    }
    killing.context = format!("seed {seed}, at the end");
    killing.kill_all();
    killing.broker = killing.world.spawn_broker();
    let client = killing.world.client();
    (0..WORKERS).for_each(|me| killing.judge(&client, me));
    killing.check(&client);
    drop(client);
    kill(&mut killing.broker, &killing.context);
    println!("{} kills", kills + 1 + WORKERS);
}

/// `STRIPED_KILLS` makes it long.
#[test]
fn whoever_is_killed_at_random_nothing_that_was_acknowledged_is_lost() {
    kill_at_random(World::new(4));
}

/// The same while the file system of the state directory fills up, to the last block, and is emptied again.
#[test]
fn whoever_is_killed_at_random_while_the_state_directory_fills_up_nothing_is_lost() {
    if let Some(world) = World::with_small_state(4) {
        kill_at_random(world);
    }
}

/// The same while small parts of requests lie in logs and are written back.
#[test]
fn whoever_is_killed_at_random_nothing_that_lay_in_logs_of_fragments_is_lost() {
    kill_at_random(World::with_fragments(4));
}
