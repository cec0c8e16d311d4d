//! Moves that wait for each other's space.

use crate::moves::{REGION, all_done, check, layout, order, start_moves, wait_for};
use crate::world::{World, read, uniform, write};
use stripewise_layout::RegionIndex;
use stripewise_store::client::Client;
use stripewise_store::protocol::MoveState;

/// Servers of which each named one takes so many regions.
fn world(servers: usize, limited: &[(&str, u64)]) -> World {
    let world = World::new(servers);
    let path = world.root.join("cluster.toml");
    let mut text = std::fs::read_to_string(&path).unwrap();
    for (name, regions) in limited {
        let limit = format!("name = \"{name}\"\ncapacity = \"{}KiB\"\nreserve = \"0\"", regions * REGION / 1024);
        text = text.replace(&format!("name = \"{name}\""), &limit);
    }
    std::fs::write(&path, text).unwrap();
    world
}

fn bytes(salt: u64, count: u64) -> Vec<u8> {
    (0..count).map(|at| ((at + salt) * 7 % 251) as u8).collect()
}

fn moved_bytes(client: &Client) -> u64 {
    crate::moves::status(client).0.moved_bytes
}

#[test]
fn regions_that_fill_a_server_take_another_layout_on_it() {
    let world = world(2, &[("s1", 2)]);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(1, 4096)]));
    let bytes = bytes(0, 2 * REGION);
    write(&file, 0, &bytes);
    let moves = wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 1, &[(0, 1024), (1, 4096)])]));
    all_done(&moves);
    for region in [0, 1] {
        let lies = file.region_layout(RegionIndex(region)).unwrap();
        assert_eq!(
            lies,
            layout(&[(0, 1024), (1, 4096)]).stripes().iter().map(|s| (s.server, s.size_bytes)).collect::<Vec<_>>()
        );
    }
    assert_eq!(read(&file, 0, bytes.len() + 1), bytes);
    assert!(moved_bytes(&client) > 2 * REGION, "one of them moved aside first");
    assert_eq!((world.objects().len(), check(&client)), (4, Vec::new()));
}

#[test]
fn files_that_fill_two_servers_change_places() {
    let world = world(3, &[("s0", 2), ("s1", 2)]);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, one) = world.create(&client, "one", uniform(REGION, &[(0, 4096)]));
    let (_stub, other) = world.create(&client, "other", uniform(REGION, &[(1, 4096)]));
    let (ones, others) = (bytes(0, 2 * REGION), bytes(1, 2 * REGION));
    write(&one, 0, &ones);
    write(&other, 0, &others);
    let orders = vec![order(one.id(), 0, 1, &[(1, 4096)]), order(other.id(), 0, 1, &[(0, 4096)])];
    all_done(&wait_for(&client, start_moves(&client, orders)));
    assert_eq!((read(&one, 0, ones.len()), read(&other, 0, others.len())), (ones, others));
    for region in [0, 1].map(RegionIndex) {
        assert_eq!(one.region_layout(region).unwrap()[0].0.0, 1);
        assert_eq!(other.region_layout(region).unwrap()[0].0.0, 0);
    }
    assert_eq!((world.objects().len(), check(&client)), (4, Vec::new()));
}

#[test]
fn what_finds_no_space_in_the_end_stays_where_it_is() {
    let world = world(3, &[("s0", 2), ("s1", 2)]);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, one) = world.create(&client, "one", uniform(REGION, &[(0, 4096)]));
    let (_stub, other) = world.create(&client, "other", uniform(REGION, &[(1, 4096)]));
    write(&one, 0, &bytes(0, 2 * REGION));
    write(&other, 0, &bytes(1, 2 * REGION));
    // More than s1 can ever hold.
    let orders = vec![order(one.id(), 0, 1, &[(1, 4096)]), order(other.id(), 0, 1, &[(1, 1024), (2, 512)])];
    let moves = wait_for(&client, start_moves(&client, orders));
    assert!(moves.iter().any(|status| status.state != MoveState::Done), "not all of them find space");
    for status in &moves {
        let file = if status.file == one.id() { &one } else { &other };
        let lies: Vec<_> =
            file.region_layout(status.region).unwrap().iter().map(|(server, size)| (server.0, *size)).collect();
        let expected = match &status.state {
            MoveState::Failed { why } => {
                assert!(why.contains("server s1 has"), "{why}");
                &status.from
            }
            _ => &status.to,
        };
        assert_eq!(lies, *expected, "not aside: {status:?}");
    }
    assert_eq!(check(&client), []);
}
