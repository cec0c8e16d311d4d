//! Pools of a real Ceph on loopback: guarded operations, and what each fault is called.
//!
//! Skipped, and said so, where no Ceph can be had (`setup/install --engines`).

#[path = "rados/ceph.rs"]
mod ceph;

use ceph::Ceph;
use std::time::Duration;
use stripewise_broker::rados::{ConnectOptions, Connection, Epoch, Operation, Piece, Pool, RadosError, Request};

const NAMESPACE: &str = "stripewise-test";
const FIRST: Epoch = Epoch::FIRST;
const SECOND: Epoch = Epoch(2);

fn create(pool: &Pool, object: &str) -> Result<u64, RadosError> {
    pool.run(object, Operation::Create { epoch: FIRST })
}

fn write(pool: &Pool, object: &str, epoch: Epoch, offset: u64, bytes: &[u8]) -> Result<u64, RadosError> {
    pool.run(object, Operation::Write { epoch, offset, from: Piece::to_take(bytes) })
}

fn read(pool: &Pool, object: &str, epoch: Epoch, offset: u64, length: usize) -> Result<Vec<u8>, RadosError> {
    let mut bytes = vec![0xff; length];
    let count = pool.run(object, Operation::Read { epoch, offset, into: Piece::to_fill(&mut bytes) })?;
    bytes.truncate(count as usize);
    Ok(bytes)
}

fn length(pool: &Pool, object: &str, epoch: Epoch) -> Result<u64, RadosError> {
    pool.run(object, Operation::Stat { epoch })
}

fn remove(pool: &Pool, object: &str) -> Result<u64, RadosError> {
    pool.run(object, Operation::Remove { epoch: Some(FIRST) })
}

#[test]
fn objects_hold_what_was_written_and_every_operation_names_their_epoch() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    let connection = ceph.connect();
    assert_eq!(connection.fsid().unwrap().len(), 36);
    let pool = Pool::open(&connection, ceph.pool(0), NAMESPACE).unwrap();

    create(&pool, "a").unwrap();
    assert!(matches!(create(&pool, "a"), Err(RadosError::Exists { object, .. }) if object == "a"));
    write(&pool, "a", FIRST, 5, b"hello").unwrap();
    assert_eq!(read(&pool, "a", FIRST, 0, 100).unwrap(), b"\0\0\0\0\0hello");
    assert_eq!(read(&pool, "a", FIRST, 7, 2).unwrap(), b"ll");
    assert_eq!(read(&pool, "a", FIRST, 10, 5).unwrap(), b"", "nothing is behind the end");
    assert_eq!(length(&pool, "a", FIRST).unwrap(), 10);
    pool.run("a", Operation::Truncate { epoch: FIRST, length: 7 }).unwrap();
    assert_eq!(read(&pool, "a", FIRST, 0, 100).unwrap(), b"\0\0\0\0\0he");

    // Once the epoch is raised, whoever still names the old one is refused, and nothing of it takes effect.
    pool.run("a", Operation::RaiseEpoch { from: FIRST, to: SECOND }).unwrap();
    let late: [Result<u64, RadosError>; 6] = [
        write(&pool, "a", FIRST, 0, b"late"),
        read(&pool, "a", FIRST, 0, 1).map(|_| 0),
        length(&pool, "a", FIRST),
        pool.run("a", Operation::Truncate { epoch: FIRST, length: 0 }),
        pool.run("a", Operation::RaiseEpoch { from: FIRST, to: Epoch(3) }),
        remove(&pool, "a"),
    ];
    for result in late {
        assert!(matches!(result, Err(RadosError::WrongEpoch { expected: 1, .. })), "{result:?}");
    }
    assert_eq!(read(&pool, "a", SECOND, 0, 100).unwrap(), b"\0\0\0\0\0he");

    // A write that comes after the removal does not make the object again.
    pool.run("a", Operation::Remove { epoch: Some(SECOND) }).unwrap();
    let late = [
        write(&pool, "a", SECOND, 0, b"late"),
        pool.run("a", Operation::Truncate { epoch: SECOND, length: 0 }),
        pool.run("a", Operation::Append { from: b"late" }),
        read(&pool, "a", SECOND, 0, 1).map(|_| 0),
        length(&pool, "a", SECOND),
        pool.run("a", Operation::Remove { epoch: None }),
    ];
    for result in late {
        assert!(matches!(result, Err(RadosError::Missing { .. })), "{result:?}");
    }
    assert_eq!(pool.list().unwrap(), [""; 0]);

    // Objects of another namespace are others.
    create(&pool, "b").unwrap();
    let other = Pool::open(&connection, ceph.pool(0), "other").unwrap();
    assert!(matches!(read(&other, "b", FIRST, 0, 1), Err(RadosError::Missing { .. })));
    assert_eq!((pool.list().unwrap(), other.list().unwrap()), (vec!["b".to_owned()], vec![]));

    // More keys than come at once.
    let values: Vec<(String, Vec<u8>)> = (0..2500u32).map(|n| (format!("{n:08}"), n.to_le_bytes().to_vec())).collect();
    let pairs: Vec<(&str, &[u8])> = values.iter().map(|(key, value)| (key.as_str(), value.as_slice())).collect();
    pool.run("keys", Operation::SetKeys(&pairs)).unwrap();
    pool.run("keys", Operation::RemoveKeys(&["00000007"])).unwrap();
    let expected: Vec<_> = values.iter().filter(|(key, _)| key != "00000007").cloned().collect();
    assert_eq!(pool.keys("keys").unwrap(), expected);
}

#[test]
fn operations_of_a_batch_are_under_way_together() {
    let Some(mut ceph) = Ceph::start(&["--osds", "2"]) else { return };
    let connection = ceph.connect();
    let pools = [0, 1].map(|osd| Pool::open(&connection, ceph.pool(osd), NAMESPACE).unwrap());
    for pool in &pools {
        create(pool, "a").unwrap();
    }
    // The first server stands still, and the second one's operations get through: nothing waits for another's turn.
    ceph.order("stop 0");
    let mut bytes = [[0u8; 3]; 4];
    let mut batch = vec![Request {
        object: "a",
        operation: Operation::Write { epoch: FIRST, offset: 0, from: Piece::to_take(b"one") },
    }];
    let [first, second, third, _] = &mut bytes;
    batch.push(Request {
        object: "a",
        operation: Operation::Read { epoch: FIRST, offset: 0, into: Piece::to_fill(first) },
    });
    batch.push(Request {
        object: "gone",
        operation: Operation::Read { epoch: FIRST, offset: 0, into: Piece::to_fill(second) },
    });
    batch.push(Request {
        object: "a",
        operation: Operation::Read { epoch: SECOND, offset: 0, into: Piece::to_fill(third) },
    });
    let results = pools[0].run_with(batch, &mut || {
        write(&pools[1], "a", FIRST, 0, b"two").unwrap();
        ceph.order("continue 0");
    });
    assert!(
        matches!(results[..], [Ok(0), Ok(3), Err(RadosError::Missing { .. }), Err(RadosError::WrongEpoch { .. })]),
        "{results:?}"
    );
    assert_eq!(&bytes[0], b"one");
    assert_eq!(read(&pools[1], "a", FIRST, 0, 9).unwrap(), b"two");
}

#[test]
fn faults_are_named_one_by_one() {
    let Some(mut ceph) = Ceph::start(&["--osds", "3"]) else { return };
    let connection = ceph.connect();
    let pool = Pool::open(&connection, ceph.pool(0), NAMESPACE).unwrap();

    let said = |error: RadosError, expected: &[&str]| {
        let text = error.to_string();
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
    };
    said(Pool::open(&connection, "nowhere", NAMESPACE).err().unwrap(), &["no pool nowhere"]);
    let conf = Some("/nowhere/ceph.conf".into());
    said(
        Connection::open(&ConnectOptions { conf, ..ceph.options() }).err().unwrap(),
        &["/nowhere/ceph.conf cannot be read"],
    );

    // An erasure-coded pool has no omap and takes no overwrites.
    let coded = Pool::open(&connection, "coded", NAMESPACE).unwrap();
    let error = coded.run("a", Operation::SetKeys(&[("a", b"b")])).unwrap_err();
    assert!(matches!(error, RadosError::ErasureCoded { .. }), "{error:?}");
    said(error, &["pool coded is erasure-coded"]);

    // Longer than an object may be.
    create(&pool, "long").unwrap();
    let error = write(&pool, "long", FIRST, 1 << 40, b"x").unwrap_err();
    assert!(matches!(error, RadosError::TooLong { .. }), "{error:?}");

    // A full cluster refuses at once what grows, and lets bytes be overwritten and objects removed.
    connection.command(r#"{"prefix":"osd set-nearfull-ratio","ratio":0.001}"#).unwrap();
    create(&pool, "filling").unwrap();
    let large = vec![7u8; 4 << 20];
    for number in 0..4u64 {
        write(&pool, "filling", FIRST, number << 22, &large).unwrap();
    }
    for which in ["backfillfull", "full"] {
        let command = format!(r#"{{"prefix":"osd set-{which}-ratio","ratio":0.002}}"#);
        connection.command(&command).unwrap();
    }
    let mut end = 4 << 22;
    let error = until(|| {
        end += 4;
        write(&pool, "filling", FIRST, end, b"more").err()
    });
    assert!(matches!(error, RadosError::Full { .. }), "{error:?}");
    write(&pool, "filling", FIRST, 0, b"over").unwrap();
    remove(&pool, "filling").unwrap();
    for (which, ratio) in [("full", 0.95), ("backfillfull", 0.9), ("nearfull", 0.85)] {
        let command = format!(r#"{{"prefix":"osd set-{which}-ratio","ratio":{ratio}}}"#);
        connection.command(&command).unwrap();
    }
    until(|| write(&pool, "long", FIRST, 0, b"fits").ok());

    // A server that is down: given up where that is asked for, and there again afterwards.
    let impatient = ceph.connect_impatiently(Duration::from_secs(5));
    let given_up = Pool::open(&impatient, ceph.pool(1), NAMESPACE).unwrap();
    create(&given_up, "a").unwrap();
    ceph.order("stop 1");
    let error = write(&given_up, "a", FIRST, 0, b"late").unwrap_err();
    assert!(matches!(error, RadosError::TimedOut { .. }), "{error:?}");
    // Of keys that never came nothing is read.
    let error = given_up.keys("a").unwrap_err();
    assert!(matches!(error, RadosError::TimedOut { .. }), "{error:?}");
    ceph.order("continue 1");
    until(|| write(&given_up, "a", FIRST, 4, b"r").ok());

    // One that was shut out learns it from every operation.
    let old = ceph.connect();
    let olds = Pool::open(&old, ceph.pool(2), NAMESPACE).unwrap();
    create(&olds, "a").unwrap();
    connection.shut_out(&old.addresses().unwrap()).unwrap();
    let news = Pool::open(&connection, ceph.pool(2), NAMESPACE).unwrap();
    write(&news, "a", FIRST, 0, b"mine").unwrap();
    let error = write(&olds, "a", FIRST, 0, b"late").unwrap_err();
    assert!(matches!(error, RadosError::Blocklisted { .. }), "{error:?}");
    assert_eq!(read(&news, "a", FIRST, 0, 9).unwrap(), b"mine");
}

#[test]
fn no_monitor_and_no_permission_are_told_apart() {
    let Some(ceph) = Ceph::start(&["--osds", "1", "--auth"]) else { return };
    let connection = ceph.connect();
    let conf = ceph.options().conf.unwrap();
    let directory = conf.parent().unwrap();
    // Somebody without a key, and somebody who may read only.
    let nobody = ConnectOptions { user: "nobody".to_owned(), ..ceph.options() };
    let error = Connection::open(&nobody).err().unwrap();
    assert!(error.to_string().contains("client.nobody") || error.to_string().contains("Ceph"), "{error}");
    let command =
        r#"{"prefix":"auth get-or-create","entity":"client.reader","caps":["mon","allow r","osd","allow r"]}"#;
    let keyring = connection.command(command).unwrap();
    std::fs::write(directory.join("client.reader.keyring"), keyring).unwrap();
    let reader = Connection::open(&ConnectOptions { user: "reader".to_owned(), ..ceph.options() }).unwrap();
    let pool = Pool::open(&reader, ceph.pool(0), NAMESPACE).unwrap();
    let error = create(&pool, "a").unwrap_err();
    assert!(matches!(error, RadosError::Denied { .. }), "{error:?}");
    let error = reader.shut_out(&connection.addresses().unwrap()).unwrap_err();
    assert!(matches!(error, RadosError::Denied { .. }), "{error:?}");
    // Nobody listens there.
    let elsewhere = directory.join("elsewhere.conf");
    std::fs::write(&elsewhere, "[global]\nmon host = [v2:127.0.0.1:1/0]\n").unwrap();
    let patience = ConnectOptions { conf: Some(elsewhere), monitor_patience: Duration::from_secs(1), ..ceph.options() };
    let error = Connection::open(&patience).err().unwrap();
    assert!(matches!(error, RadosError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("elsewhere.conf"), "{error}");
}

#[test]
fn what_was_acknowledged_survives_the_death_of_its_server() {
    let Some(mut ceph) = Ceph::start(&["--osds", "1", "--store", "bluestore"]) else { return };
    let connection = ceph.connect();
    let pool = Pool::open(&connection, ceph.pool(0), NAMESPACE).unwrap();
    create(&pool, "a").unwrap();
    write(&pool, "a", FIRST, 0, &[7; 100_000]).unwrap();
    ceph.order("kill 0");
    ceph.order("start 0");
    assert_eq!(read(&pool, "a", FIRST, 0, 200_000).unwrap(), [7; 100_000]);
}

/// Asks until there is an answer; panics after a minute.
fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(std::time::Instant::now() < end, "not within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}
