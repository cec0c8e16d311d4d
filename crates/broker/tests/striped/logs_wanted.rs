//! When a file gets logs of fragments at all.

use crate::moves::ask;
use crate::watched::{unlimited, watched};
use crate::world::{World, read, uniform, write};
use std::collections::BTreeMap;
use std::time::Duration;
use stripewise_layout::ServerId;
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::file::StripedFile;
use stripewise_store::protocol::{Admin, Reply};
use stripewise_store::server::ServerError;

/// On directories: what a request takes is what this host takes.
pub(crate) const FRAGMENT_KEYS: &str = "fragments = true\nfragment_threshold = \"1KiB\"\nfragment_room = \"256KiB\"\n";
/// Short requests of one process that logs are made for at the earliest (`store::file::trial`).
const MIN_REQUESTS: u64 = 10;

fn world(keys: &str) -> World {
    World::make(World::in_memory(), 4, keys, |directory| format!("file://{directory}"))
}

fn logs(client: &Client, file: &StripedFile) -> usize {
    match ask(client, Admin::Fragments { file: file.id() }) {
        Reply::FileFragments { servers, .. } => servers.len(),
        reply => panic!("{reply:?}"),
    }
}

/// Files of the state directory's `run` by kind, and objects.
fn created(world: &World) -> (BTreeMap<String, usize>, usize) {
    let mut kinds = BTreeMap::new();
    for entry in std::fs::read_dir(world.root.join("state/run")).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.extension().map_or_else(String::new, |kind| kind.to_str().unwrap().to_owned());
        *kinds.entry(kind).or_default() += 1;
    }
    (kinds, world.objects().len())
}

#[test]
fn a_file_of_few_short_requests_costs_with_fragments_what_it_costs_without() {
    let [plain, with] = ["", FRAGMENT_KEYS].map(|keys| {
        let world = world(keys);
        let _broker = world.broker();
        let client = world.client();
        let mut open = Vec::new();
        for number in 0..20u8 {
            let (stub, file) = world.create_unnamed(&client, uniform(16384, &[(0, 1000), (1, 1000)]));
            let (writes, reads) = (MIN_REQUESTS / 2, MIN_REQUESTS / 2 - 1);
            (0..writes).for_each(|place| assert_eq!(write(&file, place * 10, &[number; 10]), 10));
            (0..reads).for_each(|place| assert_eq!(read(&file, place * 10, 10), [number; 10]));
            file.sync(false).unwrap();
            assert_eq!(logs(&client, &file), 0);
            open.push((stub, file));
        }
        created(&world)
    });
    assert_eq!(with, plain);
}

#[test]
fn short_requests_that_a_disk_takes_its_time_for_get_logs() {
    /// A seek.
    fn seek(server: ServerId, name: &str) -> Result<usize, ServerError> {
        if server.0 < 2 {
            std::thread::sleep(Duration::from_millis(10));
        }
        unlimited(server, name)
    }
    let world = world(FRAGMENT_KEYS);
    let _broker = world.broker();
    let client = world.client_with(ClientOptions { open_server: watched!(seek, || {}), ..ClientOptions::default() });
    let (_stub, file) = world.create_unnamed(&client, uniform(16384, &[(0, 1000), (1, 1000)]));
    for number in 0..MIN_REQUESTS {
        assert_eq!(logs(&client, &file), 0, "before short request {number}");
        write(&file, number * 10, &[number as u8; 10]);
    }
    // One that has no short part makes none.
    let long = [7; 2000];
    write(&file, 1000, &long);
    assert_eq!(logs(&client, &file), 0);
    write(&file, 500, &[9; 10]);
    assert_eq!(logs(&client, &file), 2, "one for each disk");
    write(&file, 2990, &long[..20]);
    let found = read(&file, 0, 3010);
    (0..100).for_each(|at| assert_eq!(found[at], at as u8 / 10));
    assert!(found[500..510] == [9; 10] && found[1000..3010].iter().all(|byte| *byte == 7));
}
