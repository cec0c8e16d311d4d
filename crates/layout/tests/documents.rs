//! The documents agree with the sources: the tests that they name exist, every rule of `docs/semantics.md` names one, links have a
//! target, and the tables of `docs/formats.md` match the code.
//!
//! A comment before a table of `docs/formats.md` names the source of the table:
//!
//! - `versions`: constant, value and file of every format's version; every version constant of the sources is in the table;
//! - `fields of FILE STRUCT`: the first column lists the fields in order, under the names that serde writes;
//! - `table of FILE`: the rows are those of the module's own documentation;
//! - `constants of FILE`: name and value of each constant.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files_below(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

/// What stands between backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// `crate::test` for every function under `#[test]`.
fn rust_tests() -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for package in std::fs::read_dir(root().join("crates")).unwrap() {
        let package = package.unwrap();
        let mut sources = Vec::new();
        for directory in ["src", "tests"] {
            files_below(&package.path().join(directory), "rs", &mut sources);
        }
        for source in sources {
            let text = std::fs::read_to_string(source).unwrap();
            let mut is_marked = false;
            for line in text.lines().map(str::trim) {
                if let Some(name) = line.strip_prefix("fn ").filter(|_| is_marked) {
                    let name = name.split('(').next().unwrap_or_default();
                    tests.insert(format!("{}::{name}", package.file_name().to_string_lossy()));
                }
                is_marked = line == "#[test]" || (is_marked && (line.starts_with("#[") || line.starts_with("//")));
            }
        }
    }
    tests
}

/// The cases of `tests/programs`, and what several have as their first parts.
fn program_cases() -> BTreeSet<String> {
    let output = Command::new("python3").arg(root().join("tests/programs/run.py")).arg("--list").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut names = BTreeSet::new();
    for case in String::from_utf8(output.stdout).unwrap().lines() {
        let ends = case.match_indices('/').map(|(at, _)| at).skip(1).chain([case.len()]);
        names.extend(ends.map(|end| case[..end].to_owned()));
    }
    names
}

/// The lines of a document, with every item of a list as one line.
fn with_items_joined(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        match lines.last_mut() {
            Some(item) if item.starts_with("- ") && line.starts_with("  ") => {
                item.push(' ');
                item.push_str(line.trim());
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

/// The tests that the promises of a document name. What promises something and names none, or one that does not exist, is an error.
fn tests_of_promises(document: &str, promises: &str) -> BTreeSet<String> {
    const NO_PROMISE: &str = "*No promise*";
    let known: BTreeSet<String> = rust_tests().union(&program_cases()).cloned().collect();
    let kinds: BTreeSet<&str> = known.iter().filter_map(|name| name.split([':', '/']).next()).collect();
    let (mut wrong, mut named) = (Vec::new(), BTreeSet::new());
    for line in &with_items_joined(promises) {
        let is_reference = |word: &&str| {
            kinds.contains(word.split([':', '/']).next().unwrap_or_default()) && word.contains(['/', ':'])
        };
        let references: Vec<&str> = quoted(line).filter(is_reference).collect();
        wrong.extend(references.iter().filter(|name| !known.contains(**name)).map(|name| format!("no test {name}")));
        let is_row = line.starts_with('|') && !line.starts_with("|---") && !line.ends_with("| test |");
        if (line.starts_with("- ") || is_row) && references.is_empty() && !line.ends_with(NO_PROMISE) {
            wrong.push(format!("names no test: {line}"));
        }
        named.extend(references.into_iter().map(str::to_owned));
    }
    assert!(wrong.is_empty(), "{document}:\n{}", wrong.join("\n"));
    named
}

#[test]
fn every_sentence_of_the_semantics_names_tests_that_exist() {
    let text = read("docs/semantics.md");
    let proven = text.split("\n## Not yet proven by a test\n").next().unwrap();
    // From the first section on: before it stands how to read the document.
    let (_, sections) = proven.split_once("\n## ").expect("sections");
    let named = tests_of_promises("docs/semantics.md", sections);
    assert!(named.len() > 100, "only {} tests are named", named.len());
}

#[test]
fn every_promise_of_the_security_policy_names_tests_that_exist() {
    let text = read("SECURITY.md");
    let (_, promised) = text.split_once("\n## To the owner\n").expect("what is promised to the owner");
    let (promised, _) = promised.split_once("\n## What is not promised\n").expect("what is not promised");
    let named = tests_of_promises("SECURITY.md", promised);
    assert!(named.len() > 15, "only {} tests are named", named.len());
}

#[test]
fn other_documents_name_tests_that_exist() {
    let tests = rust_tests();
    let names: BTreeSet<&str> = tests.iter().filter_map(|test| test.split("::").last()).collect();
    // Tests have sentences for names, which nothing else of the documents has.
    let is_sentence = |word: &&str| {
        word.matches('_').count() >= 3 && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    for document in [
        "docs/broker.md",
        "docs/trace-format.md",
        "docs/profile.md",
        "docs/policies.md",
        "docs/equations.md",
        "docs/simulator.md",
        "CONTRIBUTING.md",
    ] {
        let text = read(document);
        let wrong: Vec<&str> =
            text.lines().flat_map(quoted).filter(is_sentence).filter(|word| !names.contains(word)).collect();
        let wrong: Vec<&&str> = wrong.iter().filter(|word| !word.ends_with("_per_byte")).collect();
        assert!(wrong.is_empty(), "{document} names tests that do not exist: {wrong:?}");
    }
}

fn anchor_of(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_')).collect::<String>().replace(' ', "-")
}

#[test]
fn links_lead_somewhere() {
    let mut documents = Vec::new();
    for document in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"] {
        documents.push(root().join(document));
    }
    files_below(&root().join("docs"), "md", &mut documents);
    let (mut wrong, mut links) = (Vec::new(), 0);
    for document in &documents {
        let text = std::fs::read_to_string(document).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            links += 1;
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            let has_anchor = || {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                text.lines().any(|line| line.starts_with('#') && anchor_of(line) == anchor)
            };
            if !path.exists() || (!anchor.is_empty() && !has_anchor()) {
                wrong.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere: {wrong:#?}");
    assert!(links > 10, "only {links} links");
}

/// The fields of `struct NAME`, under the names that serde writes.
fn members(source: &str, name: &str) -> Vec<String> {
    let text = read(source);
    let declares = |line: &&str| {
        let line = line.strip_prefix("pub").map_or(*line, |rest| rest.split_once(' ').map_or("", |(_, after)| after));
        line.strip_prefix("struct ").is_some_and(|after| after.split([' ', '<']).next() == Some(name))
    };
    let mut lines = text.lines().skip_while(|line| !declares(line));
    assert!(lines.next().is_some(), "{source} has no {name}");
    let (mut found, mut renamed, mut is_skipped) = (Vec::new(), None, false);
    for line in lines.take_while(|line| !line.starts_with('}')) {
        let Some(member) = line.strip_prefix("    ").filter(|member| !member.starts_with([' ', '/', '}'])) else {
            continue;
        };
        if let Some(attribute) = member.strip_prefix("#[serde(") {
            renamed = attribute.split_once("rename = \"").and_then(|(_, rest)| rest.split('"').next()).or(renamed);
            is_skipped |= attribute.starts_with("skip)") || attribute.starts_with("flatten)");
        } else if !member.starts_with('#') {
            let member = member.split(") ").last().filter(|_| member.starts_with("pub(")).unwrap_or(member);
            let member = member.trim_start_matches("pub ");
            let word = member.split([':', ' ', '{', '(', ',']).next().unwrap_or_default();
            if !is_skipped {
                found.push(renamed.unwrap_or(word).to_owned());
            }
            (renamed, is_skipped) = (None, false);
        }
    }
    found
}

/// Whether `text` declares the constant `name` with this value.
fn declares(text: &str, name: &str, value: &str) -> bool {
    text.lines()
        .filter_map(|line| line.split_once("const "))
        .any(|(_, declared)| declared.starts_with(&format!("{name}:")) && declared.ends_with(&format!("= {value};")))
}

/// `FILE CONSTANT` of every constant of the product that is the version of a format: `..._VERSION: u32`, and the magic numbers of
/// shared memory, whose last byte is the version.
fn version_constants() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for package in std::fs::read_dir(root().join("crates")).unwrap() {
        let mut sources = Vec::new();
        files_below(&package.unwrap().path().join("src"), "rs", &mut sources);
        for source in sources {
            let text = std::fs::read_to_string(&source).unwrap();
            for (_, declared) in text.lines().filter_map(|line| line.split_once("const ")) {
                let name = declared.split(':').next().unwrap_or_default();
                let is_number = name.ends_with("_VERSION") && declared.contains(": u32 = ");
                if is_number || (name == "MAGIC" && declared.contains("(*b\"SW")) {
                    let source = source.strip_prefix(root()).unwrap().display();
                    found.insert(format!("{source} {name}"));
                }
            }
        }
    }
    // The version of LMDB's own pages, and the oldest versions of plans and profiles that are read.
    found.remove("crates/broker/src/rmt/pages.rs DATA_VERSION");
    found.remove("crates/planner/src/plan.rs OLDEST_PLAN_VERSION");
    found.remove("crates/model/src/profile.rs OLDEST_PROFILE_VERSION");
    found
}

/// What is wrong with the table of versions: rows of constant, value and file in the columns 1 to 3.
fn faults_of_versions(rows: &[Vec<&str>]) -> Vec<String> {
    let (mut wrong, mut listed) = (Vec::new(), BTreeSet::new());
    for row in rows {
        let [name, value, source] = [row[1], row[2], row[3]].map(|cell| cell.trim_matches('`'));
        listed.insert(format!("{source} {name}"));
        if !declares(&read(source), name, value) {
            wrong.push(format!("{source} has no {name} = {value}"));
        }
    }
    let missing = version_constants().into_iter().filter(|constant| !listed.contains(constant));
    wrong.extend(missing.map(|constant| format!("the table of versions lacks {constant}")));
    wrong
}

/// The rows of the tables in a module's description. Links of rustdoc stand for their words.
fn described_rows(source: &str) -> Vec<String> {
    let text = read(source);
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! |")).filter(|row| !row.starts_with("---"));
    rows.map(|row| cells(row).join(" | ").replace("[`", "`").replace("`]", "`")).collect()
}

#[test]
fn the_formats_are_those_of_the_sources() {
    let text = read("docs/formats.md");
    let (mut wrong, mut checked) = (Vec::new(), 0);
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once("<!-- ") {
        let (comment, after) = after.split_once(" -->").expect("an end of the comment");
        rest = after;
        let lines = after.lines().skip(1).skip_while(|line| !line.starts_with('|'));
        let rows: Vec<Vec<&str>> =
            lines.take_while(|line| line.starts_with('|')).filter(|row| !row.starts_with("|---")).map(cells).collect();
        let first_column: Vec<String> =
            rows.iter().skip(1).map(|row| quoted(row[0]).next().unwrap_or(row[0]).to_owned()).collect();
        checked += 1;
        let words: Vec<&str> = comment.split(' ').collect();
        match words[..] {
            ["versions"] => wrong.extend(faults_of_versions(&rows[1..])),
            ["fields", "of", source, name] => {
                let expected = members(source, name);
                if first_column != expected {
                    wrong.push(format!("{comment}: {expected:?}, the document has {first_column:?}"));
                }
            }
            ["table", "of", source] => {
                let expected = described_rows(source);
                let found: Vec<String> = rows.iter().map(|row| row.join(" | ")).collect();
                if found != expected {
                    let differs = expected.iter().zip(&found).find(|(expected, found)| expected != found);
                    wrong.push(format!("{comment}: {} and {} rows, {differs:?}", expected.len(), found.len()));
                }
            }
            ["constants", "of", source] => {
                let text = read(source);
                for row in rows.iter().skip(1) {
                    let (name, value) = (row[0].trim_matches('`'), row[1].trim_matches('`'));
                    if !declares(&text, name, value) {
                        wrong.push(format!("{source} has no {name} = {value}"));
                    }
                }
            }
            _ => wrong.push(format!("what is `{comment}`?")),
        }
    }
    assert!(wrong.is_empty(), "docs/formats.md:\n{}", wrong.join("\n"));
    assert!(checked > 8, "only {checked} tables are checked");
}
