//! Replacing the cluster's key pair on all hosts, while they go on.
//!
//! The master does it, for a person who asks for it. Its steps:
//!
//! 1. It makes a key. Every host writes that down beside its own ([`crate::hosts::KeyFiles`]) and accepts both from then on. All hosts that are known have to do
//!    so, or the change is given up: one that did not would be refused by all others afterwards.
//! 2. The table says, durably, that the new key is the cluster's. From here on the change goes through: a host that ends in the middle of it finds that out when it
//!    begins again, and shows the key that it has written down ([`crate::agent`]). One that never got it, because no agent ran there, is refused, told so by name, and
//!    cannot become master.
//! 3. Every host shows the new key and still accepts the old one.
//! 4. When all do, the table says that the change has ended. Every host forgets the old key, and the master ends all links: they were made with the old one.
//!
//! No host is admitted from the first step to the third. A change that was interrupted is gone through with by whoever asks for the next.

use crate::context::Context;
use crate::host_keys::{HostKeys, KeyStep};
use crate::host_messages::{FromAgent, ToAgent};
use crate::hosts::ClusterKey;
use crate::log::note;
use crate::others::Others;
use crate::rmt::{KeyRecord, Table, key_record, set_key_record};
use stripewise_store::protocol::{Refusal, Reply};

#[cfg(test)]
mod tests;

/// Replaces the key. `order` is the asker's number for it: asked again with the same, it is done once.
pub(crate) fn rekey(context: &Context, order: u64) -> Result<Reply, Refusal> {
    let (Some(others), Some(keys), Some(membership)) = (context.others(), context.keys(), context.membership()) else {
        return Err(Refusal::Invalid {
            what: "this cluster has one host, and no key; [coordinator] in cluster.toml would let it have more"
                .to_owned(),
        });
    };
    let change =
        Change { table: context.table(), others, keys, host: membership.host(), step: &|name| context.step(name) };
    let changed = change.make(order)?;
    let fingerprint = changed.record.fingerprint;
    if let Some((host, why)) = changed.missed {
        // It does when it comes back: the table says so.
        note!(context.log(), warn, host, error = why.as_str(), "the host accepts the old key until it comes back");
    }
    note!(context.log(), info, key = fingerprint.as_str(), "the cluster's key was replaced");
    let hosts = others.list().len() as u64 + 1;
    Ok(Reply::Rekeyed { fingerprint, hosts, was_begun: changed.record.order != order })
}

/// What a change of the key needs.
struct Change<'a> {
    table: &'a Table,
    others: &'a Others,
    keys: &'a HostKeys,
    /// The master's.
    host: &'a str,
    /// Called between steps that a crash could separate.
    step: &'a dyn Fn(&'static str),
}

struct Changed {
    record: KeyRecord,
    /// A host that did not say that it has forgotten the old key, and why.
    missed: Option<(String, String)>,
    /// Before: the order was carried out when it came first.
    was_made: bool,
}

impl Change<'_> {
    fn make(&self, order: u64) -> Result<Changed, Refusal> {
        let changed = {
            // Nobody is admitted meanwhile who does not have it.
            let _admissions = self.others.admission();
            self.begin(order)?
        };
        // Who asks over one of them asks again over another, which stays.
        if !changed.was_made {
            self.keys.end_links();
        }
        Ok(changed)
    }

    fn begin(&self, order: u64) -> Result<Changed, Refusal> {
        match key_record(self.table)? {
            Some(record) if !record.has_ended => return self.go_through(record),
            Some(record) if record.order == order => return Ok(Changed { record, missed: None, was_made: true }),
            _ => {}
        }
        if let Some(host) = self.others.list().into_iter().find(|host| !host.answers) {
            return Err(absent(&host.name, "it does not answer"));
        }
        let (key, text) = ClusterKey::generate().map_err(|error| Refusal::Invalid { what: error.to_string() })?;
        if let Err(refusal) = self.take_everywhere(&KeyStep::Prepare { next: text }) {
            // Those that have it forget it, or do so at the next change.
            let _ = self.take(&KeyStep::End);
            return Err(refusal);
        }
        (self.step)("rekey: prepared");
        let record = KeyRecord { fingerprint: key.fingerprint(), order, has_ended: false };
        set_key_record(self.table, &record)?;
        (self.step)("rekey: noted");
        self.go_through(record)
    }

    /// From the second step on.
    fn go_through(&self, mut record: KeyRecord) -> Result<Changed, Refusal> {
        self.take_everywhere(&KeyStep::Commit { fingerprint: record.fingerprint.clone() })?;
        (self.step)("rekey: committed");
        record.has_ended = true;
        set_key_record(self.table, &record)?;
        (self.step)("rekey: ended");
        Ok(Changed { record, missed: self.take(&KeyStep::End).err(), was_made: false })
    }

    fn take_everywhere(&self, step: &KeyStep) -> Result<(), Refusal> {
        self.take(step).map_err(|(host, why)| absent(&host, &why))
    }

    /// Lets every host take the step, this one first; else one that did not, and why.
    fn take(&self, step: &KeyStep) -> Result<(), (String, String)> {
        self.keys.take(step).map_err(|error| (self.host.to_owned(), error.to_string()))?;
        for (host, answer) in self.others.ask_everybody(&ToAgent::Keys(step.clone())) {
            match answer {
                Ok(FromAgent::Done) => {}
                Ok(FromAgent::Refused(refusal)) => return Err((host, refusal.to_string())),
                Ok(other) => return Err((host, format!("it answered something else ({other:?})"))),
                Err(why) => return Err((host, why)),
            }
        }
        Ok(())
    }
}

fn absent(host: &str, why: &str) -> Refusal {
    Refusal::Invalid {
        what: format!(
            "the key is not replaced everywhere: host {host} does not have the new one ({why}), and all go on accepting the old one. Ask again when it is there; if it is gone for good, `stripewise host forget {host}` first"
        ),
    }
}
