//! Why a link was not made, ended, or brought no answer.

use crate::agent_identity::AgentIdentity;
use rustix::io::Errno;
use std::net::SocketAddr;
use std::time::Duration;

/// Why a link was not made, ended, or brought no answer. `host` is the other side's name and address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error(
        "{listen:?} is no address on which to listen: {what}; give an IP address, IP:PORT, or the name of a network interface"
    )]
    Address { listen: String, what: String },
    #[error("the introduction of this host cannot be sent: {what}")]
    Introduction { what: String },
    #[error("cannot listen on {address}: {source}; give another address or port, or end the process that has it")]
    Listen { address: SocketAddr, source: Errno },
    #[error(
        "cannot connect to {address}: {source}; check that stripewise runs there and that no firewall is in between"
    )]
    Connect { address: SocketAddr, source: Errno },
    #[error("{address} has another key than this cluster's; copy the key file of the cluster to every host")]
    OtherKey { address: SocketAddr },
    #[error("{address} refused the key of this host; copy the key file of the cluster to every host")]
    KeyRefused { address: SocketAddr },
    #[error("{address} does not speak as a host of stripewise does: {what}")]
    Handshake { address: SocketAddr, what: String },
    #[error("{address} did not introduce itself within {} s", patience.as_secs_f64())]
    HandshakeTime { address: SocketAddr, patience: Duration },
    #[error(
        "host {host} belongs to cluster {theirs}, this one to cluster {ours}; give both the cluster.toml of one cluster"
    )]
    OtherCluster { host: String, theirs: String, ours: String },
    #[error("host {host} runs stripewise with frames of version {theirs}, this one has {ours}; use one version")]
    OtherFrames { host: String, theirs: u32, ours: u32 },
    #[error("host {host} runs stripewise with messages of version {theirs}, this one has {ours}; use one version")]
    OtherMessages { host: String, theirs: u32, ours: u32 },
    #[error(
        "two machines have the host name {name}: {first}, and {second}; give each host a name of its own, or wait until the first leaves; if that is gone for good, `stripewise host forget {name}` on a third host"
    )]
    TwoMachines { name: String, first: String, second: String },
    #[error(
        "two agents of one machine have the host name {name}: {first}, and {second}; give containers one state directory or a host name each, or wait until the first leaves; if that is gone for good with all its programs, `stripewise host forget {name}` on another host"
    )]
    TwoAgents { name: String, first: String, second: String },
    #[error("refused by host {host}: {what}")]
    Refused { host: String, what: String },
    #[error("host {host} was refused: {what}")]
    Unwanted { host: String, what: String },
    #[error("host {host} sent what is no message of stripewise: {what}")]
    Rubbish { host: String, what: String },
    #[error("nothing came from host {host} for {} s: it is stopped or cannot be reached", limit.as_secs_f64())]
    Silent { host: String, limit: Duration },
    #[error("the link to host {host} was closed by this host")]
    Closed { host: String },
    #[error("host {host} closed the link")]
    ClosedThere { host: String },
    #[error("the link to host {host} broke: {what}")]
    Broken { host: String, what: String },
    #[error("host {host} did not answer within {} s", patience.as_secs_f64())]
    Late { host: String, patience: Duration },
    #[error("a message of {bytes} bytes to host {host} is too long: {limit} bytes are allowed")]
    TooLong { host: String, bytes: usize, limit: usize },
    #[error("host {host} could not answer: {what}")]
    Failed { host: String, what: String },
    #[error("too much was sent to host {host} before it accepted the link")]
    NotYet { host: String },
    #[error("{action}: {source}")]
    Os { action: &'static str, source: Errno },
}

impl LinkError {
    /// Two agents with one host name, the first of which has it. With each stands what else is known of it.
    pub(crate) fn one_name(name: &str, first: (&str, &AgentIdentity), second: (&str, &AgentIdentity)) -> Self {
        let name = name.to_owned();
        if first.1.machine == second.1.machine && first.1.boot == second.1.boot {
            let [first, second] = [first, second]
                .map(|(what, agent)| format!("{what} with the state directory of id {}", agent.directory));
            return Self::TwoAgents { name, first, second };
        }
        let [first, second] = [first, second].map(|(what, agent)| match first.1.machine == second.1.machine {
            true => format!("{what} with machine id {} and boot id {}", agent.machine, agent.boot),
            false => format!("{what} with machine id {}", agent.machine),
        });
        Self::TwoMachines { name, first, second }
    }

    /// Whether one of both sides does not want the other, and will not as long as both are what they are.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::OtherKey { .. }
                | Self::KeyRefused { .. }
                | Self::OtherCluster { .. }
                | Self::OtherFrames { .. }
                | Self::OtherMessages { .. }
                | Self::TwoMachines { .. }
                | Self::TwoAgents { .. }
                | Self::Refused { .. }
        )
    }

    /// Whether the link is gone; otherwise it can be asked again.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        !matches!(self, Self::Late { .. } | Self::TooLong { .. } | Self::Failed { .. } | Self::NotYet { .. })
    }
}
