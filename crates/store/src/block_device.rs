//! Block devices under directories, as `/sys/dev/block` lists them.
//!
//! A file system lies on a device, a partition on its disk, a volume or an array on its members, a loop device on a file.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A device that is no partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockDevice {
    path: PathBuf,
    number: String,
}

impl BlockDevice {
    /// The device that `directory` lies on, and of a partition its disk. `None`: it cannot be reached, or its file system has no block device
    /// (memory, network, an overlay).
    #[must_use]
    pub fn under(directory: &Path) -> Option<Self> {
        let number = number_text(directory.metadata().ok()?.dev());
        // A file system over several devices (btrfs) has a number of its own; its mount names one of them.
        Self::numbered(&number).or_else(|| Self::numbered(&mounted_device(directory, &number)?))
    }

    /// Its directory below `/sys/devices`, where the kernel keeps what it knows of the device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `major:minor`
    #[must_use]
    pub fn number(&self) -> &str {
        &self.number
    }

    /// The devices that a volume or an array consists of; none of a disk or a loop device.
    #[must_use]
    pub fn members(&self) -> Vec<Self> {
        let slaves = std::fs::read_dir(self.path.join("slaves")).into_iter().flatten().flatten();
        slaves.filter_map(|slave| Self::at(slave.path())).collect()
    }

    /// The file whose contents a loop device shows.
    #[must_use]
    pub fn backing_file(&self) -> Option<PathBuf> {
        let text = std::fs::read_to_string(self.path.join("loop/backing_file")).ok()?;
        Some(PathBuf::from(text.trim_end()))
    }

    fn numbered(number: &str) -> Option<Self> {
        Self::at(Path::new("/sys/dev/block").join(number))
    }

    fn at(link: PathBuf) -> Option<Self> {
        let mut path = link.canonicalize().ok()?;
        // A partition's directory stands in that of its disk.
        if path.join("partition").exists() {
            path.pop();
        }
        let number = std::fs::read_to_string(path.join("dev")).ok()?.trim().to_owned();
        Some(Self { path, number })
    }
}

/// `major:minor` of a device number.
#[must_use]
pub fn number_text(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// The number of the device that is the source of the mount where `directory` lies, whose file system has this number.
fn mounted_device(directory: &Path, number: &str) -> Option<String> {
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    let source = source_of(&String::from_utf8_lossy(&mounts), &directory.canonicalize().ok()?, number)?;
    Some(number_text(Path::new(&source).metadata().ok()?.rdev()))
}

/// A line of `/proc/PID/mountinfo`.
struct Mount<'a> {
    number: &'a str,
    point: PathBuf,
    file_system: &'a str,
    source: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, of) = line.split_once(" - ")?;
        let (mut mount, mut of) = (mount.split(' '), of.split(' '));
        let (number, point) = (mount.nth(2)?, mount.nth(1)?);
        let plain = [(r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", r"\")];
        let point = plain.iter().fold(point.to_owned(), |point, (escape, plain)| point.replace(escape, plain));
        Some(Self { number, point: point.into(), file_system: of.next()?, source: of.next()? })
    }
}

/// The source of the mount with this number, if it is a path of a device. A subvolume of btrfs has a number that no mount has: its source is that of the
/// mount it lies in.
fn source_of(mounts: &str, directory: &Path, number: &str) -> Option<String> {
    let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
    let around = || {
        // Of several at one point, the last one lies on top.
        let innermost = mounts.iter().filter(|mount| directory.starts_with(&mount.point));
        innermost.max_by_key(|mount| mount.point.components().count()).filter(|mount| mount.file_system == "btrfs")
    };
    let found = mounts.iter().find(|mount| mount.number == number).or_else(around)?;
    Some(found.source.to_owned()).filter(|source| source.starts_with("/dev/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn partitions_volumes_and_images_lead_to_what_is_below_them() {
        let root = tempfile::tempdir().unwrap();
        let add = |number: &str, at: &str, below: &[&str]| {
            let path = root.path().join(at);
            std::fs::create_dir_all(path.join("slaves")).unwrap();
            std::fs::write(path.join("dev"), format!("{number}\n")).unwrap();
            for lower in below {
                symlink(root.path().join(lower), path.join("slaves").join(lower.replace('/', "-"))).unwrap();
            }
        };
        add("8:0", "sda", &[]);
        add("8:1", "sda/sda1", &[]);
        std::fs::write(root.path().join("sda/sda1/partition"), "1\n").unwrap();
        add("8:16", "sdb", &[]);
        add("253:0", "dm-0", &["sda/sda1", "sdb"]);
        add("7:0", "loop0", &[]);
        std::fs::create_dir(root.path().join("loop0/loop")).unwrap();
        std::fs::write(root.path().join("loop0/loop/backing_file"), "/images/a disk\n").unwrap();

        let device = |at: &str| BlockDevice::at(root.path().join(at)).unwrap();
        let numbers = |devices: Vec<BlockDevice>| {
            let mut numbers: Vec<String> = devices.iter().map(|device| device.number().to_owned()).collect();
            numbers.sort();
            numbers
        };
        assert_eq!(device("sda/sda1"), device("sda"));
        assert_eq!(numbers(device("dm-0").members()), ["8:0", "8:16"]);
        assert_eq!((numbers(device("sdb").members()), device("sdb").backing_file()), (vec![], None));
        assert_eq!(device("loop0").backing_file(), Some(PathBuf::from("/images/a disk")));
        assert_eq!(BlockDevice::at(root.path().join("sdc")), None);
    }

    #[test]
    fn the_source_of_a_mount_is_a_device_or_nothing() {
        let mounts =
            "30 1 0:26 / /data rw,relatime shared:1 - btrfs /dev/sdb rw,ssd\n31 1 0:27 / /tmp rw - tmpfs tmpfs rw\n";
        let source = |number| source_of(mounts, Path::new("/elsewhere"), number);
        assert_eq!((source("0:26"), source("0:27"), source("8:1")), (Some("/dev/sdb".to_owned()), None, None));
    }

    #[test]
    fn a_subvolume_lies_on_the_device_of_the_mount_around_it() {
        let mounts = "\
            20 1 0:20 /root / rw - btrfs /dev/sda2 rw,subvol=/root\n\
            21 20 0:21 / /run rw - tmpfs tmpfs rw\n\
            30 20 0:26 / /data rw shared:1 - ext4 /dev/sdd rw\n\
            31 20 0:26 / /data rw shared:1 - btrfs /dev/sdb rw,ssd\n\
            32 31 0:27 / /data/a\\040b rw - btrfs /dev/mapper/c rw\n\
            33 31 0:28 / /data/nfs rw - nfs server:/data rw\n";
        let source = |directory| source_of(mounts, Path::new(directory), "0:99");
        for (directory, device) in [
            ("/home/s0", Some("/dev/sda2")),
            ("/data", Some("/dev/sdb")),
            ("/data/s1/deep", Some("/dev/sdb")),
            ("/database", Some("/dev/sda2")),
            ("/data/a b/s2", Some("/dev/mapper/c")),
            ("/data/nfs/s3", None),
            ("/run/s4", None),
        ] {
            assert_eq!(source(directory).as_deref(), device, "{directory}");
        }
    }

    #[test]
    fn memory_has_no_device() {
        assert_eq!(BlockDevice::under(Path::new("/dev/shm")), None);
        assert_eq!(BlockDevice::under(Path::new("/no/such/directory")), None);
    }
}
