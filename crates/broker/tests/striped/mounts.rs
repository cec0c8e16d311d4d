//! Small file systems for servers and the state directory, on loop devices and in memory, which a test unmounts, makes read-only and fills.
//!
//! They are seen by the test's thread and what it starts only, and go with them. Each is mounted below `kept`, where it stays, and
//! a directory of it where it is used.

use crate::world::World;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const IMAGE_BYTES: u64 = 16 << 20;
/// The least that mkfs.xfs makes; all but a little is taken away, see [`take_space`].
const XFS_BYTES: u64 = 320 << 20;
const LEFT_BYTES: u64 = 6 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Ext4,
    Xfs,
    Memory,
}

/// To be dropped before its world, whose directories cannot be removed below mounts.
pub(crate) struct Mounts {
    root: PathBuf,
    names: Vec<String>,
}

fn run(words: &[&str]) -> Result<(), String> {
    output(words).map(drop)
}

fn output(words: &[&str]) -> Result<String, String> {
    let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", words[0]))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(format!("{}: {said}", words.join(" ")))
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Takes space in ever smaller pieces until less than `left` bytes are free.
fn take_space(file: &Path, directory: &Path, left: u64) {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
    let mut piece = 64 << 20;
    while piece >= 4096 {
        let found = rustix::fs::statvfs(directory).unwrap();
        let end = file.metadata().unwrap().len();
        let fits = found.f_bavail * found.f_frsize >= left + piece;
        if !fits || rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), end, piece).is_err() {
            piece /= 4;
        }
    }
}

impl Mounts {
    /// A world of which `names` (servers, `state`) lie on file systems of these kinds. None, with the reason said, where they cannot be had.
    pub(crate) fn world(servers: usize, kinds: &[(&str, Kind)]) -> Option<(World, Self)> {
        let keep = World::in_memory();
        let names = kinds.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mounts = Self { root: keep.path().to_owned(), names };
        let mounted = mounts.mount_all(kinds);
        mounted.inspect_err(|why| println!("not tried: small file systems cannot be had: {why}")).ok()?;
        let world = World::make(keep, servers, "", |directory| format!("file://{directory}"));
        Some((world, mounts))
    }

    fn mount_all(&self, kinds: &[(&str, Kind)]) -> Result<(), String> {
        // SAFETY: only this thread gets a view of mounts of its own; it shares memory and descriptors as before.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
            .map_err(|errno| errno.to_string())?;
        run(&["mount", "--make-rprivate", "/"])?;
        kinds.iter().try_for_each(|(name, kind)| self.mount(name, *kind))
    }

    fn mount(&self, name: &str, kind: Kind) -> Result<(), String> {
        let (kept, used, image) = (self.kept(name), self.root.join(name), self.root.join(format!("{name}.image")));
        for directory in [&kept, &used] {
            std::fs::create_dir_all(directory).unwrap();
        }
        let bytes = if kind == Kind::Xfs { XFS_BYTES } else { IMAGE_BYTES };
        if kind != Kind::Memory {
            std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        }
        match kind {
            Kind::Ext4 => run(&["mkfs.ext4", "-q", "-F", "-m", "0", text(&image)])?,
            Kind::Xfs => run(&["mkfs.xfs", "-q", text(&image)])?,
            Kind::Memory => {}
        }
        match kind {
            Kind::Memory => run(&["mount", "-t", "tmpfs", "-o", &format!("size={IMAGE_BYTES}"), "none", text(&kept)])?,
            _ => run(&["mount", "-o", "loop", text(&image), text(&kept)])?,
        }
        take_space(&kept.join("ballast"), &kept, LEFT_BYTES);
        std::fs::create_dir(kept.join("shown")).unwrap();
        self.come_back(name);
        Ok(())
    }

    fn kept(&self, name: &str) -> PathBuf {
        self.root.join("kept").join(name)
    }

    /// As `umount -l`: an empty directory is left at the path, and descriptors go on.
    pub(crate) fn go_away(&self, name: &str) {
        run(&["umount", "-l", text(&self.root.join(name))]).unwrap();
    }

    pub(crate) fn come_back(&self, name: &str) {
        let used = self.root.join(name);
        let found = std::fs::read_dir(&used).unwrap().count();
        assert_eq!(found, 0, "nothing is written where {name} is not mounted");
        run(&["mount", "--bind", text(&self.kept(name).join("shown")), text(&used)]).unwrap();
    }

    /// Nobody may have a file open there. What was written to the device is left, and not what its file system still had in memory. An error:
    /// the file system cannot come back with the same device number.
    pub(crate) fn lose_power(&self, name: &str) -> Result<(), String> {
        let (kept, used, image) = (self.kept(name), self.root.join(name), self.root.join(format!("{name}.image")));
        let device = output(&["findmnt", "-n", "-o", "SOURCE", text(&kept)])?;
        let durable = image.with_extension("durable");
        std::fs::copy(&image, &durable).unwrap();
        run(&["umount", text(&used)])?;
        run(&["umount", text(&kept)])?;
        std::fs::copy(&durable, &image).unwrap();
        run(&["losetup", &device, text(&image)])?;
        let mounted = run(&["mount", &device, text(&kept)]);
        // It goes with the mount.
        run(&["losetup", "-d", &device])?;
        mounted?;
        self.come_back(name);
        Ok(())
    }

    /// Nobody may have a file open there for writing.
    pub(crate) fn make_read_only(&self, name: &str) {
        run(&["mount", "-o", "remount,ro", text(&self.kept(name))]).unwrap();
    }

    pub(crate) fn make_writable(&self, name: &str) {
        run(&["mount", "-o", "remount,rw", text(&self.kept(name))]).unwrap();
    }

    /// To the last block.
    pub(crate) fn fill(&self, name: &str) {
        take_space(&self.kept(name).join("fill"), &self.kept(name), 0);
    }

    /// What was taken away at first.
    pub(crate) fn give_space(&self, name: &str) {
        std::fs::remove_file(self.kept(name).join("ballast")).unwrap();
    }

    pub(crate) fn empty(&self, name: &str) {
        std::fs::remove_file(self.kept(name).join("fill")).unwrap();
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for name in &self.names {
            // One that was never mounted, or is away.
            for directory in [self.root.join(name), self.kept(name)] {
                let _ = run(&["umount", "-l", text(&directory)]);
            }
        }
    }
}
