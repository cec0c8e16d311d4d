//! What files occupy on servers.

use crate::moves::ask;
use crate::world::{World, uniform, write};
use stripewise_layout::FileId;
use stripewise_store::client::Client;
use stripewise_store::protocol::{Admin, Reply};

fn held(client: &Client, file: FileId) -> Vec<u64> {
    match ask(client, Admin::HeldBytes { file }) {
        Reply::HeldBytes { servers } => servers.into_iter().map(Option::unwrap).collect(),
        reply => panic!("{reply:?}"),
    }
}

fn held_by_all(client: &Client) -> Vec<u64> {
    match ask(client, Admin::HeldByFiles { after: None }) {
        Reply::HeldByFiles { servers, last: None } => servers.into_iter().map(Option::unwrap).collect(),
        reply => panic!("{reply:?}"),
    }
}

/// Each was asked for by itself, and loaded for that: 0.9 ms a file.
#[test]
fn what_all_files_occupy_is_summed_up_without_loading_them() {
    let world = World::new(3);
    let broker = world.broker();
    let client = world.client();
    let (files, sizes): (Vec<_>, Vec<usize>) = (0..20)
        .map(|number| {
            let (_stub, file) = world.create_unnamed(&client, uniform(16384, &[(0, 4096), (2, 4096)]));
            let bytes = number * 5000 + 100;
            write(&file, 0, &vec![1; bytes]);
            file.sync(false).unwrap();
            (file.id(), bytes)
        })
        .unzip();
    // As many of them as were just used are loaded.
    let before = held_by_all(&client);
    assert!(before[0] + before[2] >= sizes.iter().sum::<usize>() as u64 && before[1] == 0, "{before:?}");
    drop((client, broker));
    let _broker = world.broker();
    let client = world.client();
    let memories = || {
        let run = std::fs::read_dir(world.root.join("state/run")).unwrap();
        let names = run.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| files.iter().any(|file| name.starts_with(&file.to_string()))).count()
    };
    assert_eq!(held_by_all(&client), before);
    assert_eq!(memories(), 0, "a file that is loaded has shared memory");
    let mut sums = vec![0; 3];
    for file in &files {
        held(&client, *file).into_iter().zip(&mut sums).for_each(|(bytes, sum)| *sum += bytes);
    }
    assert_eq!((sums, memories() > 0), (before, true));
}
