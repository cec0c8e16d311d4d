//! A mapping table whose file was damaged or lost while no broker ran, and what a repair makes of it.

use crate::moves::{REGION, all_done, any_layout, ask, check, order, scale, start_moves, wait_for};
use crate::replicas::wanted;
use crate::world::{Dice, World, read, uniform, write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use stripewise_broker::{Broker, BrokerError, BrokerOptions, Started};
use stripewise_layout::FileId;
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::protocol::{Admin, Reply, Request};
use stripewise_store::state::{StateDirectory, StateError};

const SERVERS: usize = 4;

/// A file and what it should hold.
struct Kept {
    name: String,
    id: FileId,
    bytes: Vec<u8>,
}

fn any_bytes(dice: &mut Dice, length: u64) -> Vec<u8> {
    (0..length).map(|_| dice.roll(255) as u8 + 1).collect()
}

/// Makes a file, moves some of it, gives it replicas, cuts it or makes it longer than what was written.
fn make(world: &World, client: &Client, name: String, dice: &mut Dice) -> Kept {
    let (_stub, file) = world.create(client, &name, uniform(REGION, &any_layout(dice, SERVERS as u64)));
    let length = dice.roll(3 * REGION);
    let mut bytes = any_bytes(dice, length);
    if !bytes.is_empty() {
        write(&file, 0, &bytes);
    }
    let order = order(file.id(), 0, 1, &any_layout(dice, SERVERS as u64));
    all_done(&wait_for(client, start_moves(client, vec![order])));
    ask(client, Admin::SetReplicas { file: file.id(), wanted: vec![wanted(0, 1, &any_layout(dice, SERVERS as u64))] });
    let size = dice.roll(4 * REGION);
    file.truncate(size).unwrap();
    bytes.resize(size as usize, 0);
    file.sync(false).unwrap();
    let id = file.id();
    file.close().unwrap();
    Kept { name, id, bytes }
}

/// A further change after the last good copy: part of the file is written again and moves.
fn go_on(world: &World, client: &Client, kept: &mut Kept, dice: &mut Dice) {
    let (_stub, file) = world.open(client, &kept.name, true);
    let at = dice.roll(REGION) as usize;
    let length = 1 + dice.roll(REGION);
    let bytes = any_bytes(dice, length);
    write(&file, at as u64, &bytes);
    kept.bytes.resize(kept.bytes.len().max(at + bytes.len()), 0);
    kept.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
    file.sync(false).unwrap();
    file.close().unwrap();
    let order = order(kept.id, 0, 0, &any_layout(dice, SERVERS as u64));
    all_done(&wait_for(client, start_moves(client, vec![order])));
}

/// Damages the file of the table, or puts an older one back.
fn damage(path: &Path, older: &[u8], dice: &mut Dice) -> String {
    const PAGE: u64 = 4096;
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    let page = dice.roll(length / PAGE) * PAGE;
    match dice.roll(7) {
        0 | 1 => {
            let places: Vec<u64> = (0..1 + dice.roll(8)).map(|_| dice.roll(length)).collect();
            for at in &places {
                let mut byte = [0];
                file.read_exact_at(&mut byte, *at).unwrap();
                file.write_all_at(&[byte[0] ^ (1 + dice.roll(255)) as u8], *at).unwrap();
            }
            format!("bytes {places:?}")
        }
        2 => {
            let length = dice.roll(length);
            file.set_len(length).unwrap();
            format!("cut to {length}")
        }
        3 => {
            file.write_all_at(&[0; PAGE as usize], page).unwrap();
            format!("zeros at {page}")
        }
        4 => {
            file.write_all_at(&any_bytes(dice, PAGE), page).unwrap();
            format!("noise at {page}")
        }
        5 => {
            let page = page % older.len() as u64;
            file.write_all_at(&older[page as usize..(page + PAGE) as usize], page).unwrap();
            format!("an old page at {page}")
        }
        _ => {
            std::fs::write(path, older).unwrap();
            "an older table".to_owned()
        }
    }
}

fn copy_all(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

fn assert_all(world: &World, files: &[Kept], context: &str) {
    let client = world.client();
    for kept in files {
        let (_stub, file) = world.open(&client, &kept.name, true);
        let found = read(&file, 0, kept.bytes.len() + 1);
        let (size, end) = (found.len(), kept.bytes.len());
        assert!(found == kept.bytes, "{}: {size} bytes for {end}; {context}", kept.name);
        file.close().unwrap();
    }
}

/// Everything that was synced is there after a repair, whatever the damage, and a damage without a word changes nothing. `STRIPED_DAMAGES` makes it long.
#[test]
fn a_damaged_table_is_made_anew_and_no_synced_byte_is_lost() {
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let mut refused = 0;
    let count = scale("STRIPED_DAMAGES", 12);
    for number in 0..count {
        let world = World::new(SERVERS);
        let table = world.root.join("state/rmt/data.mdb");
        let mut files = Vec::new();
        {
            let broker = world.broker();
            let client = world.client();
            for name in ["a", "b"] {
                files.push(make(&world, &client, name.to_owned(), &mut dice));
            }
            drop(client);
            broker.stop();
        }
        let older = std::fs::read(&table).unwrap();
        let good = world.root.join("state/rmt.good");
        copy_all(&good, &world.root.join("good"));
        {
            let broker = world.broker();
            let client = world.client();
            let directory = world.root.join("files").to_str().unwrap().to_owned();
            let placement = uniform(REGION, &any_layout(&mut dice, SERVERS as u64));
            ask(&client, Admin::Manage { directory, placement, min_bytes: None });
            go_on(&world, &client, &mut files[0], &mut dice);
            files.push(make(&world, &client, "c".to_owned(), &mut dice));
            drop(client);
            broker.stop();
        }
        // As a broker leaves it that was killed.
        std::fs::remove_dir_all(&good).unwrap();
        copy_all(&world.root.join("good"), &good);
        // And another boot: what shared memory knew is gone.
        for entry in std::fs::read_dir(world.root.join("state/run")).unwrap() {
            let _ = std::fs::remove_file(entry.unwrap().path());
        }
        let what = damage(&table, &older, &mut dice);
        let context = format!("seed {seed}, number {number}: {what}");
        match Broker::start(&world.cluster(), BrokerOptions::default()) {
            Ok(Started::Serving(broker)) => {
                assert_all(&world, &files, &context);
                broker.stop();
                continue;
            }
            Ok(Started::AlreadyRunning { .. }) => panic!("another broker; {context}"),
            Err(BrokerError::DamagedTable { damages, .. }) => assert!(!damages.is_empty(), "{context}"),
            Err(error) => panic!("{error}; {context}"),
        }
        refused += 1;
        let damages = Broker::table_damages(&world.cluster()).unwrap();
        assert!(!damages.is_empty(), "{context}");
        let said = Broker::rebuild_table(&world.cluster()).unwrap();
        assert!(said.len() == 1 && said[0].contains("state/rmt.damaged-1"), "{said:?}; {context}");
        let broker = world.broker();
        assert_all(&world, &files, &format!("repaired; {context}"));
        let client = world.client();
        go_on(&world, &client, &mut files[2], &mut dice);
        let left: Vec<String> = check(&client).into_iter().map(|finding| finding.what).collect();
        assert!(left.iter().all(|what| what.contains("left over")), "{left:?}; {context}");
        drop(client);
        broker.stop();
    }
    println!("{refused} of {count} damages were refused and repaired");
}

#[test]
fn a_lost_state_directory_is_made_anew_from_servers_and_stubs() {
    let world = World::new(SERVERS);
    let mut dice = Dice(7);
    let mut files = Vec::new();
    {
        let broker = world.broker();
        let client = world.client();
        files.push(make(&world, &client, "a".to_owned(), &mut dice));
        files.push(make(&world, &client, "b".to_owned(), &mut dice));
        drop(client);
        broker.stop();
    }
    std::fs::rename(world.path("b"), world.path("renamed")).unwrap();
    files[1].name = "renamed".to_owned();
    std::fs::remove_dir_all(world.root.join("state")).unwrap();
    let refused = || Broker::start(&world.cluster(), BrokerOptions::default()).err().unwrap();
    assert!(matches!(refused(), BrokerError::State(StateError::Lost { .. })), "{}", refused());
    assert!(!world.root.join("state").exists(), "nothing was made");
    // As beside it, where servers are not mounted either.
    std::fs::rename(world.root.join("s0"), world.root.join("away")).unwrap();
    let kept = Broker::rebuild_table(&world.cluster()).unwrap_err();
    assert!(kept.to_string().contains("server s0"), "{kept}");
    assert!(!world.root.join("state").exists(), "nothing was made");
    std::fs::rename(world.root.join("away"), world.root.join("s0")).unwrap();
    // As an earlier version left it.
    StateDirectory::make(&world.root.join("state")).unwrap();
    assert!(matches!(refused(), BrokerError::LostTable { .. }), "{}", refused());
    std::fs::remove_dir_all(world.root.join("state")).unwrap();
    let said = Broker::rebuild_table(&world.cluster()).unwrap();
    assert_eq!(said.len(), 2, "{said:?}");
    let broker = world.broker();
    assert_all(&world, &files, "rebuilt");
    broker.stop();
    assert_eq!(Broker::table_damages(&world.cluster()).unwrap(), [""; 0]);
    assert_eq!(Broker::rebuild_table(&world.cluster()).unwrap(), [""; 0], "nothing to do");
}

/// Entries of the file's logs that are newer than the disks.
fn newer_in_logs(client: &Client, file: FileId) -> u64 {
    match client.request(&Request::Admin(Admin::Fragments { file }), &[]).unwrap().0 {
        Reply::FileFragments { servers, .. } => servers.iter().map(|log| log.dirty).sum(),
        reply => panic!("{reply:?}"),
    }
}

/// The new table named no logs of fragments, and the `check --repair` that followed removed them as left over, with bytes that no disk had yet.
#[test]
fn what_only_shared_memory_and_logs_know_outlives_a_table_that_is_made_anew() {
    let world = World::with_fragments(SERVERS);
    let mut broker = world.spawn_broker_as("broker-that-leaves-logs");
    let client = world.client_with(ClientOptions { patience: Duration::ZERO, ..ClientOptions::default() });
    let (stub, file) = world.create(&client, "a", uniform(REGION, &[(0, 4096), (1, 4096)]));
    let mut dice = Dice(11);
    let mut bytes = any_bytes(&mut dice, REGION);
    write(&file, 0, &bytes);
    file.sync(false).unwrap();
    // From here on without a sync: fragments, and a longer file.
    for at in [1000, 9000, 14_000] {
        let newer = any_bytes(&mut dice, 512);
        write(&file, at, &newer);
        bytes[at as usize..at as usize + 512].copy_from_slice(&newer);
    }
    let more = any_bytes(&mut dice, 5000);
    write(&file, REGION, &more);
    bytes.extend(more);
    assert!(newer_in_logs(&client, file.id()) >= 3, "they lie in logs");
    broker.kill().unwrap();
    broker.wait().unwrap();
    let id = file.id();
    drop((file, stub, client));
    let table = world.root.join("state/rmt/data.mdb");
    std::fs::write(&table, vec![0; std::fs::metadata(&table).unwrap().len() as usize]).unwrap();
    std::fs::remove_dir_all(world.root.join("state/rmt.good")).unwrap();
    let said = Broker::rebuild_table(&world.cluster()).unwrap();
    assert!(said.len() == 1 && said[0].contains("rebuilt"), "{said:?}");
    let broker = world.broker();
    let client = world.client();
    ask(&client, Admin::Check { repair: true });
    ask(&client, Admin::Check { repair: true });
    assert_all(&world, &[Kept { name: "a".to_owned(), id, bytes }], "rebuilt");
    assert_eq!(check(&client), []);
    drop(client);
    broker.stop();
}

/// After a reboot nobody knows what a log held.
#[test]
fn a_log_of_fragments_that_nothing_tells_of_is_named() {
    let world = World::with_fragments(SERVERS);
    let mut broker = world.spawn_broker_as("broker-that-leaves-logs");
    let client = world.client_with(ClientOptions { patience: Duration::ZERO, ..ClientOptions::default() });
    let (stub, file) = world.create(&client, "a", uniform(REGION, &[(0, 4096), (1, 4096)]));
    let bytes = any_bytes(&mut Dice(12), REGION);
    write(&file, 0, &bytes);
    file.sync(false).unwrap();
    write(&file, 1000, &[255; 512]);
    assert_eq!(newer_in_logs(&client, file.id()), 1);
    broker.kill().unwrap();
    broker.wait().unwrap();
    let id = file.id();
    drop((file, stub, client));
    std::fs::remove_dir_all(world.root.join("state")).unwrap();
    let said = Broker::rebuild_table(&world.cluster()).unwrap();
    let named = |what: &str| what.contains("files/a: nothing says any more what the") && what.contains("on server s2");
    assert!(said.len() == 3 && named(&said[2]), "{said:?}");
    let broker = world.broker();
    assert_all(&world, &[Kept { name: "a".to_owned(), id, bytes }], "what was synced");
    broker.stop();
}
