//! Moves that wait for each other's space: a region that is wanted where others lie, or where it lies itself in another layout.
//!
//! Such a region moves to servers with free space first and on to its own place when the place that it left is free. That is done only where
//! all that wait find space in the end, so that no region is moved aside in vain.

use super::Moves;
use super::beginning::failed;
use crate::capacity::{Full, Relocation};
use crate::guard;
use crate::managed::Managed;
use crate::move_queue::{Outcome, Task, Way};
use crate::standing::Standings;
use std::collections::BTreeSet;
use std::sync::Arc;
use stripewise_layout::{Layout, ServerId};
use stripewise_store::protocol::Refusal;

impl Moves {
    /// What becomes of a move that found a server full and has nobody to wait for.
    pub(super) fn without_space(
        &self,
        task: &Task,
        managed: &Arc<Managed>,
        full: Option<&Full>,
        what: String,
    ) -> Outcome {
        if full.is_some_and(|full| self.replicas.take_back(full)) {
            return Outcome::PutBack(what);
        }
        let aside = full.filter(|_| !task.is_urgent && task.way == Way::Straight);
        match aside.and_then(|full| self.layout_aside(task, managed, full.server)) {
            Some(layout) => self.move_region(&Task {
                number: task.number,
                file: task.file,
                region: task.region,
                to: Some(Arc::new(layout)),
                copied_bytes: Arc::clone(&task.copied_bytes),
                is_urgent: false,
                way: Way::Aside,
            }),
            None => failed(Refusal::NoSpace { what }),
        }
    }

    /// Servers with space for the region, without the full one. `None` where not all that wait would find space then either.
    fn layout_aside(&self, task: &Task, managed: &Managed, full: ServerId) -> Option<Layout> {
        let to = Arc::clone(task.to.as_ref()?);
        let this = {
            let inner = guard(&managed.inner);
            let from = inner.regions.get(&task.region)?.layout.clone();
            let used_bytes = inner.geometry().used_bytes(task.region, managed.extent.size_bytes());
            Relocation { file: task.file, from, to, used_bytes }
        };
        let region_bytes = managed.control.region_bytes();
        let aside = self.layout_with_space(&this.to, region_bytes, &mut BTreeSet::from([full])).ok()?;
        if aside == this.from {
            return None;
        }
        // Nothing else is in the queue, so none of these loses to another the space that it has in the end.
        let mut all = self.queue.waiting_for_space(task.number);
        all.push(this);
        self.have_space_in_the_end(&all).then_some(aside)
    }

    fn have_space_in_the_end(&self, waiting: &[Relocation]) -> bool {
        let mut standings = Standings::new(self.context.servers());
        let mut changes = Vec::with_capacity(waiting.len());
        for one in waiting {
            let Ok(managed) = self.files.managed(one.file) else { continue };
            if standings.check(&one.from).is_err() || standings.check(&one.to).is_err() {
                return false;
            }
            changes.push((one, managed.control.region_bytes()));
        }
        self.capacity.has_space_after(&standings, &changes)
    }
}
