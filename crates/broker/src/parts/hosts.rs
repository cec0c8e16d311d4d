//! What the agents of other hosts ask beside the requests of programs.

#[cfg(test)]
mod tests;

use super::Parts;
use crate::agent_identity::AgentIdentity;
use crate::connection::Connection;
use crate::context::Context;
use crate::fencing;
use crate::guard;
use crate::held::in_run;
use crate::host_keys::HostKeys;
use crate::host_messages::Known;
use crate::log::note;
use crate::managed::{Managed, unknown};
use crate::membership::{Leave, Membership};
use crate::proof::Granted;
use crate::rmt::{KnownHosts, RmtError, probe};
use crate::sizes::{self, SizeFault};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use stripewise_layout::FileId;
use stripewise_store::protocol::{AgentRole, HostInfo, Refusal, Reply};
use stripewise_store::server::ServerError;

/// For how long a program waits for a server that knows how long a file is. Less than followers wait for an answer.
const SERVER_PATIENCE: Duration = Duration::from_secs(30);
/// How often the server is asked meanwhile.
const SERVER_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Files that programs of this host have open.
fn used_files(parts: &Parts) -> u64 {
    let is_used = |managed: &Arc<Managed>| !parts.base.quiescing.users(managed).is_empty();
    let ids = parts.base.files.ids().into_iter();
    ids.filter_map(|file| parts.base.files.if_loaded(file)).filter(is_used).count() as u64
}

/// Why a host is not forgotten.
fn answers(host: &str) -> Refusal {
    Refusal::Invalid {
        what: format!("host {host} answers; end the programs and the agent there, and it leaves by itself"),
    }
}

/// What this host's agent has counted.
pub(super) fn agent_report(parts: &Parts) -> Reply {
    let (context, files) = (&parts.base.context, used_files(parts));
    let role = if context.others().is_some() { AgentRole::Master } else { AgentRole::Alone };
    let moves = Some(parts.regions.queue.totals());
    Reply::Agent(Box::new(context.counts().report(role, files, moves)))
}

/// Whether a program here has a file open, also one that was never asked for while this host was master.
fn is_in_use(parts: &Parts) -> bool {
    in_run(&parts.base.context).iter().any(|held| held.is_used)
}

/// Before programs of this host are served by its master: whoever is master next expects the host, whatever it opens from here on.
pub(super) fn note_own_host(context: &Context) -> Result<(), RmtError> {
    let (Some(own), Some(agent)) = (context.membership(), context.agent()) else { return Ok(()) };
    context.table().note_host(own.host(), Some(agent))?;
    KnownHosts(context.table()).note(own.host(), true)?;
    context.table().note_back(own.host(), agent)?;
    context.step("agent: noted");
    Ok(())
}

/// This host's agent ends: the next master waits for the host only if programs here still have files open.
pub(crate) fn leave_as(parts: &Parts, host: &str) -> Leave {
    if is_in_use(parts) {
        return Leave::Stays;
    }
    match parts.base.context.table().note_host(host, None) {
        Ok(()) => Leave::Said,
        Err(error) => {
            note!(parts.base.context.log(), warn, %error, "this host is expected by the next master");
            Leave::Unheard
        }
    }
}

/// Nobody here is served any more. A program that opened a file after all, since this host has left, is waited for by the next master.
pub(crate) fn has_left_as(parts: &Parts, host: &str, agent: &AgentIdentity) -> Leave {
    if !is_in_use(parts) {
        parts.lifecycle.forget_as_master();
        return Leave::Said;
    }
    if let Err(error) = parts.base.context.table().note_host(host, Some(agent)) {
        note!(parts.base.context.log(), warn, %error, "programs here have files open, which the next master does not know");
    }
    Leave::Stays
}

impl Parts {
    pub(crate) fn managed(&self, file: FileId) -> Result<Arc<Managed>, Refusal> {
        self.base.files.managed(file)
    }

    /// All hosts of the cluster, this one first.
    pub(super) fn hosts(&self) -> Reply {
        let context = &self.base.context;
        let uname = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let mut hosts = vec![HostInfo {
            name: context.membership().map_or_else(uname, |membership| membership.host().to_owned()),
            is_master: true,
            answers: true,
            files: Some(used_files(self)),
            agent: Some(context.counts().agent().clone()),
            admission: context.membership().and_then(Membership::admission),
            unheard_ms: 0,
            is_silent: false,
        }];
        hosts.extend(context.others().map(|others| others.list()).unwrap_or_default());
        let probed = context.term().map_or(Ok(()), |_| probe(context.table()));
        let (coordinator, key) = (probed.map_err(|error| error.to_string()), context.keys().map(HostKeys::shown));
        Reply::Hosts { hosts, term: context.term(), coordinator, key }
    }

    /// A person says that the host is gone.
    pub(super) fn forget_host(&self, host: &str) -> Result<(), Refusal> {
        let others = self.base.context.others().ok_or_else(|| Refusal::Invalid {
            what: "this cluster has one host; [coordinator] in cluster.toml would let it have more".to_owned(),
        })?;
        let is_own = self.base.context.membership().is_some_and(|membership| membership.host() == host);
        match others.list().into_iter().find(|known| known.name == host).map(|known| known.answers) {
            None if is_own => Err(Refusal::Invalid { what: format!("host {host} is the master") }),
            // It has no agent, and nothing open that an agent would know of.
            None if KnownHosts(self.base.context.table()).all()?.iter().any(|known| known == host) => {
                KnownHosts(self.base.context.table()).note(host, false)?;
                Ok(())
            }
            None => {
                Err(Refusal::Invalid { what: format!("no host {host} is known; `stripewise host list` shows them") })
            }
            Some(true) => Err(answers(host)),
            Some(false) => {
                for file in self.base.files.ids() {
                    self.end_moves_for_host(file, host);
                }
                if !fencing::shut_out_forgotten(&self.base.context, others, host)? {
                    return Err(answers(host));
                }
                KnownHosts(self.base.context.table()).note(host, false)?;
                note!(self.base.context.log(), warn, host, "the host is forgotten: what it had open counts as closed");
                Ok(())
            }
        }
    }

    /// A host begins to take part in what is done with the file, or will not end what it took part in: its regions stay where they are.
    pub(crate) fn end_moves_for_host(&self, file: FileId, host: &str) {
        if let Some(managed) = self.base.files.if_loaded(file) {
            let inner = guard(&managed.inner);
            self.base.quiescing.end_moves(&managed, &inner, &format!("host {host} has opened the file, or is gone"));
        }
    }

    /// A host has had the file open since another was master.
    pub(crate) fn reopen_for_host(
        &self,
        connection: &Connection,
        file: FileId,
        known: Known,
    ) -> Result<Arc<Managed>, Refusal> {
        let managed = self.base.files.managed(file)?;
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(unknown(file));
        }
        let granted = Granted { readable: true, writable: true };
        guard(&connection.client).opened.entry(file).or_default().add(granted);
        inner.openers.insert(connection.id);
        inner.writers.insert(connection.id);
        let (truncations, first) = (managed.truncations.load(SeqCst), self.base.context.first_number());
        if known.counts_for(truncations, first, inner.record.truncations) {
            managed.extent.extend_to(known.size_bytes);
        }
        drop(inner);
        Ok(managed)
    }

    /// A host closes the file: it may be the last.
    pub(crate) fn closed_by_host(&self, file: FileId, host: &str) {
        let managed = self.base.files.if_loaded(file);
        // While it still counts as having the file open.
        if let Some(managed) = &managed {
            self.base.quiescing.mark_for_host(managed, &guard(&managed.inner));
        }
        if let Some(others) = self.base.context.others() {
            others.closes(host, file);
        }
        let Some(managed) = managed else { return };
        match self.lifecycle.after_close(&managed) {
            Ok(_) => {}
            Err(refusal) => {
                note!(self.base.context.log(), warn, %file, error = %refusal, "a file that another host closed is not settled")
            }
        }
    }

    /// See [`crate::observing::Observers::tidy_accesses`].
    pub(crate) fn tidy_accesses(&self) {
        self.observers.tidy_accesses();
    }

    /// What other hosts know of the file's size is known here too, and of one that does not answer what it has written. Where that is on a server that does not
    /// answer, it is waited for a while, as I/O there is.
    pub(crate) fn refresh(&self, connection: &Connection, file: FileId) -> Result<(), Refusal> {
        let deadline = Instant::now() + SERVER_PATIENCE;
        let may_be_followed = || self.base.context.membership().is_some_and(Membership::may_be_followed);
        loop {
            match self.refresh_once(connection, file) {
                Err(SizeFault::Server(ServerError::NotAnswering { .. }))
                    if Instant::now() < deadline && !may_be_followed() =>
                {
                    std::thread::sleep(SERVER_CHECK_INTERVAL);
                }
                result => return Ok(result?),
            }
        }
    }

    fn refresh_once(&self, connection: &Connection, file: FileId) -> Result<(), SizeFault> {
        let context = &self.base.context;
        let Some(others) = context.others() else { return Ok(()) };
        let managed = self.base.files.managed(file)?;
        let truncations = managed.truncations.load(SeqCst);
        let (size_bytes, silent) = others.size_of(file, connection.host(), truncations);
        managed.raise_to(size_bytes, truncations);
        if silent.is_none() && !sizes::is_owed(context, &managed) {
            return Ok(());
        }
        let inner = guard(&managed.inner);
        match silent {
            Some(why) => sizes::take_unanswered(context, &managed, &inner, &why),
            None => sizes::take_owed(context, &managed, &inner),
        }
    }
}
