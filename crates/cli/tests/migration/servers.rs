//! Servers that go and come.

use crate::serving::{
    Daemon, data_of, manage_data, on, place_with_data, plan, put, spans, status, until_copying, whole,
};
use crate::support::{Place, noise, preload};
use std::path::Path;

/// Bytes in files below a directory, small ones (the marker) apart.
fn held_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        // They say where a file's regions lie, on all servers that ever held one.
        .filter(|path| !path.ends_with("stripewise-descriptions"))
        .map(|path| match path.is_dir() {
            true => held_bytes(&path),
            false => Some(path.metadata().unwrap().len()).filter(|size| *size > 1024).unwrap_or(0),
        })
        .sum()
}

#[test]
fn a_drained_server_is_empty_and_stays_so_until_it_is_used_again() {
    let (place, data) = place_with_data(4);
    place.done(&["restripe", "data", "--layout", "<64KiB,64KiB>"]);
    place.done(&["restripe", "data", "--layout", "s1 64KiB", "--region", "2"]);
    assert!(held_bytes(&place.path("s1")) > 0);
    // What is on its way there is called back.
    let daemon = Daemon::serving(&place, &["--migrate-bandwidth", "16KiB"]);
    place.done(&["restripe", "data", "--layout", "s1 64KiB", "--region", "0", "--background"]);
    until_copying(&place);
    place.done(&["migrate", "bandwidth", "unlimited"]);
    let shown = place.json(&["drain", "s1"]);
    assert_eq!((&shown["drained"], &shown["objects"]), (&true.into(), &0.into()), "{shown}");
    let again = place.json(&["evacuate", "s1"]);
    assert_eq!((&again["command"], &again["regions"]), (&shown["command"], &0.into()), "{again}");
    let around = |regions, layout: &str| (regions, layout.to_owned());
    let found: Vec<(u64, String)> = spans(&place).into_iter().map(|(_, regions, layout)| (regions, layout)).collect();
    let most = "h0..s0 64KiB";
    assert_eq!(
        found[found.len() - 2..],
        [around(1, "s0 64KiB"), around(1, most)],
        "its class took the place: {found:?}"
    );
    assert_eq!(held_bytes(&place.path("s1")), 0);
    drop(daemon);
    let said = place.say(&["restripe", "data", "--layout", "s1 64KiB"]);
    assert!(said.status == 2 && said.err.contains("`stripewise evacuate s1 --undo`"), "{}", said.err);
    // Placements of before name it, and do without it.
    place.write("longer", &[&data[..], &data[..]].concat());
    place.done(&["cp", "longer", "data"]);
    place.done(&["cp", "--managed", "original", "another"]);
    assert_eq!(held_bytes(&place.path("s1")), 0);
    // A plan that names it is followed without it.
    put(&place, "plan.json", &plan(&place, &[0.0], &[&[(8, on(3))]]).to_string());
    let daemon = Daemon::serving(&place, &["--plan", "plan.json", "--migrate-bandwidth", "unlimited"]);
    place.done(&["migrate", "wait"]);
    assert_eq!(spans(&place), whole(8, "s0 64KiB"));
    assert_eq!(status(&place)["totals"]["failed"], 0);
    daemon.end("-TERM");
    assert!(place.say(&["evacuate", "s1", "--undo"]).err.contains("may be placed on s1 again"));
    place.done(&["restripe", "data", "--layout", "s1 64KiB"]);
    assert!(held_bytes(&place.path("s1")) > 0);
    assert!(data_of(&place) == place.read("longer"));
    assert_eq!(place.json(&["check"])["findings"].as_array().unwrap().len(), 0);
}

#[test]
fn a_server_that_cannot_be_emptied_is_not_drained() {
    let place = Place::new();
    for name in ["h0", "s0"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    place.done(&["init", "--region", "1MiB", "--server", "h0=hdd:h0", "--server", "s0=ssd:s0:3MiB"]);
    let data = manage_data(&place, 4);
    let said = place.say(&["evacuate", "h0"]);
    assert!(
        said.status == 2 && said.err.contains("server s0 has space for 3 MiB more, and the moves need 4 MiB there"),
        "{}",
        said.err
    );
    // Not even marked.
    place.write("more", &noise(1 << 20));
    place.done(&["manage", "."]);
    place.done(&["cp", "--managed", "more", "more.managed"]);
    place.done(&["evacuate", "s0"]);
    let said = place.say(&["evacuate", "h0"]);
    assert!(said.status == 2 && said.err.contains("h0 is the last server that is not drained"), "{}", said.err);
    let said = place.say(&["evacuate", "s7"]);
    assert!(
        said.status == 2 && said.err.contains("no server `s7` in the cluster; its servers are h0, s0"),
        "{}",
        said.err
    );
    assert_eq!(spans(&place), whole(4, "<64KiB,0B>"));
    assert!(data_of(&place) == data);
}

#[test]
fn a_server_that_was_added_gets_its_share() {
    let (place, data) = place_with_data(4);
    place.done(&["restripe", "data", "--layout", "<64KiB,64KiB>"]);
    place.done(&["restripe", "data", "--layout", "s0 64KiB", "--region", "1"]);
    let said = place.say(&["rebalance", "--new", "s9"]);
    assert!(said.status == 2 && said.err.contains("no server `s9`"), "{}", said.err);
    let before = Daemon::serving(&place, &[]);
    std::fs::create_dir(place.path("s2")).unwrap();
    let mut toml = String::from_utf8(place.read("cluster.toml")).unwrap();
    toml += &format!("\n[[server]]\nname = \"s2\"\nclass = \"ssd\"\nurl = \"file://{}\"\n", place.path("s2").display());
    place.write("cluster.toml", toml.as_bytes());
    let said = place.say(&["rebalance"]);
    let expected =
        "the process that serves the cluster knows 4 servers, the cluster file 5; repeat once that process has ended";
    assert!(said.status == 2 && said.err.contains(expected), "{}", said.err);
    before.end("-TERM");
    let shown = place.json(&["rebalance"]);
    assert_eq!((&shown["new"][0], &shown["moved"]), (&"s2".into(), &3.into()), "{shown}");
    let expected = [(0, 1, "<64KiB,64KiB>"), (1, 1, "s0 64KiB"), (2, 2, "<64KiB,64KiB>")];
    assert_eq!(spans(&place), expected.map(|(first, regions, layout)| (first, regions, layout.to_owned())));
    let held = place.json(&["stat", "data"])["files"][0]["servers"].to_string();
    assert!(held.contains("\"s2\""), "{held}");
    // Regions to come too.
    place.write("longer", &[&data[..], &data[..]].concat());
    place.done(&["cp", "longer", "data"]);
    assert_eq!(spans(&place).last(), Some(&(2, 6, "<64KiB,64KiB>".to_owned())));
    let said = place.say(&["rebalance"]);
    assert!(said.status == 2 && said.err.contains("name those that were added with --new"), "{}", said.err);
    assert_eq!(place.json(&["rebalance", "--new", "s2"])["regions"], 0, "done is done");
    put(&place, "plan.json", &plan(&place, &[0.0], &[&[(8, on(4))]]).to_string());
    place.done(&["rebalance", "--plan", "plan.json"]);
    assert_eq!(spans(&place), whole(8, "s2 64KiB"));
    assert!(data_of(&place) == place.read("longer"));
}

#[test]
fn the_daemon_keeps_room_free_and_what_benefits_least_leaves() {
    preload();
    let (place, data) = place_with_data(4);
    place.done(&["restripe", "data", "--layout", "s0 64KiB"]);
    place.done(&["cp", "--managed", "original", "newer"]);
    place.done(&["restripe", "newer", "--layout", "s0 64KiB"]);
    // `cp` keeps the time of its source.
    place.done(&["run", "--", "dd", "if=original", "of=newer", "bs=1M", "count=1", "conv=notrunc", "status=none"]);
    // Room for five of the eight regions.
    let toml = String::from_utf8(place.read("cluster.toml")).unwrap();
    let (head, s0) = toml.split_once("name = \"s0\"").unwrap();
    let s0 = s0.replacen("capacity = \"64MiB\"", "capacity = \"8MiB\"\nreserve = \"3MiB\"", 1);
    place.write("cluster.toml", format!("{head}name = \"s0\"{s0}").as_bytes());
    let daemon = Daemon::serving(&place, &["--migrate-bandwidth", "unlimited"]);
    daemon.hear("server s0 has 3 MiB less free space than it should keep: 3 regions leave it");
    crate::serving::until("three moves", || status(&place)["totals"]["done"] == 3);
    let expected = [(0, 1, "s0 64KiB"), (1, 3, "<64KiB,0B>")];
    assert_eq!(spans(&place), expected.map(|(first, regions, layout)| (first, regions, layout.to_owned())));
    assert!(data_of(&place) == data);
    assert_eq!(daemon.end("-TERM"), (Some(0), Vec::new()), "and that was enough");
}

fn list_servers(place: &Place, change: impl Fn(Vec<String>) -> Vec<String>) {
    let toml = String::from_utf8(place.read("cluster.toml")).unwrap();
    let parts: Vec<String> = toml.split("[[server]]").map(str::to_owned).collect();
    place.write("cluster.toml", change(parts).join("[[server]]").as_bytes());
}

/// One that was listed once, be it by a slip, had to stay for ever.
#[test]
fn the_last_servers_can_be_taken_out_once_nothing_names_them() {
    let (place, data) = place_with_data(4);
    place.done(&["restripe", "data", "--layout", "<64KiB,64KiB>"]);
    let whole_list = place.read("cluster.toml");
    let without_last = |mut parts: Vec<String>| {
        parts.pop();
        parts
    };
    let named = |name: &'static str| {
        let url = place.path(name).display().to_string();
        move |mut parts: Vec<String>| {
            parts.push(format!("\nname = \"{name}\"\nclass = \"ssd\"\nurl = \"file://{url}\"\n"));
            parts
        }
    };
    // A slip that was seen at once.
    list_servers(&place, named("slip"));
    place.done(&["ls"]);
    list_servers(&place, without_last);
    assert!(place.done(&["ls", "--servers"]).lines().all(|line| !line.starts_with("slip")));
    list_servers(&place, without_last);
    let refused = |expected: &str| {
        let said = place.say(&["ls"]);
        assert!(said.status == 2 && said.err.contains(expected), "`{expected}` is not in: {}", said.err);
        assert!(said.err.contains("`stripewise evacuate s1`"), "{}", said.err);
    };
    refused("region 0 of HERE/data names s1");
    place.write("cluster.toml", &whole_list);
    place.done(&["evacuate", "s1"]);
    list_servers(&place, without_last);
    place.done(&["ls"]);
    assert!(data_of(&place) == data);
    assert_eq!(place.json(&["check"])["findings"].as_array().unwrap().len(), 0);
    // Another takes its number, and nothing takes the one for the other.
    std::fs::create_dir(place.path("s2")).unwrap();
    list_servers(&place, named("s2"));
    place.done(&["rebalance"]);
    assert!(held_bytes(&place.path("s2")) > 0 && held_bytes(&place.path("s1")) == 0);
    place.done(&["cp", "--managed", "original", "another"]);
    assert!(data_of(&place) == data);
    assert_eq!(place.json(&["check"])["findings"].as_array().unwrap().len(), 0);
    // One of that name is another server.
    std::fs::rename(place.path("s1"), place.path("former")).unwrap();
    std::fs::create_dir(place.path("s1")).unwrap();
    list_servers(&place, named("s1"));
    place.done(&["rebalance", "--new", "s1"]);
    assert!(held_bytes(&place.path("s1")) > 0, "it is not drained");
}

#[test]
fn drained_and_new_servers_are_shown_where_one_looks_for_them() {
    let place = Place::with_cluster();
    put(&place, "original", &"text".repeat(1 << 20));
    place.done(&["cp", "--managed", "original", "data"]);
    assert!(!place.say(&["check"]).err.contains("rebalance"));
    place.done(&["evacuate", "s0"]);
    let shown = place.done(&["ls", "--servers"]);
    let states: Vec<bool> = shown.lines().skip(1).map(|line| line.ends_with("drained: takes nothing new")).collect();
    assert_eq!(states, [false, false, true, false], "{shown}");
    assert_eq!(place.json(&["ls", "--servers"])["servers"][2]["drained"], true);
    std::fs::create_dir(place.path("s2")).unwrap();
    let toml = String::from_utf8(place.read("cluster.toml")).unwrap();
    let server = "\n[[server]]\nname = \"s2\"\nclass = \"ssd\"\nurl = \"file://s2\"\n";
    put(&place, "cluster.toml", &(toml + server));
    let said = place.say(&["check"]);
    let remedy =
        "if s2 was added to cluster.toml, `stripewise rebalance` prepares it and lays the files that are there over it";
    assert!(said.status == 1 && said.out.contains(remedy), "{}{}", said.out, said.err);
    assert_eq!(place.done(&["schema", "evacuate"]), place.done(&["schema", "drain"]));
}
