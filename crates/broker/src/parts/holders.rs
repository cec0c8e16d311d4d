//! Programs of all hosts that have a file open which is to be replaced, and hosts that a command left half done.

use crate::connection::Connection;
use crate::context::Context;
use crate::files::Files;
use crate::guard;
use crate::host_messages::{FromAgent, ToAgent};
use crate::lifecycle::Lifecycle;
use crate::managed::Managed;
use crate::name_changes::NameChanges;
use crate::others::Others;
use crate::rechecks::Rechecks;
use crate::replicas::Replicas;
use crate::rmt::KnownHosts;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stripewise_layout::FileId;
use stripewise_store::manage::elsewhere::holders_on_this_host;
use stripewise_store::protocol::{Refusal, SharedFile};

/// For how long a host may look through its processes.
const LOOKUP: Duration = Duration::from_secs(10);

/// Who holds files: programs of other hosts that have one open, and commands that hold one for themselves.
pub(crate) struct Holders {
    context: Arc<Context>,
    rechecks: Arc<Rechecks>,
    files: Arc<Files>,
    replicas: Arc<Replicas>,
    lifecycle: Arc<Lifecycle>,
    name_changes: Arc<NameChanges>,
}

impl Holders {
    pub(super) fn new(
        context: &Arc<Context>,
        rechecks: &Arc<Rechecks>,
        files: &Arc<Files>,
        replicas: &Arc<Replicas>,
        lifecycle: &Arc<Lifecycle>,
        name_changes: &Arc<NameChanges>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            rechecks: Arc::clone(rechecks),
            files: Arc::clone(files),
            replicas: Arc::clone(replicas),
            lifecycle: Arc::clone(lifecycle),
            name_changes: Arc::clone(name_changes),
        }
    }

    /// The connection has lost its hold on the file, if it had it: what it was about is undone or finished.
    pub(super) fn no_longer_held(&self, connection: &Connection, managed: &Managed) {
        let was_holder = {
            let mut inner = guard(&managed.inner);
            let was = inner.holder == Some(connection.id);
            if was {
                inner.holder = None;
            }
            was
        };
        if was_holder {
            self.lifecycle.abandoned_by_holder(managed);
        }
    }

    /// Programs of other hosts than the asking one that have the file. Every host that ever took part is asked, whether or not it has anything open: a program
    /// that is not redirected is known to no agent. An error names the hosts that cannot say.
    pub(super) fn elsewhere(
        &self,
        connection: &Connection,
        file: &SharedFile,
        unchecked: &[String],
    ) -> Result<Vec<String>, Refusal> {
        let (Some(others), Some(membership)) = (self.context.others(), self.context.membership()) else {
            return Ok(Vec::new());
        };
        let mut hosts: BTreeSet<String> = KnownHosts(self.context.table()).all()?.into_iter().collect();
        hosts.extend(others.list().into_iter().map(|known| known.name));
        hosts.insert(membership.host().to_owned());
        if let Some(unknown) = unchecked.iter().find(|host| !hosts.contains(*host)) {
            let known = Vec::from_iter(hosts).join(", ");
            let what = format!("no host {unknown} has used this cluster; those that have are {known}");
            return Err(Refusal::Invalid { what });
        }
        hosts.remove(connection.host().unwrap_or(membership.host()));
        unchecked.iter().for_each(|host| _ = hosts.remove(host));
        let ask = |host: &str| match host == membership.host() {
            true => holders_on_this_host(file).map_err(|what| format!("host {host} {what}")),
            false => ask_agent(others, host, file),
        };
        let answers: Vec<(String, Result<Vec<String>, String>)> = std::thread::scope(|scope| {
            let ask = &ask;
            let asking: Vec<_> = hosts.iter().map(|host| (host, scope.spawn(move || ask(host)))).collect();
            let failed = |host: &str| Err(format!("host {host} could not be asked"));
            asking
                .into_iter()
                .map(|(host, asked)| (host.clone(), asked.join().unwrap_or_else(|_| failed(host))))
                .collect()
        });
        let (mut holders, mut unknown) = (Vec::new(), Vec::new());
        for (host, answer) in answers {
            match answer {
                Ok(found) => holders.extend(found.into_iter().map(|holder| format!("{holder} on host {host}"))),
                Err(what) => unknown.push((host, what)),
            }
        }
        // Who has it is known; who else may have it does not matter then.
        if holders.is_empty() && !unknown.is_empty() {
            let (hosts, reasons): (Vec<_>, Vec<_>) = unknown.into_iter().unzip();
            let what = format!(
                "{}. If no program there can have {} open, repeat with --unchecked-hosts {}",
                reasons.join("; "),
                file.path,
                hosts.join(",")
            );
            return Err(Refusal::Invalid { what });
        }
        Ok(holders)
    }

    /// A program of the host is gone that held these files for `apply` or `release`, and had begun these changes of names.
    pub(crate) fn given_up_by_host(&self, connection: &Connection, host: &str, files: &[FileId], changes: &[u64]) {
        self.name_changes.leave_changes(changes, files);
        for file in files {
            let mut client = guard(&connection.client);
            client.held.remove(file);
            client.opened.remove(file);
            drop(client);
            let Some(managed) = self.files.if_loaded(*file) else { continue };
            self.replicas.left(&managed, connection.id);
            if let Some(others) = self.context.others() {
                others.closes(host, *file);
            }
            self.no_longer_held(connection, &managed);
        }
    }

    /// Nothing is heard of the host, or it has come back: what its commands were about is undone or finished. A command there that goes on finds that it
    /// no longer holds the file, and none of the names that it gave.
    pub(crate) fn end_holds_of(&self, connection: &Connection) {
        let held: Vec<FileId> = std::mem::take(&mut guard(&connection.client).held).into_iter().collect();
        self.name_changes.leave_changes(&[], &held);
        for file in held {
            if let Some(managed) = self.files.if_loaded(file) {
                self.no_longer_held(connection, &managed);
            }
        }
    }

    /// The host has said that it has these files open, so it has closed the others.
    pub(crate) fn has_only_open(&self, connection: &Connection, files: &[FileId]) {
        let closed: Vec<FileId> = {
            let mut client = guard(&connection.client);
            let closed = client.opened.keys().copied().filter(|file| !files.contains(file)).collect();
            client.opened.retain(|file, _| files.contains(file));
            closed
        };
        for file in closed {
            let Some(managed) = self.files.if_loaded(file) else { continue };
            self.replicas.left(&managed, connection.id);
            if !self.lifecycle.after_close(&managed).unwrap_or(false) {
                self.rechecks.recheck(file);
            }
        }
    }
}

fn ask_agent(others: &Others, host: &str, file: &SharedFile) -> Result<Vec<String>, String> {
    match others.ask_host(host, &ToAgent::Holders { file: file.clone() }, LOOKUP) {
        Ok(FromAgent::Holders(holders)) => holders.map_err(|what| format!("host {host} {what}")),
        Ok(FromAgent::Refused(refusal)) => {
            Err(format!("host {host} does not say who has {} open ({refusal})", file.path))
        }
        Ok(other) => Err(format!("host {host} answered something else ({other:?})")),
        Err(Some(why)) => Err(format!("host {host} does not answer ({why})")),
        Err(None) => Err(format!(
            "host {host} has no agent; start one there with `stripewise broker`, or if it is gone for good, `stripewise host forget {host}`"
        )),
    }
}
