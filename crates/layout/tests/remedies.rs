//! What messages propose: nothing that loses data.
//!
//! People do what an error tells them to. `cluster.toml: version 2 … run stripewise init again` and `… exists; remove it first` cost whole clusters, "delete it" the sizes
//! of files, `--force` a file that was in the way. A remedy moves things elsewhere, names something else, or says what to bring back.

use std::path::{Path, PathBuf};

/// Never in a message, in lower case.
const PROPOSALS: [&str; 14] = [
    "delete it",
    "delete them",
    "delete {",
    "delete `",
    "and delete",
    "remove it",
    "remove them",
    "--force",
    "init` again",
    "write over it",
    "overwrite it",
    "rm -f",
    "rm -r",
    "empty it",
];
/// What loses nothing: an example in a help text of what a person wants to remove, a reason to refuse, and applying a plan that is not worth its move.
const OTHERS: [&str; 14] = [
    "stripewise rm --force scratch/*.tmp",
    "the workload would write over it; replay in another directory",
    r#"option: "--force""#,
    r#"option: "--force-plan""#,
    r#"path, "--force")"#,
    r#""--force-plan", "--plan""#,
    "--plan plan.json --force",
    "without --force it would not be applied",
    r#""apply".into(), "--force".into()"#,
    // In scripts of exported layouts: the copy that the script made, and an option of BeeGFS's commands for a file that does not exist yet.
    r#"trap 'rm -f "$new"' EXIT"#,
    r#"trap 'rm -f "$directory/new"; rmdir "$directory"' EXIT"#,
    r#"--chunk-size="$5" --force "$1""#,
    r#"--chunksize="$5" --force "./${1##*/}""#,
    r#"take("--force")"#,
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// The lines outside of comments and tests.
fn lines_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().take_while(|line| *line != "#[cfg(test)]");
    lines.enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn proposals_in(text: &str) -> Vec<String> {
    let is_wrong = |line: &str| {
        let rest = OTHERS.iter().fold(line.to_owned(), |line, other| line.replace(other, "")).to_lowercase();
        PROPOSALS.iter().any(|proposal| rest.contains(proposal))
    };
    let wrong = lines_of(text).filter(|(_, line)| is_wrong(line));
    wrong.map(|(number, line)| format!("{}: {}", number + 1, line.trim())).collect()
}

#[test]
fn no_message_proposes_what_loses_data() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut files, mut wrong) = (Vec::new(), Vec::new());
    for package in std::fs::read_dir(&crates).unwrap() {
        sources(&package.unwrap().path().join("src"), &mut files);
    }
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        wrong.extend(proposals_in(&text).into_iter().map(|line| format!("{}:{line}", file.display())));
    }
    assert!(wrong.is_empty(), "messages that propose what loses data:\n{}", wrong.join("\n"));
    assert!(files.len() > 200, "only {} sources", files.len());
}

#[test]
fn the_proposals_of_old_are_found() {
    for line in [
        r#"bail!("{} exists already; remove it first if its cluster is no longer needed")"#,
        r#"#[error("{}: not a host file (`{text}`); delete it if no other host uses this cluster")]"#,
        r#"    "only if the files are not wanted, delete `stripewise-objects` and run `stripewise init` again","#,
        r#"bail!("{} holds a trace already; name another directory, or replace it with --force")"#,
    ] {
        assert_eq!(proposals_in(line).len(), 1, "{line}");
    }
    assert!(proposals_in("/// Whether to delete it.\n#[cfg(test)]\n\"delete it\"").is_empty());
}
