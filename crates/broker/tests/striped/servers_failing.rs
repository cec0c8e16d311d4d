//! Servers that are taken away, replaced by an empty directory, become read-only, full, or fail, one after the other, while processes and brokers are
//! killed at random; by hooks before the calls of servers, and on real file systems, where the state directory's fills up as well. Each writer has a file of blocks that say whose they are, where they belong and which version they are, and a diary of what
//! was acknowledged and what was refused. When the servers are back, nothing acknowledged is lost or stale, and no size is wrong.

use crate::hooked::{Call, Hook, OPEN_REGISTERED, register, wrap};
use crate::killed::long_patience;
use crate::mounts::{Kind, Mounts};
use crate::moves::{REGION, any_layout, ask, check, order, scale};
use crate::world::{Dice, World, read, uniform};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripewise_broker::BrokerOptions;
use stripewise_layout::FileOffset;
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::file::StripedFile;
use stripewise_store::protocol::{Admin, Request};
use stripewise_store::server::ServerError;

const WRITERS: u64 = 3;
const SERVERS: u64 = 4;
const BLOCK: u64 = 3000;
const MAX_BLOCKS: u64 = 3 * REGION / BLOCK;

/// A server fails as the file `trouble` in the world's root says.
struct Troubled(PathBuf);

impl Hook for Troubled {
    fn before(&self, server: &str, call: Call<'_>) -> Result<usize, ServerError> {
        let Ok(text) = std::fs::read_to_string(&self.0) else { return Ok(usize::MAX) };
        let Some((_, trouble)) = text.split_once(' ').filter(|(name, _)| *name == server) else {
            return Ok(usize::MAX);
        };
        let server = || server.to_owned();
        match (trouble, call) {
            ("full", Call::Write(..) | Call::FreeBytes | Call::Create(_)) => {
                Err(ServerError::NoSpace { server: server() })
            }
            (
                "read-only",
                Call::Probe
                | Call::Write(..)
                | Call::Create(_)
                | Call::Cut(_)
                | Call::Remove(_)
                | Call::RemoveFile(_)
                | Call::SetOwnership(_),
            ) => Err(ServerError::Unusable { server: server(), what: "read-only".to_owned() }),
            ("failing", _) => {
                Err(ServerError::Os { server: server(), action: "failing", source: rustix::io::Errno::IO })
            }
            _ => Ok(usize::MAX),
        }
    }
}

fn trouble(root: &Path) -> PathBuf {
    root.join("trouble")
}

/// Whether the servers are mounts, which fail by themselves.
fn is_mounted(root: &Path) -> bool {
    root.join("kept").is_dir()
}

pub(crate) fn serve(world: &World) {
    let path = trouble(&world.root);
    let wrap_server = Some(wrap(move |_| Troubled(path.clone())));
    let _broker = world.broker_with(BrokerOptions { wrap_server, ..BrokerOptions::default() });
    println!("serving");
    let _ = std::io::stdin().read(&mut [0]);
}

/// What the block is in this version; 0: never written.
fn bytes_of(writer: u64, block: u64, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; BLOCK as usize];
    }
    let mut bytes = [writer, block, version].map(u64::to_le_bytes).concat();
    let mix =
        |at: u64| (version ^ block << 20 ^ writer << 40).wrapping_add(at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    bytes.extend((bytes.len() as u64..BLOCK).map(|at| mix(at) as u8));
    bytes
}

/// What a file may hold: of each block the versions that its bytes may be of. After an acknowledged write there is one.
#[derive(Clone, Default)]
struct Model {
    size: u64,
    blocks: Vec<Vec<u64>>,
}

impl Model {
    fn resize(&mut self, size: u64) {
        self.blocks.resize(size.div_ceil(BLOCK) as usize, vec![0]);
        self.size = size;
    }

    fn wrote(&mut self, block: u64, version: u64) {
        self.resize(self.size.max((block + 1) * BLOCK));
        self.blocks[block as usize] = vec![version];
    }

    /// A write that was refused or cut off; the file has this size since.
    fn tried(&mut self, block: u64, version: u64, size: u64, context: &str) {
        let end = (block + 1) * BLOCK;
        assert!(
            (self.size..=self.size.max(end)).contains(&size),
            "{context}: {size} bytes, not {} to {end}",
            self.size
        );
        self.resize(size);
        if let Some(versions) = self.blocks.get_mut(block as usize) {
            versions.push(version);
        }
    }

    /// A truncation that was refused or cut off.
    fn tried_to_truncate(&mut self, to: u64, size: u64, context: &str) {
        assert!(size == self.size || size == to, "{context}: {size} bytes, neither {} nor {to}", self.size);
        self.resize(size);
    }

    fn judge(&self, writer: u64, block: u64, found: &[u8], context: &str) {
        let candidates: Vec<Vec<u8>> =
            self.blocks[block as usize].iter().map(|version| bytes_of(writer, block, *version)).collect();
        let wrong = (0..found.len()).find(|at| candidates.iter().all(|bytes| bytes[*at] != found[*at]));
        let says = |at: usize| found.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        assert_eq!(
            wrong,
            None,
            "{context}: block {block} of {writer} says it is block {:?} of {:?}, version {:?}; expected {:?}",
            says(8),
            says(0),
            says(16),
            self.blocks[block as usize]
        );
    }

    fn save(&self, path: &Path) {
        let blocks =
            self.blocks.iter().map(|versions| versions.iter().map(u64::to_string).collect::<Vec<_>>().join(" ") + "\n");
        std::fs::write(path, format!("{}\n{}", self.size, blocks.collect::<String>())).unwrap();
    }

    fn load(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut lines = text.lines();
        let size = lines.next().unwrap().parse().unwrap();
        let numbers = |line: &str| line.split(' ').map(|number| number.parse().unwrap()).collect();
        Self { size, blocks: lines.map(numbers).collect() }
    }
}

struct Writer {
    me: u64,
    version: u64,
    dice: Dice,
    client: Client,
    file: Arc<StripedFile>,
    model: Model,
    diary: std::fs::File,
}

/// Until it is killed.
pub(crate) fn work(world: &World, arguments: &[String]) -> ! {
    let numbers: Vec<u64> = arguments.iter().map(|text| text.parse().unwrap()).collect();
    let [me, version, seed] = numbers[..] else { panic!("{arguments:?}") };
    let client = if is_mounted(&world.root) {
        world.client_with(long_patience())
    } else {
        register(&world.root, Arc::new(Troubled(trouble(&world.root))));
        world.client_with(ClientOptions { open_server: OPEN_REGISTERED, ..long_patience() })
    };
    let (_stub, file) = world.open(&client, &format!("f{me}"), true);
    let model = Model::load(&world.root.join(format!("model{me}")));
    let diary = std::fs::OpenOptions::new().append(true).open(world.root.join(format!("diary{me}"))).unwrap();
    let mut writer = Writer { me, version, dice: Dice(seed), client, file, model, diary };
    loop {
        writer.act();
    }
}

impl Writer {
    fn note(&mut self, text: &str) {
        self.diary.write_all(text.as_bytes()).unwrap();
    }

    fn act(&mut self) {
        match self.dice.roll(16) {
            0..8 => {
                let blocks = self.model.size / BLOCK;
                let block = self.dice_block(blocks + 1);
                self.write(block);
            }
            8..12 if self.model.size > 0 => {
                let block = self.dice_block(self.model.size.div_ceil(BLOCK));
                let mut found = vec![0; BLOCK as usize];
                // A server may be away; what is read is right.
                if let Ok(read) = self.file.read_at(FileOffset(block * BLOCK), &mut [IoSliceMut::new(&mut found)]) {
                    self.model.judge(self.me, block, &found[..read], "while it works");
                }
            }
            12 => {
                let to = self.dice_block(MAX_BLOCKS) * BLOCK;
                self.note(&format!("cut {to}\n"));
                let truncated = self.file.truncate(to).is_ok();
                let size = self.file.size_bytes();
                if truncated {
                    assert_eq!(size, to);
                }
                self.model.tried_to_truncate(to, size, "while it works");
                self.note(&format!("is {size}\n"));
            }
            13 => {
                let _ = self.file.sync(false);
            }
            14 => {
                let region = self.dice.roll(MAX_BLOCKS * BLOCK / REGION) as u32;
                let orders = vec![order(self.file.id(), region, region, &any_layout(&mut self.dice, SERVERS))];
                let _ = self.client.request(&Request::Admin(Admin::Move { orders }), &[]);
            }
            _ => assert_eq!(self.file.status().unwrap().size_bytes, self.model.size),
        }
    }

    fn dice_block(&mut self, below: u64) -> u64 {
        self.dice.roll(below.clamp(1, MAX_BLOCKS))
    }

    fn write(&mut self, block: u64) {
        self.version += 1;
        self.note(&format!("write {block} {}\n", self.version));
        let bytes = bytes_of(self.me, block, self.version);
        let written = self.file.write_at(FileOffset(block * BLOCK), &[IoSlice::new(&bytes)]);
        if written.is_ok_and(|written| written as u64 == BLOCK) {
            self.model.wrote(block, self.version);
            self.note("done\n");
        } else {
            let size = self.file.size_bytes();
            self.model.tried(block, self.version, size, "while it works");
            self.note(&format!("is {size}\n"));
        }
    }
}

struct Torture {
    healing: Option<Box<dyn FnOnce()>>,
    mounts: Option<Arc<Mounts>>,
    world: World,
    broker: Child,
    writers: Vec<(Child, u64)>,
    dice: Dice,
    context: String,
}

fn spawn_broker(world: &World) -> Child {
    let mut child = world.spawn(if is_mounted(&world.root) { "broker" } else { "troubled-broker" }, &[]);
    crate::world::wait_for_line(&mut child, "serving");
    child
}

impl Torture {
    fn new(seed: u64, world: World, mounts: Option<Mounts>) -> Self {
        let broker = spawn_broker(&world);
        let client = world.client();
        let (dice, mounts) = (Dice(seed), mounts.map(Arc::new));
        let mut torture =
            Self { world, broker, writers: Vec::new(), dice, context: String::new(), healing: None, mounts };
        for me in 0..WRITERS {
            let stripes: Vec<(u16, u32)> = (0..SERVERS as u16).map(|server| (server, 2048)).collect();
            torture.world.create(&client, &format!("f{me}"), uniform(REGION, &stripes));
            Model::default().save(&torture.path("model", me));
            let child = torture.spawn(me, 0);
            torture.writers.push((child, 0));
        }
        torture
    }

    fn path(&self, kind: &str, me: u64) -> PathBuf {
        self.world.root.join(format!("{kind}{me}"))
    }

    fn spawn(&mut self, me: u64, version: u64) -> Child {
        std::fs::write(self.path("diary", me), b"").unwrap();
        let seed = self.dice.roll(1 << 30);
        self.world.spawn("block-writer", &[me, version, seed].map(|number: u64| number.to_string()))
    }

    fn let_work(&mut self, me: u64) {
        let written = |torture: &Self| std::fs::metadata(torture.path("diary", me)).unwrap().len();
        let until = written(self) + 1 + self.dice.roll(1000);
        let begun = Instant::now();
        while written(self) < until {
            let ended = self.writers[me as usize].0.try_wait().unwrap();
            assert!(ended.is_none(), "{}: writer {me} ended by itself: {ended:?}", self.context);
            assert!(begun.elapsed() < Duration::from_secs(100), "{}: writer {me} does not go on", self.context);
            std::thread::yield_now();
        }
    }

    /// One server or the state directory fails from now on, until [`Self::heal`]. Returns how many were killed for it.
    fn begin_trouble(&mut self) -> u64 {
        match self.mounts.clone() {
            Some(mounts) => self.trouble_a_mount(&mounts),
            None => {
                self.trouble_a_hook();
                0
            }
        }
    }

    fn trouble_a_mount(&mut self, mounts: &Arc<Mounts>) -> u64 {
        let (mut server, kind) = (format!("s{}", self.dice.roll(SERVERS)), self.dice.roll(5));
        if kind == 4 {
            server = "state".to_owned();
        }
        self.context += &format!(", {server} in trouble {kind}");
        let (mut kills, healed) = (0, Arc::clone(mounts));
        match kind {
            0 | 1 => mounts.go_away(&server),
            2 => {
                // No descriptor may be open for writing there when it becomes read-only; those who come then find it so.
                (0..WRITERS).for_each(|me| self.kill_and_look(me));
                Self::kill(&mut self.broker, &self.context);
                kills = WRITERS + 1;
                mounts.make_read_only(&server);
                self.broker = spawn_broker(&self.world);
                (0..WRITERS).for_each(|me| self.start_again(me));
            }
            _ => mounts.fill(&server),
        }
        self.healing = Some(Box::new(move || match kind {
            0 | 1 => healed.come_back(&server),
            2 => healed.make_writable(&server),
            _ => healed.empty(&server),
        }));
        kills
    }

    fn trouble_a_hook(&mut self) {
        let root = self.world.root.clone();
        let server = format!("s{}", self.dice.roll(SERVERS));
        let (path, away) = (root.join(&server), root.join("away"));
        let kind = self.dice.roll(5);
        self.context += &format!(", {server} in trouble {kind}");
        if kind < 2 {
            std::fs::rename(&path, &away).unwrap();
            if kind == 1 {
                std::fs::create_dir(&path).unwrap();
            }
            self.healing = Some(Box::new(move || {
                if kind == 1 {
                    std::fs::remove_dir(&path).expect("nothing is written where no server is");
                }
                std::fs::rename(&away, &path).unwrap();
            }));
        } else {
            let kind = ["full", "read-only", "failing"][kind as usize - 2];
            // By a rename: never seen half.
            std::fs::write(root.join("trouble.new"), format!("{server} {kind}")).unwrap();
            std::fs::rename(root.join("trouble.new"), trouble(&root)).unwrap();
            self.healing = Some(Box::new(move || std::fs::remove_file(trouble(&root)).unwrap()));
        }
    }

    fn heal(&mut self) {
        self.healing.take().into_iter().for_each(|heal| heal());
    }

    fn kill(child: &mut Child, context: &str) {
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "{context}: it had ended by itself");
    }

    fn kill_broker(&mut self) {
        Self::kill(&mut self.broker, &self.context);
        self.broker = spawn_broker(&self.world);
    }

    /// Kills a writer and, with all servers there, compares what it leaves with its diary.
    fn kill_and_judge(&mut self, me: u64) {
        self.kill_and_look(me);
        self.start_again(me);
    }

    fn kill_and_look(&mut self, me: u64) {
        Self::kill(&mut self.writers[me as usize].0, &self.context);
        let (path, context) = (self.path("model", me), self.context.clone());
        let mut model = Model::load(&path);
        let client = self.world.client();
        let (_stub, file) = self.world.open(&client, &format!("f{me}"), true);
        let size = file.size_bytes();
        let diary = std::fs::read_to_string(self.path("diary", me)).unwrap();
        let number = |word: &str| word.parse::<u64>().unwrap();
        let mut pending: Option<Vec<&str>> = None;
        let settle = |model: &mut Model, words: &[&str], size: u64| match words {
            ["write", block, version] => model.tried(number(block), number(version), size, &context),
            ["cut", to] => model.tried_to_truncate(number(to), size, &context),
            other => panic!("{context}: {other:?}"),
        };
        for line in diary.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match (words[0], pending.take()) {
                ("done", Some(begun)) => model.wrote(number(begun[1]), number(begun[2])),
                ("is", Some(begun)) => settle(&mut model, &begun, number(words[1])),
                (_, None) => {
                    if words[0] == "write" {
                        self.writers[me as usize].1 = number(words[2]);
                    }
                    pending = Some(words);
                }
                other => panic!("{context}: {other:?}"),
            }
        }
        if let Some(begun) = pending {
            settle(&mut model, &begun, size);
        }
        assert_eq!(size, model.size, "{context}: the size of {me}");
        for block in 0..size.div_ceil(BLOCK) {
            model.judge(me, block, &read(&file, block * BLOCK, BLOCK as usize), &context);
        }
        model.save(&path);
    }

    fn start_again(&mut self, me: u64) {
        let child = self.spawn(me, self.writers[me as usize].1);
        self.writers[me as usize].0 = child;
    }

    /// Returns how many were killed.
    fn round(&mut self) -> u64 {
        let (me, other) = (self.dice.roll(WRITERS), self.dice.roll(WRITERS));
        let mut kills = 1 + self.begin_trouble();
        self.let_work(me);
        // One that starts needs room in its state directory.
        if self.dice.roll(3) == 0 && !self.context.contains("state in trouble") {
            self.kill_broker();
            kills += 1;
        }
        self.let_work(other);
        self.heal();
        if self.dice.roll(3) == 0 {
            self.let_work(me);
        }
        self.kill_and_judge(me);
        kills
    }
}

/// `STRIPED_KILLS` makes it long.
#[test]
fn whatever_fails_of_the_servers_nothing_acknowledged_is_lost_stale_or_of_another_size() {
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    torture(seed, World::new(SERVERS as usize), None);
}

/// The same on ext4, XFS and in memory, unmounted, read-only or full to the last block, or with a full state directory on XFS.
#[test]
fn whatever_becomes_of_the_servers_mounts_nothing_acknowledged_is_lost_stale_or_of_another_size() {
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let kinds = [("s0", Kind::Ext4), ("s1", Kind::Xfs), ("s2", Kind::Memory), ("s3", Kind::Ext4), ("state", Kind::Xfs)];
    if let Some((world, mounts)) = Mounts::world(SERVERS as usize, &kinds) {
        torture(seed, world, Some(mounts));
    }
}

fn torture(seed: u64, world: World, mounts: Option<Mounts>) {
    let mut torture = Torture::new(seed, world, mounts);
    let (mut kills, wanted) = (0, scale("STRIPED_KILLS", 24) / 2);
    while kills < wanted {
        torture.context = format!("seed {seed}, kill {kills}");
        kills += torture.round();
    }
    torture.context = format!("seed {seed}, at the end");
    (0..WRITERS).for_each(|me| torture.kill_and_judge(me));
    for (child, _) in &mut torture.writers {
        Torture::kill(child, &torture.context);
    }
    let client = torture.world.client();
    ask(&client, Admin::Check { repair: true });
    let findings = check(&client);
    // What lies elsewhere than planned is told; nothing else is wrong.
    assert!(findings.iter().all(|finding| finding.what.contains("in the fallback layout")), "{findings:?}");
    drop(client);
    Torture::kill(&mut torture.broker, &torture.context);
    println!("{} kills", kills + 2 * WRITERS + 1);
}
