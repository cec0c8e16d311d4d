//! Darshan's logs: counters of every file, and with DXT the requests themselves.
//!
//! [`DarshanLog::read`] takes the records as Darshan's library reads them in a process of its own (crate `darshan`) and keeps sums. A file
//! has one [`FileCounters`], whatever the number of ranks; of more than [`MAX_FILES`] files those that moved most bytes are kept, and all
//! count in the totals. DXT's segments become the slots of a [`Trace`], so that they are planned, simulated and shown as any other. Of
//! files without segments [`coarse`] makes accesses from the counters.

pub mod coarse;
mod columns;
mod counters;
mod left_out;
mod segments;
mod shares;
mod sizes;
#[cfg(test)]
mod tests;

pub use counters::{DirectionCounters, Extreme, FileCounters, LevelCounters, LustreLayout, MpiCalls};
pub use segments::PartlyTraced;
pub use shares::{RankShare, Shares};
pub use sizes::{BIN_NAMES, BINS, bin_of};

use crate::trace::Trace;
use crate::warning::Warning;
use columns::Columns;
use left_out::LeftOut;
use segments::Segments;
use shares::Traced;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use stripewise_darshan::{DarshanError, Found, Item, Job, Module};

/// Files of which counters are kept, at least; twice as many at most.
pub const MAX_FILES: usize = if cfg!(test) { 100 } else { 100_000 };

/// Slices of the run in [`DarshanLog::timeline`].
pub const TIMELINE_SLICES: usize = 32;

/// An interface whose counters are read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Interface {
    /// Reads and writes of the C library by descriptors.
    Posix,
    /// `MPI_File_*`.
    MpiIo,
    /// Streams of the C library.
    Stdio,
}

impl Interface {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Posix, Self::MpiIo, Self::Stdio];

    /// As Darshan calls the module.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Posix => "POSIX",
            Self::MpiIo => "MPI-IO",
            Self::Stdio => "STDIO",
        }
    }

    fn of(module: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|interface| interface.name() == module)
    }
}

/// A module as it was read.
#[derive(Clone, PartialEq, Debug)]
pub struct ModuleCounters {
    /// Name, version and what is missing.
    pub module: Module,
    /// Records that were read.
    pub records: u64,
    /// Every counter added up over all records, of Lustre over all components (modulo 2^64), by name.
    pub sums: Vec<(String, i64)>,
    /// Every real counter added up over all records, by name.
    pub real_sums: Vec<(String, f64)>,
    /// Of DXT: segments that write.
    pub segments_written: u64,
    /// Of DXT: segments that read.
    pub segments_read: u64,
}

impl ModuleCounters {
    fn add(&mut self, counters: &[i64], real: &[f64]) {
        for ((_, sum), counter) in self.sums.iter_mut().zip(counters) {
            *sum = sum.wrapping_add(*counter);
        }
        for ((_, sum), counter) in self.real_sums.iter_mut().zip(real) {
            *sum += counter;
        }
    }
}

/// A log, reduced to what planning and findings need.
#[derive(Debug)]
pub struct DarshanLog {
    /// Where it lies.
    pub path: PathBuf,
    /// Its job.
    pub job: Job,
    /// Its modules in Darshan's order.
    pub modules: Vec<ModuleCounters>,
    /// Files with counters, those that moved most bytes first.
    pub files: Vec<FileCounters>,
    /// Files with requests whose counters are in the sums only.
    pub left_out: u64,
    /// Of all files, by interface.
    pub totals: BTreeMap<Interface, LevelCounters>,
    /// Of all files, by the requests nearest to what the servers see: POSIX's and those of streams, and MPI-IO's of files without the former.
    pub near_servers: LevelCounters,
    /// What each rank has of [`Self::near_servers`].
    pub shares: Shares,
    /// Bytes of [`Self::near_servers`] read and written in equal slices of the run, each record's spread evenly from its first to its last request.
    pub timeline: Vec<[f64; 2]>,
    /// Requests, if the log has segments.
    pub trace: Option<Trace>,
    /// Paths of files all of whose requests are in [`Self::trace`].
    pub traced: HashSet<String>,
    /// Files some of whose requests are missing in [`Self::trace`], by path.
    pub partly_traced: BTreeMap<String, PartlyTraced>,
    /// Of shared files all of whose requests are known, by number: what each rank did.
    by_rank: HashMap<u64, BTreeMap<u32, Traced>>,
    /// What is missing, one sentence each.
    pub missing: Vec<String>,
}

impl DarshanLog {
    /// Reads a log.
    ///
    /// # Errors
    /// When Darshan's library is missing, or the log is none, damaged beyond reading, or of a later version.
    pub fn read(path: &Path) -> Result<Self, DarshanError> {
        let mut reader = Reader::new(path);
        stripewise_darshan::read(path, |found| reader.take(found))?;
        reader.finish()
    }

    /// Takes out the requests that plans are made from: those of [`Self::traced`]. The counters say more of all other files.
    pub fn take_trace(&mut self) -> Option<Trace> {
        let mut trace = self.trace.take()?;
        trace.disregard_data(|path| self.partly_traced.contains_key(path));
        Some(trace)
    }

    /// As [`Self::shares`], of those files alone.
    #[must_use]
    pub fn shares_of(&self, is_wanted: impl Fn(&str) -> bool) -> Shares {
        let (mut shares, processes) = (Shares::default(), self.processes());
        for file in self.files.iter().filter(|file| is_wanted(&file.path)) {
            let nearest = file.data_level().map(|(interface, _)| interface);
            for (interface, level) in file.near_servers() {
                let by_rank = self.by_rank.get(&file.id).filter(|_| nearest == Some(interface));
                shares.add_file(&level, processes, by_rank);
            }
        }
        shares
    }

    /// MPI processes, or 1.
    #[must_use]
    pub fn processes(&self) -> u32 {
        u32::try_from(self.job.processes).unwrap_or(1).max(1)
    }

    /// The kind of file system that holds a path, by the log's mounts.
    #[must_use]
    pub fn file_system_of(&self, path: &str) -> Option<&str> {
        let holds = |mount: &&(String, String)| Path::new(path).starts_with(&mount.1);
        self.job.mounts.iter().filter(holds).max_by_key(|mount| mount.1.len()).map(|mount| mount.0.as_str())
    }
}

/// What reading holds.
struct Reader {
    log: DarshanLog,
    columns: Option<Columns>,
    files: HashMap<u64, FileCounters>,
    left_out: LeftOut,
    segments: Segments,
    /// Module whose records come.
    of_records: String,
    /// Module whose segments come.
    of_dxt: Option<usize>,
    fault: Option<std::io::Error>,
}

impl Reader {
    fn new(path: &Path) -> Self {
        let log = DarshanLog {
            path: path.to_owned(),
            job: Job::default(),
            modules: Vec::new(),
            files: Vec::new(),
            left_out: 0,
            totals: BTreeMap::new(),
            near_servers: LevelCounters::default(),
            shares: Shares::default(),
            timeline: vec![[0.0; 2]; TIMELINE_SLICES],
            trace: None,
            traced: HashSet::new(),
            partly_traced: BTreeMap::new(),
            by_rank: HashMap::new(),
            missing: Vec::new(),
        };
        Self {
            log,
            columns: None,
            files: HashMap::new(),
            left_out: LeftOut::default(),
            segments: Segments::default(),
            of_records: String::new(),
            of_dxt: None,
            fault: None,
        }
    }

    fn module(&mut self, name: &str) -> Option<&mut ModuleCounters> {
        self.log.modules.iter_mut().find(|module| module.module.name == name)
    }

    fn take(&mut self, found: Found<'_>) {
        match found {
            Found::Item(item) => self.take_item(item),
            Found::Segments(segments) => {
                if self.fault.is_none() {
                    self.fault = self.segments.take(segments).err();
                }
            }
            Found::NamesLost => {
                let what = "Darshan's library died of the log's names; files stand by their numbers";
                self.log.missing.push(what.to_owned());
            }
        }
    }

    fn take_item(&mut self, item: Item) {
        match item {
            Item::Job(job) => self.log.job = job,
            Item::Modules(modules) => self.take_modules(modules),
            Item::Columns { module, counters, real } => {
                self.columns = Interface::of(&module).map(|interface| Columns::new(interface, &counters, &real));
                if let Some(found) = self.module(&module) {
                    found.sums = counters.iter().map(|name| (name.clone(), 0)).collect();
                    found.real_sums = real.iter().map(|name| (name.clone(), 0.0)).collect();
                }
                self.of_records = module;
            }
            Item::Record { id, rank, counters, real, .. } => {
                let module = std::mem::take(&mut self.of_records);
                if let Some(found) = self.module(&module) {
                    found.add(&counters, &real);
                }
                self.of_records = module;
                self.take_record(id, rank, &counters, &real);
            }
            Item::Lustre { id, components, targets } => {
                let mut names = Vec::new();
                if let Some(module) = self.module("LUSTRE") {
                    for component in &components {
                        module.add(&component.counters, &[]);
                    }
                    names = module.sums.iter().map(|(name, _)| name.clone()).collect();
                }
                let layout = LustreLayout::of(&names, &components, &targets);
                self.file(id).lustre = Some(layout);
            }
            Item::Dxt { id, rank, host, writes, reads } => {
                let Some(module) = self.of_dxt else { return };
                let found = &mut self.log.modules[module];
                found.segments_written += writes;
                found.segments_read += reads;
                let is_mpi = found.module.name == "DXT_MPIIO";
                let nearest = self.files.get(&id).and_then(FileCounters::data_level);
                let is_shared = nearest.is_some_and(|(interface, level)| {
                    level.is_shared && is_mpi == (interface == Interface::MpiIo) && interface != Interface::Stdio
                });
                self.segments.begin(is_mpi, is_shared, id, rank, &host, writes, reads);
            }
            Item::ModuleEnd { module, records, fault } => {
                self.segments.end_module();
                let next = self.log.modules.iter().position(|found| found.module.name == module).map(|at| at + 1);
                self.of_dxt = next.and_then(|next| self.dxt_from(next));
                if let Some(found) = self.module(&module) {
                    found.records = records;
                }
                if let Some(fault) = fault {
                    self.log.missing.push(format!("module {module}: {fault}; {records} records were read"));
                }
            }
            Item::Names(names) => self.take_names(names),
        }
    }

    /// The next module of segments, whose items do not say which they are of.
    fn dxt_from(&self, place: usize) -> Option<usize> {
        let is_dxt = |module: &ModuleCounters| module.module.is_read && module.module.name.starts_with("DXT_");
        self.log.modules[place..].iter().position(is_dxt).map(|found| found + place)
    }

    fn take_modules(&mut self, modules: Vec<Module>) {
        for module in modules {
            if module.is_partial {
                let what =
                    format!("module {} ran out of memory in the run: some of its records are missing", module.name);
                self.log.missing.push(what);
            }
            if !module.is_read && module.name.starts_with("module ") {
                let what = format!("{} is of a later Darshan than its library here and is not read", module.name);
                self.log.missing.push(what);
            }
            self.log.modules.push(ModuleCounters {
                module,
                records: 0,
                sums: Vec::new(),
                real_sums: Vec::new(),
                segments_written: 0,
                segments_read: 0,
            });
        }
        self.of_dxt = self.dxt_from(0);
    }

    fn file(&mut self, id: u64) -> &mut FileCounters {
        if self.files.len() >= 2 * MAX_FILES && !self.files.contains_key(&id) {
            self.prune();
        }
        self.files.entry(id).or_insert_with(|| FileCounters::new(id))
    }

    /// Keeps the files that moved most bytes.
    fn prune(&mut self) {
        let mut bytes: Vec<u64> = self.files.values().map(FileCounters::bytes).collect();
        let (_, least, _) = bytes.select_nth_unstable_by(MAX_FILES, |left, right| right.cmp(left));
        let least = *least;
        let mut equal = MAX_FILES / 2;
        let left_out = &mut self.left_out;
        self.files.retain(|_, file| {
            let bytes = file.bytes();
            let is_equal = bytes == least && equal > 0;
            equal -= usize::from(is_equal);
            let is_kept = bytes > least || is_equal;
            if !is_kept {
                left_out.add(file);
            }
            is_kept
        });
    }

    fn take_record(&mut self, id: u64, rank: i64, counters: &[i64], real: &[f64]) {
        let Some(columns) = self.columns.take() else { return };
        let processes = self.log.processes();
        let level = columns.level(rank, processes, counters, real);
        if columns.interface == Interface::MpiIo {
            self.file(id).mpi_calls.add(&columns.mpi_calls(counters));
        }
        if let Some(level) = self.near_servers(id, columns.interface, &level) {
            self.log.shares.add(rank, processes, &level);
            shares::spread(&mut self.log.timeline, self.log.job.run_s, &level);
            self.log.near_servers.add(&level);
        }
        self.log.totals.entry(columns.interface).or_default().add(&level);
        self.file(id).level_mut(columns.interface).add(&level);
        self.columns = Some(columns);
    }

    /// What of a record no other interface counts nearer to the servers. Darshan's POSIX records come before those of MPI-IO.
    fn near_servers<'l>(
        &self,
        id: u64,
        interface: Interface,
        level: &'l LevelCounters,
    ) -> Option<Cow<'l, LevelCounters>> {
        if interface != Interface::MpiIo {
            return Some(Cow::Borrowed(level));
        }
        let below = self.files.get(&id).and_then(|file| file.level(Interface::Posix));
        match below.map_or_else(|| self.left_out.has_posix(id).then_some(1), |below| Some(below.requests())) {
            None => Some(Cow::Borrowed(level)),
            // Its driver opens the file by POSIX, and reads and writes in another way.
            Some(0) if level.requests() > 0 => Some(Cow::Owned(level.without_metadata())),
            Some(_) => None,
        }
    }

    fn take_names(&mut self, names: Vec<(u64, String)>) {
        for (id, name) in names {
            if let Some(file) = self.files.get_mut(&id) {
                file.path.clone_from(&name);
            }
            self.segments.name(id, name);
        }
    }

    fn finish(mut self) -> Result<DarshanLog, DarshanError> {
        let stream = |source| DarshanError::Stream { log: self.log.path.clone(), source };
        if let Some(fault) = self.fault.take() {
            return Err(stream(fault.into()));
        }
        for (id, by_rank) in self.segments.take_shared() {
            let Some((_, level)) = self.files.get(&id).and_then(FileCounters::data_level) else { continue };
            if self.log.shares.settle(level, &by_rank) {
                self.log.by_rank.insert(id, by_rank);
            }
        }
        let requests = |id: u64, interface| Some(self.files.get(&id)?.level(interface)?.requests());
        self.log.partly_traced = self.segments.partly_traced(requests);
        self.log.missing.extend(partly_traced(&self.log.partly_traced));
        self.log.left_out = self.left_out.count(|id| self.files.contains_key(&id));
        let mut files: Vec<FileCounters> = self.files.into_values().collect();
        let nameless = files.iter_mut().filter(|file| file.path.is_empty());
        let mut unnamed = 0;
        for file in nameless {
            file.path = nameless_path(file.id);
            unnamed += 1;
        }
        if unnamed > 0 {
            self.log.missing.push(format!("{unnamed} files have no name in the log and stand by their numbers"));
        }
        files.sort_by(|left, right| right.bytes().cmp(&left.bytes()).then_with(|| left.path.cmp(&right.path)));
        self.log.files = files;
        let mut warnings: Vec<Warning> = Vec::new();
        for what in &self.log.missing {
            warnings.push(Warning::Incomplete { path: self.log.path.clone(), what: what.clone() });
        }
        let (trace, traced) =
            self.segments.finish(&self.log.path, &self.log.job, warnings).map_err(|e| stream(e.into()))?;
        (self.log.trace, self.log.traced) = (trace, traced);
        self.log.traced.retain(|path| !self.log.partly_traced.contains_key(path));
        Ok(self.log)
    }
}

/// What is said of files some of whose requests are missing.
fn partly_traced(files: &BTreeMap<String, PartlyTraced>) -> Option<String> {
    let (path, PartlyTraced { segments, requests, .. }) = files.first_key_value()?;
    let others = match files.len() - 1 {
        0 => String::new(),
        1 => " and some of those on 1 other file".to_owned(),
        others => format!(" and some of those on {others} other files"),
    };
    Some(format!(
        "DXT kept {segments} of the {requests} requests on {}{others}; where its memory was full, a larger DARSHAN_MODMEM helps",
        path.escape_debug()
    ))
}

/// What a file is called whose name the log lacks.
fn nameless_path(id: u64) -> String {
    format!("darshan-{id}")
}
