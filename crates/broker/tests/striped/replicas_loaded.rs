//! Which copy is read while other processes read: what they have under way counts, until they die.

use crate::hooked::{Call, Hook, Hooked};
use crate::moves::{REGION, ask};
use crate::replicas::{never_idle, spoil, sync, wanted};
use crate::world::{World, read, uniform, wait_for_line, write};
use std::io::Read;
use std::process::Child;
use std::time::{Duration, Instant};
use stripewise_store::client::ClientOptions;
use stripewise_store::protocol::Admin;
use stripewise_store::server::ServerError;

/// A read says that it begins, and never ends.
struct Held;

impl Hook for Held {
    fn before(&self, _: &str, call: Call<'_>) -> Result<usize, ServerError> {
        if let Call::Read(..) = call {
            println!("reading");
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        }
        Ok(usize::MAX)
    }
}

/// In a process of its own.
pub(crate) fn hold_a_read(world: &World) {
    let client = world.client_with(ClientOptions {
        open_server: |cluster, number, name, url, stations| {
            let inner = stripewise_store::server::open(cluster, number, name, url, stations)?;
            Ok(Box::new(Hooked { inner, hook: Held }))
        },
        ..ClientOptions::default()
    });
    let (_stub, file) = world.open(&client, "f", false);
    read(&file, 0, 100);
}

fn held_reader(world: &World) -> Child {
    let mut child = world.spawn("held-reader", &[]);
    wait_for_line(&mut child, "reading");
    child
}

#[test]
fn reads_of_other_processes_count_until_they_die() {
    let world = World::new(4);
    let broker = world.broker_with(never_idle());
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096)]));
    let bytes = vec![7; REGION as usize];
    write(&file, 0, &bytes);
    ask(&client, Admin::SetReplicas { file: file.id(), wanted: vec![wanted(0, 1, &[(1, 4096)])] });
    assert_eq!(sync(&client, file.id()), (1, 1));
    // What is read tells which copy it is; the servers are of one class.
    spoil(&world, 1);
    let reads_the_place = || read(&file, 0, bytes.len()) == bytes;
    assert!(reads_the_place(), "of equals");
    let mut reader = held_reader(&world);
    assert!(!reads_the_place(), "another process reads it");
    reader.kill().unwrap();
    reader.wait().unwrap();
    let begun = Instant::now();
    while !reads_the_place() {
        assert!(begun.elapsed() < Duration::from_secs(100), "the dead one's read counts for ever");
        std::thread::yield_now();
    }
    // One that dies while there is no broker.
    let mut reader = held_reader(&world);
    assert!(!reads_the_place());
    drop(broker);
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert!(!reads_the_place(), "nobody has seen it");
    let _broker = world.broker_with(never_idle());
    assert!(reads_the_place());
}
