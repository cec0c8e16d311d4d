//! Quiescing: for as long as the broker changes what lies beneath a region or a whole file, nobody does I/O there, or everybody marks what he writes.
//!
//! One owner for all who need it. A *region* that moves, or gets replicas, goes through [`Quiescing::begin`] (writers mark), [`Quiescing::seal`] (new writers wait),
//! [`Quiescing::wait`] for those inside, and [`Quiescing::publish`] or [`Quiescing::put_back`]; `shared::marking` says why no byte is lost. A *file* that is
//! truncated, or whose log is replaced, is shut by its gate ([`Quiescing::shut`]) and drained. Old objects are freed, and what the dead have left
//! in logs is removed, once nobody is inside who came before ([`Quiescing::retain_inside`]).
//!
//! What programs of this host do is asked of their [`Host`], by shared memory; the agents of other hosts are asked to do the same there (`elsewhere`).

mod elsewhere;
mod gate;
mod host;

pub(crate) use elsewhere::Elsewhere;
pub(crate) use gate::ShutGate;

use crate::context::Context;
use crate::fencing;
use crate::host_messages::Known;
use crate::managed::{Inner, Managed};
use crate::others::Others;
use crate::rechecks::Rechecks;
use host::{Host, ThisHost};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use stripewise_coherence::stopping::{Act, Outcome, Stop};
use stripewise_layout::{Direction, FileId, Generation, Layout, RegionIndex};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{Operation, ServerError};
use stripewise_store::shared::control::{ControlError, MAX_REGIONS, RegionState};
use stripewise_store::shared::marking::{Motion, chunks_of};
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};
use stripewise_store::shared::slots::Use;

/// How long a truncation waits for I/O in flight before it gives up, on a cluster of one host.
const FILE_PATIENCE: Duration = Duration::from_secs(60);
/// When I/O takes so long, its servers are asked whether they answer.
const LONG: Duration = Duration::from_secs(1);
/// How long a process is waited for that does not run at all, as one that was stopped.
pub(crate) const STOPPED_PATIENCE: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);
/// How often a process whose I/O goes on is asked for whether it lives.
const LIFE_CHECK: Duration = Duration::from_millis(4);

/// How long I/O in flight is waited for.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) all: Duration,
    /// Of a process none of whose threads runs; `None`: as of all.
    pub(crate) stopped: Option<Duration>,
}

/// What came of waiting.
pub(crate) struct Waited {
    /// Those that go on. Empty: all have ended, or died.
    pub(crate) left: Vec<Use>,
    /// Of those, one that was not waited for any longer.
    pub(crate) stuck: Option<ProcessSlot>,
    /// Who died inside, and may have written what it could not mark.
    pub(crate) died: HashSet<(ProcessSlot, Incarnation)>,
}

pub(crate) struct Quiescing {
    context: Arc<Context>,
    rechecks: Arc<Rechecks>,
    host: Box<dyn Host>,
}

impl Quiescing {
    pub(crate) fn new(context: &Arc<Context>, rechecks: &Arc<Rechecks>) -> Self {
        let host = Box::new(ThisHost::new(context.processes(), context.under_way()));
        Self { context: Arc::clone(context), rechecks: Arc::clone(rechecks), host }
    }

    /// Writers of the region mark what they touch from here on; those who were inside before do not, and are to be waited for.
    pub(crate) fn begin(&self, managed: &Managed, region: RegionIndex, slot: u8) {
        let region_bytes = managed.control.region_bytes();
        let chunks = chunks_of(region_bytes, 0, region_bytes).end() + 1;
        managed.control.regions().begin_move(region, slot, managed.extent.marks(slot), chunks);
    }

    /// New writers wait from here on. False: the region's move was put back.
    pub(crate) fn seal(&self, managed: &Managed, region: RegionIndex, slot: u8) -> bool {
        managed.control.regions().seal(region, slot)
    }

    /// Writers go on, and mark. False: the region's move was put back.
    pub(crate) fn unseal(&self, managed: &Managed, region: RegionIndex, slot: u8) -> bool {
        managed.control.regions().unseal(region, slot)
    }

    pub(crate) fn is_sealed(&self, managed: &Managed, region: RegionIndex, slot: u8) -> bool {
        let state = managed.control.regions().get(region);
        matches!(state, RegionState::Placed { motion: Motion::Sealed(sealed), .. } if sealed == slot)
    }

    /// The region lies at its new place, and writers go on there. Returns who came in before, and may be reading the old one.
    pub(crate) fn publish(
        &self,
        managed: &Managed,
        region: RegionIndex,
        (generation, layout): (Generation, &Layout),
    ) -> Result<Vec<Use>, ControlError> {
        managed.control.regions().publish(managed.file, region, generation, layout)?;
        managed.control.regions().let_writers_go_on();
        Ok(self.inside(managed, region, region))
    }

    /// The region lies where it did, with these replicas; writers go on.
    pub(crate) fn publish_replicas<'l>(
        &self,
        managed: &Managed,
        region: RegionIndex,
        replicas: impl Iterator<Item = (u8, Generation, &'l Layout)>,
    ) -> Result<(), ControlError> {
        managed.control.regions().show_replicas(managed.file, region, replicas)?;
        managed.control.regions().let_writers_go_on();
        Ok(())
    }

    /// The region's move is given up: it lies where it did, and writers go on.
    pub(crate) fn put_back(&self, managed: &Managed, region: RegionIndex, slot: u8) {
        managed.control.regions().give_up_move(region, slot);
    }

    /// Ends every move of the file: regions stay where they are. To be called before anything takes their objects away.
    pub(crate) fn end_moves(&self, managed: &Managed, inner: &Inner, why: &str) {
        for (region, active) in &inner.moving {
            active.abandon(why);
            self.put_back(managed, *region, active.slot);
        }
    }

    /// After bytes beyond `size_bytes` were cut from the regions' objects: moving regions copy what is there again.
    pub(crate) fn mark_truncated(&self, managed: &Managed, inner: &Inner, size_bytes: u64) {
        let geometry = inner.geometry();
        let region_bytes = geometry.region_bytes();
        for (region, active) in &inner.moving {
            let used = geometry.used_bytes(*region, size_bytes);
            if used < region_bytes {
                managed.extent.marks(active.slot).mark(chunks_of(region_bytes, used, region_bytes - used));
            }
        }
    }

    /// I/O under way in these regions.
    pub(crate) fn inside(&self, managed: &Managed, first: RegionIndex, last: RegionIndex) -> Vec<Use> {
        self.host.uses(managed, first, last)
    }

    /// The same of writers.
    pub(crate) fn writers_inside(&self, managed: &Managed, first: RegionIndex, last: RegionIndex) -> Vec<Use> {
        let mut uses = self.inside(managed, first, last);
        uses.retain(|lane| lane.what.direction == Direction::Write);
        uses
    }

    /// Keeps those whose I/O goes on. That of the dead does not.
    pub(crate) fn retain_inside(&self, managed: &Managed, uses: &mut Vec<Use>) {
        uses.retain(|lane| self.host.goes_on(managed, lane) && self.host.is_alive(lane.slot, lane.incarnation));
    }

    /// Waits until these uses have ended; the dead have. Looks at `is_over` now and then, and gives up when it says so.
    pub(crate) fn wait(
        &self,
        managed: &Managed,
        uses: Vec<Use>,
        patience: Patience,
        is_over: &mut dyn FnMut(&[Use]) -> bool,
    ) -> Waited {
        wait(self.host.as_ref(), managed, uses, patience, is_over)
    }

    /// Process `slot`, for a sentence on why something waits.
    pub(crate) fn stuck(&self, slot: ProcessSlot) -> String {
        let host = self.context.membership().map_or_else(String::new, |own| format!(" of host {}", own.host()));
        format!("process {}{host}, whose I/O does not end", self.host.process_id(slot))
    }

    /// Waits until no living process has I/O in flight on the file, unless it `is_over` before; the gate has been shut `since` then. An error: it does not
    /// end, above all where a server does not answer.
    pub(crate) fn drain_file(
        &self,
        managed: &Managed,
        since: Instant,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), Refusal> {
        let uses = self.inside(managed, RegionIndex(0), RegionIndex(MAX_REGIONS - 1));
        let host_timeout = self.context.host_timeout();
        let patience = host_timeout.map_or(Patience { all: FILE_PATIENCE, stopped: None }, |timeout| {
            patience_among_hosts(timeout, since.elapsed())
        });
        let (mut asked, mut silent) = (Instant::now(), Ok(()));
        let mut ask = |uses: &[Use]| {
            // The answer may take as long as hosts may be held up.
            if host_timeout.is_none() && asked.elapsed() > LONG {
                silent = self.ask_servers_of(managed, uses);
                asked = Instant::now();
            }
            silent.is_err() || is_over()
        };
        let waited = self.wait(managed, uses, patience, &mut ask);
        silent?;
        match waited.stuck {
            None => Ok(()),
            Some(slot) => Err(Refusal::Busy { file: managed.file, holder: self.stuck(slot) }),
        }
    }

    /// Whether the servers of this I/O answer; those that cannot be used for other reasons fail it themselves.
    fn ask_servers_of(&self, managed: &Managed, uses: &[Use]) -> Result<(), Refusal> {
        let mut servers = BTreeSet::new();
        for region in uses.iter().flat_map(|lane| (lane.what.first.0..=lane.what.last.0).map(RegionIndex)) {
            if let RegionState::Placed { view, .. } = managed.control.regions().get(region) {
                servers.extend(view.stripes().iter().map(|stripe| stripe.server));
            }
        }
        let probed = self.context.perform_together(servers.into_iter().map(|server| (server, Operation::Probe)));
        let silent =
            probed.into_iter().filter_map(Result::err).find(|error| matches!(error, ServerError::NotAnswering { .. }));
        silent.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Shuts the file's gate until the result is dropped. Refused while the file stays shut because of an earlier cut.
    pub(crate) fn shut<'a>(&'a self, managed: &'a Managed) -> Result<ShutGate<'a>, Refusal> {
        self.open_when_truncated(managed)?;
        let gate = ShutGate::new(self, managed);
        if let Some(others) = self.context.others() {
            // The file is as long as any host knows.
            let size_bytes = self.shut_elsewhere(others, managed)?;
            managed.extent.extend_to(size_bytes);
        }
        Ok(gate)
    }

    /// All other hosts, as [`Stop`] says; what I/O of this host goes on is waited for next. Returns the longest size that one knows.
    fn shut_elsewhere(&self, others: &Others, managed: &Managed) -> Result<u64, Refusal> {
        let (file, truncations) = (managed.file, managed.truncations.load(SeqCst));
        let (mut stop, mut outcome, mut size_bytes) = (Stop::default(), Outcome::Done, 0);
        let mut refusal = Refusal::Busy { file, holder: "another host".to_owned() };
        loop {
            let done = match stop.next(outcome) {
                // This host's gate is.
                Act::Shut => Ok(Outcome::Done),
                Act::ShutOut => {
                    others.wait_for_lines(file, None);
                    let any = fencing::shut_out_silent(&self.context, file);
                    any.map(|any| if any { Outcome::Done } else { Outcome::Nothing })
                }
                Act::Ask => others.shut(file, truncations).map(|longest| {
                    size_bytes = longest;
                    Outcome::Done
                }),
                Act::Drain | Act::Change => return Ok(size_bytes),
                Act::Refuse => return Err(refusal),
            };
            outcome = done.unwrap_or_else(|why| {
                refusal = why;
                Outcome::Failed
            });
        }
    }

    fn open_everywhere(&self, managed: &Managed) {
        managed.control.gate().open();
        if let Some(others) = self.context.others() {
            let (size_bytes, truncations) = (managed.extent.size_bytes(), managed.truncations.load(SeqCst));
            others.open(managed.file, Known { size_bytes, truncations });
        }
    }

    /// Opens a file that stayed shut because a server, or the next master, might yet cut it; an error while one still might.
    pub(crate) fn open_when_truncated(&self, managed: &Managed) -> Result<(), Refusal> {
        if !managed.stays_shut.load(SeqCst) {
            return Ok(());
        }
        if managed.is_truncation_unknown.load(SeqCst) {
            let what = format!(
                "the mapping table does not say what came of a truncation of file {}, which stays shut until it does",
                managed.file
            );
            return Err(Refusal::Table { what });
        }
        if let Some(server) = self.context.servers().iter().find(|server| server.is_changing(managed.file)) {
            let server = server.name().to_owned();
            let what = format!(
                "server {server} does not answer and may yet truncate file {}, which stays shut until then; see to the server's mount",
                managed.file
            );
            return Err(Refusal::Server { server, what });
        }
        if managed.stays_shut.swap(false, SeqCst) {
            self.open_everywhere(managed);
        }
        Ok(())
    }

    /// Opens the gate, unless a server or the next master may yet cut the file: then it is opened when that has ended.
    pub(crate) fn open_or_keep_shut(&self, managed: &Managed) {
        if managed.is_truncation_unknown.load(SeqCst) || self.is_changing(managed.file) {
            managed.stays_shut.store(true, SeqCst);
            self.rechecks.recheck(managed.file);
        } else if managed.control.gate().is_shut() {
            self.open_everywhere(managed);
        }
    }

    pub(crate) fn is_changing(&self, file: FileId) -> bool {
        self.context.is_changing(file)
    }
}

/// Of I/O on a whole file, when that has been shut on all hosts for so long: nobody is held up for longer than the host timeout. The rest of that is for the
/// answer to the master, which waits as long for it and would otherwise take the host for one that does not answer.
fn patience_among_hosts(timeout: Duration, shut_for: Duration) -> Patience {
    let all = (timeout - timeout / 10).saturating_sub(shut_for);
    // Whoever finds the gate shut shows for a moment, too.
    Patience { all: all.max(STOPPED_PATIENCE), stopped: Some(STOPPED_PATIENCE) }
}

/// See [`Quiescing::wait`].
fn wait(
    host: &dyn Host,
    managed: &Managed,
    mut uses: Vec<Use>,
    patience: Patience,
    is_over: &mut dyn FnMut(&[Use]) -> bool,
) -> Waited {
    let (start, mut pause, mut checked) = (Instant::now(), FIRST_PAUSE, None::<Instant>);
    let mut died = HashSet::new();
    loop {
        uses.retain(|lane| host.goes_on(managed, lane));
        let mut stuck = None;
        if checked.is_none_or(|checked| checked.elapsed() >= LIFE_CHECK) {
            let is_dead = |lane: &Use| !host.is_alive(lane.slot, lane.incarnation);
            died.extend(uses.extract_if(.., |lane| is_dead(lane)).map(|lane| (lane.slot, lane.incarnation)));
            checked = Some(Instant::now());
            if patience.stopped.is_some_and(|stopped| start.elapsed() > stopped) {
                stuck = uses.iter().find(|lane| host.is_stopped(lane.slot));
            }
            if is_over(&uses) {
                stuck = stuck.or(uses.first());
            }
        }
        if start.elapsed() >= patience.all {
            stuck = stuck.or(uses.first());
        }
        if uses.is_empty() || stuck.is_some() {
            let stuck = stuck.map(|lane| lane.slot);
            return Waited { left: uses, stuck, died };
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

impl Quiescing {
    /// Living processes that have the file open.
    pub(crate) fn users(&self, managed: &Managed) -> Vec<(ProcessSlot, Incarnation)> {
        managed.slots.users().filter(|(slot, incarnation)| self.context.is_alive(*slot, *incarnation)).collect()
    }
}
