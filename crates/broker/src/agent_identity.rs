//! Whose agent it is that comes under a host's name.
//!
//! What a host has open is noted under its name. A name alone does not say who has it: a machine may get the name of one that is cut off, and containers of
//! one machine may have one name with a state directory each. If what such a one holds were taken for what the first holds, the first would go on with
//! files that the master moves and truncates.

use minicbor::{Decode, Encode};

/// What tells agents of one name apart. Without a machine it is unknown.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug, Encode, Decode)]
#[cbor(map)]
pub struct AgentIdentity {
    /// The machine's id, or its boot where it has none.
    #[n(0)]
    pub machine: String,
    /// The boot of its kernel.
    #[n(1)]
    pub boot: String,
    /// The state directory: the memory that the agent shares with programs is there.
    #[n(2)]
    pub directory: String,
}

impl AgentIdentity {
    pub(crate) fn is_unknown(&self) -> bool {
        self.machine.is_empty()
    }

    /// Whether both serve the same programs. A container may show another machine id over the state directory of its machine.
    pub(crate) fn serves_as(&self, other: &Self) -> bool {
        self.boot == other.boot
            && self.directory == other.directory
            && (self.machine == other.machine || !self.directory.is_empty())
    }

    /// Whether this one answers for all that programs of the other had open: it serves the same, or the machine was started again and nothing is open any more.
    pub(crate) fn succeeds(&self, other: &Self) -> bool {
        let is_known = !self.is_unknown() && !other.is_unknown();
        !is_known || self.serves_as(other) || (self.machine == other.machine && self.boot != other.boot)
    }

    /// Whether directories that were probed with the other are as this one sees them.
    pub(crate) fn is_on_machine_of(&self, other: &Self) -> bool {
        self.is_unknown() || other.is_unknown() || self.machine == other.machine || self.serves_as(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(machine: &str, boot: &str, directory: &str) -> AgentIdentity {
        AgentIdentity { machine: machine.to_owned(), boot: boot.to_owned(), directory: directory.to_owned() }
    }

    #[test]
    fn who_serves_the_same_programs_or_was_started_again_succeeds_and_nobody_else() {
        let first = agent("m", "b", "d");
        assert!(first.succeeds(&first));
        assert!(agent("m", "b2", "d2").succeeds(&first), "a reboot, after which shared memory is empty");
        assert!(agent("m", "b2", "d").succeeds(&first), "a reboot, with the state directory on a disk");
        assert!(agent("image", "b", "d").succeeds(&first), "a container with the state directory of its machine");
        assert!(!agent("m2", "b2", "d2").succeeds(&first), "another machine");
        assert!(!agent("m2", "b2", "d").succeeds(&first), "a machine with a copy of the state directory");
        assert!(!agent("m", "b", "d2").succeeds(&first), "a container with a state directory of its own");
        assert!(!agent("image", "b", "d2").succeeds(&first));
        assert!(!agent("m2", "", "").succeeds(&agent("m", "", "")));
        assert!(AgentIdentity::default().succeeds(&first) && first.succeeds(&AgentIdentity::default()));
    }
}
