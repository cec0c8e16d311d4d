//! Reads of what lies partly in a log of fragments, while the log's server, the disk or the log itself goes.

use crate::every_call::hooked_client;
use crate::hooked::{Call, Hook, register, wrap};
use crate::moves::ask;
use crate::replicas::never_idle;
use crate::world::{World, open_stub, read, uniform, write};
use rustix::io::Errno;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stripewise_broker::{BrokerHandle, BrokerOptions};
use stripewise_layout::FileOffset;
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::errno::ToErrno;
use stripewise_store::file::StripedFile;
use stripewise_store::protocol::{Admin, Finding, FragmentStatus, Reply};
use stripewise_store::server::ServerError;
use stripewise_store::shared::control::MAX_REGIONS;

const STRIPE: usize = 4096;

/// What goes wrong: on disk s0, and on SSD s2 that has its log.
#[derive(Default)]
enum Trouble {
    #[default]
    None,
    LogUnreadable,
    /// For reads and writes.
    LogBroken,
    /// A call that reads a whole stripe gives half of it, and the next one fails.
    DiskBadInTheMiddle,
    /// As if the mode forbade it.
    LogDenied,
    /// Before the next read of the log.
    BeforeLogRead(Box<dyn FnOnce() + Send>),
}

#[derive(Default)]
struct Unruly(Mutex<Trouble>);

impl Unruly {
    fn set(&self, trouble: Trouble) {
        *self.0.lock().unwrap() = trouble;
    }
}

impl Hook for Unruly {
    fn before(&self, server: &str, call: Call<'_>) -> Result<usize, ServerError> {
        let mut trouble = self.0.lock().unwrap();
        let name = server.to_owned();
        match (&*trouble, server, call) {
            (Trouble::DiskBadInTheMiddle, "s0", Call::Read(_, STRIPE)) => Ok(STRIPE / 2),
            (Trouble::LogBroken, "s2", Call::Read(..) | Call::Write(..))
            | (Trouble::LogUnreadable, "s2", Call::Read(..))
            | (Trouble::DiskBadInTheMiddle, "s0", Call::Read(..)) => {
                Err(ServerError::Os { server: name, action: "doing what a test forbids", source: Errno::IO })
            }
            (Trouble::LogDenied, "s2", Call::Open(_)) => Err(ServerError::Denied { server: name }),
            (Trouble::BeforeLogRead(_), "s2", Call::Read(..)) => {
                if let Trouble::BeforeLogRead(act) = std::mem::take(&mut *trouble) {
                    act();
                }
                Ok(usize::MAX)
            }
            _ => Ok(usize::MAX),
        }
    }
}

/// The broker's disk: takes nothing back from its log while it is told so.
#[derive(Clone, Default)]
struct Full(Arc<Mutex<bool>>);

impl Hook for Full {
    fn before(&self, server: &str, call: Call<'_>) -> Result<usize, ServerError> {
        match call {
            Call::Write(..) if server == "s0" && *self.0.lock().unwrap() => {
                Err(ServerError::NoSpace { server: server.to_owned() })
            }
            _ => Ok(usize::MAX),
        }
    }
}

/// A file of one stripe on a disk, of which 512 bytes are newer in the log.
struct Scene {
    world: World,
    client: Client,
    stub: File,
    file: Arc<StripedFile>,
    bytes: Vec<u8>,
    trouble: Arc<Unruly>,
    full: Full,
    _broker: BrokerHandle,
}

const NEWER_AT: usize = 1000;
const NEWER: usize = 512;

impl Scene {
    fn new() -> Self {
        let world = World::with_fragments(4);
        let (trouble, full) = (Arc::new(Unruly::default()), Full::default());
        register(&world.root, Arc::clone(&trouble) as Arc<dyn Hook>);
        *full.0.lock().unwrap() = true;
        let of_broker = full.clone();
        let wrap_server = Some(wrap(move |_| of_broker.clone()));
        let broker = world.broker_with(BrokerOptions { wrap_server, ..never_idle() });
        let client = world.client_with(hooked_client());
        let (stub, file) = world.create_unnamed(&client, uniform(STRIPE as u64, &[(0, STRIPE as u32)]));
        let mut bytes = vec![7; STRIPE];
        write(&file, 0, &bytes);
        bytes[NEWER_AT..NEWER_AT + NEWER].fill(9);
        write(&file, NEWER_AT as u64, &[9; NEWER]);
        let scene = Self { world, client, stub, file, bytes, trouble, full, _broker: broker };
        assert_eq!((scene.log().write_hits, scene.log().dirty), (1, 1), "it lies in the log");
        scene
    }

    fn log(&self) -> FragmentStatus {
        let Reply::FileFragments { servers, .. } = ask(&self.client, Admin::Fragments { file: self.file.id() }) else {
            panic!()
        };
        servers.into_iter().find(|log| log.hserver == 0).unwrap()
    }

    /// Fails, or gives nothing but what was written; all of it when nothing is wrong any more.
    fn read_in_trouble(&self, file: &StripedFile, what: &str) {
        let mut found = vec![0xa5; STRIPE];
        match file.read_at(FileOffset(0), &mut [IoSliceMut::new(&mut found)]) {
            Ok(count) => assert!(count <= STRIPE && found[..count] == self.bytes[..count], "{what}: {count} bytes"),
            Err(error) => assert_eq!(error.errno(), Errno::IO, "{what}: {error}"),
        }
        self.trouble.set(Trouble::None);
        assert!(read(file, 0, STRIPE) == self.bytes, "{what}");
    }
}

#[test]
fn a_read_that_fails_in_a_log_or_beside_it_tells_of_no_older_bytes() {
    let scene = Scene::new();
    scene.trouble.set(Trouble::LogUnreadable);
    scene.read_in_trouble(&scene.file, "a log that cannot be read");
    scene.trouble.set(Trouble::DiskBadInTheMiddle);
    scene.read_in_trouble(&scene.file, "a disk that fails in the middle");
    // One that has to ask the broker for the log's object.
    let other = scene.world.client_with(hooked_client());
    let file = open_stub(&other, &scene.stub);
    scene.trouble.set(Trouble::LogDenied);
    assert!(read(&file, 0, STRIPE) == scene.bytes);
}

#[test]
fn a_reader_in_whose_hands_a_log_goes_reads_the_disk() {
    for (at, length) in [(0, STRIPE), (NEWER_AT, NEWER)] {
        let scene = Scene::new();
        let (admin, file, full) = (scene.world.client(), scene.file.id(), scene.full.clone());
        // While the reader is about to read the slot, it is written back, given up and cut off.
        let go = move || {
            *full.0.lock().unwrap() = false;
            ask(&admin, Admin::Drain { server: 2, drained: true });
            let begun = Instant::now();
            let is_gone = |reply| match reply {
                Reply::FileFragments { servers, .. } => {
                    servers.iter().filter(|log| log.hserver == 0).all(|log| log.slots == 0)
                }
                other => panic!("{other:?}"),
            };
            while !is_gone(ask(&admin, Admin::Fragments { file })) {
                assert!(begun.elapsed() < Duration::from_secs(100), "the log does not go");
                std::thread::yield_now();
            }
        };
        scene.trouble.set(Trouble::BeforeLogRead(Box::new(go)));
        let found = read(&scene.file, at as u64, length);
        assert!(found == scene.bytes[at..at + length], "{at} {length}");
        assert!(matches!(*scene.trouble.0.lock().unwrap(), Trouble::None), "the log was looked at");
    }
}

#[test]
fn what_both_have_is_read_and_written_on_the_disk_when_the_ssd_fails() {
    let mut scene = Scene::new();
    *scene.full.0.lock().unwrap() = false;
    scene.file.sync(false).unwrap();
    assert_eq!((scene.log().used, scene.log().dirty), (1, 0));
    scene.trouble.set(Trouble::LogBroken);
    assert!(read(&scene.file, NEWER_AT as u64, NEWER) == scene.bytes[NEWER_AT..NEWER_AT + NEWER]);
    assert_eq!(write(&scene.file, NEWER_AT as u64, &[4; NEWER]), NEWER);
    scene.bytes[NEWER_AT..NEWER_AT + NEWER].fill(4);
    assert!(read(&scene.file, 0, STRIPE) == scene.bytes);
    scene.file.sync(false).unwrap();
    assert_eq!(scene.log().used, 0, "the log does not have it any more");
}

/// Who has it open goes on writing the lost object, which others could not read.
#[test]
fn a_lost_log_is_made_anew_when_nobody_uses_the_file() {
    let mut scene = Scene::new();
    let other = scene.world.client();
    let file = open_stub(&other, &scene.stub);
    let is_log = |path: &PathBuf| {
        let region: u32 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        path.starts_with(scene.world.root.join("s2")) && region >= MAX_REGIONS
    };
    let log = scene.world.objects().into_iter().find(is_log).unwrap();
    std::fs::remove_file(&log).unwrap();
    let repair = || match ask(&other, Admin::Check { repair: true }) {
        Reply::Findings { findings } => findings,
        reply => panic!("{reply:?}"),
    };
    let of_log = |findings: Vec<Finding>| findings.into_iter().find(|finding| finding.what.contains("lacks the log"));
    let finding = of_log(repair()).expect("a finding");
    assert!(!finding.repaired && finding.remedy.contains(&std::process::id().to_string()), "{finding:?}");
    // One client has the lost object open, the other one not. Each writes what the log may take, and reads both.
    for (at, writer) in [(2000, &scene.file), (3000, &file)] {
        if writer.write_at(FileOffset(at), &[IoSlice::new(&[3; 100])]).is_ok() {
            scene.bytes[at as usize..at as usize + 100].fill(3);
        }
    }
    for reader in [&scene.file, &file] {
        for at in [2000, 3000] {
            let mut found = [0xa5; 100];
            if let Ok(count) = reader.read_at(FileOffset(at), &mut [IoSliceMut::new(&mut found)]) {
                assert!(found[..count] == scene.bytes[at as usize..][..count], "{at}");
            }
        }
    }
    let Scene { world, client, stub, file: first, full, _broker, .. } = scene;
    *full.0.lock().unwrap() = false;
    drop((first, file));
    assert!(of_log(repair()).is_some_and(|finding| finding.repaired));
    assert!(of_log(repair()).is_none());
    let (_world, file) = (world, open_stub(&client, &stub));
    assert_eq!(write(&file, 2000, &[5; 100]), 100);
    assert_eq!(read(&open_stub(&other, &stub), 2000, 100), [5; 100]);
    file.sync(false).unwrap();
}

#[test]
fn a_file_without_logs_is_used_without_a_broker() {
    let world = World::with_fragments(4);
    let broker = world.broker();
    let patience = Duration::from_millis(300);
    let client = world.client_with(ClientOptions { patience, ..ClientOptions::default() });
    let (_stub, file) = world.create(&client, "f", uniform(STRIPE as u64, &[(0, STRIPE as u32)]));
    let mut bytes = vec![7; STRIPE];
    write(&file, 0, &bytes);
    drop(broker);
    // The first short one, for which a log would have been made.
    bytes[100..200].fill(9);
    assert_eq!(file.write_at(FileOffset(100), &[IoSlice::new(&[9; 100])]).unwrap(), 100);
    assert!(read(&file, 100, 100) == bytes[100..200] && read(&file, 0, STRIPE) == bytes);
    // A later broker has them made, for another.
    let _broker = world.broker();
    let other = world.client();
    let (_stub, again) = world.open(&other, "f", true);
    assert!(read(&again, 100, 100) == bytes[100..200]);
    let status = |client: &Client| match ask(client, Admin::Fragments { file: file.id() }) {
        Reply::FileFragments { servers, .. } => servers.len(),
        reply => panic!("{reply:?}"),
    };
    assert!(status(&other) > 0, "it has logs");
    bytes[300..400].fill(8);
    write(&again, 300, &[8; 100]);
    assert!(read(&file, 0, STRIPE) == bytes, "the first one looks there too");
}
