//! Cluster files, profiles, plans and traces that are wrong: the message names the file, the value and the remedy.

use crate::plans::{plan, profile, slow_place};
use crate::support::{Place, noise, preload};
use serde_json::Value;
use std::path::PathBuf;

/// The command fails with status 2, no data, and a message that holds all of `expected`.
fn refused(place: &Place, words: &[&str], expected: &[&str]) {
    let said = place.say(words);
    assert_eq!((said.status, said.out.as_str()), (2, ""), "{words:?}: {}", said.err);
    for part in expected {
        assert!(said.err.contains(part), "{words:?}: `{part}` is not in: {}", said.err);
    }
}

#[test]
fn an_unknown_key_is_named_with_its_line() {
    let place = Place::with_cluster();
    let toml = String::from_utf8(place.read("cluster.toml")).unwrap();
    let line = 1 + toml.lines().position(|line| line.starts_with("region = ")).unwrap();
    place.write("other.toml", toml.replace("region = ", "regoin = ").as_bytes());
    refused(&place, &["-C", "other.toml", "ls"], &["other.toml", &format!("line {line}"), "regoin", "`region`"]);
    place.write("other.toml", toml.replacen("class = ", "colour = 1\nclass = ", 1).as_bytes());
    refused(&place, &["-C", "other.toml", "ls"], &["other.toml", "line ", "colour"]);

    let mut wrong = profile(&place);
    wrong["servers"][1]["colour"] = "red".into();
    place.write("profile.json", serde_json::to_string_pretty(&wrong).unwrap().as_bytes());
    let text = String::from_utf8(place.read("profile.json")).unwrap();
    let line = 1 + text.lines().position(|line| line.contains("colour")).unwrap();
    refused(&place, &["plan", "h0"], &["profile.json", "colour", &format!("line {line}"), "stripewise calibrate"]);

    place.write("data", b"x");
    for change in
        [|plan: &mut Value| plan["colour"] = 1.into(), |plan: &mut Value| plan["files"][0]["colour"] = 1.into()]
    {
        let mut wrong = plan(&place, "data");
        change(&mut wrong);
        place.write("plan.json", serde_json::to_string_pretty(&wrong).unwrap().as_bytes());
        let text = String::from_utf8(place.read("plan.json")).unwrap();
        let line = 1 + text.lines().position(|line| line.contains("colour")).unwrap();
        refused(&place, &["apply", "plan.json"], &["plan.json", "colour", &format!("line {line}"), "stripewise plan"]);
    }
    assert_eq!(place.read("data"), b"x");
}

#[test]
fn impossible_capacities_and_sizes_are_refused() {
    let place = Place::with_cluster();
    let toml = String::from_utf8(place.read("cluster.toml")).unwrap();
    for (from, to, expected) in [
        ("capacity = \"64MiB\"", "capacity = \"0\"", "server `s0`: capacity 0 leaves no space; leave the server out"),
        ("capacity = \"64MiB\"", "capacity = \"-64MiB\"", "`-64MiB` is not a size"),
        ("capacity = \"64MiB\"", "capacity = \"99999999999TiB\"", "`99999999999TiB`"),
        (
            "capacity = \"64MiB\"",
            "capacity = \"64MiB\"\nreserve = \"64MiB\"",
            "server `s0`: reserve 64MiB is not smaller than capacity 64MiB",
        ),
        ("region = \"1MiB\"", "region = \"1000\"", "must be a multiple of 4KiB"),
    ] {
        assert!(toml.contains(from), "{toml}");
        place.write("other.toml", toml.replacen(from, to, 1).as_bytes());
        refused(&place, &["-C", "other.toml", "ls"], &["other.toml", expected]);
    }
    std::fs::create_dir(place.path("new")).unwrap();
    for capacity in ["0", "-1", "1e9GiB", "99999999999TiB"] {
        let server = format!("a=ssd:new:{capacity}");
        let said = place.say(&["-C", "new.toml", "init", "--state", "state2", "--server", &server]);
        assert_eq!(said.status, 2, "{capacity}");
        assert!(said.err.contains(capacity), "{capacity}: {}", said.err);
        assert!(!place.path("new.toml").exists() && !place.path("state2").exists());
        assert_eq!(std::fs::read_dir(place.path("new")).unwrap().count(), 0, "{capacity}: the directory was touched");
    }
}

#[test]
fn a_plan_for_other_servers_is_refused() {
    let (place, data) = slow_place();
    let right = plan(&place, "data");
    let with = |key: &str, value: Value| {
        let mut plan = right.clone();
        plan[key] = value;
        place.write("other.json", plan.to_string().as_bytes());
    };
    let own = right["cluster"].as_str().unwrap();
    with("cluster", "0123456789abcdef".into());
    refused(&place, &["apply", "other.json"], &["other.json", "0123456789abcdef", own, "stripewise plan"]);
    let mut servers = right["servers"].clone();
    servers[0]["name"] = "elsewhere".into();
    with("servers", servers);
    refused(&place, &["apply", "other.json"], &["other.json", "elsewhere", "stripewise plan"]);
    with("version", 9.into());
    refused(&place, &["apply", "other.json"], &["other.json", "version 9", "stripewise plan"]);
    let mut files = right["files"].clone();
    files[0]["windows"][0]["placement"]["layouts"][0][0][0] = 7.into();
    with("files", files);
    refused(&place, &["apply", "other.json"], &["7"]);
    place.write("other.json", &right.to_string().as_bytes()[..900]);
    refused(&place, &["apply", "other.json"], &["other.json", "stripewise plan"]);
    assert!(place.read("data") == data);
    assert_eq!(place.json(&["ls"])["files"].as_array().unwrap().len(), 0);
}

/// A trace of `dd`, and its one file of records.
fn traced(place: &Place) -> PathBuf {
    preload();
    place.write("data", &noise(1 << 20));
    let dd = ["dd", "if=data", "of=/dev/null", "bs=1k", "count=1024", "status=none"];
    place.done(&[&["trace", "-o", "run.trace", "--"], &dd[..]].concat());
    let mut files = std::fs::read_dir(place.path("run.trace")).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_none_or(|extension| extension != "json")).unwrap()
}

#[test]
fn a_trace_that_is_cut_off_is_read_up_to_there() {
    let place = Place::new();
    let file = traced(&place);
    let requests = |place: &Place| {
        let shown = place.json(&["trace", "show", "run.trace"]);
        let files = shown["files"].as_array().unwrap().clone();
        let of_data = files.iter().find(|file| file["path"].as_str().unwrap().ends_with("/data"));
        of_data.map_or(0, |file| file["read_requests"].as_u64().unwrap())
    };
    assert_eq!(requests(&place), 1024);
    let bytes = std::fs::read(&file).unwrap();
    let mut before = 1024;
    for tenths in [7, 5, 3] {
        // Not at the border of a record either.
        let length = bytes.len() * tenths / 10 / 64 * 64 + 17;
        std::fs::write(&file, &bytes[..length]).unwrap();
        let said = place.say(&["trace", "show", "run.trace"]);
        let name = file.file_name().unwrap().to_str().unwrap();
        assert_eq!(said.status, 0, "{}", said.err);
        assert!(
            said.err.contains(name)
                && said.err.contains(&format!("truncated after {length} of {} bytes: up to ", bytes.len())),
            "{}",
            said.err
        );
        assert!(said.err.contains("read up to there"), "{}", said.err);
        let now = requests(&place);
        assert!(0 < now && now < before, "{now} requests of {before}");
        before = now;
    }
    std::fs::write(&file, &bytes[..40]).unwrap();
    let said = place.say(&["trace", "show", "run.trace"]);
    assert!(said.err.contains("truncated within its header after 40 bytes; the process is left out"), "{}", said.err);
}

#[test]
fn a_trace_of_another_version_is_refused_by_name() {
    let place = Place::new();
    let file = traced(&place);
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    let bytes = std::fs::read(&file).unwrap();
    let mut other = bytes.clone();
    // The version follows the eight bytes of the signature.
    other[8] = 77;
    std::fs::write(&file, &other).unwrap();
    refused(&place, &["trace", "show", "run.trace"], &[&name, "77"]);
    std::fs::write(&file, &bytes).unwrap();
    let manifest: Value = serde_json::from_slice(&place.read("run.trace/trace.json")).unwrap();
    let mut newer = manifest.clone();
    newer["version"] = 77.into();
    place.write("run.trace/trace.json", newer.to_string().as_bytes());
    refused(&place, &["trace", "show", "run.trace"], &["trace.json", "77"]);
    place.write("run.trace/trace.json", manifest.to_string().as_bytes());
    place.done(&["trace", "show", "run.trace"]);
}

#[test]
fn errors_leave_json_readers_nothing_to_misread() {
    let place = Place::with_cluster();
    place.write("text", b"plain");
    for words in [&["--json", "stat", "text"][..], &["--json", "-C", "none", "ls"], &["--json", "apply", "text"]] {
        let said = place.say(words);
        assert_eq!((said.status, said.out.as_str()), (2, ""), "{words:?}");
        assert!(said.err.starts_with("stripewise "), "{words:?}: {}", said.err);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_fault_of_any_command() {
    use std::process::Stdio;
    let place = Place::with_cluster();
    place.write("data", &noise(3 << 20));
    place.done(&["cp", "--managed", "data", "managed"]);
    for words in [&["ls"][..], &["--json", "ls"], &["stat", "managed"], &["cat", "managed"], &["--help"]] {
        let mut command = place.command(words);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let said = place.said(command.stdout(writer).stderr(Stdio::piped()).output().unwrap());
        assert_eq!((said.status, said.err.as_str()), (0, ""), "{words:?}");
    }
}
