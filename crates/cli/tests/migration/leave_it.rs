//! Plans that say themselves that they are not worth their moves.

use crate::serving::{Daemon, data_of, on, place_with_data, plan, put, spans, until, whole};
use crate::support::{Place, preload};
use serde_json::Value;
use std::process::Stdio;

const VERDICT: &str = "plan.json: the plan itself says: leave it: as a test; nothing was changed";

/// All of `data` on one server, which is not worth it.
fn put_plan(place: &Place, server: u16) {
    let mut plan = plan(place, &[0.0], &[&[(4, on(server))]]);
    plan["verdict"]["apply"] = false.into();
    plan["verdict"]["reason"] = "leave it: as a test".into();
    put(place, "plan.json", &plan.to_string());
}

#[test]
fn a_plan_that_says_leave_it_moves_nothing_without_force() {
    preload();
    let (place, data) = place_with_data(4);
    put_plan(&place, 2);
    let seen = || place.json(&["stat", "data"])["files"][0].clone();
    let before = seen();
    let run = ["run", "--migrate", "--plan", "plan.json"];
    for (words, option) in [
        (&["rebalance", "--plan", "plan.json"][..], "--force"),
        (&["restripe", "data", "--plan", "plan.json"], "--force"),
        (&["daemon", "--plan", "plan.json"], "--force"),
        (&[&run[..], &["--", "touch", "ran"]].concat(), "--force-plan"),
    ] {
        let said = place.say(words);
        let expected = format!("{VERDICT}. {option} applies it all the same");
        assert!(said.status == 2 && said.err.contains(&expected), "{words:?}: {}", said.err);
        assert_eq!(seen(), before, "{words:?}");
    }
    assert!(!place.path("ran").exists());
    // Of regions to come too.
    place.write("longer", &[&data[..], &data[..]].concat());
    place.done(&["cp", "longer", "data"]);
    assert_eq!(spans(&place), whole(8, "<64KiB,0B>"));
    place.done(&["cp", "original", "data"]);

    let forced = |server: u16, words: &[&str]| {
        put_plan(&place, server);
        let said = place.say(words);
        assert!(said.status == 0 && said.err.contains("the plan itself says: leave it: as a test"), "{}", said.err);
    };
    forced(2, &["rebalance", "--plan", "plan.json", "--force"]);
    assert_eq!(spans(&place), whole(4, "s0 64KiB"));
    forced(3, &["restripe", "data", "--plan", "plan.json", "--force"]);
    assert_eq!(spans(&place), whole(4, "s1 64KiB"));
    put_plan(&place, 0);
    let script = "until [ -e stop ]; do sleep 0.01; done";
    let words = [&run[..], &["--force-plan", "--migrate-bandwidth", "unlimited", "--", "sh", "-c", script]].concat();
    let running = place.command(&words).stderr(Stdio::piped()).spawn().unwrap();
    until("the plan's window", || spans(&place) == whole(4, "h0 64KiB"));
    place.write("stop", b"");
    let output = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("the plan itself says: leave it: as a test"), "{said}");
    assert!(data_of(&place) == data);
}

#[test]
fn a_followed_plan_that_says_leave_it_now_is_told_once_and_the_one_before_holds() {
    let (place, data) = place_with_data(4);
    let worth_it = |server: u16| put(&place, "plan.json", &plan(&place, &[0.0], &[&[(4, on(server))]]).to_string());
    worth_it(2);
    let daemon = Daemon::serving(&place, &["--plan", "plan.json", "--migrate-bandwidth", "unlimited"]);
    until("the plan's window", || spans(&place) == whole(4, "s0 64KiB"));
    put_plan(&place, 3);
    assert!(daemon.hear(VERDICT).ends_with("; going on with the plan as it was"));
    // What is moved away meanwhile goes back when the next plan is followed, and not before.
    place.done(&["restripe", "data", "--layout", "h1 64KiB"]);
    worth_it(0);
    let next = daemon.hear("plan.json");
    assert!(next.ends_with("plan.json has changed; following what it says now"), "{next}");
    until("the next plan", || spans(&place) == whole(4, "h0 64KiB"));
    assert_eq!(daemon.end("-TERM").0, Some(0));
    put_plan(&place, 3);
    let words = ["--plan", "plan.json", "--force", "--migrate-bandwidth", "unlimited"];
    let daemon = Daemon::serving(&place, &words);
    until("the plan that is forced", || spans(&place) == whole(4, "s1 64KiB"));
    put_plan(&place, 2);
    until("the next one, which is forced too", || spans(&place) == whole(4, "s0 64KiB"));
    assert_eq!(daemon.end("-TERM").0, Some(0));
    assert!(data_of(&place) == data);
}

/// Who applied it by force has decided.
#[test]
fn an_applied_plan_is_followed_whatever_its_verdict() {
    preload();
    let place = Place::with_cluster();
    let data = crate::support::noise(4 << 20);
    place.write("data", &data);
    let mut planned: Value = plan(&place, &[0.0, 0.05], &[&[(4, on(0))], &[(4, on(2))]]);
    planned["verdict"]["apply"] = false.into();
    put(&place, "plan.json", &planned.to_string());
    place.done(&["apply", "plan.json", "--force"]);
    let script = "until [ -e stop ]; do sleep 0.01; done";
    let words = ["run", "--migrate", "--migrate-bandwidth", "unlimited", "--", "sh", "-c", script];
    let mut running = place.command(&words).spawn().unwrap();
    until("the last window", || spans(&place) == whole(4, "s0 64KiB"));
    place.write("stop", b"");
    assert!(running.wait().unwrap().success());
    assert!(data_of(&place) == data);
}
