//! Opening files, and what is taken over from their stubs then.

use super::Lifecycle;
use crate::connection::{Answer, Carried, Connection};
use crate::guard;
use crate::managed::{Inner, Managed, Memory, unknown};
use crate::objects::stripe_servers;
use crate::proof::{Granted, Proof};
use crate::rmt::{Changes, FileRecord, FileState};
use stripewise_layout::FileId;
use stripewise_store::protocol::{Refusal, Reply};
use stripewise_store::server::{ObjectName, Operation, Ownership};
use stripewise_store::shared::control::Life;

impl Lifecycle {
    /// The answer to an open: from now on the connection counts as having the file open. `made`: as [`FileMemory::make_new`] returned them.
    pub(crate) fn opened(
        &self,
        connection: &Connection,
        managed: &Managed,
        inner: &mut Inner,
        granted: Granted,
        made: Option<Memory>,
    ) -> Answer {
        let file = managed.file;
        let memory = match made.filter(|_| granted.writable) {
            Some(made) => Ok(made),
            None => self.memory.memory_for_client(file, granted.writable),
        };
        let memory =
            memory.map_err(|errno| Refusal::Table { what: format!("the shared memory of file {file}: {errno}") })?;
        self.inodes.hide_status(inner.record.stub);
        // Before the client gets it, so that none of its requests is missed.
        self.observers.notify_observers(managed);
        self.observers.note_open(connection, &inner.record.path);
        guard(&connection.client).opened.entry(file).or_default().add(granted);
        inner.openers.insert(connection.id);
        if granted.writable {
            inner.writers.insert(connection.id);
        }
        let along = [memory.control, memory.extent, memory.slots].into_iter().map(Carried::Own).collect();
        Ok((Reply::Opened { file, writable: granted.writable }, along))
    }

    /// Opens the file for the holder of `proof`.
    pub(crate) fn open_file(&self, connection: &Connection, file: FileId, proof: &Proof) -> Answer {
        proof.permits_io()?;
        let managed = self.identities.identify(file, proof)?;
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(unknown(file));
        }
        self.refuse_if_held(&managed, &inner, connection.id)?;
        self.follow_stub(&managed, &mut inner, proof)?;
        if inner.record.has_leftovers {
            // Tried again at every open; the server may still be away. Not under the lock, which comes after that of the fragments.
            drop(inner);
            let _ = self.truncation.tidy(&managed);
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
        self.opened(connection, &managed, &mut inner, proof.granted(), None)
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
            record = self.ancestors.of_path(&record.path).record(record.path.clone(), &record);
        }
        if record != inner.record {
            let mut changes = Changes::default();
            changes.put_file(managed.file, &record);
            self.context.table().commit_later(&changes)?;
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
        let own = inner.regions.iter().flat_map(|(region, placed)| {
            let object = ObjectName { file: managed.file, region: *region, generation: placed.generation };
            let own = Operation::SetOwnership(object, Ownership { mode, uid, gid });
            stripe_servers(&placed.layout).map(move |server| (server, own.clone()))
        });
        self.context.perform_together(own).into_iter().try_for_each(|outcome| outcome.map(drop))?;
        self.logs.own_logs(managed.file, inner, Ownership { mode, uid, gid })?;
        self.replicas.own_replicas(managed, inner, Ownership { mode, uid, gid })?;
        let record = FileRecord { mode, uid, gid, ..inner.record.clone() };
        let mut changes = Changes::default();
        changes.put_file(managed.file, &record);
        self.context.table().commit(&changes)?;
        inner.record = record;
        Ok(())
    }

    /// As [`Self::open_file`], for a program of another host, whose agent says what it has open: no name leads to the stub from here.
    pub(crate) fn open_by_inode(&self, connection: &Connection, file: FileId, inode: u64, granted: Granted) -> Answer {
        let managed = self.files.managed(file)?;
        let mut inner = guard(&managed.inner);
        if inner.freed || inner.record.stub.inode != inode {
            return Err(unknown(file));
        }
        if !granted.readable && !granted.writable {
            return Err(Refusal::NotPermitted);
        }
        self.refuse_if_held(&managed, &inner, connection.id)?;
        self.opened(connection, &managed, &mut inner, granted, None)
    }
}
