//! What must hold of a name when everybody who used it has ended, however they did.

use crate::support::{Place, Said};
use std::collections::BTreeSet;

/// How often a check is repeated until nothing more is to be repaired.
const CHECKS: usize = 4;

/// Repairs what can be; what is left must name the file, and the commands that decide.
pub(crate) fn repair(place: &Place, context: &str) -> Said {
    let mut said = place.say(&["check", "--repair"]);
    for _ in 0..CHECKS {
        if !said.out.lines().any(|line| line.starts_with("repaired")) {
            break;
        }
        said = place.say(&["check", "--repair"]);
    }
    assert!(said.status == 0 || said.status == 1, "{context}: {}{}", said.out, said.err);
    for finding in said.out.split("found     ").skip(1) {
        assert!(
            finding.contains("HERE/")
                && finding.contains("`stripewise rescue ")
                && finding.contains("`stripewise rm --id "),
            "{context}: {}",
            said.out
        );
    }
    said
}

/// At `name` stands nothing, or one whole file of `contents`, and no live managed file beside it has that name. Returns which it is.
pub(crate) fn one_of(place: &Place, name: &str, contents: &[&[u8]], context: &str) -> Option<usize> {
    let said = repair(place, context);
    let files = place.json(&["ls"]);
    let here = format!("HERE/{name}");
    let live: Vec<_> = files["files"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|file| file["path"] == *here && file["state"] == "live")
        .collect();
    let asked: BTreeSet<&str> =
        said.out.split("`stripewise rescue ").skip(1).filter_map(|rest| rest.split(' ').next()).collect();
    assert!(live.len() <= 1 + asked.len(), "{context}: {live:?}, {}", said.out);
    if !place.path(name).exists() {
        assert!(live.len() <= asked.len(), "{context}: {live:?}, {}", said.out);
        return None;
    }
    let output = place.command(&["cat", name]).output().unwrap();
    assert!(output.status.success(), "{context}: {}", String::from_utf8_lossy(&output.stderr));
    let found = contents.iter().position(|content| **content == output.stdout[..]);
    assert!(found.is_some(), "{context}: {} holds {} bytes that nobody wrote", name, output.stdout.len());
    found
}

/// Nothing but these names is left in the place's own directory.
pub(crate) fn nothing_beside(place: &Place, names: &[&str], context: &str) {
    let known = ["cluster.toml", "stripewise-state", "h0", "h1", "s0", "s1"];
    let left: Vec<_> = std::fs::read_dir(place.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !known.contains(&name.as_str()) && !names.contains(&name.as_str()))
        .collect();
    assert!(left.is_empty(), "{context}: {left:?}");
}
