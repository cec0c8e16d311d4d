//! A broker for tests of a client. It knows one file of one region, says "done" to whatever it is asked, and cuts the file as soon as nobody is in it.

use super::{Client, ClientOptions};
use crate::file::StripedFile;
use crate::packet::{self, Buffer};
use crate::protocol::{Refusal, Reply, Request, RequestCost, ServerInfo};
use crate::server::ObjectName;
use crate::shared::agent_lane::AgentLane;
use crate::shared::control::{ControlBlock, FragmentMode, Life};
use crate::shared::extent::Extent;
use crate::shared::fragments::hints::Hints;
use crate::shared::fragments::table::{FragmentTable, NewLog, log_region};
use crate::shared::processes::Processes;
use crate::shared::slots::Slots;
use crate::state::StateDirectory;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::MemfdFlags;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use stripewise_layout::{FileId, Generation, Layout, RegionIndex, ServerClass, ServerId};

const FILE: FileId = FileId(7);
pub(crate) const STRIPE: u32 = 4096;
/// Of the log, and from which length on requests are not small.
pub(crate) const SLOT: u64 = 1024;
/// For what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct StandIn {
    directory: tempfile::TempDir,
    stub: std::fs::File,
    pub(crate) control: ControlBlock,
    pub(crate) table: FragmentTable,
    pub(crate) hints: Hints,
    pub(crate) slots: Arc<Slots>,
    lanes: Receiver<AgentLane>,
    truncations: Receiver<()>,
}

/// The side that answers.
struct Answering {
    cluster: String,
    servers: Vec<ServerInfo>,
    processes: Processes,
    file: [OwnedFd; 3],
    /// The memory of its logs.
    logs: [OwnedFd; 2],
    slots: Arc<Slots>,
    lanes: Sender<AgentLane>,
    truncations: Sender<()>,
}

fn memory() -> OwnedFd {
    rustix::fs::memfd_create("stand-in", MemfdFlags::CLOEXEC).unwrap()
}

impl StandIn {
    /// The servers have these URLs and are called a, b and so on. The file's region lies on all of them.
    pub(crate) fn start(cluster: &str, urls: &[&str], size_bytes: u64) -> Self {
        Self::start_in(FragmentMode::Off, cluster, urls, size_bytes)
    }

    /// The same with a log of fragments, that of the first server, on the last.
    pub(crate) fn start_with_log(cluster: &str, urls: &[&str], size_bytes: u64) -> Self {
        Self::start_in(FragmentMode::On, cluster, urls, size_bytes)
    }

    fn start_in(mode: FragmentMode, cluster: &str, urls: &[&str], size_bytes: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::make(&directory.path().join("state")).unwrap();
        let listener = state.listen().unwrap();
        let processes = std::fs::File::create_new(directory.path().join("state/run/processes")).unwrap();
        let (block, extent, slots) = (memory(), memory(), memory());
        let control = ControlBlock::build(&block, FILE, [1; 16], 1 << 20).unwrap();
        let layout = Layout::new((0..urls.len()).map(|number| (ServerId(number as u16), STRIPE))).unwrap();
        control.regions().publish(FILE, RegionIndex(0), Generation(1), &layout).unwrap();
        control.set_life(Life::Live);
        control.notices().set_fragments(mode, SLOT as u32);
        Extent::build(&extent, size_bytes, 1).unwrap().reserve(RegionIndex(0)).unwrap();
        let users = Arc::new(Slots::build(&slots).unwrap());
        let (table_memory, hints_memory) = (memory(), memory());
        let log = NewLog { on: ServerId(urls.len() as u16 - 1), generation: Generation(1), slots: 64 };
        let logs: Vec<Option<NewLog>> = (0..urls.len()).map(|number| (number == 0).then_some(log)).collect();
        let table = FragmentTable::build(&table_memory, FILE, [1; 16], SLOT, &logs).unwrap();
        assert_eq!(table.grant(ServerId(0), 64), 64);
        let hints = Hints::build(&hints_memory, urls.len(), &table).unwrap();
        let server = |(url, name): (&&str, char)| ServerInfo {
            name: name.to_string(),
            class: ServerClass::Hdd,
            url: (*url).to_owned(),
            read_cost: RequestCost::usual(ServerClass::Hdd),
        };
        let ((lanes, lanes_made), (truncations, truncations_asked)) = (channel(), channel());
        let answering = Answering {
            cluster: cluster.to_owned(),
            servers: urls.iter().zip('a'..).map(server).collect(),
            processes: Processes::build(processes.into()).unwrap(),
            file: [block, extent, slots],
            logs: [table_memory, hints_memory],
            slots: Arc::clone(&users),
            lanes,
            truncations,
        };
        std::thread::spawn(move || answering.serve(&rustix::net::accept(&listener).unwrap()));
        let stub = tempfile::tempfile_in(directory.path()).unwrap();
        Self { directory, stub, control, table, hints, slots: users, lanes: lanes_made, truncations: truncations_asked }
    }

    /// The object on each server.
    pub(crate) fn object() -> ObjectName {
        ObjectName { file: FILE, region: RegionIndex(0), generation: Generation(1) }
    }

    /// The object with the log.
    pub(crate) fn log() -> ObjectName {
        ObjectName { region: log_region(ServerId(0)), ..Self::object() }
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub(crate) fn client(&self, options: ClientOptions) -> Client {
        Client::connect(&self.state(), options).unwrap()
    }

    pub(crate) fn open(&self, client: &Client) -> Arc<StripedFile> {
        client.open(self.stub.as_fd(), FILE).unwrap()
    }

    /// The agent's end of the lane that the client has made.
    pub(crate) fn lane(&self) -> AgentLane {
        self.lanes.recv_timeout(PATIENCE).expect("the client makes a lane")
    }

    /// Returns when a truncation was asked for.
    pub(crate) fn wait_for_truncation(&self) {
        self.truncations.recv_timeout(PATIENCE).expect("the client asks for a truncation");
    }
}

impl Answering {
    fn serve(&self, socket: &OwnedFd) {
        let mut buffer = Buffer::default();
        while let Ok((request, descriptors)) = packet::receive::<Request>(socket, &mut buffer) {
            let mut sent: Vec<BorrowedFd<'_>> = Vec::new();
            let reply = match request {
                Request::Unanswered(_) => continue,
                Request::Hello { .. } => Reply::Welcome {
                    cluster: self.cluster.clone(),
                    servers: self.servers.clone(),
                    managed: Vec::new(),
                    expected: Vec::new(),
                    min_sizes: Vec::new(),
                    shared: false,
                },
                Request::Processes => {
                    sent.push(self.processes.descriptor());
                    Reply::Processes
                }
                Request::Open { file } => {
                    sent.extend(self.file.iter().map(AsFd::as_fd));
                    Reply::Opened { file, writable: true }
                }
                Request::Fragments { .. } => {
                    sent.extend(self.logs.iter().map(AsFd::as_fd));
                    Reply::Fragments
                }
                Request::Lane => {
                    let _ = self.lanes.send(AgentLane::open(&descriptors[0]).unwrap());
                    Reply::Done
                }
                Request::Truncate { .. } => {
                    let _ = self.truncations.send(());
                    self.truncate()
                }
                _ => Reply::Done,
            };
            if packet::send(socket, &reply, &sent).is_err() {
                return;
            }
        }
    }

    /// As a broker, which has shut the gate before: it does not return while somebody is inside, and gives up in the end.
    fn truncate(&self) -> Reply {
        let begun = Instant::now();
        while !self.slots.uses(RegionIndex(0), RegionIndex(u32::MAX)).is_empty() {
            if begun.elapsed() > PATIENCE {
                return Reply::Refused(Refusal::NotPermitted);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Reply::Done
    }
}
