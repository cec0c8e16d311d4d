//! The master's side: what agents of other hosts ask for the programs there.
//!
//! Each host has a connection here, as a program of this host has one; it stands for all programs there. What an agent says of a descriptor is
//! taken from its host, which alone can know it; the master opens the same file by its path and goes on as if the descriptor had come.

use crate::agent_counts::AgentCounts;
use crate::agent_identity::AgentIdentity;
use crate::complaints::Complaints;
use crate::connection::Connection;
use crate::fencing;
use crate::guard;
use crate::host_messages::{FromMaster, Known, Shown, Snapshot, ToMaster, decode, encode};
use crate::log::note;
use crate::managed::Managed;
use crate::others::{Line, Others, alone, namesakes};
use crate::parts::Parts;
use crate::parts::shown::{answer_unreached, ways_to};
use crate::rmt::{KnownHosts, MappingStore, is_shut_out_in, key_record_in};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use stripewise_layout::{FileId, RegionIndex};
use stripewise_store::entry::DirectoryEntry;
use stripewise_store::protocol::{AgentInfo, QuestionDirection, Refusal, Reply, Request};

/// Regions that are told at once, from the first that was asked for on: their neighbours are often asked for next.
const REGIONS_AT_ONCE: u32 = 1024;

/// Answers agents.
pub(crate) struct Master {
    others: Arc<Others>,
    table: Box<dyn MappingStore>,
    counts: Arc<AgentCounts>,
    /// None until what the last master left is ended.
    parts: Mutex<Option<Arc<Parts>>>,
    connections: Mutex<BTreeMap<String, Arc<Connection>>>,
    /// Of agents that came under another's name.
    complaints: Complaints<(String, AgentIdentity)>,
    /// The role is.
    is_over: AtomicBool,
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
    pub(crate) fn new(others: &Arc<Others>, table: Box<dyn MappingStore>, counts: &Arc<AgentCounts>) -> Self {
        Self {
            others: Arc::clone(others),
            table,
            counts: Arc::clone(counts),
            parts: Mutex::default(),
            is_over: AtomicBool::new(false),
            connections: Mutex::default(),
            complaints: Complaints::default(),
        }
    }

    /// From here on requests are answered.
    pub(crate) fn serve(&self, parts: &Arc<Parts>) {
        *guard(&self.parts) = Some(Arc::clone(parts));
    }

    /// From here on nothing is, and what is being answered is to be asked of the next master.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, SeqCst);
        *guard(&self.parts) = None;
    }

    /// Whether another host is master, as the engine said when something was to be changed.
    fn is_deposed(&self) -> bool {
        guard(&self.parts).as_ref().is_some_and(|parts| parts.context().table().is_deposed())
    }

    /// Whether another host may be master, since this one was kept from renewing its lease.
    fn may_be_followed(&self) -> bool {
        let parts = guard(&self.parts);
        let membership = parts.as_ref().and_then(|parts| parts.context().membership());
        membership.is_some_and(|membership| membership.may_be_followed())
    }

    /// Whether this host is cut off from all others.
    pub(crate) fn is_alone(&self) -> bool {
        alone::is_alone(&self.others)
    }

    /// Answers what the agent of `host` asks over `line`.
    pub(crate) fn hear(&self, host: &str, line: &Arc<dyn Line>, question: &[u8]) -> Vec<u8> {
        let answer = match decode::<ToMaster>(question) {
            Err(what) => FromMaster::Refused(Refusal::Invalid { what }),
            Ok(question) => {
                let (kind, answer) = (question.kind(), || self.answer(host, line, question));
                match self.counts.time(QuestionDirection::FromAgent, kind, answer) {
                    _ if self.is_over.load(SeqCst) || self.may_be_followed() => FromMaster::NotMaster,
                    Err(_) if self.is_deposed() => FromMaster::NotMaster,
                    Err(refusal) => FromMaster::Refused(refusal),
                    Ok(answer) => answer,
                }
            }
        };
        encode(&answer)
    }

    fn answer(&self, host: &str, line: &Arc<dyn Line>, question: ToMaster) -> Result<FromMaster, Refusal> {
        let parts = guard(&self.parts).clone();
        match (question, parts) {
            (ToMaster::Join { agent }, parts) => self.admit(host, parts.as_ref(), line, agent),
            (ToMaster::Holding { admission, files, key }, parts) => {
                self.holds(host, parts.as_ref(), line, admission, (files, &key))
            }
            // A host that was there under the last master, while that one's work is ended.
            (ToMaster::Probe, None) => Ok(FromMaster::Heard),
            (ToMaster::Probe, Some(parts)) => {
                parts.directories.check_new_host(host, line.as_ref())?;
                Ok(FromMaster::Heard)
            }
            (_, None) => Ok(FromMaster::NotMaster),
            // It was shut out since it said what it holds, or came back over another line.
            (_, Some(_)) if !self.others.is_line_of(host, line.number()) => Ok(FromMaster::NotMaster),
            (ToMaster::Reopen { file, known }, Some(parts)) => self.reopen(host, &parts, file, known),
            (ToMaster::Leaving, Some(parts)) => {
                self.leave(host, &parts);
                Ok(FromMaster::Heard)
            }
            (ToMaster::GivenUp { files, changes }, Some(parts)) => {
                parts.holders.given_up_by_host(&self.connection(host), host, &files, &changes);
                Ok(FromMaster::Heard)
            }
            (ToMaster::Request { request, shown, known }, Some(parts)) => {
                match self.carry_out(host, &parts, request, &shown, known) {
                    (Reply::Refused(refusal), _) => Err(refusal),
                    (reply, snapshot) => {
                        Ok(FromMaster::Answer { reply: Box::new(reply), snapshot: snapshot.map(Box::new) })
                    }
                }
            }
        }
    }

    fn admit(
        &self,
        host: &str,
        parts: Option<&Arc<Parts>>,
        line: &Arc<dyn Line>,
        agent: AgentInfo,
    ) -> Result<FromMaster, Refusal> {
        if let Some(parts) = parts
            && namesakes::refuse(&self.others, host, line.as_ref()).is_err()
        {
            fencing::shut_out_for_namesake(parts.context(), &self.others, host)?;
        }
        // Who is just being shut out is told afterwards.
        let _admission = self.others.admission();
        self.refuse_namesake(host, line.as_ref())?;
        let is_shut_out = is_shut_out_in(self.table.as_ref(), host, &line.identity())?;
        let admission = self.others.admit();
        self.others.arrives(host, agent, admission);
        Ok(FromMaster::Admitted { admission, is_shut_out })
    }

    fn holds(
        &self,
        host: &str,
        parts: Option<&Arc<Parts>>,
        line: &Arc<dyn Line>,
        admission: u64,
        (files, key): (Vec<FileId>, &str),
    ) -> Result<FromMaster, Refusal> {
        let (mut left, agent) = (None, line.identity());
        {
            let _admission = self.others.admission();
            if !self.others.is_admitted(host, admission) {
                return Ok(FromMaster::NotMaster);
            }
            // It came while the key was replaced, and is to come again with the new one.
            if key_record_in(self.table.as_ref())?.is_some_and(|record| record.fingerprint != key) {
                return Ok(FromMaster::NotMaster);
            }
            // It may have come before the one that has the name.
            self.refuse_namesake(host, line.as_ref())?;
            if is_shut_out_in(self.table.as_ref(), host, &agent)? || !self.others.is_there(host) {
                // What it had open before is closed, and it says that it knows; or it is another than the one that has departed.
                left = guard(&self.connections).remove(host);
            }
            self.others.holds(host, Arc::clone(line), files.clone());
            // Else what it holds is known; it is to come again when requests are answered.
            if let Some(parts) = parts {
                parts.context().table().note_host(host, Some(&agent))?;
                KnownHosts(parts.context().table()).note(host, true)?;
                parts.context().table().note_back(host, &agent)?;
            }
        }
        if let (Some(connection), Some(parts)) = (left, parts) {
            parts.connection_ended(&connection);
        }
        if let Some(parts) = parts {
            // Its commands lost their holds with the line over which they had them, and programs that are gone have nothing open.
            let connection = self.connection(host);
            parts.holders.end_holds_of(&connection);
            parts.holders.has_only_open(&connection, &files);
        }
        Ok(if parts.is_some() { FromMaster::Heard } else { FromMaster::NotMaster })
    }

    /// See [`namesakes`].
    fn refuse_namesake(&self, host: &str, line: &dyn Line) -> Result<(), Refusal> {
        let refused = namesakes::refuse(&self.others, host, line).map_err(|error| error.to_string());
        refused.map_err(|what| {
            if let Some(parts) = &*guard(&self.parts)
                && self.complaints.is_due((host.to_owned(), line.identity()), Instant::now())
            {
                note!(parts.context().log(), warn, host, what = what.as_str(), "a host cannot take part");
            }
            Refusal::Invalid { what }
        })
    }

    /// Hosts that have departed have nothing open any more.
    pub(crate) fn forget_departed(&self) {
        let Some(parts) = guard(&self.parts).clone() else { return };
        let departed: Vec<_> = {
            let _admission = self.others.admission();
            let mut connections = guard(&self.connections);
            let hosts: Vec<_> = connections.keys().filter(|host| !self.others.is_there(host)).cloned().collect();
            hosts.iter().filter_map(|host| connections.remove(host)).collect()
        };
        departed.iter().for_each(|connection| parts.connection_ended(connection));
    }

    /// What commands of hosts that are silent left half done is undone or finished.
    pub(crate) fn end_holds_of_silent(&self) {
        let Some(parts) = guard(&self.parts).clone() else { return };
        let holding = |(host, connection): (&String, &Arc<Connection>)| {
            let is_silent = !guard(&connection.client).held.is_empty() && self.others.is_host_silent(host);
            is_silent.then(|| Arc::clone(connection))
        };
        let silent: Vec<_> = guard(&self.connections).iter().filter_map(holding).collect();
        silent.iter().for_each(|connection| parts.holders.end_holds_of(connection));
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
        if let Err(error) = parts.context().table().note_host(host, None) {
            note!(parts.context().log(), warn, host, %error, "the host is expected by the next master");
        }
    }

    /// The host has the file open since another was master.
    fn reopen(&self, host: &str, parts: &Arc<Parts>, file: FileId, known: Known) -> Result<FromMaster, Refusal> {
        self.others.opens(host, file);
        // It may not have heard how they went on.
        parts.end_moves_for_host(file, host);
        let reopened = parts.reopen_for_host(&self.connection(host), file, known);
        let snapshot = reopened.map(|managed| self.snapshot(&managed, RegionIndex(0), RegionIndex(0)));
        self.others.reopens(host, file);
        Ok(FromMaster::Answer { reply: Box::new(Reply::Done), snapshot: Some(Box::new(snapshot?)) })
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
        let reached =
            shown.iter().map(|shown| open_shown(shown).or_else(|refusal| open_recorded(parts, shown).ok_or(refusal)));
        let reached = reached.collect::<Result<Vec<_>, Refusal>>();
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
        }
        if let (Some(known), Some(file)) = (known, file_of(&request))
            && let Ok(managed) = parts.managed(file)
        {
            managed.raise_to(known.size_bytes, known.truncations);
        }
        let reply = match reached {
            Ok(descriptors) => parts.answer(&connection, request, descriptors).0,
            Err(refusal) => answer_unreached(parts, &connection, &request, shown, refusal),
        };
        match (&reply, opens) {
            (Reply::Opened { file, .. }, _) => self.others.opens(host, *file),
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
        let snapshot =
            shows.and_then(|(file, first, last)| Some(self.snapshot(&*parts.managed(file).ok()?, first, last)));
        (reply, snapshot)
    }

    /// A host that opens the file counts among those that have it before: it is asked to take the steps of moves that this does not tell of.
    fn snapshot(&self, managed: &Managed, first: RegionIndex, last: RegionIndex) -> Snapshot {
        let last = RegionIndex(last.0.max(first.0.saturating_add(REGIONS_AT_ONCE - 1)));
        let inner = guard(&managed.inner);
        Snapshot::of(managed, &inner, self.others.last_turn(), first..=last)
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

/// The stub that the host shows, by the name that the table has for it, or by what this host has of a stub that has none.
fn open_recorded(parts: &Parts, shown: &Shown) -> Option<OwnedFd> {
    let (path, held) = ways_to(parts, shown.file?)?;
    let recorded = Shown { path, ..shown.clone() };
    open_shown(&recorded).ok().or_else(|| {
        let link = format!("/proc/self/fd/{}", held.as_ref()?.as_raw_fd());
        let opened = rustix::fs::open(link, flags_of(shown), Mode::empty()).ok()?;
        rustix::fs::fstat(&opened).is_ok_and(|found| found.st_ino == shown.inode).then_some(opened)
    })
}

fn flags_of(shown: &Shown) -> OFlags {
    let access = match (shown.is_readable, shown.is_writable) {
        (true, true) => OFlags::RDWR,
        (true, false) => OFlags::RDONLY,
        (false, true) => OFlags::WRONLY,
        (false, false) => OFlags::PATH,
    };
    access | OFlags::NONBLOCK | OFlags::CLOEXEC
}

/// The same file on this host.
fn open_shown(shown: &Shown) -> Result<OwnedFd, Refusal> {
    if shown.path.is_empty() {
        return Err(Refusal::NameChanged { path: "a file without a name".to_owned() });
    }
    let flags = flags_of(shown) | OFlags::NOFOLLOW;
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
