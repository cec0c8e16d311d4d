//! What a read and a write do in shared memory beside their system calls when nothing moves:
//!
//!     cargo bench -p stripewise-broker --bench protocol
//!
//! The lane, the gate, and the look for moves and fragments; of a write also the region's write counter and the size. The look for the region's
//! layout, which any striped file needs, is measured by itself and taken off. Floor: one compare-and-swap and one store, without which nobody could wait
//! for those inside. Medians in nanoseconds, a JSON object for each line.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::time::Instant;
use stripewise_layout::{Direction, FileId, Generation, Layout, RegionIndex, ServerId};
use stripewise_store::shared::control::ControlBlock;
use stripewise_store::shared::extent::Extent;
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};
use stripewise_store::shared::slots::{InFlight, Slots};

const CALLS: u32 = 200_000;
const ROUNDS: usize = 25;

fn median_ns(mut call: impl FnMut(u32)) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            (0..CALLS).for_each(&mut call);
            begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn main() {
    let memory = || tempfile::tempfile().expect("a temporary file").into();
    let control = ControlBlock::build(&memory(), FileId(1), [0; 16], 64 << 20).expect("a control block");
    let extent = Extent::build(&memory(), 1 << 40, 0).expect("an extent");
    let slots = Slots::build(&memory()).expect("slots");
    let layout = Layout::new((0..8).map(|server| (ServerId(server), 64 << 10))).expect("a layout");
    for region in 0..64 {
        control.regions().publish(FileId(1), RegionIndex(region), Generation(1), &layout).expect("a region");
    }
    let slot = ProcessSlot(5);
    slots.add_user(slot, Incarnation(1)).unwrap();
    let request = |direction, number: u32| {
        let region = RegionIndex(black_box(number) % 64);
        let lane = slots.occupy(slot, 0, InFlight { direction, first: region, last: region }).expect("a lane");
        black_box((control.gate().is_shut(), control.regions().get(region), control.notices().fragments()));
        if direction == Direction::Write {
            extent.begin_write(region);
            extent.end_write(region);
            extent.extend_to(u64::from(number));
        }
        lane.free();
    };
    let lookup_ns = median_ns(|number| {
        black_box(control.regions().get(RegionIndex(black_box(number) % 64)));
    });
    let word = AtomicU64::new(0);
    let floor = median_ns(|number| {
        let _ = word.compare_exchange(0, u64::from(black_box(number)) | 1, SeqCst, Relaxed);
        word.store(0, Release);
    });
    println!(r#"{{"name": "protocol.lookup", "value": {lookup_ns:.1}, "unit": "ns/op"}}"#);
    for (name, direction) in [("read", Direction::Read), ("write", Direction::Write)] {
        let value = median_ns(|number| request(direction, number)) - lookup_ns;
        let ratio = value / floor;
        println!(
            r#"{{"name": "protocol.{name}", "value": {value:.1}, "unit": "ns/op", "floor": {floor:.1}, "ratio": {ratio:.2}}}"#
        );
    }
}
