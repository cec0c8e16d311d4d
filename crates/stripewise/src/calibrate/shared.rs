//! Servers that share something: one device, or what lies before it.
//!
//! Device numbers tell of partitions of one disk, of images on one file system and of directories side by side: the
//! kernel lists below what each block device lies. What they cannot tell (two volumes of one array, two mounts over one
//! link) shows under load: servers are read at once, and those that reach clearly less than each alone are read in pairs.

use super::error::Result;
use super::measure::{LARGEST_BYTES, Subject};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use stripewise_layout::Direction;
use stripewise_model::Caveat;
use stripewise_store::block_device::{BlockDevice, number_text};

/// Servers that reach this much of the sum of their rates share nothing that counts.
const CONTENDED_BELOW: f64 = 0.7;

/// How long servers are read at once.
const LOAD_TIME: Duration = Duration::from_millis(300);

/// More servers are not tried in pairs: 28 pairs take 8 s.
const MAX_IN_PAIRS: usize = 8;

/// Block devices nest: a file system on a loop device on a file system on a volume on a disk, and no deeper by far.
const MAX_DEPTH: usize = 8;

/// Numbers `major:minor` of the devices at the bottom of where `directory` lies. A file system without a block device,
/// such as tmpfs or NFS, stands for itself.
pub(super) fn devices(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if let Ok(stat) = rustix::fs::stat(directory) {
        bottom_of(directory, stat.st_dev, MAX_DEPTH, &mut found);
    }
    found
}

/// Descends from where `path` lies; `device` is its file system's number.
fn bottom_of(path: &Path, device: u64, depth: usize, found: &mut BTreeSet<String>) {
    match BlockDevice::under(path) {
        Some(block) => bottom(&block, depth, found),
        None => drop(found.insert(number_text(device))),
    }
}

fn bottom(device: &BlockDevice, depth: usize, found: &mut BTreeSet<String>) {
    let lower = if depth == 0 { Vec::new() } else { device.members() };
    for member in &lower {
        bottom(member, depth - 1, found);
    }
    // A loop device lies on a file's file system.
    let backing = device.backing_file().filter(|_| depth > 0);
    match backing.and_then(|path| Some((rustix::fs::stat(&path).ok()?.st_dev, path))) {
        Some((number, path)) => bottom_of(&path, number, depth - 1, found),
        None if lower.is_empty() => drop(found.insert(device.number().to_owned())),
        None => {}
    }
}

/// Servers, by name, that lie on one device. `devices` in the same order.
pub(super) fn on_one_device(names: &[&str], devices: &[BTreeSet<String>]) -> Vec<Caveat> {
    let all: BTreeSet<&String> = devices.iter().flatten().collect();
    let mut caveats: Vec<Caveat> = Vec::new();
    for device in all {
        let servers: Vec<String> = names
            .iter()
            .zip(devices)
            .filter(|(_, of)| of.contains(device))
            .map(|(name, _)| (*name).to_owned())
            .collect();
        // Disks of one array are shared by the same servers: one of them says it.
        let is_known =
            |caveat: &Caveat| matches!(caveat, Caveat::SharedDevice { servers: known, .. } if *known == servers);
        if servers.len() > 1 && !caveats.iter().any(is_known) {
            caveats.push(Caveat::SharedDevice { servers, device: device.clone() });
        }
    }
    caveats
}

/// Those servers that slow each other down. `rates` gives the bytes per second of each of the numbered servers while all
/// of them are read.
///
/// # Errors
///
/// Those of `rates`.
pub(super) fn under_load(names: &[&str], mut rates: impl FnMut(&[usize]) -> Result<Vec<f64>>) -> Result<Vec<Caveat>> {
    if names.len() < 2 {
        return Ok(Vec::new());
    }
    let all: Vec<usize> = (0..names.len()).collect();
    let mut alone = Vec::new();
    for number in &all {
        alone.extend(rates(&[*number])?);
    }
    let together = rates(&all)?;
    let slowed: Vec<usize> =
        all.into_iter().filter(|&number| together[number] < CONTENDED_BELOW * alone[number]).collect();
    if slowed.len() < 2 {
        return Ok(Vec::new());
    }
    let share = |numbers: &[usize], rates: &[f64]| {
        rates.iter().sum::<f64>() / numbers.iter().map(|&number| alone[number]).sum::<f64>()
    };
    let caveat = |numbers: &[usize], share| Caveat::SharedLoad {
        servers: numbers.iter().map(|&number| names[number].to_owned()).collect(),
        share,
    };
    let mut caveats = Vec::new();
    if (3..=MAX_IN_PAIRS).contains(&slowed.len()) {
        for (place, &first) in slowed.iter().enumerate() {
            for &second in &slowed[place + 1..] {
                let share = share(&[first, second], &rates(&[first, second])?);
                if share < CONTENDED_BELOW {
                    caveats.push(caveat(&[first, second], share));
                }
            }
        }
    }
    // What only many show at once (a link, the processors), or what was not tried in pairs.
    if caveats.is_empty() {
        let of_slowed: Vec<f64> = slowed.iter().map(|&number| together[number]).collect();
        caveats.push(caveat(&slowed, share(&slowed, &of_slowed)));
    }
    Ok(caveats)
}

/// Bytes per second that each of `subjects` reads while all are read.
pub(super) fn rates<S: Subject + Send + ?Sized>(subjects: &mut [&mut S]) -> Result<Vec<f64>> {
    let start = Barrier::new(subjects.len());
    std::thread::scope(|scope| {
        let start = &start;
        let readers: Vec<_> = subjects
            .iter_mut()
            .map(|subject| {
                scope.spawn(move || {
                    let span = subject.span_bytes() / LARGEST_BYTES * LARGEST_BYTES;
                    start.wait();
                    let (begin, mut bytes) = (Instant::now(), 0);
                    while bytes == 0 || begin.elapsed() < LOAD_TIME {
                        subject.time(Direction::Read, bytes % span, LARGEST_BYTES)?;
                        bytes += LARGEST_BYTES;
                    }
                    Ok(bytes as f64 / begin.elapsed().as_secs_f64())
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().expect("a reader does not panic")).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::super::directory::DirectorySubject;
    use super::super::measure::MIN_SPAN_BYTES;
    use super::*;

    /// Rates of servers that share the queue of the same number.
    fn queues<'a>(of: &'a [u32], tried: &'a mut Vec<Vec<usize>>) -> impl FnMut(&[usize]) -> Result<Vec<f64>> + 'a {
        |numbers| {
            tried.push(numbers.to_vec());
            let sharing = |number: &usize| numbers.iter().filter(|other| of[**other] == of[*number]).count();
            Ok(numbers.iter().map(|number| 1e8 / sharing(number) as f64).collect())
        }
    }

    #[test]
    fn servers_behind_one_queue_are_found_in_pairs() {
        let names = ["s0", "s1", "s2", "s3", "s4"];
        let shared = |first: &str, second: &str| Caveat::SharedLoad {
            servers: vec![first.to_owned(), second.to_owned()],
            share: 0.5,
        };
        let mut tried = Vec::new();
        let caveats = under_load(&names, queues(&[0, 1, 0, 2, 2], &mut tried)).unwrap();
        assert_eq!(caveats, [shared("s0", "s2"), shared("s3", "s4")]);
        assert_eq!(tried.len(), 5 + 1 + 6, "each alone, all, and the pairs of the four that were slowed");
        assert_eq!(under_load(&names[..2], queues(&[0, 0], &mut tried)).unwrap(), [shared("s0", "s1")]);
        assert_eq!(under_load(&names, queues(&[0, 1, 2, 3, 4], &mut tried)).unwrap(), []);
        let crowd = under_load(&["x"; 12], queues(&[0; 12], &mut tried)).unwrap();
        assert!(matches!(&crowd[..], [Caveat::SharedLoad { servers, .. }] if servers.len() == 12), "{crowd:?}");
    }

    #[test]
    fn directories_are_read_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let prepare = |seed| DirectorySubject::prepare(directory.path(), MIN_SPAN_BYTES, Duration::ZERO, seed).unwrap();
        let (mut first, mut second) = (prepare(1), prepare(2));
        let rates = rates(&mut [&mut first, &mut second]).unwrap();
        assert!(rates.len() == 2 && rates.iter().all(|rate| *rate > 0.0), "{rates:?}");
    }

    #[test]
    fn directories_of_one_file_system_lie_on_the_same_devices() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("below");
        std::fs::create_dir(&below).unwrap();
        assert_eq!(devices(directory.path()), devices(&below));
        assert!(!devices(&below).is_empty());
        assert_eq!(devices(Path::new("/no/such/directory")), BTreeSet::new());
    }

    #[test]
    fn servers_on_one_device_are_named_once() {
        let set = |numbers: &[&str]| numbers.iter().map(|number| (*number).to_owned()).collect::<BTreeSet<_>>();
        let devices = [set(&["8:0", "8:16"]), set(&["8:32"]), set(&["8:0", "8:16"]), set(&["8:48"])];
        let shared = Caveat::SharedDevice { servers: vec!["a".to_owned(), "c".to_owned()], device: "8:0".to_owned() };
        assert_eq!(on_one_device(&["a", "b", "c", "d"], &devices), [shared]);
    }
}
