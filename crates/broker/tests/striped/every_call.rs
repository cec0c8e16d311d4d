//! Every call that the store makes of its servers and its table fails once: a fixed program of all that a file goes through, run again and again, each
//! time with another call failing. Whatever was refused is done when it is asked for again, and every byte is as if nothing had happened.

use crate::hooked::{Call, Hook, OPEN_REGISTERED, failing_table, register, wrap, wrap_table};
use crate::moves::{REGION, ask, check, order, scale, status};
use crate::replicas::{never_idle, totals, wait_while_syncing, wanted};
use crate::world::{Dice, World, uniform};
use rustix::io::Errno;
use std::cell::Cell;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stripewise_broker::{Broker, BrokerHandle, BrokerOptions, Started};
use stripewise_layout::{FileOffset, RegionIndex};
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::file::StripedFile;
use stripewise_store::manage::{Moving, apply, release};
use stripewise_store::protocol::{Admin, FileInfo, MoveState, Reply, Request};
use stripewise_store::server::ServerError;
use stripewise_store::shared::control::MAX_REGIONS;

/// A client whose servers have the hook that is registered for their cluster.
pub(crate) fn hooked_client() -> ClientOptions {
    ClientOptions { open_server: OPEN_REGISTERED, ..ClientOptions::default() }
}

/// Repairs what `check` finds; afterwards it finds nothing, and objects, promises and records agree.
pub(crate) fn check_repaired(world: &World, client: &Client, context: &str) {
    let Reply::Findings { findings } = ask(client, Admin::Check { repair: true }) else { panic!() };
    assert!(findings.iter().all(|finding| finding.repaired), "{context}: {findings:?}");
    assert_eq!(check(client), [], "{context}");
    // Replicas are made, and what is forgotten is freed, in the background.
    let (begun, mut counts) = (Instant::now(), object_counts(world, client));
    while counts.windows(2).any(|two| two[0] != two[1]) && begun.elapsed() < Duration::from_secs(100) {
        counts = object_counts(world, client);
    }
    assert!(counts.windows(2).all(|two| two[0] == two[1]), "{context}: {counts:?}");
}

/// Objects that are to be, that are, and that servers promised space for. A narrow region, which has the object of its first stripe only, counts as
/// what it may become; whether one lacks objects is `check`'s to say.
fn object_counts(world: &World, client: &Client) -> [usize; 3] {
    let Reply::Files { files, more: false } = ask(client, Admin::List { after: None }) else { panic!() };
    let not_yet = Cell::new(0);
    let of_file = |info: &FileInfo| {
        let asked = Admin::Regions { file: info.file, first: RegionIndex(0) };
        // One that was freed since has none.
        let Ok((Reply::Regions { regions, more: false }, _)) = client.request(&Request::Admin(asked), &[]) else {
            return 0;
        };
        for region in &regions {
            let object = format!("stripewise-objects/{}/{}.{}", info.file, region.region, region.generation);
            let exists = |(server, _): &&(u16, u32)| world.root.join(format!("s{server}")).join(&object).exists();
            let missing = region.stripes.len() - region.stripes.iter().filter(exists).count();
            if missing == region.stripes.len() - 1 && exists(&&region.stripes[0]) {
                not_yet.set(not_yet.get() + missing);
            }
        }
        let replicas = regions.iter().flat_map(|region| &region.replicas).filter(|replica| replica.fresh);
        regions.iter().map(|region| region.stripes.len()).sum::<usize>()
            + replicas.map(|replica| replica.stripes.len()).sum::<usize>()
    };
    let Reply::Usage { servers } = ask(client, Admin::Usage) else { panic!() };
    let promised = servers.iter().map(|server| server.objects as usize).sum();
    // Logs of fragments have region numbers of their own, and room of their own.
    let region = |object: &PathBuf| object.file_stem().unwrap().to_str().unwrap().parse::<u32>().unwrap();
    let is_region = |object: &&PathBuf| region(object) < MAX_REGIONS;
    let to_be = files.iter().map(of_file).sum();
    [to_be, world.objects().iter().filter(is_region).count() + not_yet.get(), promised]
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    Io,
    NoSpace,
    /// Reads and writes move half of what they were asked for, or fail with EIO where that is nothing.
    Short,
}

/// Counts the calls of all servers and all commits of the table, and has one fail.
struct Fault {
    calls: AtomicU64,
    at: u64,
    how: How,
}

impl Fault {
    fn strikes(&self) -> bool {
        self.calls.fetch_add(1, Ordering::SeqCst) == self.at
    }

    fn has_struck(&self) -> bool {
        self.calls.load(Ordering::SeqCst) > self.at
    }

    fn broker(self: &Arc<Self>) -> BrokerOptions {
        let (of_servers, of_table) = (Arc::clone(self), Arc::clone(self));
        let commit = move || match (of_table.strikes(), of_table.how) {
            (false, _) => Ok(()),
            (true, How::NoSpace) => Err(failing_table(Errno::NOSPC)),
            (true, How::Io | How::Short) => Err(failing_table(Errno::IO)),
        };
        let wrap_server = Some(wrap(move |_| Arc::clone(&of_servers)));
        BrokerOptions { wrap_server, wrap_table: Some(wrap_table(commit)), ..never_idle() }
    }
}

impl Hook for Fault {
    fn before(&self, server: &str, call: Call<'_>) -> Result<usize, ServerError> {
        if !self.strikes() {
            return Ok(usize::MAX);
        }
        let server = server.to_owned();
        match (self.how, call) {
            (How::Short, Call::Read(_, bytes) | Call::Write(_, bytes)) if bytes > 1 => Ok(bytes / 2),
            (How::NoSpace, Call::Write(..) | Call::Create(_) | Call::Cut(_) | Call::Sync(_) | Call::SyncNames(_)) => {
                Err(ServerError::NoSpace { server })
            }
            _ => Err(ServerError::Os { server, action: "doing what a test forbids", source: Errno::IO }),
        }
    }
}

/// The program and what it knows.
struct Program<'a> {
    world: &'a World,
    fault: Arc<Fault>,
    broker: Option<BrokerHandle>,
    client: Option<Client>,
    /// What was refused, in words.
    refused: Vec<String>,
    calls: u64,
    context: String,
}

const PLACE: [(u16, u32); 2] = [(0, 4096), (1, 4096)];

impl Program<'_> {
    fn client(&self) -> &Client {
        self.client.as_ref().unwrap()
    }

    fn refuse(&mut self, what: &str, error: &dyn Display) {
        let said = error.to_string();
        assert!(self.fault.has_struck(), "{}: {what}: {said}", self.context);
        let named = ["server s", "the table of a test"].iter().any(|name| said.contains(name));
        assert!(named, "{}: {what} says only `{said}`", self.context);
        self.refused.push(format!("{what}: {said}"));
        // One call fails; what it spoils may be met once more, but not for ever.
        assert!(self.refused.len() <= 3, "{}: {:?}", self.context, self.refused);
    }

    /// Asks again until it is done.
    fn insist<T, E: Display>(&mut self, what: &str, mut act: impl FnMut(&Self) -> Result<T, E>) -> T {
        loop {
            match act(self) {
                Ok(done) => return done,
                Err(error) => self.refuse(what, &error),
            }
        }
    }

    fn start(&mut self) {
        let options = self.fault.broker();
        self.broker =
            Some(self.insist("start", |program| match Broker::start(&program.world.cluster(), options.clone()) {
                Ok(Started::Serving(broker)) => Ok(broker),
                Ok(Started::AlreadyRunning { process }) => panic!("{process:?}"),
                Err(error) => Err(error),
            }));
        self.client = Some(self.world.client_with(hooked_client()));
    }

    fn create(&mut self, name: &str) -> (File, Arc<StripedFile>) {
        let path = self.world.path(name);
        let expect = Admin::Expect { path: path.to_str().unwrap().to_owned(), placement: uniform(REGION, &PLACE) };
        self.insist("expect", |program| program.client().request(&Request::Admin(expect.clone()), &[]));
        let temporary = self.world.path(&format!("{name}.new"));
        let (stub, file) = self.insist("create", |program| {
            let _ = std::fs::remove_file(&temporary);
            let stub = OpenOptions::new().read(true).write(true).create_new(true).open(&temporary).unwrap();
            program.client().create(&path, stub.as_fd()).map(|file| (stub, file))
        });
        std::fs::rename(&temporary, &path).unwrap();
        self.insist("linked", |program| program.client().linked(file.id()));
        (stub, file)
    }

    fn open(&mut self, name: &str) -> (File, Arc<StripedFile>) {
        let stub = OpenOptions::new().read(true).write(true).open(self.world.path(name)).unwrap();
        let id = self.insist("find", |program| program.client().find(stub.as_fd())).unwrap();
        let file = self.insist("open", |program| program.client().open(stub.as_fd(), id));
        (stub, file)
    }

    fn write(&mut self, file: &StripedFile, model: &mut Vec<u8>, at: u64, length: u64) {
        let bytes: Vec<u8> = (at..at + length).map(|at| (at * 7 % 251) as u8 + 1).collect();
        let mut done = 0;
        while done < bytes.len() {
            let from = FileOffset(at + done as u64);
            let buffers = [IoSlice::new(&bytes[done..])];
            done += self.insist("write", |_| file.write_at(from, &buffers));
        }
        model.resize(model.len().max((at + length) as usize), 0);
        model[at as usize..(at + length) as usize].copy_from_slice(&bytes);
    }

    fn expect(&mut self, file: &StripedFile, model: &[u8]) {
        assert_eq!(file.size_bytes(), model.len() as u64, "{}", self.context);
        let (mut found, mut done) = (vec![0xa5; model.len() + 1], 0);
        while done < model.len() {
            let from = FileOffset(done as u64);
            let rest = &mut found[done..];
            done += self.insist("read", |_| file.read_at(from, &mut [IoSliceMut::new(rest)]));
        }
        assert!(found[..done] == *model, "{}", self.context);
    }

    fn truncate(&mut self, file: &StripedFile, model: &mut Vec<u8>, size_bytes: u64) {
        self.insist("truncate", |_| file.truncate(size_bytes));
        model.resize(size_bytes as usize, 0);
    }

    fn move_to(&mut self, file: &StripedFile, regions: (u32, u32), stripes: &[(u16, u32)]) {
        let orders = vec![order(file.id(), regions.0, regions.1, stripes)];
        self.insist("move", |program| {
            let asked = Request::Admin(Admin::Move { orders: orders.clone() });
            program.client().request(&asked, &[]).map_err(|error| error.to_string())?;
            program.settle();
            let (_, moves) = status(program.client());
            let last = moves.iter().rev().take(1 + (regions.1 - regions.0) as usize);
            match last.map(|status| &status.state).find(|state| **state != MoveState::Done) {
                None => Ok(()),
                Some(MoveState::Failed { why }) => Err(why.clone()),
                Some(other) => panic!("{}: {other:?}", program.context),
            }
        });
    }

    fn sync_replicas(&mut self, file: &StripedFile) {
        self.insist("sync of replicas", |program| {
            let asked = Request::Admin(Admin::SyncReplicas { file: file.id() });
            program.client().request(&asked, &[]).map_err(|error| error.to_string())?;
            wait_while_syncing(program.client(), file.id());
            match ask(program.client(), Admin::Replicas { file: file.id() }) {
                Reply::Replicas { wanted, fresh, .. } if wanted == fresh => Ok(()),
                Reply::Replicas { why, .. } => Err(why.expect("a reason")),
                other => panic!("{other:?}"),
            }
        });
    }

    /// Until nothing moves, is synced or waits to be freed.
    fn settle(&self) {
        let begun = Instant::now();
        while {
            let (totals, moves) = status(self.client());
            totals.active + totals.queued > 0 || moves.iter().any(|status| !status.state.is_final())
        } {
            assert!(begun.elapsed() < Duration::from_secs(100), "{}: moves do not end", self.context);
            std::thread::yield_now();
        }
    }

    fn run(&mut self, ordinary: &[u8]) {
        self.start();
        let (stub, mut file) = self.create("f");
        let mut model = Vec::new();
        self.write(&file, &mut model, 3896, 2 * REGION + 400);
        self.expect(&file, &model);
        self.insist("fsync", |_| file.sync(false));
        self.truncate(&file, &mut model, 3 * REGION + 5);
        self.write(&file, &mut model, 2 * REGION + 3500, 30_000);
        self.truncate(&file, &mut model, 2 * REGION + 10_000);
        self.truncate(&file, &mut model, REGION + 5000);
        self.write(&file, &mut model, 2 * REGION + 9000, 500);
        self.expect(&file, &model);
        self.move_to(&file, (0, 1), &[(2, 1000), (3, 3000)]);
        self.expect(&file, &model);
        self.write(&file, &mut model, 5000, REGION);
        self.insist("fsync", |_| file.sync(true));

        let replicas = vec![wanted(0, 3, &[(1, 512), (3, 1024)])];
        let set = Request::Admin(Admin::SetReplicas { file: file.id(), wanted: replicas });
        self.insist("replicas", |program| program.client().request(&set, &[]));
        self.sync_replicas(&file);
        self.expect(&file, &model);
        self.write(&file, &mut model, REGION - 10, 20);
        self.expect(&file, &model);
        self.sync_replicas(&file);
        self.truncate(&file, &mut model, 2 * REGION + 100);
        self.expect(&file, &model);

        // The last close, and another broker.
        let closed = file.close();
        closed.unwrap_or_else(|error| self.refuse("close", &error));
        drop(stub);
        self.settle();
        self.client = None;
        self.broker = None;
        self.start();
        let (stub, again) = self.open("f");
        file = again;
        self.expect(&file, &model);
        self.move_to(&file, (0, 2), &PLACE);
        self.expect(&file, &model);

        let path = self.world.path("ordinary");
        let placement = uniform(REGION, &[(1, 512), (2, 1024)]);
        self.insist("apply", |program| {
            let applied = apply(program.client(), &path, &placement, &Moving::default());
            if applied.is_err() {
                assert!(std::fs::read(&path).unwrap() == ordinary, "{}", program.context);
            }
            applied
        });
        {
            let (_stub, applied) = self.open("ordinary");
            self.expect(&applied, ordinary);
        }
        self.insist("release", |program| match release(program.client(), &path, &Moving::default()) {
            Ok(_) => Ok(()),
            // What is left is to free the data, which the broker repeats by itself.
            Err(_) if std::fs::read(&path).unwrap() == ordinary => Ok(()),
            Err(error) => Err(error),
        });
        assert!(std::fs::read(&path).unwrap() == ordinary, "{}", self.context);

        let (other_stub, other) = self.create("g");
        let mut others = Vec::new();
        self.write(&other, &mut others, 0, 5000);
        let path = self.world.path("g");
        self.insist("unlink", |program| match program.client().remove(&path, other_stub.as_fd(), other.id()) {
            // What is left is to take it in, which the broker repeats by itself.
            Err(_) if !path.exists() => Ok(()),
            removed => removed,
        });
        self.expect(&other, &others);
        let closed = other.close();
        closed.unwrap_or_else(|error| self.refuse("close", &error));
        drop(other_stub);
        self.expect(&file, &model);
        self.settle();
        drop((stub, file));
        self.context += &format!(", refused: {:?}", self.refused);
        // From here on nothing fails.
        self.calls = self.fault.calls.swap(u64::MAX / 2, Ordering::SeqCst);
        check_repaired(self.world, self.client(), &self.context);
        let (_stub, file) = self.open("f");
        self.expect(&file, &model);
        assert!(totals(self.client(), file.id()).0 > 0, "{}", self.context);
    }
}

/// Runs the program with this call failing. Returns how many calls there were, and how many requests were refused.
fn run_with(world: World, at: u64, how: How) -> (u64, usize) {
    let fault = Arc::new(Fault { calls: AtomicU64::new(0), at, how });
    register(&world.root, Arc::clone(&fault) as Arc<dyn Hook>);
    let ordinary: Vec<u8> = (0..REGION + 777).map(|at| (at * 11 % 251) as u8).collect();
    std::fs::write(world.path("ordinary"), &ordinary).unwrap();
    let context = format!("call {at} fails: {how:?}");
    let mut program =
        Program { world: &world, fault, broker: None, client: None, refused: Vec::new(), calls: 0, context };
    program.run(&ordinary);
    program.client = None;
    program.broker = None;
    (program.calls, program.refused.len())
}

fn fail_calls(world: fn() -> World) {
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let (calls, refused) = run_with(world(), u64::MAX, How::Io);
    assert!(calls > 300 && refused == 0, "{calls} calls, {refused} refused");
    let all = scale("STRIPED_EVERY_CALL", 0) > 0;
    let mut dice = Dice(seed);
    let stride = if all { 1 } else { calls / 8 };
    for how in [How::Io, How::NoSpace, How::Short] {
        let (mut at, mut reported) = (dice.roll(stride), 0);
        while at < calls {
            reported += usize::from(run_with(world(), at, how).1 > 0);
            at += if all { 1 } else { 1 + dice.roll(2 * stride) };
        }
        println!("{calls} calls, {how:?}: {reported} runs in which a request was refused");
        // Any one may be a call that is repeated, or that nobody asked for.
        assert!(reported > 0 || !all, "{how:?} was never told");
    }
}

/// A part of the calls, unless `STRIPED_EVERY_CALL` is set.
#[test]
fn whatever_call_fails_is_reported_and_everything_is_whole() {
    fail_calls(|| World::new(4));
}

/// The same while small parts of requests lie in logs and are written back.
#[test]
fn whatever_call_fails_is_reported_and_what_lies_in_logs_of_fragments_is_whole() {
    fail_calls(|| World::with_fragments(4));
}
