//! Objects that belong to no region: those of a move that was given up, and the old place of one that was committed.
//!
//! Both stand in the table as *discards* for as long as they may exist, so a broker that dies leaves nothing behind. An old place waits for everybody who was
//! inside the file when the new one was published; then its objects are cut to nothing before they lose their names, since
//! other processes keep descriptors of them and would keep the room.

use crate::capacity::Capacity;
use crate::complaints::Complaints;
use crate::context::Context;
use crate::files::Files;
use crate::guard;
use crate::log::note;
use crate::managed::{Managed, Removal};
use crate::objects::Objects;
use crate::quiescing::{Patience, Quiescing};
use crate::rmt::Changes;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stripewise_layout::{FileId, Generation, Layout, RegionIndex};
use stripewise_store::protocol::{MoveNumber, Refusal};
use stripewise_store::server::ObjectName;
use stripewise_store::shared::slots::Use;

/// A server that fails when objects are freed is asked again after this time, doubled up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Objects to be freed.
pub(crate) struct Discard {
    pub(crate) managed: Arc<Managed>,
    pub(crate) region: RegionIndex,
    pub(crate) generation: Generation,
    pub(crate) layout: Layout,
    /// Who may still read them.
    pub(crate) uses: Vec<Use>,
    /// The move whose old place they are, and which ends when they are freed.
    pub(crate) number: Option<MoveNumber>,
}

struct Waiting {
    discard: Discard,
    not_before: Instant,
    retry: Duration,
}

/// Objects that belong to no region, and their freeing.
pub(crate) struct Discards {
    context: Arc<Context>,
    capacity: Arc<Capacity>,
    quiescing: Arc<Quiescing>,
    files: Arc<Files>,
    objects: Arc<Objects>,
    waiting: Mutex<Vec<Waiting>>,
    /// With those that are just being looked at.
    count: AtomicUsize,
    /// Files with replicas that were forgotten and are not in `waiting` yet.
    forgotten: Mutex<BTreeSet<FileId>>,
    /// A region that moves all the time leaves one place after the other.
    complaints: Complaints<(FileId, RegionIndex)>,
}

impl Discards {
    pub(crate) fn new(
        context: &Arc<Context>,
        capacity: &Arc<Capacity>,
        quiescing: &Arc<Quiescing>,
        files: &Arc<Files>,
        objects: &Arc<Objects>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            capacity: Arc::clone(capacity),
            quiescing: Arc::clone(quiescing),
            files: Arc::clone(files),
            objects: Arc::clone(objects),
            waiting: Mutex::default(),
            count: AtomicUsize::new(0),
            forgotten: Mutex::default(),
            complaints: Complaints::default(),
        }
    }

    pub(crate) fn add(&self, discard: Discard) {
        self.count.fetch_add(1, SeqCst);
        guard(&self.waiting).push(Waiting { discard, not_before: Instant::now(), retry: Duration::ZERO });
    }

    /// The file's forgotten replicas are to be looked at.
    pub(crate) fn check_again(&self, file: FileId) {
        guard(&self.forgotten).insert(file);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0 && guard(&self.forgotten).is_empty()
    }

    fn take(&self) -> Vec<Waiting> {
        std::mem::take(&mut *guard(&self.waiting))
    }

    /// Frees what nobody reads any more; the rest waits on. Returns of each old place that was freed which move left it.
    pub(crate) fn free_what_is_left(&self) -> Vec<Option<MoveNumber>> {
        let mut freed = Vec::new();
        let forgotten = std::mem::take(&mut *guard(&self.forgotten));
        for file in forgotten {
            if let Some(managed) = self.files.if_loaded(file) {
                self.free_forgotten(&managed, Duration::ZERO);
            }
        }
        for mut waiting in self.take() {
            let discard = &mut waiting.discard;
            self.quiescing.retain_inside(&discard.managed, &mut discard.uses);
            if discard.uses.is_empty() && waiting.not_before <= Instant::now() {
                match self.discard(discard) {
                    Ok(()) => {
                        freed.push(discard.number);
                        self.count.fetch_sub(1, SeqCst);
                        continue;
                    }
                    Err(refusal) => {
                        let region = discard.region;
                        if self.complaints.is_due((discard.managed.file, region), Instant::now()) {
                            let path = &guard(&discard.managed.inner).record.path;
                            note!(self.context.log(), warn, path = %path, %region, error = %refusal, "an old place of a region is not freed yet");
                        }
                        waiting.retry = (2 * waiting.retry).clamp(FIRST_RETRY, LONGEST_RETRY);
                        waiting.not_before = Instant::now() + waiting.retry;
                    }
                }
            }
            guard(&self.waiting).push(waiting);
        }
        freed
    }

    /// Removes the objects, gives their room back and forgets them.
    pub(crate) fn discard(&self, discard: &Discard) -> Result<(), Refusal> {
        let Discard { managed, region, generation, layout, .. } = discard;
        let object = ObjectName { file: managed.file, region: *region, generation: *generation };
        self.quiescing.drain_elsewhere(managed, *region)?;
        self.objects.remove_objects(object, layout)?;
        self.context.step("move: objects removed");
        let mut inner = guard(&managed.inner);
        if inner.freed || !inner.discards.contains_key(&(*region, *generation)) {
            return Ok(());
        }
        let mut changes = Changes::default();
        changes.remove_discard(managed.file, *region, *generation);
        self.context.table().commit(&changes)?;
        inner.discards.remove(&(*region, *generation));
        // With all of a removed file's.
        if inner.removal == Removal::None {
            self.capacity.give_back([layout], inner.record.region_bytes);
        }
        self.context.step("move: discard forgotten");
        Ok(())
    }

    /// At the start: what a predecessor's moves left of a file. Where nobody uses the file it is removed now, else when the last
    /// reader has left.
    pub(crate) fn settle_discards(&self, managed: &Arc<Managed>) -> Result<(), Refusal> {
        let left: Vec<_> = guard(&managed.inner).discards.iter().map(|(key, layout)| (*key, layout.clone())).collect();
        let mut first_fault = None;
        for ((region, generation), layout) in left {
            let mut uses = self.quiescing.inside(managed, region, region);
            self.quiescing.retain_inside(managed, &mut uses);
            let managed = Arc::clone(managed);
            let discard = Discard { managed, region, generation, layout, uses, number: None };
            // At the start of a master other hosts do not answer yet.
            if discard.uses.is_empty() && !self.context.is_elsewhere(discard.managed.file) {
                match self.discard(&discard) {
                    Ok(()) => continue,
                    Err(refusal) => first_fault.get_or_insert(refusal),
                };
            }
            self.add(discard);
        }
        first_fault.map_or(Ok(()), Err)
    }

    /// Frees objects that belong to nothing any more, once nobody reads them; waits so long for readers. What is left then is freed later.
    pub(crate) fn free_forgotten(&self, managed: &Arc<Managed>, patience: Duration) {
        let discards: Vec<Discard> = {
            let mut inner = guard(&managed.inner);
            let forgotten = std::mem::take(&mut inner.forgotten);
            let discard = |(region, generation)| {
                let layout = inner.discards.get(&(region, generation))?.clone();
                // Who came in since cannot have seen them, but is waited for all the same.
                let uses = self.quiescing.inside(managed, region, region);
                Some(Discard { managed: Arc::clone(managed), region, generation, layout, uses, number: None })
            };
            forgotten.into_iter().filter_map(discard).collect()
        };
        let begun = Instant::now();
        for mut discard in discards {
            let patience = Patience { all: patience.saturating_sub(begun.elapsed()), stopped: None };
            let uses = std::mem::take(&mut discard.uses);
            discard.uses = self.quiescing.wait(managed, uses, patience, &mut |_| false).left;
            if !discard.uses.is_empty() || self.discard(&discard).is_err() {
                self.add(discard);
            }
        }
    }
}
