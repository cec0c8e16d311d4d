//! `apply` and `release` on mounts that cannot all that a local file system can, and on clusters of several hosts.
#![allow(unreachable_pub, reason = "a test has no users")]

#[path = "mounts/bed.rs"]
mod bed;

use bed::Bed;
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::io::{BufRead, BufReader, IoSliceMut, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};
use stripewise_layout::{Cluster, FileOffset, Layout, Placement};
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::manage::{Moving, apply, release};
use stripewise_store::protocol::{Admin, Reply, Request};
use stripewise_store::stub::Stub;

const WHAT: &str = "STRIPEWISE_TEST_WHAT";
const PATH: &str = "STRIPEWISE_TEST_PATH";
/// The number of the step at which the command is killed.
const STEP: &str = "STRIPEWISE_TEST_STEP";
/// The names of the steps at which it waits for a line each.
const WAIT_AT: &str = "STRIPEWISE_TEST_WAIT_AT";
const UNCHECKED: &str = "STRIPEWISE_TEST_UNCHECKED";
const PATIENCE: Duration = Duration::from_secs(60);

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 251 * 13 + 1) as u8).collect()
}

/// The part of a command on a host; nothing when run as a test of its own.
#[test]
fn child() {
    let Ok(what) = std::env::var(WHAT) else { return };
    let cluster = std::env::var("STRIPEWISE_CLUSTER").unwrap();
    let cluster = Cluster::load(Path::new(&cluster)).unwrap();
    let client = Client::connect(&cluster.state, ClientOptions::default()).unwrap();
    let path = std::env::var(PATH).unwrap_or_default();
    let path = Path::new(&path);
    let (kill_at, wait_at) = (std::env::var(STEP).ok(), std::env::var(WAIT_AT).ok());
    let kill_at: Option<usize> = kill_at.map(|step| step.parse().unwrap());
    let count = Cell::new(0);
    let steps = |name: &'static str| {
        if Some(count.replace(count.get() + 1)) == kill_at {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
        if wait_at.as_deref().is_some_and(|steps| steps.split(',').any(|step| step == name)) {
            println!("at {name}");
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
    };
    let unchecked: Vec<String> = std::env::var(UNCHECKED).iter().map(String::clone).collect();
    let moving = Moving { steps: Some(&steps), unchecked_hosts: &unchecked, ..Moving::default() };
    let all = Layout::new(cluster.ids().map(|server| (server, 4096))).unwrap();
    let placement = Placement::uniform(cluster.region_size, all.clone(), all);
    let done = match &*what {
        "apply" => apply(&client, path, &placement, &moving).map(|moved| moved.note),
        "release" => release(&client, path, &moving).map(|moved| moved.note),
        "read" => return println!("digest {}", digest(&managed_bytes(&client, path))),
        "states" => return println!("{}", states(&client).join(" ")),
        other => panic!("{other}"),
    };
    match done {
        Ok(note) => println!("done {}", note.unwrap_or_default()),
        Err(error) => println!("refused {error}"),
    }
}

/// Length and a hash, in words that are easy to compare.
fn digest(bytes: &[u8]) -> String {
    let mut hasher = std::hash::DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{} {:016x}", bytes.len(), hasher.finish())
}

fn managed_bytes(client: &Client, path: &Path) -> Vec<u8> {
    let stub = std::fs::File::open(path).unwrap();
    let said = Stub::parse(&std::fs::read(path).unwrap()).unwrap().expect("a stub");
    let striped = client.open(stub.as_fd(), said.file).unwrap();
    let mut bytes = vec![0; striped.latest_size_bytes().unwrap() as usize];
    let read = striped.read_at(FileOffset(0), &mut [IoSliceMut::new(&mut bytes)]).unwrap();
    assert_eq!(read, bytes.len());
    bytes
}

fn states(client: &Client) -> Vec<String> {
    match client.request(&Request::Admin(Admin::List { after: None }), &[]).unwrap().0 {
        Reply::Files { files, .. } => files.into_iter().map(|file| file.state).collect(),
        other => panic!("{other:?}"),
    }
}

impl Bed {
    fn child(&self, host: usize, what: &str, name: &str, more: &[(&str, &str)]) -> std::process::Command {
        let mut command = self.command(host, std::env::current_exe().unwrap());
        command
            .args(["child", "--exact", "--nocapture"])
            .env(WHAT, what)
            .env(PATH, self.data(name))
            .stdin(Stdio::null());
        command.envs(more.iter().copied());
        command
    }

    /// What `child` prints between the lines of the test program.
    fn say(&self, host: usize, what: &str, name: &str, more: &[(&str, &str)]) -> String {
        let output = self.child(host, what, name, more).output().unwrap();
        assert!(output.status.success(), "{what} on h{host}: {}", String::from_utf8_lossy(&output.stderr));
        said(&output)
    }

    /// What is in the file, whether or not it is managed, by its digest.
    fn digest_of(&self, host: usize, name: &str) -> String {
        match self.is_stub(name) {
            false => digest(&std::fs::read(self.stored(name)).unwrap()),
            true => self.say(host, "read", name, &[]).strip_prefix("digest ").unwrap().to_owned(),
        }
    }

    fn is_stub(&self, name: &str) -> bool {
        matches!(Stub::parse(&std::fs::read(self.stored(name)).unwrap()), Ok(Some(_)))
    }

    /// Does it, once nobody uses the file any more: an agent hears of the end of a program in its own time.
    fn do_when_free(&self, host: usize, what: &str, name: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = self.say(host, what, name, &[]);
            if !is_busy(&said) || Instant::now() > deadline {
                return said;
            }
        }
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.stored("")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Waits until nothing is half done, as the host sees it.
    fn wait_until_settled(&self, host: usize) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let states = self.say(host, "states", "", &[]);
            if states.split_whitespace().all(|state| state == "live") {
                return states;
            }
            assert!(Instant::now() < deadline, "{states}");
        }
    }
}

fn is_busy(said: &str) -> bool {
    said.starts_with("refused") && said.contains("open elsewhere")
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, rest) = text.split_once("running 1 test\n").unwrap_or_else(|| panic!("{text}"));
    rest.split("test child ... ")
        .collect::<String>()
        .replace("ok\n", "")
        .split("\ntest result")
        .next()
        .unwrap()
        .trim()
        .to_owned()
}

/// A program on a host that has a file open until it is dropped.
struct Holder(Child);

impl Holder {
    fn start(bed: &Bed, host: usize, program: &str, name: &str) -> Self {
        let program = format!("import mmap, os, sys\n{program}\nprint(flush=True)\nsys.stdin.read()");
        let mut child = bed.command(host, "/usr/bin/python3");
        let mut child = child
            .args(["-c", &program])
            .arg(bed.data(name))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let read = BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new());
        assert_eq!(read.unwrap(), 1, "it has the file");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// A command that waits at steps.
struct Paused {
    child: Child,
    input: std::process::ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

impl Paused {
    /// It waits at the first of `steps`.
    fn start(bed: &Bed, host: usize, what: &str, name: &str, steps: &str) -> Self {
        let mut child = bed.child(host, what, name, &[(WAIT_AT, steps)]);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut paused = Self { child, input, output };
        paused.wait();
        paused
    }

    fn wait(&mut self) {
        let mut line = String::new();
        while !line.starts_with("at ") {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the command did not come to its step");
        }
    }

    fn go_on(&mut self) {
        writeln!(self.input).unwrap();
    }

    /// What it says in the end.
    fn end(mut self) -> String {
        self.go_on();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        rest
    }
}

const NEITHER: [&str; 4] = ["exchange", "noreplace", "leases", "birth-time"];

#[test]
fn a_file_that_a_program_of_any_host_has_open_is_not_applied_and_nothing_that_it_writes_is_lost() {
    for without in [&[][..], &NEITHER] {
        let Some(mut bed) = Bed::start(3, without) else { return };
        let bytes = pattern(200_000);
        std::fs::write(bed.stored("f"), &bytes).unwrap();
        for program in [
            "held = open(sys.argv[1], 'rb')",
            "f = open(sys.argv[1], 'r+b'); held = mmap.mmap(f.fileno(), 1, mmap.MAP_PRIVATE); f.close()",
        ] {
            for holder in [0, 1, 2] {
                let _holder = Holder::start(&bed, holder, program, "f");
                let said = bed.say(1, "apply", "f", &[]);
                assert!(said.contains("open elsewhere (python3 (process "), "{said}");
                assert_eq!(said.contains(&format!("on host h{holder}")), holder != 1, "{said}");
            }
        }
        // One that opens the file at the last moment.
        let opened = Paused::start(&bed, 1, "apply", "f", "apply: exchange noted");
        let late = Holder::start(&bed, 2, "held = open(sys.argv[1], 'r+b')", "f");
        let said = opened.end();
        assert!(said.contains("open elsewhere") && said.contains("on host h2"), "{said}");
        drop(late);
        // One that does so, and writes when the file has lost its name; the last hides it as well as it can.
        let mut expected = bytes.clone();
        for (at, hides) in [(5, ""), (70_000, "os.utime(held, ns=(found.st_atime_ns, found.st_mtime_ns))")] {
            let mut written = Paused::start(&bed, 1, "apply", "f", "apply: exchange noted,apply: exchanged");
            let program = format!(
                "held = os.open(sys.argv[1], os.O_RDWR); found = os.fstat(held)\nprint(flush=True); sys.stdin.readline()\nos.pwrite(held, b'LATE', {at}); {hides}; os.close(held)"
            );
            let mut writer = bed.command(2, "/usr/bin/python3");
            writer.args(["-c", &format!("import os, sys\n{}", program.replace("; ;", ";"))]).arg(bed.data("f"));
            let mut writer = writer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            BufReader::new(writer.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
            written.go_on();
            written.wait();
            assert!(bed.is_stub("f"), "the original has lost its name");
            writeln!(writer.stdin.take().unwrap()).unwrap();
            assert!(writer.wait().unwrap().success());
            let said = written.end();
            assert!(said.contains("refused"), "{said}");
            expected[at..at + 4].copy_from_slice(b"LATE");
            assert!(bed.digest_of(0, "f") == digest(&expected), "what was written late is there");
            assert_eq!((bed.names(), bed.wait_until_settled(0)), (vec!["f".to_owned()], String::new()));
        }
        // An editor that saves by a rename.
        let saved = Paused::start(&bed, 1, "apply", "f", "apply: exchange noted");
        std::fs::write(bed.stored("new"), b"saved").unwrap();
        std::fs::rename(bed.stored("new"), bed.stored("f")).unwrap();
        let said = saved.end();
        assert!(said.contains("changed by another program"), "{said}");
        assert_eq!((std::fs::read(bed.stored("f")).unwrap(), bed.names()), (b"saved".to_vec(), vec!["f".to_owned()]));

        // A host without agent cannot say.
        bed.stop_agent(2);
        let said = bed.say(1, "apply", "f", &[]);
        assert!(said.contains("host h2 has no agent") && said.contains("--unchecked-hosts h2"), "{said}");
        let said = bed.say(1, "apply", "f", &[(UNCHECKED, "h7")]);
        assert!(said.contains("no host h7 has used this cluster; those that have are h0, h1, h2"), "{said}");
        assert_eq!(bed.say(1, "apply", "f", &[(UNCHECKED, "h2")]), "done");
        assert!(bed.is_stub("f") && bed.digest_of(0, "f") == digest(b"saved"));
        let said = bed.do_when_free(1, "release", "f");
        assert!(said.contains("host h2 has no agent"), "{said}");
        bed.stripewise(0, &["host", "forget", "h2"]);
        assert_eq!(bed.do_when_free(1, "release", "f"), "done");
        assert_eq!((bed.digest_of(0, "f"), bed.names()), (digest(b"saved"), vec!["f".to_owned()]));
    }
}

/// Every step of a command is followed by a kill; the agents go on and settle what is left. Once on one of two hosts, and once on the only one.
#[test]
fn apply_and_release_killed_at_any_step_on_a_mount_with_neither_leases_nor_exchange_leave_a_whole_file() {
    for hosts in [2, 1] {
        let Some(bed) = Bed::start(hosts, &NEITHER) else { return };
        std::fs::write(bed.stored("f"), pattern(150_000)).unwrap();
        for what in ["apply", "release"] {
            kill_at_every_step(&bed, hosts - 1, what);
        }
    }
}

fn kill_at_every_step(bed: &Bed, host: usize, what: &str) {
    let bytes = pattern(150_000);
    let mut became = Vec::new();
    for step in 0.. {
        let is_there = bed.is_stub("f") == (what == "release");
        if !is_there {
            let back = if what == "apply" { "release" } else { "apply" };
            assert_eq!(bed.do_when_free(0, back, "f"), "done", "before step {step} of {what}");
        }
        let begin = || bed.child(host, what, "f", &[(STEP, &step.to_string())]).output().unwrap();
        let mut output = begin();
        while output.status.success() && is_busy(&said(&output)) {
            output = begin();
        }
        let ended = output.status.success();
        assert!(ended || output.status.signal() == Some(9), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(bed.names().contains(&"f".to_owned()), "{what}, step {step}: {:?}", bed.names());
        bed.wait_until_settled(0);
        assert_eq!(bed.names(), ["f"], "{what}, step {step}");
        assert!(bed.digest_of(0, "f") == digest(&bytes), "{what}, step {step}: the file is whole");
        became.push(bed.is_stub("f") == (what == "apply"));
        if ended {
            break;
        }
    }
    assert!(became.len() > 9 && became.is_sorted() && became.last() == Some(&true), "{what}: {became:?}");
}

/// The host never returns, or is the master's.
#[test]
fn a_half_finished_apply_on_a_host_that_never_returns_is_undone_or_finished_by_another() {
    let Some(mut bed) = Bed::start(3, &NEITHER) else { return };
    let bytes = pattern(150_000);
    // The last one is the master, which another host with other device numbers follows.
    for (host, step, is_managed) in [
        (2, "apply: copied", false),
        (2, "apply: original linked", false),
        (2, "apply: verified", false),
        (2, "apply: complete", true),
        (0, "apply: exchanged", false),
    ] {
        std::fs::write(bed.stored("f"), &bytes).unwrap();
        let paused = Paused::start(&bed, host, "apply", "f", step);
        bed.kill_host(host);
        let Paused { mut child, .. } = paused;
        child.wait().unwrap();
        // Not the objects, which a host that only lost its link may write yet: they go when it is back or forgotten.
        let deadline = Instant::now() + PATIENCE;
        let other = if host == 0 { 1 } else { 0 };
        while bed.names() != ["f"] || bed.say(other, "states", "", &[]).contains("importing") {
            assert!(Instant::now() < deadline, "{step}: {:?}", bed.names());
        }
        assert_eq!(bed.is_stub("f"), is_managed, "{step}");
        assert!(bed.digest_of(other, "f") == digest(&bytes), "{step}: the file is whole");
        bed.boot(host);
        let states = bed.wait_until_settled(other);
        assert_eq!(states, if is_managed { "live" } else { "" }, "{step}");
        if is_managed {
            assert_eq!(bed.do_when_free(other, "release", "f"), "done");
        }
    }
    let found = bed.stripewise(1, &["check"]);
    assert_eq!(found, "", "nothing is left over");
}

#[test]
fn a_host_that_does_not_see_what_others_change_is_refused_with_the_reason() {
    for (without, reason, fit) in [
        (
            "locks",
            "fcntl locks do not reach other hosts; on Lustre mount with flock",
            "not fit for managed files, fit for a server",
        ),
        (
            "coherence",
            "names that another host gives are not seen at once",
            "not fit for managed files, not fit for a server",
        ),
    ] {
        let Some(mut bed) = Bed::bare(2, &[without]) else { return };
        bed.init(&bed.common());
        bed.start_agent(0).unwrap();
        let data = bed.data("");
        let data = data.to_str().unwrap();
        let alone = bed.run(0, &["host", "probe", data]);
        let said = String::from_utf8_lossy(&alone.stderr).into_owned();
        assert!(said.contains("no other host has an agent") && said.contains("stripewise broker"), "{said}");
        bed.start_agent(1).unwrap();
        let probed = bed.run(1, &["host", "probe", data]);
        let shown = String::from_utf8_lossy(&probed.stdout).into_owned();
        assert!(shown.contains(fit), "{shown}");
        assert_eq!(probed.status.code(), Some(i32::from(without == "coherence")), "{shown}");
        let json = bed.run(1, &["host", "probe", data, "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        let of = if without == "locks" { "locks" } else { "names" };
        assert!(json["fit_for_stubs"] == false && json["hosts"][0][of].is_string(), "{json}");
        let refused = bed.run(0, &["manage", data]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(reason) && said.contains("host h"), "{said}");
        assert_eq!(bed.stripewise(0, &["manage"]).trim(), "");
        // Where there is one host, nobody can say: the second one's start does.
        bed.stop_agent(1);
        bed.stripewise(0, &["manage", data]);
        let said = bed.start_agent(1).unwrap_err();
        assert!(said.contains(reason) && said.contains(data.trim_end_matches('/')), "{said}");
        bed.stripewise(0, &["unmanage", data]);
        bed.start_agent(1).unwrap();
        assert_eq!(bed.names(), [""; 0], "probes leave nothing behind");
    }
    // Data on such a mount.
    let Some(mut bed) = Bed::bare(2, &["coherence"]) else { return };
    bed.init(&bed.shared());
    bed.start_agent(0).unwrap();
    let said = bed.start_agent(1).unwrap_err();
    assert!(said.contains("cannot be a directory of a server on several hosts"), "{said}");
}
