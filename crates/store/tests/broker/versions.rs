//! Shared memory that another version of stripewise left behind.

use crate::cluster::Testbed;
use stripewise_layout::FileId;

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
    opened.slots.add_user(slot, incarnation);
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
