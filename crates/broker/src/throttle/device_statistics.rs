//! What the kernel counts of the block device under a server's directory.

use super::pacing::Reading;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use stripewise_store::block_device::BlockDevice;

const SECTOR_BYTES: u64 = 512;

/// How long all directories together are waited for: a mount that does not answer holds up no broker.
const PATIENCE: Duration = Duration::from_secs(1);

/// The devices under directories; `None` of one that does not answer too.
pub(super) fn under_all<'a>(directories: impl Iterator<Item = &'a Path>) -> Vec<Option<DeviceStatistics>> {
    let (found, answers) = mpsc::channel();
    let mut devices = Vec::new();
    for (number, directory) in directories.enumerate() {
        let (found, directory) = (found.clone(), directory.to_owned());
        let read = move || drop(found.send((number, DeviceStatistics::under(&directory))));
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

/// What the kernel counts of a whole disk: servers on partitions of one are on one device.
#[derive(Debug)]
pub(super) struct DeviceStatistics {
    /// In `/sys/devices`, which names the device.
    pub(super) path: PathBuf,
    statistics: File,
}

impl DeviceStatistics {
    /// Of the device that `directory` lies on; `None`: none that the kernel counts for (memory, network, an overlay, or counting is switched off).
    pub(super) fn under(directory: &Path) -> Option<Self> {
        let path = only_device(BlockDevice::under(directory)?).path().to_owned();
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

/// From a mapped device to the only one below it.
fn only_device(mut device: BlockDevice) -> BlockDevice {
    while let Ok([only]) = <[BlockDevice; 1]>::try_from(device.members()) {
        device = only;
    }
    device
}

/// The line of `stat` (Documentation/block/stat.rst): reads, merged, sectors, ms; the same of writes; requests in flight, ms busy, ms queued; and more.
fn parse(text: &str) -> Option<Reading> {
    let numbers: Vec<u64> = text.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
    let [_, _, sectors_read, _, _, _, sectors_written, _, _, busy_ms, ..] = numbers[..] else { return None };
    let bytes = sectors_read.wrapping_add(sectors_written).wrapping_mul(SECTOR_BYTES);
    Some(Reading { busy: Duration::from_millis(busy_ms), bytes })
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
    fn memory_has_no_device() {
        assert!(DeviceStatistics::under(Path::new("/dev/shm")).is_none());
        assert!(DeviceStatistics::under(Path::new("/no/such/directory")).is_none());
    }
}
