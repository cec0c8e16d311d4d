//! The dependency table of ARCHITECTURE.md is the one that `cargo metadata` finds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
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

#[test]
fn crates_use_only_what_the_table_allows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = documented(&std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap());
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(&root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found = Dependencies::new();
    for package in metadata["packages"].as_array().unwrap() {
        let short =
            |name: &serde_json::Value| name.as_str().and_then(|n| n.strip_prefix("stripewise-")).map(str::to_owned);
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
