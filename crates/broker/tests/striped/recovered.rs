//! Files that are put together from the server directories alone, by `setup/recover.py`: no table, no state directory, no Stripewise.

use crate::moves::{REGION, all_done, any_layout, ask, order, scale, start_moves, wait_for};
use crate::replicas::wanted;
use crate::world::{Dice, World, read, succeed, uniform, write};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use stripewise_store::client::Client;
use stripewise_store::file::StripedFile;
use stripewise_store::protocol::Admin;

const SERVERS: u64 = 5;
const MAX_BYTES: u64 = 4 * REGION;

/// Runs the script over the servers' directories.
fn recover(world: &World, output: &str, arguments: &[&str]) -> (Output, PathBuf) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../setup/recover.py");
    let output = world.root.join(output);
    let servers = (0..SERVERS).map(|number| world.root.join(format!("s{number}")));
    let mut command = Command::new("python3");
    command.arg(script).arg("--output").arg(&output).args(arguments).args(servers);
    (command.output().unwrap(), output)
}

/// What the script has made of the file of this name.
fn recovered(world: &World, output: &std::path::Path, name: &str) -> Vec<u8> {
    std::fs::read(output.join(world.path(name).strip_prefix("/").unwrap())).unwrap()
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// A file and the bytes that it should hold.
struct Kept {
    name: String,
    bytes: Vec<u8>,
}

/// One change that a program or a command makes.
fn change(client: &Client, file: &Arc<StripedFile>, kept: &mut Kept, dice: &mut Dice) {
    match dice.roll(8) {
        0..4 => {
            let (at, length) = (dice.roll(MAX_BYTES), 1 + dice.roll(REGION));
            let bytes: Vec<u8> = (0..length).map(|_| dice.roll(255) as u8 + 1).collect();
            assert_eq!(write(file, at, &bytes), bytes.len());
            let end = (at + length) as usize;
            kept.bytes.resize(kept.bytes.len().max(end), 0);
            kept.bytes[at as usize..end].copy_from_slice(&bytes);
        }
        4 => {
            let size = dice.roll(MAX_BYTES);
            file.truncate(size).unwrap();
            kept.bytes.resize(size as usize, 0);
        }
        5 | 6 => {
            let region = dice.roll(5) as u32;
            let order = order(file.id(), region, region, &any_layout(dice, SERVERS));
            all_done(&wait_for(client, start_moves(client, vec![order])));
        }
        _ => {
            let layout = any_layout(dice, SERVERS);
            ask(client, Admin::SetReplicas { file: file.id(), wanted: vec![wanted(0, 4, &layout)] });
        }
    }
}

/// `STRIPED_RECOVERIES` makes it long.
#[test]
fn files_are_put_together_from_the_servers_alone() {
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let mut dice = Dice(seed);
    for number in 0..scale("STRIPED_RECOVERIES", 2) {
        let world = World::new(SERVERS as usize);
        let mut files: Vec<Kept> = Vec::new();
        for _ in 0..3 {
            let mut broker = world.spawn_broker();
            let client = world.client();
            let name = format!("a file, {}%", files.len());
            world.create(&client, &name, uniform(REGION, &any_layout(&mut dice, SERVERS))).1.close().unwrap();
            files.push(Kept { name, bytes: Vec::new() });
            for kept in &mut files {
                let (_stub, file) = world.open(&client, &kept.name, true);
                (0..6).for_each(|_| change(&client, &file, kept, &mut dice));
                assert!(read(&file, 0, kept.bytes.len() + 1) == kept.bytes);
                file.sync(false).unwrap();
                file.close().unwrap();
            }
            drop(client);
            match dice.roll(2) {
                0 => {
                    broker.kill().unwrap();
                    broker.wait().unwrap();
                }
                _ => succeed(broker),
            }
        }
        std::fs::remove_dir_all(world.root.join("state")).unwrap();
        std::fs::remove_dir_all(world.root.join("files")).unwrap();
        let (said, output) = recover(&world, "recovered", &[]);
        let context = format!("seed {seed}, number {number}: {}", text_of(&said));
        assert!(said.status.success(), "{context}");
        for kept in files.iter().filter(|kept| !kept.bytes.is_empty()) {
            let found = recovered(&world, &output, &kept.name);
            assert!(found == kept.bytes, "{}, {} bytes for {}; {context}", kept.name, found.len(), kept.bytes.len());
        }
    }
}

#[test]
fn a_file_of_which_anything_is_missing_is_named_and_not_put_together() {
    let world = World::new(SERVERS as usize);
    let broker = world.broker();
    let client = world.client();
    for name in ["whole", "lacking"] {
        let (_stub, file) = world.create(&client, name, uniform(REGION, &[(0, 4096), (1, 4096)]));
        write(&file, 0, &vec![7; 10_000]);
        file.sync(false).unwrap();
        if name == "lacking" {
            let objects = world.root.join(format!("s1/stripewise-objects/{}", file.id()));
            std::fs::remove_dir_all(objects).unwrap();
        }
        file.close().unwrap();
    }
    drop(client);
    broker.stop();
    let (said, output) = recover(&world, "recovered", &[]);
    assert_eq!(said.status.code(), Some(1));
    let text = text_of(&said);
    assert!(text.contains("/s1/stripewise-objects/") && text.contains("0.1 is missing"), "{text}");
    assert_eq!(recovered(&world, &output, "whole"), [7; 10_000]);
    assert!(!output.join(world.path("lacking").strip_prefix("/").unwrap()).exists());
    let (said, output) = recover(&world, "partial", &["--partial"]);
    assert_eq!(said.status.code(), Some(1));
    let expected: Vec<u8> = (0..10_000).map(|at| if at / 4096 % 2 == 0 { 7 } else { 0 }).collect();
    assert_eq!(recovered(&world, &output, "lacking"), expected);
}

/// A move that was described and not committed: its place must not be taken for the file's once somebody wrote at the old one.
#[test]
fn a_move_that_was_given_up_after_it_was_described_is_described_anew() {
    let world = World::new(SERVERS as usize);
    let mut broker = world.spawn_broker();
    let client = world.client();
    let (stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
    let id = file.id();
    write(&file, 0, &vec![1; 30_000]);
    file.sync(false).unwrap();
    file.close().unwrap();
    drop(client);
    broker.kill().unwrap();
    broker.wait().unwrap();
    let dies = world.spawn("dying-mover", &[id.to_string()]);
    let _ = dies.wait_with_output().unwrap();
    let claims = || {
        let text = std::fs::read_to_string(world.root.join(format!("s2/stripewise-descriptions/{id}")));
        text.unwrap_or_default().lines().filter(|line| line.starts_with("place ")).count()
    };
    assert_eq!(claims(), 1, "the new place was described");
    let broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.open(&client, "f", true);
    write(&file, 100, &[2; 9]);
    file.sync(false).unwrap();
    file.close().unwrap();
    drop((client, stub));
    broker.stop();
    let (said, output) = recover(&world, "recovered", &[]);
    assert!(said.status.success(), "{}", text_of(&said));
    let mut expected = vec![1; 30_000];
    expected[100..109].fill(2);
    assert!(recovered(&world, &output, "f") == expected);
}

/// A broker that dies between the description of a move and its commit.
pub(crate) fn die_before_the_commit(world: &World, arguments: &[String]) -> ! {
    use stripewise_broker::BrokerOptions;
    let steps = Arc::new(|step: &str| {
        if step == "move: before the commit" {
            std::process::exit(0);
        }
    });
    let _broker = world.broker_with(BrokerOptions { steps: Some(steps), ..BrokerOptions::default() });
    let client = world.client();
    let _stub = File::open(world.path("f")).unwrap();
    let file = arguments[0].parse().unwrap();
    wait_for(&client, start_moves(&client, vec![order(file, 0, 0, &[(2, 1000), (3, 3000)])]));
    unreachable!("the move was committed");
}
