//! The parts of a broker, put together, and the requests on top of them.

mod admin;
mod holders;
pub(crate) mod hosts;
mod probing;
mod requests;
mod serving;
pub(crate) mod shown;

use holders::Holders;
use probing::SharedDirectories;

pub(crate) use requests::is_heard_of_the_gone;

use crate::BrokerError;
use crate::agent_lanes::AgentLanes;
use crate::capacity::Capacity;
use crate::check::Checks;
use crate::context::Context;
use crate::describing::Describing;
use crate::discards::Discards;
use crate::drained::Drained;
use crate::file_memory::FileMemory;
use crate::files::Files;
use crate::fragments::{FragmentLogs, Fragments, Keeping, LogCapacity, WriteBack};
use crate::guiding::Guiding;
use crate::identities::Identities;
use crate::idleness::Idle;
use crate::inodes::StubInodes;
use crate::lifecycle::Lifecycle;
use crate::loading::Loader;
use crate::min_size::MinSizes;
use crate::move_queue::MoveQueue;
use crate::moves::Moves;
use crate::name_changes::NameChanges;
use crate::name_notes::NameNotes;
use crate::names::ManagedNames;
use crate::objects::Objects;
use crate::observing::Observers;
use crate::occupancy::Occupancy;
use crate::placing::Placer;
use crate::quiescing::Quiescing;
use crate::rechecks::Rechecks;
use crate::recovery::Recovery;
use crate::replicas::Replicas;
use crate::search::StubSearch;
use crate::throttle::Throttle;
use crate::truncation::Truncation;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use stripewise_layout::Cluster;

/// What requests are carried out with. All its methods are requests, or what follows when a client goes.
pub(crate) struct Parts {
    base: Base,
    regions: Regions,
    /// Kept for [`Files`], which do not keep it.
    _loader: Arc<Loader>,
    identities: Arc<Identities>,
    observers: Arc<Observers>,
    guiding: Guiding,
    lifecycle: Arc<Lifecycle>,
    name_changes: Arc<NameChanges>,
    checks: Arc<Checks>,
    recovery: Arc<Recovery>,
    pub(crate) holders: Holders,
    pub(crate) directories: SharedDirectories,
}

/// What all others use.
struct Base {
    context: Arc<Context>,
    agent_lanes: Arc<AgentLanes>,
    rechecks: Arc<Rechecks>,
    capacity: Arc<Capacity>,
    drained: Arc<Drained>,
    quiescing: Arc<Quiescing>,
    inodes: Arc<StubInodes>,
    names: Arc<ManagedNames>,
    min_sizes: Arc<MinSizes>,
    memory: Arc<FileMemory>,
    describing: Arc<Describing>,
    objects: Arc<Objects>,
    files: Arc<Files>,
    occupancy: Occupancy,
    /// Small files that the client which closed one last had written in a row.
    small_in_a_row: AtomicU32,
}

impl Base {
    fn new(cluster: &Cluster, context: Context, idle_after: Option<Duration>) -> Result<Self, BrokerError> {
        let context = Arc::new(context);
        let rechecks = Arc::new(Rechecks::default());
        let capacity = Arc::new(Capacity::new(cluster));
        let drained = Arc::new(Drained::load(&context)?);
        let quiescing = Arc::new(Quiescing::new(&context, &rechecks));
        let inodes = Arc::new(StubInodes::new(&context));
        let names = Arc::new(ManagedNames::load(context.table())?);
        let min_sizes = Arc::new(MinSizes::new(&names, idle_after));
        let memory = Arc::new(FileMemory::new(&context));
        let describing = Arc::new(Describing::new(&context, &drained));
        let objects = Arc::new(Objects::new(&context));
        let files = Arc::new(Files::default());
        let occupancy = Occupancy::new(&context, &files);
        Ok(Self {
            context,
            agent_lanes: Arc::default(),
            rechecks,
            capacity,
            drained,
            quiescing,
            inodes,
            names,
            min_sizes,
            memory,
            describing,
            objects,
            files,
            occupancy,
            small_in_a_row: AtomicU32::new(0),
        })
    }
}

/// Regions and what happens to them.
struct Regions {
    discards: Arc<Discards>,
    queue: Arc<MoveQueue>,
    replicas: Arc<Replicas>,
    placer: Arc<Placer>,
    logs: Arc<FragmentLogs>,
    write_back: Arc<WriteBack>,
    fragments: Arc<Fragments>,
    moves: Arc<Moves>,
    truncation: Arc<Truncation>,
}

impl Regions {
    fn new(cluster: &Cluster, base: &Base, idle_after: Option<Duration>) -> Result<Self, BrokerError> {
        let discards =
            Arc::new(Discards::new(&base.context, &base.capacity, &base.quiescing, &base.files, &base.objects));
        let costs = (base.context.read_costs(), base.context.write_costs());
        let throttle = Throttle::new(cluster, base.context.devices()?, costs)
            .map_err(|error| BrokerError::Cluster { what: error.to_string() })?;
        let throttle = Arc::new(throttle);
        let idle = Arc::new(Idle::new(idle_after));
        let queue = Arc::new(MoveQueue::new(&throttle, &discards, &idle));
        let replicas = Arc::new(Replicas::new(
            &base.context,
            &base.capacity,
            &base.drained,
            &base.quiescing,
            &base.files,
            &base.describing,
            &discards,
            &idle,
            &queue,
        ));
        let placer = Arc::new(Placer::new(
            &base.context,
            &base.capacity,
            &base.drained,
            &base.describing,
            &base.files,
            &replicas,
        ));
        let keeping = Arc::new(Keeping::default());
        let log_capacity = Arc::new(LogCapacity::new(cluster));
        let logs = Arc::new(FragmentLogs::new(
            &base.context,
            &base.drained,
            &base.quiescing,
            &base.files,
            &placer,
            &log_capacity,
            &keeping,
        ));
        let write_back = Arc::new(WriteBack::new(&base.context, &base.quiescing, &base.objects, &throttle));
        let fragments = Arc::new(Fragments::new(
            &base.context,
            &base.drained,
            &base.quiescing,
            &base.files,
            &throttle,
            &logs,
            &write_back,
            &log_capacity,
            &keeping,
        ));
        let moves = Arc::new(Moves::new(
            &base.context,
            &base.capacity,
            &base.drained,
            &base.quiescing,
            &base.describing,
            &base.objects,
            &base.files,
            &discards,
            &throttle,
            &queue,
            &replicas,
            &placer,
            &write_back,
        ));
        let truncation = Arc::new(Truncation::new(
            &base.context,
            &base.capacity,
            &base.quiescing,
            &base.describing,
            &replicas,
            &write_back,
        ));
        Ok(Self { discards, queue, replicas, placer, logs, write_back, fragments, moves, truncation })
    }
}

impl Parts {
    pub(crate) fn new(cluster: &Cluster, context: Context, idle_after: Option<Duration>) -> Result<Self, BrokerError> {
        let base = Base::new(cluster, context, idle_after)?;
        let regions = Regions::new(cluster, &base, idle_after)?;
        let loader = Arc::new(Loader::new(
            &base.context,
            &base.memory,
            &base.quiescing,
            &base.describing,
            &regions.replicas,
            &regions.truncation,
            &regions.logs,
        ));
        base.files.load_by(Arc::downgrade(&loader) as _);
        let identities = Arc::new(Identities::new(&base.context, &base.files, &base.inodes, &base.memory));
        let observers = Arc::new(Observers::new(
            &base.context,
            &base.quiescing,
            &base.files,
            &base.memory,
            regions.queue.totals().since_ns,
        ));
        let search = Arc::new(StubSearch::new(&base.files, &base.names));
        let notes = Arc::new(NameNotes::default());
        let lifecycle = Arc::new(Lifecycle::new(
            &base.context,
            &base.rechecks,
            &base.capacity,
            &base.quiescing,
            &base.inodes,
            &base.min_sizes,
            &base.memory,
            &base.describing,
            &base.files,
            &regions.replicas,
            &regions.logs,
            &regions.write_back,
            &regions.truncation,
            &search,
            &identities,
            &observers,
            &notes,
        ));
        let name_changes = Arc::new(NameChanges::new(
            &base.context,
            &base.rechecks,
            &base.quiescing,
            &base.files,
            &identities,
            &notes,
            &search,
            &lifecycle,
            &regions.truncation,
        ));
        let checks = Arc::new(Checks::new(
            &base.context,
            &base.rechecks,
            &base.quiescing,
            &base.inodes,
            &base.files,
            &regions.replicas,
            &regions.logs,
            &regions.truncation,
            &search,
            &identities,
            &notes,
            &lifecycle,
        ));
        let recovery = Arc::new(Recovery::new(
            &base.context,
            &base.rechecks,
            &base.capacity,
            &base.quiescing,
            &base.inodes,
            &base.files,
            &base.objects,
            &regions.discards,
            &regions.logs,
            &search,
            &lifecycle,
            &name_changes,
        ));
        let holders =
            Holders::new(&base.context, &base.rechecks, &base.files, &regions.replicas, &lifecycle, &name_changes);
        let directories = SharedDirectories::new(&base.context, &base.names);
        Ok(Self {
            base,
            regions,
            _loader: loader,
            identities,
            observers,
            guiding: Guiding::default(),
            lifecycle,
            name_changes,
            checks,
            recovery,
            holders,
            directories,
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.base.context
    }

    pub(crate) fn queue(&self) -> &MoveQueue {
        &self.regions.queue
    }

    pub(crate) fn moves(&self) -> &Arc<Moves> {
        &self.regions.moves
    }

    pub(crate) fn min_sizes(&self) -> &Arc<MinSizes> {
        &self.base.min_sizes
    }

    pub(crate) fn fragments(&self) -> &Arc<Fragments> {
        &self.regions.fragments
    }

    /// See [`Recovery::recover`]. Programs are served from then on.
    pub(crate) fn recover(&self) -> Result<Vec<String>, BrokerError> {
        let cleaned = self.recovery.recover()?;
        self.show_min_sizes();
        hosts::note_own_host(&self.base.context)?;
        Ok(cleaned)
    }

    /// Lets programs know which closes to look at.
    fn show_min_sizes(&self) {
        let least = self.base.names.read().min_sizes().into_iter().map(|(_, bytes)| bytes).min();
        self.base.inodes.show_least_min_size(least);
    }

    /// See [`Lifecycle::settle_all`].
    pub(crate) fn settle_all(&self) {
        self.lifecycle.settle_all();
    }
}
