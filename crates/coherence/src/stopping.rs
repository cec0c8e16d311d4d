//! The master's side of stopping all I/O on a file: nobody begins I/O on any host, and what is under way has ended.
//!
//! A host that is silent, before or when it is asked, is shut out where servers can do that; then it need not answer.

use serde::{Deserialize, Serialize};

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Act {
    /// Nobody begins I/O on this host from here on.
    Shut,
    /// Shut out the hosts of the file that are silent: [`Outcome::Done`] if there was one.
    ShutOut,
    /// Draw a turn, and have all hosts of the file stop by it.
    Ask,
    /// Wait for I/O of this host.
    Drain,
    /// All I/O has stopped.
    Change,
    /// Nothing is changed.
    Refuse,
}

/// What came of an act.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// It is done.
    Done,
    /// There was nothing to do.
    Nothing,
    /// It did not go well.
    Failed,
}

/// All I/O on a file is being stopped.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stop {
    last: Option<Act>,
    /// A host did not stop.
    was_refused: bool,
}

impl Stop {
    /// What to do next, after the last act had this outcome; at first after [`Outcome::Done`]. Whatever comes, I/O is resumed at the end.
    pub fn next(&mut self, outcome: Outcome) -> Act {
        let act = match (self.last, outcome) {
            (None, _) => Act::Shut,
            (Some(Act::Shut), _) => Act::ShutOut,
            (Some(Act::ShutOut), Outcome::Failed) => Act::Refuse,
            // Each of them once: it is not asked again.
            (Some(Act::ShutOut), Outcome::Nothing) if self.was_refused => Act::Refuse,
            (Some(Act::ShutOut), _) => Act::Ask,
            (Some(Act::Ask), Outcome::Failed) => {
                self.was_refused = true;
                Act::ShutOut
            }
            (Some(Act::Ask), _) => Act::Drain,
            (Some(Act::Drain), Outcome::Failed) => Act::Refuse,
            (Some(Act::Drain | Act::Change), _) => Act::Change,
            (Some(Act::Refuse), _) => Act::Refuse,
        };
        self.last = Some(act);
        act
    }
}
