//! Root and the state directory of a user's cluster.

use crate::support::Place;
use crate::user::{
    USER, chmod, everything_below, is_root, is_untouched, make_roots, make_users, say_as_user, users_cluster,
};
use rustix::fs::{CWD, FileType, Mode};
use std::os::unix::fs::{MetadataExt, chown, symlink};

const STATE: &str = "theirs/stripewise-state";

/// `ls` by root took files over, so that the owner was locked out, and wrote what links in the state directory pointed to.
#[test]
fn root_does_nothing_in_a_users_cluster_but_as_its_owner() {
    if !is_root() {
        return;
    }
    let (place, data) = users_cluster();
    place.write("plan.json", b"{}");
    let before = everything_below(&place.path("theirs"));
    for words in [
        &["ls"][..],
        &["check", "--repair"],
        &["stat", "theirs/file"],
        &["cat", "theirs/file"],
        &["rm", "theirs/file"],
        &["release", "theirs/file"],
        &["manage", "theirs"],
        &["apply", "plan.json"],
        &["calibrate", "--quick"],
        &["broker"],
        &["daemon"],
        &["run", "--", "true"],
        &["phase", "p"],
    ] {
        let said = place.say(&[&["-C", "theirs"], words].concat());
        assert_eq!(said.status, 2, "{words:?}: {}{}", said.out, said.err);
        let told = "HERE/theirs/cluster.toml belongs to user 65534, this is root: nothing was done";
        let short = told.replace("HERE/", "");
        assert!(said.err.contains(told) || said.err.contains(&short), "{words:?}: {}", said.err);
        assert!(said.err.contains("--as-owner"), "{words:?}: {}", said.err);
    }
    assert_eq!(everything_below(&place.path("theirs")), before);
    // As the owner all is as ever, and nothing becomes root's.
    let listed = place.done(&["--as-owner", "-C", "theirs", "ls"]);
    assert!(listed.contains("theirs/file"), "{listed}");
    place.done(&["--as-owner", "-C", "theirs", "check", "--repair"]);
    for (path, (_, owner, ..)) in everything_below(&place.path("theirs")) {
        assert_eq!(owner, USER, "{}", path.display());
    }
    let said = say_as_user(&place, &["-C", "theirs", "cp", "--ordinary", "theirs/file", "theirs/copy"]);
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(place.read("theirs/copy") == data);
}

/// A cluster file of root's may name a state directory of anybody.
#[test]
fn a_state_directory_of_another_user_is_refused_and_its_owner_named() {
    if !is_root() {
        return;
    }
    let (place, _) = users_cluster();
    chown(place.path("theirs/cluster.toml"), Some(0), Some(0)).unwrap();
    let before = everything_below(&place.path(STATE));
    let said = place.say(&["-C", "theirs", "ls"]);
    assert_eq!(said.status, 2);
    let told = "the state directory HERE/theirs/stripewise-state belongs to user 65534, this is user 0";
    assert!(said.err.contains(told) && said.err.contains("--as-owner"), "{}", said.err);
    assert_eq!(everything_below(&place.path(STATE)), before);
    let listed = place.done(&["--as-owner", "-C", "theirs", "ls"]);
    assert!(listed.contains("theirs/file"), "{listed}");
    let said = say_as_user(&place, &["--as-owner", "-C", "theirs", "ls"]);
    assert_eq!(said.status, 0, "who is the owner already changes nothing: {}", said.err);
    // Not root, and not the owner either.
    chown(place.path(STATE), Some(12_345), None).unwrap();
    let said = say_as_user(&place, &["-C", "theirs", "ls"]);
    assert!(said.err.contains("belongs to user 12345, this is user 65534"), "{}", said.err);
    let said = say_as_user(&place, &["-C", "theirs", "--as-owner", "ls"]);
    assert!(said.status == 2 && said.err.contains("only root can become another user"), "{}", said.err);
}

/// The broker truncated what `broker.lock` pointed to, appended to what `log` pointed to, and waited for a FIFO in their place.
#[test]
fn what_is_no_file_of_the_owner_is_refused_by_name_in_the_state_directory() {
    if !is_root() {
        return;
    }
    let place = Place::with_cluster();
    make_roots(&place, "roots");
    place.write("data", b"data");
    place.done(&["cp", "--managed", "data", "managed"]);
    let state = place.path("stripewise-state");
    for name in [
        "log",
        "broker.lock",
        "host",
        "drained",
        "run/processes",
        "run/stations",
        "rmt/data.mdb",
        "rmt/lock.mdb",
        "rmt/committed",
        "rmt.good",
        "rmt.good/data.mdb",
        "rmt.good/data.mdb.new",
        "rmt.v3",
        "run",
        "rmt",
    ] {
        let (path, aside) = (state.join(name), place.path("aside"));
        let existed = path.exists();
        if existed {
            std::fs::rename(&path, &aside).unwrap();
        }
        let is_directory = ["run", "rmt", "rmt.good", "rmt.v3"].contains(&name);
        let target = place.path(if is_directory { "roots" } else { "roots/passwd" });
        let kinds: [(&str, &dyn Fn()); 3] = [
            ("a symbolic link", &|| symlink(&target, &path).unwrap()),
            ("a FIFO", &|| rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap()),
            ("another user's file", &|| {
                std::fs::write(&path, "").unwrap();
                chown(&path, Some(USER), Some(USER)).unwrap();
            }),
        ];
        // Only emulated clusters have clocks.
        for (kind, make) in kinds.iter().filter(|_| name != "run/stations") {
            make();
            let said = place.say(&["ls"]);
            is_untouched(&place, "roots");
            assert_eq!(said.status, 2, "{kind} at {name}: {}", said.out);
            assert!(said.err.contains(name), "{kind} at {name}: {}", said.err);
            std::fs::remove_file(&path).unwrap();
        }
        if existed {
            std::fs::rename(&aside, &path).unwrap();
        }
        assert!(place.done(&["ls"]).contains("managed"), "{name}");
    }
}

#[test]
fn a_state_directory_that_others_may_write_or_that_holds_other_things_is_refused() {
    let place = Place::with_cluster();
    let state = place.path("stripewise-state");
    chmod(&state, 0o775);
    let said = place.say(&["ls"]);
    assert!(said.status == 2 && said.err.contains("can be written by other users (mode 775)"), "{}", said.err);
    chmod(&state, 0o700);
    place.done(&["ls"]);
    // As a slip of the pen does, or a link that a user put there.
    let other = place.path("documents");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("thesis"), "all of it").unwrap();
    std::fs::rename(&state, place.path("moved")).unwrap();
    symlink(&other, &state).unwrap();
    let said = place.say(&["ls"]);
    assert!(said.status == 2 && said.err.contains("is no state directory: it holds other things"), "{}", said.err);
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
}

/// A user's cluster file is text that root would act upon.
#[test]
fn a_directory_of_root_named_in_a_users_cluster_file_is_left_alone() {
    if !is_root() {
        return;
    }
    let (place, _) = users_cluster();
    make_users(&place, "empty");
    chown(place.path("empty"), Some(0), Some(0)).unwrap();
    let file = String::from_utf8(place.read("theirs/cluster.toml")).unwrap();
    let lines = file.lines().map(|line| {
        let state = format!("state = {:?}", place.path("empty"));
        if line.starts_with("state = ") { state } else { line.to_owned() }
    });
    place.write("theirs/cluster.toml", (lines.collect::<Vec<_>>().join("\n") + "\n").as_bytes());
    for words in [&["-C", "theirs", "ls"][..], &["--as-owner", "-C", "theirs", "ls"]] {
        assert_eq!(place.say(words).status, 2);
        assert_eq!(std::fs::read_dir(place.path("empty")).unwrap().count(), 0, "{words:?}");
    }
    assert_eq!(place.path("theirs/cluster.toml").metadata().unwrap().uid(), USER);
}
