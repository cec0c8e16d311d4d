//! When replicas leave: for want of space, and with a server that is evacuated.

use crate::moves::{REGION, all_done, ask, check, order, start_moves, wait_for};
use crate::replicas::{bytes_of, never_idle, read_without, regions, sync, totals, wanted};
use crate::world::{World, read, uniform, write};
use stripewise_store::protocol::{Admin, Reply};

/// As [`World::new`] of four servers, the last two with space for so many bytes each.
fn with_room(bytes: u64) -> World {
    let world = World::new(4);
    let path = world.root.join("cluster.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("class = \"ssd\"", &format!("class = \"ssd\"\ncapacity = \"{bytes}\"")))
        .unwrap();
    world
}

#[test]
fn replicas_leave_when_room_is_short() {
    let world = with_room(4 * REGION);
    let _broker = world.broker_with(never_idle());
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096)]));
    let bytes = bytes_of(6 * REGION);
    write(&file, 0, &bytes);
    ask(&client, Admin::SetReplicas { file: file.id(), wanted: vec![wanted(0, 6, &[(3, 4096)])] });
    // Only four of them find room, and nothing else is pushed away for the others.
    assert_eq!(sync(&client, file.id()), (6, 4));
    let Reply::Replicas { why: Some(why), .. } = ask(&client, Admin::Replicas { file: file.id() }) else {
        panic!("no reason")
    };
    assert!(why.contains("server s3"), "{why}");
    // A new file's regions get their place, a moved one too.
    let (_stub, other) = world.create(&client, "g", uniform(REGION, &[(3, 4096)]));
    write(&other, 0, &bytes[..2 * REGION as usize]);
    assert_eq!(totals(&client, file.id()).1, 2);
    all_done(&wait_for(&client, start_moves(&client, vec![order(file.id(), 5, 5, &[(3, 8192)])])));
    assert_eq!(totals(&client, file.id()).1, 1);
    assert!(regions(&client, other.id()).iter().all(|region| !region.fell_back));
    assert!(read(&file, 0, bytes.len()) == bytes && read(&other, 0, bytes.len()) == bytes[..2 * REGION as usize]);
    assert_eq!(check(&client), []);
}

#[test]
fn replicas_leave_a_server_that_is_drained() {
    let world = World::new(4);
    let _broker = world.broker_with(never_idle());
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096)]));
    let bytes = bytes_of(2 * REGION);
    write(&file, 0, &bytes);
    let replicas = vec![wanted(0, 2, &[(2, 4096)]), wanted(0, 2, &[(3, 4096)])];
    ask(&client, Admin::SetReplicas { file: file.id(), wanted: replicas });
    assert_eq!(sync(&client, file.id()), (4, 4));
    ask(&client, Admin::Drain { server: 2, drained: true });
    // A mover may be freeing them.
    let begun = std::time::Instant::now();
    let used = || {
        let Reply::Usage { servers } = ask(&client, Admin::Usage) else { panic!("no usage") };
        (servers[2].objects, servers[2].promised_bytes)
    };
    while used() != (0, 0) && begun.elapsed().as_secs() < 100 {}
    assert_eq!(used(), (0, 0));
    assert_eq!(sync(&client, file.id()), (2, 2));
    ask(&client, Admin::Drain { server: 2, drained: false });
    assert_eq!(sync(&client, file.id()), (4, 4));
    assert!(read_without(&world, &[0, 3], "f", bytes.len()) == bytes);
    assert_eq!(check(&client), []);
}
