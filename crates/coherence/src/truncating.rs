//! The order in which a file is truncated, once all I/O on it has stopped.
//!
//! What is recorded is done in the end: whoever is master next goes on from there. So the size is set, on this host and in the table, only after what lies
//! beyond it has gone, and other hosts are told after that.

/// What to do next, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Act {
    /// Moves of the file are given up: what they copied may lie beyond the new size.
    EndMoves,
    /// Record durably to which size the file is being truncated. Before that nothing has changed, and it may fail.
    Record,
    /// Remove and truncate what objects hold beyond the size.
    Remove,
    /// The file has its new size on this host, and one truncation more.
    SetSize,
    /// Record the size, and that the truncation is over.
    Forget,
}

/// What is left of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Truncating(Option<Act>);

impl Truncating {
    /// From the start.
    #[must_use]
    pub fn new() -> Self {
        Self(Some(Act::EndMoves))
    }

    /// Of one that a former master, or one before a crash, has recorded.
    #[must_use]
    pub fn recorded() -> Self {
        Self(Some(Act::Remove))
    }
}

impl Default for Truncating {
    fn default() -> Self {
        Self::new()
    }
}

/// Each act once the one before it has gone well.
impl Iterator for Truncating {
    type Item = Act;

    fn next(&mut self) -> Option<Act> {
        let act = self.0?;
        self.0 = match act {
            Act::EndMoves => Some(Act::Record),
            Act::Record => Some(Act::Remove),
            Act::Remove => Some(Act::SetSize),
            Act::SetSize => Some(Act::Forget),
            Act::Forget => None,
        };
        Some(act)
    }
}
