//! A random program whose host loses its power at a random moment, again and again: what `fsync` acknowledged is there, and what was not is old
//! or new or torn, but never another file's, another region's or another offset's.

use crate::every_call::{check_repaired, hooked_client};
use crate::moves::{REGION, any_layout, ask, check, order, scale, status};
use crate::power::Power;
use crate::replicas::{never_idle, wanted};
use crate::world::{Dice, World, uniform};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripewise_broker::{Broker, BrokerHandle, BrokerOptions, Started};
use stripewise_layout::FileOffset;
use stripewise_store::client::{Client, ClientError};
use stripewise_store::file::{FileError, IoMode, StripedFile};
use stripewise_store::manage::{Moving, apply, release};
use stripewise_store::protocol::{Admin, Finding, Request, RequestCost};
use stripewise_store::state::HostIdentity;

const REGIONS: u64 = 4;
const NAMES: [&str; 2] = ["a", "b"];

/// What the bytes of a file may be after the power has gone: at each offset those of one of these contents, the last being the present one.
/// The first is that of the last `fsync`.
struct Model {
    contents: Vec<Vec<u8>>,
}

impl Model {
    fn now(&self) -> &[u8] {
        self.contents.last().unwrap()
    }

    /// What a change that may or may not take effect leads to.
    fn change(&mut self, act: impl FnOnce(&mut Vec<u8>)) {
        let mut next = self.now().to_vec();
        act(&mut next);
        self.contents.push(next);
    }

    fn synced(&mut self) {
        self.contents.drain(..self.contents.len() - 1);
    }

    /// Bytes of the present content that a durable write acknowledged: whatever else is lost, they are there.
    fn range_synced(&mut self, range: Range<usize>) {
        let (now, before) = self.contents.split_last_mut().unwrap();
        for content in before {
            content.resize(content.len().max(range.end), 0);
            content[range.clone()].copy_from_slice(&now[range.clone()]);
        }
    }

    fn check_after_loss(&self, found: &[u8], context: &str) {
        let sizes: Vec<usize> = self.contents.iter().map(Vec::len).collect();
        assert!(sizes.contains(&found.len()), "{context}: {} bytes of {sizes:?}", found.len());
        for (at, byte) in found.iter().enumerate() {
            let of = |content: &Vec<u8>| content.get(at).copied().unwrap_or(0);
            if of(self.contents.last().unwrap()) != *byte && !self.contents.iter().any(|content| of(content) == *byte) {
                let expected: Vec<u8> = self.contents.iter().map(of).collect();
                panic!("{context}: at {at} of {} is {byte}, which was never one of {expected:?}", found.len());
            }
        }
    }
}

struct Open {
    stub: File,
    file: Arc<StripedFile>,
    model: Model,
}

/// Everything from one boot to the next.
struct Life<'a> {
    world: &'a World,
    power: &'a Arc<Power>,
    boot: u8,
    broker: Option<BrokerHandle>,
    client: Option<Client>,
    dice: &'a mut Dice,
    /// Seed, number of the loss, and what was done since the one before it: told by whatever fails.
    context: String,
}

/// The power has gone, as far as the program can tell.
struct Fault;

impl From<FileError> for Fault {
    fn from(_: FileError) -> Self {
        Fault
    }
}

impl From<ClientError> for Fault {
    fn from(_: ClientError) -> Self {
        Fault
    }
}

impl Life<'_> {
    fn options(&mut self) -> BrokerOptions {
        let host = HostIdentity { machine: "m".into(), name: "alpha".into(), boot: [self.boot; 16] };
        // Either the disks or the SSDs are read where there is a choice.
        let costs = [1000, 1_000_000_000].map(|startup_ns| Some(RequestCost { startup_ns, kib_ns: 1 }));
        let (first, last) = if self.dice.roll(2) == 0 { (0, 1) } else { (1, 0) };
        let read_costs = vec![costs[first], costs[first], costs[last], costs[last]];
        self.power.broker(BrokerOptions { host: Some(host), read_costs, ..never_idle() })
    }

    fn start(&mut self) {
        let options = self.options();
        self.broker = Some(self.world.broker_with(options));
        self.client = Some(self.world.client_with(hooked_client()));
    }

    fn client(&self) -> &Client {
        self.client.as_ref().unwrap()
    }

    fn create(&self, name: &str) -> Open {
        let placement = uniform(REGION, &[(0, 4096), (1, 4096)]);
        let (stub, file) = self.world.create(self.client(), name, placement);
        let replicas = [&[(2, 1000), (3, 3000)][..], &[(3, 4096)]].map(|stripes| wanted(1, REGIONS as u32, stripes));
        ask(self.client(), Admin::SetReplicas { file: file.id(), wanted: replicas.to_vec() });
        Open { stub, file, model: Model { contents: vec![Vec::new()] } }
    }

    fn open(&self, name: &str) -> (File, Arc<StripedFile>) {
        self.world.open(self.client(), name, true)
    }

    fn content(&self, file: &StripedFile) -> Vec<u8> {
        let mut found = vec![0xa5; file.size_bytes() as usize];
        let read = file.read_at(FileOffset(0), &mut [IoSliceMut::new(&mut found)]).unwrap();
        assert_eq!(read, found.len(), "{}", self.context);
        found
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        self.context += &format!("; {what}");
    }

    /// One step of the program.
    fn act(&mut self, open: &mut Open, name: &str) -> Result<(), Fault> {
        let size = open.model.now().len() as u64;
        match self.dice.roll(24) {
            0..10 => self.write(open, name)?,
            10 | 11 => {
                let found = self.read(&open.file)?;
                assert!(found == open.model.now(), "{}: {name} read back", self.context);
            }
            12 | 13 => {
                let length =
                    if self.dice.roll(3) == 0 { self.dice.roll(REGIONS * REGION) } else { self.dice.roll(size + 1) };
                self.note(format_args!("{name}: truncate to {length}"));
                open.model.change(|content| content.resize(length as usize, 0));
                open.file.truncate(length)?;
            }
            14..17 => {
                self.note(format_args!("{name}: fsync"));
                open.file.sync(self.dice.roll(2) == 0)?;
                open.model.synced();
            }
            17 | 18 => {
                let first = self.dice.roll(REGIONS) as u32;
                let last = first + self.dice.roll(REGIONS - u64::from(first)) as u32;
                let layout = any_layout(self.dice, 4);
                self.note(format_args!("{name}: move {first} to {last} to {layout:?}"));
                let orders = vec![order(open.file.id(), first, last, &layout)];
                self.client().request(&Request::Admin(Admin::Move { orders }), &[])?;
            }
            19 | 20 => {
                self.note(format_args!("{name}: sync replicas"));
                self.client().request(&Request::Admin(Admin::SyncReplicas { file: open.file.id() }), &[])?;
            }
            21 => {
                // The last close, perhaps.
                self.note(format_args!("{name}: open and close"));
                let again = self.client().open(open.stub.as_fd(), open.file.id())?;
                let before = std::mem::replace(&mut open.file, again);
                drop(before);
            }
            22 => self.apply()?,
            _ => self.settle(),
        }
        Ok(())
    }

    fn write(&mut self, open: &mut Open, name: &str) -> Result<(), Fault> {
        let size = open.model.now().len() as u64;
        // Some at the end, as appends are.
        let appends = self.dice.roll(4) == 0 && size < REGIONS * REGION;
        let at = if appends { size } else { self.dice.roll(REGIONS * REGION - 1) };
        let most = if self.dice.roll(4) == 0 { 2 * REGION } else { 6000 };
        let length = 1 + self.dice.roll(most.min(REGIONS * REGION - at));
        let bytes: Vec<u8> = (0..length).map(|_| 1 + self.dice.roll(255) as u8).collect();
        self.note(format_args!("{name}: write {length} at {at}"));
        open.model.change(|content| {
            let end = (at + length) as usize;
            content.resize(content.len().max(end), 0);
            content[at as usize..end].copy_from_slice(&bytes);
        });
        // Every fourth as `O_DSYNC` has it, what only is past the page cache among them.
        let durable = self.dice.roll(4) == 0;
        let mode = IoMode { durable, direct: durable && self.dice.roll(2) == 0 };
        let written = if appends {
            let (found_at, written) = open.file.append_with(&[IoSlice::new(&bytes)], mode)?;
            assert_eq!(found_at.0, at, "{}", self.context);
            written
        } else {
            open.file.write_with(FileOffset(at), &[IoSlice::new(&bytes)], mode)?
        };
        if written < bytes.len() {
            return Err(Fault);
        }
        if durable {
            self.note("durably");
            open.file.sync_written(FileOffset(at), length, self.dice.roll(2) == 0)?;
            open.model.range_synced(at as usize..(at + length) as usize);
        }
        Ok(())
    }

    fn read(&self, file: &StripedFile) -> Result<Vec<u8>, Fault> {
        let mut found = vec![0xa5; file.size_bytes() as usize];
        let read = file.read_at(FileOffset(0), &mut [IoSliceMut::new(&mut found)])?;
        if read < found.len() { Err(Fault) } else { Ok(found) }
    }

    /// Takes an ordinary file in, and lets it out again if it is there already.
    fn apply(&mut self) -> Result<(), Fault> {
        self.note("apply or release");
        let path = self.world.path("ordinary");
        let placement = uniform(REGION, &[(1, 512), (2, 1024)]);
        let is_managed = std::fs::metadata(&path).is_ok_and(|found| found.len() == 1021);
        let done = if is_managed {
            release(self.client(), &path, &Moving::default())
        } else {
            apply(self.client(), &path, &placement, &Moving::default())
        };
        done.map(|_| ()).map_err(|_| Fault)
    }

    /// Lets all moves and syncs come to their ends.
    fn settle(&mut self) {
        self.note("wait for moves");
        let begun = Instant::now();
        let is_over = || {
            let (totals, moves) = status(self.client());
            totals.active + totals.queued == 0 && moves.iter().all(|status| status.state.is_final())
        };
        while !is_over() && !self.power.is_off() {
            assert!(begun.elapsed() < Duration::from_secs(100), "{}: moves do not end", self.context);
            std::thread::yield_now();
        }
    }

    /// Everything that happens without power, and the next boot.
    fn reboot(&mut self) {
        drop(self.client.take());
        drop(self.broker.take());
        self.lose();
        while self.dice.roll(3) == 0 {
            // It goes again while what it left is put right.
            self.power.goes_after(1 + self.dice.roll(60));
            let options = self.options();
            if let Ok(Started::Serving(broker)) = Broker::start(&self.world.cluster(), options) {
                let client = self.world.client_with(hooked_client());
                // Loads every file.
                let _ = client.request(&Request::Admin(Admin::Check { repair: false }), &[]);
                drop((client, broker));
            }
            self.lose();
        }
        self.start();
    }

    fn lose(&mut self) {
        self.power.lose(self.dice);
        // What is in memory goes too.
        std::fs::remove_dir_all(self.world.root.join("state/run")).unwrap();
        self.boot = self.boot % 250 + 1;
    }

    /// The cluster holds together, and what does not is what a power failure explains.
    fn check(&self) {
        let findings = check(self.client());
        let explained = |finding: &Finding| {
            finding.what.contains("are left over from") || finding.what.contains("that are not in the mapping table")
        };
        assert!(findings.iter().all(explained), "{}: {findings:?}", self.context);
        check_repaired(self.world, self.client(), &self.context);
    }
}

/// `STRIPED_POWER_LOSSES` makes it long.
#[test]
fn what_fsync_acknowledged_is_there_after_the_power_went() {
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let (mut dice, mut losses) = (Dice(seed), 0);
    let ordinary: Vec<u8> = (0..REGION + 777).map(|at| (at * 7 % 251) as u8).collect();
    while losses < scale("STRIPED_POWER_LOSSES", 40) {
        let world = if dice.roll(2) == 0 { World::new(4) } else { World::with_fragments(4) };
        let power = Power::of(&world);
        std::fs::write(world.path("ordinary"), &ordinary).unwrap();
        let context = String::new();
        let mut life =
            Life { world: &world, power: &power, boot: 1, broker: None, client: None, dice: &mut dice, context };
        life.start();
        let mut files = NAMES.map(|name| life.create(name));
        for _ in 0..8 {
            life.context = format!("seed {seed}, loss {losses}");
            power.goes_after(1 + life.dice.roll(1 << (4 + life.dice.0 % 7)));
            while !power.is_off() {
                let number = life.dice.roll(2) as usize;
                if life.act(&mut files[number], NAMES[number]).is_err() {
                    assert!(power.is_off(), "{}: an error with power", life.context);
                }
            }
            losses += 1;
            let models = files.map(|open| open.model);
            life.reboot();
            let mut contents = Vec::new();
            for (name, model) in NAMES.iter().zip(&models) {
                let (_stub, file) = life.open(name);
                let found = life.content(&file);
                model.check_after_loss(&found, &format!("{}, {name}", life.context));
                contents.push(found);
            }
            let (_stub, file) = match std::fs::read(world.path("ordinary")).unwrap() {
                bytes if bytes.len() == 1021 => life.open("ordinary"),
                bytes => {
                    assert!(bytes == ordinary, "{}: the ordinary file", life.context);
                    life.open(NAMES[0])
                }
            };
            if file.id() != life.open(NAMES[0]).1.id() {
                assert!(life.content(&file) == ordinary, "{}: the file brought in", life.context);
            }
            drop((_stub, file));
            life.settle();
            life.check();
            // The same bytes from whatever copies the next broker has read.
            life.client = None;
            life.broker = None;
            life.start();
            let opened = NAMES.map(|name| life.open(name));
            let mut next = Vec::new();
            for ((stub, file), content) in opened.into_iter().zip(contents) {
                assert!(life.content(&file) == content, "{}: read again", life.context);
                next.push(Open { stub, file, model: Model { contents: vec![content] } });
            }
            files = next.try_into().unwrap_or_else(|_| unreachable!());
        }
        drop(files);
        life.client = None;
        life.broker = None;
    }
}
