//! Shared memory and tables that another version of stripewise left behind.

use crate::cluster::Testbed;
use stripewise_broker::rmt::MappingStore;
use stripewise_broker::rmt::lmdb::LmdbStore;
use stripewise_broker::{Broker, BrokerOptions};
use stripewise_layout::FileId;
use stripewise_store::shared::processes::Processes;
use stripewise_store::state::StateDirectory;

/// Makes the file's shared memory what version 1 of it was.
fn make_old(testbed: &Testbed, file: FileId, size_bytes: u64) {
    use std::os::unix::fs::FileExt;
    let open = |kind: &str| {
        let path = testbed.cluster.state.join("run").join(format!("{file}.{kind}"));
        std::fs::File::options().read(true).write(true).open(path).unwrap()
    };
    let (control, extent, slots) = (open("ctl"), open("ext"), open("slots"));
    control.write_all_at(&[1], 7).unwrap();
    extent.write_all_at(&[1], 7).unwrap();
    extent.write_all_at(&size_bytes.to_ne_bytes(), 8).unwrap();
    extent.set_len(4096 + (8 << 20)).unwrap();
    slots.set_len(4096 * 128).unwrap();
}

#[test]
fn shared_memory_of_another_version_is_made_anew_when_nobody_uses_it() {
    let testbed = Testbed::new();
    let broker = testbed.start();
    testbed.manage_data();
    let mut client = testbed.client();
    let (slot, incarnation) = client.claim();
    let (opened, stub) = client.create(&testbed.data("f")).unwrap();
    client.place(opened.file, 0, 0).unwrap();
    opened.slots.add_user(slot, incarnation).unwrap();
    broker.stop();
    make_old(&testbed, opened.file, 777);
    let broker = testbed.start();
    let said = testbed.client().open(opened.file, &stub).err().unwrap().to_string();
    let expected = format!("process {} with another version of stripewise; end it first", std::process::id());
    assert!(said.contains(&expected), "{said}");
    drop(client);
    let again = testbed.client().open(opened.file, &stub).unwrap();
    // What its writers had made of it counts, not what the table says.
    assert_eq!((again.extent.size_bytes(), again.generation(0)), (777, Some(1)));
    broker.stop();
    let _broker = testbed.start();
    assert_eq!(testbed.client().open(opened.file, &stub).unwrap().extent.size_bytes(), 777);
}

/// A process that an older broker admitted shares memory and messages with its kind: the table must stay as these know it.
#[test]
fn a_table_of_version_3_is_rewritten_only_while_no_process_of_then_lives() {
    let testbed = Testbed::new();
    let state = StateDirectory::open(&testbed.cluster.state).unwrap();
    let servers: Vec<&str> = testbed.cluster.servers.iter().map(|server| server.name.as_str()).collect();
    let entries = [(b"v", vec![3]), (b"c", postcard::to_stdvec(&(testbed.cluster.id.as_str(), servers)).unwrap())];
    {
        let store = LmdbStore::open(&state.table_path()).unwrap();
        entries.iter().for_each(|(key, value)| store.put(*key, value).unwrap());
    }
    let slots = std::fs::File::create_new(testbed.cluster.state.join("run/processes")).unwrap();
    let processes = Processes::build(slots.into()).unwrap();
    let (slot, _) = processes.claim().unwrap();
    let said = Broker::start(&testbed.cluster, BrokerOptions::default()).err().unwrap().to_string();
    assert!(said.contains("version 3") && said.contains(&format!("end process {}", std::process::id())), "{said}");
    let stored = |store: LmdbStore| store.scan(b"", None, 10).unwrap().into_iter().rev().collect::<Vec<_>>();
    let expected = entries.map(|(key, value)| (key.to_vec(), value));
    assert_eq!(stored(LmdbStore::open(&state.table_path()).unwrap()), expected);
    processes.release(slot);
    let broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let (opened, _stub) = client.create(&testbed.data("f")).unwrap();
    client.place(opened.file, 0, 0).unwrap();
    broker.stop();
    assert_eq!(stored(LmdbStore::open(&LmdbStore::copy_path(&state.table_path(), "v3")).unwrap()), expected);
}
