//! `check --repair` of a damaged or lost mapping table: a new one from what is left.
//!
//! | of | counts |
//! |---|---|
//! | where regions lie | what servers are told ([`crate::description`]); without a description the records, where all their objects are there |
//! | sizes | the descriptions and the objects; of a file without regions its record |
//! | files, placements, switches, managed and expected names | the damaged table's records that are whole, then the last good copy's; of a file that neither knows its description and its stub |
//! | logs of fragments | shared memory, as long as the host runs. What a log held after a reboot and no `fsync` covered is lost, as without damage |
//! | replicas | nothing: they are rebuilt |
//!
//! The new table is written beside the old one, read from end to end, and put into its place in one step; the damaged one stays beside it. Objects that no record names
//! stay too: the next `check` tells of them.
//!
//! The table that hosts share is made again in its engine ([`shared`]), whose history counts before all others.

mod logs;
mod shared;

use crate::context::{processes_of, watched_servers};
use crate::description::{Described, Head};
use crate::log::{Log, note};
use crate::proof::Facts;
use crate::rmt::lmdb::LmdbStore;
use crate::rmt::{
    Audit, Changes, ClusterRecord, FileRecord, FileState, GOOD_COPY, Inode, NameKind, RegionRecord, RmtError, Table,
};
use crate::table::first_of;
use crate::{Broker, BrokerError, BrokerOptions, by_agent, table};
use rustix::fs::{Mode, OFlags, RenameFlags};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise_layout::{
    ByteCount, Cluster, FileId, Layout, ObjectOffset, Placement, RegionGeometry, RegionIndex, ServerId,
};
use stripewise_store::server::{self, ObjectName, ObjectStore, ordinal};
use stripewise_store::state::{HostIdentity, StateDirectory, StateError};
use stripewise_store::stub::{STUB_BYTES, Stub, size_may_be_stub};

/// Files in one transaction of the new table.
const FILES_AT_ONCE: usize = 1000;

impl Broker {
    /// What is wrong with the mapping table; nothing is wrong with that of a broker that serves. An error: no broker could start for another reason.
    pub fn table_damages(cluster: &Cluster) -> Result<Vec<String>, BrokerError> {
        let options = BrokerOptions::default();
        let state = Arc::new(Self::state_of(cluster, &options)?);
        if let Some(coordination) = &cluster.coordinator {
            return shared::damages(cluster, coordination, &state, &options);
        }
        let Some(lock) = state.try_lock()? else { return Ok(Vec::new()) };
        damages(&state, &watched_servers(cluster, &Arc::new(lock), &options, None))
    }

    /// Makes the table again if it is damaged or lost, and the state directory too, and says what became of them.
    pub fn rebuild_table(cluster: &Cluster) -> Result<Vec<String>, BrokerError> {
        let options = BrokerOptions::default();
        let state = match Self::state_of(cluster, &options) {
            Err(BrokerError::State(StateError::Lost { path, .. })) => {
                make_state_again(cluster)?;
                let made = format!("the state directory {} was made again", path.display());
                return Ok([vec![made], Self::rebuild_table(cluster)?].concat());
            }
            state => Arc::new(state?),
        };
        if let Some(coordination) = &cluster.coordinator {
            return shared::rebuild(cluster, coordination, &state, &options);
        }
        let Some(lock) = state.try_lock()? else { return Ok(Vec::new()) };
        let servers = watched_servers(cluster, &Arc::new(lock), &options, None);
        if damages(&state, &servers)?.is_empty() {
            return Ok(Vec::new());
        }
        refuse_users(&state)?;
        Rebuilding::new(cluster, &state, &servers, Sources::of(&state)?)?.run()
    }
}

/// A state directory below a mount point would hide behind the one that is mounted there later: with that, servers are missing as a rule.
fn make_state_again(cluster: &Cluster) -> Result<(), BrokerError> {
    // Whoever has the servers keeps them.
    let options = BrokerOptions { open_by_agent: Some(by_agent::inspect), ..BrokerOptions::default() };
    for server in watched_servers(cluster, &Arc::new(()), &options, None) {
        server.probe().map_err(|error| refuse(format!("{error}; make the server usable, then repeat")))?;
    }
    StateDirectory::make(&cluster.state)?;
    Ok(())
}

fn refuse_users(state: &StateDirectory) -> Result<(), BrokerError> {
    match processes_of(state)?.any_living() {
        Some(process) => Err(refuse(format!("process {process} still uses the cluster; end it, then repeat"))),
        None => Ok(()),
    }
}

fn refuse(what: String) -> BrokerError {
    BrokerError::NotRebuilt { what }
}

fn damages(state: &StateDirectory, servers: &[Box<dyn ObjectStore>]) -> Result<Vec<String>, BrokerError> {
    let directory = state.table_path();
    if LmdbStore::exists(&directory) {
        return Ok(Audit::of(&directory)?.damages);
    }
    match table::refuse_lost_table(state, servers) {
        Ok(()) => Ok(Vec::new()),
        Err(BrokerError::DamagedTable { damages, .. }) => Ok(damages),
        Err(error @ BrokerError::LostTable { .. }) => Ok(vec![error.to_string()]),
        Err(error) => Err(error),
    }
}

/// What tells of the table as it was.
struct Sources {
    /// The one that counts most goes first. One at least.
    tables: Vec<Table>,
    /// That there were, as far as is known.
    transactions: u64,
}

impl Sources {
    /// What can be read of the damaged table, and the last good copy.
    fn of(state: &StateDirectory) -> Result<Self, BrokerError> {
        let directory = state.table_path();
        let copy = LmdbStore::copy_path(&directory, GOOD_COPY);
        let tables = vec![Table::salvage(&directory)?, Table::salvage(&copy)?];
        let last = [Audit::last_transaction(&directory), Audit::last_transaction(&copy)].into_iter().flatten().max();
        Ok(Self::with(tables, last))
    }

    fn with(tables: Vec<Table>, last: Option<u64>) -> Self {
        let known = tables.iter().map(|table| table.transactions().unwrap_or(0)).max();
        Self { tables, transactions: last.max(known).unwrap_or(0) }
    }
}

/// What the new table is made from.
struct Rebuilding<'a> {
    cluster: &'a Cluster,
    state: &'a Arc<StateDirectory>,
    boot: [u8; 16],
    sources: Vec<Table>,
    transactions: u64,
    described: BTreeMap<FileId, Described>,
    /// With the ends of what they hold.
    objects: HashMap<(ServerId, ObjectName), u64>,
    stubs: HashMap<FileId, Vec<(PathBuf, Inode)>>,
}

impl<'a> Rebuilding<'a> {
    fn new(
        cluster: &'a Cluster,
        state: &'a Arc<StateDirectory>,
        servers: &[Box<dyn ObjectStore>],
        Sources { tables: sources, transactions }: Sources,
    ) -> Result<Self, BrokerError> {
        let boot = HostIdentity::of_this_host()?.boot;
        let mut described: BTreeMap<FileId, Described> = BTreeMap::new();
        let mut objects = HashMap::new();
        for (number, server) in (0..).map(ServerId).zip(servers) {
            // A server that is away may have been told of what others were not.
            let fault = |error: server::ServerError| refuse(format!("{error}; make the server usable, then repeat"));
            server.probe().map_err(fault)?;
            for (file, text) in server.descriptions().map_err(fault)? {
                described.entry(file).or_default().add(&text);
            }
            let held = server.objects().map_err(fault)?;
            // The new table says of all of them that their names are durable.
            for file in held.iter().map(|object| object.file).collect::<BTreeSet<_>>() {
                server.sync_names(file).map_err(fault)?;
            }
            for object in held {
                objects.insert((number, object), server.size(object).map_err(fault)?.end_bytes);
            }
        }
        let mut all = Self { cluster, state, boot, sources, transactions, described, objects, stubs: HashMap::new() };
        all.stubs = all.find_stubs()?;
        Ok(all)
    }

    /// The first source's answer that is one.
    fn first<T>(&self, ask: impl Fn(&Table) -> Result<Option<T>, RmtError>) -> Result<Option<T>, RmtError> {
        for table in &self.sources {
            if let Some(found) = ask(table)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn run(self) -> Result<Vec<String>, BrokerError> {
        let directory = self.state.table_path();
        let new = LmdbStore::copy_path(&directory, "new");
        let fault = |source: std::io::Error| BrokerError::Table(RmtError::Unreadable { path: new.clone(), source });
        match std::fs::remove_dir_all(&new) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fault(error)),
            _ => std::fs::create_dir(&new).map_err(fault)?,
        }
        let table = Table::new(Box::new(LmdbStore::open(&new)?))?.witnessed_in(&new)?;
        let said = self.fill(&table)?;
        drop(table);
        let audit = Audit::of(&new)?;
        if !audit.is_whole() {
            return Err(refuse(format!("the new table is not whole: {}", first_of(&audit.damages))));
        }
        let aside = self.swap(&new).map_err(|errno| fault(errno.into()))?;
        let mut all = vec![format!("the mapping table was rebuilt; the former one is in {}", aside.display())];
        all.extend(said);
        note!(Log::new(self.state), info, "{}", all.join("; "));
        Ok(all)
    }

    /// Puts the new table into the old one's place, in one step, and that beside it.
    fn swap(&self, new: &Path) -> rustix::io::Result<PathBuf> {
        let directory = self.state.table_path();
        let names = (1..).map(|number| LmdbStore::copy_path(&directory, &format!("damaged-{number}")));
        let aside = names.into_iter().find(|path| !path.exists()).unwrap_or_else(|| new.to_owned());
        for path in [&new.to_owned(), &directory] {
            rustix::fs::fsync(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)?;
        }
        rustix::fs::renameat_with(rustix::fs::CWD, new, rustix::fs::CWD, &directory, RenameFlags::EXCHANGE)?;
        rustix::fs::rename(new, &aside)?;
        rustix::fs::fsync(rustix::fs::open(self.state.path(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)?;
        Ok(aside)
    }

    /// Fills an empty table; returns what is to be said of files.
    fn fill(&self, table: &Table) -> Result<Vec<String>, BrokerError> {
        let last = self.described.values().map(Described::last_broker).max().unwrap_or(0);
        table.advance(self.transactions.max(last) + 1)?;
        let servers = self.cluster.servers.iter().map(|server| server.name.clone()).collect();
        table.belong_to(&ClusterRecord { id: self.cluster.id.clone(), servers })?;
        for source in self.sources.iter().rev() {
            for (path, directory) in source.directories()? {
                table.set_directory(&path, &directory)?;
            }
            for (name, placement) in source.names(NameKind::Expected)? {
                table.set_name(NameKind::Expected, &name, Some(&placement))?;
                table.expect_replicas(&name, &source.expected_replicas(&name)?)?;
            }
        }
        let mut said = Vec::new();
        let mut changes = Changes::default();
        for (count, file) in (1..).zip(self.files()?) {
            self.write_file(&mut changes, file, &mut said)?;
            if count % FILES_AT_ONCE == 0 {
                table.commit(&std::mem::take(&mut changes))?;
            }
        }
        table.commit(&changes)?;
        Ok(said)
    }

    /// Every file that anything tells of.
    fn files(&self) -> Result<BTreeSet<FileId>, BrokerError> {
        let mut files: BTreeSet<FileId> = self.described.keys().copied().collect();
        for source in &self.sources {
            files.extend(source.all_files()?.into_iter().map(|(file, _)| file));
        }
        // Of an empty file there is nothing but its stub.
        files.extend(self.stubs.keys());
        Ok(files)
    }

    fn write_file(&self, changes: &mut Changes, file: FileId, said: &mut Vec<String>) -> Result<(), BrokerError> {
        let known = self.first(|table| table.file(file))?;
        let described = self.described.get(&file).filter(|described| described.head().is_some());
        let is_last_known = self.sources[0].file(file)?.is_some();
        if known.is_some() && described.is_none() && !is_last_known && !self.stubs.contains_key(&file) {
            // Only the copy knows it, and nothing else is left of it: it was removed since.
            return Ok(());
        }
        let Some(mut record) = known.or_else(|| self.record_of(file, described.and_then(Described::head))) else {
            return Ok(());
        };
        let regions = self.regions_of(file, &record, described)?;
        let held_bytes = self.held_bytes(file, &record, &regions);
        if let Some(described) = described {
            record.size_bytes = described.size_bytes(held_bytes);
            record.truncating_to_bytes = None;
            // Whether it took effect is not known: asked for again, it does.
            record.truncating_number = None;
            if described.damaged_lines > 0 {
                let (path, count) = (&record.path, described.damaged_lines);
                said.push(format!("{count} lines of the descriptions of {path} are damaged: compare it with a backup"));
            }
        }
        let used = self.objects.keys().filter(|(_, object)| object.file == file).map(|(_, object)| object.generation);
        let last = used.chain(regions.values().map(|placed| placed.generation)).map(ordinal).max().unwrap_or(0);
        record.generations_synced = last;
        record.generations_reserved = record.generations_reserved.max(last.saturating_add(64));
        self.find_stub(file, &mut record);
        if let Some(missing) = regions.iter().find(|(region, placed)| !self.is_there(file, **region, placed)) {
            said.push(format!("{}: region {} lacks objects; run `stripewise check`", record.path, missing.0));
        }
        let placement = match self.first(|table| table.placement(file))? {
            Some(placement) => placement,
            None => self.placement_of(&record, &regions),
        };
        changes.put_placement(file, &placement);
        changes.put_inode(record.stub, file);
        changes.put_file(file, &record);
        changes.put_fragments_switch(file, self.first(|table| table.fragments_switch(file))?);
        changes.put_wanted(
            file,
            &self.first(|table| Ok(Some(table.wanted(file)?).filter(|all| !all.is_empty())))?.unwrap_or_default(),
        );
        for (region, placed) in &regions {
            changes.put_region(file, *region, placed);
        }
        self.write_logs(changes, file, &record, said)
    }

    /// A record of a file that was made after the last good copy, and whose own is lost.
    fn record_of(&self, file: FileId, head: Option<&Head>) -> Option<FileRecord> {
        let stub = self.stubs.get(&file).and_then(|found| found.first());
        let path = match (stub, head) {
            (Some((path, _)), _) => path.to_string_lossy().into_owned(),
            (None, Some(head)) => head.path.clone(),
            (None, None) => return None,
        };
        let found = stub.and_then(|(path, _)| Facts::at_path(path).ok().flatten()).map(|facts| facts.ownership);
        let owned = head.map(|head| (head.mode, head.uid, head.gid));
        let (mode, uid, gid) = owned.or(found.map(|found| (found.mode, found.uid, found.gid)))?;
        Some(FileRecord {
            path,
            stub: stub.map_or(Inode { device: 0, inode: file.0, born_ns: 0 }, |(_, inode)| *inode),
            boot: self.boot,
            region_bytes: head.map_or(self.cluster.region_size.0, |head| head.region_bytes),
            size_bytes: 0,
            generations_reserved: 0,
            generations_synced: 0,
            state: FileState::Live,
            truncating_to_bytes: None,
            has_leftovers: false,
            mode,
            uid,
            gid,
            created_ns: 0,
            epoch: 0,
            parent: None,
            above: Vec::new(),
            root: None,
            is_described: true,
            is_size_untold: false,
            put_away_in: None,
            put_away_unsynced: false,
            truncating_number: None,
            truncation_numbers: Vec::new(),
            truncations: 0,
        })
    }

    /// Where the regions lie.
    fn regions_of(
        &self,
        file: FileId,
        record: &FileRecord,
        described: Option<&Described>,
    ) -> Result<BTreeMap<RegionIndex, RegionRecord>, BrokerError> {
        let mut regions = BTreeMap::new();
        if record.is_described
            && let Some(described) = described
        {
            for (region, place) in described.places() {
                let number = |name: &str| self.cluster.servers.iter().position(|server| server.name == name);
                let stripe = |(name, bytes): &(String, u32)| Some((ServerId(number(name)? as u16), *bytes));
                let stripes = place.stripes.iter().map(stripe).collect::<Option<Vec<_>>>();
                let layout = stripes.and_then(|stripes| Layout::new(stripes).ok()).ok_or_else(|| {
                    refuse(format!(
                        "region {region} of {} lies on servers that cluster.toml does not name",
                        record.path
                    ))
                })?;
                regions.insert(region, RegionRecord::placed(place.generation, layout));
            }
            if described.damaged_lines == 0 {
                return Ok(regions);
            }
        }
        for source in &self.sources {
            for (region, placed) in source.regions(file)? {
                if self.is_there(file, region, &placed) {
                    regions.entry(region).or_insert(placed);
                }
            }
        }
        Ok(regions)
    }

    fn is_there(&self, file: FileId, region: RegionIndex, placed: &RegionRecord) -> bool {
        let object = ObjectName { file, region, generation: placed.generation };
        placed.layout.stripes().iter().all(|stripe| self.objects.contains_key(&(stripe.server, object)))
    }

    fn held_bytes(&self, file: FileId, record: &FileRecord, regions: &BTreeMap<RegionIndex, RegionRecord>) -> u64 {
        let geometry = RegionGeometry::new(record.region_bytes);
        let ends = regions.iter().flat_map(|(region, placed)| {
            let object = ObjectName { file, region: *region, generation: placed.generation };
            let stripes = placed.layout.stripes().iter().enumerate();
            stripes.filter_map(move |(turn, stripe)| {
                let last = self.objects.get(&(stripe.server, object))?.checked_sub(1)?;
                let offset = placed.layout.view().region_offset(turn, ObjectOffset(last));
                Some(geometry.start_of(*region).0 + offset.0 + 1)
            })
        });
        ends.max().unwrap_or(0)
    }

    /// As the regions lie now; what follows like the last one.
    fn placement_of(&self, record: &FileRecord, regions: &BTreeMap<RegionIndex, RegionRecord>) -> Placement {
        let all = || Layout::new((0..self.cluster.servers.len()).map(|number| (ServerId(number as u16), 64 << 10)));
        let last = regions.values().next_back().map(|placed| placed.layout.clone());
        let last = last.unwrap_or_else(|| all().expect("a cluster has servers"));
        let until = regions.keys().next_back().map_or(0, |region| region.0 + 1);
        let of = |region| regions.get(&RegionIndex(region)).map_or(last.clone(), |placed| placed.layout.clone());
        Placement::from_regions(ByteCount(record.region_bytes), (0..until).map(of), last.clone(), last.clone())
    }

    /// The record's stub, if it stands somewhere else than it was, or nobody knew it.
    fn find_stub(&self, file: FileId, record: &mut FileRecord) {
        let Some(found) = self.stubs.get(&file) else { return };
        let is_known = |(_, inode): &&(PathBuf, Inode)| inode.is(&record.stub);
        // Of copies the one that was known; what is no copy is the stub.
        let found = found.iter().find(is_known).or_else(|| found.first().filter(|_| found.len() == 1));
        if let Some((path, inode)) = found {
            (record.path, record.stub, record.boot) = (path.to_string_lossy().into_owned(), *inode, self.boot);
        }
    }

    /// Stubs of this cluster below managed directories and where files were.
    fn find_stubs(&self) -> Result<HashMap<FileId, Vec<(PathBuf, Inode)>>, BrokerError> {
        // With whether to look below them too.
        let mut waiting: Vec<(PathBuf, bool)> = Vec::new();
        let parent_of = |path: &str| Some((Path::new(path).parent()?.to_owned(), false));
        for source in &self.sources {
            waiting.extend(source.names(NameKind::Managed)?.into_iter().map(|(name, _)| (PathBuf::from(name), true)));
            waiting.extend(source.all_files()?.into_iter().filter_map(|(_, record)| parent_of(&record.path)));
        }
        let heads = self.described.values().filter_map(Described::head);
        waiting.extend(heads.filter_map(|head| parent_of(&head.path)));
        // Managed directories first, so that none is passed over as one that was looked at.
        waiting.sort_by_key(|(_, is_deep)| *is_deep);
        let mut found: HashMap<FileId, Vec<(PathBuf, Inode)>> = HashMap::new();
        let mut seen = HashSet::new();
        while let Some((directory, is_deep)) = waiting.pop() {
            if !seen.insert(directory.clone()) {
                continue;
            }
            // What cannot be read is told by the `check` that follows: its stubs are lost to it.
            let Ok(entries) = std::fs::read_dir(&directory) else { continue };
            for entry in entries.flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && is_deep => waiting.push((entry.path(), true)),
                    Ok(kind) if kind.is_file() => {
                        if let Some((file, inode)) = self.stub_at(&entry.path()) {
                            found.entry(file).or_default().push((entry.path(), inode));
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    fn stub_at(&self, path: &Path) -> Option<(FileId, Inode)> {
        let facts = Facts::at_path(path).ok().flatten().filter(|facts| size_may_be_stub(facts.size_bytes))?;
        let file = std::fs::File::open(path).ok()?;
        let mut bytes = [0; STUB_BYTES];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let stub = Stub::parse(&bytes).ok().flatten().filter(|stub| stub.cluster == self.cluster.id)?;
        Some((stub.file, facts.inode))
    }
}
