//! Finding and repairing orphans, lost stubs, faulty servers and a damaged mapping table.

use crate::session::{Session, SessionError};
use crate::store::{Store, StoreError};
use serde::Serialize;
use stripewise_broker::{Broker, BrokerError};
use stripewise_layout::Cluster;
use stripewise_store::protocol::{Admin, Finding, Reply};
use stripewise_store::state::StateError;
use thiserror::Error;

/// Why a cluster cannot be checked.
#[derive(Debug, Error)]
pub enum CheckError {
    /// Which cluster is meant is not known.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The mapping table cannot be read or rebuilt.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The cluster cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a check found.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Checked {
    /// Empty when nothing is wrong.
    pub findings: Vec<Finding>,
}

impl Checked {
    /// Whether something was found that is not repaired.
    pub fn has_open_findings(&self) -> bool {
        self.findings.iter().any(|finding| !finding.repaired)
    }
}

/// Checks the cluster. With `repair`, stubs are restored, what belongs to no file is freed, and a
/// damaged mapping table, or a lost state directory, is rebuilt from the servers; then nothing else is repaired.
///
/// # Errors
///
/// [`CheckError`]; faults that are found are no error.
pub fn check(session: &Session, repair: bool) -> Result<Checked, CheckError> {
    // Before any broker: none starts over a damaged table.
    let cluster = session.cluster()?;
    let damages = match Broker::table_damages(&cluster) {
        Err(BrokerError::State(error @ StateError::Lost { .. })) if repair => vec![error.to_string()],
        damages => damages?,
    };
    if !damages.is_empty() && !repair {
        return Ok(Checked { findings: damages.into_iter().map(damaged).collect() });
    }
    let mut findings = if damages.is_empty() { Vec::new() } else { rebuild_table(&cluster, damages)? };
    // What no record of a new table names is looked at by a person before it is removed.
    let repair = repair && findings.is_empty();
    let store = Store::open(session)?;
    let Reply::Findings { findings: found } = store.admin(Admin::Check { repair })? else {
        return Err(StoreError::Answer { question: "a check" }.into());
    };
    findings.extend(found);
    Ok(Checked { findings })
}

fn rebuild_table(cluster: &Cluster, damages: Vec<String>) -> Result<Vec<Finding>, BrokerError> {
    let done = Broker::rebuild_table(cluster)?;
    let repaired = |what: String| Finding { remedy: String::new(), repaired: true, ..damaged(what) };
    Ok(damages.into_iter().chain(done).map(repaired).collect())
}

fn damaged(what: String) -> Finding {
    Finding {
        what: format!("mapping table: {what}"),
        remedy: "end all programs that use the cluster, then `stripewise check --repair`".to_owned(),
        repaired: false,
    }
}
