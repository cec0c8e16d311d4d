//! Brokers that die while replicas are made and forgotten; `killed` kills at random.

use crate::moves::{REGION, check, scale};
use crate::moves_killed::{impatient, used_in_the_end};
use crate::replicas::{never_idle, read_without, sync, wanted};
use crate::world::{Dice, World, read, uniform, wait_for_line, write};
use std::os::unix::process::ExitStatusExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use stripewise_layout::FileId;
use stripewise_store::client::Client;
use stripewise_store::protocol::{Admin, Request};

/// Syncs the file and sees that every byte is the same at its places, on the first two servers, and in its replicas, on the others; and that
/// nothing but these is left.
fn both_are_whole(world: &World, client: &Client, file: FileId, regions: u32, length: usize, context: &str) -> Vec<u8> {
    let all = u64::from(regions);
    assert_eq!(sync(client, file), (all, all), "{context}");
    let (copies, places) = (read_without(world, &[0, 1], "f", length), read_without(world, &[2, 3], "f", length));
    let differs = copies.iter().zip(&places).position(|(copy, place)| copy != place);
    assert_eq!((differs, copies.len()), (None, places.len()), "{context}");
    assert_eq!(used_in_the_end(world, client, 4 * regions as usize, context), 2 * all * REGION, "{context}");
    assert_eq!(check(client), [], "{context}");
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
        let mut dying = world.spawn("dying-broker", &[kind.to_owned(), step.to_string()]);
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
