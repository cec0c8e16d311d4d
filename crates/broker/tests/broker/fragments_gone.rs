//! When the logs of fragments go: with their file, its last user, a server that is evacuated, and the cluster's setting.

use crate::cluster::Testbed;
use crate::fragments::findings;
use crate::user::{User, range, until};
use stripewise_layout::ServerId;
use stripewise_store::protocol::{Admin, Refusal, Request};
use stripewise_store::shared::control::FragmentMode;

/// Nothing of it is left: no object, no shared memory.
fn is_gone(testbed: &Testbed, file: stripewise_layout::FileId) -> bool {
    let run = std::fs::read_dir(testbed.cluster.state.join("run")).unwrap();
    let left = run.filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().contains(&file.to_string()));
    testbed.object_count(file) == 0 && left.count() == 0
}

#[test]
fn logs_go_with_their_file() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    let file = user.file();
    user.write_small(0, &range(0, 0, 10), 1);
    user.client.remove(&testbed.data("f"), file, &user.stub).unwrap();
    assert!(user.has_log_object(0), "while somebody has it open");
    user.check_read(0, &range(0, 0, 20));
    user.opened.slots.drop_user(user.client.claim.unwrap().0);
    user.close_stub();
    user.client.ask(Request::Close { file }).unwrap();
    until("the file is freed", || is_gone(&testbed, file));
    let other = User::create(&testbed, "g");
    assert_eq!(findings(&other), 0);
    let hand = |name| testbed.cluster.state.join(format!("run/{file}.{name}"));
    assert!(!hand("frag").exists() && !hand("hints").exists());
}

#[test]
fn a_file_that_is_switched_off_loses_its_logs_with_its_last_user() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    user.write_small(0, &range(0, 100, 300), 1);
    let switch = |on| user.client.ask(Request::Admin(Admin::SetFragments { file: user.file(), on })).unwrap();
    switch(Some(false));
    assert_eq!((user.opened.control.notices().fragments(), user.newer()), (FragmentMode::Leaving, 0));
    user.check_read(0, &range(0, 0, 500));
    switch(None);
    assert_eq!(user.opened.control.notices().fragments(), FragmentMode::On);
    switch(Some(false));
    user.check_disks();
    user.opened.slots.drop_user(user.client.claim.unwrap().0);
    user.client.ask(Request::Close { file: user.file() }).unwrap();
    until("the logs are gone", || !user.has_log_object(0) && !user.has_log_object(1));
    until("the control block says so", || user.opened.control.notices().fragments() == FragmentMode::Off);
    user.check_disks();
    assert_eq!(findings(&user), 0);
}

#[test]
fn logs_leave_a_server_that_is_drained() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    user.write_small(0, &range(0, 100, 300), 1);
    user.write_small(1, &range(0, 100, 300), 2);
    let drain = |drained| user.client.ask(Request::Admin(Admin::Drain { server: 2, drained })).unwrap();
    drain(true);
    until("the log is empty", || user.table.granted(ServerId(0)) == 0);
    until("so is its object", || user.log_object(0).metadata().unwrap().len() == 0);
    assert!(user.entries(0).is_empty() && user.entries(1).len() == 1);
    user.check_read(0, &range(0, 0, 500));
    drain(false);
    until("it is used again", || user.table.granted(ServerId(0)) > 0);
    user.write_small(0, &range(0, 50, 300), 3);
    user.flush().unwrap();
    user.check_disks();
}

#[test]
fn logs_go_when_the_cluster_wants_none_any_more() {
    let testbed = Testbed::with_fragments(64);
    let broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    broker.stop();
    user.write_small(0, &range(0, 100, 300), 1);
    let mut without = Testbed::at(testbed.root());
    (without.cluster.fragments, without.cluster.fragment_room) = (false, None);
    let _broker = without.start();
    user.connect_again();
    assert_eq!(user.opened.control.notices().fragments(), FragmentMode::Leaving);
    user.check_read(0, &range(0, 0, 500));
    user.flush().unwrap();
    user.check_disks();
    user.opened.slots.drop_user(user.client.claim.unwrap().0);
    user.client.ask(Request::Close { file: user.file() }).unwrap();
    until("the logs are gone", || !user.has_log_object(0) && !user.has_log_object(1));
    until("the control block says so", || user.opened.control.notices().fragments() == FragmentMode::Off);
    let switched = user.client.ask(Request::Admin(Admin::SetFragments { file: user.file(), on: Some(true) }));
    assert!(matches!(&switched, Err(Refusal::Invalid { what }) if what.contains("fragment_room")), "{switched:?}");
}
