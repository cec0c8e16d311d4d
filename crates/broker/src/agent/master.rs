//! The master's side: what agents of other hosts ask for the programs there.
//!
//! Each host has a connection here, as a program of this host has one; it stands for all programs there. What an agent says of a descriptor is
//! taken from its host, which alone can know it; the master opens the same file by its path and goes on as if the descriptor had come.

use crate::connection::Connection;
use crate::guard;
use crate::host_messages::{FromMaster, Known, Shown, Snapshot, ToMaster, decode, encode};
use crate::log::note;
use crate::managed::Managed;
use crate::others::{Line, Others};
use crate::parts::Parts;
use crate::rmt::{MappingStore, RmtError, is_shut_out_in};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use stripewise_layout::{FileId, RegionIndex};
use stripewise_store::entry::DirectoryEntry;
use stripewise_store::protocol::{Refusal, Reply, Request};

/// Regions that are told at once, from the first that was asked for on: their neighbours are often asked for next.
const REGIONS_AT_ONCE: u32 = 1024;

/// Answers agents.
pub(crate) struct Master {
    others: Arc<Others>,
    table: Box<dyn MappingStore>,
    /// None until what the last master left is ended.
    parts: Mutex<Option<Arc<Parts>>>,
    connections: Mutex<BTreeMap<String, Arc<Connection>>>,
}

/// The regions that a request is about, and whether its answer shows them.
fn regions_of(request: &Request) -> Option<(FileId, RegionIndex, RegionIndex)> {
    let (file, first, last) = match request {
        Request::Place { file, first, last } | Request::Refresh { file, first, last } => (file, *first, *last),
        Request::Begin { file, .. } | Request::LinkedAndBegin { file, .. } | Request::Truncate { file, .. } => {
            (file, RegionIndex(0), RegionIndex(0))
        }
        _ => return None,
    };
    Some((*file, first, last))
}

impl Master {
    pub(crate) fn new(others: &Arc<Others>, table: Box<dyn MappingStore>) -> Self {
        Self { others: Arc::clone(others), table, parts: Mutex::default(), connections: Mutex::default() }
    }

    /// From here on requests are answered.
    pub(crate) fn serve(&self, parts: &Arc<Parts>) {
        *guard(&self.parts) = Some(Arc::clone(parts));
    }

    /// From here on nothing is.
    pub(crate) fn stop(&self) {
        *guard(&self.parts) = None;
    }

    /// Answers what the agent of `host` asks over `line`.
    pub(crate) fn hear(&self, host: &str, line: &Arc<dyn Line>, question: &[u8]) -> Vec<u8> {
        let parts = guard(&self.parts).clone();
        let answer = match (decode(question), parts) {
            (Err(what), _) => FromMaster::Refused(Refusal::Invalid { what }),
            (Ok(ToMaster::Join), _) => self.admit(host).unwrap_or_else(|error| FromMaster::Refused(error.into())),
            (Ok(ToMaster::Holding { admission, files }), parts) => {
                let held = self.holds(host, parts.as_ref(), line, admission, files);
                held.unwrap_or_else(|error| FromMaster::Refused(error.into()))
            }
            (Ok(_), None) => FromMaster::NotMaster,
            // It was shut out since it said what it holds, or came back over another line.
            (Ok(_), Some(_)) if !self.others.is_line_of(host, line.number()) => FromMaster::NotMaster,
            (Ok(ToMaster::Reopen { file, size_bytes }), Some(parts)) => self.reopen(host, &parts, file, size_bytes),
            (Ok(ToMaster::Leaving), Some(parts)) => {
                self.leave(host, &parts);
                FromMaster::Heard
            }
            (Ok(ToMaster::Request { request, shown, known }), Some(parts)) => {
                match self.carry_out(host, &parts, request, &shown, known) {
                    (Reply::Refused(refusal), _) => FromMaster::Refused(refusal),
                    (reply, snapshot) => {
                        FromMaster::Answer { reply: Box::new(reply), snapshot: snapshot.map(Box::new) }
                    }
                }
            }
        };
        encode(&answer)
    }

    fn admit(&self, host: &str) -> Result<FromMaster, RmtError> {
        // Who is just being shut out is told afterwards.
        let _shut_out = self.others.shut_out();
        let is_shut_out = is_shut_out_in(self.table.as_ref(), host)?;
        Ok(FromMaster::Admitted { admission: self.others.next_turn(), is_shut_out })
    }

    fn holds(
        &self,
        host: &str,
        parts: Option<&Arc<Parts>>,
        line: &Arc<dyn Line>,
        admission: u64,
        files: Vec<FileId>,
    ) -> Result<FromMaster, RmtError> {
        if let Some(parts) = parts {
            self.end_moves_for(host, parts);
        }
        let mut left = None;
        {
            let shut_out = self.others.shut_out();
            if !self.others.is_of_this_master(admission) || shut_out.get(host).is_some_and(|last| *last >= admission) {
                return Ok(FromMaster::NotMaster);
            }
            if is_shut_out_in(self.table.as_ref(), host)? {
                // What it had open before is closed, and it says that it knows.
                left = guard(&self.connections).remove(host);
            }
            self.others.holds(host, Arc::clone(line), files);
            // Else what it holds is known; it is to come again when requests are answered.
            if let Some(parts) = parts {
                parts.context().table().note_host(host, true)?;
                parts.context().table().note_shut_out(host, false)?;
            }
        }
        if let (Some(connection), Some(parts)) = (left, parts) {
            parts.connection_ended(&connection);
        }
        Ok(if parts.is_some() { FromMaster::Heard } else { FromMaster::NotMaster })
    }

    /// Hosts that have departed have nothing open any more.
    pub(crate) fn forget_departed(&self) {
        let Some(parts) = guard(&self.parts).clone() else { return };
        let departed: Vec<_> = {
            let _shut_out = self.others.shut_out();
            let mut connections = guard(&self.connections);
            let hosts: Vec<_> = connections.keys().filter(|host| !self.others.is_there(host)).cloned().collect();
            hosts.iter().filter_map(|host| connections.remove(host)).collect()
        };
        departed.iter().for_each(|connection| parts.connection_ended(connection));
    }

    fn connection(&self, host: &str) -> Arc<Connection> {
        let mut connections = guard(&self.connections);
        Arc::clone(connections.entry(host.to_owned()).or_insert_with(|| Arc::new(Connection::of_host(host))))
    }

    /// What programs of the host marked that are gone by now nobody collects.
    fn end_moves_for(&self, host: &str, parts: &Parts) {
        self.others.files_of(host).into_iter().for_each(|file| parts.end_moves_for_host(file, host));
    }

    /// The host has nothing open any more.
    fn leave(&self, host: &str, parts: &Arc<Parts>) {
        self.end_moves_for(host, parts);
        self.others.leaves(host);
        if let Some(connection) = guard(&self.connections).remove(host) {
            parts.connection_ended(&connection);
        }
        if let Err(error) = parts.context().table().note_host(host, false) {
            note!(parts.context().log(), warn, host, %error, "the host is expected by the next master");
        }
    }

    /// The host has the file open since another was master.
    fn reopen(&self, host: &str, parts: &Arc<Parts>, file: FileId, size_bytes: u64) -> FromMaster {
        self.others.opens(host, file);
        // It may not have heard how they went on.
        parts.end_moves_for_host(file, host);
        let reopened = parts.reopen_for_host(&self.connection(host), file, size_bytes);
        match reopened {
            Ok(managed) => {
                let snapshot = Some(Box::new(snapshot(&managed, RegionIndex(0), RegionIndex(0))));
                FromMaster::Answer { reply: Box::new(Reply::Done), snapshot }
            }
            Err(refusal) => FromMaster::Refused(refusal),
        }
    }

    fn carry_out(
        &self,
        host: &str,
        parts: &Arc<Parts>,
        request: Request,
        shown: &[Shown],
        known: Option<Known>,
    ) -> (Reply, Option<Snapshot>) {
        let connection = self.connection(host);
        let descriptors = match shown.iter().map(open_shown).collect::<Result<Vec<_>, Refusal>>() {
            Ok(descriptors) => descriptors,
            Err(refusal) => return (Reply::Refused(refusal), None),
        };
        let asked = regions_of(&request);
        let (mut opens, mut closes) = (None, None);
        match &request {
            Request::Open { file } => opens = Some(*file),
            Request::Close { file } => closes = Some(*file),
            _ => {}
        }
        let was_open = opens.is_some_and(|file| guard(&connection.client).opened.contains_key(&file));
        if let Some(file) = opens {
            self.others.opens(host, file);
            if !was_open {
                parts.end_moves_for_host(file, host);
            }
        }
        if let (Some(known), Some(file)) = (known, file_of(&request))
            && let Ok(managed) = parts.managed(file)
        {
            managed.raise_to(known.size_bytes, known.truncations);
        }
        let (reply, _) = parts.answer(&connection, request, descriptors);
        match (&reply, opens) {
            (Reply::Opened { file, .. }, opened) => {
                self.others.opens(host, *file);
                if opened.is_none() {
                    parts.end_moves_for_host(*file, host);
                }
            }
            (_, Some(file)) if !was_open => self.others.closes(host, file),
            _ => {}
        }
        if let (Reply::Done, Some(file)) = (&reply, closes) {
            // It counted as open until now.
            parts.closed_by_host(file, host);
        }
        let shows = match &reply {
            Reply::Opened { file, .. } => Some((*file, RegionIndex(0), RegionIndex(0))),
            Reply::Done => asked,
            _ => None,
        };
        let snapshot = shows.and_then(|(file, first, last)| Some(snapshot(&*parts.managed(file).ok()?, first, last)));
        (reply, snapshot)
    }
}

/// The file whose size an agent tells along with a request.
fn file_of(request: &Request) -> Option<FileId> {
    match request {
        Request::Sync { file } | Request::Close { file } | Request::Tidy { file } | Request::Refresh { file, .. } => {
            Some(*file)
        }
        _ => None,
    }
}

fn snapshot(managed: &Managed, first: RegionIndex, last: RegionIndex) -> Snapshot {
    let last = RegionIndex(last.0.max(first.0.saturating_add(REGIONS_AT_ONCE - 1)));
    Snapshot::of(managed, &guard(&managed.inner), first..=last)
}

/// The same file on this host.
fn open_shown(shown: &Shown) -> Result<OwnedFd, Refusal> {
    let access = match (shown.is_readable, shown.is_writable) {
        (true, true) => OFlags::RDWR,
        (true, false) => OFlags::RDONLY,
        (false, true) => OFlags::WRONLY,
        (false, false) => OFlags::PATH,
    };
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let path = Path::new(&shown.path);
    let fault = |errno: Errno| Refusal::Invalid {
        what: format!(
            "the master cannot look at {} ({errno}), which a program of another host has open; mount the same file system at the same path on every host",
            shown.path
        ),
    };
    let opened = match DirectoryEntry::at(path) {
        Ok(entry) => rustix::fs::openat(entry.directory(), entry.name(), flags, Mode::empty()),
        Err(errno) => Err(errno),
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Err(Refusal::NameChanged { path: shown.path.clone() }),
        Err(errno) => return Err(fault(errno)),
    };
    match rustix::fs::fstat(&opened).map_err(fault)?.st_ino == shown.inode {
        true => Ok(opened),
        false => Err(Refusal::NameChanged { path: shown.path.clone() }),
    }
}
