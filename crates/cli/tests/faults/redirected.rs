//! Faults under programs that run redirected: those concerned get EIO or ENOSPC, all others go on.

use crate::driver::{Driver, kill};
use crate::support::{Place, noise};
use std::process::Command;

/// Two disks with a managed directory each; regions of 1 MiB.
fn two_servers(first: &str, second: &str) -> Place {
    let place = Place::new();
    for name in ["a", "b", "on-a", "on-b"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    let servers = [format!("a=hdd:a{first}"), format!("b=ssd:b{second}")];
    place.done(&["init", "--region", "1MiB", "--server", &servers[0], "--server", &servers[1]]);
    place.done(&["manage", "on-a", "--class", "hdd"]);
    place.done(&["manage", "on-b", "--class", "ssd"]);
    place
}

const WRITE: &str = "os.pwrite(f, b'new' * 1000, 0)";
const READ: &str = "os.pread(f, 100000, 1 << 19)[:5]";

fn open(name: &str) -> String {
    format!("(f := os.open('{name}', os.O_RDWR | os.O_CREAT, 0o644)) >= 0")
}

#[test]
fn a_server_that_vanishes_gives_errors_to_its_users_only() {
    let place = two_servers("", "");
    let data = noise(3 << 20);
    place.write("data", &data);
    place.done(&["cp", "data", "on-a/file"]);
    place.done(&["cp", "data", "on-b/file"]);
    let mut concerned = Driver::start(&place, &[]);
    let mut other = Driver::start(&place, &[]);
    assert_eq!(concerned.ask(&open("on-b/file")), "True");
    assert_eq!(other.ask(&open("on-a/file")), "True");
    let before = other.ask(READ);
    assert_eq!(concerned.ask(READ), before);
    // As a mount that goes away and leaves its empty directory.
    copy_all(&place, "b", "away");
    std::fs::remove_dir_all(place.path("b")).unwrap();
    std::fs::create_dir(place.path("b")).unwrap();
    // The objects of other regions are open in this program; this one's is not.
    for _ in 0..3 {
        assert_eq!(concerned.ask("os.pread(f, 10, 5 << 19)"), "EIO");
        assert_eq!(concerned.ask("os.pwrite(f, b'x', 5 << 19)"), "EIO");
    }
    assert_eq!(other.ask(READ), before);
    assert_eq!(other.ask(WRITE), "3000");
    assert_eq!(other.ask(&open("on-a/new")), "True");
    assert_eq!(other.ask(WRITE), "3000");
    assert_eq!(concerned.ask("os.close(f)"), "None");
    let said = String::from_utf8(concerned.end().stderr).unwrap();
    assert_eq!(said.matches("is not mounted or was emptied; mount it again").count(), 1, "once: {said}");
    assert!(said.contains("server b"), "{said}");
    assert!(other.end().status.success());
    let checked = place.say(&["check"]);
    assert_eq!(checked.status, 1);
    assert!(checked.out.contains("server b"), "{}", checked.out);
    assert_eq!(std::fs::read_dir(place.path("b")).unwrap().count(), 0, "nothing is written where no server is");
    std::fs::remove_dir(place.path("b")).unwrap();
    std::fs::rename(place.path("away"), place.path("b")).unwrap();
    assert!(place.command(&["cat", "on-b/file"]).output().unwrap().stdout == data);
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn everything_full_is_enospc_and_what_was_written_stays() {
    let place = two_servers(":2MiB", ":1MiB");
    let mut driver = Driver::start(&place, &[]);
    assert_eq!(driver.ask(&open("on-a/file")), "True");
    assert_eq!(driver.ask("os.pwrite(f, b'1' * (2 << 20), 0)"), (2 << 20).to_string());
    assert_eq!(driver.ask("os.pwrite(f, b'2' * 100, 2 << 20)"), "ENOSPC");
    assert_eq!(driver.ask("os.fstat(f).st_size"), (2 << 20).to_string());
    // Across the border: what fits, as a full disk does.
    assert_eq!(driver.ask("os.pwrite(f, b'3' * 200, (2 << 20) - 100)"), "100");
    assert_eq!(driver.ask("os.pread(f, 1000, (2 << 20) - 101)"), format!("b'1{}'", "3".repeat(100)));
    assert_eq!(driver.ask("os.posix_fallocate(f, 0, 4 << 20)"), "ENOSPC");
    assert_eq!(driver.ask("os.fstat(f).st_size"), (2 << 20).to_string());
    // Room that is given back can be used again.
    assert_eq!(driver.ask("os.ftruncate(f, 1 << 20)"), "None");
    assert_eq!(driver.ask("os.pwrite(f, b'4' * 100, 1 << 20)"), "100");
    assert!(driver.end().status.success());
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn a_full_ssd_sends_a_programs_regions_to_the_disks_and_says_so() {
    let place = two_servers("", ":2MiB");
    let mut driver = Driver::start(&place, &[]);
    assert_eq!(driver.ask(&open("on-b/file")), "True");
    assert_eq!(driver.ask("os.pwrite(f, b'5' * (4 << 20), 0)"), (4 << 20).to_string());
    assert_eq!(driver.ask("len(os.pread(f, 5 << 20, 0).strip(b'5'))"), "0");
    assert!(driver.end().status.success());
    let stat = place.json(&["stat", "on-b/file"])["files"][0].clone();
    assert_eq!(
        stat["servers"],
        serde_json::json!([
            {"name": "a", "bytes": 2 << 20, "replica_bytes": 0, "promised_bytes": 2 << 20, "held_bytes": 2 << 20},
            {"name": "b", "bytes": 2 << 20, "replica_bytes": 0, "promised_bytes": 2 << 20, "held_bytes": 2 << 20}
        ])
    );
    assert!(place.done(&["stat", "on-b/file"]).contains("fallback: its servers were full"));
    let checked = place.say(&["check"]);
    assert_eq!(checked.status, 1);
    assert!(
        checked.out.contains(
            "2 of 4 regions of HERE/on-b/file lie in the fallback layout, because their own had no free space"
        ),
        "{}",
        checked.out
    );
}

#[test]
fn a_killed_broker_is_followed_by_another_run() {
    let place = two_servers("", "");
    let mut first = Driver::start(&place, &[]);
    let mut second = Driver::start(&place, &[]);
    for driver in [&mut first, &mut second] {
        assert_eq!(driver.ask(&open("on-a/file")), "True");
    }
    assert_eq!(first.ask("os.pwrite(f, b'before', 0)"), "6");
    kill(first.runner());
    // What is placed goes on by itself; what must be placed is asked of the successor.
    assert_eq!(first.ask("os.pread(f, 6, 0)"), "b'before'");
    assert_eq!(first.ask("os.pwrite(f, b'after', 3 << 20)"), "5");
    assert_eq!(first.ask("os.fsync(f)"), "None");
    assert_eq!(second.ask("os.pread(f, 5, 3 << 20)"), "b'after'");
    assert_eq!(second.ask(&open("on-b/new")), "True");
    assert_eq!(second.ask(WRITE), "3000");
    assert!(second.end().status.success());
    first.end();
    assert_eq!(place.command(&["cat", "on-a/file"]).output().unwrap().stdout.len(), (3 << 20) + 5);
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn a_killed_broker_without_another_gives_eio_and_no_wrong_bytes() {
    let place = two_servers("", "");
    let mut driver = Driver::start(&place, &[]);
    assert_eq!(driver.ask(&open("on-a/file")), "True");
    assert_eq!(driver.ask("os.pwrite(f, b'7' * 100000, 0)"), "100000");
    kill(driver.runner());
    assert_eq!(driver.ask("len(os.pread(f, 200000, 0).strip(b'7'))"), "0");
    let answer = driver.ask("os.pwrite(f, b'after', 3 << 20)");
    assert_eq!(answer, "EIO");
    // Only the first one waited for a successor.
    for _ in 0..100 {
        assert_eq!(driver.ask("os.pwrite(f, b'after', 3 << 20)"), "EIO");
    }
    assert_eq!(driver.ask("os.fstat(f).st_size"), "100000", "what failed has not grown the file");
    let output = driver.end();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("stripewise-state went away and none took its place within"), "{said}");
    assert_eq!(place.command(&["cat", "on-a/file"]).output().unwrap().stdout, vec![b'7'; 100_000]);
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn a_killed_writer_leaves_a_sound_file() {
    let place = two_servers("", "");
    for step in 1..=8u32 {
        let mut driver = Driver::start(&place, &[]);
        assert_eq!(driver.ask(&open("on-a/file")), "True");
        assert_eq!(driver.ask("os.pwrite(f, b'8' * (1 << 20), 0)"), (1 << 20).to_string());
        assert_eq!(driver.ask("[os.pwrite(f, b'9' * 4096, 0) for _ in range(8)][-1]"), "4096");
        // Killed while it writes without end, once the file has grown by as much as this step wants.
        driver.report_capture("[os.write(f, b'x' * 9973) for _ in range(10 ** 9)]");
        while objects_on_a(&place) < u64::from(step) * 3 {
            std::thread::yield_now();
        }
        kill(driver.process);
        assert_eq!(driver.end().status.code(), Some(137));
        let checked = place.say(&["check"]);
        assert_eq!(checked.status, 0, "{}{}", checked.out, checked.err);
        let bytes = place.command(&["cat", "on-a/file"]).output().unwrap().stdout;
        let size = place.json(&["stat", "on-a/file"])["files"][0]["size_bytes"].as_u64().unwrap();
        assert_eq!(bytes.len() as u64, size);
        let xs = bytes.iter().take_while(|byte| **byte == b'x').count();
        assert!(bytes[xs..].iter().all(|byte| *byte == b'8' || *byte == b'9'), "after {xs} of {size}");
        place.done(&["rm", "on-a/file"]);
    }
}

fn copy_all(place: &Place, from: &str, to: &str) {
    let copied = Command::new("cp").arg("-a").args([from, to]).current_dir(place.path("")).status();
    assert!(copied.unwrap().success());
}

/// How many objects server `a` holds.
fn objects_on_a(place: &Place) -> u64 {
    let files = std::fs::read_dir(place.path("a/stripewise-objects")).unwrap();
    files.map(|file| std::fs::read_dir(file.unwrap().path()).map_or(0, |objects| objects.count() as u64)).sum()
}

#[test]
fn who_opens_a_file_that_is_being_removed_finds_none_or_a_new_one() {
    let place = two_servers("", "");
    let program = r#"
import multiprocessing, os
def opens(queue):
    seen = set()
    for number in range(300):
        try:
            descriptor = os.open("on-a/file", os.O_RDWR | (os.O_CREAT if number % 2 else 0))
            os.pwrite(descriptor, b"1", 0)
            os.close(descriptor)
        except OSError as error:
            seen.add(type(error).__name__)
    queue.put(seen)
def removes():
    for _ in range(300):
        try:
            os.unlink("on-a/file")
        except FileNotFoundError:
            pass
        os.close(os.open("on-a/file", os.O_RDWR | os.O_CREAT))
queue = multiprocessing.Queue()
processes = [multiprocessing.Process(target=opens, args=(queue,)) for _ in range(2)]
processes.append(multiprocessing.Process(target=removes))
[process.start() for process in processes]
seen = queue.get() | queue.get()
[process.join() for process in processes]
print(seen - {"FileNotFoundError"})
"#;
    let output = place.command(&["run", "--", "python3", "-c", program]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "set()\n", "{said}");
    assert!(!said.contains("no file"), "{said}");
    let checked = place.say(&["check"]);
    assert_eq!(checked.status, 0, "{}{}", checked.out, checked.err);
}

/// As `grep -r` and `tar` do where the state directory lies beside what they are to read. With its locks gone the program would count as dead, and moves would lose
/// what it writes.
#[test]
fn a_program_that_reads_the_state_directory_still_counts_as_living() {
    let place = two_servers("", "");
    let mut program = Driver::start(&place, &[]);
    assert_eq!(program.ask(&open("on-a/file")), "True");
    assert_eq!(place.locks_of("stripewise-state"), 1);
    for call in
        ["os.open('stripewise-state/run/processes', os.O_RDONLY)", "open('stripewise-state/run/processes', 'rb')"]
    {
        assert_eq!(program.ask(call), "EACCES");
        assert_eq!(place.locks_of("stripewise-state"), 1);
    }
    let stream = "__import__('ctypes').CDLL(None).fopen(b'stripewise-state/run/processes', b'r')";
    assert_eq!(program.ask(stream), "0");
    assert_eq!(place.locks_of("stripewise-state"), 1);
    // What opens it without a way to its bytes ends nothing.
    assert_eq!(program.ask("os.close(os.open('stripewise-state/run/processes', os.O_PATH))"), "None");
    assert_eq!(place.locks_of("stripewise-state"), 1);
    assert_eq!(program.ask(WRITE), "3000");
    assert!(program.end().status.success());
    assert_eq!(place.locks_of("stripewise-state"), 0);
}
