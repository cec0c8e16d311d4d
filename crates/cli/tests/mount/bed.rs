//! A mounted directory for a test.

use crate::support::Place;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The directory that tests mount, managed, and where.
pub(crate) const DATA: &str = "data";
pub(crate) const POINT: &str = "data.mount";

const PATIENCE: Duration = Duration::from_secs(60);

/// A process that serves a mount. Whatever becomes of the test, the mount is taken away.
pub(crate) struct Mounted {
    child: Child,
    point: PathBuf,
}

/// A cluster with the managed directory [`DATA`]. None, with the reason said, where mounts cannot be had.
pub(crate) fn place() -> Option<Place> {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || std::fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
        eprintln!("SKIPPED: mounting takes root and /dev/fuse");
        return None;
    }
    let place = Place::with_cluster();
    std::fs::create_dir(place.path(DATA)).unwrap();
    place.done(&["manage", DATA]);
    Some(place)
}

impl Mounted {
    /// Mounts [`DATA`] at [`POINT`] with further words for the command.
    pub(crate) fn start(place: &Place, words: &[&str]) -> Self {
        Self::start_at(place, POINT, words)
    }

    /// As [`Self::start`], elsewhere.
    pub(crate) fn start_at(place: &Place, point: &str, words: &[&str]) -> Self {
        let mut command = place.command(&["mount", DATA, "--at", point]);
        command.args(words);
        Self::start_by(command, place.path(point))
    }

    /// By a command of the caller's.
    pub(crate) fn start_by(mut command: Command, point: PathBuf) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("is mounted at"), "{line}");
        Self { child, point }
    }

    /// Whether the kernel is of this version or a later one.
    pub(crate) fn kernel_is(version: (u32, u32)) -> bool {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= version
    }

    /// The process does nothing until what is returned is dropped. Meanwhile no program can be started from here: with its `exec` it closes what it inherited of
    /// files of the mount, and each close is a request.
    pub(crate) fn stop(&self) -> Stopped {
        self.signal(Signal::STOP);
        let stopped = Stopped(Pid::from_child(&self.child));
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let status = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
            status.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        let begun = Instant::now();
        while !std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().all(is_stopped) {
            assert!(begun.elapsed() < PATIENCE, "the process does not stop");
            std::thread::yield_now();
        }
        stopped
    }

    /// What `/proc` says of each thread of the process.
    pub(crate) fn statuses(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok()).collect()
    }

    /// Calls of `read` and its kind that the process has made.
    pub(crate) fn reads(&self) -> u64 {
        let counts = std::fs::read_to_string(format!("/proc/{}/io", self.child.id())).unwrap();
        let line = counts.lines().find_map(|line| line.strip_prefix("syscr: "));
        line.unwrap().parse().unwrap()
    }

    /// Waits until so many requests of programs are under way.
    pub(crate) fn wait_for_requests(&self, count: u32) {
        let own = self.point.as_os_str().to_str().unwrap();
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let words = table.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
        let number = words.filter(|words| words[4] == own).map(|words| words[2].split_once(':').unwrap().1.to_owned());
        let waiting = format!("/sys/fs/fuse/connections/{}/waiting", number.into_iter().next().unwrap());
        let control = Path::new("/sys/fs/fuse/connections");
        if std::fs::read_dir(control).unwrap().next().is_none() {
            rustix::mount::mount("none", control, "fusectl", rustix::mount::MountFlags::empty(), None).unwrap();
        }
        let begun = Instant::now();
        while std::fs::read_to_string(&waiting).unwrap().trim().parse::<u32>().unwrap() < count {
            assert!(begun.elapsed() < PATIENCE, "no request comes");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    /// Has the kernel forget every file of the mount that nobody uses, until the process holds none of them.
    pub(crate) fn forget_all(&self) {
        let holds_any = || {
            let held = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
            let mut paths = held.filter_map(|held| std::fs::read_link(held.unwrap().path()).ok());
            let below = self.point.with_file_name(DATA);
            paths.any(|path| path != below && path.starts_with(&below))
        };
        let begun = Instant::now();
        while holds_any() {
            assert!(begun.elapsed() < PATIENCE, "the kernel does not forget");
            std::fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// SIGTERM; see [`Self::wait`].
    pub(crate) fn ask_to_end(&self) {
        self.signal(Signal::TERM);
    }

    /// Ctrl-C. The command ends well.
    pub(crate) fn interrupt(mut self) {
        self.signal(Signal::INT);
        assert!(self.child.wait().unwrap().success());
    }

    /// The process dies where it is; its mount stays.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
        // The next one, or the test's directory, takes it away.
        self.point = PathBuf::new();
    }

    /// Waits until the process ends by itself.
    pub(crate) fn wait(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

/// A process that was stopped; it goes on when this is dropped.
pub(crate) struct Stopped(Pid);

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have been killed.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.point != Path::new("") {
            let _ = rustix::mount::unmount(&self.point, UnmountFlags::DETACH);
        }
    }
}
