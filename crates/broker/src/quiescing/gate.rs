//! The gate of a file, shut for as long as somebody has it in hand.

use super::Quiescing;
use crate::managed::Managed;
use std::time::Instant;
use stripewise_store::protocol::Refusal;

/// Opens the gate again when it is dropped, unless a server or the next master may yet cut the file: then it is opened when that has ended.
pub(crate) struct ShutGate<'a> {
    quiescing: &'a Quiescing,
    managed: &'a Managed,
    since: Instant,
}

impl<'a> ShutGate<'a> {
    pub(super) fn new(quiescing: &'a Quiescing, managed: &'a Managed) -> Self {
        managed.control.gate().shut();
        Self { quiescing, managed, since: Instant::now() }
    }

    /// Waits until no living process has I/O in flight on the file. An error: it does not end, above all where a server does not answer.
    pub(crate) fn drain(&self) -> Result<(), Refusal> {
        self.quiescing.drain_file(self.managed, self.since, &|| false)
    }
}

impl Drop for ShutGate<'_> {
    fn drop(&mut self) {
        self.quiescing.open_or_keep_shut(self.managed);
    }
}
