//! Following a plan's windows.

use crate::serving::{
    Daemon, data_of, manage_data, on, place_with_data, plan, put, spans, status, until, until_copying, whole,
};
use crate::support::{Place, preload};
use std::process::Stdio;

#[test]
fn windows_are_followed_by_the_phases_that_a_program_marks() {
    let (place, data) = place_with_data(4);
    let windows: [&[_]; 3] = [&[(4, on(0))], &[(2, on(2)), (2, on(3))], &[(4, on(1))]];
    put(&place, "plan.json", &plan(&place, &[0.0, 60.0, 120.0], &windows).to_string());
    let daemon =
        Daemon::serving(&place, &["--plan", "plan.json", "--windows", "phase", "--migrate-bandwidth", "unlimited"]);
    let on_ssd = || vec![(0, 2, "s0 64KiB".to_owned()), (2, 2, "s1 64KiB".to_owned())];
    place.done(&["migrate", "wait"]);
    assert_eq!(spans(&place), whole(4, "h0 64KiB"), "the first window holds from the start");
    for (phase, window, expected) in [
        ("read", 0, whole(4, "h0 64KiB")),
        ("compute", 1, on_ssd()),
        ("write", 2, whole(4, "h1 64KiB")),
        ("read", 0, whole(4, "h0 64KiB")),
        ("1", 1, on_ssd()),
        ("write", 2, whole(4, "h1 64KiB")),
        ("once-more", 2, whole(4, "h1 64KiB")),
    ] {
        let answer = place.json(&["phase", phase])["answer"].as_str().unwrap().to_owned();
        assert!(answer.starts_with(&format!("window {window} of 0 to 2")), "{answer}");
        assert_eq!(answer.ends_with("the last one holds"), phase == "once-more", "{answer}");
        place.done(&["migrate", "wait"]);
        assert_eq!(spans(&place), expected, "{phase}");
    }
    let said = place.say(&["phase", "3"]);
    assert!(said.status == 2 && said.err.contains("the plan has windows 0 to 2, not 3"), "{}", said.err);
    assert!(data_of(&place) == data);
    assert_eq!(daemon.end("-TERM").0, Some(0));
}

/// Two regions leave an SSD that has space for two, two others come: only in that order is there room.
#[test]
fn what_leaves_ssd_makes_room_for_what_comes() {
    let place = Place::new();
    for name in ["h0", "s0"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    place.done(&["init", "--region", "1MiB", "--server", "h0=hdd:h0", "--server", "s0=ssd:s0:2MiB"]);
    let data = manage_data(&place, 4);
    let windows: [&[_]; 2] = [&[(2, on(0)), (2, on(1))], &[(2, on(1)), (2, on(0))]];
    put(&place, "plan.json", &plan(&place, &[0.0, 60.0], &windows).to_string());
    let daemon =
        Daemon::serving(&place, &["--plan", "plan.json", "--windows", "phase", "--migrate-bandwidth", "unlimited"]);
    place.done(&["migrate", "wait"]);
    // With h0 as the only disk, its 64 KiB stripe is the pair's.
    assert_eq!(spans(&place), [(0, 2, "<64KiB,0B>".to_owned()), (2, 2, "<0B,64KiB>".to_owned())]);
    place.done(&["phase", "1"]);
    place.done(&["migrate", "wait"]);
    assert_eq!(spans(&place), [(0, 2, "<0B,64KiB>".to_owned()), (2, 2, "<64KiB,0B>".to_owned())]);
    let shown = status(&place);
    let last: Vec<(u64, &str)> = shown["moves"].as_array().unwrap()[2..]
        .iter()
        .map(|one| (one["region"].as_u64().unwrap(), one["state"].as_str().unwrap()))
        .collect();
    assert_eq!(last, [(2, "done"), (3, "done"), (0, "done"), (1, "done")], "outgoing first");
    // What does not fit stays, is told, and keeps nothing else back.
    let windows: [&[_]; 1] = [&[(1, on(0)), (3, on(1))]];
    put(&place, "plan.json", &plan(&place, &[0.0], &windows).to_string());
    daemon.hear("1 move failed; its region stays in the old place");
    place.done(&["migrate", "wait"]);
    let on_ssd = spans(&place)
        .iter()
        .filter(|(_, _, layout)| layout == "<0B,64KiB>")
        .map(|(_, regions, _)| regions)
        .sum::<u64>();
    assert_eq!((on_ssd, &spans(&place)[0]), (2, &(0, 1, "<64KiB,0B>".to_owned())));
    assert!(data_of(&place) == data);
    drop(daemon);
}

#[test]
fn a_run_follows_the_applied_plan_by_time() {
    preload();
    let place = Place::with_cluster();
    let data = crate::support::noise(3 << 20);
    place.write("data", &data);
    let windows: [&[_]; 3] = [&[(3, on(0))], &[(3, on(2))], &[(3, on(3))]];
    place.write("plan.json", plan(&place, &[0.0, 0.05, 0.1], &windows).to_string().as_bytes());
    place.done(&["apply", "plan.json"]);
    assert_eq!(spans(&place), whole(3, "h0 64KiB"));
    let script = "until [ -e stop ]; do sleep 0.01; done; cat data";
    let words = ["run", "--migrate", "--migrate-bandwidth", "unlimited", "--", "sh", "-c", script];
    let run = place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the last window", || spans(&place) == whole(3, "s1 64KiB"));
    let said = place.say(&["daemon"]);
    assert!(said.err.contains(&format!("process {} is the daemon", run.id())), "{}", said.err);
    place.write("stop", b"");
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && output.stdout == data, "{said}");
    assert!(said.contains("window 2 (from 100 ms): "), "{said}");
    assert!(place.read("stripewise-state/daemon").is_empty());
}

#[test]
fn a_program_marks_phases_of_its_own_run() {
    preload();
    let (place, data) = place_with_data(2);
    let windows: [&[_]; 2] = [&[(2, on(0))], &[(2, on(2))]];
    put(&place, "plan.json", &plan(&place, &[0.0, 60.0], &windows).to_string());
    // From another directory: the run itself says which cluster it is.
    let command = env!("CARGO_BIN_EXE_stripewise");
    let script = format!("cd /; {command} phase first && {command} phase second && cat \"$0\"");
    let file = place.path("data");
    let words = ["run", "--migrate", "--plan", "plan.json", "--windows", "phase", "--", "sh", "-c", &script];
    let mut command = place.command(&words);
    let output = command.arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && output.stdout == data, "{said}");
    assert!(said.contains("stripewise phase: window 1 of 0 to 1"), "{said}");
}

#[test]
fn a_plan_that_changes_while_moves_are_queued_is_followed() {
    let (place, data) = place_with_data(4);
    put(&place, "plan.json", &plan(&place, &[0.0], &[&[(4, on(2))]]).to_string());
    let daemon = Daemon::serving(&place, &["--plan", "plan.json", "--migrate-bandwidth", "16KiB"]);
    until_copying(&place);
    // Back to where they lie: what is queued and under way is not wanted any more.
    let stay = serde_json::json!([[0, 65536], [1, 65536]]);
    put(&place, "plan.json", &plan(&place, &[0.0], &[&[(4, stay)]]).to_string());
    daemon.hear("HERE/plan.json has changed".trim_start_matches("HERE/"));
    place.done(&["migrate", "bandwidth", "unlimited"]);
    place.done(&["migrate", "wait"]);
    assert_eq!(spans(&place), whole(4, "<64KiB,0B>"));
    put(&place, "plan.json", "{\"version\": 2");
    daemon.hear("going on with the plan as it was");
    put(&place, "plan.json", &plan(&place, &[0.0], &[&[(4, on(3))]]).to_string());
    daemon.hear("has changed");
    until("the new plan", || spans(&place) == whole(4, "s1 64KiB"));
    assert!(data_of(&place) == data);
    assert_eq!(daemon.end("-TERM").0, Some(0));
}

/// The time of day jumps by a year, back and forth: plans are told apart, and windows begun, all the same.
#[test]
fn plans_and_their_windows_are_followed_whatever_the_clock_says() {
    let (place, data) = place_with_data(2);
    let year = std::time::Duration::from_secs(365 * 86400);
    let now = std::time::SystemTime::now();
    let put_at = |modified, starts_s: &[f64], windows: &[&[_]]| {
        place.write("unfinished", plan(&place, starts_s, windows).to_string().as_bytes());
        let file = std::fs::File::options().write(true).open(place.path("unfinished")).unwrap();
        file.set_modified(modified).unwrap();
        std::fs::rename(place.path("unfinished"), place.path("plan.json")).unwrap();
    };
    put_at(now + year, &[0.0, 0.05], &[&[(2, on(1))], &[(2, on(2))]]);
    let daemon = Daemon::serving(&place, &["--plan", "plan.json", "--migrate-bandwidth", "unlimited"]);
    until("the second window", || spans(&place) == whole(2, "s0 64KiB"));
    for (modified, server, layout) in [(now - year, 3, "s1 64KiB"), (now + 2 * year, 0, "h0 64KiB")] {
        put_at(modified, &[0.0], &[&[(2, on(server))]]);
        daemon.hear("has changed");
        until("the new plan", || spans(&place) == whole(2, layout));
    }
    assert!(data_of(&place) == data);
    assert_eq!(daemon.end("-TERM").0, Some(0));
}
