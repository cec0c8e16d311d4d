//! `stripewise init` that fails, and a cluster whose directories are not where it was made.

use crate::support::{Place, preload};
use std::os::unix::fs::symlink;

fn entries(place: &Place, name: &str) -> Vec<String> {
    let found = std::fs::read_dir(place.path(name)).unwrap();
    found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The marks that it had made on other servers stood in the way of the next.
#[test]
fn an_init_that_fails_can_be_repeated() {
    let place = Place::with_cluster();
    for name in ["n0", "n1", "empty"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    for state in ["new", "empty"] {
        let words = ["-C", "new.toml", "init", "--state", state, "--server", "a=hdd:n0", "--server", "b=ssd:h0"];
        let said = place.say(&words);
        assert!(said.status == 2 && said.err.contains("belongs to another server"), "{}", said.err);
        assert_eq!(entries(&place, "n0"), [""; 0]);
        assert!(!place.path("new").exists() && entries(&place, "empty").is_empty());
    }
    place.done(&["-C", "new.toml", "init", "--state", "empty", "--server", "a=hdd:n0", "--server", "b=ssd:n1"]);
    place.done(&["-C", "new.toml", "ls"]);
    assert!(place.path("h0/stripewise-server").exists(), "of the other cluster");
}

#[test]
fn servers_that_share_a_directory_by_whatever_path_are_refused() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("n0/in")).unwrap();
    std::fs::create_dir_all(place.path("state")).unwrap();
    symlink(place.path("n0"), place.path("link")).unwrap();
    for (first, second, expected) in [
        ("n0", "n0/../n0", "servers `a` and `b` share HERE/n0"),
        ("n0", "link", "servers `a` and `b` share HERE/n0"),
        ("n0", "link/in", "server `b`: HERE/link/in lies in the directory of server `a`, HERE/n0"),
        ("n0/in", "link", "server `a`: HERE/n0/in lies in the directory of server `b`, HERE/link"),
        ("n0", "state", "server `b`: HERE/state lies in the state directory, HERE/state"),
    ] {
        let (first, second) = (format!("a=hdd:{first}"), format!("b=ssd:{second}"));
        let said = place.say(&["init", "--state", "state", "--server", &first, "--server", &second]);
        assert!(said.status == 2 && said.err.contains(expected), "`{expected}` is not in: {}", said.err);
        assert_eq!((entries(&place, "n0"), entries(&place, "state")), (vec!["in".to_owned()], Vec::new()));
    }
    let words = ["init", "--emulated", "2xnvme", "--emulated-dir", "state/emulated", "--state", "state"];
    let said = place.say(&words);
    assert!(said.status == 2 && said.err.contains("lies in the state directory"), "{}", said.err);
    place.done(&["init", "--state", "state", "--server", "a=hdd:n0"]);
}

/// An empty cluster began beside the mount point, and redirected programs wrote what was missing later.
#[test]
fn a_cluster_whose_state_directory_is_not_there_begins_no_other() {
    preload();
    let place = Place::with_cluster();
    std::fs::create_dir(place.path("data")).unwrap();
    std::fs::create_dir(place.path("shown")).unwrap();
    place.done(&["manage", "data"]);
    place.write("bytes", &[7; 5000]);
    place.done(&["cp", "bytes", "data/kept"]);
    std::fs::rename(place.path("stripewise-state"), place.path("away")).unwrap();
    let commands: [&[&str]; 8] = [
        &["ls"],
        &["stat", "--cluster"],
        &["check"],
        &["manage", "shown"],
        &["cp", "bytes", "data/new"],
        &["run", "--", "cp", "bytes", "data/new"],
        &["mount", "data"],
        &["broker", "--until-idle"],
    ];
    for is_empty in [false, true] {
        if is_empty {
            std::fs::create_dir(place.path("stripewise-state")).unwrap();
        }
        let how = if is_empty { "is empty" } else { "is missing" };
        for words in commands {
            let said = place.say(words);
            assert_eq!(said.status, 2, "{words:?}: {}", said.err);
            for part in [&format!("HERE/stripewise-state {how}"), "not mounted", "`stripewise check --repair`"] {
                assert!(said.err.contains(part), "{words:?}: `{part}` is not in: {}", said.err);
            }
            assert!(!place.path("data/new").exists(), "{words:?}");
        }
        assert_eq!(place.path("stripewise-state").exists(), is_empty);
    }
    assert_eq!(entries(&place, "stripewise-state"), [""; 0]);
    // Nor are the servers there: nothing is made again either.
    for name in ["h0", "h1", "s0", "s1"] {
        std::fs::rename(place.path(name), place.path(&format!("{name}-away"))).unwrap();
    }
    let said = place.say(&["check", "--repair"]);
    assert!(said.status == 2 && said.err.contains("HERE/h0 is not mounted or was emptied"), "{}", said.err);
    assert_eq!(entries(&place, "stripewise-state"), [""; 0]);
    // A cluster that was never used does not begin before all its servers are there.
    std::fs::remove_dir(place.path("stripewise-state")).unwrap();
    std::fs::create_dir_all(place.path("stripewise-state/rmt")).unwrap();
    let said = place.say(&["ls"]);
    assert!(said.status == 2 && said.err.contains("HERE/h0 is not mounted or was emptied"), "{}", said.err);
    for name in ["h0", "h1", "s0", "s1"] {
        std::fs::rename(place.path(&format!("{name}-away")), place.path(name)).unwrap();
    }
    std::fs::remove_dir_all(place.path("stripewise-state")).unwrap();
    std::fs::rename(place.path("away"), place.path("stripewise-state")).unwrap();
    assert_eq!(place.done(&["cat", "data/kept"]).len(), 5000);
    // Lost for good.
    std::fs::remove_dir_all(place.path("stripewise-state")).unwrap();
    let said = place.say(&["check", "--repair"]);
    assert!(said.out.contains("the state directory HERE/stripewise-state was made again"), "{}{}", said.out, said.err);
    assert_eq!(place.done(&["cat", "data/kept"]).len(), 5000);
}
