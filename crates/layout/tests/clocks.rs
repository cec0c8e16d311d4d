//! No decision goes by the time of day, which may jump at any moment: windows of plans, patience, retries, idleness and rates go by the monotonic
//! clock. Whatever reads the time of day stands here with what it does with it, and nothing else may.

use std::collections::BTreeMap;
use std::path::Path;

/// File, how often it reads the time of day, and what becomes of it.
const READERS: &[(&str, usize, &str)] = &[
    ("stripewise/src/calibrate.rs", 1, "the profile says when it was measured"),
    ("stripewise/src/capture.rs", 1, "a trace says when it was begun"),
    ("broker/src/agent_counts.rs", 1, "shown: since when an agent runs"),
    ("broker/src/describing.rs", 1, "a description says when it was written"),
    ("broker/src/identities.rs", 1, "a record says when its file was made"),
    ("broker/src/move_queue.rs", 1, "totals say since when they count, which tells one broker's from another's"),
    (
        "broker/src/orangefs/driver.rs",
        1,
        "OrangeFS says by the time of day when a credential expires and how old a file is",
    ),
    ("store/src/file/core.rs", 1, "a file's modification time"),
    ("fuse/src/mapped.rs", 1, "whether a file's modification time is so new that its next change may have the same"),
    ("store/src/log_line.rs", 1, "lines of a log"),
    ("preload/src/log.rs", 1, "the same"),
    ("capture/src/clock.rs", 2, "for the next"),
    ("capture/src/recorder.rs", 1, "a record's monotonic times are tied to the time of day at one instant"),
];

fn count_in(directory: &Path, root: &Path, found: &mut BTreeMap<String, usize>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            count_in(&path, root, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let reads = ["SystemTime::now", "Timestamp::now", "ClockId::Realtime", "wall_ns()"];
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let count: usize =
                code.map(|line| reads.iter().map(|read| line.matches(read).count()).sum::<usize>()).sum();
            if count > 0 {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                *found.entry(name).or_default() += count;
            }
        }
    }
}

#[test]
fn only_stamps_are_taken_from_the_time_of_day() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap().parent().unwrap().to_owned();
    let mut found = BTreeMap::new();
    for directory in std::fs::read_dir(&crates).unwrap() {
        let source = directory.unwrap().path().join("src");
        if source.is_dir() {
            count_in(&source, &crates, &mut found);
        }
    }
    let expected: BTreeMap<String, usize> =
        READERS.iter().map(|(file, count, _)| ((*file).to_owned(), *count)).collect();
    assert_eq!(found, expected, "who reads the time of day; decisions go by the monotonic clock");
}
