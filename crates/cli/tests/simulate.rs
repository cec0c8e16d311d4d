//! `stripewise simulate`: benchmarks and traces, policies and plans, detail, and what it refuses.

mod support;

use serde_json::Value;
use stripewise_layout::{ByteCount, Direction};
use stripewise_trace::workload::{self, Pattern, TraceShape, Workload};
use support::Place;

const SERVERS: [&str; 6] = ["--servers", "3xhdd-7200,2xsata-ssd-2012:4MiB", "--link", "gigabit", "--region", "1MiB"];
const ZIPF: &str = "ior:pattern=zipf,region=1MiB,size=32MiB,transfer=64KiB,processes=4,op=read";

fn simulate(place: &Place, words: &[&str]) -> Value {
    let said = place.json(&[&["simulate"], words].concat());
    assert_eq!((&said["command"], &said["simulation"]["simulated"]), (&"simulate".into(), &true.into()));
    said["simulation"].clone()
}

fn mb_per_s(simulation: &Value, run: usize) -> f64 {
    simulation["runs"][run]["outcome"]["mb_per_s"].as_f64().unwrap()
}

#[test]
fn policies_are_planned_and_simulated_side_by_side() {
    let place = Place::new();
    let words = [&[ZIPF, "--policy", "def,h2dp,1-dv", "-o", "sim.json"], &SERVERS[..]].concat();
    let simulation = simulate(&place, &words);
    let names: Vec<&str> =
        simulation["runs"].as_array().unwrap().iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["def", "h2dp", "1-dv"]);
    for run in simulation["runs"].as_array().unwrap() {
        let outcome = &run["outcome"];
        assert_eq!(outcome["read"]["bytes"], 32 << 20, "{}", run["name"]);
        let slices = outcome["timeline"].as_array().unwrap();
        assert!((1..=120).contains(&slices.len()));
        assert_eq!(slices.iter().map(|slice| slice["read_bytes"].as_u64().unwrap()).sum::<u64>(), 32 << 20);
    }
    let saved: Value = serde_json::from_slice(&place.read("sim.json")).unwrap();
    assert_eq!(saved, simulation);
    assert_eq!(simulate(&place, &words), simulation, "the same seed gives the same figures");
    let text = place.done(&[&["simulate", ZIPF], &SERVERS[..]].concat());
    assert!(text.contains("All figures are simulated.") && text.contains("busiest: "), "{text}");
    place.done(&["report", "sim.json", "-o", "report.html"]);
    let page = String::from_utf8(place.read("report.html")).unwrap();
    for name in names {
        assert!(page.contains(&format!("Simulated bandwidth of {name} over time")), "{name}");
    }
    let said = place.say(&["report", "sim.json", "sim.json", "-o", "report.html"]);
    assert_eq!(said.err, "stripewise report: sim.json is a second simulation; a report shows one\n");
    place.write("old.json", b"{\"version\": 7, \"simulated\": true, \"runs\": []}");
    let said = place.say(&["report", "old.json", "-o", "report.html"]);
    assert!(said.err.contains("old.json: version 7 is not supported") && said.status == 2, "{}", said.err);
}

#[test]
fn detail_changes_the_figures_and_says_so() {
    let place = Place::new();
    let mean = simulate(&place, &[&[ZIPF], &SERVERS[..]].concat());
    let words = [&[ZIPF, "--disk", "mechanical", "--ssd", "parts"], &SERVERS[..]].concat();
    let detailed = simulate(&place, &words);
    let model = |simulation: &Value, server: usize| simulation["servers"][server]["model"].clone();
    assert_eq!([model(&mean, 0), model(&detailed, 0), model(&detailed, 4)], ["mean", "mechanical", "parts"]);
    // A small file lies at the disks' edge, where seeks are short.
    assert!(mb_per_s(&detailed, 0) > 1.5 * mb_per_s(&mean, 0));
    let cached = simulate(&place, &[&[ZIPF, "--cache", "1GiB"], &SERVERS[..]].concat());
    assert!(mb_per_s(&cached, 0) > 1.2 * mb_per_s(&mean, 0), "Zipf's requests meet each other in the cache");
}

#[test]
fn an_emulated_cluster_and_its_plan_are_simulated() {
    let place = Place::new();
    place.done(&[
        "init",
        "--emulated",
        "2xhdd-7200,1xsata-ssd-2012:8MiB",
        "--link",
        "gigabit",
        "--emulated-dir",
        "servers",
        "--region",
        "1MiB",
    ]);
    let hot = "ior:pattern=zipf,region=1MiB,size=16MiB,transfer=64KiB,processes=4,op=write,phases=2";
    let free = simulate(&place, &[hot, "--policy", "h2dp"]);
    assert_eq!(free["options"]["order"], "device-first");
    assert_eq!(free["servers"][2]["name"], "ssd0");
    let copied = simulate(&place, &[hot, "--policy", "h2dp", "--migrate", "copied"]);
    assert!(mb_per_s(&copied, 0) <= mb_per_s(&free, 0));
    assert_eq!(free["runs"][0]["outcome"]["phases"].as_array().unwrap().len(), 2);
}

/// A trace of two processes that read 64 KiB every 50 ms each.
fn write_trace(place: &Place) {
    let workload = Workload {
        pattern: Pattern::Strided,
        file_size: ByteCount(8 << 20),
        request_size: ByteCount(64 << 10),
        direction: Direction::Read,
        ranks: 2,
        requests_per_rank: 40,
        seed: 1,
    };
    std::fs::create_dir(place.path("run.trace")).unwrap();
    let shape = TraceShape { interval_ns: 50_000_000, ..TraceShape::default() };
    workload::write_trace(&workload.generator().unwrap(), &shape, &place.path("run.trace")).unwrap();
}

#[test]
fn traces_run_at_their_own_times_or_as_fast_as_the_servers_allow() {
    let place = Place::new();
    write_trace(&place);
    let time_s = |words: &[&str]| {
        let simulation = simulate(&place, &[&["run.trace"], words, &SERVERS].concat());
        assert_eq!(simulation["runs"][0]["outcome"]["read"]["requests"], 80, "{words:?}");
        simulation["runs"][0]["outcome"]["time_s"].as_f64().unwrap()
    };
    let (own, gaps, at_once) = (time_s(&["--trace-times"]), time_s(&["--closed"]), time_s(&["--no-think"]));
    // The last request begins after 39 x 50 ms.
    assert!((1.95..2.0).contains(&own), "{own}");
    assert!(gaps > 1.9 && at_once < 0.5 * own, "{gaps} {at_once}");
    let windows = simulate(&place, &[&["run.trace", "--trace-times", "--window", "500ms"], &SERVERS[..]].concat());
    assert_eq!(windows["runs"][0]["outcome"]["phases"].as_array().unwrap().len(), 4);
}

#[test]
fn what_cannot_be_simulated_is_said() {
    let place = Place::with_cluster();
    let fault = |words: &[&str]| place.say(&[&["simulate"], words].concat()).err;
    for (words, expected) in [
        (&[ZIPF][..], "server `h0`"),
        (&["gone.trace", "--servers", "nvme"], "gone.trace is neither a trace nor a benchmark"),
        (&[ZIPF, "--servers", "nvme", "--ssd", "parts"], "unknown SSD with parts `nvme`; known: sata-ssd-2012"),
        (&[ZIPF, "--servers", "paper-hdd", "--disk", "mechanical"], "known: hdd-7200"),
        (&[ZIPF, "--servers", "nvme", "--migrate-rate", "1MiB"], "--migrate-rate needs --migrate copied"),
        (&[ZIPF, "--servers", "nvme", "--order", "testbed", "--client-link", "gigabit"], "no client links"),
        (&[ZIPF, "--servers", "nvme", "--policy", "best"], "`best` is not a policy"),
        (&[ZIPF, "--servers", "nvme", "--plan", "gone.json"], "gone.json"),
        (&[ZIPF, "--servers", "nvme", "--no-think"], "the pace are for traces"),
    ] {
        let said = fault(words);
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}
