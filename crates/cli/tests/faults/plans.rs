//! A slow place and plans for it, made by hand so that a test says where its file goes.

pub(crate) use crate::support::plan::{SIZE, plan};
use crate::support::{Place, noise};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// Four times as slow as the disk is: what happens meanwhile may itself take a while.
const TIME_SCALE: &str = "device=hdd-7200&time_scale=4";

/// One emulated disk, which takes its time, and a plan that puts `data` there.
pub(crate) fn slow_place() -> (Place, Vec<u8>) {
    let place = Place::new();
    place.done(&["init", "--emulated", "1xhdd-7200", "--emulated-dir", "servers", "--region", "4MiB"]);
    let cluster = String::from_utf8(place.read("cluster.toml")).unwrap();
    assert!(cluster.contains("device=hdd-7200"), "{cluster}");
    place.write("cluster.toml", cluster.replace("device=hdd-7200", TIME_SCALE).as_bytes());
    let data = noise(SIZE);
    place.write("data", &data);
    place.write("plan.json", plan(&place, "data").to_string().as_bytes());
    (place, data)
}

/// A cluster of directories, a file of 3 MiB and a plan that puts it on the first.
pub(crate) fn place_with_plan() -> Place {
    let place = Place::with_cluster();
    place.write("data", &noise(3 << 20));
    place.write("plan.json", plan(&place, "data").to_string().as_bytes());
    place
}

pub(crate) fn names(place: &Place) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

/// A profile of the place's servers by made-up lines.
pub(crate) fn profile(place: &Place) -> Value {
    let plan = plan(place, "data");
    let line = |alpha: f64| serde_json::json!({"alpha_s": alpha, "beta_s_per_byte": 1e-8, "r2": 0.99, "spread": 0.02, "samples": 40});
    let servers = plan["servers"].as_array().unwrap().iter().map(|server| {
        serde_json::json!({"name": server["name"], "class": server["class"], "read_sequential": line(1e-4), "read_random": line(0.01),
            "write_sequential": line(1e-4), "write_random": line(0.01)})
    });
    serde_json::json!({"version": 3, "cluster": plan["cluster"], "emulated": false, "measured_at": "2024-02-29T12:00:00Z",
        "servers": servers.collect::<Vec<_>>(), "network": {"e_s": 0.0, "t_s_per_byte": 0.0, "source": "local"}})
}

/// Starts a command and waits until a file that was not there before shows that it is at work.
pub(crate) fn at_work(place: &Place, words: &[&str]) -> Child {
    let before = names(place);
    let mut child = place.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while names(place) == before {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was seen at work");
        std::thread::yield_now();
    }
    child
}
