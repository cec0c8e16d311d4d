//! Who speaks.

use super::error::LinkError;
use crate::agent_identity::AgentIdentity;
use minicbor::{Decode, Encode};

/// The longest of its texts, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Who speaks; each side of a link sends it first.
///
/// Every version of stripewise must read those of all others. Therefore fields are never removed or changed; a new one is an `Option`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Introduction {
    /// The id of the cluster.
    #[n(0)]
    pub cluster: String,
    /// The name of the host within the cluster.
    #[n(1)]
    pub host: String,
    /// The machine id or the boot id, so that one name used by two hosts is found.
    #[n(2)]
    pub machine: String,
    /// The id of the process on its host.
    #[n(3)]
    pub process: u32,
    /// The version of the messages, that is of what questions, answers and notices contain.
    #[n(4)]
    pub version: u32,
    /// The boot of the machine's kernel.
    #[n(5)]
    pub boot: Option<String>,
    /// Tells the agent's state directory from those of other agents.
    #[n(6)]
    pub directory: Option<String>,
}

impl Introduction {
    /// Says what is wrong with it, if anything is.
    pub(super) fn check(&self) -> Result<(), String> {
        let own = [("cluster id", &self.cluster), ("host name", &self.host), ("machine id", &self.machine)];
        let boot = self.boot.iter().map(|boot| ("boot id", boot));
        let directory = self.directory.iter().map(|directory| ("id of a state directory", directory));
        for (what, text) in own.into_iter().chain(boot).chain(directory) {
            if text.is_empty() || text.len() > MAX_NAME_BYTES {
                return Err(format!("its {what} has {} bytes, between 1 and {MAX_NAME_BYTES} are allowed", text.len()));
            }
            if text.chars().any(char::is_control) {
                return Err(format!("its {what} {text:?} has control characters"));
            }
        }
        Ok(())
    }

    /// Whether these two may talk; `address` is where the other one is.
    pub(super) fn accepts(&self, other: &Self, address: std::net::SocketAddr) -> Result<(), LinkError> {
        let host = format!("{} ({address})", other.host);
        if other.version != self.version {
            return Err(LinkError::OtherMessages { host, theirs: other.version, ours: self.version });
        }
        if other.cluster != self.cluster {
            let (theirs, ours) = (other.cluster.clone(), self.cluster.clone());
            return Err(LinkError::OtherCluster { host, theirs, ours });
        }
        self.differs_from(other, "this one", &address.to_string())
    }

    /// Whose agent it is.
    pub(crate) fn identity(&self) -> AgentIdentity {
        AgentIdentity {
            machine: self.machine.clone(),
            boot: self.boot.clone().unwrap_or_default(),
            directory: self.directory.clone().unwrap_or_default(),
        }
    }

    /// An error if the other, which is there too, has the same name and serves other programs.
    pub(super) fn differs_from(&self, other: &Self, here: &str, there: &str) -> Result<(), LinkError> {
        let (first, second) = (self.identity(), other.identity());
        match self.host != other.host || first.serves_as(&second) {
            true => Ok(()),
            false => Err(LinkError::one_name(&self.host, (here, &first), (there, &second))),
        }
    }
}
