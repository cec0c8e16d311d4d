//! Files that programs of this host open, make and close: at the master first, then in this host's memory.

use super::files::{HostFile, Users};
use super::{Follower, first, refresh_of, unexpected};
use crate::connection::{Answer, Carried, Connection};
use crate::guard;
use crate::host_messages::{FromMaster, Snapshot, ToMaster};
use crate::managed::unknown;
use crate::proof::{Granted, Proof};
use rustix::fs::{Dir, OFlags};
use stripewise_layout::FileId;
use stripewise_store::protocol::{Refusal, Reply, Request};
use stripewise_store::shared::extent::Extent;
use stripewise_store::shared::slots::Slots;

impl Follower {
    /// Opens the file for a program here: at the master, which knows its newest size, then in shared memory.
    pub(super) fn open(&self, connection: &Connection, file: FileId, request: Request, proof: &Proof) -> Answer {
        proof.permits_io()?;
        let found = self.files.entry(file);
        let Some(mut users) = found.users() else { return self.open(connection, file, request, proof) };
        let (reply, snapshot) = self.forward(request, &[proof], None)?;
        let (Reply::Opened { writable, .. }, Some(snapshot)) = (reply, snapshot) else {
            return Err(unknown(file));
        };
        self.show_latest(&found, refresh_of(file), Some(snapshot))?;
        users.add(connection.id, proof.granted());
        self.hand_out(connection, file, writable, proof.granted())
    }

    /// Makes a file: the master does, and it is open here.
    pub(super) fn create(&self, connection: &Connection, request: Request, shown: &[&Proof]) -> Answer {
        let proof = first(shown)?;
        proof.permits_io()?;
        let (reply, snapshot) = self.forward(request, shown, None)?;
        let (Reply::Opened { file, writable }, Some(snapshot)) = (reply, snapshot) else {
            return Err(Refusal::Table { what: "the master made no file; use one version of stripewise".to_owned() });
        };
        let found = self.files.entry(file);
        let mut users = found.users().ok_or_else(|| unknown(file))?;
        self.show_latest(&found, refresh_of(file), Some(snapshot))?;
        users.add(connection.id, proof.granted());
        self.hand_out(connection, file, writable, proof.granted())
    }

    fn hand_out(&self, connection: &Connection, file: FileId, writable: bool, granted: Granted) -> Answer {
        let memory = self.memory.memory_for_client(file, writable);
        let memory =
            memory.map_err(|errno| Refusal::Table { what: format!("the shared memory of file {file}: {errno}") })?;
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

    /// Tells the master, once no program here uses the file; false: one does.
    pub(super) fn close_if_unused(&self, file: FileId) -> Result<bool, Refusal> {
        let Some(found) = self.files.find(file) else { return Ok(true) };
        let Some(mut users) = found.users() else { return Ok(true) };
        let Some(managed) = found.managed() else { return Ok(true) };
        if !users.is_empty() || !self.quiescing.users(&managed).is_empty() {
            // The size is the others' to know, whether or not this was the last.
            self.forward(refresh_of(file), &[], found.known())?;
            return Ok(false);
        }
        self.forward(Request::Close { file }, &[], found.known())?;
        self.forget(file, &mut users);
        Ok(true)
    }

    /// Files that programs here use, and how long they are as far as this host knows: by what is in `run/`, whoever put it there.
    pub(super) fn held_files(&self) -> Vec<(FileId, u64)> {
        let Ok(run) = Dir::read_from(self.context.state().run()) else { return Vec::new() };
        let held = |name: &str| {
            let file: FileId = name.strip_suffix(".slots")?.parse().ok()?;
            let open = |kind: &str| self.context.state().open_shared(&format!("{file}.{kind}"), OFlags::RDWR).ok();
            let users = Slots::users_of_any_version(open("slots")?).ok()?;
            users.iter().any(|(slot, incarnation)| self.context.is_alive(*slot, *incarnation)).then_some(())?;
            Some((file, Extent::size_of_any_version(open("ext")?).ok()?))
        };
        run.flatten().filter_map(|entry| held(entry.file_name().to_str().ok()?)).collect()
    }

    pub(super) fn forget(&self, file: FileId, users: &mut Users) {
        self.files.remove(file, users);
        self.memory.remove_memory(file);
    }

    pub(super) fn reopen(&self, file: FileId, size_bytes: u64) -> Result<(), Refusal> {
        let found = self.files.entry(file);
        let Some(_users) = found.users() else { return Ok(()) };
        match self.ask(&ToMaster::Reopen { file, size_bytes })? {
            FromMaster::Answer { snapshot, .. } => {
                self.show_latest(&found, refresh_of(file), snapshot.map(|snapshot| *snapshot))
            }
            FromMaster::Refused(refusal) => Err(refusal),
            other => Err(unexpected(&other)),
        }
    }
}
