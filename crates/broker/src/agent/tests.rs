//! Agents of one host with an etcd: how a master goes on whose term has hardly any numbers left, and how an agent leaves.

use super::{Agent, Role};
use crate::context::LAST_NUMBERS;
use crate::coordination::NUMBERS_OF_A_TERM;
use crate::coordination::tests::{PATIENCE, PAUSE};
use crate::etcd::tests::server::{self, Etcd};
use crate::hosts::ClusterKey;
use crate::parts::Parts;
use crate::rmt::hosts_in;
use crate::{BrokerOptions, guard};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use stripewise_layout::{ByteCount, Cluster, Coordinator, Server, ServerClass, ServerUrl};
use stripewise_store::server::directory;
use stripewise_store::state::StateDirectory;

/// The term of the agent as master, and its parts; `None`: it has another role, or none.
fn mastership(agent: &Agent) -> Option<(u64, Arc<Parts>)> {
    match &*guard(&agent.shared.role) {
        Some(Role::Master { broker, .. }) => Some((broker.core.context().term()?, Arc::clone(&broker.core))),
        _ => None,
    }
}

/// A cluster of one server in a directory, with its table in the etcd.
fn cluster(etcd: &Etcd, root: &Path) -> Cluster {
    let objects = root.join("a");
    std::fs::create_dir(&objects).unwrap();
    directory::prepare("agents", "a", &objects).unwrap();
    let servers = vec![Server::new("a", ServerClass::Hdd, ServerUrl::new("file", objects))];
    let mut coordination = Coordinator::in_etcd(vec![etcd.endpoint()]);
    (coordination.listen, coordination.key) = (Some("127.0.0.1".to_owned()), root.join("key"));
    ClusterKey::make(&coordination.key).unwrap();
    let mut cluster = Cluster::new("agents", root.join("state"), ByteCount(64 << 10), servers);
    cluster.coordinator = Some(coordination);
    cluster
}

/// The agent of this host.
fn start(cluster: &Cluster) -> Agent {
    let lock = StateDirectory::make(&cluster.state).unwrap().try_lock().unwrap().unwrap();
    let coordination = cluster.coordinator.as_ref().unwrap();
    Agent::start(cluster, coordination, Arc::new(lock), BrokerOptions::default()).unwrap()
}

#[test]
fn a_master_begins_another_term_before_the_numbers_of_its_term_run_out() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let root = server::directory();
    let cluster = cluster(&etcd, root.path());
    let agent = start(&cluster);

    let (term, parts) = mastership(&agent).expect("there is no other host");
    let others = Arc::clone(parts.context().others().unwrap());
    let end = ((term + 1) << NUMBERS_OF_A_TERM) - LAST_NUMBERS;
    while others.next_turn() < end - 2 {}
    assert!(!parts.context().is_term_used_up());
    assert_eq!(others.begins_to_shut_out("h1"), end - 1);
    assert!(!parts.context().is_term_used_up());
    assert_eq!(others.next_turn(), end);
    assert!(parts.context().is_term_used_up());
    drop(parts);

    let deadline = Instant::now() + PATIENCE;
    let (next, parts) = loop {
        match mastership(&agent) {
            Some((found, parts)) if found != term => break (found, parts),
            _ => assert!(Instant::now() < deadline, "the term goes on"),
        }
        std::thread::sleep(PAUSE);
    };
    // What was under way at the end of the term has higher numbers than that.
    let last = end + 1000;
    while others.next_turn() < last {}
    let admission = parts.context().others().unwrap().admit();
    assert!(next > term && admission > last, "a host that was shut out by number {last} is admitted by {admission}");
    assert!(!parts.context().is_term_used_up());
    let log = std::fs::read_to_string(cluster.state.join("log")).unwrap();
    assert_eq!(log.matches("another term begins").count(), 1, "{log}");
}

/// Else every master after it would wait for the host.
#[test]
fn an_agent_that_is_to_end_between_two_roles_says_all_the_same_that_its_host_has_nothing_open() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let root = server::directory();
    let cluster = cluster(&etcd, root.path());
    let mut agent = start(&cluster);
    let table = agent.shared.seat.coordinator.table();
    assert_eq!(hosts_in(table.as_ref()).unwrap().len(), 1);

    *guard(&agent.shared.stopping) = true;
    agent.shared.woken.notify_all();
    agent.thread.take().unwrap().join().unwrap();
    let role = guard(&agent.shared.role).take().unwrap();
    role.end(&agent.shared.seat, false);
    assert_eq!(hosts_in(table.as_ref()).unwrap().len(), 1, "another role was to follow");

    drop(agent);
    assert!(hosts_in(table.as_ref()).unwrap().is_empty());
    assert!(!StateDirectory::make(&cluster.state).unwrap().is_leaving());
}
