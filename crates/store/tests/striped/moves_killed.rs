//! Brokers and writers that die, or stop, while regions move.

use crate::moves::{REGION, any_layout, ask, check, order, scale, start_moves, status, wait_for, wait_until};
use crate::watched::watched;
use crate::world::{Dice, World, read, succeed, uniform, wait_for_line, write};
use std::collections::HashSet;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use stripewise_layout::{RegionIndex, ServerId};
use stripewise_store::broker::BrokerOptions;
use stripewise_store::client::{Client, ClientError, ClientOptions};
use stripewise_store::file::StripedFile;
use stripewise_store::protocol::{Admin, MoveState, Reply, Request};
use stripewise_store::server::ServerError;

/// A broker that is killed at a step of a move.
pub(crate) fn serve_and_die(world: &World, arguments: &[String]) -> ! {
    let step: usize = arguments[0].parse().unwrap();
    let count = AtomicUsize::new(0);
    let kill_at = move |name: &'static str| {
        if name.starts_with("move: ") && count.fetch_add(1, Ordering::SeqCst) == step {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    };
    let broker = world.broker_with(BrokerOptions { steps: Some(Arc::new(kill_at)), ..BrokerOptions::default() });
    println!("serving");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    broker.stop();
    std::process::exit(0);
}

/// A client that does not wait for a broker that is gone.
pub(crate) fn impatient(world: &World) -> Result<Client, ClientError> {
    let (patience, connect_patience) = (Duration::ZERO, Duration::ZERO);
    Client::connect(&world.root.join("state"), ClientOptions { patience, connect_patience, ..ClientOptions::default() })
}

/// Objects of the file and promises of the servers are those of the regions placed.
pub(crate) fn nothing_is_left_over(world: &World, client: &Client, file: &StripedFile, regions: u32, context: &str) {
    wait_until(client, |moves| moves.iter().all(|status| status.state.is_final()).then_some(()));
    assert_eq!(check(client), [], "{context}");
    let placed = |region| file.region_layout(RegionIndex(region)).map_or(0, |layout| layout.len());
    let expected: usize = (0..regions).map(placed).sum();
    // What is freed by a successor waits for those inside.
    let begun = std::time::Instant::now();
    while world.objects().len() != expected && begun.elapsed().as_secs() < 20 {
        std::thread::yield_now();
    }
    assert_eq!(world.objects().len(), expected, "{context}");
    let Reply::Usage { servers } = ask(client, Admin::Usage) else { panic!("no usage") };
    assert_eq!(servers.iter().map(|server| server.objects).sum::<u64>(), expected as u64, "{context}");
    let bytes: u64 = servers.iter().map(|server| server.promised_bytes).sum();
    assert_eq!(bytes, u64::from(regions) * REGION, "{context}");
}

#[test]
fn a_broker_killed_at_any_step_of_a_move_loses_no_byte_and_leaves_nothing() {
    let mut died = 0;
    let first = scale("STRIPED_FIRST_STEP", 0) as usize;
    for step in first.. {
        let context = format!("step {step}");
        let world = World::new(4);
        let mut dying = world.spawn("dying-mover", &[step.to_string()]);
        wait_for_line(&mut dying, "serving");
        // Dropped after the client, which says good-bye.
        let successor = std::sync::OnceLock::new();
        let client = world.client();
        let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
        let mut model: Vec<u8> = (0..3 * REGION).map(|at| (at * 7 % 251) as u8).collect();
        write(&file, 0, &model);
        let over = AtomicBool::new(false);
        let orders = vec![order(file.id(), 0, 0, &[(2, 1000), (3, 3000)]), order(file.id(), 1, 1, &[(3, 512)])];
        std::thread::scope(|scope| {
            // Writes and reads go on all the while, from one broker to the next.
            let writer = scope.spawn(|| {
                let mut dice = Dice(step as u64);
                while !over.load(Ordering::SeqCst) {
                    let (at, length) = (dice.roll(3 * REGION - 5000), 1 + dice.roll(5000));
                    let bytes: Vec<u8> = (0..length).map(|_| dice.roll(256) as u8).collect();
                    write(&file, at, &bytes);
                    model[at as usize..(at + length) as usize].copy_from_slice(&bytes);
                    let at = dice.roll(3 * REGION - 5000);
                    let found = read(&file, at, 5000);
                    assert!(found == model[at as usize..at as usize + 5000], "{context}, at {at}");
                }
            });
            // The answer may be lost with the broker.
            let _ = impatient(&world).unwrap().request(&Request::Admin(Admin::Move { orders: orders.clone() }), &[]);
            let status = loop {
                if let Some(status) = dying.try_wait().unwrap() {
                    break Some(status);
                }
                let asked = impatient(&world)
                    .and_then(|client| client.request(&Request::Admin(Admin::Moves { after: None }), &[]));
                if let Ok((Reply::Moves { moves, .. }, _)) = asked
                    && moves.len() == 2
                    && moves.iter().all(|status| status.state.is_final())
                {
                    break None;
                }
            };
            if let Some(status) = status {
                assert_eq!(status.signal(), Some(9), "{context}");
                died += 1;
            } else {
                drop(dying.stdin.take());
                assert!(dying.wait().unwrap().success());
            }
            assert!(successor.set(world.broker()).is_ok());
            // Both regions are whole at one place; ordered again, they come to the other.
            crate::moves::all_done(&wait_for(&client, start_moves(&client, orders)));
            over.store(true, Ordering::SeqCst);
            if let Err(panic) = writer.join() {
                std::panic::resume_unwind(panic);
            }
            nothing_is_left_over(&world, &client, &file, 3, &context);
        });
        assert_eq!(file.region_layout(RegionIndex(1)).unwrap(), [(ServerId(3), 512)]);
        assert!(read(&file, 0, model.len() + 1) == model, "{context}");
        if died < step - first + 1 {
            assert!(died >= 20 || first > 0, "{died} steps");
            break;
        }
    }
}

pub(crate) const BLOCK: u64 = 5000;
pub(crate) const BLOCKS: u64 = 30;
pub(crate) const WRITERS: u64 = 3;

pub(crate) fn count_file(world: &World, writer: u64) -> std::fs::File {
    let path = world.root.join(format!("counts{writer}"));
    std::fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path).unwrap()
}

/// Fills its blocks with ever higher numbers and notes each when the write is acknowledged.
pub(crate) fn write_counted_blocks(world: &World, arguments: &[String]) {
    let numbers: Vec<u64> = arguments.iter().map(|text| text.parse().unwrap()).collect();
    let [writer, first, seed] = numbers[..] else { panic!("{arguments:?}") };
    let client = world.client();
    let (_stub, file) = world.open(&client, "f", true);
    let counts = count_file(world, writer);
    let mut dice = Dice(seed);
    for number in first.. {
        let block = dice.roll(BLOCKS);
        let bytes = number.to_le_bytes().repeat((BLOCK / 8) as usize);
        assert_eq!(write(&file, (block * WRITERS + writer) * BLOCK, &bytes), bytes.len());
        counts.write_all_at(&number.to_le_bytes(), block * 8).unwrap();
        counts.write_all_at(&number.to_le_bytes(), BLOCKS * 8).unwrap();
    }
}

pub(crate) fn counted(counts: &std::fs::File, block: u64) -> u64 {
    let mut bytes = [0; 8];
    counts.read_at(&mut bytes, block * 8).unwrap();
    u64::from_le_bytes(bytes)
}

/// Every block of a writer that is dead holds what was acknowledged last or, at most in part, the one write after it.
pub(crate) fn check_blocks(
    file: &StripedFile,
    counts: &std::fs::File,
    unacknowledged: &mut HashSet<u64>,
    writer: u64,
    context: &str,
) {
    let last = counted(counts, BLOCKS);
    // A writer begins two beyond the last that was acknowledged before it.
    unacknowledged.extend([last + 1, last + 2]);
    for block in 0..BLOCKS {
        let acknowledged = counted(counts, block);
        let bytes = read(file, (block * WRITERS + writer) * BLOCK, BLOCK as usize);
        for word in bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())) {
            assert!(
                word == acknowledged || word > acknowledged && unacknowledged.contains(&word),
                "{context}: block {block} of writer {writer} holds {word}, {acknowledged} was acknowledged, {last} was the last"
            );
        }
    }
}

/// `STRIPED_KILLS` makes it long.
#[test]
fn writers_killed_while_regions_move_lose_nothing_that_was_acknowledged() {
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let world = World::new(4);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
    write(&file, 0, &vec![0; (BLOCKS * WRITERS * BLOCK) as usize]);
    let regions = (BLOCKS * WRITERS * BLOCK).div_ceil(REGION) as u32;
    let counts: Vec<_> = (0..WRITERS).map(|writer| count_file(&world, writer)).collect();
    let spawn = |writer: u64, dice: &mut Dice| -> Child {
        // One number is left out: it may stand in a block that its writer died in.
        let first = counted(&counts[writer as usize], BLOCKS) + 2;
        world.spawn("counting-writer", &[writer.to_string(), first.to_string(), dice.roll(1 << 30).to_string()])
    };
    // Of each writer, the numbers that it was killed with.
    let mut unacknowledged = vec![HashSet::new(); WRITERS as usize];
    let mut writers: Vec<Child> = (0..WRITERS).map(|writer| spawn(writer, &mut dice)).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (client, file, over, mut dice_of_moves) = (&client, &file, &over, Dice(seed + 1));
        let moving = scope.spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let orders =
                    (0..regions).map(|region| order(file.id(), region, region, &any_layout(&mut dice_of_moves, 4)));
                crate::moves::all_done(&wait_for(client, start_moves(client, orders.collect())));
            }
        });
        for kill in 0..scale("STRIPED_KILLS", 25) {
            let victim = dice.roll(WRITERS);
            let counts = &counts[victim as usize];
            let until = counted(counts, BLOCKS) + 3 + dice.roll(60);
            while counted(counts, BLOCKS) < until && !moving.is_finished() {
                std::thread::yield_now();
            }
            let writer = &mut writers[victim as usize];
            writer.kill().unwrap();
            assert_eq!(writer.wait().unwrap().signal(), Some(9));
            check_blocks(
                file,
                counts,
                &mut unacknowledged[victim as usize],
                victim,
                &format!("seed {seed}, kill {kill}"),
            );
            writers[victim as usize] = spawn(victim, &mut dice);
        }
        over.store(true, Ordering::SeqCst);
        moving.join().unwrap();
    });
    for (number, writer) in (0..).zip(&mut writers) {
        writer.kill().unwrap();
        writer.wait().unwrap();
        check_blocks(
            &file,
            &counts[number as usize],
            &mut unacknowledged[number as usize],
            number,
            &format!("seed {seed}, at the end"),
        );
    }
    nothing_is_left_over(&world, &client, &file, regions, &format!("seed {seed}"));
}

/// `STRIPED_KILLS` makes it long.
#[test]
fn everybody_killed_at_once_while_regions_move_loses_nothing_that_was_acknowledged() {
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let world = World::new(4);
    let regions = (BLOCKS * WRITERS * BLOCK).div_ceil(REGION) as u32;
    {
        let _broker = world.broker();
        let client = world.client();
        let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
        write(&file, 0, &vec![0; (BLOCKS * WRITERS * BLOCK) as usize]);
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
        let mover = impatient(&world).unwrap();
        let (_stub, file) = world.open(&mover, "f", false);
        while counted(&counts[0], BLOCKS) < until {
            if status(&mover).1.iter().all(|status| status.state.is_final()) {
                let orders = (0..regions).map(|region| order(file.id(), region, region, &any_layout(&mut dice, 4)));
                start_moves(&mover, orders.collect());
            }
        }
        // The broker first or last.
        killed.rotate_left(usize::from(kill % 2 == 1));
        killed.iter_mut().for_each(|child| child.kill().unwrap());
        killed.iter_mut().for_each(|child| assert_eq!(child.wait().unwrap().signal(), Some(9)));
        let _broker = world.broker();
        let context = format!("seed {seed}, kill {kill}");
        for (writer, counts) in (0..).zip(&counts) {
            check_blocks(&file, counts, &mut unacknowledged[writer as usize], writer, &context);
        }
        nothing_is_left_over(&world, &world.client(), &file, regions, &context);
        drop(file);
        drop(mover);
    }
}

static STOPS: AtomicBool = AtomicBool::new(false);

fn stop_once(_: ServerId, _: &str) -> Result<usize, ServerError> {
    if STOPS.swap(false, Ordering::SeqCst) {
        println!("stops");
        // SAFETY: to this thread, so that it stops here.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
    Ok(usize::MAX)
}

/// Stops in the middle of a write, inside its lane, until it is told to go on.
pub(crate) fn stop_in_a_write(world: &World) -> ! {
    let client =
        world.client_with(ClientOptions { open_server: watched!(stop_once, || {}), ..ClientOptions::default() });
    let (_stub, file) = world.open(&client, "f", true);
    STOPS.store(true, Ordering::SeqCst);
    write(&file, 100, &[9; 100]);
    file.close().unwrap();
    // Without the harness's last words, which nobody reads.
    std::process::exit(0);
}

#[test]
fn a_stopped_writer_holds_up_its_own_regions_move_and_nothing_else() {
    let world = World::new(4);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
    write(&file, 0, &vec![1; 2 * REGION as usize]);
    let mut child = world.spawn("stopping-writer", &[]);
    wait_for_line(&mut child, "stops");
    let stuck = start_moves(&client, vec![order(file.id(), 0, 0, &[(2, 4096)])]);
    crate::moves::all_done(&wait_for(&client, start_moves(&client, vec![order(file.id(), 1, 1, &[(3, 4096)])])));
    let expected = format!("process {}, whose I/O does not end", child.id());
    wait_until(&client, |moves| {
        let state = &moves[0].state;
        (*state == MoveState::Queued { waits_for: Some(expected.clone()) }).then_some(())
    });
    // Others write where the stopped process is, and the region moves when it goes on.
    write(&file, 50, &[5; 50]);
    assert_eq!(read(&file, 49, 52), [&[1][..], &[5; 50], &[1]].concat());
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    crate::moves::all_done(&wait_for(&client, stuck));
    succeed(child);
    assert_eq!(read(&file, 50, 151), [&[5; 50][..], &[9; 100], &[1]].concat());
    assert_eq!(file.region_layout(RegionIndex(0)).unwrap(), [(ServerId(2), 4096)]);
    nothing_is_left_over(&world, &client, &file, 2, "at the end");
    assert_eq!(status(&client).0.done, 2);
}
