//! The schemas of `docs/schemas` are those of the types, and what commands print and write has their form. Every test target of this crate
//! that asks for `--json` checks the answer too (`support::Place::json`).

mod support;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use support::schema::{check, directory, faults, schema};
use support::{Place, write_profile};

/// STRIPEWISE_UPDATE_SCHEMAS=1 writes the files again.
#[test]
fn stored_schemas_are_those_of_the_types() {
    let place = Place::new();
    // Not by `Place::json`, which checks the list against a stored schema.
    let listed: Value = serde_json::from_str(&place.done(&["--json", "schema"])).unwrap();
    let names = listed["schemas"].as_array().unwrap().iter().map(|form| form["name"].as_str().unwrap());
    let generated: Vec<(&str, String)> = names.map(|name| (name, place.done(&["schema", name]))).collect();
    if std::env::var_os("STRIPEWISE_UPDATE_SCHEMAS").is_some() {
        for (name, text) in &generated {
            std::fs::write(directory().join(format!("{name}.json")), text).unwrap();
        }
    }
    for (name, text) in &generated {
        let path = directory().join(format!("{name}.json"));
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == *text,
            "{} is not what `stripewise schema {name}` prints; STRIPEWISE_UPDATE_SCHEMAS=1 writes it",
            path.display()
        );
    }
    let documented = std::fs::read_to_string(directory().join("../formats.md")).unwrap();
    for (name, _) in &generated {
        assert!(documented.contains(&format!("](schemas/{name}.json)")), "docs/formats.md has no link to {name}.json");
    }
    let stored = std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().file_name());
    let stored: BTreeSet<String> = stored.map(|name| name.into_string().unwrap()).collect();
    assert_eq!(stored, generated.iter().map(|(name, _)| format!("{name}.json")).collect());
}

#[test]
fn a_name_without_a_schema_is_refused() {
    let said = Place::new().say(&["schema", "nothing"]);
    assert_eq!(said.status, 2);
    assert!(said.err.contains("no schema `nothing`; `stripewise schema` lists them"), "{}", said.err);
}

/// A site whose targets are named as the cluster's servers.
const SITE: &str = r#"version = 1
fs = "lustre"
[[targets]]
class = "hdd"
names = ["h0", "h1"]
numbers = [0, 1]
device = "hdd-7200"
[[targets]]
class = "ssd"
names = ["s0", "s1"]
numbers = [2, 3]
bandwidth = "1GB/s"
latency_ms = 0.1
"#;

#[test]
fn files_and_outputs_of_a_planned_run_have_the_documented_forms() {
    let place = Place::with_cluster();
    write_profile(&place);
    let read = |name: &str| -> Value { serde_json::from_slice(&place.read(name)).unwrap() };
    check("profile-file", &read("profile.json"));
    place.write("data", &support::noise(3 << 20));
    let here = place.path("data").display().to_string();
    let mut csv = String::from(
        "node,pid,mpi_rank,mpi_size,level,operation,call,communicator,path,renamed_to,offset,bytes,errno,start_ns,end_ns\n",
    );
    for request in 0..48 {
        let (offset, start) = (request << 16, request * 1_000_000);
        csv += &format!("n,7,0,1,posix,read,pread,,{here},,{offset},65536,,{start},{}\n", start + 800_000);
    }
    place.write("trace.csv", csv.as_bytes());
    let planned = place.json(&["plan", "trace.csv", "--policy", "h2dp", "-o", "plan.json"]);
    check("plan-file", &planned["plan"]);
    check("plan-file", &read("plan.json"));
    let names: Vec<String> = planned.as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["command", "output", "plan", "version"]);
    place.json(&["plan", "trace.csv", "--policy", "all"]);
    place.json(&["explain", "plan.json"]);
    place.json(&["explain", "plan.json", "data:0"]);
    place.json(&[
        "simulate",
        "ior:pattern=zipf,region=1MiB,size=16MiB,transfer=64KiB,processes=4,op=read",
        "--servers",
        "2xhdd-7200,1xsata-ssd-2012:4MiB",
        "--region",
        "1MiB",
        "--policy",
        "def,h2dp",
        "--disk",
        "mechanical",
        "-o",
        "sim.json",
    ]);
    check("sim-file", &read("sim.json"));
    place.json(&["site", "example", "--fs", "lustre"]);
    place.write("site.toml", SITE.as_bytes());
    let exported = place.json(&["export", "plan.json", "--site", "site.toml", "-o", "layouts"]);
    assert!(exported["export"]["predicted"]["ideal"]["time_s"].as_f64().unwrap() > 0.0);
    assert!(place.read("layouts/layout.sh").starts_with(b"#!/bin/sh") && !place.read("layouts/0001.lyl").is_empty());
    place.json(&["apply", "plan.json", "--dry-run"]);
    place.json(&["apply", "plan.json"]);
    place.json(&["restripe", "data", "--layout", "<0B,64KiB>"]);
    place.json(&["migrate", "status"]);
    place.json(&["sync", "data"]);
    place.json(&["evacuate", "s1"]);
    place.json(&["evacuate", "s1", "--undo"]);
    place.json(&["rebalance", "--new", "s1"]);
    place.json(&["ls"]);
    place.json(&["stat", "data"]);
    place.json(&["check"]);
    place.json(&["release", "data"]);
    std::fs::create_dir(place.path("results")).unwrap();
    place.json(&["manage", "results"]);
    place.json(&["manage"]);
    place.json(&["unmanage", "results"]);
    place.json(&["unmanage", "--expected", "data"]);
    place.json(&["doctor", "/bin/ls"]);
    place.json(&["devices"]);
    place.json(&["reproduce", "--list"]);
}

#[test]
fn stored_plans_and_profiles_have_the_documented_forms() {
    let root = directory().join("../..");
    for (name, file) in [
        ("plan-file", "crates/planner/tests/fixtures/plan-version-1.json"),
        ("plan-file", "crates/fuzz/corpus/plan/version-1.json"),
        ("plan-file", "crates/fuzz/corpus/plan/moves-and-replicas.json"),
        ("profile-file", "crates/fuzz/corpus/profile/measured.json"),
    ] {
        let text = std::fs::read(root.join(file)).unwrap();
        check(name, &serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{file}: {error}")));
    }
}

/// A check that finds nothing would pass everywhere.
#[test]
fn wrong_values_are_found() {
    let place = Place::with_cluster();
    let right = place.json(&["devices"]);
    let schema = schema("devices");
    assert_eq!(faults(&schema, &right), [""; 0]);
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 6] = [
        ("$: ", |value| drop(value.as_object_mut().unwrap().remove("links"))),
        ("$.version: ", |value| value["version"] = json!(2)),
        ("$.command: ", |value| value["command"] = json!("ls")),
        ("$.news: ", |value| value["news"] = json!(1)),
        ("$.devices[0].channels: ", |value| value["devices"][0]["channels"] = json!(-1)),
        ("$.devices[1].read.random_s: ", |value| value["devices"][1]["read"]["random_s"] = json!("1 s")),
    ];
    for (place, change) in changes {
        let mut wrong = right.clone();
        change(&mut wrong);
        let found = faults(&schema, &wrong);
        assert!(found.len() == 1 && found[0].starts_with(place), "{place}: {found:?}");
    }
}
