//! Agents that come under the name of a host that may have files open.
//!
//! Whoever has the name may go on with what it has open, whether or not it is heard of. So nobody else gets the name before it has left, was shut out or is
//! forgotten, and nothing that it may use is moved or truncated meanwhile.

use super::{Line, Others};
use crate::agent_identity::AgentIdentity;
use crate::guard;
use crate::hosts::LinkError;

/// The agent by which the host said last what it holds.
pub(crate) fn agent_of(others: &Others, host: &str) -> AgentIdentity {
    guard(&others.seats).get(host).map(|seat| seat.link.agent.clone()).unwrap_or_default()
}

/// An error if the host at the other end of `line` is another than the one that has its name here.
pub(crate) fn refuse(others: &Others, host: &str, line: &dyn Line) -> Result<(), LinkError> {
    let (first, second) = (agent_of(others, host), line.identity());
    match second.succeeds(&first) {
        true => Ok(()),
        false => Err(taken(host, &first, &second)),
    }
}

/// Why the second does not get the name.
pub(crate) fn taken(host: &str, first: &AgentIdentity, second: &AgentIdentity) -> LinkError {
    LinkError::one_name(host, ("one that may have files open", first), ("one that wants to take part", second))
}

#[cfg(test)]
mod tests {
    use super::super::tests::counts;
    use super::*;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use stripewise_layout::FileId;

    /// An agent of this machine, boot and state directory.
    struct Agent([&'static str; 3]);

    impl Agent {
        fn identity(&self) -> AgentIdentity {
            let [machine, boot, directory] = self.0.map(str::to_owned);
            AgentIdentity { machine, boot, directory }
        }
    }

    impl Line for Agent {
        fn ask(&self, _: &[u8], _: Duration) -> Result<Vec<u8>, String> {
            Err("nothing is asked".to_owned())
        }

        fn number(&self) -> u64 {
            1
        }

        fn last_heard(&self) -> Instant {
            Instant::now()
        }

        fn identity(&self) -> AgentIdentity {
            Agent::identity(self)
        }

        fn end(&self) {}
    }

    const FIRST: [&str; 3] = ["m1", "b1", "d1"];

    fn check_names(others: &Others) {
        let refused = |agent: [&'static str; 3]| refuse(others, "h1", &Agent(agent)).map_err(|error| error.to_string());
        let of_machine = refused(["m2", "b2", "d2"]).unwrap_err();
        for part in ["two machines have the host name h1", "m1", "m2", "wait until", "`stripewise host forget h1`"] {
            assert!(of_machine.contains(part), "{of_machine}");
        }
        let of_container = refused(["m1", "b1", "d2"]).unwrap_err();
        for part in ["two agents of one machine have the host name h1", "d1", "d2", "`stripewise host forget h1`"] {
            assert!(of_container.contains(part), "{of_container}");
        }
        assert_eq!(refused(FIRST), Ok(()), "the agent after one that was killed");
        assert_eq!(refused(["m1", "b2", "d2"]), Ok(()), "the machine was started again");
        assert_eq!(refuse(others, "h2", &Agent(["m2", "b2", "d2"])), Ok(()));
    }

    #[test]
    fn the_name_of_a_host_that_may_have_files_open_is_no_other_s_whether_or_not_it_answers() {
        let others = Others::new([], Duration::from_secs(5), 0, &counts());
        others.holds("h1", Arc::new(Agent(FIRST)), vec![FileId(7)]);
        check_names(&others);
        others.lost("h1", 1, Instant::now());
        check_names(&others);
        others.leaves("h1");
        assert_eq!(refuse(&others, "h1", &Agent(["m2", "b2", "d2"])), Ok(()));
    }

    #[test]
    fn a_host_that_is_expected_keeps_its_name() {
        let others = Others::new([("h1".to_owned(), Agent(FIRST).identity())], Duration::from_secs(5), 0, &counts());
        check_names(&others);
        others.departs("h1");
        assert_eq!(refuse(&others, "h1", &Agent(["m1", "b1", "d2"])), Ok(()));
    }
}
