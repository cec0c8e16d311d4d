//! What a move does while writers wait.
//!
//! On a cluster of many hosts none of them waits longer for a seal than for a host that is silent. So a server that does not answer under the seal has the move put
//! back: writers go on where they were, and it is tried again. What the server does later lands in objects that are thrown away.

#[cfg(test)]
mod tests;

use super::{Move, Speed, Stop};
use stripewise_store::server::deadline::Deadline;

impl Move<'_> {
    /// Has what is done under the seal end in time.
    pub(super) fn under_seal<T>(&mut self, act: fn(&mut Self) -> Result<T, Stop>) -> Result<T, Stop> {
        let timeout = self.core.context.host_timeout();
        let deadline = self.sealed.zip(timeout).map(|(sealed, timeout)| Deadline::new(sealed, timeout));
        let _deadline = Deadline::hold(deadline);
        act(self).map_err(|why| match why {
            Stop::Failed(why) if deadline.is_some_and(|deadline| deadline.is_over()) => {
                Stop::PutBack(format!("{why} (writers wait no longer)"))
            }
            why => why,
        })
    }

    pub(super) fn copy_rest(&mut self) -> Result<(), Stop> {
        let taken = self.managed.extent.marks(self.active.slot).take();
        if taken.iter().any(|word| *word != 0) {
            self.copier()?.copy(&taken, Speed::AtOnce)?;
            self.copier()?.sync()?;
        }
        Ok(())
    }
}
