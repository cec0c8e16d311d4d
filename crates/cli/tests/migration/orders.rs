//! Moves ordered by hand.

use crate::serving::{
    Daemon, data_of, manage_data, place_with_data, signal, spans, status, until, until_copying, whole,
};
use crate::support::{Place, preload};
use std::process::Stdio;

/// Writes at random places and compares what it reads with what it wrote, until there is a file `stop`; says how often.
const PROGRAM: &str = "\
import os, random, sys
model = bytearray(open('original', 'rb').read())
random.seed(1)
data = os.open('data', os.O_RDWR)
rounds = 0
while rounds < 50 or not os.path.exists('stop'):
    at, length = random.randrange(len(model) - 70000), random.randrange(1, 70000)
    model[at:at + length] = random.randbytes(length)
    assert os.pwrite(data, model[at:at + length], at) == length
    at, length = random.randrange(len(model) - 300000), random.randrange(1, 300000)
    assert os.pread(data, length, at) == model[at:at + length], (rounds, at, length)
    if rounds == 0: os.write(1, b'ready\\n')
    rounds += 1
assert os.pread(data, len(model), 0) == model
open('model', 'wb').write(model)
";

#[test]
fn a_program_reads_and_writes_while_its_file_is_restriped() {
    preload();
    let (place, _) = place_with_data(6);
    let mut command = place.command(&["run", "--", "python3", "-c", PROGRAM]);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = std::io::BufReader::new(run.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    for layout in ["<0B,64KiB>", "h0 4KiB, s1 16KiB", "<64KiB,0B>", "s0 1MiB", "<4KiB,128KiB>"] {
        place.done(&["restripe", "data", "--layout", layout]);
        assert_eq!(spans(&place), whole(6, layout));
    }
    place.done(&["evacuate", "s1"]);
    assert_eq!(spans(&place), whole(6, "h0..h1 4KiB, s0 128KiB"));
    place.done(&["restripe", "data", "--layout", "h1 64KiB", "--region", "2..3"]);
    place.write("stop", b"");
    let said = place.said(run.wait_with_output().unwrap());
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(data_of(&place) == place.read("model"), "the file holds what the program wrote");
    let drained = "h0..h1 4KiB, s0 128KiB";
    let expected = [(0, 2, drained), (2, 2, "h1 64KiB"), (4, 2, drained)];
    assert_eq!(spans(&place), expected.map(|(first, regions, layout)| (first, regions, layout.to_owned())));
    let findings = place.json(&["check"]);
    assert_eq!(findings["findings"].as_array().unwrap().len(), 0, "{findings}");
}

/// Every other piece is written by a forked child, the others by a program that is executed and gets nothing but the descriptor and its position.
const FORKING: &str = "\
import os, random, subprocess
model = bytearray(open('original', 'rb').read())
random.seed(2)
data = os.open('data', os.O_RDWR)
rounds = 0
while rounds < 6 or not os.path.exists('stop'):
    at = random.randrange(len(model) - 70000)
    piece = random.randbytes(random.randrange(1, 70000))
    if rounds % 2:
        child = os.fork()
        if child == 0:
            os._exit(0 if os.pwrite(data, piece, at) == len(piece) else 1)
        assert os.waitpid(child, 0)[1] == 0
    else:
        os.lseek(data, at, os.SEEK_SET)
        subprocess.run(['cat'], input=piece, stdout=data, check=True)
        assert os.lseek(data, 0, os.SEEK_CUR) == at + len(piece)
    model[at:at + len(piece)] = piece
    at, length = random.randrange(len(model) - 300000), random.randrange(1, 300000)
    assert os.pread(data, length, at) == model[at:at + length], (rounds, at, length)
    if rounds == 0: os.write(1, b'ready\\n')
    rounds += 1
assert os.pread(data, len(model), 0) == model
open('model', 'wb').write(model)
";

#[test]
fn a_program_forks_and_executes_others_while_its_file_is_restriped() {
    preload();
    let (place, _) = place_with_data(3);
    let mut command = place.command(&["run", "--", "python3", "-c", FORKING]);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = std::io::BufReader::new(run.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    for layout in ["<0B,64KiB>", "h0 4KiB, s1 16KiB"] {
        place.done(&["restripe", "data", "--layout", layout]);
        assert_eq!(spans(&place), whole(3, layout));
    }
    place.write("stop", b"");
    let said = place.said(run.wait_with_output().unwrap());
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(data_of(&place) == place.read("model"), "the file holds what they wrote");
    assert_eq!(place.json(&["check"])["findings"].as_array().unwrap().len(), 0);
}

#[test]
fn a_plan_gives_the_layouts_and_regions_to_come_follow() {
    let (place, data) = place_with_data(3);
    let plan = crate::serving::plan(&place, &[0.0], &[&[(1, crate::serving::on(2)), (2, crate::serving::on(3))]]);
    place.write("plan.json", plan.to_string().as_bytes());
    let shown = place.json(&["restripe", "data", "--plan", "plan.json"]);
    assert_eq!((&shown["regions"], &shown["moved"]), (&3.into(), &3.into()));
    assert_eq!(spans(&place), [(0, 1, "s0 64KiB".to_owned()), (1, 2, "s1 64KiB".to_owned())]);
    assert!(place.say(&["restripe", "data", "--plan", "plan.json"]).err.contains("has that layout already"));
    place.done(&["restripe", "data", "--layout", "<4KiB,4KiB>"]);
    place.write("longer", &[&data[..], &data[..]].concat());
    place.done(&["cp", "longer", "data"]);
    assert_eq!(spans(&place), whole(6, "<4KiB,4KiB>"));
}

#[test]
fn ctrl_c_cancels_what_is_not_committed() {
    let (place, data) = place_with_data(4);
    // So slow that no region is moved within the test.
    let daemon = Daemon::serving(&place, &["--migrate-bandwidth", "16KiB"]);
    let mut command = place.command(&["restripe", "data", "--layout", "<0B,64KiB>"]);
    let restripe = command.stderr(Stdio::piped()).spawn().unwrap();
    until_copying(&place);
    signal(restripe.id(), "-INT");
    let said = place.said(restripe.wait_with_output().unwrap());
    let expected = "stripewise restripe: stopped: 0 of 4 regions were moved, the others stay where they were; nothing is half moved\n";
    assert_eq!((said.status, said.err.as_str()), (130, expected));
    assert_eq!(spans(&place), whole(4, "<64KiB,0B>"));
    assert!(data_of(&place) == data);
    let totals = &status(&place)["totals"];
    assert_eq!((&totals["queued"], &totals["active"], &totals["cancelled"]), (&0.into(), &0.into(), &4.into()));
    assert_eq!(daemon.end("-TERM").0, Some(0));
    assert_eq!(place.json(&["check"])["findings"].as_array().unwrap().len(), 0);
}

/// Without a daemon the command itself serves, and all ends with it.
#[test]
fn ctrl_c_without_a_daemon_leaves_every_region_whole() {
    let place = Place::new();
    place.done(&["init", "--emulated", "2xhdd-7200", "--emulated-dir", "servers", "--region", "4MiB"]);
    let data = manage_data(&place, 32);
    let layouts = ["hdd1 64KiB", "hdd0 64KiB"];
    // One that is at its end before the signal comes is no loss.
    let (said, layout) = layouts
        .iter()
        .cycle()
        .find_map(|layout| {
            let mut command = place.command(&["restripe", "data", "--layout", layout]);
            let mut restripe = command.stderr(Stdio::piped()).spawn().unwrap();
            let is_copying = || {
                let shown = status(&place);
                shown["moves"].as_array().unwrap().iter().any(|one| one["state"] == "copying")
            };
            until("a move or its end", || is_copying() || restripe.try_wait().unwrap().is_some());
            if restripe.try_wait().unwrap().is_none() {
                signal(restripe.id(), "-INT");
            }
            let said = place.said(restripe.wait_with_output().unwrap());
            (said.status != 0).then_some((said, *layout))
        })
        .unwrap();
    assert_eq!(said.status, 130, "{}", said.err);
    let moved = said.err.strip_prefix("stripewise restripe: stopped: ").unwrap_or_else(|| panic!("{}", said.err));
    let moved: u64 = moved.split(' ').next().unwrap().parse().unwrap();
    let there =
        spans(&place).iter().filter(|(_, _, found)| found == layout).map(|(_, regions, _)| regions).sum::<u64>();
    assert!(there == moved && moved < 8, "{moved} {there}");
    assert!(data_of(&place) == data);
    assert_eq!(place.json(&["check"])["findings"].as_array().unwrap().len(), 0);
}

#[test]
fn moves_are_paused_limited_cancelled_and_resumed() {
    let (place, data) = place_with_data(4);
    let words = ["restripe", "data", "--layout", "<0B,64KiB>", "--background"];
    let said = place.say(&words);
    assert!(said.status == 2 && said.err.contains("no daemon serves the cluster"), "{}", said.err);
    for action in ["pause", "resume"] {
        let said = place.say(&["migrate", action]);
        assert!(said.status == 2 && said.err.contains("no other process serves the cluster"), "{}", said.err);
    }
    let daemon = Daemon::serving(&place, &["--migrate-bandwidth", "16KiB"]);
    assert_eq!(status(&place)["daemon"], daemon.process());
    place.done(&words);
    until_copying(&place);
    let shown = place.json(&["migrate", "pause"]);
    assert_eq!(shown["totals"]["paused"], "by `stripewise migrate pause`");
    assert_eq!(shown["totals"]["bandwidth"], "16KiB/s");
    let numbers: Vec<u64> =
        shown["moves"].as_array().unwrap().iter().map(|one| one["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers.len(), 4);
    let last = numbers[3].to_string();
    assert!(place.say(&["migrate", "cancel", &last]).err.contains("1 move cancelled"));
    let said = place.say(&["migrate", "cancel", &last]);
    assert!(said.status == 2 && said.err.contains(&format!("move {last} has ended (cancelled)")), "{}", said.err);
    let said = place.say(&["migrate", "cancel", "999"]);
    assert!(said.status == 2 && said.err.contains("there is no move 999"), "{}", said.err);
    assert!(place.say(&["migrate", "cancel", "data"]).err.contains("3 moves cancelled"));
    until("an empty queue", || status(&place)["totals"]["cancelled"] == 4);
    assert_eq!(spans(&place), whole(4, "<64KiB,0B>"));
    // Still paused: ordered, but not begun.
    place.done(&words);
    assert_eq!(status(&place)["totals"]["queued"], 4);
    let mut waiting = place.command(&["migrate", "wait"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(waiting.stderr.take().unwrap()), &mut line).unwrap();
    let expected = "stripewise migrate: moves are paused (by `stripewise migrate pause`); `stripewise migrate resume` lets them go on\n";
    assert_eq!(line, expected);
    place.done(&["migrate", "bandwidth", "unlimited"]);
    place.done(&["migrate", "resume"]);
    assert!(waiting.wait().unwrap().success());
    assert_eq!(spans(&place), whole(4, "<0B,64KiB>"));
    assert!(data_of(&place) == data);
    assert_eq!(daemon.end("-INT"), (Some(0), Vec::new()));
}

#[test]
fn what_cannot_be_ordered_is_refused_by_name() {
    let (place, data) = place_with_data(2);
    place.write("plain", b"text");
    for (words, expected) in [
        (&["restripe", "plain", "--layout", "<0,4KiB>"][..], "plain is not a managed file"),
        (&["restripe", "data", "--layout", "h7 4KiB"], "no server `h7` in the cluster; its servers are h0, h1, s0, s1"),
        (&["restripe", "data", "--layout", "fast"], "as `stripewise stat` shows it"),
        (&["restripe", "data", "--layout", "<0,4KiB>", "--region", "3..1"], "`3..1` names no regions"),
        (&["restripe", "data", "--plan", "gone.json"], "gone.json"),
        (&["migrate", "bandwidth", "0"], "a bandwidth of 0 moves nothing"),
        (&["migrate", "bandwidth", "50"], "`50` has no unit; write bytes per second with one, as in 50MB/s or 50MiB/s"),
        (&["daemon", "--migrate-bandwidth", "1000000"], "`1000000` has no unit"),
        (&["migrate", "bandwidth", "soon"], "`soon` is not a rate; write bytes per second, as in 50MB/s"),
        (&["phase", "a b"], "is no name of a phase"),
        (&["phase", "a"], "no daemon answers at HERE/stripewise-state/run/daemon.sock"),
        (&["daemon", "--windows", "phase"], "there is no plan to follow"),
        (&["daemon", "--metrics", "0.0.0.0:0"], "only this host may ask"),
        (&["daemon", "--plan", "gone.json"], "gone.json"),
        (&["run", "--migrate", "--", "true"], "no plan was applied"),
        (&["run", "--windows", "phase", "--", "true"], "nothing is moved without --migrate"),
    ] {
        let said = place.say(words);
        assert!(said.status == 2 && said.err.contains(expected), "{words:?} says {} {}", said.status, said.err);
    }
    let mut plan = crate::serving::plan(&place, &[0.0], &[&[(1, crate::serving::on(2))]]);
    plan["files"][0]["windows"][0]["placement"]["region_size"] = "2MiB".into();
    place.write("plan.json", plan.to_string().as_bytes());
    let said = place.say(&["restripe", "data", "--plan", "plan.json"]);
    assert!(said.err.contains("2 MiB") && said.err.contains("1 MiB"), "{}", said.err);
    assert_eq!(spans(&place), whole(2, "<64KiB,0B>"));
    assert!(data_of(&place) == data);
}

#[test]
fn a_layout_is_refused_that_the_servers_have_no_space_for() {
    let place = Place::with_cluster();
    let cluster = String::from_utf8(place.read("cluster.toml")).unwrap();
    let limited = cluster.replace("capacity = \"64MiB\"", "capacity = \"2MiB\"\nreserve = \"0\"");
    assert_ne!(limited, cluster);
    place.write("cluster.toml", limited.as_bytes());
    let data = manage_data(&place, 4);
    let refused = place.say(&["restripe", "data", "--layout", "s0 64KiB"]);
    let expected =
        "stripewise restripe: server s0 has space for 2 MiB more, and the moves need 4 MiB there; nothing was moved.";
    assert!(refused.status == 2 && refused.err.starts_with(expected), "{}", refused.err);
    assert_eq!(spans(&place), whole(4, "<64KiB,0B>"));
    // Half of it fits, and then another layout on the full server.
    place.done(&["restripe", "data", "--region", "0..1", "--layout", "s0 64KiB"]);
    place.done(&["restripe", "data", "--region", "0..1", "--layout", "h0 4KiB, s0 64KiB"]);
    assert_eq!(spans(&place)[0], (0, 2, "h0 4KiB, s0 64KiB".to_owned()));
    assert!(data_of(&place) == data);
}
