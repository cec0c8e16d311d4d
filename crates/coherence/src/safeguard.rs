//! Safeguards that the model checker leaves out, one at a time, to show that it notices.

/// Something without which bytes are lost, or writers wait for ever.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Safeguard {
    /// A region's words are recalled from all hosts before its move is committed.
    Recall,
    /// A host takes no step of a move that is not later than the last it heard of.
    Order,
    /// Writers that are inside are waited for before a host hands over its last marks.
    Drain,
    /// A host that departs ends the moves that it took part in.
    Departures,
    /// A host that comes back does not answer for a file of which it was not told yet.
    Coming,
    /// A size from before a truncation whose end a host has not heard counts no more when the host comes back to the next master.
    Heard,
    /// A commit whose outcome is not known is neither taken back nor published before the table says what came of it.
    KnownOutcome,
}

/// Whether a test leaves it out.
#[cfg(not(test))]
pub(crate) const fn is_left_out(_: Safeguard) -> bool {
    false
}

#[cfg(test)]
pub(crate) use left_out::{is_left_out, leave_out};

#[cfg(test)]
mod left_out {
    use super::Safeguard;
    use std::cell::Cell;

    thread_local! {
        static LEFT_OUT: Cell<Option<Safeguard>> = const { Cell::new(None) };
    }

    pub(crate) fn is_left_out(safeguard: Safeguard) -> bool {
        LEFT_OUT.get() == Some(safeguard)
    }

    /// In this thread, from here on.
    pub(crate) fn leave_out(safeguard: Option<Safeguard>) {
        LEFT_OUT.set(safeguard);
    }
}
