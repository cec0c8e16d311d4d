//! The block device under a server's directory, and what the kernel counts of it.

use super::pacing::Reading;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const SECTOR_BYTES: u64 = 512;

/// How long all directories together are waited for: a mount that does not answer holds up no broker.
const PATIENCE: Duration = Duration::from_secs(1);

/// The devices under directories; `None` of one that does not answer too.
pub(super) fn under_all<'a>(directories: impl Iterator<Item = &'a Path>) -> Vec<Option<BlockDevice>> {
    let (found, answers) = mpsc::channel();
    let mut devices = Vec::new();
    for (number, directory) in directories.enumerate() {
        let (found, directory) = (found.clone(), directory.to_owned());
        let read = move || drop(found.send((number, BlockDevice::under(&directory))));
        // Without a thread it stays unknown, as a device whose thread waits for its mount.
        drop(std::thread::Builder::new().name("stripewise-device".into()).spawn(read));
        devices.push(None);
    }
    drop(found);
    let until = Instant::now() + PATIENCE;
    while let Ok((number, device)) = answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
        devices[number] = device;
    }
    devices
}

/// The statistics of a whole disk: servers on partitions of one are on one device.
#[derive(Debug)]
pub(super) struct BlockDevice {
    /// In `/sys/devices`, which names the device.
    pub(super) path: PathBuf,
    statistics: File,
}

impl BlockDevice {
    /// The device that `directory` lies on; `None`: none that the kernel counts for (memory, network, an overlay, or counting is switched off).
    pub(super) fn under(directory: &Path) -> Option<Self> {
        let device = directory.metadata().ok()?.dev();
        let number = |device: u64| format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let entry = |device: u64| Path::new("/sys/dev/block").join(number(device)).canonicalize().ok();
        // A file system over several devices (btrfs) has a number of its own; its mount names one of them.
        let found = entry(device).or_else(|| entry(mounted_device(&number(device))?))?;
        let path = whole_disk(found);
        let is_counted = std::fs::read_to_string(path.join("queue/iostats")).is_ok_and(|text| text.trim() == "1");
        let statistics = File::open(path.join("stat")).ok().filter(|_| is_counted)?;
        Some(Self { path, statistics })
    }

    /// Of a test, which writes the statistics itself.
    #[cfg(test)]
    pub(super) fn of_statistics(path: &Path) -> Self {
        Self { path: path.to_owned(), statistics: File::open(path).unwrap() }
    }

    /// `None`: the device is gone.
    pub(super) fn reading(&self) -> Option<Reading> {
        let mut text = [0; 512];
        let length = self.statistics.read_at(&mut text, 0).ok()?;
        parse(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// The line of `stat` (Documentation/block/stat.rst): reads, merged, sectors, ms; the same of writes; requests in flight, ms busy, ms queued; and more.
fn parse(text: &str) -> Option<Reading> {
    let numbers: Vec<u64> = text.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
    let [_, _, sectors_read, _, _, _, sectors_written, _, _, busy_ms, ..] = numbers[..] else { return None };
    let bytes = sectors_read.wrapping_add(sectors_written).wrapping_mul(SECTOR_BYTES);
    Some(Reading { busy: Duration::from_millis(busy_ms), bytes })
}

/// From a partition to its disk, and from a mapped device to the only one below it.
fn whole_disk(mut path: PathBuf) -> PathBuf {
    loop {
        if path.join("partition").exists() {
            path.pop();
        }
        let below: Vec<PathBuf> = std::fs::read_dir(path.join("slaves"))
            .map(|entries| entries.filter_map(|entry| entry.ok()?.path().canonicalize().ok()).collect())
            .unwrap_or_default();
        match <[PathBuf; 1]>::try_from(below) {
            Ok([only]) => path = only,
            Err(_) => return path,
        }
    }
}

/// The device number of the source of the mount with this number.
fn mounted_device(number: &str) -> Option<u64> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let source = source_of(&mounts, number)?;
    Path::new(source).metadata().ok().map(|found| found.rdev())
}

/// The source of a mount in `/proc/PID/mountinfo`, if it is a path of a device.
fn source_of<'a>(mounts: &'a str, number: &str) -> Option<&'a str> {
    let of_mount = |line: &'a str| {
        let (mount, file_system) = line.split_once(" - ")?;
        (mount.split(' ').nth(2)? == number).then_some(file_system.split(' ').nth(1)?)
    };
    mounts.lines().find_map(of_mount).filter(|source| source.starts_with("/dev/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_read_and_what_is_none_is_refused() {
        let line = "  216723      837 44236649   147802  1518887   522657 63782428   568860        0   303512   820120        2        0   819202        5   630075   103452\n";
        let expected = Reading { busy: Duration::from_millis(303_512), bytes: (44_236_649 + 63_782_428) * 512 };
        assert_eq!(parse(line), Some(expected));
        assert_eq!((parse(""), parse("1 2 3"), parse("1 2 3 4 5 6 7 8 9 x")), (None, None, None));
    }

    #[test]
    fn the_source_of_a_mount_is_a_device_or_nothing() {
        let mounts =
            "30 1 0:26 / /data rw,relatime shared:1 - btrfs /dev/sdb rw,ssd\n31 1 0:27 / /tmp rw - tmpfs tmpfs rw\n";
        assert_eq!(
            (source_of(mounts, "0:26"), source_of(mounts, "0:27"), source_of(mounts, "8:1")),
            (Some("/dev/sdb"), None, None)
        );
    }

    #[test]
    fn memory_has_no_device() {
        assert!(BlockDevice::under(Path::new("/dev/shm")).is_none());
        assert!(BlockDevice::under(Path::new("/no/such/directory")).is_none());
    }
}
