//! A redirected program and programs on a mount use one file while its regions move and the mount's process is killed.
//!
//! A round has two parts. In the first one side after the other does what may concern the whole file. In the second two threads on the mount and the
//! redirected program use pieces of their own at the same time, and the kill comes while they do.
//!
//! `STRIPED_MOUNT_ROUNDS` is the number of rounds, each of which ends in a kill; `STRIPEWISE_SEED` repeats a run.

use crate::bed::{DATA, Mounted, POINT, place};
use crate::driver::Driver;
use crate::support::Place;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use std::fs::{File, Metadata, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const OPERATIONS: usize = 80;
/// Of the threads on the mount before it is killed.
const RACED: usize = 40;
/// Of bytes that one writer has for itself; the next belong to the next. A piece reaches from a page into another, and from a region too.
const SLICE: usize = 50_000;
const WRITERS: usize = 3;
/// So that several regions of 1 MiB are in use.
const MAX_SIZE: usize = 5 << 19;
const MAX_PIECE: usize = 100_000;
const LAYOUTS: [&str; 3] = ["<64KiB,64KiB>", "<0B,128KiB>", "<192KiB,0B>"];

/// Reads and writes one file from one side.
trait Side {
    fn write(&mut self, offset: usize, bytes: &[u8]);
    fn append(&mut self, bytes: &[u8]);
    fn read(&mut self, offset: usize, length: usize) -> Vec<u8>;
    fn truncate(&mut self, size: usize);
    fn size(&mut self) -> usize;
    fn sync(&mut self);
}

struct OnMount {
    file: File,
    appending: File,
}

impl OnMount {
    fn open(mounted: &Mounted) -> Self {
        let open = |options: &mut OpenOptions| options.open(mounted.path("file")).unwrap();
        Self { file: open(OpenOptions::new().read(true).write(true)), appending: open(OpenOptions::new().append(true)) }
    }
}

impl Side for OnMount {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.file.write_all_at(bytes, offset as u64).unwrap();
    }

    fn append(&mut self, bytes: &[u8]) {
        self.appending.write_all(bytes).unwrap();
    }

    fn read(&mut self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut done = 0;
        while let read @ 1.. = self.file.read_at(&mut bytes[done..], (offset + done) as u64).unwrap() {
            done += read;
        }
        bytes.truncate(done);
        bytes
    }

    fn truncate(&mut self, size: usize) {
        self.file.set_len(size as u64).unwrap();
    }

    fn size(&mut self) -> usize {
        self.file.metadata().unwrap().len() as usize
    }

    fn sync(&mut self) {
        self.file.sync_all().unwrap();
    }
}

impl Side for Driver {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let written = self.ask(&format!("os.pwrite(f, bytes.fromhex('{}'), {offset})", hex(bytes)));
        assert_eq!(written, bytes.len().to_string());
    }

    fn append(&mut self, bytes: &[u8]) {
        let written = self.ask(&format!("os.write(a, bytes.fromhex('{}'))", hex(bytes)));
        assert_eq!(written, bytes.len().to_string());
    }

    fn read(&mut self, offset: usize, length: usize) -> Vec<u8> {
        let read = self.ask(&format!("os.pread(f, {length}, {offset}).hex()"));
        let digit = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
        read.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }

    fn truncate(&mut self, size: usize) {
        assert_eq!(self.ask(&format!("os.ftruncate(f, {size})")), "None");
    }

    fn size(&mut self) -> usize {
        self.ask("os.fstat(f).st_size").parse().unwrap()
    }

    fn sync(&mut self) {
        assert_eq!(self.ask("os.fsync(f)"), "None");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One random operation on a side, and on the vector that the file has to be.
fn step(random: &mut StdRng, side: &mut dyn Side, model: &mut Vec<u8>) {
    let offset = random.random_range(0..MAX_SIZE - MAX_PIECE);
    let mut bytes = vec![0; random.random_range(1..MAX_PIECE)];
    match random.random_range(0..10) {
        0..4 => {
            random.fill_bytes(&mut bytes);
            side.write(offset, &bytes);
            model.resize(model.len().max(offset + bytes.len()), 0);
            model[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        4 if model.len() + bytes.len() < MAX_SIZE => {
            random.fill_bytes(&mut bytes);
            side.append(&bytes);
            model.extend(&bytes);
        }
        5 => {
            side.truncate(offset);
            model.resize(offset, 0);
        }
        6 => side.sync(),
        7 => assert_eq!(side.size(), model.len()),
        _ => {
            let until = model.len().min(offset + bytes.len());
            let expected = model.get(offset..until).unwrap_or_default();
            assert!(side.read(offset, bytes.len()) == expected, "{} bytes at {offset}", bytes.len());
        }
    }
}

/// A slice of a writer's own, and bytes for a part of it.
fn piece_of(writer: usize, random: &mut StdRng) -> (usize, Vec<u8>) {
    let slice = random.random_range(0..MAX_SIZE / SLICE / WRITERS) * WRITERS + writer;
    let start = random.random_range(0..SLICE);
    let mut bytes = vec![0; random.random_range(1..=SLICE - start)];
    random.fill_bytes(&mut bytes);
    (slice * SLICE + start, bytes)
}

/// What a thread knows when the mount has gone from under it.
struct Left {
    model: Vec<u8>,
    /// A write that failed: each of its bytes may be there or not.
    failed: Option<(usize, Vec<u8>)>,
    errno: Option<i32>,
}

/// Writes and reads its own slices by the mount until a call fails.
fn use_until_killed(file: &File, writer: usize, mut model: Vec<u8>, seed: u64, done: &AtomicUsize) -> Left {
    let mut random = StdRng::seed_from_u64(seed);
    loop {
        let (offset, bytes) = piece_of(writer, &mut random);
        if let Err(error) = file.write_all_at(&bytes, offset as u64) {
            return Left { model, failed: Some((offset, bytes)), errno: error.raw_os_error() };
        }
        model[offset..offset + bytes.len()].copy_from_slice(&bytes);
        let start = offset / SLICE * SLICE;
        let mut seen = vec![0; SLICE];
        let used = file.read_exact_at(&mut seen, start as u64).and_then(|()| match random.random_range(0..8) {
            0 => file.sync_all(),
            _ => Ok(()),
        });
        if let Err(error) = used {
            return Left { model, failed: None, errno: error.raw_os_error() };
        }
        assert!(seen == model[start..start + SLICE], "the slice at {start} of writer {writer}");
        done.fetch_add(1, Ordering::AcqRel);
    }
}

/// Both sides at once, until the mount is killed; the model is what the file holds then.
fn race(mounted: Mounted, driver: &mut Driver, model: &mut Vec<u8>, random: &mut StdRng) {
    // Of one size from here on.
    driver.write(MAX_SIZE - 1, b"e");
    model.resize(MAX_SIZE, 0);
    model[MAX_SIZE - 1] = b'e';
    let (path, done) = (mounted.path("file"), AtomicUsize::new(0));
    let left: Vec<Left> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WRITERS - 1)
            .map(|writer| {
                // Before the others begin, who may be through before this thread runs.
                let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
                let (done, model, seed) = (&done, model.clone(), random.random());
                scope.spawn(move || use_until_killed(&file, writer, model, seed, done))
            })
            .collect();
        while done.load(Ordering::Acquire) < RACED && threads.iter().all(|thread| !thread.is_finished()) {
            let (offset, bytes) = piece_of(WRITERS - 1, random);
            driver.write(offset, &bytes);
            model[offset..offset + bytes.len()].copy_from_slice(&bytes);
            let start = offset / SLICE * SLICE;
            assert!(
                driver.read(start, SLICE) == model[start..start + SLICE],
                "the redirected program's slice at {start}"
            );
        }
        mounted.kill();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(done.load(Ordering::Acquire) >= RACED, "{:?}", left.iter().map(|left| left.errno).collect::<Vec<_>>());
    for (slice, bytes) in model.chunks_mut(SLICE).enumerate() {
        if let Some(Left { model, .. }) =
            left.get(slice % WRITERS).filter(|_| slice < MAX_SIZE / SLICE / WRITERS * WRITERS)
        {
            bytes.copy_from_slice(&model[slice * SLICE..slice * SLICE + bytes.len()]);
        }
    }
    let seen = driver.read(0, MAX_SIZE);
    for Left { failed, errno, .. } in left {
        assert!(matches!(errno, Some(libc::ECONNABORTED | libc::ENOTCONN)), "{errno:?}");
        for (place, byte) in failed.into_iter().flat_map(|(offset, bytes)| (offset..).zip(bytes)) {
            if seen[place] == byte {
                model[place] = byte;
            }
        }
    }
    assert!(seen == *model, "after the kill");
}

/// A program whose working directory is the mount.
struct Inside(Child);

impl Inside {
    fn start(mounted: &Mounted) -> Self {
        let mut command = Command::new("cat");
        Self(command.current_dir(mounted.path("")).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// What it finds there.
    fn find(&self, name: &str) -> std::io::Result<Metadata> {
        std::fs::metadata(format!("/proc/{}/cwd/{name}", self.0.id()))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Has the file's regions move from layout to layout until `is_over`.
fn move_regions(place: &Place, is_over: &AtomicBool) -> usize {
    let mut moves = 0;
    while !is_over.load(Ordering::Acquire) {
        let layout = LAYOUTS[moves % LAYOUTS.len()];
        // Refused while another broker starts; what matters is what becomes of the bytes.
        let said = place.say(&["restripe", "data/file", "--layout", layout]);
        moves += usize::from(said.status == 0);
    }
    moves
}

#[test]
fn a_redirected_program_and_a_mount_agree_byte_by_byte_while_regions_move_and_mounts_are_killed() {
    let Some(place) = place() else { return };
    let number = |name: &str, usual: u64| std::env::var(name).map_or(usual, |value| value.parse().unwrap());
    let rounds = number("STRIPED_MOUNT_ROUNDS", 3);
    let seed = number("STRIPEWISE_SEED", std::process::id().into());
    println!("STRIPEWISE_SEED={seed} STRIPED_MOUNT_ROUNDS={rounds}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut driver = Driver::start(&place, &[]);
    let opened = "globals().update(f=os.open('data/file', os.O_RDWR | os.O_CREAT), a=os.open('data/file', os.O_WRONLY | os.O_APPEND))";
    assert_eq!(driver.ask(opened), "None");
    let (mut model, mut inside) = (Vec::new(), None::<Inside>);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let moves = scope.spawn(|| move_regions(&place, &is_over));
        let _over = Over(&is_over);
        for round in 0..rounds {
            let mut command = place.command(&["mount", DATA, "--at", POINT]);
            // A call that fails has its reason there, not in its errno.
            command.env("STRIPEWISE_LOG", "warn");
            let mounted = Mounted::start_by(command, place.path(POINT));
            // The one of the round before has held the dead mount.
            let now_inside = Inside::start(&mounted);
            assert!(now_inside.find("file").unwrap().len() == model.len() as u64);
            inside = Some(now_inside);
            let mut on_mount = OnMount::open(&mounted);
            for _ in 0..OPERATIONS {
                let side: &mut dyn Side = if random.random() { &mut on_mount } else { &mut driver };
                step(&mut random, side, &mut model);
            }
            assert!(on_mount.read(0, MAX_SIZE) == model && driver.read(0, MAX_SIZE) == model, "round {round}");
            race(mounted, &mut driver, &mut model, &mut random);
            for dead in [on_mount.file.metadata(), inside.as_ref().unwrap().find("file")] {
                assert_eq!(dead.unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
            }
        }
        is_over.store(true, Ordering::Release);
        assert!(moves.join().unwrap() > 0, "something moved");
    });
    drop(inside);
    let mounted = Mounted::start(&place, &[]);
    assert!(std::fs::read(mounted.path("file")).unwrap() == model);
    mounted.interrupt();
    assert!(driver.end().status.success());
    let checked = place.say(&["check"]);
    assert_eq!(checked.status, 0, "{}{}", checked.out, checked.err);
}

/// Ends the moves whatever becomes of the test.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
