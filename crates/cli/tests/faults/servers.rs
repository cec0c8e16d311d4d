//! Servers that are gone, fail or are full, and a second host.

use crate::driver::Driver;
use crate::plans::{names, place_with_plan, plan};
use crate::support::{Place, noise, preload};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

#[test]
fn a_server_that_is_gone_is_named() {
    let place = Place::with_cluster();
    place.write("data", &noise(1 << 20));
    place.done(&["cp", "--managed", "data", "managed"]);
    std::fs::rename(place.path("h1"), place.path("away")).unwrap();
    for words in [&["cat", "managed"][..], &["release", "managed"]] {
        let said = place.say(words);
        assert_eq!(said.status, 2, "{words:?}");
        assert!(said.err.contains("server h1"), "{words:?}: {}", said.err);
    }
    assert!(place.read("managed").starts_with(b"stripewise stub"));
    // A new file does without it, and `check` says so.
    place.done(&["cp", "--managed", "data", "other"]);
    assert_eq!(objects(&place, "h1"), 0);
    let checked = place.say(&["check"]);
    assert!(checked.status == 1 && checked.out.contains("server h1"), "{}", checked.out);
    assert!(checked.out.contains("regions of HERE/other lie in the fallback layout"), "{}", checked.out);
    assert_eq!(place.command(&["cat", "other"]).output().unwrap().stdout, noise(1 << 20));
    std::fs::rename(place.path("away"), place.path("h1")).unwrap();
    place.done(&["release", "managed"]);
    assert_eq!(place.read("managed"), noise(1 << 20));
}

#[test]
fn what_a_full_ssd_does_not_hold_goes_to_the_disks() {
    let place = Place::new();
    std::fs::create_dir(place.path("h")).unwrap();
    std::fs::create_dir(place.path("s")).unwrap();
    place.done(&["init", "--region", "1MiB", "--server", "h=hdd:h", "--server", "s=ssd:s:2MiB"]);
    std::fs::create_dir(place.path("fast")).unwrap();
    place.done(&["manage", "fast", "--class", "ssd"]);
    let data = noise(4 << 20);
    place.write("data", &data);
    place.done(&["cp", "data", "fast/data"]);
    let stat = place.json(&["stat", "fast/data"])["files"][0].clone();
    assert_eq!(
        stat["servers"],
        serde_json::json!([
            {"name": "h", "bytes": 2 << 20, "replica_bytes": 0, "promised_bytes": 2 << 20, "held_bytes": 2 << 20},
            {"name": "s", "bytes": 2 << 20, "replica_bytes": 0, "promised_bytes": 2 << 20, "held_bytes": 2 << 20}
        ])
    );
    assert!(place.done(&["stat", "fast/data"]).contains("fallback: its servers were full"));
    assert_eq!(place.command(&["cat", "fast/data"]).output().unwrap().stdout, data);
}

/// Objects on one server.
fn objects(place: &Place, server: &str) -> usize {
    let Ok(files) = std::fs::read_dir(place.path(server).join("stripewise-objects")) else { return 0 };
    files.map(|file| std::fs::read_dir(file.unwrap().path()).map_or(0, Iterator::count)).sum()
}

#[test]
fn apply_to_a_server_that_is_gone_or_emptied_changes_nothing() {
    let place = place_with_plan();
    // Before its first use a cluster needs all its servers for any command.
    place.done(&["ls"]);
    let data = place.read("data");
    let before = names(&place);
    for is_emptied in [false, true] {
        std::fs::rename(place.path("h0"), place.path("away")).unwrap();
        if is_emptied {
            std::fs::create_dir(place.path("h0")).unwrap();
        }
        let said = place.say(&["apply", "plan.json"]);
        assert_eq!(said.status, 2);
        for part in ["HERE/data", "server h0", "HERE/h0 is not mounted or was emptied; mount it again"] {
            assert!(said.err.contains(part), "`{part}` is not in: {}", said.err);
        }
        let _ = std::fs::remove_dir(place.path("h0"));
        assert!(!place.path("h0").exists(), "something was written where no server is");
        std::fs::rename(place.path("away"), place.path("h0")).unwrap();
        assert!(place.read("data") == data && names(&place) == before);
        let next = place.say(&["ls"]);
        assert!(
            next.status == 0 && next.out.is_empty() && !next.err.contains("cleaned up"),
            "{}{}",
            next.out,
            next.err
        );
        assert_eq!(objects(&place, "h0"), 0);
    }
    // Only the marker is gone: the directory is not trusted.
    std::fs::rename(place.path("h0/stripewise-server"), place.path("marker")).unwrap();
    let said = place.say(&["apply", "plan.json"]);
    assert!(said.status == 2 && said.err.contains("server h0"), "{}", said.err);
    std::fs::rename(place.path("marker"), place.path("h0/stripewise-server")).unwrap();
    // Another server's directory stands there.
    for (from, to) in [("h0", "x"), ("h1", "h0"), ("x", "h1")] {
        std::fs::rename(place.path(from), place.path(to)).unwrap();
    }
    let said = place.say(&["apply", "plan.json"]);
    assert_eq!(said.status, 2);
    assert!(said.err.contains("belongs to another server") && said.err.contains("server h1"), "{}", said.err);
    for (from, to) in [("h0", "x"), ("h1", "h0"), ("x", "h1")] {
        std::fs::rename(place.path(from), place.path(to)).unwrap();
    }
    assert!(place.read("data") == data);
    place.done(&["apply", "plan.json"]);
}

#[test]
fn a_run_without_one_of_its_servers_serves_the_others() {
    preload();
    let place = Place::with_cluster();
    std::fs::create_dir(place.path("fast")).unwrap();
    place.done(&["manage", "fast", "--class", "ssd"]);
    place.write("data", &noise(1 << 20));
    place.done(&["cp", "data", "fast/data"]);
    place.done(&["cp", "--managed", "data", "wide"]);
    std::fs::rename(place.path("h1"), place.path("away")).unwrap();
    let served = place.command(&["run", "--", "cat", "fast/data"]).output().unwrap();
    assert!(served.status.success() && served.stdout == place.read("data"));
    let failed = place.say(&["run", "--", "cat", "wide"]);
    assert_eq!(failed.status, 1, "{}", failed.err);
    assert!(failed.err.contains("cat: wide: Input/output error"), "{}", failed.err);
    assert_eq!(failed.err.matches("server h1: HERE/h1 is not mounted or was emptied").count(), 1, "{}", failed.err);
    std::fs::rename(place.path("away"), place.path("h1")).unwrap();
    assert!(place.command(&["run", "--", "cat", "wide"]).output().unwrap().stdout == place.read("data"));
}

#[test]
fn a_file_that_is_removed_while_a_server_is_away_is_freed_when_it_is_back() {
    let place = Place::with_cluster();
    place.write("data", &noise(3 << 20));
    place.done(&["cp", "--managed", "data", "managed"]);
    std::fs::rename(place.path("h1"), place.path("away")).unwrap();
    let said = place.say(&["rm", "managed"]);
    assert!(said.err.contains("HERE/h1 is not mounted or was emptied") || said.status == 0, "{}", said.err);
    assert!(!place.path("managed").exists());
    let checked = place.say(&["check"]);
    assert_eq!(checked.status, 1);
    assert!(checked.err.contains("not cleaned up yet: HERE/managed: server h1: HERE/h1 is not"), "{}", checked.err);
    assert!(checked.out.contains("the removed file HERE/managed still occupies servers"), "{}", checked.out);
    assert!(!checked.out.contains("lack their object"), "nobody misses them: {}", checked.out);
    std::fs::rename(place.path("away"), place.path("h1")).unwrap();
    let next = place.say(&["ls"]);
    assert!(next.err.contains("cleaned up: the data of the removed file HERE/managed was freed"), "{}", next.err);
    assert_eq!(["h0", "h1", "s0", "s1"].map(|server| objects(&place, server)), [0; 4]);
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn a_lost_object_is_an_error_and_never_zeros() {
    let place = place_with_plan();
    place.done(&["apply", "plan.json"]);
    let file = std::fs::read_dir(place.path("h0/stripewise-objects")).unwrap().next().unwrap().unwrap().path();
    let mut lost = std::fs::read_dir(&file).unwrap().map(|object| object.unwrap().path());
    std::fs::remove_file(lost.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("1.")).unwrap())
        .unwrap();
    let mut driver = Driver::start(&place, &[]);
    assert_eq!(driver.ask("(f := os.open('data', os.O_RDWR)) >= 0"), "True");
    assert_eq!(driver.ask("len(os.pread(f, 1 << 20, 0))"), (1 << 20).to_string());
    assert_eq!(driver.ask("os.pread(f, 10, 1 << 20)"), "EIO");
    assert_eq!(driver.ask("os.pwrite(f, b'x', 1 << 20)"), "EIO");
    assert_eq!(driver.ask("len(os.pread(f, 1 << 20, 2 << 20))"), (1 << 20).to_string());
    assert!(driver.end().status.success());
    let checked = place.say(&["check"]);
    assert_eq!(checked.status, 1);
    assert!(
        checked.out.contains("1 of the regions of HERE/data lack their object on server h0 (the first is region 1)"),
        "{}",
        checked.out
    );
}

/// The place is given to a user without privileges, to whom modes apply, if this one is root.
fn as_mortal(place: &Place, words: &[&str]) -> Output {
    let ours = place.path("").metadata().unwrap();
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return place.command(words).output().unwrap();
    }
    if ours.uid() == 0 {
        // Wherever the build lies.
        // By a process of its own: who starts children at the same time as it is written makes it busy for a moment.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_stripewise")).arg(place.path("stripewise")).status();
        assert!(copied.unwrap().success());
        let given = Command::new("chown").args(["-R", "65534:65534"]).arg(place.path("")).status();
        assert!(given.unwrap().success());
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "./stripewise"]).args(words);
    command.current_dir(place.path("")).env_remove("STRIPEWISE_CLUSTER").output().unwrap()
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_server_that_cannot_be_written_to_is_refused() {
    let place = Place::new();
    for name in ["a", "b"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    let init = ["init", "--region", "1MiB", "--server", "a=hdd:a", "--server", "b=hdd:b"];
    chmod(&place.path("b"), 0o555);
    let said = place.said(as_mortal(&place, &init));
    assert_eq!(said.status, 2);
    assert!(
        said.err.contains("server `b`: HERE/b is not writable") && said.err.contains("change its mode or owner"),
        "{}",
        said.err
    );
    assert!(!place.path("cluster.toml").exists() && !place.path("stripewise-state").exists());
    assert_eq!(std::fs::read_dir(place.path("a")).unwrap().count(), 0, "the other server was touched");
    chmod(&place.path("b"), 0o755);
    assert_eq!(place.said(as_mortal(&place, &init)).err.lines().count(), 1);

    let data = noise(3 << 20);
    place.write("data", &data);
    let mut on_b = plan(&place, "data");
    on_b["files"][0]["windows"][0]["placement"]["layouts"][0][0][0] = 1.into();
    place.write("plan.json", on_b.to_string().as_bytes());
    let given =
        Command::new("chown").arg("--reference=a").args(["data", "plan.json"]).current_dir(place.path("")).status();
    assert!(given.unwrap().success());
    chmod(&place.path("b/stripewise-objects"), 0o555);
    let before = names(&place);
    let said = place.said(as_mortal(&place, &["apply", "plan.json"]));
    assert_eq!(said.status, 2, "{}", said.err);
    assert!(said.err.contains("HERE/data") && said.err.contains("server b"), "{}", said.err);
    assert!(place.read("data") == data && names(&place) == before);
    let checked = place.said(as_mortal(&place, &["check"]));
    assert_eq!(checked.status, 1);
    assert!(checked.out.contains("HERE/b is not writable"), "{}", checked.out);
    chmod(&place.path("b/stripewise-objects"), 0o711);
    let said = place.said(as_mortal(&place, &["apply", "plan.json"]));
    assert_eq!(said.status, 0, "{}", said.err);
}

#[test]
fn an_apply_that_has_no_room_changes_nothing() {
    let place = Place::new();
    for name in ["h", "s"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    place.done(&["init", "--region", "1MiB", "--server", "h=hdd:h:1MiB", "--server", "s=ssd:s:2MiB"]);
    let data = noise(4 << 20);
    place.write("data", &data);
    place.write("small", &data[..2 << 20]);
    for server in [0, 1] {
        let mut plan = plan(&place, "data");
        plan["files"][0]["windows"][0]["placement"]["layouts"][0][0][0] = server.into();
        place.write("plan.json", plan.to_string().as_bytes());
        let before = names(&place);
        let said = place.say(&["apply", "plan.json"]);
        assert_eq!(said.status, 2);
        assert!(said.err.contains("HERE/data") && said.err.contains("space"), "{}", said.err);
        assert!(place.read("data") == data && names(&place) == before);
        assert_eq!((objects(&place, "h"), objects(&place, "s")), (0, 0));
        let next = place.say(&["check"]);
        assert_eq!((next.status, next.err.as_str()), (0, "stripewise check: nothing is wrong\n"));
    }
    let said = place.say(&["cp", "--managed", "data", "copy"]);
    assert!(said.status == 2 && said.err.contains("space") && !place.path("copy").exists(), "{}", said.err);
    assert_eq!((objects(&place, "h"), objects(&place, "s")), (0, 0));
    // Of several files none is moved when one does not fit, and a dry run tells.
    let mut both = plan(&place, "small");
    both["files"][0]["windows"][0]["placement"]["layouts"][0][0][0] = 1.into();
    both["files"].as_array_mut().unwrap().push(plan(&place, "data")["files"][0].clone());
    place.write("plan.json", both.to_string().as_bytes());
    for words in [&["apply", "plan.json"][..], &["apply", "plan.json", "--dry-run"]] {
        let said = place.say(words);
        assert_eq!(said.status, 2);
        assert!(said.err.contains("of HERE/data: server h has 0 B left of the 1 MiB"), "{}", said.err);
        assert!(place.read("small") == data[..2 << 20] && place.read("data") == data);
    }
    // All of the room can still be had.
    let mut fits = plan(&place, "small");
    fits["files"][0]["windows"][0]["placement"]["layouts"][0][0][0] = 1.into();
    place.write("plan.json", fits.to_string().as_bytes());
    place.done(&["apply", "plan.json"]);
    assert_eq!(objects(&place, "s"), 2);
}

#[test]
fn an_apply_that_fails_names_what_it_has_moved() {
    let place = Place::with_cluster();
    place.write("first file", &noise(1 << 20));
    std::os::unix::fs::symlink("first file", place.path("again")).unwrap();
    let mut both = plan(&place, "first file");
    both["files"].as_array_mut().unwrap().push(plan(&place, "again")["files"][0].clone());
    place.write("plan.json", both.to_string().as_bytes());
    let said = place.say(&["apply", "plan.json"]);
    assert_eq!(said.status, 2);
    let kept =
        "HERE/first file was moved before and stays managed; `stripewise release 'HERE/first file'` turns it back";
    assert!(said.err.contains(kept), "{}", said.err);
    place.done(&["release", "first file"]);
    assert!(place.read("first file") == noise(1 << 20));
}

#[test]
fn a_second_host_is_refused() {
    let place = Place::with_cluster();
    place.done(&["ls"]);
    let path = place.path("stripewise-state/host");
    let text = std::fs::read_to_string(&path).unwrap();
    let of_another = |line: &str| match line.split_once(' ') {
        Some((key @ ("machine" | "boot"), id)) => format!("{key} {}\n", "0".repeat(id.len() - 1) + "1"),
        Some(("name", name)) => format!("name not-{name}\n"),
        _ => format!("{line}\n"),
    };
    let other: String = text.lines().map(of_another).collect();
    assert_ne!(other, text);
    std::fs::write(&path, other).unwrap();
    let said = place.say(&["ls"]);
    assert_eq!(said.status, 2);
    assert!(
        said.err.contains("in use by host not-") && said.err.contains("rename HERE/stripewise-state/host to host.old"),
        "{}",
        said.err
    );
    let before = place.read("stripewise-state/host");
    preload();
    let said = place.say(&["run", "--", "touch", "started"]);
    assert_eq!(said.status, 2);
    assert!(said.err.contains("in use by host not-") && !place.path("started").exists(), "{}", said.err);
    assert_eq!(place.read("stripewise-state/host"), before);
    // The remedy that it names is one.
    std::fs::remove_file(&path).unwrap();
    place.done(&["ls"]);
}
