//! Which processes of this host have a file open, mapped or locked, by what `/proc` shows.
//!
//! The descriptors of other users' processes are root's alone to see. Locks in `/proc/locks` are seen of all processes.

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, Stat, StatxFlags};
use std::collections::{HashMap, HashSet};

/// The file that is looked for, as this host's mount has it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Device number of its mount.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Whether `O_PATH` descriptors count, by which the file can be opened again.
    pub counts_paths: bool,
}

/// Who was found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Found {
    /// Each as "NAME (process N)".
    pub holders: Vec<String>,
    /// False: there are processes of other users but root whose descriptors cannot be seen.
    pub is_complete: bool,
}

impl Wanted {
    /// The file that was looked at on this host; every descriptor of it counts.
    #[must_use]
    pub fn of(found: &Stat) -> Self {
        Self { device: found.st_dev, inode: found.st_ino, counts_paths: true }
    }

    /// Processes other than this one that have the file.
    #[must_use]
    pub fn find(&self) -> Found {
        let own = std::process::id();
        let mut found = Found { holders: Vec::new(), is_complete: true };
        let locked = self.lockers();
        for process in processes().filter(|process| *process != own) {
            let is_open = self.is_open_in(process);
            if is_open == Some(true) || locked.contains(&Some(process)) || self.is_mapped_in(process) {
                found.holders.push(named(process));
            }
            found.is_complete &= is_open.is_some() || belongs_to_root(process);
        }
        if locked.contains(&None) && found.holders.is_empty() {
            found.holders.push("a process that has it locked and cannot be seen from here".to_owned());
        }
        found
    }

    /// `None`: its descriptors cannot be seen.
    fn is_open_in(&self, process: u32) -> Option<bool> {
        let descriptors = match std::fs::read_dir(format!("/proc/{process}/fd")) {
            Ok(descriptors) => descriptors,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
            // It has ended.
            Err(_) => return Some(false),
        };
        let is_it = |entry: &std::fs::DirEntry| {
            rustix::fs::stat(entry.path()).is_ok_and(|found| (found.st_dev, found.st_ino) == (self.device, self.inode))
        };
        let counts = |entry: &std::fs::DirEntry| self.counts_paths || !is_path_only(process, &entry.file_name());
        Some(descriptors.flatten().any(|entry| is_it(&entry) && counts(&entry)))
    }

    fn is_mapped_in(&self, process: u32) -> bool {
        let wanted = (self.device_in_proc(), self.inode.to_string());
        mapped_in(process).contains(&wanted)
    }

    /// Processes that have a lock on it; `None`: one that has no number here.
    fn lockers(&self) -> Vec<Option<u32>> {
        let file = format!("{}:{}", self.device_in_proc(), self.inode);
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        let locker = |line: &str| {
            // number: kind state mode process device:inode start end; the process of a lock of an open file is -1
            let words: Vec<&str> = line.split_ascii_whitespace().filter(|word| *word != "->").collect();
            let is_whose = words.get(1).is_some_and(|kind| matches!(*kind, "POSIX" | "FLOCK" | "LEASE"));
            (is_whose && words.get(5) == Some(&file.as_str()))
                .then(|| words[4].parse().ok().filter(|process| *process != 0))
        };
        locks.lines().filter_map(locker).collect()
    }

    fn device_in_proc(&self) -> String {
        device_in_proc(self.device)
    }

    /// Who holds a lease on the file, if the kernel says. To be asked before the file is opened, which would make the holder give it up: of two `apply` the
    /// first shall go on.
    #[must_use]
    pub fn holder_of_lease(&self) -> Option<String> {
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        let file = format!("{}:{}", self.device_in_proc(), self.inode);
        locks.lines().find_map(|line| {
            // number: LEASE state kind process device:inode start end
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let is_it = words.get(1) == Some(&"LEASE") && words.get(5) == Some(&file.as_str());
            is_it.then(|| words[4].parse().map_or_else(|_| format!("process {}", words[4]), named))
        })
    }
}

/// Processes other than this one that have anything of the mount with this device number open, mapped, or as their working or root directory.
#[must_use]
pub fn users_of_mount(device: u64) -> Found {
    let in_proc = device_in_proc(device);
    let is_there = |path: &std::path::Path| {
        let (flags, mask) = (AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE);
        let found = rustix::fs::statx(rustix::fs::CWD, path, flags, mask);
        found.is_ok_and(|found| rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor) == device)
    };
    let mut found = Found { holders: Vec::new(), is_complete: true };
    for process in processes().filter(|process| *process != std::process::id()) {
        let of_process = std::path::PathBuf::from(format!("/proc/{process}"));
        let descriptors = std::fs::read_dir(of_process.join("fd"));
        let is_hidden = descriptors.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
        let is_open = descriptors.into_iter().flatten().flatten().any(|entry| is_there(&entry.path()));
        let is_used = is_open || ["cwd", "root"].iter().any(|name| is_there(&of_process.join(name)));
        if is_used || mapped_in(process).iter().any(|(mapped, _)| *mapped == in_proc) {
            found.holders.push(named(process));
        }
        found.is_complete &= !is_hidden || belongs_to_root(process);
    }
    found
}

/// A device number as `/proc` writes it.
fn device_in_proc(device: u64) -> String {
    format!("{:02x}:{:02x}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// Device and inode of what a process has mapped, as `/proc` writes them.
fn mapped_in(process: u32) -> Vec<(String, String)> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let mapped = |line: &str| {
        // start-end mode offset device inode path
        let mut words = line.split_ascii_whitespace().skip(3).map(str::to_owned);
        Some((words.next()?, words.next()?))
    };
    maps.lines().filter_map(mapped).collect()
}

/// The numbers of this host's processes.
fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
}

/// Of the inodes, each given as device and number, those that a process has open for I/O, with a descriptor of each (`O_PATH`). Those that only processes of
/// other users have open are seen by root alone.
#[must_use]
pub fn hold_open(inodes: &HashSet<(u64, u64)>) -> HashMap<(u64, u64), OwnedFd> {
    let mut held = HashMap::new();
    for process in processes().filter(|process| *process != std::process::id()) {
        for descriptor in std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten() {
            let inode = |found: Stat| (found.st_dev, found.st_ino);
            let is_wanted = rustix::fs::stat(descriptor.path()).is_ok_and(|found| inodes.contains(&inode(found)));
            if !is_wanted || is_path_only(process, &descriptor.file_name()) {
                continue;
            }
            // Closed meanwhile, the number may lead to another file.
            if let Ok(opened) = rustix::fs::open(descriptor.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                && let Ok(found) = rustix::fs::fstat(&opened).map(inode)
                && inodes.contains(&found)
            {
                held.insert(found, opened);
            }
        }
    }
    held
}

fn named(process: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    format!("{} (process {process})", name.trim())
}

fn is_path_only(process: u32, descriptor: &std::ffi::OsStr) -> bool {
    let information =
        std::fs::read_to_string(format!("/proc/{process}/fdinfo/{}", descriptor.to_string_lossy())).unwrap_or_default();
    let flags = information.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_PATH != 0)
}

/// True as well of a process that has ended.
fn belongs_to_root(process: u32) -> bool {
    rustix::fs::stat(format!("/proc/{process}")).is_ok_and(|found| found.st_uid == 0)
        || !std::path::Path::new(&format!("/proc/{process}")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    /// A process that does something to the file and then waits until it is dropped.
    struct Other(Child);

    impl Other {
        fn start(program: &str, path: &std::path::Path) -> Self {
            let wait = "print(flush=True); sys.stdin.read()";
            let mut child = Command::new("/usr/bin/python3")
                .args(["-c", &format!("import fcntl, mmap, os, sys\n{program}\n{wait}")])
                .arg(path)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
            Self(child)
        }
    }

    impl Drop for Other {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_process_is_found_that_has_the_file_open_mapped_or_by_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, b"x").unwrap();
        let wanted = Wanted::of(&rustix::fs::stat(&path).unwrap());
        // This process does not count.
        let _own = std::fs::File::open(&path).unwrap();
        // A child that another test is just starting has all that this process has open until its `exec`.
        let begun = std::time::Instant::now();
        while !wanted.find().holders.is_empty() {
            assert!(begun.elapsed().as_secs() < 20, "{:?}", wanted.find().holders);
        }
        let programs = [
            "held = open(sys.argv[1], 'r+b')",
            "f = open(sys.argv[1], 'r+b'); held = mmap.mmap(f.fileno(), 1); f.close()",
            "held = open(sys.argv[1], 'r+b'); fcntl.lockf(held, fcntl.LOCK_EX)",
            "held = os.open(sys.argv[1], os.O_PATH)",
        ];
        for program in programs {
            let other = Other::start(program, &path);
            let holders = wanted.find().holders;
            assert!(
                holders.len() == 1 && holders[0].contains(&format!("process {}", other.0.id())),
                "{program}: {holders:?}"
            );
            let without_paths = Wanted { counts_paths: false, ..wanted }.find().holders;
            assert_eq!(without_paths.is_empty(), program.contains("O_PATH"), "{program}: {without_paths:?}");
        }
        assert_eq!(wanted.find().holders, Vec::<String>::new());
    }
}
