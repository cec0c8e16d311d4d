//! The mapping table's file, damaged or gone while no broker ran.

use crate::cluster::Testbed;
use std::os::unix::fs::FileExt;
use std::path::Path;
use stripewise_broker::rmt::{Audit, lmdb::LmdbStore};
use stripewise_broker::{Broker, BrokerError, BrokerOptions};

/// A cluster with a placed file, whose broker has stopped.
fn stopped() -> Testbed {
    let testbed = Testbed::new();
    let broker = testbed.start();
    testbed.manage_data();
    let client = testbed.client();
    let (opened, _stub) = client.create(&testbed.data("f")).unwrap();
    client.place(opened.file, 0, 3).unwrap();
    drop(client);
    broker.stop();
    testbed
}

fn damages(testbed: &Testbed) -> String {
    let error = Broker::start(&testbed.cluster, BrokerOptions::default()).err().expect("a refusal");
    let said = error.to_string();
    assert!(matches!(error, BrokerError::DamagedTable { .. }), "{said}");
    assert!(said.contains("state/rmt is damaged") && said.contains("stripewise check --repair"), "{said}");
    said
}

fn records_of(directory: &Path) -> u64 {
    let audit = Audit::of(directory).unwrap();
    assert_eq!(audit.damages, [""; 0]);
    audit.records
}

#[test]
fn a_broker_refuses_a_damaged_table_and_names_damage_and_remedy() {
    let testbed = stopped();
    let path = testbed.cluster.state.join("rmt/data.mdb");
    let whole = std::fs::read(&path).unwrap();
    // A record that LMDB would hand out as it stands.
    let name = testbed.data("f").to_str().unwrap().as_bytes().to_vec();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let places = (0..whole.len() - name.len()).filter(|at| whole[*at..].starts_with(&name));
    places.for_each(|at| file.write_all_at(b"X", at as u64 + 1).unwrap());
    assert!(damages(&testbed).contains("the entry for file"));
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(damages(&testbed).contains("the file ends"));
    std::fs::write(&path, b"").unwrap();
    assert!(damages(&testbed).contains("missing or empty"));
    std::fs::write(&path, &whole).unwrap();
    testbed.start().stop();
}

#[test]
fn the_last_good_copy_is_that_of_the_last_stop() {
    let testbed = stopped();
    let table = testbed.cluster.state.join("rmt");
    let copy = LmdbStore::copy_path(&table, "good");
    let first = records_of(&copy);
    assert_eq!(first, records_of(&table));
    // A broker that was killed leaves the copy of its start; the next one makes a new one.
    std::fs::remove_dir_all(&copy).unwrap();
    let broker = testbed.start();
    assert_eq!(records_of(&copy), first);
    testbed.client().create(&testbed.data("g")).unwrap();
    broker.stop();
    assert!(records_of(&copy) > first);
}
