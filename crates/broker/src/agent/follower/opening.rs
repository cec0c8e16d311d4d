//! Files that programs of this host open, make and close: at the master first, then in this host's memory.

use super::files::{HostFile, Users};
use super::requests::first;
use super::{Follower, refresh_of, unexpected};
use crate::connection::{Answer, Carried, Connection};
use crate::guard;
use crate::host_messages::{FromMaster, Known, Snapshot, ToMaster};
use crate::log::note;
use crate::managed::{Managed, unknown};
use crate::proof::{Granted, Proof};
use stripewise_layout::{Direction, FileId};
use stripewise_store::protocol::{Refusal, Reply, Request};
use stripewise_store::shared::control::Life;

impl Follower {
    /// Opens the file for a program here: at the master, which knows its newest size, then in shared memory.
    pub(super) fn open(&self, connection: &Connection, file: FileId, request: Request, proof: &Proof) -> Answer {
        proof.permits_io()?;
        let found = self.files.entry(file);
        let Some(mut users) = found.users() else { return self.open(connection, file, request, proof) };
        users.refuse_if_held(connection.id, file)?;
        let (reply, snapshot) = self.forward(request, &[proof], None)?;
        let (Reply::Opened { writable, .. }, Some(snapshot)) = (reply, snapshot) else {
            return Err(unknown(file));
        };
        self.show_latest(&found, refresh_of(file), Some(snapshot))?;
        users.add(connection.id, proof.granted());
        users.watch(|| proof.to_watch());
        if let Some(path) = proof.path() {
            self.opens.note(connection, &path);
        }
        self.hand_out(connection, file, writable, proof.granted())
    }

    /// Makes a file: the master does, and it is open here.
    pub(super) fn create(&self, connection: &Connection, request: Request, shown: &[&Proof]) -> Answer {
        let proof = first(shown)?;
        proof.permits_io()?;
        let is_import = matches!(request, Request::Admin(_));
        let (reply, snapshot) = self.forward(request, shown, None)?;
        let (Reply::Opened { file, writable }, Some(snapshot)) = (reply, snapshot) else {
            return Err(Refusal::Table { what: "the master made no file; use one version of stripewise".to_owned() });
        };
        let found = self.files.entry(file);
        let mut users = found.users().ok_or_else(|| unknown(file))?;
        if is_import {
            guard(&connection.client).held.insert(file);
            users.is_held_by(connection.id, true);
        }
        self.show_latest(&found, refresh_of(file), Some(snapshot))?;
        users.add(connection.id, proof.granted());
        users.watch(|| proof.to_watch());
        self.hand_out(connection, file, writable, proof.granted())
    }

    /// A command wants to hold the file for itself: no other program of this host may use it, nor open it from here on. The master says so of other hosts.
    pub(super) fn begin_release(
        &self,
        connection: &Connection,
        file: FileId,
        request: Request,
        shown: &[&Proof],
    ) -> Answer {
        let found = self.files.find(file).ok_or_else(|| unknown(file))?;
        let mut users = found.users().ok_or_else(|| unknown(file))?;
        users.refuse_if_held(connection.id, file)?;
        let own = guard(&connection.client).claim;
        let used = found.managed().map_or_else(Vec::new, |managed| self.quiescing.users(&managed));
        let other = used.into_iter().find(|user| Some(*user) != own);
        if other.is_some() || users.has_others(connection.id) {
            let process = other.map(|(slot, _)| self.context.processes().process_id(slot));
            let holder = process.map_or_else(|| "a process".to_owned(), |process| format!("process {process}"));
            return Err(Refusal::Busy { file, holder });
        }
        let (reply, _) = self.forward(request, shown, None)?;
        users.is_held_by(connection.id, true);
        guard(&connection.client).held.insert(file);
        Ok((reply, Vec::new()))
    }

    /// A connection does not hold the file any more.
    pub(super) fn no_longer_held(&self, connection: &Connection, file: FileId) {
        guard(&connection.client).held.remove(&file);
        if let Some(found) = self.files.find(file)
            && let Some(mut users) = found.users()
        {
            users.is_held_by(connection.id, false);
        }
    }

    fn hand_out(&self, connection: &Connection, file: FileId, writable: bool, granted: Granted) -> Answer {
        let memory = self.memory.memory_for_client(file, writable);
        let memory =
            memory.map_err(|errno| Refusal::Table { what: format!("the shared memory of file {file}: {errno}") })?;
        if let Some(managed) = self.files.find(file).and_then(|found| found.managed())
            && !self.accesses.see(&managed)
            && managed.control.notices().observation().is_some()
        {
            // For a master or an agent that has ended.
            managed.control.notices().end_observation();
        }
        guard(&connection.client).opened.entry(file).or_default().add(granted);
        let along = [memory.control, memory.extent, memory.slots].into_iter().map(Carried::Own).collect();
        Ok((Reply::Opened { file, writable }, along))
    }

    /// Passes on a request whose answer tells more of the file, and shows it.
    pub(super) fn renew(&self, file: FileId, request: Request) -> Answer {
        let found = self.files.find(file).ok_or_else(|| unknown(file))?;
        let again = match request {
            Request::Place { first, last, .. } | Request::Refresh { first, last, .. } => {
                Request::Refresh { file, first, last }
            }
            _ => refresh_of(file),
        };
        let (reply, snapshot) = self.forward(request, &[], found.known())?;
        self.show_latest(&found, again, snapshot)?;
        Ok((reply, Vec::new()))
    }

    /// The file's shared memory shows what the master answered. An answer from before a truncation that came after it is asked for again.
    fn show_latest(&self, found: &HostFile, again: Request, mut snapshot: Option<Snapshot>) -> Result<(), Refusal> {
        while let Some(latest) = &snapshot {
            if found.show(&self.context, &self.memory, latest)? {
                return Ok(());
            }
            (_, snapshot) = self.forward(again.clone(), &[], None)?;
        }
        Ok(())
    }

    /// A program here has closed the file; true when nothing more is to be expected.
    pub(super) fn close(&self, connection: u64, file: FileId) -> Result<bool, Refusal> {
        if let Some(found) = self.files.find(file)
            && let Some(mut users) = found.users()
        {
            users.remove(connection);
        }
        self.close_if_unused(file)
    }

    /// Tells the master, once no program here uses the file; false: one does, or has a descriptor of a file without a name and may yet use it.
    pub(super) fn close_if_unused(&self, file: FileId) -> Result<bool, Refusal> {
        let Some(found) = self.files.find(file) else { return Ok(true) };
        let Some(mut users) = found.users() else { return Ok(true) };
        let Some(managed) = found.managed() else { return Ok(true) };
        let is_used = !users.is_empty() || !self.quiescing.users(&managed).is_empty();
        let is_kept = !is_used && users.is_open_without_name();
        if is_kept {
            self.rechecks.recheck(file);
        }
        if is_used || is_kept {
            // The size is the others' to know, whether or not this was the last.
            self.forward(refresh_of(file), &[], found.known())?;
            return Ok(false);
        }
        // Whoever finds this memory after a close that was heard learns nothing of the size by it: the file may have been truncated since.
        self.forward(refresh_of(file), &[], found.known())?;
        let life = managed.control.life();
        managed.control.set_life(Life::Gone);
        if let Err(refusal) = self.forward(Request::Close { file }, &[], found.known()) {
            managed.control.set_life(life);
            return Err(refusal);
        }
        self.forget(file, &mut users);
        Ok(true)
    }

    /// All that used the file are dead, and so is the agent that served them: what one of them may have left beyond the size goes, and the file is closed.
    pub(super) fn close_left(&self, file: FileId) {
        let managed = self.files.find(file).and_then(|found| found.managed());
        let is_writing = |managed: &Managed| {
            let mut users = managed.slots.users();
            users.any(|(slot, _)| managed.slots.in_flight(slot).any(|io| io.direction == Direction::Write))
        };
        if managed.is_some_and(|managed| is_writing(&managed))
            && let Err(error) = self.forward(Request::Tidy { file }, &[], None)
        {
            note!(self.context.log(), warn, %file, %error, "what a dead writer left beyond the size stays");
        }
        if !self.close_if_unused(file).unwrap_or(false) {
            self.rechecks.recheck(file);
        }
    }

    pub(super) fn forget(&self, file: FileId, users: &mut Users) {
        self.files.remove(file, users);
        self.accesses.leave(file);
        self.memory.remove_memory(file);
    }

    pub(super) fn reopen(&self, file: FileId, known: Known) -> Result<(), Refusal> {
        let found = self.files.entry(file);
        let Some(_users) = found.users() else { return Ok(()) };
        match self.ask(&ToMaster::Reopen { file, known })? {
            FromMaster::Answer { snapshot, .. } => {
                self.show_latest(&found, refresh_of(file), snapshot.map(|snapshot| *snapshot))
            }
            FromMaster::Refused(refusal) => Err(refusal),
            other => Err(unexpected(&other)),
        }
    }
}
