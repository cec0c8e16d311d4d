//! Managed files in the broker: their life from making to freeing.
//!
//! A file is freed when its stub has no name left and no process has it open. The mark that it is to be freed is durable before the
//! first object goes, so a crash in between is followed by the rest.

use crate::ancestors::Ancestors;
use crate::managed::FileFragments;
use crate::managed::Inner;
use crate::managed::Managed;
use crate::managed::unknown;
use crate::name_changes::Flux;
use crate::proof::{Facts, Proof};
use crate::requests::Answer;
use crate::rmt::{Changes, FileRecord, FileState, Inode};
use crate::service::Connection;
use crate::{Core, guard};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use stripewise_layout::{FileId, Placement, ServerId};
use stripewise_store::protocol::{FoundStatus, Refusal, Reply};
use stripewise_store::server::{ObjectName, Ownership};
use stripewise_store::shared::control::Life;
use stripewise_store::shared::processes::{Incarnation, ProcessSlot};
use stripewise_store::stub::{STUB_BYTES, Stub, size_may_be_stub};

/// Copies of stubs remembered for `check`.
const MAX_COPIES_NOTED: usize = 1000;
/// Generations reserved with a new file, and at least as many at a time later.
pub(crate) const RESERVE_FIRST: u32 = 64;

impl Core {
    /// Living processes that have the file open.
    pub(crate) fn users(&self, managed: &Managed) -> Vec<(ProcessSlot, Incarnation)> {
        managed.slots.users().filter(|(slot, incarnation)| self.context.is_alive(*slot, *incarnation)).collect()
    }

    /// The file whose stub `proof` is, and its status. The inode tells, whatever the text says; the text tells of copies, and of stubs whose device has another
    /// number since another boot. Neither a server nor a lock that is held over slow work is needed.
    pub(crate) fn find(&self, proof: &Proof) -> Result<Reply, Refusal> {
        if !proof.facts.is_regular {
            return Ok(Reply::Found { file: None, status: None });
        }
        if let Some(file) = self.context.table().file_of(proof.facts.inode)?
            // The number may be that of a stub that was removed behind our back.
            && self.context.table().file(file)?.is_some_and(|record| record.stub.is(&proof.facts.inode))
        {
            return Ok(Reply::Found { file: Some(file), status: self.status_of(file)? });
        }
        let Some(stub) = self.text_of(proof).filter(|stub| stub.cluster == self.context.cluster().id) else {
            return Ok(Reply::Found { file: None, status: None });
        };
        let record = self.context.table().file(stub.file)?;
        let is_renumbered = record.is_some_and(|record| self.is_renumbered(&record, &proof.facts.inode));
        let status = if is_renumbered { self.status_of(stub.file)? } else { None };
        Ok(Reply::Found { file: Some(stub.file), status })
    }

    /// `None`: there is no such file.
    pub(crate) fn status_of(&self, file: FileId) -> Result<Option<FoundStatus>, Refusal> {
        if let Some(managed) = self.if_loaded_now(file) {
            return Ok(Some(managed.status()));
        }
        self.context.table().file(file)?.map(|record| self.status_unloaded(file, &record)).transpose()
    }

    /// Whether the inode is that of the file's stub under another device number: these may change from boot to boot, the inode's number and birth do not.
    fn is_renumbered(&self, record: &FileRecord, is: &Inode) -> bool {
        let was = record.stub;
        was.inode == is.inode && was.born_ns == is.born_ns && was.born_ns != 0 && record.boot != self.context.boot()
    }

    /// Makes a file of the new stub behind `proof`.
    pub(crate) fn create(
        &self,
        proof: &Proof,
        path: &str,
        placement: Placement,
        state: FileState,
        holder: Option<u64>,
    ) -> Result<Arc<Managed>, Refusal> {
        proof.permits_io()?;
        if !proof.writable {
            return Err(Refusal::NotPermitted);
        }
        if matches!(state, FileState::Creating)
            && let Some(managed) = self.created_before(proof, path)?
        {
            return Ok(managed);
        }
        placement
            .check(self.context.servers().len())
            .map_err(|what| Refusal::Invalid { what: format!("{path}: {what}") })?;
        let ownership = self.applicable(proof.facts.ownership, path)?;
        let mut bytes = [0; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| Refusal::Table { what: format!("no random file id: {errno}") })?;
        let file = FileId(u64::from_ne_bytes(bytes).max(1));
        let stub =
            Stub { file, cluster: self.context.cluster().id.clone(), state: self.context.state().path().to_owned() };
        let text = stub.to_bytes().map_err(|error| Refusal::Invalid { what: error.to_string() })?;
        let record = Ancestors::of_path(path).record(
            path.to_owned(),
            &FileRecord {
                path: path.to_owned(),
                stub: proof.facts.inode,
                boot: self.context.boot(),
                region_bytes: placement.region_size.0,
                size_bytes: 0,
                generations_reserved: RESERVE_FIRST,
                generations_synced: 0,
                state,
                truncating_to_bytes: None,
                has_leftovers: false,
                mode: ownership.mode,
                uid: ownership.uid,
                gid: ownership.gid,
                epoch: 0,
                parent: None,
                above: Vec::new(),
                root: None,
                is_described: true,
                created_ns: now_ns(),
            },
        );
        let (control, extent, slots) = self.build(file, &record, 0)?;
        let mut changes = Changes::default();
        changes.put_file(file, &record);
        changes.put_placement(file, &placement);
        let wanted = self.context.table().expected_replicas(path)?;
        changes.put_wanted(file, &wanted);
        // If the number was that of another file's stub, that one was removed behind our back: its record and data stay for `check`.
        changes.put_inode(record.stub, file);
        self.publish_inode(record.stub)?;
        self.context.step("create: before the record");
        self.context.table().commit(&changes)?;
        self.context.step("create: before the stub's text");
        write_stub(&proof.descriptor, &text)
            .map_err(|errno| Refusal::Invalid { what: format!("writing the stub of {path}: {errno}") })?;
        self.context.step("create: stub written");
        let inner = Inner {
            record,
            placement,
            regions: BTreeMap::new(),
            moving: BTreeMap::new(),
            discards: BTreeMap::new(),
            forgotten: Vec::new(),
            replicas: BTreeMap::new(),
            lacking: BTreeMap::new(),
            wanted,
            logs: BTreeMap::new(),
            move_slots: 0,
            generation: 0,
            unsynced: BTreeSet::new(),
            stub: proof.to_watch(),
            holder,
            openers: HashSet::new(),
            writers: HashSet::new(),
            freed: false,
        };
        let fragments = FileFragments::default();
        let stays_shut = AtomicBool::new(false);
        let managed =
            Arc::new(Managed { file, control, extent, slots, fragments, stays_shut, inner: Mutex::new(inner) });
        self.show_fragments_without_logs(&managed, None);
        self.remember(&managed);
        Ok(managed)
    }

    /// The file that was made of this stub when it was asked for before, by a client that lost its broker and heard nothing of it. None if there is none and
    /// the stub is new: empty, or with the text of a creation that was dropped with that broker.
    fn created_before(&self, proof: &Proof, path: &str) -> Result<Option<Arc<Managed>>, Refusal> {
        if let Some(file) = self.context.table().file_of(proof.facts.inode)? {
            let is_this = |record: &FileRecord| {
                record.state == FileState::Creating && record.stub.is(&proof.facts.inode) && record.path == path
            };
            if self.context.table().file(file)?.is_some_and(|record| is_this(&record)) {
                let managed = self.managed(file)?;
                let mut inner = guard(&managed.inner);
                // One that was written is a dead program's, whose inode's number is used again.
                let is_new = inner.regions.is_empty() && managed.extent.size_bytes() == 0;
                if !inner.freed && is_this(&inner.record) && is_new && self.users(&managed).is_empty() {
                    let stub = Stub {
                        file,
                        cluster: self.context.cluster().id.clone(),
                        state: self.context.state().path().to_owned(),
                    };
                    let text = stub.to_bytes().map_err(|error| Refusal::Invalid { what: error.to_string() })?;
                    write_stub(&proof.descriptor, &text)
                        .map_err(|errno| Refusal::Invalid { what: format!("writing the stub of {path}: {errno}") })?;
                    inner.stub = proof.to_watch();
                    drop(inner);
                    return Ok(Some(managed));
                }
            }
        }
        if proof.facts.size_bytes == 0 {
            return Ok(None);
        }
        let dropped = match self.text_of(proof) {
            Some(stub) => stub.cluster == self.context.cluster().id && self.context.table().file(stub.file)?.is_none(),
            None => false,
        };
        if dropped { Ok(None) } else { Err(Refusal::Invalid { what: format!("the new stub of {path} is not empty") }) }
    }

    /// What the file behind `proof` says, if it is a stub's text and the broker may read it.
    fn text_of(&self, proof: &Proof) -> Option<Stub> {
        if !size_may_be_stub(proof.facts.size_bytes) {
            return None;
        }
        let path = format!("/proc/self/fd/{}", proof.descriptor.as_raw_fd());
        let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut bytes = [0; STUB_BYTES];
        rustix::io::pread(&opened, &mut bytes, 0).ok()?;
        Stub::parse(&bytes).ok().flatten()
    }

    /// Objects must be the broker's own or, for root, whoever's.
    fn applicable(&self, ownership: Ownership, path: &str) -> Result<Ownership, Refusal> {
        let user = rustix::process::geteuid();
        if user.is_root() || user.as_raw() == ownership.uid {
            return Ok(ownership);
        }
        Err(Refusal::Invalid {
            what: format!(
                "{path} belongs to user {}, the broker is user {}: objects cannot take over its owner; start the broker as that user or as root",
                ownership.uid,
                user.as_raw()
            ),
        })
    }

    /// Finds the file that the stub behind `proof` stands for, and that it is the one asked for.
    pub(crate) fn identify(&self, file: FileId, proof: &Proof) -> Result<Arc<Managed>, Refusal> {
        if self.context.table().file_of(proof.facts.inode)? == Some(file) {
            let managed = self.managed(file)?;
            let same = guard(&managed.inner).record.stub.is(&proof.facts.inode);
            if same {
                return Ok(managed);
            }
        } else if let Some(record) = self.context.table().file(file)? {
            let (was, is) = (record.stub, proof.facts.inode);
            if self.is_renumbered(&record, &is) {
                let managed = self.managed(file)?;
                let mut inner = guard(&managed.inner);
                let moved = FileRecord { stub: is, boot: self.context.boot(), ..inner.record.clone() };
                let mut changes = Changes::default();
                // With changed device numbers, another stub may have this one's former pair by now.
                if self.context.table().file_of(was)? == Some(file) {
                    changes.remove_inode(was);
                }
                changes.put_inode(is, file);
                self.publish_inode(is)?;
                changes.put_file(file, &moved);
                self.context.table().commit(&changes)?;
                inner.record = moved;
                drop(inner);
                return Ok(managed);
            }
        } else {
            return Err(unknown(file));
        }
        let path = proof.path();
        if let Some(path) = &path {
            let mut copies = guard(&self.copies);
            if copies.len() < MAX_COPIES_NOTED {
                copies.insert(path.clone(), file);
            }
        }
        Err(Refusal::CopiedStub { file, path: path.unwrap_or_else(|| "the file opened".to_owned()) })
    }

    /// Opens the file for the holder of `proof`.
    pub(crate) fn open_file(&self, connection: &Connection, file: FileId, proof: &Proof) -> Answer {
        proof.permits_io()?;
        let managed = self.identify(file, proof)?;
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(unknown(file));
        }
        self.refuse_if_held(&managed, &inner, connection.id)?;
        self.follow_stub(&managed, &mut inner, proof)?;
        if inner.record.has_leftovers {
            // Tried again at every open; the server may still be away. Not under the lock, which comes after that of the fragments.
            drop(inner);
            let _ = self.tidy(&managed);
            inner = guard(&managed.inner);
            if inner.freed {
                return Err(unknown(file));
            }
            // Its release may have begun in between.
            self.refuse_if_held(&managed, &inner, connection.id)?;
        }
        if inner.stub.is_none() {
            inner.stub = proof.to_watch();
        }
        self.opened(connection, &managed, &mut inner, proof.granted())
    }

    pub(crate) fn refuse_if_held(&self, managed: &Managed, inner: &Inner, connection: u64) -> Result<(), Refusal> {
        let holder = match (&inner.record.state, inner.holder) {
            (FileState::Importing { .. }, holder) if holder != Some(connection) => "`stripewise apply`",
            (FileState::Releasing { .. }, holder) if holder != Some(connection) => "`stripewise release`",
            _ => return Ok(()),
        };
        Err(Refusal::Held { file: managed.file, holder: holder.to_owned() })
    }

    /// Takes over what happened to the stub behind our back: its name, and mode and owner, which the objects follow.
    pub(crate) fn follow_stub(&self, managed: &Managed, inner: &mut Inner, proof: &Proof) -> Result<(), Refusal> {
        if inner.ownership() != proof.facts.ownership {
            self.follow_ownership(managed, inner, proof.facts.ownership)?;
        }
        let mut record = inner.record.clone();
        match (&record.state, proof.path()) {
            (FileState::Live, Some(path)) => record.path = path,
            // Found at its name: the file lives, though its maker has not said so. Unsaid, a successor might take it for unfinished.
            (FileState::Creating, Some(path)) if path == record.path => record.state = FileState::Live,
            _ => {}
        }
        if record.path != inner.record.path || record.parent.is_none() {
            record = Ancestors::of_path(&record.path).record(record.path.clone(), &record);
        }
        if record != inner.record {
            let mut changes = Changes::default();
            changes.put_file(managed.file, &record);
            self.context.table().commit(&changes)?;
            if inner.record.state != record.state {
                managed.control.set_life(Life::Live);
            }
            inner.record = record;
        }
        Ok(())
    }

    /// The objects take over mode and owner; the record after them, so that a crash in between is noticed at the next open.
    pub(crate) fn follow_ownership(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        wanted: Ownership,
    ) -> Result<(), Refusal> {
        let Ownership { mode, uid, gid } = self.applicable(wanted, &inner.record.path)?;
        for (region, placed) in &inner.regions {
            for stripe in placed.layout.stripes() {
                let object = ObjectName { file: managed.file, region: *region, generation: placed.generation };
                self.context.server(stripe.server)?.set_ownership(object, Ownership { mode, uid, gid })?;
            }
        }
        self.own_logs(managed.file, inner, Ownership { mode, uid, gid })?;
        self.own_replicas(managed, inner, Ownership { mode, uid, gid })?;
        let record = FileRecord { mode, uid, gid, ..inner.record.clone() };
        let mut changes = Changes::default();
        changes.put_file(managed.file, &record);
        self.context.table().commit(&changes)?;
        inner.record = record;
        Ok(())
    }

    /// The stub has its name: the file lives.
    pub(crate) fn linked(&self, managed: &Managed) -> Result<(), Refusal> {
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(unknown(managed.file));
        }
        match &inner.record.state {
            FileState::Creating | FileState::Importing { complete: true, .. } => {}
            // Taken for a dead program's, until its user was found; it has its name.
            FileState::Unlinked if managed.control.life() == Life::Live && inner.is_nameless() == Some(false) => {}
            FileState::Live | FileState::Unlinked | FileState::Releasing { .. } => return Ok(()),
            FileState::Importing { complete: false, .. } => {
                return Err(Refusal::Invalid { what: "the import is not complete".to_owned() });
            }
        }
        self.set_state(managed, &mut inner, FileState::Live)?;
        inner.holder = None;
        managed.control.set_life(Life::Live);
        Ok(())
    }

    pub(crate) fn set_state(&self, managed: &Managed, inner: &mut Inner, state: FileState) -> Result<(), Refusal> {
        if inner.record.state == state {
            return Ok(());
        }
        let record = FileRecord { state, ..inner.record.clone() };
        let mut changes = Changes::default();
        changes.put_file(managed.file, &record);
        self.context.table().commit(&changes)?;
        inner.record = record;
        Ok(())
    }

    /// The durable part of an fsync: size, and the names of new objects. The mapping is durable since it was published.
    pub(crate) fn sync(&self, managed: &Managed) -> Result<(), Refusal> {
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(unknown(managed.file));
        }
        while let Some(server) = inner.unsynced.first().copied() {
            self.context.server(server)?.sync_names(managed.file)?;
            inner.unsynced.remove(&server);
        }
        if inner.generation > inner.record.generations_synced {
            let size_bytes = managed.extent.size_bytes();
            self.describe_size_if_hidden(managed, &mut inner, size_bytes)?;
            let record = FileRecord { generations_synced: inner.generation, size_bytes, ..inner.record.clone() };
            let mut changes = Changes::default();
            changes.put_file(managed.file, &record);
            self.context.table().commit(&changes)?;
            inner.record = record;
        }
        self.save_size(managed, &mut inner)
    }

    pub(crate) fn save_size(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        if let Some(cut_to_bytes) = inner.record.truncating_to_bytes {
            self.note_cut(managed, inner, cut_to_bytes)?;
        }
        let size_bytes = managed.extent.size_bytes();
        if size_bytes != inner.record.size_bytes {
            self.describe_size_if_hidden(managed, inner, size_bytes)?;
            let record = FileRecord { size_bytes, ..inner.record.clone() };
            let mut changes = Changes::default();
            changes.put_file(managed.file, &record);
            self.context.table().commit(&changes)?;
            inner.record = record;
        }
        managed.control.set_durable_size_bytes(size_bytes);
        Ok(())
    }

    /// After an open ended: frees the file if that was the last user and no name is left; else settles it. True when nothing more is to be expected.
    pub(crate) fn after_close(&self, managed: &Managed) -> Result<bool, Refusal> {
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Ok(true);
        }
        if !inner.openers.is_empty() || inner.holder.is_some() || !self.users(managed).is_empty() {
            return Ok(false);
        }
        let is_unlinked = matches!(inner.record.state, FileState::Unlinked);
        let nameless = inner.is_nameless().unwrap_or(is_unlinked);
        match &inner.record.state {
            // No call that is known took its last name: a program without redirection did, perhaps by mistake. It is kept until a person decides.
            FileState::Live if nameless => {}
            _ if nameless => {
                self.free(managed, &mut inner)?;
                return Ok(true);
            }
            // Named, but the word of it never came.
            FileState::Creating if inner.stub.is_some() => {
                self.set_state(managed, &mut inner, FileState::Live)?;
                managed.control.set_life(Life::Live);
            }
            _ => {}
        }
        self.settle(managed, &mut inner)?;
        inner.stub = None;
        Ok(true)
    }

    /// Without users: the size becomes durable, and the stub takes over the time of the last change.
    fn settle(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        self.save_size(managed, inner)?;
        if let (Some(stub), Some(modified_ns)) = (&inner.stub, managed.extent.modified_ns()) {
            let times = rustix::fs::Timestamps {
                last_access: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT as _ },
                last_modification: rustix::fs::Timespec {
                    tv_sec: (modified_ns / 1_000_000_000) as i64,
                    tv_nsec: (modified_ns % 1_000_000_000) as i64,
                },
            };
            let path = format!("/proc/self/fd/{}", stub.as_raw_fd());
            if rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::empty()).is_ok() {
                managed.extent.set_modified_ns(None);
            }
        }
        Ok(())
    }

    /// At a stop: as much as possible becomes durable.
    pub(crate) fn settle_all(&self) {
        let files: Vec<FileId> = guard(&self.files).keys().copied().collect();
        for managed in files.into_iter().filter_map(|file| self.if_loaded(file)) {
            let flushed = self.flush_at_once(&managed);
            let done = self.after_close(&managed).and_then(|_| {
                let mut inner = guard(&managed.inner);
                if inner.freed { Ok(()) } else { self.save_size(&managed, &mut inner) }
            });
            if let Err(refusal) = flushed.and(done) {
                self.context.note(&format!("stopping, file {}: {refusal}", managed.file));
            }
        }
    }

    /// Frees the file: objects, records, shared memory. Gives up when a user appears after all. Repeated at the next start if it is not finished.
    pub(crate) fn free(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        if !matches!(inner.record.state, FileState::Unlinked) {
            self.context.step("free: before the mark");
            self.set_state(managed, inner, FileState::Unlinked)?;
        }
        managed.control.set_life(Life::Gone);
        if !self.users(managed).is_empty() {
            managed.control.set_life(Life::Live);
            self.rechecks.recheck(managed.file);
            return Ok(());
        }
        self.quiescing.end_moves(managed, inner, "the file was removed");
        self.context.step("free: before the objects");
        if let Err(refusal) = self.free_objects(managed.file, inner) {
            self.rechecks.recheck(managed.file);
            return Err(refusal);
        }
        self.context.step("free: before the records");
        let mut changes = Changes::default();
        for region in inner.regions.keys() {
            changes.remove_region(managed.file, *region);
        }
        for (region, generation) in inner.discards.keys() {
            changes.remove_discard(managed.file, *region, *generation);
        }
        for (region, replicas) in &inner.replicas {
            replicas.keys().for_each(|number| changes.remove_replica(managed.file, *region, *number));
        }
        inner.logs.keys().for_each(|disk| changes.remove_log(managed.file, *disk));
        changes.remove_file(managed.file);
        if self.context.table().file_of(inner.record.stub)? == Some(managed.file) {
            changes.remove_inode(inner.record.stub);
            // The number may be another file's soon.
            self.withdraw_inode(inner.record.stub);
        }
        self.decide_names_of(managed.file, &mut changes);
        self.context.table().commit(&changes)?;
        self.capacity.give_back(inner.layouts(), inner.record.region_bytes);
        inner.freed = true;
        inner.stub = None;
        self.forget_logs(managed.file, &managed.fragments);
        self.remove_memory(managed.file);
        guard(&self.files).remove(&managed.file);
        Ok(())
    }

    fn free_objects(&self, file: FileId, inner: &Inner) -> Result<(), Refusal> {
        let regions = inner.layouts().flat_map(|layout| layout.stripes().iter().map(|stripe| stripe.server));
        let servers: BTreeSet<ServerId> = regions.chain(inner.logs.values().map(|log| log.on)).collect();
        let mut first_fault = None;
        for server in servers.iter().copied() {
            if let Err(refusal) = self.context.server(server).and_then(|s| s.remove_file(file).map_err(Refusal::from)) {
                first_fault.get_or_insert(refusal);
            }
        }
        // Others may have been told where its regions went.
        for server in (0..).map(ServerId).zip(self.context.servers()).filter(|(number, _)| !servers.contains(number)) {
            let _ = server.1.remove_file(file);
        }
        first_fault.map_or(Ok(()), Err)
    }

    /// Looks at a file whose last user may have died; true when it need not be looked at again.
    pub(crate) fn recheck_again(&self, file: FileId) -> bool {
        self.settle_orphans();
        if self.flux_of(file) == Flux::Changing {
            return false;
        }
        let managed = match self.managed(file) {
            Ok(managed) => managed,
            Err(refusal) => return matches!(refusal, Refusal::UnknownFile { .. }),
        };
        if self.quiescing.open_when_truncated(&managed).is_err() {
            return false;
        }
        match self.after_close(&managed) {
            Ok(done) => done && (guard(&managed.inner).freed || !self.is_unlinked(&managed)),
            Err(refusal) => {
                self.context.note(&format!("file {file} cannot be freed yet: {refusal}"));
                false
            }
        }
    }

    fn is_unlinked(&self, managed: &Managed) -> bool {
        matches!(guard(&managed.inner).record.state, FileState::Unlinked)
    }

    /// Whether the stub stands at the path that the record hints at. Where that cannot be seen, nothing is known, and nothing may be freed.
    pub(crate) fn stands_at_its_path(&self, record: &FileRecord) -> Result<bool, Refusal> {
        Ok(self.at_its_path(record)?.is_some_and(|facts| record.stub.is(&facts.inode)))
    }

    /// What stands at the file's path.
    pub(crate) fn at_its_path(&self, record: &FileRecord) -> Result<Option<Facts>, Refusal> {
        match Facts::at_path(Path::new(&record.path)) {
            Ok(facts) => Ok(facts),
            // A link in the place of one of its directories: the stub is not where it was.
            Err(Errno::LOOP) => Ok(None),
            Err(errno) => Err(Refusal::Invalid { what: format!("{}: cannot look at it: {errno}", record.path) }),
        }
    }
}

pub(crate) fn write_stub(descriptor: &OwnedFd, text: &[u8]) -> rustix::io::Result<()> {
    let mut done = 0;
    while done < text.len() {
        done += rustix::io::retry_on_intr(|| rustix::io::pwrite(descriptor, &text[done..], done as u64))?;
    }
    Ok(())
}

pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec.max(0) as u64 * 1_000_000_000 + now.tv_nsec.max(0) as u64
}
