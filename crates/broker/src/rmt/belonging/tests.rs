use super::super::tests::record;
use super::super::{LogRecord, ManagedDirectory, NameKind, RegionRecord, ReplicaRecord, begin_in_memory};
use super::*;
use stripewise_layout::{ByteCount, Generation, Placement, RegionIndex, Server, ServerClass};
use stripewise_store::protocol::WantedReplicas;

const FILE: FileId = FileId(7);

fn cluster(names: &[&str]) -> Cluster {
    let server = |name: &&str| {
        let class = if name.starts_with('h') { ServerClass::Hdd } else { ServerClass::Ssd };
        Server::new(*name, class, format!("file:///{name}").parse().unwrap())
    };
    Cluster::new("c", "/state", ByteCount(1 << 20), names.iter().map(server).collect())
}

fn on(servers: &[u16]) -> Layout {
    Layout::new(servers.iter().map(|server| (ServerId(*server), 4096))).unwrap()
}

/// Of the servers h0, h1, s0 and s1.
fn table() -> Table {
    let table = begin_in_memory().unwrap();
    let servers = ["h0", "h1", "s0", "s1"].map(str::to_owned).to_vec();
    table.belong_to(&ClusterRecord { id: "c".to_owned(), servers }).unwrap();
    let mut changes = Changes::default();
    changes.put_file(FILE, &record("/data/file"));
    changes.put_region(FILE, RegionIndex(0), &RegionRecord::placed(Generation(1), on(&[0, 1, 2])));
    table.commit(&changes).unwrap();
    table
}

fn refusal(table: &Table, listed: &[&str], drained: &[&str]) -> String {
    let drained: Vec<String> = drained.iter().map(|name| (*name).to_owned()).collect();
    Forgetting::of(table, &cluster(listed), &drained).err().unwrap().to_string()
}

fn known(table: &Table) -> Vec<String> {
    table.get::<ClusterRecord>(b"c").unwrap().unwrap().servers
}

#[test]
fn servers_that_nothing_means_are_forgotten_or_give_way_to_others() {
    let table = table();
    super::super::note_drained(&table, "s1", true).unwrap();
    super::super::note_drained(&table, "h1", true).unwrap();
    let forgetting = Forgetting::of(&table, &cluster(&["h0", "h1", "s0"]), &[]).unwrap();
    assert_eq!(forgetting.commit(&table).unwrap(), ["s1"]);
    assert_eq!(known(&table), ["h0", "h1", "s0"]);
    assert_eq!(super::super::drained_in(&table).unwrap(), ["h1"], "a later one of that name is not");
    let added = ["h0", "h1", "s0", "typing-error"].map(str::to_owned).to_vec();
    table.belong_to(&ClusterRecord { id: "c".to_owned(), servers: added }).unwrap();
    let forgetting = Forgetting::of(&table, &cluster(&["h0", "h1", "s0", "s9", "s10"]), &[]).unwrap();
    assert_eq!(forgetting.commit(&table).unwrap(), ["typing-error"]);
    assert_eq!(known(&table), ["h0", "h1", "s0", "s9", "s10"]);
    // Neither one in the middle nor another order.
    for listed in [&["h0", "s0", "s9", "s10"][..], &["h1", "h0", "s0", "s9", "s10"], &["h0"]] {
        let said = refusal(&table, listed, &[]);
        assert!(said.contains("region 0 of /data/file names"), "{said}");
    }
    assert_eq!(known(&table), ["h0", "h1", "s0", "s9", "s10"]);
}

#[test]
fn whatever_may_be_on_a_server_keeps_it() {
    type Put = Box<dyn Fn(&mut Changes)>;
    type Remove = fn(&mut Changes);
    let log = |on, disk| {
        move |changes: &mut Changes| changes.put_log(FILE, disk, LogRecord { on, generation: Generation(2) })
    };
    let narrow = || RegionRecord { wide: Some(on(&[0, 3])), ..RegionRecord::placed(Generation(2), on(&[0])) };
    let kinds: [(&str, Put, Remove); 6] = [
        (
            "region 1 of /data/file names s1",
            Box::new(|changes| {
                changes.put_region(FILE, RegionIndex(1), &RegionRecord::placed(Generation(2), on(&[0, 3])))
            }),
            |changes| changes.remove_region(FILE, RegionIndex(1)),
        ),
        (
            "region 1 of /data/file names s1",
            Box::new(move |changes| changes.put_region(FILE, RegionIndex(1), &narrow())),
            |changes| changes.remove_region(FILE, RegionIndex(1)),
        ),
        (
            "a replica of region 1 of /data/file names s1",
            Box::new(|changes| {
                let replica = ReplicaRecord { generation: Generation(2), layout: on(&[3]) };
                changes.put_replica(FILE, RegionIndex(1), 0, &replica);
            }),
            |changes| changes.remove_replica(FILE, RegionIndex(1), 0),
        ),
        ("the log of the fragments of /data/file names s1", Box::new(log(ServerId(3), ServerId(0))), |changes| {
            changes.remove_log(FILE, ServerId(0))
        }),
        ("the log of the fragments of /data/file names s1", Box::new(log(ServerId(2), ServerId(3))), |changes| {
            changes.remove_log(FILE, ServerId(3))
        }),
        (
            "what is still to be removed of region 1 of /data/file names s1",
            Box::new(|changes| changes.put_discard(FILE, RegionIndex(1), Generation(2), &on(&[1, 3]))),
            |changes| changes.remove_discard(FILE, RegionIndex(1), Generation(2)),
        ),
    ];
    for (expected, put, remove) in kinds {
        let table = table();
        let mut changes = Changes::default();
        put(&mut changes);
        table.commit(&changes).unwrap();
        let said = refusal(&table, &["h0", "h1", "s0"], &["s1"]);
        assert!(said.contains(expected) && said.contains("`stripewise evacuate s1`"), "{said}");
        let mut changes = Changes::default();
        remove(&mut changes);
        table.commit(&changes).unwrap();
        Forgetting::of(&table, &cluster(&["h0", "h1", "s0"]), &[]).unwrap().commit(&table).unwrap();
    }
}

#[test]
fn placements_go_on_without_a_drained_server() {
    let table = table();
    let placement = |servers: &[u16]| Placement::uniform(ByteCount(1 << 20), on(servers), on(&[0, 1]));
    let wanted = |servers: &[u16]| vec![WantedReplicas { first: RegionIndex(0), regions: 2, layout: on(servers) }];
    let listed = ["h0", "h1", "s0"];
    let mut changes = Changes::default();
    changes.put_placement(FILE, &placement(&[0, 3]));
    changes.put_wanted(FILE, &wanted(&[3]));
    changes.put_name(NameKind::Expected, "/data/next", &placement(&[0, 1, 2, 3])).unwrap();
    changes.expect_replicas("/data/next", &wanted(&[2, 3])).unwrap();
    table.commit(&changes).unwrap();
    let directory = |servers: &[u16]| ManagedDirectory { placement: placement(servers), min_bytes: Some(4096) };
    table.set_directory("/data", &directory(&[3])).unwrap();
    let said = refusal(&table, &listed, &[]);
    assert!(said.contains("the placement of /data/file names s1"), "{said}");
    assert_eq!(known(&table).len(), 4);
    Forgetting::of(&table, &cluster(&listed), &["s1".to_owned()]).unwrap().commit(&table).unwrap();
    assert_eq!(table.placement(FILE).unwrap(), Some(placement(&[0])));
    // Where it was alone, the others of the cluster take its place, as no class is known of it any more.
    assert_eq!(table.wanted(FILE).unwrap(), wanted(&[0, 1, 2]));
    assert_eq!(table.directories().unwrap(), [("/data".to_owned(), directory(&[0, 1, 2]))]);
    assert_eq!(table.names(NameKind::Expected).unwrap(), [("/data/next".to_owned(), placement(&[0, 1, 2]))]);
    assert_eq!(table.expected_replicas("/data/next").unwrap(), wanted(&[2]));
    // Who only manages directories names them as well.
    table.set_directory("/other", &directory(&[2])).unwrap();
    let mut changes = Changes::default();
    changes.remove_region(FILE, RegionIndex(0));
    table.commit(&changes).unwrap();
    let said = refusal(&table, &["h0", "h1"], &[]);
    assert!(said.contains("a plan for /data/next names s0") || said.contains("the managed directory /"), "{said}");
}
