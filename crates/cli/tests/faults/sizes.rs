//! Sizes of files whose servers are gone: the data's, or an error; never the stub's.

use crate::driver::Driver;
use crate::support::{Place, noise, preload};
use std::process::Command;

const SIZE: usize = 349_000;

/// A managed file over two servers, of which one has gone since.
fn without_a_server() -> (Place, Vec<u8>) {
    preload();
    let place = Place::with_cluster();
    let data = noise(SIZE);
    place.write("data", &data);
    place.done(&["cp", "--managed", "data", "managed"]);
    std::fs::rename(place.path("h1"), place.path("away")).unwrap();
    (place, data)
}

const STATUS: &str = "[os.stat('managed').st_size, os.lstat('managed').st_size, os.path.getsize('managed'), \
    os.stat('managed', dir_fd=os.open('.', os.O_RDONLY)).st_size, os.fstat(p := os.open('managed', os.O_PATH)).st_size, \
    [e.stat().st_size for e in os.scandir('.') if e.name == 'managed'][0], os.fstat(f).st_size, os.lseek(f, 0, os.SEEK_END)]";

/// They came back as 1021, the stub's: `tar` and `rsync` of the file then copied 1021 bytes and were content.
#[test]
fn with_a_server_missing_every_call_tells_the_datas_size() {
    let (place, _) = without_a_server();
    std::fs::rename(place.path("away"), place.path("h1")).unwrap();
    let mut driver = Driver::start(&place, &[]);
    assert_eq!(driver.ask("(before := os.open('managed', os.O_RDONLY)) >= 0"), "True");
    std::fs::rename(place.path("h1"), place.path("away")).unwrap();
    // Of a file that nobody has open, then of one that was opened before and of one that is opened now.
    let expected = format!("{:?}", [SIZE; 8]);
    assert_eq!(driver.ask("os.stat('managed').st_size"), SIZE.to_string());
    assert_eq!(driver.ask("(f := before)"), driver.ask("before"));
    assert_eq!(driver.ask(STATUS), expected);
    assert_eq!(driver.ask("(f := os.open('managed', os.O_RDWR)) >= 0"), "True");
    assert_eq!(driver.ask(STATUS), expected);
    assert_eq!(driver.ask("os.stat('managed').st_blocks * 512 >= 349000"), "True");
    assert_eq!(driver.ask("os.close(f)"), "None");
    assert_eq!(driver.ask("os.close(before)"), "None");
    assert_eq!(driver.ask("os.stat('managed').st_size"), SIZE.to_string());
    assert!(driver.end().status.success());
}

#[test]
fn with_a_server_missing_archivers_and_copiers_fail_and_leave_nothing_short() {
    let (place, data) = without_a_server();
    let programs: [(&str, &[&str], &str); 4] = [
        ("tar", &["-cf", "archive.tar", "managed"], ""),
        ("cp", &["managed", "copied"], "copied"),
        ("rsync", &["managed", "synced"], "synced"),
        ("dd", &["if=managed", "of=dumped", "bs=64k"], "dumped"),
    ];
    for (program, words, _) in programs {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("not tried: there is no {program}");
            continue;
        }
        let said = place.say(&[&["run", "--", program], words].concat());
        assert_ne!(said.status, 0, "{program}: {}", said.err);
        // `tar` takes the short read before the lost part for the file's end, pads it, and says so by its status.
        let expected = if program == "tar" { "File shrank by" } else { "Input/output error" };
        assert!(said.err.contains(expected), "{program}: {}", said.err);
    }
    std::fs::rename(place.path("away"), place.path("h1")).unwrap();
    for (program, words, copy) in programs.iter().filter(|(program, ..)| Command::new(program).output().is_ok()) {
        place.done(&[&["run", "--", *program], *words].concat());
        if !copy.is_empty() {
            assert!(place.read(copy) == data, "{program}");
        }
    }
    place.done(&["run", "--", "sh", "-c", "mkdir out && tar -xf archive.tar -C out"]);
    assert!(place.read("out/managed") == data);
}

#[test]
fn a_program_that_walks_sees_no_stub_when_a_server_is_missing() {
    let (place, _) = without_a_server();
    let found = place.say(&["run", "--", "find", "managed", "-printf", "%s %b\\n"]);
    assert_eq!(found.status, 0, "{}", found.err);
    let words: Vec<u64> = found.out.split_ascii_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(words[0] == SIZE as u64 && words[1] * 512 >= SIZE as u64, "{words:?}");
    let used = place.say(&["run", "--", "du", "--apparent-size", "--bytes", "managed"]);
    assert_eq!(used.out.split_ascii_whitespace().next(), Some(SIZE.to_string().as_str()), "{}", used.err);
}

/// A copy of a stub opens nothing, so it has no size either.
#[test]
fn a_copied_stub_has_no_size_and_an_open_file_keeps_its_own_without_a_broker() {
    let (place, _) = without_a_server();
    std::fs::copy(place.path("managed"), place.path("copy")).unwrap();
    let said = place.say(&["run", "--", "stat", "--format", "%s", "copy", "managed", "data"]);
    assert_eq!(said.out, format!("{SIZE}\n{SIZE}\n"));
    assert!(said.status == 1 && said.err.contains("'copy': Stale file handle"), "{}", said.err);
    let mut driver = Driver::start(&place, &[]);
    assert_eq!(driver.ask("(before := os.open('managed', os.O_RDONLY)) >= 0"), "True");
    crate::driver::kill(driver.runner());
    // Open in this process, it is known without a broker.
    assert_eq!(driver.ask("[os.fstat(before).st_size, os.stat('managed').st_size]"), format!("[{SIZE}, {SIZE}]"));
    drop(driver);
}
