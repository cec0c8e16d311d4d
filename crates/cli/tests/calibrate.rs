//! `stripewise calibrate` as a person runs it, on real directories.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn stripewise(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stripewise"));
    command.current_dir(directory).args(arguments).env_remove("STRIPEWISE_CLUSTER");
    command
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    stripewise(directory, arguments).output().unwrap()
}

fn cluster() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for server in ["a", "b"] {
        std::fs::create_dir(directory.path().join(server)).unwrap();
    }
    let made = run(directory.path(), &["init", "--server", "a=hdd:a", "--server", "b=ssd:b"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    directory
}

fn entries(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn the_profile_lies_beside_the_cluster_file() {
    let cluster = cluster();
    let before = entries(&cluster.path().join("a"));
    let arguments =
        ["calibrate", "--quick", "--seconds", "1", "--file-size", "16MiB", "--network-e", "300us", "--json"];
    let output = run(cluster.path(), &arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("wrote profile.json") && stderr.contains("direct I/O"), "{stderr}");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = std::fs::read_to_string(cluster.path().join("profile.json")).unwrap();
    let written: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(printed["profile"], written);
    assert_eq!(written["network"]["e_s"], 3e-4);
    assert_eq!(written["network"]["source"], "given");
    assert_eq!(written["servers"][1]["name"], "b");
    assert_eq!(entries(&cluster.path().join("a")), before);
}

#[test]
fn times_are_printed_in_the_unit_that_suits_them() {
    let cluster = cluster();
    let output = run(
        cluster.path(),
        &["calibrate", "--quick", "--seconds", "1", "--file-size", "16MiB", "--network-e", "250ns"],
    );
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.contains("\nnetwork: 0.25 \u{b5}s for each connection, "), "{out}");
    let words: Vec<&str> = out.split_whitespace().collect();
    let is_too_small = |pair: &[&str]| pair[1] == "ms" && pair[0].starts_with("0.");
    assert!(!words.windows(2).any(is_too_small), "a startup of less than a millisecond: {out}");
}

#[test]
fn a_killed_calibration_leaves_nothing() {
    let cluster = cluster();
    let before = (entries(&cluster.path().join("a")), entries(cluster.path()));
    let mut calibration = stripewise(cluster.path(), &["calibrate", "--seconds", "3600"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let descriptors = format!("/proc/{}/fd", calibration.id());
    let server = cluster.path().join("a").canonicalize().unwrap();
    // The scratch file shows among the process's descriptors, as one without a name, once measuring has begun.
    let is_scratch = |entry: std::io::Result<std::fs::DirEntry>| {
        let target = entry.and_then(|entry| std::fs::read_link(entry.path()));
        target.is_ok_and(|target| target.starts_with(&server) && target.to_string_lossy().ends_with(" (deleted)"))
    };
    while !std::fs::read_dir(&descriptors).unwrap().any(is_scratch) {
        assert!(calibration.try_wait().unwrap().is_none(), "calibration ended by itself");
        std::thread::yield_now();
    }
    calibration.kill().unwrap();
    calibration.wait().unwrap();
    assert_eq!((entries(&cluster.path().join("a")), entries(cluster.path())), before);
}

#[test]
fn a_server_that_is_not_mounted_is_named() {
    let cluster = cluster();
    std::fs::remove_file(cluster.path().join("b/stripewise-server")).unwrap();
    let output = run(cluster.path(), &["calibrate", "--quick"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("server b") && !cluster.path().join("profile.json").exists(), "{stderr}");
}

#[test]
fn a_time_without_sense_is_refused_with_an_example() {
    let output = run(Path::new("/"), &["calibrate", "--network-e", "soon"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("300us"), "{stderr}");
}

#[test]
fn where_the_profile_cannot_go_nothing_is_measured() {
    let cluster = cluster();
    // A server that cannot be measured: whoever began to would name it.
    std::fs::remove_file(cluster.path().join("b/stripewise-server")).unwrap();
    for path in ["missing/profile.json", "a", "/proc/profile.json"] {
        let output = run(cluster.path(), &["calibrate", "--quick", "-o", path]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        let refused = format!("cannot write {path}: ");
        assert!(stderr.contains(&refused) && !stderr.contains("server b"), "{stderr}");
    }
}

#[test]
fn a_scratch_file_that_holds_no_round_is_refused() {
    for size in ["0", "15MiB"] {
        let output = run(Path::new("/"), &["calibrate", "--file-size", size]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("requests of all sizes need at least 16 MiB"), "{stderr}");
    }
}
