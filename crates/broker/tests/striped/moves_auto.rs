//! Moves at the bandwidth `auto`, on block devices whose statistics the kernel keeps.

use crate::every_call::hooked_client;
use crate::hooked::{Call, Hook, register};
use crate::mounts::{Kind, Mounts};
use crate::moves::{all_done, ask, order, start_moves, wait_for};
use crate::world::{World, read, uniform, write};
use rustix::fs::{Mode, OFlags};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use stripewise_broker::BrokerOptions;
use stripewise_layout::{FileId, RegionIndex, ServerId};
use stripewise_store::client::Client;
use stripewise_store::protocol::{Admin, MigrateBandwidth, MoveControl, RequestCost};
use stripewise_store::server::ServerError;

const REGION: u64 = 1 << 20;
const REGIONS: u32 = 10;

fn bytes() -> Vec<u8> {
    (0..u64::from(REGIONS) * REGION).map(|at| (at * 7 % 251) as u8).collect()
}

/// Moves regions from `first` on.
fn move_from(client: &Client, file: FileId, first: u32, to: u16, bandwidth: MigrateBandwidth) {
    ask(client, Admin::ControlMoves(MoveControl::Bandwidth(bandwidth)));
    all_done(&wait_for(client, start_moves(client, vec![order(file, first, REGIONS - 1, &[(to, 65536)])])));
}

/// Two servers on devices of their own, of 16 MiB each.
fn world_on_devices() -> Option<(World, Mounts)> {
    let (world, mounts) = Mounts::world(2, &[("s0", Kind::Ext4), ("s1", Kind::Ext4)])?;
    ["s0", "s1"].iter().for_each(|name| mounts.give_space(name));
    Some((world, mounts))
}

/// Holds reads up as long as it is told to.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    changed: Condvar,
    held: AtomicU64,
}

impl Hook for Arc<Gate> {
    fn before(&self, _: &str, call: Call<'_>) -> Result<usize, ServerError> {
        if let Call::Read(..) = call {
            let mut is_shut = self.is_shut.lock().unwrap();
            if *is_shut {
                self.held.fetch_add(1, Ordering::SeqCst);
            }
            while *is_shut {
                is_shut = self.changed.wait(is_shut).unwrap();
            }
        }
        Ok(usize::MAX)
    }
}

/// Lets those go on that wait, also when the test fails.
struct Opening<'g>(&'g Gate);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        *self.0.is_shut.lock().unwrap() = false;
        self.0.changed.notify_all();
    }
}

/// Every device counted as busy as long as any program was inside the file.
#[test]
fn a_program_that_waits_inside_its_file_holds_up_no_move() {
    for on_devices in [false, true] {
        let (world, _mounts) = match on_devices {
            false => (World::new(2), None),
            true => match world_on_devices() {
                Some((world, mounts)) => (world, Some(mounts)),
                None => return,
            },
        };
        let gate = Arc::new(Gate::default());
        register(&world.root, Arc::new(Arc::clone(&gate)));
        let _broker = world.broker();
        let (client, mover) = (world.client_with(hooked_client()), world.client());
        let (_stub, file) = world.create(&client, "file", uniform(REGION, &[(0, 65536)]));
        write(&file, 0, &bytes());
        file.sync(false).unwrap();
        *gate.is_shut.lock().unwrap() = true;
        std::thread::scope(|scope| {
            let opening = Opening(&gate);
            let reader = scope.spawn(|| read(&file, 100, 1000));
            while gate.held.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            // Its own region would be freed at its old place when it is gone.
            move_from(&mover, file.id(), 1, 1, MigrateBandwidth::Auto);
            assert!(!reader.is_finished(), "it was inside all the time");
            drop(opening);
            assert_eq!(reader.join().unwrap(), bytes()[100..1100]);
        });
        assert_eq!(read(&file, 0, bytes().len()), bytes());
    }
}

/// Reads of a file past the page cache by several threads, counted, until it is dropped.
struct Load {
    ends: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn on(directory: &Path) -> Self {
        const THREADS: usize = 8;
        const BLOCKS: usize = 4;
        const BLOCK: usize = 256 << 10;
        let path = directory.join("load");
        std::fs::write(&path, vec![1; BLOCKS * BLOCK]).unwrap();
        let (ends, reads): (Arc<AtomicBool>, Arc<AtomicU64>) = Default::default();
        let begin = Arc::new(Barrier::new(THREADS + 1));
        let reader = || {
            let (ends, reads, begin) = (Arc::clone(&ends), Arc::clone(&reads), Arc::clone(&begin));
            let flags = OFlags::RDONLY | OFlags::DIRECT;
            let file = std::fs::File::from(rustix::fs::open(&path, flags, Mode::empty()).unwrap());
            file.sync_all().unwrap();
            std::thread::spawn(move || {
                let mut memory = vec![0; 2 * BLOCK];
                let aligned = memory.as_ptr().align_offset(4096);
                begin.wait();
                for block in (0..BLOCKS as u64).cycle() {
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                    file.read_exact_at(&mut memory[aligned..][..BLOCK], block * BLOCK as u64).unwrap();
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads = (0..THREADS).map(|_| reader()).collect();
        begin.wait();
        Self { ends, reads, threads }
    }

    fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// The load is no managed file's: what counts is the device.
#[test]
fn moves_leave_a_busy_device_to_programs_and_end_all_the_same() {
    let Some((world, _mounts)) = world_on_devices() else { return };
    // Slower than a piece here is: all that it takes is paused for.
    let slow = Some(RequestCost { startup_ns: 50_000_000, kib_ns: 50_000 });
    let (read_costs, write_costs) = (vec![slow; 2], vec![slow; 2]);
    let _broker = world.broker_with(BrokerOptions { read_costs, write_costs, ..BrokerOptions::default() });
    let client = world.client();
    let (_stub, file) = world.create(&client, "file", uniform(REGION, &[(0, 65536)]));
    write(&file, 0, &bytes());
    file.sync(false).unwrap();
    let load = Load::on(&world.root.join("s1"));
    let reads_while_moved = |to, bandwidth| {
        let before = load.reads();
        move_from(&client, file.id(), 0, to, bandwidth);
        load.reads() - before
    };
    // Counts of what was done meanwhile: on a busy machine any one may be far off.
    let mut pairs = (0..5).map(|_| {
        let beside_auto = reads_while_moved(1, MigrateBandwidth::Auto);
        let beside_unlimited = reads_while_moved(0, MigrateBandwidth::Unlimited);
        println!("{beside_auto} reads beside moves at auto, {beside_unlimited} beside unlimited ones");
        (beside_auto, beside_unlimited)
    });
    assert!(pairs.any(|(beside_auto, beside_unlimited)| 2 * beside_auto > 3 * beside_unlimited));
    drop(load);
    move_from(&client, file.id(), 0, 1, MigrateBandwidth::Auto);
    assert_eq!(file.region_layout(RegionIndex(0)).unwrap(), [(ServerId(1), 65536)]);
    assert_eq!(read(&file, 0, bytes().len()), bytes());
}
