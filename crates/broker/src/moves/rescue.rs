//! A region whose server has become full under its writer, because others filled it: it moves where there is free space, and the write goes on there.
//!
//! The move is run at once by the thread that serves the writer's request, whatever the queue holds and though moves are paused: a writer waits for it.

use super::Moves;
use crate::guard;
use crate::log::note;
use crate::managed::Managed;
use crate::move_queue::{Class, Entry, Outcome, Task, Way, pairs};
use crate::rmt::FileState;
use crate::standing::Standings;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripewise_layout::{Generation, Layout, RegionIndex, ServerId};
use stripewise_store::protocol::{MoveNumber, Refusal};

/// How long moves of the region that are under way are waited for, and one that was put back is tried again.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);

impl Moves {
    /// Moves the region away from `full`, unless it lies elsewhere than in `generation` by now. Refused for want of space when no other layout has it.
    pub(crate) fn move_from_full(
        &self,
        managed: &Arc<Managed>,
        region: RegionIndex,
        generation: Generation,
        full: ServerId,
    ) -> Result<(), Refusal> {
        let begun = Instant::now();
        let mut avoided = BTreeSet::from([full]);
        loop {
            let Some(task) = self.rescue_of(managed, region, generation, &mut avoided)? else {
                // Gone, cut off, or moved already.
                return Ok(());
            };
            let is_moving = task.to.is_none();
            let outcome = if is_moving { None } else { Some(self.move_at_once(&task)) };
            match outcome {
                Some(Outcome::Moved { .. }) => {
                    let name = &self.context.cluster().servers[usize::from(full.0)].name;
                    let path = guard(&managed.inner).record.path.clone();
                    note!(self.context.log(), info, path, %region, server = name.as_str(), "a region was moved away from a full server");
                    return Ok(());
                }
                Some(Outcome::Failed(what)) => return Err(Refusal::NoSpace { what }),
                Some(Outcome::PutBack(what)) if begun.elapsed() > PATIENCE => return Err(Refusal::NoSpace { what }),
                None if begun.elapsed() > PATIENCE => {
                    return Err(Refusal::NoSpace { what: "the region's move does not end".to_owned() });
                }
                None | Some(Outcome::PutBack(_) | Outcome::MovedAside { .. } | Outcome::Cancelled) => {
                    std::thread::sleep(PAUSE)
                }
            }
        }
    }

    /// The move to run; without a layout while another move of the region is under way.
    fn rescue_of(
        &self,
        managed: &Arc<Managed>,
        region: RegionIndex,
        generation: Generation,
        avoided: &mut BTreeSet<ServerId>,
    ) -> Result<Option<Task>, Refusal> {
        let inner = guard(&managed.inner);
        let placed = inner.regions.get(&region).filter(|placed| placed.generation == generation);
        let Some(placed) = placed.filter(|_| !inner.freed) else { return Ok(None) };
        let copied_bytes = Arc::default();
        let way = Way::Straight;
        let task = |number, to| Task { number, file: managed.file, region, to, copied_bytes, is_urgent: true, way };
        if inner.moving.contains_key(&region) {
            return Ok(Some(task(MoveNumber(u64::MAX), None)));
        }
        let to = Arc::new(self.layout_with_space(&placed.layout, inner.record.region_bytes, avoided)?);
        if matches!(inner.record.state, FileState::Releasing { .. }) {
            return Err(Refusal::NoSpace { what: "the file is being released".to_owned() });
        }
        let mut task = task(MoveNumber(0), Some(Arc::clone(&to)));
        let total_bytes = inner.geometry().used_bytes(region, managed.extent.size_bytes());
        let (path, from) = (inner.record.path.as_str().into(), pairs(&placed.layout));
        let entry = Entry::new((managed.file, &path), (region, from), (Some(to), Class::Outgoing), total_bytes);
        task.copied_bytes = Arc::clone(entry.copied_bytes());
        task.number = self.queue.add_active(entry);
        Ok(Some(task))
    }

    /// The rest of the layout's servers, else others of their class, else any; each with space for its share of a whole region. Those without are added to `avoided`.
    pub(super) fn layout_with_space(
        &self,
        layout: &Layout,
        region_bytes: u64,
        avoided: &mut BTreeSet<ServerId>,
    ) -> Result<Layout, Refusal> {
        let mut standings = Standings::new(self.context.servers());
        loop {
            let no_space = |_| Refusal::NoSpace { what: "no other server has free space for the region".to_owned() };
            let found = self.drained.usable(&mut standings, layout, avoided).map_err(no_space)?;
            match self.capacity.reserve(&standings).take(&found, region_bytes) {
                Ok(()) => return Ok(found),
                Err(full) => avoided.insert(full.server),
            };
        }
    }

    fn move_at_once(&self, task: &Task) -> Outcome {
        let moved = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.move_region(task)));
        let outcome =
            moved.unwrap_or_else(|_| Outcome::Failed("a fault in the mover itself; see its last words".to_owned()));
        // One that is put back is not for the queue: its writer waits for it here.
        let ended = match &outcome {
            Outcome::Moved { bytes, freeing } => Outcome::Moved { bytes: *bytes, freeing: *freeing },
            Outcome::Failed(why) => Outcome::Failed(why.clone()),
            Outcome::Cancelled | Outcome::PutBack(_) | Outcome::MovedAside { .. } => Outcome::Cancelled,
        };
        self.queue.finish(task.number, ended);
        outcome
    }
}
