//! The dependency table of ARCHITECTURE.md is the one that `cargo metadata` finds, and the preload library stays light.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

type Dependencies = BTreeMap<String, BTreeSet<String>>;

fn documented(text: &str) -> Dependencies {
    let mut rows: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if cells.len() == 5 {
            rows.push((cells[1].trim_matches('`').to_owned(), cells[3].to_owned()));
        }
    }
    let names: BTreeSet<String> = rows.iter().map(|(name, _)| name.clone()).collect();
    rows.iter()
        .map(|(name, may_use)| {
            let quoted: BTreeSet<String> =
                may_use.split('`').skip(1).step_by(2).map(str::to_owned).filter(|word| names.contains(word)).collect();
            let allowed = if may_use.starts_with("all but") {
                names.iter().filter(|other| *other != name && !quoted.contains(*other)).cloned().collect()
            } else {
                quoted
            };
            (name.clone(), allowed)
        })
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn metadata(arguments: &[&str]) -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline"])
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn crates_use_only_what_the_table_allows() {
    let table = documented(&std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap());
    let metadata = metadata(&["--no-deps"]);
    let mut found = Dependencies::new();
    for package in metadata["packages"].as_array().unwrap() {
        let short = |name: &serde_json::Value| match name.as_str()? {
            "stripewise" => Some("stripewise".to_owned()),
            name => name.strip_prefix("stripewise-").map(str::to_owned),
        };
        let Some(name) = short(&package["name"]) else { continue };
        let used = package["dependencies"].as_array().unwrap().iter();
        let used =
            used.filter(|dependency| dependency["kind"].is_null()).filter_map(|dependency| short(&dependency["name"]));
        found.insert(name, used.collect());
    }
    assert_eq!(
        table.keys().collect::<Vec<_>>(),
        found.keys().collect::<Vec<_>>(),
        "crates of the table and of the workspace"
    );
    for (name, used) in &found {
        let extra: Vec<_> = used.difference(&table[name]).collect();
        assert!(extra.is_empty(), "{name} uses {extra:?}, which ARCHITECTURE.md does not allow");
    }
}

/// What is loaded into every program of a user: each crate there is one more to build, to trust and to keep from locks and allocations.
const MAX_PRELOAD_CRATES: usize = 40;
/// Work of brokers and commands, never of a user's program.
const NOT_IN_PRELOAD: [&str; 11] = [
    "arrow-array",
    "arrow-schema",
    "csv",
    "heed",
    "lmdb-master-sys",
    "parquet",
    "rand",
    "rayon",
    "schemars",
    "serde_json",
    "stripewise-broker",
];

/// Names of all crates that `package` links and that its build scripts use, when cargo is run with `arguments`.
fn closure(package: &str, arguments: &[&str]) -> BTreeSet<String> {
    let host = Command::new("rustc").args(["--print", "host-tuple"]).output().unwrap();
    let host = String::from_utf8(host.stdout).unwrap();
    let metadata = metadata(&[&["--filter-platform", host.trim()], arguments].concat());
    let nodes: BTreeMap<&str, &serde_json::Value> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| (node["id"].as_str().unwrap(), node))
        .collect();
    let names: BTreeMap<&str, &str> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (package["id"].as_str().unwrap(), package["name"].as_str().unwrap()))
        .collect();
    let start = *names.iter().find(|(_, name)| **name == package).unwrap().0;
    let mut closure = BTreeSet::from([start]);
    let mut waiting = vec![start];
    while let Some(id) = waiting.pop() {
        for dependency in nodes[id]["deps"].as_array().unwrap() {
            let mut kinds = dependency["dep_kinds"].as_array().unwrap().iter().map(|kind| &kind["kind"]);
            let id = dependency["pkg"].as_str().unwrap();
            if kinds.any(|kind| kind.is_null() || kind == "build") && closure.insert(id) {
                waiting.push(id);
            }
        }
    }
    closure.into_iter().map(|id| names[id].to_owned()).collect()
}

/// Names of all crates that the preload library links where it is built by itself. `cargo metadata` would add what the features of the
/// command bring to the crates that both use.
fn linked_by_preload() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", "stripewise-preload", "--edges", "normal", "--prefix", "none", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    tree.lines().filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[test]
fn the_preload_library_links_nothing_heavy() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let mut builds =
        makefile.lines().filter(|line| line.contains("cargo build") && line.contains("stripewise-preload"));
    let by_itself = |line: &str| !line.contains("stripewise-cli") || line.contains("--no-default-features");
    assert!(builds.all(by_itself), "the preload library is built with the features of the command");
    let closure = linked_by_preload();
    let heavy: Vec<_> = NOT_IN_PRELOAD.iter().filter(|name| closure.contains(**name)).collect();
    assert!(heavy.is_empty(), "the preload library links {heavy:?}");
    assert!(
        closure.len() <= MAX_PRELOAD_CRATES,
        "the preload library links {} crates, {MAX_PRELOAD_CRATES} are allowed: {closure:?}",
        closure.len()
    );
}

/// `make demo` builds from nothing on small machines, so what it does not run is not built for it.
#[test]
fn the_demo_is_built_without_arrow_and_parquet() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let build = makefile.lines().find(|line| line.contains("cargo build --profile demo")).unwrap();
    assert!(build.contains("--package stripewise-cli") && build.contains("--no-default-features"), "{build}");
    let heavy = |arguments: &[&str]| -> Vec<String> {
        let is_heavy =
            |name: &String| ["arrow", "parquet", "schemars", "zstd"].iter().any(|heavy| name.starts_with(heavy));
        closure("stripewise-cli", arguments).into_iter().filter(is_heavy).collect()
    };
    assert!(!heavy(&[]).is_empty(), "the command links Parquet by default");
    assert_eq!(heavy(&["--no-default-features"]), [""; 0]);
}
