//! Interrupted, killed, disturbed, misled: the file is whole, and the next command says what it cleaned up.

mod support;

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use support::{Place, noise};

const SIZE: usize = 48 << 20;

/// One emulated disk, which takes its time, and a plan that puts `data` there.
fn slow_place() -> (Place, Vec<u8>) {
    let place = Place::new();
    place.done(&["init", "--emulated", "1xhdd-7200", "--emulated-dir", "servers", "--region", "4MiB"]);
    let data = noise(SIZE);
    place.write("data", &data);
    place.write("plan.json", plan(&place, "data").to_string().as_bytes());
    (place, data)
}

/// A plan of one file on server 0, as `stripewise plan` writes them.
fn plan(place: &Place, name: &str) -> Value {
    let toml = String::from_utf8(place.read("cluster.toml")).unwrap();
    let value = |key: &str| {
        let line = toml.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")).map(str::to_owned));
        line.unwrap().trim_matches('"').to_owned()
    };
    let servers: Vec<(String, String)> = toml
        .split("[[server]]")
        .skip(1)
        .map(|server| {
            let of = |key: &str| {
                let line = server.lines().find_map(|line| line.strip_prefix(&format!("{key} = "))).unwrap();
                line.trim_matches('"').to_owned()
            };
            (of("name"), of("class"))
        })
        .collect();
    let none = serde_json::json!({"requests": 0, "bytes": 0, "time_s": 0.0, "mb_per_s": 0.0, "spread": 0.0});
    let loads = vec![0.0; servers.len()];
    let predicted = serde_json::json!({"read": null, "write": null, "total": none, "server_load_s": loads});
    let gain = serde_json::json!({"low": 0.1, "expected": 0.2, "high": 0.3});
    let path = place.path(name).canonicalize().unwrap_or_else(|_| place.path(name));
    let placement = serde_json::json!({"region_size": value("region"), "layouts": [[[0, 1 << 20]]], "runs": [], "beyond": 0, "fallback": 0});
    serde_json::json!({
        "version": 1, "cluster": value("id"),
        "made_from": {"cluster_sha256": "", "profile_sha256": "", "trace_sha256": ""},
        "key": {"application": "app", "processes": 1}, "policy": "h2dp",
        "options": {"step": "4KiB", "seed": 1, "benefit_per_ssd_byte": false, "subtract_move_cost": false, "exact": false, "worth_runs": 10.0},
        "concurrency": {"processes": 1, "processes_per_node": 1}, "emulated": true,
        "verdict": {"apply": true, "reason": "apply: as a test", "place_bytes": 0, "place_s": 0.0, "move_bytes": 0, "move_s": 0.0, "saved_s": 1.0},
        "predicted": predicted, "default": predicted,
        "gain": {"read": null, "write": null, "total": gain},
        "servers": servers.iter().map(|(name, class)| serde_json::json!({"name": name, "class": class, "room_bytes": null, "used_bytes": 0})).collect::<Vec<_>>(),
        "files": [{"path": path, "pattern": path, "size_bytes": SIZE,
            "windows": [{"start_s": 0.0, "end_s": 600.0, "moves": [], "placement": placement}]}],
        "notes": []
    })
}

fn names(place: &Place) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

/// Starts a command and waits until a file that was not there before shows that it is at work.
fn at_work(place: &Place, words: &[&str]) -> Child {
    let before = names(place);
    let mut child = place.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while names(place) == before {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was seen at work");
        std::thread::yield_now();
    }
    child
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn ctrl_c_during_apply_leaves_the_file_as_it_was() {
    let (place, data) = slow_place();
    let before = names(&place);
    let child = at_work(&place, &["apply", "plan.json"]);
    signal(&child, "-INT");
    let said = place.said(child.wait_with_output().unwrap());
    assert_eq!(said.status, 2);
    assert_eq!(said.err, "stripewise apply: stopped before HERE/data was replaced; nothing was changed\n");
    assert!(place.read("data") == data && names(&place) == before);
    assert_eq!(place.json(&["ls"])["files"].as_array().unwrap().len(), 0);
}

#[test]
fn kill_during_apply_and_the_next_command_cleans_up() {
    let (place, data) = slow_place();
    let before = names(&place);
    let child = at_work(&place, &["apply", "plan.json"]);
    signal(&child, "-KILL");
    child.wait_with_output().unwrap();
    assert!(place.read("data") == data, "the original is whole");
    let next = place.say(&["ls"]);
    assert!(next.status == 0 && next.err.contains("cleaned up: ") && next.err.contains("HERE/data"), "{}", next.err);
    assert!(place.read("data") == data && names(&place) == before);
    place.done(&["apply", "plan.json"]);
    assert!(place.command(&["cat", "data"]).output().unwrap().stdout == data);
}

#[test]
fn release_interrupted_or_killed_leaves_the_managed_file() {
    let (place, data) = slow_place();
    place.done(&["apply", "plan.json"]);
    let before = names(&place);
    for (how, says) in [("-INT", "stopped before HERE/data was replaced; nothing was changed"), ("-KILL", "")] {
        let child = at_work(&place, &["release", "data"]);
        signal(&child, how);
        let said = place.said(child.wait_with_output().unwrap());
        assert!(said.err.contains(says), "{}", said.err);
        let next = place.say(&["ls"]);
        assert_eq!(next.err.contains("cleaned up: "), how == "-KILL", "{}", next.err);
        assert!(names(&place) == before && next.out.contains("HERE/data"), "{}", next.out);
        assert!(place.command(&["cat", "data"]).output().unwrap().stdout == data);
    }
    place.done(&["release", "data"]);
    assert!(place.read("data") == data);
}

#[test]
fn ctrl_c_during_a_copy_leaves_the_destination_as_it_was() {
    let (place, _) = slow_place();
    place.write("old", b"what stood here");
    place.done(&["cp", "--managed", "old", "target"]);
    let before = names(&place);
    let child = at_work(&place, &["cp", "data", "target"]);
    signal(&child, "-INT");
    let said = place.said(child.wait_with_output().unwrap());
    assert_eq!((said.status, said.err.as_str()), (2, "stripewise cp: stopped; HERE/target is as it was\n"));
    assert_eq!(names(&place), before);
    assert_eq!(place.command(&["cat", "target"]).output().unwrap().stdout, b"what stood here");
    assert_eq!(place.json(&["ls"])["files"].as_array().unwrap().len(), 1, "nothing of the copy stays");
}

#[test]
fn a_file_that_is_open_elsewhere_is_not_taken() {
    let (place, data) = slow_place();
    let holder = std::fs::File::options().write(true).open(place.path("data")).unwrap();
    for words in [&["apply", "plan.json"][..], &["apply", "plan.json", "--dry-run"]] {
        let said = place.say(words);
        assert_eq!(said.status, 2);
        assert!(
            said.err.contains("HERE/data is open elsewhere") && said.err.contains("close it there"),
            "{}",
            said.err
        );
    }
    drop(holder);
    assert!(place.read("data") == data);
    place.done(&["apply", "plan.json", "--dry-run"]);
}

#[test]
fn a_plan_for_other_servers_is_refused() {
    let (place, _) = slow_place();
    let mut other = plan(&place, "data");
    other["cluster"] = "0123456789abcdef".into();
    place.write("other.json", other.to_string().as_bytes());
    let said = place.say(&["apply", "other.json"]);
    assert_eq!(said.status, 2);
    assert!(said.err.contains("other.json") && said.err.contains("0123456789abcdef"), "{}", said.err);
    other = plan(&place, "data");
    other["version"] = 9.into();
    place.write("other.json", other.to_string().as_bytes());
    assert!(place.say(&["apply", "other.json"]).err.contains("version 9"));
}

#[test]
fn a_server_that_is_gone_is_named() {
    let place = Place::with_cluster();
    place.write("data", &noise(1 << 20));
    place.done(&["cp", "--managed", "data", "managed"]);
    std::fs::rename(place.path("h1"), place.path("away")).unwrap();
    for words in [&["cat", "managed"][..], &["cp", "--managed", "data", "other"], &["release", "managed"]] {
        let said = place.say(words);
        assert_eq!(said.status, 2, "{words:?}");
        assert!(said.err.contains("server h1"), "{words:?}: {}", said.err);
    }
    assert!(!place.path("other").exists() && place.read("managed").starts_with(b"stripewise stub"));
    std::fs::rename(place.path("away"), place.path("h1")).unwrap();
    place.done(&["release", "managed"]);
    assert_eq!(place.read("managed"), noise(1 << 20));
}

#[test]
fn what_a_full_ssd_does_not_hold_goes_to_the_disks() {
    let place = Place::new();
    std::fs::create_dir(place.path("h")).unwrap();
    std::fs::create_dir(place.path("s")).unwrap();
    place.done(&["init", "--region", "1MiB", "--server", "h=hdd:h", "--server", "s=ssd:s:2MiB"]);
    std::fs::create_dir(place.path("fast")).unwrap();
    place.done(&["manage", "fast", "--class", "ssd"]);
    let data = noise(4 << 20);
    place.write("data", &data);
    place.done(&["cp", "data", "fast/data"]);
    let stat = place.json(&["stat", "fast/data"])["files"][0].clone();
    assert_eq!(stat["servers"], serde_json::json!([{"name": "h", "bytes": 2 << 20}, {"name": "s", "bytes": 2 << 20}]));
    assert!(place.done(&["stat", "fast/data"]).contains("fallback: its servers were full"));
    assert_eq!(place.command(&["cat", "fast/data"]).output().unwrap().stdout, data);
}

#[test]
fn a_second_host_is_refused() {
    let place = Place::with_cluster();
    place.done(&["ls"]);
    let path = place.path("stripewise-state/host");
    let text = std::fs::read_to_string(&path).unwrap();
    let of_another = |line: &str| match line.split_once(' ') {
        Some((key @ ("machine" | "boot"), id)) => format!("{key} {}\n", "0".repeat(id.len() - 1) + "1"),
        Some(("name", name)) => format!("name not-{name}\n"),
        _ => format!("{line}\n"),
    };
    let other: String = text.lines().map(of_another).collect();
    assert_ne!(other, text);
    std::fs::write(&path, other).unwrap();
    let said = place.say(&["ls"]);
    assert_eq!(said.status, 2);
    assert!(
        said.err.contains("in use by host not-") && said.err.contains("delete HERE/stripewise-state/host"),
        "{}",
        said.err
    );
}
