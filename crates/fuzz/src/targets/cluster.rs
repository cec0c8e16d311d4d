//! `cluster.toml`.

use crate::Outcome;
use std::collections::BTreeSet;
use std::path::Path;
use stripewise_broker::description::{Described, Head, Line, Sequence, line};
use stripewise_layout::{Cluster, Layout, Placement, ServerClass};
use stripewise_store::stub::Stub;

pub fn run(bytes: &[u8]) -> Outcome {
    let path = Path::new("/somewhere/cluster.toml");
    let Ok(text) = std::str::from_utf8(bytes) else { return Outcome::Refused };
    let cluster = match Cluster::parse(text, path) {
        Ok(cluster) => cluster,
        Err(error) => {
            assert!(error.to_string().contains("cluster.toml"), "{error}");
            return Outcome::Refused;
        }
    };
    assert_eq!(cluster.check(), Ok(()));
    assert_eq!(Cluster::parse(&cluster.to_toml(), path).unwrap(), cluster);
    check_servers(&cluster);
    check_id(&cluster);
    Outcome::Read
}

fn check_servers(cluster: &Cluster) {
    let slot_bytes = cluster.fragment_slot().0;
    for id in cluster.ids() {
        let server = cluster.server(id).unwrap();
        assert!(server.url.directory().is_absolute());
        match (cluster.room_bytes(id), server.capacity) {
            (Some(usable), Some(capacity)) => assert!(usable > 0 && usable <= capacity.0),
            (usable, capacity) => assert!(usable.is_none() && capacity.is_none()),
        }
        if let Some(log) = cluster.fragment_log(id) {
            assert!(log.capacity.0 >= slot_bytes && log.capacity.0.is_multiple_of(slot_bytes));
            assert_eq!(cluster.server(log.on).unwrap().class, ServerClass::Ssd);
            assert!(cluster.set_aside_bytes(log.on) >= log.capacity.0);
        }
    }
    let all = Layout::new(cluster.ids().map(|id| (id, 65_536))).unwrap();
    let first = cluster.ids().take(1).collect::<BTreeSet<_>>();
    let without = cluster.layout_without(&all, &first);
    assert_eq!(without.is_some(), cluster.servers.len() > 1);
    let placement = Placement::uniform(cluster.region_size, without.unwrap_or(all.clone()), all);
    assert_eq!(placement.check(cluster.servers.len()), Ok(()));
    crate::layouts::check_placement(&placement, cluster.servers.len());
}

/// Stubs and descriptions carry the id among other words.
fn check_id(cluster: &Cluster) {
    let head = Head {
        file: stripewise_layout::FileId(7),
        cluster: cluster.id.clone(),
        region_bytes: cluster.region_size.0,
        mode: 0o640,
        uid: 1,
        gid: 1,
        path: "/data/a b".to_owned(),
    };
    let mut described = Described::default();
    described.add(&line(Sequence { broker: 1, step: 1 }, &Line::File(head.clone())));
    assert_eq!((described.head(), described.damaged_lines), (Some(&head), 0));
    let stub = Stub { file: head.file, cluster: cluster.id.clone(), state: "/somewhere/state".into() };
    if let Ok(text) = stub.to_bytes() {
        assert_eq!(Stub::parse(&text), Ok(Some(stub)));
    }
}
