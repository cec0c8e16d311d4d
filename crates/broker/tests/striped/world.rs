//! A cluster in a temporary directory, its broker in this process or another, and files of any layout.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stripewise_broker::{Broker, BrokerHandle, BrokerOptions, Started};
use stripewise_layout::{ByteCount, Cluster, FileOffset, Layout, Placement, ServerId};
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::file::StripedFile;
use stripewise_store::protocol::{Admin, Request};
use stripewise_store::server::{check_url, directory};
use stripewise_store::state::StateDirectory;
use stripewise_store::stub::{STUB_BYTES, Stub};

pub(crate) struct World {
    pub(crate) root: PathBuf,
    _small_state: Option<SmallState>,
    _keep: Option<tempfile::TempDir>,
}

impl World {
    /// `servers` directories, half of them called disks. In memory where the host has a place for that.
    pub(crate) fn new(servers: usize) -> Self {
        Self::with_urls(servers, |directory| format!("file://{directory}"))
    }

    /// On the disk that builds go to.
    pub(crate) fn on_disk(servers: usize) -> Self {
        let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self::make(keep, servers, "", |directory| format!("file://{directory}"))
    }

    /// As [`Self::new`], and small parts of requests to disks go to SSDs. Emulated, so that disks seek, at a thousandth of their time.
    pub(crate) fn with_fragments(servers: usize) -> Self {
        let keys = "fragments = true\nfragment_threshold = \"1KiB\"\nfragment_room = \"256KiB\"\n";
        Self::make(Self::in_memory(), servers, keys, |directory| {
            format!("emulated://{directory}?device=hdd-7200&time_scale=0.001")
        })
    }

    /// With a file system of its own for the state directory, of 8 MiB. None where this user may not mount.
    pub(crate) fn with_small_state(servers: usize) -> Option<Self> {
        let mut world = Self::new(servers);
        let state = world.root.join("state");
        world._small_state = Some(SmallState::mount(&state)?);
        StateDirectory::make(&state).unwrap();
        Some(world)
    }

    pub(crate) fn has_small_state(&self) -> bool {
        self._small_state.is_some()
    }

    /// To the last block.
    pub(crate) fn fill_state(&self) {
        use std::io::Write;
        let mut file = OpenOptions::new().append(true).create(true).open(self.root.join("state/fill")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    pub(crate) fn empty_state(&self) {
        let _ = std::fs::remove_file(self.root.join("state/fill"));
    }

    pub(crate) fn with_urls(servers: usize, url: impl Fn(&str) -> String) -> Self {
        Self::make(Self::in_memory(), servers, "", url)
    }

    pub(crate) fn in_memory() -> tempfile::TempDir {
        let shm = Path::new("/dev/shm");
        if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap()
    }

    /// `keys`: further ones of the cluster file.
    pub(crate) fn make(keep: tempfile::TempDir, servers: usize, keys: &str, url: impl Fn(&str) -> String) -> Self {
        let root = keep.path().to_owned();
        let mut text = format!("version = 1\nid = \"c0ffee\"\nstate = \"state\"\nregion = \"16KiB\"\n{keys}");
        for number in 0..servers {
            let directory = root.join(format!("s{number}"));
            std::fs::create_dir_all(&directory).unwrap();
            directory::prepare("c0ffee", &format!("s{number}"), &directory).unwrap();
            let class = if number < servers / 2 { "hdd" } else { "ssd" };
            let url = url(directory.to_str().unwrap());
            text += &format!("[[server]]\nname = \"s{number}\"\nclass = \"{class}\"\nurl = \"{url}\"\n");
        }
        StateDirectory::make(&root.join("state")).unwrap();
        std::fs::create_dir_all(root.join("files")).unwrap();
        std::fs::write(root.join("cluster.toml"), text).unwrap();
        Self { root, _small_state: None, _keep: Some(keep) }
    }

    /// The world that another process made.
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), _small_state: None, _keep: None }
    }

    pub(crate) fn cluster(&self) -> Cluster {
        let path = self.root.join("cluster.toml");
        Cluster::load_from(std::fs::File::open(&path).unwrap(), &path, check_url).unwrap()
    }

    pub(crate) fn broker(&self) -> BrokerHandle {
        self.broker_with(BrokerOptions::default())
    }

    pub(crate) fn broker_with(&self, options: BrokerOptions) -> BrokerHandle {
        match Broker::start(&self.cluster(), options).unwrap() {
            Started::Serving(handle) => handle,
            Started::AlreadyRunning { process } => panic!("a broker runs already: {process:?}"),
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(ClientOptions::default())
    }

    pub(crate) fn client_with(&self, options: ClientOptions) -> Client {
        Client::connect(&self.root.join("state"), options).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join("files").join(name)
    }

    /// A new file with this placement. Returns the stub's descriptor too.
    pub(crate) fn create(&self, client: &Client, name: &str, placement: Placement) -> (File, Arc<StripedFile>) {
        let path = self.path(name);
        let text = path.to_str().unwrap().to_owned();
        client.request(&Request::Admin(Admin::Expect { path: text, placement }), &[]).unwrap();
        let temporary = self.path(&format!("{name}.new"));
        let stub = OpenOptions::new().read(true).write(true).create_new(true).open(&temporary).unwrap();
        let file = client.create(&path, stub.as_fd()).unwrap();
        std::fs::rename(&temporary, &path).unwrap();
        client.linked(file.id()).unwrap();
        (stub, file)
    }

    /// A descriptor of the stub by which nobody has it open.
    pub(crate) fn closed(stub: File) -> OwnedFd {
        stripewise_store::nameless::hold(&stub).unwrap()
    }

    pub(crate) fn create_unnamed(&self, client: &Client, placement: Placement) -> (File, Arc<StripedFile>) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        self.create(client, &format!("f{}", NEXT.fetch_add(1, Ordering::Relaxed)), placement)
    }

    pub(crate) fn open(&self, client: &Client, name: &str, write: bool) -> (File, Arc<StripedFile>) {
        let stub = OpenOptions::new().read(true).write(write).open(self.path(name)).unwrap();
        let file = open_stub(client, &stub);
        (stub, file)
    }

    /// Runs `role` of this test executable in a process of its own.
    pub(crate) fn spawn(&self, role: &str, arguments: &[String]) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["role", "--exact", "--nocapture", "--test-threads=1"])
            .env("STRIPED_ROLE", role)
            .env("STRIPED_ROOT", &self.root)
            .env("STRIPED_ARGUMENTS", arguments.join(" "))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap()
    }

    /// Starts a broker in a process of its own and waits until it serves. Its input's end ends it.
    pub(crate) fn spawn_broker(&self) -> Child {
        self.spawn_broker_as("broker")
    }

    /// The same in another role.
    pub(crate) fn spawn_broker_as(&self, role: &str) -> Child {
        let mut child = self.spawn(role, &[]);
        wait_for_line(&mut child, "serving");
        child
    }

    /// Every object file on the servers.
    pub(crate) fn objects(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for server in std::fs::read_dir(&self.root).unwrap().map(|entry| entry.unwrap().path()) {
            let Ok(files) = std::fs::read_dir(server.join("stripewise-objects")) else { continue };
            for file in files {
                found.extend(std::fs::read_dir(file.unwrap().path()).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        found
    }
}

/// A small tmpfs, mounted in a name space of the calling thread and of what it starts.
struct SmallState {
    directory: PathBuf,
}

impl SmallState {
    fn mount(directory: &Path) -> Option<Self> {
        let mount = |arguments: &[&str]| {
            let output = Command::new("mount").args(arguments).arg(directory).output();
            output.is_ok_and(|output| output.status.success())
        };
        // SAFETY: only this thread gets a view of mounts of its own; it shares memory and descriptors as before.
        let unshared = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) };
        let is_private =
            || Command::new("mount").args(["--make-rprivate", "/"]).status().is_ok_and(|done| done.success());
        let mounted = unshared.is_ok() && is_private() && mount(&["-t", "tmpfs", "-o", "size=8m,mode=700", "none"]);
        if !mounted {
            println!("not tried: this user cannot mount a small tmpfs");
        }
        mounted.then(|| Self { directory: directory.to_owned() })
    }
}

impl Drop for SmallState {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.directory).status();
    }
}

pub(crate) fn open_stub(client: &Client, stub: &File) -> Arc<StripedFile> {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; STUB_BYTES];
    stub.read_exact_at(&mut bytes, 0).unwrap();
    let id = Stub::parse(&bytes).unwrap().expect("a stub").file;
    client.open(stub.as_fd(), id).unwrap()
}

pub(crate) fn wait_for_line(child: &mut Child, expected: &str) {
    use std::io::{BufRead, BufReader};
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(expected)), "the child never said {expected}");
}

pub(crate) fn succeed(mut child: Child) {
    drop(child.stdin.take());
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
}

pub(crate) fn uniform(region_bytes: u64, stripes: &[(u16, u32)]) -> Placement {
    let layout = Layout::new(stripes.iter().map(|(server, size)| (ServerId(*server), *size))).unwrap();
    Placement::uniform(ByteCount(region_bytes), layout.clone(), layout)
}

/// One buffer.
pub(crate) fn write(file: &StripedFile, at: u64, bytes: &[u8]) -> usize {
    file.write_at(FileOffset(at), &[IoSlice::new(bytes)]).unwrap()
}

pub(crate) fn read(file: &StripedFile, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xa5; length];
    let read = file.read_at(FileOffset(at), &mut [IoSliceMut::new(&mut bytes)]).unwrap();
    bytes.truncate(read);
    bytes
}

/// A small generator whose seed a failing test prints.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}
