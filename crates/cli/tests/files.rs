//! Managed files by the command alone: in, out, between, looked at, removed.

mod support;

use std::io::{BufRead, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;
use support::{Place, noise, preload};

#[test]
fn what_is_copied_in_is_what_comes_out() {
    let place = Place::with_cluster();
    let data = noise((3 << 20) + 4567);
    place.write("data", &data);
    std::fs::set_permissions(place.path("data"), std::fs::Permissions::from_mode(0o640)).unwrap();
    place.done(&["cp", "--managed", "data", "managed"]);
    assert!(place.read("managed").starts_with(b"stripewise stub 1\n"));
    assert_eq!(place.command(&["cat", "managed"]).output().unwrap().stdout, data);
    place.done(&["cp", "managed", "back"]);
    assert_eq!(place.read("back"), data);
    let (first, last) = (place.path("data").metadata().unwrap(), place.path("back").metadata().unwrap());
    assert_eq!(first.modified().unwrap(), last.modified().unwrap());
    assert_eq!((first.mode(), last.mode() & 0o777), (last.mode(), 0o640));
    // From one managed file to another.
    place.done(&["cp", "--managed", "managed", "second"]);
    assert_eq!(place.command(&["cat", "second"]).output().unwrap().stdout, data);
}

#[test]
fn a_managed_file_that_is_overwritten_keeps_its_placement_and_frees_the_old_data() {
    let place = Place::with_cluster();
    place.write("data", &noise(2 << 20));
    place.write("other", &noise(5 << 20)[1 << 20..]);
    std::fs::create_dir(place.path("m")).unwrap();
    place.done(&["manage", "m", "--class", "ssd", "--stripe", "128KiB"]);
    place.done(&["cp", "data", "m/file"]);
    let before = place.json(&["stat", "m/file"])["files"][0].clone();
    assert_eq!(before["spans"][0]["layout"], "<0B,128KiB>");
    place.done(&["unmanage", "m"]);
    place.done(&["cp", "other", "m/file"]);
    let after = place.json(&["stat", "m/file"])["files"][0].clone();
    assert_eq!(
        (&after["spans"][0]["layout"], &after["size_bytes"]),
        (&before["spans"][0]["layout"], &(4u64 << 20).into())
    );
    assert_ne!(after["file"], before["file"]);
    assert_eq!(place.json(&["ls"])["files"].as_array().unwrap().len(), 1);
    assert_eq!(place.command(&["cat", "m/file"]).output().unwrap().stdout, place.read("other"));
}

#[test]
fn listing_and_stat_agree_with_the_layout() {
    let place = Place::with_cluster();
    place.write("data", &noise((2 << 20) + 65_536));
    place.done(&["cp", "--managed", "data", "managed"]);
    let listed = place.json(&["ls"])["files"][0].clone();
    assert_eq!(listed["size_bytes"], (2 << 20) + 65_536);
    assert_eq!(listed["regions_placed"], 3);
    let stat = place.json(&["stat", "managed"])["files"][0].clone();
    assert_eq!(stat["file"], listed["file"]);
    // Two regions of 1 MiB over four servers, and one stripe of the third.
    let on =
        |name: &str| stat["servers"].as_array().unwrap().iter().find(|s| s["name"] == name).unwrap()["bytes"].clone();
    assert_eq!((on("h0"), on("s1")), (((512 << 10) + 65_536).into(), (512 << 10).into()));
    let text = place.done(&["stat", "managed"]);
    for expected in
        ["size      2.1 MiB (2,162,688 bytes)", "regions   3 of 1 MiB, 3 placed", "  0..2     <64KiB,64KiB>"]
    {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    assert!(place.done(&["ls"]).starts_with("file              "), "a table with headings");
    assert_eq!(place.json(&["ls", "h0"])["files"].as_array().unwrap().len(), 0);
}

#[test]
fn removed_and_released_files_leave_no_objects() {
    let place = Place::with_cluster();
    let data = noise(1 << 20);
    place.write("data", &data);
    place.done(&["cp", "--managed", "data", "one"]);
    place.done(&["cp", "--managed", "data", "two"]);
    place.done(&["rm", "one"]);
    assert!(!place.path("one").exists());
    assert_eq!(place.say(&["rm", "one"]).status, 2);
    place.done(&["rm", "--force", "one"]);
    place.done(&["release", "two"]);
    assert_eq!(place.read("two"), data);
    assert_eq!(
        place.say(&["ls"]).err,
        "stripewise ls: no managed files; `stripewise apply` or `stripewise manage` make some\n"
    );
    for server in ["h0", "h1", "s0", "s1"] {
        let left = std::fs::read_dir(place.path(server).join("stripewise-objects")).unwrap();
        let files: usize = left.map(|entry| std::fs::read_dir(entry.unwrap().path()).map_or(1, Iterator::count)).sum();
        assert_eq!(files, 0, "{server} still holds objects");
    }
}

#[test]
fn a_copy_of_a_stub_is_refused_and_frees_nothing() {
    let place = Place::with_cluster();
    let data = noise(1 << 20);
    place.write("data", &data);
    place.done(&["cp", "--managed", "data", "managed"]);
    std::fs::copy(place.path("managed"), place.path("copy")).unwrap();
    for words in [["stat", "copy"], ["cat", "copy"], ["rm", "copy"]] {
        let said = place.say(&words);
        assert_eq!(said.status, 2);
        assert!(said.err.contains("copy of the stub") && said.err.contains("stripewise check"), "{}", said.err);
    }
    assert!(place.path("copy").exists());
    assert_eq!(place.command(&["cat", "managed"]).output().unwrap().stdout, data);
}

#[test]
fn managed_directories_are_listed() {
    let place = Place::with_cluster();
    std::fs::create_dir(place.path("out")).unwrap();
    place.done(&["manage", "out"]);
    assert_eq!(place.done(&["manage"]), "what       path\ndirectory  HERE/out\n");
    let said = place.say(&["manage", "out", "--min-size", "1MiB"]);
    assert!(said.status == 0 && said.err.contains("smaller than 1 MiB"), "{}", said.err);
    assert_eq!(place.done(&["manage"]), "what       min size  path\ndirectory  1 MiB     HERE/out\n");
    assert!(place.done(&["manage", "--json"]).contains("\"min_size_bytes\""));
    assert_eq!(place.say(&["manage", "out", "--min-size", "0"]).status, 2);
    place.done(&["unmanage", "out"]);
    assert_eq!(place.done(&["manage"]), "");
}

/// A program that began while the directory was managed.
#[test]
fn new_files_are_ordinary_for_running_programs_too_once_their_directory_is_unmanaged() {
    preload();
    let place = Place::with_cluster();
    std::fs::create_dir(place.path("out")).unwrap();
    place.done(&["manage", "out"]);
    let script = "open('out/before', 'w').write('text'); print('ready', flush=True); input(); open('out/after', 'w').write('text')";
    let mut command = place.command(&["run", "--", "python3", "-c", script]);
    let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    place.done(&["unmanage", "out"]);
    run.stdin.take().unwrap().write_all(b"\n").unwrap();
    let said = place.said(run.wait_with_output().unwrap());
    assert_eq!(said.status, 0, "{}", said.err);
    assert_eq!(place.read("out/after"), b"text");
    assert!(place.read("out/before").starts_with(b"stripewise"), "it is managed still");
}

#[test]
fn ls_and_stat_show_minimum_sizes() {
    let place = Place::with_cluster();
    std::fs::create_dir_all(place.path("out/below")).unwrap();
    place.write("data", &noise(100_000));
    place.done(&["cp", "--managed", "data", "elsewhere"]);
    let shown = place.done(&["ls"]);
    assert!(!shown.contains("min size") && !place.done(&["stat", "elsewhere"]).contains("min size"), "{shown}");
    assert_eq!(place.json(&["ls"])["min_size_bytes"], serde_json::json!({}));
    place.done(&["manage", "out", "--min-size", "64KiB"]);
    place.done(&["cp", "--managed", "data", "out/below/large"]);

    assert_eq!(place.json(&["stat", "out/below/large"])["files"][0]["min_size_bytes"], 64 << 10);
    assert_eq!(place.json(&["stat", "elsewhere"])["files"][0].get("min_size_bytes"), None);
    let text = place.done(&["stat", "out/below/large"]);
    assert!(text.contains("min size  64 KiB: smaller, it becomes ordinary"), "{text}");
    for named in [&["ls"][..], &["ls", "out"], &["ls", "out/below"]] {
        let listed = place.json(named);
        assert_eq!(listed["min_size_bytes"], serde_json::json!({ "HERE/out": 64 << 10 }), "{named:?}");
        let large = listed["files"].as_array().unwrap().iter().find(|file| file["path"] == "HERE/out/below/large");
        assert_eq!(large.unwrap()["min_size_bytes"], 64 << 10, "{named:?}");
        let said = place.say(named);
        assert!(said.out.contains("min size") && said.out.contains("64 KiB"), "{}", said.out);
        assert!(said.err.contains("files below HERE/out that are smaller than 64 KiB are ordinary"), "{}", said.err);
    }
    assert_eq!(place.json(&["ls", "elsewhere"])["min_size_bytes"], serde_json::json!({}));

    // A copy over a managed file is one whose name is expected, and stays managed whatever its size.
    place.done(&["cp", "--managed", "data", "out/below/large"]);
    assert!(place.done(&["manage"]).contains("expected file"), "the test rests on it");
    assert_eq!(place.json(&["stat", "out/below/large"])["files"][0].get("min_size_bytes"), None);
    let listed = place.json(&["ls", "out"]);
    assert_eq!(listed["files"][0].get("min_size_bytes"), None, "{listed}");
}

#[test]
fn servers_hold_what_their_files_hold() {
    let place = Place::with_cluster();
    place.write("data", &noise(300_000));
    for number in 0..5 {
        place.done(&["cp", "--managed", "data", &format!("file-{number}")]);
    }
    let names: Vec<String> = (0..5).map(|number| format!("file-{number}")).collect();
    let words: Vec<&str> = std::iter::once("stat").chain(names.iter().map(String::as_str)).collect();
    let stat = place.json(&words);
    let mut held = std::collections::BTreeMap::<String, u64>::new();
    for server in stat["files"].as_array().unwrap().iter().flat_map(|file| file["servers"].as_array().unwrap()) {
        *held.entry(server["name"].as_str().unwrap().to_owned()).or_default() += server["held_bytes"].as_u64().unwrap();
    }
    assert!(held.values().sum::<u64>() >= 5 * 300_000, "{held:?}");
    let servers = place.json(&["ls", "--servers"]);
    for server in servers["servers"].as_array().unwrap() {
        assert_eq!(server["held_bytes"].as_u64(), held.get(server["name"].as_str().unwrap()).copied(), "{server}");
    }
}

#[test]
fn check_asks_about_a_stub_that_an_editor_replaced_and_names_the_commands() {
    let place = Place::with_cluster();
    let data = noise(1 << 20);
    place.write("data", &data);
    place.done(&["cp", "--managed", "data", "managed"]);
    let fine = place.say(&["check"]);
    assert_eq!((fine.status, fine.out.as_str(), fine.err.as_str()), (0, "", "stripewise check: nothing is wrong\n"));
    std::fs::remove_file(place.path("managed")).unwrap();
    place.write("managed", b"what an editor saved");
    let found = place.say(&["check"]);
    assert_eq!(found.status, 1, "{}{}", found.out, found.err);
    assert!(found.out.starts_with("found     ") && found.out.contains("HERE/managed"), "{}", found.out);
    let asked = place.say(&["check", "--repair"]);
    assert_eq!((asked.status, asked.out.as_str()), (1, found.out.as_str()), "{}", asked.err);
    assert_eq!(place.read("managed"), b"what an editor saved");
    // The commands that it names: the data under another name, never over a file.
    let word = asked.out.split("stripewise rescue ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert_eq!(place.say(&["rescue", &word, "managed"]).status, 2);
    assert_eq!(place.json(&["rescue", &word, "recovered"])["path"], "HERE/recovered");
    assert_eq!(place.command(&["cat", "recovered"]).output().unwrap().stdout, data);
    assert_eq!((place.read("managed"), place.say(&["check"]).status), (b"what an editor saved".to_vec(), 0));
    // Or its data is freed; a file that has its stub is not.
    assert_eq!(place.say(&["rm", "--id", &word]).status, 2);
    std::fs::remove_file(place.path("recovered")).unwrap();
    assert_eq!(place.json(&["rm", "--id", &word])["freed"][0], *word);
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn every_command_speaks_json() {
    let place = Place::with_cluster();
    place.write("data", &noise(1 << 20));
    let copied = place.json(&["cp", "--managed", "data", "managed"]);
    assert_eq!((&copied["command"], &copied["files"][0]["managed"]), (&"cp".into(), &true.into()));
    std::fs::create_dir(place.path("m")).unwrap();
    assert_eq!(place.json(&["manage", "m"])["directory"], "HERE/m");
    assert_eq!(place.json(&["manage"])["directories"].as_array().unwrap().len(), 1);
    assert_eq!(place.json(&["unmanage", "m"])["command"], "unmanage");
    assert_eq!(place.json(&["check"])["findings"], serde_json::json!([]));
    assert_eq!(place.json(&["release", "managed"])["files"][0]["size_bytes"], 1 << 20);
    place.done(&["cp", "--managed", "data", "again"]);
    assert_eq!(place.json(&["rm", "again"])["removed"], serde_json::json!(["again"]));
    std::fs::create_dir(place.path("x")).unwrap();
    let made = place.json(&["-C", "x.toml", "init", "--server", "x=hdd:x", "--state", "xs"]);
    assert_eq!(made["cluster"]["server"].as_array().unwrap().len(), 1);
}

#[test]
fn a_broker_in_the_background_serves_other_commands_until_it_is_told_to_stop() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let place = Place::with_cluster();
    let mut broker = place.command(&["broker"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(broker.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("stripewise broker: serving "));
    place.write("data", &noise(1 << 20));
    place.done(&["cp", "--managed", "data", "managed"]);
    assert!(Command::new("kill").args(["-TERM", &broker.id().to_string()]).status().unwrap().success());
    assert_eq!(broker.wait().unwrap().code(), Some(0));
    assert_eq!(place.command(&["cat", "managed"]).output().unwrap().stdout, noise(1 << 20));
}

#[test]
fn a_cluster_of_one_host_is_shown_as_a_whole_too() {
    let place = Place::with_cluster();
    place.write("data", &noise(3 << 20));
    place.done(&["cp", "--managed", "data", "managed"]);
    let shown = place.json(&["stat", "--cluster"]);
    assert!(shown["coordinator"].is_null() && shown["term"].is_null() && shown["key"].is_null());
    let hosts = shown["hosts"].as_array().unwrap();
    assert_eq!((hosts.len(), &hosts[0]["name"], &hosts[0]["is_master"]), (1, &shown["master"], &true.into()));
    assert!(hosts[0]["agent"]["process"].as_u64().unwrap() > 0);
    assert!(shown["servers"].as_array().unwrap().iter().any(|server| server["objects"].as_u64().unwrap() > 0));
    assert_eq!(shown["hosts"][0]["files"], 0, "nobody has a file open");
    let text = place.done(&["stat"]);
    assert!(text.contains("this cluster has one host"), "{text}");
    assert!(!text.contains("master       ") && !text.contains("key   "), "{text}");
    let metrics = place.done(&["host", "metrics"]);
    for line in ["stripewise_agent_master 1", "stripewise_agent_files 0"] {
        assert!(metrics.lines().any(|found| found == line), "no `{line}` in\n{metrics}");
    }
    let said = place.say(&["host", "rekey"]);
    assert_eq!(said.status, 2);
    assert!(said.err.contains("this cluster has one host"), "{}", said.err);
}

#[test]
fn holes_stay_holes() {
    let place = Place::with_cluster();
    let file = std::fs::File::create(place.path("sparse")).unwrap();
    file.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &noise(4096), 20 << 20).unwrap();
    place.done(&["cp", "--managed", "sparse", "managed"]);
    let stat = place.json(&["stat", "managed"])["files"][0].clone();
    assert_eq!((&stat["size_bytes"], &stat["regions_placed"]), (&(64u64 << 20).into(), &1.into()));
    place.done(&["cp", "managed", "back"]);
    let back = place.path("back").metadata().unwrap();
    assert_eq!(back.len(), 64 << 20);
    assert!(back.blocks() * 512 <= 1 << 20, "only the region with data was copied");
    assert!(place.read("back") == place.read("sparse"));
    place.done(&["release", "managed"]);
    assert!(place.read("managed") == place.read("sparse"));
}

/// The first bad name ended the command, and those after it were not even looked at.
#[test]
fn of_several_files_each_is_tried_and_failures_are_named() {
    let place = Place::with_cluster();
    place.write("data", &noise(1 << 20));
    let make = || ["a", "b"].map(|name| place.done(&["cp", "--managed", "data", name]));
    std::fs::create_dir(place.path("directory")).unwrap();
    make();
    let said = place.say(&["rm", "gone", "a", "data", "directory", "b"]);
    assert_eq!(said.status, 1, "{}", said.err);
    let lines: Vec<&str> = said.err.lines().collect();
    assert!(lines.len() == 3 && lines[0].contains("cannot open gone"), "{lines:?}");
    assert!(
        lines[1].contains("data is not a managed file") && lines[2].contains("directory is a directory"),
        "{lines:?}"
    );
    assert!(lines[2].contains("name the managed files in it, which `stripewise ls` lists"), "{lines:?}");
    assert!(!place.path("a").exists() && !place.path("b").exists() && place.path("data").exists());
    make();
    let mut command = place.command(&["--json", "release", "a", "data", "b"]);
    let output = command.output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    support::schema::check("release", &shown);
    assert_eq!((output.status.code(), shown["files"].as_array().unwrap().len()), (Some(1), 2), "{shown}");
    assert!(shown["failed"][0]["path"] == "data" && shown["failed"][0]["error"].as_str().unwrap().contains("data"));
    assert!(place.read("a") == place.read("data") && place.read("b") == place.read("data"));
    // Of one name alone the command fails as a whole.
    assert_eq!((place.say(&["rm", "gone"]).status, place.say(&["release", "data"]).status), (2, 2));
    assert_eq!(place.say(&["rm", "--force", "gone", "missing"]).status, 0);
}

#[test]
fn the_clusters_own_directories_get_no_managed_files_and_no_copies() {
    let place = Place::with_cluster();
    place.write("data", &noise(1 << 20));
    std::fs::create_dir_all(place.path("s1/inner")).unwrap();
    std::os::unix::fs::symlink("s1", place.path("link")).unwrap();
    let server = "the directory HERE/s1 of server s1, which holds the cluster's own files alone";
    for (directory, whose) in [
        ("s1", server),
        ("link/inner", server),
        ("stripewise-state", "lies in the state directory HERE/stripewise-state"),
    ] {
        for words in [&["manage", directory][..], &["cp", "data", directory], &["cp", "--managed", "data", directory]] {
            let said = place.say(words);
            assert!(said.status == 2 && said.err.contains(whose), "{words:?}: {}", said.err);
        }
    }
    assert!(!place.path("s1/data").exists() && place.json(&["manage"])["directories"].as_array().unwrap().is_empty());
}
