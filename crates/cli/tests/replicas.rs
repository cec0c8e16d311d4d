//! Replicas as a person meets them: a plan has them, `apply` makes them, a write takes them off, `sync` brings them back.

mod support;

#[allow(dead_code, reason = "shared with another test")]
#[path = "faults/plans.rs"]
mod plans;

use plans::plan;
use serde_json::{Value, json};
use support::{Place, noise, preload};

/// A cluster of directories and a plan that puts `data` on the first disk, with replicas on both SSDs.
fn place_with_replicas() -> Place {
    let place = Place::with_cluster();
    let mut plan = plan(&place, "data");
    plan["version"] = json!(2);
    plan["files"][0]["size_bytes"] = json!(3 << 20);
    let window = &mut plan["files"][0]["windows"][0];
    window["placement"]["runs"] = json!([{"regions": 3, "layout": 0}]);
    window["replicas"] = json!([{"first": 0, "regions": 3, "layout": [[2, 65536], [3, 65536]]}]);
    place.write("plan.json", plan.to_string().as_bytes());
    place
}

fn stat(place: &Place) -> Value {
    place.json(&["stat", "data"])["files"][0].clone()
}

fn replicas(place: &Place) -> (u64, u64) {
    let stat = stat(place);
    (stat["replicas"].as_u64().unwrap(), stat["replicas_fresh"].as_u64().unwrap())
}

/// Writes one byte into the second region through a redirected program.
const WRITE: &str = "import os; data = os.open('data', os.O_RDWR | os.O_CREAT); os.pwrite(data, b'x', (1 << 20) + 5)";

#[test]
fn replicas_of_a_plan_are_made_kept_fresh_and_read_when_a_disk_is_lost() {
    preload();
    let place = place_with_replicas();
    let mut data = noise(3 << 20);
    place.write("data", &data);
    let applied = place.json(&["apply", "plan.json"]);
    assert_eq!(applied["files"][0]["replicas"], 3);
    assert_eq!(replicas(&place), (3, 3));
    let bytes = |name: &str, bytes: u64, replica_bytes: u64| {
        let held = bytes + replica_bytes;
        json!({"name": name, "bytes": bytes, "replica_bytes": replica_bytes, "promised_bytes": held, "held_bytes": held})
    };
    let half = 3 << 19;
    assert_eq!(stat(&place)["servers"], json!([bytes("h0", 3 << 20, 0), bytes("s0", 0, half), bytes("s1", 0, half)]));
    let expected = json!([{"layout": "<0B,64KiB>", "fresh": true}]);
    assert_eq!(stat(&place)["spans"][0]["replicas"], expected);
    let shown = place.done(&["stat", "data"]);
    assert!(shown.contains("replicas  3, 3 fresh") && shown.contains("replica, fresh"), "{shown}");
    data[(1 << 20) + 5] = b'x';
    place.done(&["run", "--", "python3", "-c", WRITE]);
    // Whether the run's own broker came to it or not.
    place.done(&["sync", "data"]);
    assert_eq!(replicas(&place), (3, 3));
    let synced = place.json(&["sync", "data"]);
    let (wanted, fresh) = (&synced["files"][0]["wanted"], &synced["files"][0]["fresh"]);
    assert_eq!((wanted, fresh), (&json!(3), &json!(3)));
    std::fs::rename(place.path("h0"), place.path("away")).unwrap();
    let read = place.command(&["cat", "data"]).output().unwrap();
    assert!(read.status.success() && read.stdout == data, "{}", String::from_utf8_lossy(&read.stderr));
    let found = place.say(&["check"]);
    assert_eq!(found.status, 1, "{}", found.err);
    std::fs::rename(place.path("away"), place.path("h0")).unwrap();
    assert_eq!(place.say(&["check"]).status, 0);
    // An ordinary file again, without a trace of them.
    place.done(&["release", "data"]);
    assert!(place.read("data") == data);
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn a_file_that_is_yet_to_be_made_gets_its_replicas_too() {
    preload();
    let place = place_with_replicas();
    place.done(&["apply", "plan.json"]);
    place.done(&["run", "--", "python3", "-c", WRITE]);
    place.done(&["sync", "data"]);
    // The second region alone was written.
    assert_eq!(replicas(&place), (1, 1));
    std::fs::rename(place.path("s0"), place.path("away")).unwrap();
    assert_eq!(place.done(&["cat", "data"]).len(), (1 << 20) + 6, "a replica that is lost is not missed");
}

#[test]
fn what_cannot_be_synced_is_said() {
    let place = plans::place_with_plan();
    place.done(&["apply", "plan.json"]);
    let said = place.say(&["sync", "data"]);
    assert_eq!(said.status, 0);
    assert!(said.err.contains("data is to have no replicas"), "{}", said.err);
    place.write("ordinary", b"x");
    let said = place.say(&["sync", "ordinary"]);
    assert!(said.status == 2 && said.err.contains("ordinary is not a managed file"), "{}", said.err);
    // No space for replicas: the plan is applied all the same, and it is said what lacks.
    let full = place_with_replicas();
    let toml = String::from_utf8(full.read("cluster.toml")).unwrap();
    full.write("cluster.toml", toml.replace("\"64MiB\"", "\"1MiB\"").as_bytes());
    full.write("data", &noise(3 << 20));
    let said = full.say(&["apply", "plan.json"]);
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(said.err.contains("missing of 3: region") && said.err.contains("server s"), "{}", said.err);
    assert_eq!(full.say(&["sync", "data"]).status, 1);
}
