//! Directories of stubs and of servers are probed with every host before it uses them.

use crate::agent_identity::AgentIdentity;
use crate::context::Context;
use crate::host_messages::{FromAgent, ToAgent, decode, encode};
use crate::log::note;
use crate::names::ManagedNames;
use crate::others::{Line, namesakes};
use crate::probing::{Act, Actor, Purpose, Seen, check, probe};
use crate::rmt::KnownHosts;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stripewise_store::protocol::{ProbedHost, Refusal};

/// For how long a host may take a step.
const STEP: Duration = Duration::from_secs(10);

/// Directories that hosts share, and what hosts see there of each other's changes.
pub(crate) struct SharedDirectories {
    context: Arc<Context>,
    names: Arc<ManagedNames>,
    actor: Actor,
}

impl SharedDirectories {
    pub(super) fn new(context: &Arc<Context>, names: &Arc<ManagedNames>) -> Self {
        Self { context: Arc::clone(context), names: Arc::clone(names), actor: Actor::default() }
    }

    /// What this host and each other that has an agent see of each other's changes in the directory.
    pub(super) fn probe(&self, directory: &str) -> Result<Vec<ProbedHost>, Refusal> {
        let Some(others) = self.context.others() else {
            let what = "this cluster has one host; [coordinator] in cluster.toml would let it have more".to_owned();
            return Err(Refusal::Invalid { what });
        };
        let hosts: Vec<String> =
            others.list().into_iter().filter(|known| known.answers).map(|known| known.name).collect();
        if hosts.is_empty() {
            let what = format!(
                "no other host has an agent, so nobody can see what this host changes in {directory}; start one there with `stripewise broker`"
            );
            return Err(Refusal::Invalid { what });
        }
        let probed = |host: &String| self.probe_with(host, directory, &|act| self.ask_to(host, act));
        hosts.iter().map(probed).collect()
    }

    fn ask_to(&self, host: &str, act: &Act) -> Result<Seen, String> {
        let Some(others) = self.context.others() else { return Err("it is not known".to_owned()) };
        match others.ask_host(host, &ToAgent::Probe { act: act.clone() }, STEP) {
            Ok(FromAgent::Probed(seen)) => seen,
            Ok(other) => Err(format!("it answered something else ({other:?})")),
            Err(why) => Err(format!("it does not answer ({})", why.unwrap_or_else(|| "it has no agent".to_owned()))),
        }
    }

    fn probe_with(
        &self,
        host: &str,
        directory: &str,
        there: &dyn Fn(&Act) -> Result<Seen, String>,
    ) -> Result<ProbedHost, Refusal> {
        let own = self.context.membership().map_or("", |membership| membership.host());
        probe(directory, (own, &self.actor), (host, there)).map_err(|what| Refusal::Invalid {
            what: format!(
                "{directory} cannot be probed: {what}; mount the same file system at the same path on every host"
            ),
        })
    }

    /// A directory is to have managed files: with each host that is there it must be fit for them. Those that come later are looked at then.
    pub(super) fn check_for_stubs(&self, directory: &str) -> Result<(), Refusal> {
        let Some(others) = self.context.others() else { return Ok(()) };
        for host in others.list().into_iter().filter(|known| known.answers).map(|known| known.name) {
            let found = self.probe_with(&host, directory, &|act| self.ask_to(&host, act))?;
            check(&found, directory, Purpose::Stubs).map_err(|what| Refusal::Invalid { what })?;
            self.note_probed(&host, &namesakes::agent_of(others, &host), &[directory.to_owned()])?;
        }
        Ok(())
    }

    /// A host wants to take part over `line`: what it has not used yet is probed with it.
    pub(crate) fn check_new_host(&self, host: &str, line: &dyn Line) -> Result<(), Refusal> {
        let probed: BTreeSet<String> = self.probed_with(host, &line.identity())?;
        let servers = self.context.cluster().servers.iter().filter(|server| server.url.scheme() == "file");
        let servers = servers.map(|server| (server.url.directory().to_string_lossy().into_owned(), Purpose::Server));
        let managed = self.names.read().managed();
        // One that is gone has no stubs.
        let managed = managed.into_iter().filter(|directory| Path::new(directory).is_dir());
        let all: Vec<_> = servers.chain(managed.map(|directory| (directory, Purpose::Stubs))).collect();
        let left: Vec<_> = all.into_iter().filter(|(directory, _)| !probed.contains(directory)).collect();
        let there = |act: &Act| {
            let answer = line.ask(&encode(&ToAgent::Probe { act: act.clone() }), STEP)?;
            match decode(&answer)? {
                FromAgent::Probed(seen) => seen,
                other => Err(format!("it answered something else ({other:?})")),
            }
        };
        for (directory, purpose) in &left {
            let found = self.probe_with(host, directory, &there)?;
            if let Err(what) = check(&found, directory, *purpose) {
                note!(
                    self.context.log(),
                    error,
                    host,
                    directory = directory.as_str(),
                    what = what.as_str(),
                    "a host cannot take part"
                );
                return Err(Refusal::Invalid { what });
            }
        }
        if !left.is_empty() {
            let probed: Vec<_> = left.into_iter().map(|(directory, _)| directory).collect();
            self.note_probed(host, &line.identity(), &probed)?;
        }
        Ok(())
    }

    fn probed_with(&self, host: &str, agent: &AgentIdentity) -> Result<BTreeSet<String>, Refusal> {
        Ok(KnownHosts(self.context.table()).probed_with(host, agent)?.into_iter().collect())
    }

    fn note_probed(&self, host: &str, agent: &AgentIdentity, directories: &[String]) -> Result<(), Refusal> {
        let mut probed = self.probed_with(host, agent)?;
        probed.extend(directories.iter().cloned());
        let hosts = KnownHosts(self.context.table());
        Ok(hosts.note_probed_with(host, agent, probed.into_iter().collect())?)
    }
}
