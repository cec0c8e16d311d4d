use crate::agent_counts::AgentCounts;
use crate::agent_identity::AgentIdentity;
use crate::context::Sharing;
use crate::host_keys::HostKeys;
use crate::hosts::ClusterKey;
use crate::membership::Membership;
use crate::others::Others;
use crate::rmt::{MappingStore as _, MemoryStore, hosts_in};
use crate::{Broker, BrokerOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stripewise_layout::{ByteCount, Cluster, Server, ServerClass, ServerUrl};
use stripewise_store::packet::{self, Buffer};
use stripewise_store::protocol::{PROTOCOL_VERSION, Reply, Request};
use stripewise_store::server::directory;
use stripewise_store::state::{StateDirectory, connect};

/// Whether it is answered within so long.
fn is_answered(program: &OwnedFd, milliseconds: i64) -> bool {
    let mut polled = [PollFd::new(program, PollFlags::IN)];
    let patience = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
    poll(&mut polled, Some(&patience)).unwrap() > 0
}

/// A host whose agent failed in between was not expected by the next master, while its programs had files open.
#[test]
fn a_master_is_noted_as_a_host_before_it_serves_a_program() {
    let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let objects = root.path().join("a");
    std::fs::create_dir(&objects).unwrap();
    directory::prepare("c", "a", &objects).unwrap();
    let servers = vec![Server::new("a", ServerClass::Hdd, ServerUrl::new("file", objects))];
    let cluster = Cluster::new("c", root.path().join("state"), ByteCount(64 << 10), servers);
    let state = StateDirectory::open(&cluster.state).unwrap();
    let lock = Arc::new(state.try_lock().unwrap().unwrap());
    let key = root.path().join("key");
    ClusterKey::make(&key).unwrap();
    let (table, program) = (Arc::new(MemoryStore::default()), Arc::new(OnceLock::new()));
    let agent = AgentIdentity { machine: "m".to_owned(), boot: "b".to_owned(), directory: "d".to_owned() };
    let counts = Arc::new(AgentCounts::new(1, Arc::default()));
    let sharing = Sharing {
        table: Box::new(Arc::clone(&table)),
        others: Some(Arc::new(Others::new([], Duration::from_secs(60), 0, &counts))),
        first_number: 0,
        membership: Arc::new(Membership::of_master("h1", 1)),
        counts,
        keys: Arc::new(HostKeys::load(&key).unwrap()),
        under_way: Arc::default(),
        agent: agent.clone(),
    };
    let (path, noted, asks, own) = (cluster.state.clone(), Arc::clone(&table), Arc::clone(&program), agent.clone());
    let steps = move |step: &str| {
        if step == "agent: noted" {
            // Whoever fails now is expected.
            assert_eq!(hosts_in(noted.as_ref()).unwrap(), [("h1".to_owned(), own.clone())]);
            assert_eq!(noted.scan(b"j", None, 9).unwrap().len(), 1, "and known");
            let socket = connect(&path).unwrap();
            packet::send(&socket, &Request::Hello { version: PROTOCOL_VERSION }, &[]).unwrap();
            assert!(!is_answered(&socket, 200), "a program is served before that is noted");
            asks.set(socket).unwrap();
        }
    };
    let options = BrokerOptions { steps: Some(Arc::new(steps)), ..BrokerOptions::default() };
    let broker = Broker::serve(&cluster, state, lock, options, Some(sharing)).unwrap();
    let program: &OwnedFd = program.get().expect("it was noted");
    let (reply, _) = packet::receive::<Reply>(program, &mut Buffer::default()).unwrap();
    assert!(matches!(reply, Reply::Welcome { .. }), "{reply:?}");
    drop(broker);
}
