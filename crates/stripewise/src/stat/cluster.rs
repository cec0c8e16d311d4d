//! What is known of a cluster as a whole: hosts, their master, the engine that they share, moves and servers.

use crate::hosts::{self, Host};
use crate::migrate::{self, MigrateError, MigrateMove, MigrateTotals};
use crate::store::{Store, StoreError};
use serde::Serialize;
use stripewise_layout::{Coordinator, Server, ServerClass};
use stripewise_store::protocol::ServerUsage;
use thiserror::Error;

/// Why nothing is known of a cluster.
#[derive(Debug, Error)]
pub enum ClusterStatError {
    /// Whoever serves this host cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Moves are not listed.
    #[error(transparent)]
    Migrate(#[from] MigrateError),
}

/// A cluster.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ClusterStat {
    /// As in cluster.toml.
    pub id: String,
    /// The engine with the mapping table; `null`: the cluster has one host, whose state directory has the table.
    pub coordinator: Option<CoordinatorStat>,
    /// The host that changes the mapping table.
    pub master: String,
    /// Of its election, higher than that of every master before; `null`: the cluster has one host.
    pub term: Option<u64>,
    /// The fingerprint of the key by which the hosts know each other; `null`: the cluster has one host.
    pub key: Option<String>,
    /// The hosts that use the cluster now or are waited for, the master first.
    pub hosts: Vec<Host>,
    /// Moves of regions since the master began.
    pub moves: MigrateTotals,
    /// Those that have begun and not ended.
    pub moves_under_way: Vec<MigrateMove>,
    /// In cluster order.
    pub servers: Vec<ServerStat>,
}

/// The engine that hosts share.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct CoordinatorStat {
    /// `etcd` or `rados`.
    pub engine: &'static str,
    /// Where it is: endpoints of etcd, or the pool.
    pub endpoints: Vec<String>,
    /// Why the master cannot use it; `null`: it answers.
    pub fault: Option<String>,
}

/// A server.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ServerStat {
    /// As in cluster.toml.
    pub name: String,
    /// As in cluster.toml.
    pub class: ServerClass,
    /// As in cluster.toml, absolute.
    pub url: String,
    /// Bytes that placed regions may come to occupy.
    pub promised_bytes: u64,
    /// Bytes that may be promised in all; `null`: not known.
    pub capacity_bytes: Option<u64>,
    /// Objects of places and replicas.
    pub objects: u64,
    /// Nothing new is placed there.
    pub drained: bool,
    /// Why it cannot be used now; `null`: it can.
    pub fault: Option<String>,
}

impl CoordinatorStat {
    fn of(coordinator: &Coordinator, answer: Result<(), String>) -> Self {
        let fault = answer.err();
        match &coordinator.rados {
            Some(pool) => Self { engine: "rados", endpoints: vec![format!("pool {pool}")], fault },
            None => Self { engine: "etcd", endpoints: coordinator.etcd.clone(), fault },
        }
    }
}

/// What is known of the cluster.
///
/// # Errors
///
/// [`ClusterStatError`].
pub fn cluster_stat(store: &Store) -> Result<ClusterStat, ClusterStatError> {
    let known = hosts::ask(store)?;
    let moves = migrate::status(store)?;
    let coordinator = store.cluster.coordinator.as_ref();
    let server = |(usage, server): (ServerUsage, &Server)| ServerStat {
        name: usage.name,
        class: server.class,
        url: server.url.to_string(),
        promised_bytes: usage.promised_bytes,
        capacity_bytes: usage.room_bytes,
        objects: usage.objects,
        drained: usage.drained,
        fault: usage.fault,
    };
    let is_under_way = |moving: &MigrateMove| !moving.has_ended() && moving.state != "queued";
    Ok(ClusterStat {
        id: store.cluster.id.clone(),
        coordinator: coordinator.map(|coordinator| CoordinatorStat::of(coordinator, known.coordinator)),
        master: known.hosts.iter().find(|host| host.is_master).map(|host| host.name.clone()).unwrap_or_default(),
        term: known.term,
        key: known.key,
        hosts: known.hosts,
        moves: moves.totals,
        moves_under_way: moves.moves.into_iter().filter(is_under_way).collect(),
        servers: store.usage()?.into_iter().zip(&store.cluster.servers).map(server).collect(),
    })
}
