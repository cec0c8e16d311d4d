//! Planning while programs run.

use crate::serving::{Daemon, place_with_data, signal, spans, status, until};
use crate::support::{Place, preload, write_profile};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

/// Reads and writes 4 KiB at random places of three regions, named in the file `hot`, until there is a file `stop`, and compares with what it wrote.
const PROGRAM: &str = "\
import os, random
model = bytearray(open('original', 'rb').read())
random.seed(1)
data = os.open('data', os.O_RDWR)
rounds = 0
while True:
    if rounds % 64 == 0:
        if os.path.exists('stop'): break
        hot = [int(region) for region in open('hot').read().split()]
    at = (random.choice(hot) << 20) + (random.randrange(256) << 12)
    if rounds % 8 == 7:
        model[at:at + 4096] = random.randbytes(4096)
        assert os.pwrite(data, model[at:at + 4096], at) == 4096
    else:
        assert os.pread(data, 4096, at) == model[at:at + 4096], (rounds, at)
    if rounds == 1000: os.write(1, b'ready %d\\n' % os.getpid())
    rounds += 1
assert os.pread(data, len(model), 0) == model
open('model', 'wb').write(model)
";

const REGIONS: usize = 12;
const FIRST: [u64; 3] = [1, 5, 9];
const SECOND: [u64; 3] = [3, 4, 10];

/// Room for four of the regions on SSDs, and windows as short as they make sense.
const WORDS: [&str; 7] = ["--online", "--window", "300ms", "--ssd-room", "2MiB", "--migrate-bandwidth", "unlimited"];

fn place() -> Place {
    preload();
    let (place, _) = place_with_data(REGIONS);
    write_profile(&place);
    turn_to(&place, &FIRST);
    place
}

fn turn_to(place: &Place, hot: &[u64]) {
    crate::serving::put(place, "hot", &hot.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
}

/// The run, once its program is at work, and the program's process id.
fn run(place: &Place, words: &[&str]) -> (Child, u32) {
    let words = [&["run"], words, &["--", "python3", "-c", PROGRAM]].concat();
    let mut run = place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let process = line.strip_prefix("ready ").and_then(|process| process.trim_end().parse().ok());
    (run, process.expect(&line))
}

/// Regions that lie on SSDs, wholly or in part.
fn on_ssds(place: &Place) -> Vec<u64> {
    let is_on_ssd =
        |layout: &str| if layout.starts_with('<') { !layout.ends_with(",0B>") } else { layout.contains('s') };
    let spans = spans(place);
    spans
        .iter()
        .filter(|(_, _, layout)| is_on_ssd(layout))
        .flat_map(|(first, count, _)| *first..first + count)
        .collect()
}

fn are_on_ssds(place: &Place, hot: &[u64]) -> bool {
    let found = on_ssds(place);
    hot.iter().all(|region| found.contains(region))
}

fn stop(place: &Place, run: Child) -> String {
    place.write("stop", b"");
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(crate::serving::data_of(place) == place.read("model"), "the program's bytes");
    assert_eq!(place.json(&["check"])["findings"].as_array().unwrap().len(), 0);
    said
}

/// The hot set moves, and the regions after it, with every byte in its place.
#[test]
fn a_run_without_a_plan_moves_what_the_program_turns_to() {
    let place = place();
    let (run, _) = run(&place, &[&["--migrate"], &WORDS[..]].concat());
    until("the first hot set on SSDs", || are_on_ssds(&place, &FIRST));
    turn_to(&place, &SECOND);
    until("the second hot set on SSDs", || are_on_ssds(&place, &SECOND));
    let shown = status(&place);
    let online = &shown["online"];
    let number = |key: &str| online[key].as_u64().unwrap();
    assert_eq!((online["policy"].as_str(), online["window_s"].as_f64()), (Some("opt"), Some(0.3)), "{online}");
    assert!(number("files") == 1 && number("windows") >= 2 && number("moves_ordered") >= 6, "{online}");
    assert!(number("requests") >= number("requests_seen") && number("requests_seen") > 0, "{online}");
    let text = place.done(&["migrate", "status"]);
    assert!(text.contains("online     opt, every 300 ms; "), "{text}");
    let said = stop(&place, run);
    assert!(said.contains(" ordered; ") && said.contains(" requests of 1 file, "), "{said}");
}

/// A daemon that comes later than the program, beside its broker; a program that is killed; one that starts afterwards.
#[test]
fn a_daemon_watches_programs_that_come_and_die() {
    let place = place();
    let (mut first, program) = run(&place, &[]);
    let words = [&WORDS[..], &["--policy", "h2dp"]].concat();
    let daemon = Daemon::start(&place, &words);
    daemon.hear("another process serves");
    until("the first hot set on SSDs", || are_on_ssds(&place, &FIRST));
    // Broker and program.
    signal(first.id(), "-KILL");
    signal(program, "-KILL");
    first.wait().unwrap();
    until("the daemon serves", || status(&place)["online"]["windows"].as_u64() > Some(0));
    place.write("original", &crate::serving::data_of(&place));
    turn_to(&place, &SECOND);
    let (second, _) = run(&place, &[]);
    until("the second hot set on SSDs", || are_on_ssds(&place, &SECOND));
    stop(&place, second);
    assert_eq!(daemon.end("-TERM").0, Some(0));
}

#[test]
fn what_cannot_be_planned_by_is_refused() {
    let (place, _) = place_with_data(2);
    let refused = |words: &[&str], expected: &str| {
        let said = place.say(words);
        assert!(said.status == 2 && said.err.contains(expected), "{words:?}: {}", said.err);
    };
    refused(&["daemon", "--online"], "cannot read the profile profile.json");
    write_profile(&place);
    refused(&["daemon", "--online", "--plan", "plan.json"], "'--online' cannot be used with '--plan <PLAN>'");
    refused(&["run", "--migrate", "--online", "--plan", "p", "--", "true"], "cannot be used with '--plan <PLAN>'");
    refused(&["daemon", "--online", "--policy", "best"], "`best` is not a policy; use one of def, random");
    refused(&["daemon", "--online", "--window", "0"], "`0` is not a span of time");
    refused(&["daemon", "--online", "--window", "1ms"], "--window: 1 ms is too short to see what programs do");
    refused(&["daemon", "--online", "--decay", "2"], "--decay: 2 is not a weight");
    refused(&["daemon", "--window", "5s"], "--online");
    refused(&["daemon", "--online", "--windows", "phase"], "--windows phase: phases are those of a plan");
    refused(&["run", "--online", "--", "true"], "--online: nothing is moved without --migrate");
    let toml = String::from_utf8(place.read("profile.json")).unwrap().replace("\"h0\"", "\"other\"");
    place.write("profile.json", toml.as_bytes());
    refused(&["daemon", "--online"], "stripewise calibrate");
}

/// Every request is counted once, of the program and of its child, which is gone by then; those on other files are not.
#[test]
fn requests_are_counted_whatever_becomes_of_the_processes() {
    const COUNTED: &str = "\
import os, time
data, other = os.open('data', os.O_RDWR), os.open('original', os.O_RDONLY)
child = os.fork()
for number in range(700):
    assert len(os.pread(data, 4096, number << 12)) == 4096
    if child: os.pwrite(data, b'x' * 512, number << 12)
    os.pread(other, 10, 0)
if child == 0: os._exit(0)
assert os.waitpid(child, 0)[1] == 0
while not os.path.exists('stop'): time.sleep(0.01)
";
    let place = place();
    let words = [&["run", "--migrate"], &WORDS[..], &["--", "python3", "-c", COUNTED]].concat();
    let run = place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let requests = |key: &str| status(&place)["online"][key].as_u64();
    until("all requests", || requests("requests") >= Some(2100));
    assert_eq!(requests("requests"), Some(2100));
    assert!(requests("requests_seen") <= Some(2100));
    place.write("stop", b"");
    assert!(run.wait_with_output().unwrap().status.success());
}
