//! Making managed files of new stubs.

use super::Lifecycle;
use crate::guard;
use crate::identities::{now_ns, write_stub};
use crate::log::note;
use crate::managed::{Inner, Managed, Memory};
use crate::placing::RESERVE_FIRST;
use crate::proof::Proof;
use crate::rmt::{Changes, FileRecord, FileState};
use crate::sizes;
use std::sync::Arc;
use stripewise_layout::Placement;
use stripewise_store::protocol::Refusal;
use stripewise_store::server::Ownership;
use stripewise_store::stub::Stub;

impl Lifecycle {
    /// Makes a file of the new stub behind `proof`; with the descriptors by which its shared memory was made, if it was made now.
    pub(crate) fn create(
        &self,
        proof: &Proof,
        path: &str,
        placement: Placement,
        state: FileState,
        holder: Option<u64>,
    ) -> Result<(Arc<Managed>, Option<Memory>), Refusal> {
        proof.permits_io()?;
        if !proof.writable {
            return Err(Refusal::NotPermitted);
        }
        if matches!(state, FileState::Creating)
            && let Some(managed) = self.created_before(proof, path)?
        {
            return Ok((managed, None));
        }
        placement
            .check(self.context.servers().len())
            .map_err(|what| Refusal::Invalid { what: format!("{path}: {what}") })?;
        let ownership = self.applicable(proof.facts.ownership, path)?;
        let (file, (memory, descriptors)) = self.memory.make_new(placement.region_size.0)?;
        let stub =
            Stub { file, cluster: self.context.cluster().id.clone(), state: self.context.state().path().to_owned() };
        let text = stub.to_bytes().map_err(|error| Refusal::Invalid { what: error.to_string() })?;
        let record = self.ancestors.of_path(path).record(
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
                is_size_untold: false,
                put_away_in: None,
                put_away_unsynced: false,
                truncating_number: None,
                truncation_numbers: Vec::new(),
                truncations: 0,
                created_ns: now_ns(),
            },
        );
        let mut changes = Changes::default();
        changes.put_file(file, &record);
        changes.put_placement(file, &placement);
        let wanted = self.context.table().expected_replicas(path)?;
        changes.put_wanted(file, &wanted);
        // As much as a name that was made: not before somebody syncs the file. If the number was that of a stub which was removed behind our back, the record and
        // data of that file stay for `check`.
        self.inodes.enter_inode(record.stub, file, changes, |changes| {
            self.context.step("create: before the record");
            self.context.table().commit_later(changes)
        })?;
        memory.0.set_durable_size_bytes(None);
        self.context.step("create: before the stub's text");
        write_stub(&proof.descriptor, &text)
            .map_err(|errno| Refusal::Invalid { what: format!("writing the stub of {path}: {errno}") })?;
        self.context.step("create: stub written");
        let inner = Inner { wanted, stub: proof.to_watch(), holder, ..Inner::new(record, placement) };
        let managed =
            Arc::new(Managed::new(file, memory, inner).numbered_from(self.context.first_number()).unheard_of());
        sizes::owe_nothing(&self.context, &managed);
        self.logs.show_fragments_without_logs(&managed, None);
        self.files.remember(&managed);
        self.files.unload_some(|unused| {
            if let Err(refusal) = self.put_away(unused, &mut guard(&unused.inner)) {
                note!(self.context.log(), warn, file = %unused.file, error = %refusal, "the memory of a closed file stays");
            }
        });
        Ok((managed, Some(descriptors)))
    }

    /// The file that was made of this stub when it was asked for before, by a client that lost its broker and heard nothing of it. None if there is none and
    /// the stub is new: empty, or with the text of a creation that was dropped with that broker.
    fn created_before(&self, proof: &Proof, path: &str) -> Result<Option<Arc<Managed>>, Refusal> {
        if let Some(file) = self.context.table().file_of(proof.facts.inode)? {
            let is_this = |record: &FileRecord| {
                record.state == FileState::Creating && record.stub.is(&proof.facts.inode) && record.path == path
            };
            if self.context.table().file(file)?.is_some_and(|record| is_this(&record)) {
                let managed = self.files.managed(file)?;
                let mut inner = guard(&managed.inner);
                // One that was written is a dead program's, whose inode's number is used again.
                let is_new = inner.regions.is_empty() && managed.extent.size_bytes() == 0;
                if !inner.freed && is_this(&inner.record) && is_new && self.quiescing.users(&managed).is_empty() {
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
        let dropped = match self.identities.text_of(proof) {
            Some(stub) => stub.cluster == self.context.cluster().id && self.context.table().file(stub.file)?.is_none(),
            None => false,
        };
        if dropped { Ok(None) } else { Err(Refusal::Invalid { what: format!("the new stub of {path} is not empty") }) }
    }

    /// Objects must be the broker's own or, for root, whoever's.
    pub(crate) fn applicable(&self, ownership: Ownership, path: &str) -> Result<Ownership, Refusal> {
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
}
