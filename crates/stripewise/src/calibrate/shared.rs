//! Servers that share something: one device, or what lies before it.
//!
//! Device numbers tell of partitions of one disk, of images on one file system and of directories side by side: the
//! kernel lists below what each block device lies. What they cannot tell (two volumes of one array, two mounts over one
//! link) shows under load: servers are read at once, and those that reach clearly less than each alone are read in pairs.
//! What is shared need not be shared alike: one server may lose what others keep.

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

/// More servers are not tried in pairs with each other, and no more pairs at all: these take 8 s.
const MAX_IN_PAIRS: usize = 8;
const MAX_PAIRS: usize = MAX_IN_PAIRS * (MAX_IN_PAIRS - 1) / 2;

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
    let mut slowed = Vec::new();
    for &number in &all {
        let is_slowed = |alone: f64| together[number] < CONTENDED_BELOW * alone;
        if is_slowed(alone[number]) {
            // What is slow alone by now has met a limit of its own.
            alone[number] = alone[number].min(rates(&[number])?[0]);
            slowed.extend(is_slowed(alone[number]).then_some(number));
        }
    }
    let share = |numbers: &[usize], rates: &[f64]| {
        rates.iter().sum::<f64>() / numbers.iter().map(|&number| alone[number]).sum::<f64>()
    };
    let caveat = |numbers: &[usize], share| Caveat::SharedLoad {
        servers: numbers.iter().map(|&number| names[number].to_owned()).collect(),
        share,
    };
    let mut shared = Vec::new();
    if names.len() > 2 && slowed.len() <= MAX_IN_PAIRS {
        let mut try_pairs = |pairs: &[[usize; 2]]| -> Result<Vec<([usize; 2], f64)>> {
            let mut shared = Vec::new();
            for pair in pairs {
                let share = share(pair, &rates(pair)?);
                shared.extend((share < CONTENDED_BELOW).then_some((*pair, share)));
            }
            Ok(shared)
        };
        let pairs_among = |(place, first): (usize, &usize)| {
            slowed[place + 1..].iter().map(|second| [*first, *second]).collect::<Vec<_>>()
        };
        let among: Vec<[usize; 2]> = slowed.iter().enumerate().flat_map(pairs_among).collect();
        shared = try_pairs(&among)?;
        // Whoever slows the others down may hardly be slowed itself.
        let is_alone = |number: &&usize| !shared.iter().any(|(pair, _)| pair.contains(number));
        let pairs_beyond = |first: &usize| {
            let others = all.iter().filter(|number| !slowed.contains(number));
            others.map(|second| [*first.min(second), *first.max(second)]).collect::<Vec<_>>()
        };
        let beyond = slowed.iter().filter(is_alone).flat_map(pairs_beyond);
        let beyond: Vec<[usize; 2]> = beyond.take(MAX_PAIRS - among.len()).collect();
        shared.extend(try_pairs(&beyond)?);
    }
    if shared.is_empty() {
        // What only many show at once (a link, the processors), or what was not tried in pairs.
        let suspects = if slowed.len() < 2 { &all } else { &slowed };
        let rates: Vec<f64> = suspects.iter().map(|&number| together[number]).collect();
        let share = share(suspects, &rates);
        return Ok(Vec::from_iter((share < CONTENDED_BELOW).then(|| caveat(suspects, share))));
    }
    Ok(shared.iter().map(|(pair, share)| caveat(pair, *share)).collect())
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
        assert_eq!(
            tried.len(),
            5 + 1 + 4 + 6,
            "each alone, all, and the four that were slowed alone again and in pairs"
        );
        assert_eq!(under_load(&names[..2], queues(&[0, 0], &mut tried)).unwrap(), [shared("s0", "s1")]);
        assert_eq!(under_load(&names, queues(&[0, 1, 2, 3, 4], &mut tried)).unwrap(), []);
        let crowd = under_load(&["x"; 12], queues(&[0; 12], &mut tried)).unwrap();
        assert!(matches!(&crowd[..], [Caveat::SharedLoad { servers, .. }] if servers.len() == 12), "{crowd:?}");
    }

    #[test]
    fn a_server_that_loses_what_another_keeps_is_found_with_it() {
        // The first of each pair loses to the second.
        fn unfair(pairs: &[[usize; 2]]) -> impl FnMut(&[usize]) -> Result<Vec<f64>> {
            move |numbers| {
                let has = |number| numbers.contains(number);
                let rate = |number: &usize| match pairs.iter().find(|pair| pair.contains(number)) {
                    Some([loser, winner]) if has(loser) && has(winner) && number == loser => 25e6,
                    Some([loser, winner]) if has(loser) && has(winner) => 75e6,
                    _ => 1e8,
                };
                Ok(numbers.iter().map(rate).collect())
            }
        }
        let shared = |servers: [&str; 2]| Caveat::SharedLoad { servers: servers.map(str::to_owned).into(), share: 0.5 };
        let names = ["s0", "s1", "s2", "s3", "s4"];
        assert_eq!(under_load(&names[..2], unfair(&[[0, 1]])).unwrap(), [shared(["s0", "s1"])]);
        assert_eq!(under_load(&names, unfair(&[[3, 1]])).unwrap(), [shared(["s1", "s3"])]);
        let both = [shared(["s0", "s1"]), shared(["s3", "s4"])];
        assert_eq!(under_load(&names, unfair(&[[0, 1], [3, 4]])).unwrap(), both);
    }

    /// Its burst is over by the time all are read.
    #[test]
    fn a_server_with_a_limit_of_its_own_shares_nothing() {
        let mut reads = 0;
        let rates = |numbers: &[usize]| -> Result<Vec<f64>> {
            reads += numbers.iter().filter(|number| **number == 0).count();
            let rate = |number: &usize| if *number == 0 && reads > 1 { 5e6 } else { 1e8 };
            Ok(numbers.iter().map(rate).collect())
        };
        assert_eq!(under_load(&["s0", "s1", "s2"], rates).unwrap(), []);
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
