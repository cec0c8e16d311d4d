//! `stripewise init` that fails, and a cluster whose directories are not where it was made.

use crate::support::{Place, preload};

fn entries(place: &Place, name: &str) -> Vec<String> {
    let found = std::fs::read_dir(place.path(name)).unwrap();
    found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
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
