//! An agent takes no role under the name of another that may have files open. A master refuses it; where there is none, it does not become master itself.

use super::Seat;
use crate::BrokerError;
use crate::agent_identity::AgentIdentity;
use crate::others::namesakes;
use crate::rmt::{MappingStore, agent_in};

impl Seat {
    /// Who this agent is.
    pub(super) fn identity(&self) -> AgentIdentity {
        self.introduction.identity()
    }

    /// Says who else has this agent's name, by the table.
    pub(super) fn namesake(&self, table: &dyn MappingStore) -> Result<Option<String>, BrokerError> {
        let (name, own) = (&self.candidate.name, self.identity());
        let first = agent_in(table, name)?.filter(|first| !own.succeeds(first));
        Ok(first.map(|first| namesakes::taken(name, &first, &own).to_string()))
    }
}
