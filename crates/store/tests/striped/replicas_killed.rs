//! Brokers and writers that die while replicas are made and forgotten.

use crate::moves::{REGION, check, scale};
use crate::moves_killed::{BLOCK, BLOCKS, WRITERS, check_blocks, count_file, counted, impatient};
use crate::replicas::{never_idle, read_without, sync, totals, wanted};
use crate::world::{Dice, World, read, uniform, wait_for_line, write};
use std::collections::HashSet;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use stripewise_layout::FileId;
use stripewise_store::broker::BrokerOptions;
use stripewise_store::client::Client;
use stripewise_store::protocol::{Admin, Reply, Request};

/// A broker that is killed at a step of a sync (`move`) or of the forgetting of replicas (`replicas`).
pub(crate) fn serve_and_die(world: &World, arguments: &[String]) -> ! {
    let (kind, step): (String, usize) = (format!("{}: ", arguments[0]), arguments[1].parse().unwrap());
    let count = AtomicUsize::new(0);
    let kill_at = move |name: &'static str| {
        if name.starts_with(&kind) && count.fetch_add(1, Ordering::SeqCst) == step {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    };
    let broker = world.broker_with(BrokerOptions { steps: Some(Arc::new(kill_at)), ..never_idle() });
    println!("serving");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    broker.stop();
    std::process::exit(0);
}

/// Syncs the file and sees that every byte is the same at its places, on the first two servers, and in its replicas, on the others; and that
/// nothing but these is left.
fn both_are_whole(world: &World, client: &Client, file: FileId, regions: u32, length: usize, context: &str) -> Vec<u8> {
    let all = u64::from(regions);
    assert_eq!(sync(client, file), (all, all), "{context}");
    let (copies, places) = (read_without(world, &[0, 1], "f", length), read_without(world, &[2, 3], "f", length));
    let differs = copies.iter().zip(&places).position(|(copy, place)| copy != place);
    assert_eq!((differs, copies.len()), (None, places.len()), "{context}");
    let begun = std::time::Instant::now();
    let expected = 4 * regions as usize;
    while world.objects().len() != expected && begun.elapsed().as_secs() < 20 {
        std::thread::yield_now();
    }
    assert_eq!(world.objects().len(), expected, "{context}");
    assert_eq!(check(client), [], "{context}");
    let Reply::Usage { servers } = crate::moves::ask(client, Admin::Usage) else { panic!("no usage") };
    assert_eq!(servers.iter().map(|server| server.objects).sum::<u64>(), expected as u64, "{context}");
    assert_eq!(servers.iter().map(|server| server.promised_bytes).sum::<u64>(), 2 * all * REGION, "{context}");
    places
}

const PLACE: [(u16, u32); 2] = [(0, 4096), (1, 4096)];
const REPLICA: [(u16, u32); 2] = [(2, 1000), (3, 3000)];

/// `STRIPED_STEPS` makes it long.
#[test]
fn a_broker_killed_at_any_step_of_a_sync_or_a_first_write_loses_no_byte_and_leaves_nothing() {
    let steps = scale("STRIPED_STEPS", 24);
    let kinds = [("move", steps), ("replicas", steps / 2)];
    for (kind, step) in kinds.into_iter().flat_map(|(kind, steps)| (0..steps).map(move |step| (kind, step))) {
        let context = format!("{kind}, step {step}");
        let world = World::new(4);
        let mut dying = world.spawn("dying-syncer", &[kind.to_owned(), step.to_string()]);
        wait_for_line(&mut dying, "serving");
        // Dropped after the client, which says good-bye.
        let successor = OnceLock::new();
        let client = world.client();
        let (_stub, file) = world.create(&client, "f", uniform(REGION, &PLACE));
        let mut model: Vec<u8> = (0..3 * REGION).map(|at| (at * 7 % 251) as u8).collect();
        write(&file, 0, &model);
        let id = file.id();
        crate::moves::ask(&client, Admin::SetReplicas { file: id, wanted: vec![wanted(0, 3, &REPLICA)] });
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Writes and reads go on all the while, from one broker to the next, each writer in its own half of the regions: what one has had
            // forgotten the other writes without asking.
            let (file, over, context) = (&file, &over, &context);
            let write_half = move |half: u64, mut model: Vec<u8>| {
                let mut dice = Dice(step * 2 + half);
                let any = |dice: &mut Dice| dice.roll(3) * REGION + half * REGION / 2 + dice.roll(REGION / 2 - 5000);
                while !over.load(Ordering::SeqCst) {
                    let (at, length) = (any(&mut dice), 1 + dice.roll(5000));
                    let bytes: Vec<u8> = (0..length).map(|_| dice.roll(256) as u8).collect();
                    write(file, at, &bytes);
                    model[at as usize..(at + length) as usize].copy_from_slice(&bytes);
                    for _ in 0..dice.roll(60) {
                        let at = any(&mut dice);
                        let found = read(file, at, 5000);
                        assert!(found == model[at as usize..at as usize + 5000], "{context}, at {at}");
                    }
                }
                model
            };
            let writers = [0, 1].map(|half| {
                let model = model.clone();
                scope.spawn(move || write_half(half, model))
            });
            let killed = loop {
                // The answer may be lost with the broker.
                let request = Request::Admin(Admin::SyncReplicas { file: id });
                let _ = impatient(&world).and_then(|client| client.request(&request, &[]));
                if let Some(status) = dying.try_wait().unwrap() {
                    break status;
                }
                assert!(!writers.iter().any(|writer| writer.is_finished()), "{context}");
            };
            assert_eq!(killed.signal(), Some(9), "{context}");
            assert!(successor.set(world.broker_with(never_idle())).is_ok());
            // Some more writes and syncs by the successor.
            for _ in 0..3 {
                sync(&client, id);
            }
            over.store(true, Ordering::SeqCst);
            for (half, writer) in writers.into_iter().enumerate() {
                let written = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                for region in 0..3 {
                    let from = region * REGION as usize + half * REGION as usize / 2;
                    let own = from..from + REGION as usize / 2;
                    model[own.clone()].copy_from_slice(&written[own]);
                }
            }
        });
        assert!(read(&file, 0, model.len() + 1) == model, "{context}");
        assert!(both_are_whole(&world, &client, id, 3, model.len() + 1, &context) == model, "{context}");
    }
}

/// `STRIPED_KILLS` makes it long.
#[test]
fn writers_killed_while_syncs_run_lose_nothing_that_was_acknowledged() {
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let world = World::new(4);
    let _broker = world.broker_with(never_idle());
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &PLACE));
    let length = BLOCKS * WRITERS * BLOCK;
    write(&file, 0, &vec![0; length as usize]);
    let regions = length.div_ceil(REGION) as u32;
    crate::moves::ask(&client, Admin::SetReplicas { file: file.id(), wanted: vec![wanted(0, regions, &REPLICA)] });
    let counts: Vec<_> = (0..WRITERS).map(|writer| count_file(&world, writer)).collect();
    let spawn = |writer: u64, dice: &mut Dice| -> Child {
        // One number is left out: it may stand in a block that its writer died in.
        let first = counted(&counts[writer as usize], BLOCKS) + 2;
        world.spawn("counting-writer", &[writer.to_string(), first.to_string(), dice.roll(1 << 30).to_string()])
    };
    let mut unacknowledged = vec![HashSet::new(); WRITERS as usize];
    let mut writers: Vec<Child> = (0..WRITERS).map(|writer| spawn(writer, &mut dice)).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (client, id, over) = (&client, file.id(), &over);
        let syncing = scope.spawn(move || {
            while !over.load(Ordering::SeqCst) {
                sync(client, id);
            }
        });
        for kill in 0..scale("STRIPED_KILLS", 20) {
            let victim = dice.roll(WRITERS);
            let counts = &counts[victim as usize];
            let until = counted(counts, BLOCKS) + 3 + dice.roll(60);
            while counted(counts, BLOCKS) < until && !syncing.is_finished() {
                std::thread::yield_now();
            }
            let writer = &mut writers[victim as usize];
            writer.kill().unwrap();
            assert_eq!(writer.wait().unwrap().signal(), Some(9));
            let context = format!("seed {seed}, kill {kill}");
            check_blocks(&file, counts, &mut unacknowledged[victim as usize], victim, &context);
            writers[victim as usize] = spawn(victim, &mut dice);
        }
        over.store(true, Ordering::SeqCst);
        syncing.join().unwrap();
    });
    for (number, writer) in (0..).zip(&mut writers) {
        writer.kill().unwrap();
        writer.wait().unwrap();
        let unacknowledged = &mut unacknowledged[number as usize];
        check_blocks(&file, &counts[number as usize], unacknowledged, number, &format!("seed {seed}, at the end"));
    }
    both_are_whole(&world, &client, file.id(), regions, length as usize, &format!("seed {seed}"));
}

/// `STRIPED_KILLS` makes it long.
#[test]
fn everybody_killed_at_once_while_syncs_run_loses_nothing_that_was_acknowledged() {
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let world = World::new(4);
    let length = BLOCKS * WRITERS * BLOCK;
    let regions = length.div_ceil(REGION) as u32;
    {
        let _broker = world.broker_with(never_idle());
        let client = world.client();
        let (_stub, file) = world.create(&client, "f", uniform(REGION, &PLACE));
        write(&file, 0, &vec![0; length as usize]);
        crate::moves::ask(&client, Admin::SetReplicas { file: file.id(), wanted: vec![wanted(0, regions, &REPLICA)] });
    }
    let counts: Vec<_> = (0..WRITERS).map(|writer| count_file(&world, writer)).collect();
    let mut unacknowledged = vec![HashSet::new(); WRITERS as usize];
    for kill in 0..scale("STRIPED_KILLS", 40).div_ceil(5) {
        let mut killed = vec![world.spawn_broker()];
        for (writer, counts) in (0..).zip(&counts) {
            let first = counted(counts, BLOCKS) + 2;
            let arguments = [writer, first, dice.roll(1 << 30)].map(|number: u64| number.to_string());
            killed.push(world.spawn("counting-writer", &arguments));
        }
        let until = counted(&counts[0], BLOCKS) + 10 + dice.roll(200);
        let watcher = impatient(&world).unwrap();
        let (_stub, file) = world.open(&watcher, "f", false);
        let id = file.id();
        while counted(&counts[0], BLOCKS) < until {
            if totals(&watcher, id).2 == 0 {
                crate::moves::ask(&watcher, Admin::SyncReplicas { file: id });
            }
        }
        // The broker first or last.
        killed.rotate_left(usize::from(kill % 2 == 1));
        killed.iter_mut().for_each(|child| child.kill().unwrap());
        killed.iter_mut().for_each(|child| assert_eq!(child.wait().unwrap().signal(), Some(9)));
        let _broker = world.broker_with(never_idle());
        let context = format!("seed {seed}, kill {kill}");
        for (writer, counts) in (0..).zip(&counts) {
            check_blocks(&file, counts, &mut unacknowledged[writer as usize], writer, &context);
        }
        both_are_whole(&world, &world.client(), id, regions, length as usize, &context);
        drop(file);
        drop(watcher);
    }
}
