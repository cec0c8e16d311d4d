//! Power failures around the removal of a file: its name lies in one file system, its data in others, and none of them waits for another.

use crate::mounts::{Kind, Mounts};
use crate::moves::check;
use crate::moves_killed::impatient;
use crate::world::{World, read, uniform, wait_for_line, write};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use stripewise_store::client::{Client, ClientError, Name, NameChange};
use stripewise_store::protocol::{NameCall, Refusal};

const BYTES: usize = 40_000;

/// Steps of freeing a file at which its broker dies with the power: the removal was noted; the data is about to go.
const NOTED: usize = 0;
const BEFORE_THE_OBJECTS: usize = 1;

#[test]
fn a_removed_file_that_comes_back_after_a_power_failure_is_whole() {
    for step in [NOTED, BEFORE_THE_OBJECTS] {
        let Some((world, mounts)) = Mounts::world(2, &[("files", Kind::Ext4)]) else { return };
        let mut broker = world.spawn("dying-broker", &["free".into(), step.to_string()]);
        wait_for_line(&mut broker, "serving");
        let (path, bytes) = (world.path("f"), [7; BYTES]);
        {
            let client = impatient(&world).unwrap();
            let (stub, file) = world.create(&client, "f", uniform(16 << 10, &[(0, 4096), (1, 4096)]));
            write(&file, 0, &bytes);
            file.sync(false).unwrap();
            File::open(path.parent().unwrap()).unwrap().sync_all().unwrap();
            let id = file.id();
            drop(file);
            // The broker may die before it answers.
            let _ = client.remove(&path, World::closed(stub).as_fd(), id);
            assert!(!path.exists());
        }
        assert_eq!(broker.wait().unwrap().signal(), Some(9), "step {step}");
        if let Err(why) = mounts.lose_power("files") {
            println!("not tried: {why}");
            return;
        }
        assert!(step == NOTED || !path.exists(), "the data goes after the name");
        {
            let _broker = world.broker();
            let client = world.client();
            if path.exists() {
                let (_stub, file) = world.open(&client, "f", false);
                assert!(read(&file, 0, BYTES + 1) == bytes);
            } else {
                check(&client);
                assert_eq!(world.objects().len(), 0);
            }
            assert_eq!(check(&client), []);
        }
        drop(mounts);
    }
}

/// As after `exec`, until the new program uses the descriptor.
#[test]
fn a_file_without_a_name_is_kept_while_a_process_has_its_descriptor() {
    let (world, bytes) = (World::new(2), [7; BYTES]);
    let read_again = |client: &Client, held: &OwnedFd, id| {
        let stub = File::open(format!("/proc/self/fd/{}", held.as_raw_fd())).unwrap();
        let file = client.open(stub.as_fd(), id).unwrap();
        assert!(read(&file, 0, BYTES + 1) == bytes);
        drop(file);
        assert_eq!(check(client), []);
    };
    let (held, id, mut keeper) = {
        let _broker = world.broker();
        let client = world.client();
        let (stub, file) = world.create(&client, "f", uniform(16 << 10, &[(0, 4096), (1, 4096)]));
        write(&file, 0, &bytes);
        let id = file.id();
        drop(file);
        let output = Stdio::from(stub.try_clone().unwrap());
        let keeper = Command::new("cat").stdin(Stdio::piped()).stdout(output).spawn().unwrap();
        let held = World::closed(stub);
        client.remove(&world.path("f"), held.as_fd(), id).unwrap();
        read_again(&client, &held, id);
        (held, id, keeper)
    };
    let _broker = world.broker();
    let client = world.client();
    read_again(&client, &held, id);
    drop(keeper.stdin.take());
    keeper.wait().unwrap();
    let begun = std::time::Instant::now();
    while !world.objects().is_empty() {
        assert!(begun.elapsed().as_secs() < 100, "its data is freed");
        std::thread::yield_now();
    }
    assert_eq!(check(&client), []);
}

/// A file made there since would lose its name with a note that says nothing of it.
#[test]
fn a_name_whose_file_has_gone_by_the_time_that_the_broker_holds_it_is_looked_at_again() {
    let world = World::new(2);
    let _broker = world.broker();
    let client = world.client();
    let (path, placement) = (world.path("f"), || uniform(16 << 10, &[(0, 4096), (1, 4096)]));
    let (stub, file) = world.create(&client, "f", placement());
    let gone = file.id();
    drop(file);
    client.remove(&path, stub.as_fd(), gone).unwrap();
    let directory = File::open(path.parent().unwrap()).unwrap();
    let target = Name { directory: directory.as_fd(), name: b"f" };
    let change = NameChange { call: NameCall::Remove, target, victim: Some((stub.as_fd(), gone)), mover: None };
    let refused = client.begin_name_change(&change).err();
    assert!(matches!(refused, Some(ClientError::Refused(Refusal::NameChanged { .. }))), "{refused:?}");
    // The name is not held.
    let (stub, file) = world.create(&client, "f", placement());
    let id = file.id();
    drop(file);
    client.remove(&path, stub.as_fd(), id).unwrap();
    assert_eq!(check(&client), []);
}

#[test]
fn a_region_gets_the_space_of_a_file_that_was_removed_a_moment_ago() {
    let Some((world, mounts)) = Mounts::world(2, &[("s0", Kind::Ext4)]) else { return };
    {
        let _broker = world.broker();
        let client = world.client();
        // More than half of what is free.
        let placement = || uniform(4 << 20, &[(0, 64 << 10)]);
        let bytes = vec![7; 4 << 20];
        for _ in 0..3 {
            let (stub, file) = world.create(&client, "f", placement());
            write(&file, 0, &bytes);
            file.sync(false).unwrap();
            let id = file.id();
            drop(file);
            client.remove(&world.path("f"), World::closed(stub).as_fd(), id).unwrap();
        }
    }
    drop(mounts);
}
