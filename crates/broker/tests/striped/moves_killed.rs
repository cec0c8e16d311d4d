//! Brokers that die and writers that stop while regions move; `killed` kills at random.

use crate::hooked::{Call, Hook, Hooked};
use crate::moves::{REGION, ask, check, order, scale, start_moves, status, wait_for, wait_until};
use crate::replicas::never_idle;
use crate::watched::watched;
use crate::world::{Dice, World, read, succeed, uniform, wait_for_line, write};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use stripewise_broker::BrokerOptions;
use stripewise_layout::{RegionIndex, ServerId};
use stripewise_store::client::{Client, ClientError, ClientOptions, OpenServer};
use stripewise_store::file::StripedFile;
use stripewise_store::protocol::{Admin, MoveState, Reply, Request};
use stripewise_store::server::ServerError;

/// A broker that is killed at a step of this kind: of a move or sync (`move`), or of the forgetting of replicas (`replicas`).
pub(crate) fn serve_and_die(world: &World, arguments: &[String]) -> ! {
    let kind = format!("{}: ", arguments[0].replace('-', " "));
    let step: usize = arguments[1].parse().unwrap();
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
    assert_eq!(used_in_the_end(world, client, expected, context), u64::from(regions) * REGION, "{context}");
}

/// Waits until so many objects are there, and counted; returns the bytes that are promised for them.
///
/// What is freed by a successor waits for those inside, and its space is given back after its objects are gone.
pub(crate) fn used_in_the_end(world: &World, client: &Client, expected: usize, context: &str) -> u64 {
    let used = || {
        let Reply::Usage { servers } = ask(client, Admin::Usage) else { panic!("no usage") };
        let objects: u64 = servers.iter().map(|server| server.objects).sum();
        (world.objects().len(), objects as usize, servers.iter().map(|server| server.promised_bytes).sum())
    };
    let begun = std::time::Instant::now();
    loop {
        match used() {
            (there, counted, bytes) if (there, counted) == (expected, expected) => return bytes,
            (there, counted, _) if begun.elapsed() > Duration::from_secs(100) => {
                panic!("{there} objects, of which {counted} are counted, not {expected}: {context}")
            }
            _ => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_broker_killed_at_any_step_of_a_move_loses_no_byte_and_leaves_nothing() {
    let mut died = 0;
    let first = scale("STRIPED_FIRST_STEP", 0) as usize;
    for step in first.. {
        let context = format!("step {step}");
        let world = World::new(4);
        let mut dying = world.spawn("dying-broker", &["move".to_owned(), step.to_string()]);
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

struct StopsOnce;

impl Hook for StopsOnce {
    fn before(&self, server: &str, call: Call<'_>) -> Result<usize, ServerError> {
        match call {
            Call::Read(..) => stop_once(ServerId(0), server),
            _ => Ok(usize::MAX),
        }
    }
}

/// The same in the middle of a read.
pub(crate) fn stop_in_a_read(world: &World) -> ! {
    let open_server: OpenServer = |cluster, number, name, url, stations| {
        let inner = stripewise_store::server::open(cluster, number, name, url, stations)?;
        Ok(Box::new(Hooked { inner, hook: StopsOnce }))
    };
    let client = world.client_with(ClientOptions { open_server, ..ClientOptions::default() });
    let (_stub, file) = world.open(&client, "f", false);
    STOPS.store(true, Ordering::SeqCst);
    let found = read(&file, 0, 1000);
    // Of what was written while it stood still it may see any part, and nothing else.
    assert!(found.len() == 1000 && found.iter().all(|byte| matches!(byte, 1 | 5)), "{found:?}");
    assert_eq!(read(&file, 0, 1000), [5; 1000]);
    file.close().unwrap();
    std::process::exit(0);
}

#[test]
fn a_stopped_reader_holds_up_no_move_but_the_freeing_of_what_it_reads() {
    let world = World::new(4);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
    write(&file, 0, &vec![1; 2 * REGION as usize]);
    let mut child = world.spawn("stopping-reader", &[]);
    wait_for_line(&mut child, "stops");
    let moved = start_moves(&client, vec![order(file.id(), 0, 0, &[(2, 4096)])]);
    wait_until(&client, |moves| (moves[0].state == MoveState::Freeing).then_some(()));
    crate::moves::all_done(&wait_for(&client, start_moves(&client, vec![order(file.id(), 1, 1, &[(3, 4096)])])));
    assert_eq!(file.region_layout(RegionIndex(0)).unwrap(), [(ServerId(2), 4096)]);
    write(&file, 0, &[5; 3000]);
    assert_eq!(read(&file, 0, 3001), [&[5; 3000][..], &[1]].concat());
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    crate::moves::all_done(&wait_for(&client, moved));
    succeed(child);
    assert_eq!(read(&file, 0, 3001), [&[5; 3000][..], &[1]].concat());
    nothing_is_left_over(&world, &client, &file, 2, "at the end");
}
