//! A small cluster in a temporary directory, and a client that speaks the bare protocol.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::fs::File;
use std::path::{Path, PathBuf};
use stripewise_broker::{Broker, BrokerHandle, BrokerOptions, Started};
use stripewise_layout::{
    ByteCount, Cluster, FileId, Layout, Placement, RegionIndex, Server, ServerClass, ServerId, ServerUrl,
};
use stripewise_store::descriptors::default_base;
use stripewise_store::packet;
use stripewise_store::protocol::{Admin, NameCall, PROTOCOL_VERSION, Refusal, Reply, Request};
use stripewise_store::server::directory;
use stripewise_store::shared::control::{ControlBlock, RegionState};
use stripewise_store::shared::extent::Extent;
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};
use stripewise_store::shared::processes::Processes;
use stripewise_store::shared::slots::Slots;
use stripewise_store::state;
use stripewise_store::state::{HostIdentity, StateDirectory};

pub const REGION: u64 = 64 << 10;
pub const STRIPE: u32 = 4096;

/// Two HServers, then two SServers.
pub struct Testbed {
    /// Removed with the testbed, unless another process made it.
    directory: Option<tempfile::TempDir>,
    root: PathBuf,
    pub cluster: Cluster,
}

/// The boot of the host that a broker starts in, by its number.
pub fn on_boot(number: u8) -> BrokerOptions {
    BrokerOptions {
        host: Some(HostIdentity { machine: "m".into(), name: "alpha".into(), boot: [number; 16] }),
        ..BrokerOptions::default()
    }
}

impl Testbed {
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let root = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let server = |name: &str, class| {
            let directory = root.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            let url = ServerUrl::new("file", directory);
            Server::new(name, class, url)
        };
        let servers = vec![
            server("hdd0", ServerClass::Hdd),
            server("hdd1", ServerClass::Hdd),
            server("ssd0", ServerClass::Ssd),
            server("ssd1", ServerClass::Ssd),
        ];
        let cluster = Cluster::new("c0ffee", root.path().join("state"), ByteCount(REGION), servers);
        for server in &cluster.servers {
            directory::prepare(&cluster.id, &server.name, server.url.directory()).unwrap();
        }
        StateDirectory::make(&cluster.state).unwrap();
        std::fs::create_dir(root.path().join("data")).unwrap();
        std::fs::write(root.path().join("cluster.toml"), cluster.to_toml()).unwrap();
        Self { root: root.path().to_owned(), directory: Some(root), cluster }
    }

    /// Small parts of requests to each HServer have so many slots of 4 KiB.
    pub fn with_fragments(slots: u64) -> Self {
        let mut testbed = Self::new();
        testbed.cluster.fragments = true;
        testbed.cluster.fragment_threshold = Some(ByteCount(1024));
        testbed.cluster.fragment_room = Some(ByteCount(slots * 4096));
        std::fs::write(testbed.root.join("cluster.toml"), testbed.cluster.to_toml()).unwrap();
        testbed
    }

    /// The testbed that another process made.
    pub fn at(root: &Path) -> Self {
        let cluster = Cluster::load(&root.join("cluster.toml")).unwrap();
        Self { root: root.to_owned(), directory: None, cluster }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn data(&self, name: &str) -> PathBuf {
        self.root.join("data").join(name)
    }

    pub fn server_directory(&self, server: usize) -> &Path {
        self.cluster.servers[server].url.directory()
    }

    pub fn start(&self) -> BrokerHandle {
        self.start_with(BrokerOptions::default())
    }

    pub fn start_with(&self, options: BrokerOptions) -> BrokerHandle {
        match Broker::start(&self.cluster, options).unwrap() {
            Started::Serving(handle) => handle,
            Started::AlreadyRunning { process } => panic!("a broker runs already: {process:?}"),
        }
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.cluster.state)
    }

    /// Over all servers, HServers only where that does not fit.
    pub fn placement(&self) -> Placement {
        Self::placement_of()
    }

    pub fn placement_of() -> Placement {
        let all = Layout::new((0..4).map(|server| (ServerId(server), STRIPE))).unwrap();
        let fallback = Layout::new((0..2).map(|server| (ServerId(server), STRIPE))).unwrap();
        Placement::uniform(ByteCount(REGION), all, fallback)
    }

    pub fn manage_data(&self) {
        let directory = self.root.join("data").to_str().unwrap().to_owned();
        let admin = Admin::Manage { directory, placement: self.placement(), min_bytes: None };
        assert_eq!(self.client().ask(Request::Admin(admin)), Ok(Reply::Done));
    }

    /// Objects of a file on each server: (region, generation, bytes), in order.
    pub fn objects(&self, file: FileId) -> Vec<Vec<(u32, u32, u64)>> {
        let on = |server: &Server| {
            let directory = server.url.directory().join("stripewise-objects").join(file.to_string());
            let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
            let mut found: Vec<_> = entries
                .filter_map(|entry| {
                    let entry = entry.unwrap();
                    let name = entry.file_name().into_string().unwrap();
                    let (region, generation) = name.split_once('.').unwrap();
                    // One that is just being removed has none any more.
                    let length = entry.metadata().ok()?.len();
                    Some((region.parse().unwrap(), generation.parse().unwrap(), length))
                })
                .collect();
            found.sort_unstable();
            found
        };
        self.cluster.servers.iter().map(on).collect()
    }

    pub fn object_count(&self, file: FileId) -> usize {
        self.objects(file).iter().map(Vec::len).sum()
    }
}

/// A connection with its process slot.
pub struct Client {
    pub socket: OwnedFd,
    pub processes: Option<Processes>,
    pub claim: Option<(ProcessSlot, Incarnation)>,
    pub welcome: Reply,
}

/// An open file.
pub struct Opened {
    pub file: FileId,
    pub writable: bool,
    pub control: ControlBlock,
    pub extent: Extent,
    pub slots: Slots,
}

impl Client {
    pub fn connect(state: &Path) -> Self {
        let socket = state::connect(state).unwrap();
        packet::send(&socket, &Request::Hello { version: PROTOCOL_VERSION }, &[]).unwrap();
        let (welcome, _) = packet::receive::<Reply>(&socket, &mut Default::default()).unwrap();
        packet::send(&socket, &Request::Processes, &[]).unwrap();
        let (_, mut descriptors) = packet::receive::<Reply>(&socket, &mut Default::default()).unwrap();
        let processes = Some(Processes::receive(descriptors.remove(0), default_base()).unwrap());
        Self { socket, processes, claim: None, welcome }
    }

    pub fn ask(&self, request: Request) -> Result<Reply, Refusal> {
        self.ask_with(request, &[]).map(|(reply, _)| reply)
    }

    pub fn ask_with(&self, request: Request, along: &[BorrowedFd<'_>]) -> Result<(Reply, Vec<OwnedFd>), Refusal> {
        packet::send(&self.socket, &request, along).unwrap();
        match packet::receive::<Reply>(&self.socket, &mut Default::default()).unwrap() {
            (Reply::Refused(refusal), _) => Err(refusal),
            answered => Ok(answered),
        }
    }

    /// Takes a process slot and says so.
    pub fn claim(&mut self) -> (ProcessSlot, Incarnation) {
        let (slot, incarnation) = self.processes.as_ref().unwrap().claim().unwrap();
        self.ask(Request::Claimed { slot: slot.0, incarnation: incarnation.0 }).unwrap();
        self.claim = Some((slot, incarnation));
        (slot, incarnation)
    }

    fn opened(reply: Reply, descriptors: Vec<OwnedFd>) -> Opened {
        let Reply::Opened { file, writable } = reply else { panic!("{reply:?}") };
        let [control, extent, slots] = <[OwnedFd; 3]>::try_from(descriptors).unwrap();
        Opened {
            file,
            writable,
            control: ControlBlock::open(&control, file, false).unwrap(),
            extent: Extent::open(&extent, writable).unwrap(),
            slots: Slots::open(&slots).unwrap(),
        }
    }

    pub fn open(&self, file: FileId, stub: impl AsFd) -> Result<Opened, Refusal> {
        self.ask_with(Request::Open { file }, &[stub.as_fd()]).map(|(reply, along)| Self::opened(reply, along))
    }

    /// Makes a managed file at `path`, as a program's `open(O_CREAT)` would.
    pub fn create(&self, path: &Path) -> Result<(Opened, File), Refusal> {
        let stub = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
        let request = Request::Create { path: path.to_str().unwrap().to_owned() };
        let (reply, along) = self.ask_with(request, &[stub.as_fd()])?;
        let opened = Self::opened(reply, along);
        self.ask(Request::Linked { file: opened.file })?;
        Ok((opened, stub))
    }

    /// Says that the stub at `path` is about to be removed; the number of the change.
    pub fn begin_removal(&self, path: &Path, file: FileId, stub: impl AsFd) -> Result<u64, Refusal> {
        let number = rand_number();
        let directory = File::open(path.parent().unwrap()).unwrap();
        let target = path.file_name().unwrap().to_str().unwrap().into();
        let call = NameCall::Remove;
        let request = Request::BeginNameChange { number, call, source: None, target, victim: Some(file), mover: None };
        self.ask_with(request, &[directory.as_fd(), stub.as_fd()]).map(|_| number)
    }

    pub fn end_name_change(&self, number: u64, done: bool) -> Result<Reply, Refusal> {
        self.ask(Request::EndNameChange { number, done })
    }

    /// Removes a managed file, as a redirected program's `unlink` would.
    pub fn remove(&self, path: &Path, file: FileId, stub: impl AsFd) -> Result<Reply, Refusal> {
        let number = self.begin_removal(path, file, stub)?;
        std::fs::remove_file(path).unwrap();
        self.end_name_change(number, true)
    }

    pub fn place(&self, file: FileId, first: u32, last: u32) -> Result<Reply, Refusal> {
        self.ask(Request::Place { file, first: RegionIndex(first), last: RegionIndex(last) })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // As the end of a process would.
        if let (Some(processes), Some((slot, _))) = (&self.processes, self.claim) {
            processes.release(slot);
        }
        // Also for a child that another test is just starting, which has a copy of it until then.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

impl Opened {
    pub fn generation(&self, region: u32) -> Option<u32> {
        match self.control.regions().get(RegionIndex(region)) {
            RegionState::Placed { generation, .. } => Some(generation.0),
            RegionState::Absent => None,
        }
    }
}

pub fn rand_number() -> u64 {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).unwrap();
    u64::from_ne_bytes(bytes)
}
