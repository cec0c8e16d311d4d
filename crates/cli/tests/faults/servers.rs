//! Servers that are gone, fail or are full, and a second host.

use crate::support::{Place, noise};

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
