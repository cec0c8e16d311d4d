//! A truncation takes effect once, although its client repeats it when the broker dies before it answered.
//!
//! In between others may have written, and been told so: a second cut would take their bytes. So a client numbers its truncations (in
//! `shared::processes`), and the broker notes there which one took effect, at the moment at which it does. A truncation with that number is answered, not done again.
//!
//! Cut and note are two stores, and a broker may die between them. So the control block says from before the first to after the last what is under
//! way; a successor looks at it when it loads the file, before it opens the gate and so before anybody can write.

use crate::connection::Requester;
use crate::context::Context;
use crate::managed::{Inner, Managed};
use crate::truncation::Truncation;
use std::sync::atomic::Ordering::SeqCst;
use stripewise_layout::FileId;
use stripewise_store::protocol::Refusal;
use stripewise_store::shared::control::Truncating;

/// A truncation under way; it is not any more when this is dropped, unless the next master may yet do it.
pub(super) struct UnderWay<'a> {
    context: &'a Context,
    managed: &'a Managed,
    /// `None`: the client does not number its truncations, and so never repeats one.
    truncating: Option<Truncating>,
}

impl<'a> UnderWay<'a> {
    /// To be called with the file's lock held; with the gate shut unless it `only_extends`.
    pub(super) fn begin(
        context: &'a Context,
        managed: &'a Managed,
        by: &Requester<'_>,
        size_bytes: u64,
        only_extends: bool,
    ) -> Self {
        let truncating = by.truncation(context).map(|(slot, incarnation, number)| Truncating {
            slot,
            incarnation,
            number,
            size_bytes,
            only_extends,
        });
        managed.control.set_truncating(truncating);
        Self { context, managed, truncating }
    }

    /// Right before the size is set by a cut, right after by an extension.
    pub(super) fn note_done(&self) {
        if let Some(Truncating { slot, incarnation, number, .. }) = self.truncating {
            self.context.processes().note_truncation_done(slot, incarnation, number);
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.managed.is_truncation_unknown.load(SeqCst) {
            self.managed.control.set_truncating(None);
        }
    }
}

impl Truncation {
    /// Whether the truncation took effect already, for a client that heard nothing of it.
    pub(crate) fn is_truncation_done(&self, by: &Requester<'_>) -> bool {
        by.truncation(&self.context).is_some_and(|(slot, incarnation, number)| {
            self.context.processes().is_truncation_done(slot, incarnation, number)
        })
    }

    /// A file that is being loaded: ends what a predecessor had under way, but for the cut of a recorded intent, which is done elsewhere. The gate is as
    /// the predecessor left it.
    pub(crate) fn settle_truncation(&self, managed: &Managed, inner: &Inner) {
        let Some(Truncating { slot, incarnation, number, size_bytes, only_extends }) = managed.control.truncating()
        else {
            return;
        };
        let is_done = self.context.processes().is_truncation_done(slot, incarnation, number);
        if inner.record.truncating_to_bytes.is_some() {
            self.context.processes().note_truncation_done(slot, incarnation, number);
        } else if only_extends && !is_done && self.context.is_alive(slot, incarnation) {
            // Nobody was kept out: whether it took effect is not known, and that it does now harms nobody.
            managed.extent.extend_to(size_bytes);
            self.context.processes().note_truncation_done(slot, incarnation, number);
        } else if is_done && managed.control.gate().is_shut() {
            if managed.extent.size_bytes() > size_bytes {
                managed.extent.truncate_to(size_bytes);
            } else {
                managed.extent.extend_to(size_bytes);
            }
        }
        managed.control.set_truncating(None);
    }

    /// Refuses what destroys if its client is gone. Asked when nobody else can write any more: of what others were told before, nothing
    /// may be taken by one that can never be told.
    pub(crate) fn must_be_there(&self, by: &Requester<'_>, file: FileId) -> Result<(), Refusal> {
        match by.is_there(&self.context) {
            true => Ok(()),
            false => Err(Refusal::Invalid { what: format!("the client that asked to truncate file {file} is gone") }),
        }
    }
}
