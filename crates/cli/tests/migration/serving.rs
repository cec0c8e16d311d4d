//! A daemon under test, and what is seen of files.

use crate::support::{Place, noise};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster as of [`Place::with_cluster`] with a managed file `data` on both disks; its bytes.
pub(crate) fn place_with_data(regions: usize) -> (Place, Vec<u8>) {
    let place = Place::with_cluster();
    let data = manage_data(&place, regions);
    (place, data)
}

pub(crate) fn manage_data(place: &Place, regions: usize) -> Vec<u8> {
    let data = noise(regions << 20);
    place.write("original", &data);
    place.done(&["cp", "--managed", "original", "data"]);
    place.done(&["restripe", "data", "--layout", "<64KiB,0>"]);
    data
}

pub(crate) struct Daemon {
    child: Child,
    lines: Receiver<String>,
}

impl Daemon {
    /// `stripewise daemon WORDS`, once it serves.
    pub(crate) fn start(place: &Place, words: &[&str]) -> Self {
        let words = [&["daemon"], words].concat();
        let mut child = place.command(&words).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let said = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    pub(crate) fn serving(place: &Place, words: &[&str]) -> Self {
        let daemon = Self::start(place, words);
        daemon.hear("serving ");
        daemon
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line with this in it; that line.
    pub(crate) fn hear(&self, expected: &str) -> String {
        let mut before = Vec::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else { panic!("no `{expected}` after {before:?}") };
            if line.contains(expected) {
                return line;
            }
            before.push(line);
        }
    }

    /// Ends it by a signal; its status and what else it said.
    pub(crate) fn end(mut self, signal_name: &str) -> (Option<i32>, Vec<String>) {
        signal(self.process(), signal_name);
        let status = self.child.wait().unwrap();
        (status.code(), self.lines.iter().collect())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

/// (first region, regions, layout) of `data`.
pub(crate) fn spans(place: &Place) -> Vec<(u64, u64, String)> {
    let shown = place.json(&["stat", "data"]);
    let spans = shown["files"][0]["spans"].as_array().unwrap().iter();
    spans
        .map(|span| {
            let number = |key: &str| span[key].as_u64().unwrap();
            (number("first_region"), number("regions"), span["layout"].as_str().unwrap().to_owned())
        })
        .collect()
}

/// All of `data` in one layout.
pub(crate) fn whole(regions: u64, layout: &str) -> Vec<(u64, u64, String)> {
    vec![(0, regions, layout.to_owned())]
}

pub(crate) fn data_of(place: &Place) -> Vec<u8> {
    let output = place.command(&["cat", "data"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

pub(crate) fn status(place: &Place) -> Value {
    place.json(&["migrate", "status"])
}

/// Asks until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it never came: {what}");
        std::thread::yield_now();
    }
}

/// Until a move copies.
pub(crate) fn until_copying(place: &Place) {
    until("a move that copies", || {
        status(place)["moves"].as_array().unwrap().iter().any(|one| one["state"] == "copying")
    });
}

/// A plan of `data` with a window for each of these placements, each a list of layouts with the number of its regions.
pub(crate) fn plan(place: &Place, starts_s: &[f64], windows: &[&[(u32, Value)]]) -> Value {
    let mut plan = crate::plans::plan(place, "data");
    let ends_s = starts_s.iter().skip(1).copied().chain([1e6]);
    let planned = starts_s.iter().zip(ends_s).zip(windows).map(|((start_s, end_s), window)| {
        let layouts: Vec<&Value> = window.iter().map(|(_, layout)| layout).collect();
        let runs: Vec<Value> = (0..)
            .zip(*window)
            .map(|(number, (regions, _)): (u32, _)| serde_json::json!({"regions": regions, "layout": number}))
            .collect();
        serde_json::json!({"start_s": start_s, "end_s": end_s, "moves": [],
            "placement": {"region_size": "1MiB", "layouts": layouts, "runs": runs, "beyond": 0, "fallback": 0}})
    });
    plan["files"][0]["windows"] = planned.collect();
    plan
}

/// A stripe of 64 KiB on one server.
pub(crate) fn on(server: u16) -> Value {
    serde_json::json!([[server, 65536]])
}

/// Puts the plan in place at once, as `stripewise plan -o` does.
pub(crate) fn put(place: &Place, name: &str, text: &str) {
    place.write("unfinished", text.as_bytes());
    std::fs::rename(place.path("unfinished"), place.path(name)).unwrap();
}
