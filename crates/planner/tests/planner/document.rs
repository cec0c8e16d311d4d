//! `docs/policies.md` against the table of policies.

use stripewise_planner::{PolicyName, reference};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policies.md");
const HEAD: &str = "| policy | source |";

/// STRIPEWISE_UPDATE_DOCS=1 writes the table again; the sections are written by hand.
#[test]
fn the_table_of_policies_is_that_of_the_document() {
    let text = std::fs::read_to_string(PATH).unwrap();
    let begin = text.find(HEAD).expect("the document has the table");
    let end = begin + text[begin..].find("\n\n").expect("the table ends") + 1;
    if std::env::var_os("STRIPEWISE_UPDATE_DOCS").is_some() {
        return std::fs::write(PATH, format!("{}{}{}", &text[..begin], reference(), &text[end..])).unwrap();
    }
    assert!(text[begin..end] == reference(), "docs/policies.md is old; run this test with STRIPEWISE_UPDATE_DOCS=1");
}

#[test]
fn every_policy_has_a_section() {
    let text = std::fs::read_to_string(PATH).unwrap();
    let anchors: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|heading| heading.to_lowercase().replace(',', "").replace(' ', "-"))
        .collect();
    for policy in PolicyName::ALL {
        let section = policy.about().section;
        assert!(
            anchors.iter().any(|anchor| anchor == section),
            "docs/policies.md has no section #{section} for {policy}"
        );
    }
}
