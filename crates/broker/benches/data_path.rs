//! Reads and writes of a file striped over 8 directories in memory, beside the bare system call on one file.
//!
//! `cargo bench -p stripewise-broker --bench data_path [-- START]`, where START is that of the lines wanted. Each line: nanoseconds per
//! call, medians of interleaved rounds; `ratio` is the striped bandwidth over the bare one, the median over pairs of neighbouring rounds.
//! `observe` is what it takes to note a request while somebody watches, beside a look at the clock alone. `status` is what `fstat` takes of a file with
//! 100,000 placed regions.

#[path = "../tests/striped/world.rs"]
#[allow(dead_code, reason = "the tests of this crate use the rest")]
mod world;

use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::time::Instant;
use stripewise_layout::{Direction, FileId, FileOffset, Generation, Layout, RegionIndex, RequestKind, ServerId};
use stripewise_store::shared::control::ControlBlock;
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};
use stripewise_store::shared::recent::{Noted, now_ms};
use stripewise_store::shared::slots::{InFlight, Slots};
use world::{Dice, World, uniform};

const SPAN: u64 = 128 << 20;
const ROUNDS: usize = 25;

/// Nanoseconds per call of `calls` calls.
fn time(calls: u64, mut call: impl FnMut(u64)) -> f64 {
    let begun = Instant::now();
    for number in 0..calls {
        call(number);
    }
    begun.elapsed().as_nanos() as f64 / calls as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What an observed request takes more than others: the look at the clock that it needs, and all of it.
fn observe() {
    let slots = Slots::build(&tempfile::tempfile().unwrap().into()).unwrap();
    let slot = ProcessSlot(5);
    slots.add_user(slot, Incarnation(1)).unwrap();
    let what = InFlight { direction: Direction::Read, first: RegionIndex(0), last: RegionIndex(0) };
    let lane = slots.occupy(slot, 0, what).unwrap();
    let (mut clock_ns, mut note_ns) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        clock_ns.push(time(100_000, |_| {
            std::hint::black_box(now_ms());
        }));
        note_ns.push(time(100_000, |number| {
            let (offset, kind) = (FileOffset(std::hint::black_box(number)), RequestKind::Read);
            lane.note(1, Noted { kind, offset, bytes: 4096, time_ms: now_ms() });
        }));
    }
    lane.free();
    println!("{:<28} {:>12.1} {:>12.1}", "observe", median(clock_ns), median(note_ns));
}

/// What the status of a large file takes; the region words are all there is to look at.
fn status() {
    let (file, regions) = (FileId(7), 100_000);
    let control = ControlBlock::build(&tempfile::tempfile().unwrap().into(), file, [1; 16], 64 << 20).unwrap();
    let layout = Layout::new((0..8).map(|server| (ServerId(server), 1 << 20))).unwrap();
    for region in (0..regions).map(RegionIndex) {
        control.regions().publish(file, region, Generation(1), &layout).unwrap();
    }
    let size_bytes = u64::from(regions) * (64 << 20);
    let of_all = || assert_eq!(std::hint::black_box(control.regions().placed_bytes(size_bytes)), size_bytes);
    println!("{:<28} {:>12} {:>12.0}", "status", "", median((0..ROUNDS).map(|_| time(10, |_| of_all())).collect()));
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    if "observe".starts_with(&filter) {
        observe();
    }
    if "status".starts_with(&filter) {
        status();
    }
    if filter == "observe" || filter == "status" {
        return;
    }
    let world = World::new(8);
    let _broker = world.broker();
    let client = world.client();
    println!("{:<28} {:>12} {:>12} {:>7}", "", "bare ns", "striped ns", "ratio");
    for stripe in [64u32 << 10, 1 << 20] {
        let stripes: Vec<(u16, u32)> = (0..8).map(|server| (server, stripe)).collect();
        let (_stub, file) = world.create_unnamed(&client, uniform(64 << 20, &stripes));
        let bare = std::fs::File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(world.path("bare"))
            .unwrap();
        let mut memory = vec![1u8; 4 << 20];
        for at in (0..SPAN).step_by(memory.len()) {
            world::write(&file, at, &memory);
            bare.write_all_at(&memory, at).unwrap();
        }
        for (name, size) in [("4KiB", 4u64 << 10), ("64KiB", 64 << 10), ("512KiB", 512 << 10), ("4MiB", 4 << 20)] {
            let offsets: Vec<u64> = {
                let mut dice = Dice(size);
                (0..1024).map(|_| dice.roll(SPAN / size) * size).collect()
            };
            let at = |number: u64| offsets[number as usize % offsets.len()];
            let calls = ((32 << 20) / size).clamp(8, 2000);
            let memory = &mut memory[..size as usize];
            for operation in ["read", "write"] {
                let label = format!("{operation}.{name}.stripe{}KiB", stripe >> 10);
                if !label.starts_with(&filter) {
                    continue;
                }
                let (mut bare_ns, mut striped_ns) = (Vec::new(), Vec::new());
                for _ in 0..ROUNDS {
                    if operation == "read" {
                        bare_ns.push(time(calls, |number| bare.read_exact_at(memory, at(number)).unwrap()));
                        striped_ns.push(time(calls, |number| {
                            let read = file.read_at(FileOffset(at(number)), &mut [IoSliceMut::new(memory)]).unwrap();
                            assert_eq!(read as u64, size);
                        }));
                    } else {
                        bare_ns.push(time(calls, |number| bare.write_all_at(memory, at(number)).unwrap()));
                        striped_ns.push(time(calls, |number| {
                            let written = file.write_at(FileOffset(at(number)), &[IoSlice::new(memory)]).unwrap();
                            assert_eq!(written as u64, size);
                        }));
                    }
                }
                let ratio = median(bare_ns.iter().zip(&striped_ns).map(|(bare, striped)| bare / striped).collect());
                let (bare_ns, striped_ns) = (median(bare_ns), median(striped_ns));
                println!("{label:<28} {bare_ns:>12.0} {striped_ns:>12.0} {ratio:>7.2}");
            }
        }
    }
}
