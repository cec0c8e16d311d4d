use crate::agent_counts::AgentCounts;
use crate::agent_identity::AgentIdentity;
use crate::context::Sharing;
use crate::coordination::Lease;
use crate::host_keys::HostKeys;
use crate::hosts::ClusterKey;
use crate::membership::Membership;
use crate::others::Others;
use crate::rmt::{MappingStore as _, MemoryStore, hosts_in};
use crate::{Broker, BrokerHandle, BrokerOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stripewise_layout::{ByteCount, Cluster, Server, ServerClass, ServerUrl};
use stripewise_store::packet::{self, Buffer, PacketError};
use stripewise_store::protocol::{PROTOCOL_VERSION, Reply, Request};
use stripewise_store::server::directory;
use stripewise_store::state::{StateDirectory, connect};

/// Whether it is answered within so long.
fn is_answered(program: &OwnedFd, milliseconds: i64) -> bool {
    let mut polled = [PollFd::new(program, PollFlags::IN)];
    let patience = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
    poll(&mut polled, Some(&patience)).unwrap() > 0
}

/// A cluster of one server, of which this host is to be master.
struct Seat {
    cluster: Cluster,
    table: Arc<MemoryStore>,
    agent: AgentIdentity,
    root: tempfile::TempDir,
}

impl Seat {
    fn new() -> Self {
        let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let objects = root.path().join("a");
        std::fs::create_dir(&objects).unwrap();
        directory::prepare("c", "a", &objects).unwrap();
        let servers = vec![Server::new("a", ServerClass::Hdd, ServerUrl::new("file", objects))];
        let cluster = Cluster::new("c", root.path().join("state"), ByteCount(64 << 10), servers);
        ClusterKey::make(&root.path().join("key")).unwrap();
        let agent = AgentIdentity { machine: "m".to_owned(), boot: "b".to_owned(), directory: "d".to_owned() };
        Self { cluster, table: Arc::default(), agent, root }
    }

    fn serve(&self, membership: Membership, options: BrokerOptions) -> BrokerHandle {
        let state = StateDirectory::make(&self.cluster.state).unwrap();
        let lock = Arc::new(state.try_lock().unwrap().unwrap());
        let counts = Arc::new(AgentCounts::new(1, Arc::default()));
        let sharing = Sharing {
            table: Box::new(Arc::clone(&self.table)),
            others: Some(Arc::new(Others::new([], Duration::from_secs(60), 0, &counts))),
            first_number: 0,
            membership: Arc::new(membership),
            counts,
            keys: Arc::new(HostKeys::load(&self.root.path().join("key")).unwrap()),
            under_way: Arc::default(),
            agent: self.agent.clone(),
        };
        Broker::serve(&self.cluster, state, lock, options, Some(sharing)).unwrap()
    }
}

/// A program says hello.
fn greet(state: &Path) -> OwnedFd {
    let socket = connect(state).unwrap();
    packet::send(&socket, &Request::Hello { version: PROTOCOL_VERSION }, &[]).unwrap();
    socket
}

/// What it is answered; `None`: its connection was closed.
fn answer_to(program: &OwnedFd) -> Option<Reply> {
    match packet::receive::<Reply>(program, &mut Buffer::default()) {
        Ok((reply, _)) => Some(reply),
        Err(PacketError::Closed) => None,
        Err(error) => panic!("{error}"),
    }
}

/// A lease that ends when a test says so.
#[derive(Default)]
struct Told(AtomicBool);

impl Lease for Told {
    fn is_over(&self) -> bool {
        self.0.load(SeqCst)
    }
}

/// One that had been stopped told a program that its file was closed, after others had cut it.
#[test]
fn a_master_that_others_may_have_followed_answers_no_program() {
    let (seat, lease) = (Seat::new(), Arc::new(Told::default()));
    let membership = Membership::of_master("h1", 1).under(Arc::clone(&lease) as _);
    let broker = seat.serve(membership, BrokerOptions::default());
    let program = greet(&seat.cluster.state);
    assert!(matches!(answer_to(&program), Some(Reply::Welcome { .. })));
    lease.0.store(true, SeqCst);
    packet::send(&program, &Request::SyncAll, &[]).unwrap();
    assert_eq!(answer_to(&program), None, "whoever is master next is asked again");
    assert_eq!(answer_to(&greet(&seat.cluster.state)), None);
    // The lease was only renewed late.
    lease.0.store(false, SeqCst);
    assert!(matches!(answer_to(&greet(&seat.cluster.state)), Some(Reply::Welcome { .. })));
    drop(broker);
}

/// A host whose agent failed in between was not expected by the next master, while its programs had files open.
#[test]
fn a_master_is_noted_as_a_host_before_it_serves_a_program() {
    let (seat, program) = (Seat::new(), Arc::new(OnceLock::new()));
    let (path, noted, asks, own) =
        (seat.cluster.state.clone(), Arc::clone(&seat.table), Arc::clone(&program), seat.agent.clone());
    let steps = move |step: &str| {
        if step == "agent: noted" {
            // Whoever fails now is expected.
            assert_eq!(hosts_in(noted.as_ref()).unwrap(), [("h1".to_owned(), own.clone())]);
            assert_eq!(noted.scan(b"j", None, 9).unwrap().len(), 1, "and known");
            let socket = greet(&path);
            assert!(!is_answered(&socket, 200), "a program is served before that is noted");
            asks.set(socket).unwrap();
        }
    };
    let options = BrokerOptions { steps: Some(Arc::new(steps)), ..BrokerOptions::default() };
    let broker = seat.serve(Membership::of_master("h1", 1), options);
    let reply = answer_to(program.get().expect("it was noted"));
    assert!(matches!(reply, Some(Reply::Welcome { .. })), "{reply:?}");
    drop(broker);
}
