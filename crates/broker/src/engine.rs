//! The engine that holds the table of a cluster of many hosts, and elects its master: which one the cluster file names.

use crate::BrokerError;
use crate::coordination::Coordinator;
use crate::etcd::{EtcdCoordinator, EtcdOptions};
use crate::rados::{RadosCoordinator, RadosOptions};
use std::sync::Arc;
use stripewise_layout::{Cluster, Coordinator as Coordination};

/// The engine that the cluster file names.
pub(crate) fn coordinator_of(
    cluster: &Cluster,
    coordination: &Coordination,
) -> Result<Arc<dyn Coordinator>, BrokerError> {
    let fault = |what: String| BrokerError::Coordinator { what };
    if let Some(options) = RadosOptions::of(coordination) {
        let coordinator = RadosCoordinator::new(&options, &cluster.id).map_err(|error| fault(error.to_string()))?;
        return Ok(Arc::new(coordinator));
    }
    let mut options = EtcdOptions::new(coordination.etcd.clone());
    options.tls.ca.clone_from(&coordination.etcd_ca);
    options.tls.certificate = coordination.etcd_certificate.clone().zip(coordination.etcd_key.clone());
    Ok(Arc::new(EtcdCoordinator::new(&options, &cluster.id).map_err(|error| fault(error.to_string()))?))
}

/// Where the table is, as messages name it.
pub(crate) fn name_of(coordination: &Coordination) -> String {
    match &coordination.rados {
        Some(pool) => format!("pool {pool}"),
        None => format!("etcd at {}", coordination.etcd.join(", ")),
    }
}
