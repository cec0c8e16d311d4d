//! Servers that are pools of a real Ceph: the same files, moves and checks as on directories. Skipped, and said so, where no Ceph can be had.
//!
//! Data goes through the lanes of the processes that read and write, and the broker's connection to Ceph.

use crate::ceph::Ceph;
use crate::model::agrees_with_a_vector_in;
use crate::moves::{REGION, all_done, check, layout, order, start_moves, wait_for};
use crate::world::{World, open_stub, read, write};
use std::sync::Arc;
use stripewise_broker::rados::{Connection, Epoch, Operation, Pool, RadosError, RadosServer, prepare};
use stripewise_layout::{ByteCount, FileId, FileOffset, Placement};
use stripewise_store::server::{ObjectStore, ServerError};

/// The cluster of every world.
const CLUSTER: &str = "c0ffee";

/// A cluster whose servers are pools.
struct OnCeph {
    world: World,
    connection: Arc<Connection>,
    ceph: Ceph,
}

impl OnCeph {
    fn start(servers: usize) -> Option<Self> {
        let ceph = Ceph::start(&["--osds", &servers.to_string()])?;
        let url = |directory: &str| {
            let number: usize = directory.rsplit_once('s').unwrap().1.parse().unwrap();
            format!("rados://{}?conf={}", ceph.pool(number), ceph.options().conf.unwrap().display())
        };
        let (world, connection) = (World::with_urls(servers, url), ceph.connect());
        for number in 0..servers {
            prepare(&connection, CLUSTER, &format!("s{number}"), ceph.pool(number)).unwrap();
        }
        Some(Self { world, connection, ceph })
    }

    fn pool(&self, number: usize) -> Pool {
        Pool::open(&self.connection, self.ceph.pool(number), &format!("stripewise-{CLUSTER}")).unwrap()
    }

    /// Names of the objects that hold data, by server.
    fn objects(&self, servers: usize) -> Vec<Vec<String>> {
        let of = |number| self.pool(number).list().unwrap().into_iter().filter(|name| name.contains('/')).collect();
        (0..servers).map(of).collect()
    }
}

#[test]
fn a_striped_file_in_pools_of_ceph_is_a_vector_of_bytes() {
    let Some(cluster) = OnCeph::start(5) else { return };
    let _broker = cluster.world.broker();
    agrees_with_a_vector_in(30, &cluster.world, &cluster.world.client());
    assert!(cluster.world.objects().is_empty(), "the directories got objects");
}

#[test]
fn regions_move_between_pools_and_nothing_is_left_behind() {
    let Some(cluster) = OnCeph::start(4) else { return };
    let world = &cluster.world;
    let broker = world.broker();
    let client = world.client();
    let first = layout(&[(0, 4096), (1, 4096)]);
    let placement = Placement::from_regions(ByteCount(REGION), [], first.clone(), first);
    let (stub, file) = world.create(&client, "moved", placement);
    let bytes: Vec<u8> = (0..3 * REGION).map(|at| (at * 7 / 3) as u8).collect();
    assert_eq!(write(&file, 0, &bytes), bytes.len());
    assert_eq!(cluster.objects(4).iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 0, 0]);

    let moves = wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 1, &[(2, 8192), (3, 16384)])]));
    all_done(&moves);
    assert_eq!(read(&file, 0, bytes.len()), bytes);
    assert!(check(&client).is_empty(), "{:?}", check(&client));
    // The old objects go once nobody can have seen the old place.
    drop((stub, file, client, broker));

    // A broker that follows finds everything, and a cut cuts the objects.
    let broker = world.broker();
    let client = world.client();
    assert_eq!(cluster.objects(4).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 2, 2]);
    let stub = std::fs::OpenOptions::new().read(true).write(true).open(world.path("moved")).unwrap();
    let file = open_stub(&client, &stub);
    assert_eq!(read(&file, 0, bytes.len()), bytes);
    file.truncate(10_000).unwrap();
    file.truncate(20_000).unwrap();
    let mut expected = bytes[..10_000].to_vec();
    expected.resize(20_000, 0);
    assert_eq!(read(&file, 0, 30_000), expected);
    assert_eq!(file.write_at(FileOffset(0), &[std::io::IoSlice::new(b"again")]).unwrap(), 5);
    drop((file, client, broker));
}

#[test]
fn pools_are_one_server_of_one_cluster_and_an_agent_that_follows_shuts_the_last_one_out() {
    let Some(cluster) = OnCeph::start(3) else { return };
    let first = RadosServer::open(&cluster.connection, CLUSTER, "s0", cluster.ceph.pool(0)).unwrap();
    assert!((1 << 20..1 << 30).contains(&first.free_bytes().unwrap()), "{:?}", first.free_bytes());
    let second = RadosServer::open(&cluster.connection, CLUSTER, "s1", cluster.ceph.pool(1)).unwrap();
    // Without a manager Ceph counts nothing, and the whole quota is left.
    let pool = cluster.ceph.pool(1);
    let quota = |bytes: u64| {
        let command =
            format!(r#"{{"prefix":"osd pool set-quota","pool":"{pool}","field":"max_bytes","val":"{bytes}"}}"#);
        cluster.connection.command(&command).unwrap();
    };
    quota(5 << 20);
    let standing = second.standing().unwrap();
    assert_eq!((standing.free_bytes, standing.total_bytes), (5 << 20, 5 << 20));
    assert!(first.free_bytes().unwrap() > 5 << 20);
    quota(0);
    assert!(second.free_bytes().unwrap() > 5 << 20);
    assert_ne!(first.standing().unwrap().file_system, second.standing().unwrap().file_system);

    // Of a file that has no region on this server and so no names there: a truncation was not described on pools.
    let length = second.describe(FileId(5), "head\n", "a line\n").unwrap();
    assert_eq!(second.describe(FileId(5), "head\n", "another\n").unwrap(), length + 8);
    let text = "stripewise description 1\nhead\na line\nanother\n".to_owned();
    assert_eq!(second.descriptions().unwrap(), [(FileId(5), text)]);

    let said = |result: Result<RadosServer, ServerError>, expected: &str| {
        let text = result.err().unwrap().to_string();
        assert!(text.contains(expected), "{text}");
    };
    let open =
        |cluster_id: &str, name: &str, pool: &str| RadosServer::open(&cluster.connection, cluster_id, name, pool);
    said(open(CLUSTER, "s1", cluster.ceph.pool(0)), "is server s0 of this cluster");
    said(open("another", "s0", cluster.ceph.pool(0)), "holds nothing of cluster another");
    said(open(CLUSTER, "s0", "nowhere"), "there is no pool nowhere");
    let error = prepare(&cluster.connection, CLUSTER, "s1", cluster.ceph.pool(0)).unwrap_err();
    assert!(error.to_string().contains("is server s0 of this cluster already"), "{error}");
    let error = prepare(&cluster.connection, CLUSTER, "s3", "coded").unwrap_err();
    assert!(error.to_string().contains("pool coded is erasure-coded"), "{error}");

    // Another agent takes the server over: whatever the first one sends takes no effect.
    let next = cluster.ceph.connect();
    RadosServer::open(&next, CLUSTER, "s0", cluster.ceph.pool(0)).unwrap();
    let late = cluster.pool(0).run("late", Operation::Create { epoch: Epoch::FIRST }).unwrap_err();
    assert!(matches!(late, RadosError::Blocklisted { .. }), "{late:?}");
}
