//! A server whose mount does not answer: who needs it waits or is told so, and everything else goes on.

use crate::driver::Driver;
use crate::stopping::StoppingMount;
use crate::support::{Place, noise};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The broker waits 5 s for a call once; the rest is for a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);
const SIZE: usize = 3 << 20;

/// Servers `near` and `far` (disks) and `flash` (an SSD), of which `far` can be stopped; a file striped over both disks, and one on flash.
fn stopping() -> Option<(StoppingMount, Place)> {
    let place = Place::new();
    for name in ["near", "far", "below-far", "flash", "disks", "quick"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    let mount = StoppingMount::new(&place, "below-far", "far")?;
    let servers = ["--server", "near=hdd:near", "--server", "far=hdd:far", "--server", "flash=ssd:flash"];
    place.done(&[&["init", "--region", "1MiB"][..], &servers].concat());
    place.done(&["manage", "disks", "--class", "hdd"]);
    place.done(&["manage", "quick", "--class", "ssd"]);
    place.write("data", &noise(SIZE));
    place.done(&["cp", "data", "disks/file"]);
    place.done(&["cp", "data", "disks/other"]);
    place.done(&["cp", "data", "quick/file"]);
    Some((mount, place))
}

fn within<T>(what: &str, patience: Duration, act: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = act();
    assert!(begun.elapsed() < patience, "{what} took {:?}", begun.elapsed());
    result
}

fn sum(file: &str) -> String {
    format!("hashlib.sha256(os.pread({file}, {SIZE}, 0)).hexdigest()")
}

fn in_a_thread(name: &str, step: &str) -> String {
    format!(
        "[({name} := []), ({name}_thread := threading.Thread(target=lambda: {name}.append({step}), daemon=True)).start()][1]"
    )
}

fn open(name: &str) -> String {
    format!("os.open('{name}', os.O_RDWR | os.O_CREAT, 0o644)")
}

fn threads_of(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap();
    line.trim().parse().unwrap()
}

/// One thread of a program waits in the kernel for the server; its other threads, their files and new ones go on.
#[test]
fn a_mount_that_stops_answering_holds_up_only_the_threads_that_need_it() {
    let Some((mount, place)) = stopping() else { return };
    let mut driver = Driver::start(&place, &[]);
    driver.ask(&format!(
        "[(f := {}), (g := {}), (h := {})]",
        open("disks/file"),
        open("quick/file"),
        open("disks/third")
    ));
    assert_eq!(driver.ask(&format!("os.pwrite(h, b'h' * {SIZE}, 0)")), SIZE.to_string());
    let whole = driver.ask(&sum("f"));
    assert_eq!(driver.ask(&sum("g")), whole);
    mount.stop();
    driver.ask(&in_a_thread("read", &sum("f")));
    driver.ask(&in_a_thread("written", "os.pwrite(f, b'w' * (1 << 20), 1 << 20)"));
    // Its close is one more call that the server does not answer.
    driver.ask(&in_a_thread("closed", "os.close(h)"));
    let steps = [
        (sum("g"), whole.clone()),
        ("os.pwrite(g, b'x' * 5000, 1 << 20)".to_owned(), "5000".to_owned()),
        ("os.fstat(f).st_size, os.stat('disks/file').st_size".to_owned(), format!("({SIZE}, {SIZE})")),
        ("len(os.pread(f, 4096, 0))".to_owned(), "4096".to_owned()),
        (format!("(n := {}) > 0", open("quick/new")), "True".to_owned()),
        (format!("os.pwrite(n, b'n' * {SIZE}, 0)"), SIZE.to_string()),
        // New regions are placed around it.
        (format!("(d := {}) > 0", open("disks/new")), "True".to_owned()),
        (format!("os.pwrite(d, b'd' * {SIZE}, 0)"), SIZE.to_string()),
        (format!("os.pread(d, {SIZE}, 0) == b'd' * {SIZE}, os.fsync(d), os.close(d)"), "(True, None, None)".to_owned()),
        ("os.ftruncate(f, 1000)".to_owned(), "EIO".to_owned()),
    ];
    for (step, expected) in &steps {
        assert_eq!(&within(step, PATIENCE, || driver.ask(step)), expected, "{step}");
    }
    assert_eq!(driver.ask("read, written, closed"), "([], [], [])", "they wait");
    mount.go_on();
    let ended = "[thread.join(60) for thread in (read_thread, written_thread, closed_thread)], written, closed";
    assert_eq!(driver.ask(ended), format!("([None, None, None], [{}], [None])", 1 << 20));
    // Both were under way at once: the read may have seen the write or not.
    assert_eq!(driver.ask("len(read)"), "1");
    let expected = "os.pread(f, 3 << 20, 0) == open('data', 'rb').read()[:1 << 20] + b'w' * (1 << 20) + open('data', 'rb').read()[2 << 20:]";
    assert_eq!(driver.ask(expected), "True");
    // The calls that were given up are answered first.
    within("the answers", PATIENCE, || while driver.ask("os.ftruncate(f, 1000)") == "EIO" {});
    assert_eq!(driver.ask("os.fstat(f).st_size"), "1000");
    let said = String::from_utf8(driver.end().stderr).unwrap();
    assert!(said.contains("server far has not answered for"), "{said}");
    assert!(place.command(&["cat", "disks/third"]).output().unwrap().stdout == vec![b'h'; SIZE]);
}

#[test]
fn while_a_mount_does_not_answer_commands_and_the_broker_go_on() {
    let Some((mount, place)) = stopping() else { return };
    // Whoever runs first is the broker.
    let driver = Driver::start(&place, &[]);
    let threads = || threads_of(driver.runner());
    let before = threads();
    mount.stop();
    let quick = place.read("data");
    for (words, status) in [
        (&["ls"][..], 0),
        (&["stat", "disks/file"], 0),
        (&["stat", "quick/file"], 0),
        (&["check"], 1),
        (&["cp", "data", "quick/copy"], 0),
        (&["cp", "data", "disks/copy"], 0),
        (&["cat", "quick/copy"], 0),
        (&["cat", "disks/copy"], 0),
        (&["rm", "disks/copy"], 0),
        // What it has there is freed when it answers.
        (&["rm", "disks/other"], 0),
        (&["check", "--repair"], 1),
        (&["run", "--", "stat", "disks/file"], 0),
        (&["run", "--", "cmp", "data", "quick/file"], 0),
    ] {
        let said = within(&words.join(" "), PATIENCE, || place.command(words).output().unwrap());
        let err = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(status), "{words:?}: {err}");
        let out = String::from_utf8_lossy(&said.stdout);
        match words[0] {
            "cat" => assert!(said.stdout == quick, "{words:?}"),
            "check" => assert!(out.contains("server far has not answered for"), "{out}"),
            _ => {}
        }
    }
    // What cannot be done without the server fails and names it.
    let words = ["restripe", "disks/file", "--layout", "flash 64KiB"];
    let said = within("restripe", PATIENCE, || place.say(&words));
    assert!(said.status == 2 && said.err.contains("server far has not answered for"), "{}", said.err);
    let start = |words: &[&str]| place.command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let crowd: Vec<Child> =
        (0..16).map(|number| start([&["check"][..], &["stat", "disks/file"]][number % 2])).collect();
    let mut most = 0;
    for mut child in crowd {
        while child.try_wait().unwrap().is_none() {
            most = most.max(threads());
            std::thread::yield_now();
        }
    }
    // At most 16 for the server that hangs, and those that serve; not one for each request that ever met it.
    assert!(most < before + 40, "{most} threads, {before} before");
    mount.go_on();
    // The calls that were given up are answered first.
    within("the answers", PATIENCE, || while place.say(&["check"]).out.contains("has not answered") {});
    place.done(&["restripe", "disks/file", "--layout", "flash 64KiB"]);
    assert!(place.command(&["cat", "disks/file"]).output().unwrap().stdout == quick);
    place.done(&["check", "--repair"]);
    let checked = place.say(&["check"]);
    assert_eq!((checked.status, checked.out.as_str()), (0, ""), "{}", checked.err);
    assert!(driver.end().status.success());
}

/// A command said nothing until its end, and one that copies has none as long as the server does not answer.
#[test]
fn a_command_that_waits_for_a_server_names_it_after_5_s_and_goes_on_with_it() {
    let Some((mount, place)) = stopping() else { return };
    place.done(&["cp", "data", "disks/out"]);
    let driver = Driver::start(&place, &[]);
    mount.stop();
    let begun = Instant::now();
    let waiting = [&["cat", "disks/file"][..], &["cp", "disks/file", "copy"], &["release", "disks/out"]].map(|words| {
        let mut command = place.command(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // What it prints is to wait for nobody.
        let mut out = child.stdout.take().unwrap();
        let out = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            out.read_to_end(&mut bytes).map(|_| bytes).unwrap()
        });
        (words[0], child, out)
    });
    let waiting = waiting.map(|(name, mut child, out)| {
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        err.read_line(&mut line).unwrap();
        let far = place.path("far");
        let expected = format!("stripewise {name}: server far ({}) has not answered for ", far.display());
        assert!(line.starts_with(&expected) && line.contains("see to its mount"), "{line}");
        assert!((Duration::from_secs(5)..PATIENCE).contains(&begun.elapsed()), "{name}: {:?}", begun.elapsed());
        assert_eq!(child.try_wait().unwrap(), None, "{name} waits");
        (name, child, out, err)
    });
    mount.go_on();
    for (name, mut child, out, mut err) in waiting {
        let (mut said, out) = (String::new(), out.join().unwrap());
        err.read_to_string(&mut said).unwrap();
        assert!(child.wait().unwrap().success(), "{name}: {said}");
        assert!(name != "cat" || out == place.read("data"), "{name}");
    }
    assert!(place.read("copy") == place.read("data") && place.read("disks/out") == place.read("data"));
    assert!(driver.end().status.success());
}

/// Each of these commands is the broker for its time: it begins, recovers, serves and ends without the server.
#[test]
fn brokers_begin_and_end_while_a_mount_does_not_answer() {
    let Some((mount, place)) = stopping() else { return };
    let mut driver = Driver::start(&place, &[]);
    driver.ask(&format!("[(g := {}), os.pwrite(g, b'x' * 5000, 1 << 20)]", open("quick/file")));
    mount.stop();
    let ended = within("the end of a run", PATIENCE, || driver.end());
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    for (words, status) in [
        (&["ls"][..], 0),
        (&["cp", "data", "disks/copy"], 0),
        (&["rm", "disks/other"], 0),
        (&["check"], 1),
        (&["release", "quick/file"], 0),
    ] {
        let said = within(&words.join(" "), PATIENCE, || place.say(words));
        assert_eq!(said.status, status, "{words:?}: {}{}", said.out, said.err);
    }
    mount.go_on();
    place.say(&["check", "--repair"]);
    assert!(place.command(&["cat", "disks/file"]).output().unwrap().stdout == place.read("data"));
    place.done(&["release", "disks/file"]);
    // What was placed around the server is told; nothing else is left.
    let checked = place.say(&["check"]);
    let others: Vec<&str> =
        checked.out.lines().filter(|line| line.contains("HERE") && !line.contains("in the fallback layout")).collect();
    assert!(checked.status == 1 && others.is_empty() && !checked.out.contains("server far"), "{}", checked.out);
}
