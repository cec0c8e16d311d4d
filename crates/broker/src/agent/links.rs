//! Links between agents, put to use: who hears what comes over them.

use super::follower::Follower;
use super::master::Master;
use crate::agent_identity::AgentIdentity;
use crate::guard;
use crate::host_messages::{FromAgent, FromMaster, encode};
use crate::hosts::{Hears, LinkError, Peer};
use crate::others::{Begun, Line, Others};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use stripewise_store::protocol::Refusal;

/// A link as the way to a host.
pub(super) struct PeerLine(pub(super) Arc<Peer>);

impl Line for PeerLine {
    fn ask(&self, question: &[u8], patience: Duration) -> Result<Vec<u8>, String> {
        self.0.ask(question, patience).map_err(|error| error.to_string())
    }

    fn begin(&self, question: &[u8], patience: Duration) -> Option<Result<Begun<'_>, String>> {
        let asked = self.0.begin(question, patience)?.map_err(|error| error.to_string());
        Some(asked.map(|asked| {
            Box::new(move || {
                let (took, answer) = asked.wait();
                (took, answer.map_err(|error| error.to_string()))
            }) as Begun<'_>
        }))
    }

    fn number(&self) -> u64 {
        self.0.number()
    }

    fn last_heard(&self) -> Instant {
        self.0.last_heard()
    }

    fn identity(&self) -> AgentIdentity {
        self.0.introduction().identity()
    }

    fn end(&self) {
        self.0.close();
    }
}

/// Hears agents that come to this host, which may be the master.
#[derive(Default)]
pub(super) struct MasterEars(Mutex<Option<(Arc<Master>, Arc<Others>)>>);

impl MasterEars {
    /// From here on this master is asked; `None`: this host is not the master.
    pub(super) fn follow(&self, master: Option<(Arc<Master>, Arc<Others>)>) {
        *guard(&self.0) = master;
    }
}

impl Hears for MasterEars {
    fn hear(&self, from: &Arc<Peer>, question: Vec<u8>) -> Vec<u8> {
        let master = guard(&self.0).as_ref().map(|(master, _)| Arc::clone(master));
        let Some(master) = master else { return encode(&FromMaster::NotMaster) };
        let line: Arc<dyn Line> = Arc::new(PeerLine(Arc::clone(from)));
        master.hear(&from.introduction().host, &line, &question)
    }

    fn notified(&self, _: &Arc<Peer>, _: Vec<u8>) {}

    fn met(&self, _: &Arc<Peer>) -> Result<(), String> {
        Ok(())
    }

    fn left(&self, peer: &Arc<Peer>, _: &LinkError) {
        if let Some((_, others)) = &*guard(&self.0) {
            others.lost(&peer.introduction().host, peer.number(), peer.last_heard());
        }
    }
}

/// Hears the master that this host follows.
#[derive(Default)]
pub(super) struct FollowerEars(Mutex<Weak<Follower>>);

impl FollowerEars {
    pub(super) fn belong_to(&self, follower: &Arc<Follower>) {
        *guard(&self.0) = Arc::downgrade(follower);
    }
}

impl Hears for FollowerEars {
    fn hear(&self, _: &Arc<Peer>, question: Vec<u8>) -> Vec<u8> {
        match guard(&self.0).upgrade() {
            Some(follower) => follower.asked(&question),
            None => encode(&FromAgent::Refused(Refusal::Invalid { what: "this host follows nobody".to_owned() })),
        }
    }

    fn notified(&self, _: &Arc<Peer>, _: Vec<u8>) {}

    fn met(&self, _: &Arc<Peer>) -> Result<(), String> {
        Ok(())
    }

    /// The agent looks at its link now and then, and takes another role.
    fn left(&self, _: &Arc<Peer>, _: &LinkError) {}
}
