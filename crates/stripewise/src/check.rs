//! Finding and repairing orphans, lost stubs, faulty servers and a damaged mapping table.

use crate::rebalance;
use crate::session::{Session, SessionError};
use crate::store::{Store, StoreError};
use serde::Serialize;
use stripewise_broker::{Broker, BrokerError};
use stripewise_layout::{Cluster, ServerId};
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
    /// What a person may want to do besides, one sentence each.
    pub remarks: Vec<String>,
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
        return Ok(Checked { findings: damages.into_iter().map(damaged).collect(), remarks: Vec::new() });
    }
    let mut findings = if damages.is_empty() { Vec::new() } else { rebuild_table(&cluster, damages)? };
    // What no record of a new table names is looked at by a person before it is removed.
    let repair = repair && findings.is_empty();
    let store = Store::open(session)?;
    let Reply::Findings { findings: found } = store.admin(Admin::Check { repair })? else {
        return Err(StoreError::Answer { question: "a check" }.into());
    };
    findings.extend(found);
    let mut added = added(&store)?;
    for finding in findings.iter_mut().filter(|finding| !finding.repaired) {
        let is_of = |name: &String| finding.what.starts_with(&format!("server {name}: "));
        if let Some(at) = added.iter().position(is_of) {
            let name = added.remove(at);
            finding.remedy = format!(
                "if {name} was added to cluster.toml, `stripewise rebalance` prepares it and lays the files that are there over it; otherwise {}",
                finding.remedy
            );
        }
    }
    let remarks = rebalance_remark(&added).into_iter().collect();
    Ok(Checked { findings, remarks })
}

/// Names of servers that were added and hold nothing yet, where others of their class do.
fn added(store: &Store) -> Result<Vec<String>, StoreError> {
    let usage = store.usage()?;
    let class = |id: &ServerId| store.cluster.servers[usize::from(id.0)].class;
    let holds = |id: &ServerId| usage[usize::from(id.0)].objects > 0;
    let is_due = |id: &ServerId| store.cluster.ids().any(|other| holds(&other) && class(&other) == class(id));
    let added = rebalance::appended(&usage).into_iter().filter(is_due);
    Ok(added.map(|id| usage[usize::from(id.0)].name.clone()).collect())
}

fn rebalance_remark(names: &[String]) -> Option<String> {
    let (hold, them) = if names.len() == 1 { ("holds", "it") } else { ("hold", "them") };
    let names = if names.is_empty() { return None } else { names.join(", ") };
    Some(format!("{names} {hold} nothing yet; `stripewise rebalance` lays the files that are there over {them} too"))
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
