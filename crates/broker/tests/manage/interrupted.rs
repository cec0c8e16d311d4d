//! `kill -9` between any two steps of a move, in the command or in its broker: a child process does the move and kills itself at the N-th step; then a
//! new broker starts, and the file must be whole, alone in its directory, and movable.

use crate::cluster::{REGION, Testbed};
use crate::min_size::{at_once, has_stub, set_min_size};
use crate::moves::{connect, managed_bytes, pattern};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stripewise_broker::{Broker, BrokerOptions, Started};
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::manage::{Moving, apply, release};
use stripewise_store::protocol::{Admin, Reply, Request};
use stripewise_store::stub::Stub;

const ROOT: &str = "STRIPEWISE_TEST_ROOT";
const MOVE: &str = "STRIPEWISE_TEST_MOVE";
const STEP: &str = "STRIPEWISE_TEST_STEP";

/// The child's part; nothing when run as a test of its own.
#[test]
fn child() {
    let Ok(root) = std::env::var(ROOT) else { return };
    let step: usize = std::env::var(STEP).unwrap().parse().unwrap();
    let cluster = Testbed::at(Path::new(&root)).cluster;
    let count = Arc::new(AtomicUsize::new(0));
    let kill_at = move |_: &'static str| {
        if count.fetch_add(1, Ordering::SeqCst) == step {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    };
    let testbed_placement = Testbed::placement_of();
    let hook = Arc::new(kill_at);
    let in_broker = Arc::clone(&hook);
    let options = BrokerOptions { steps: Some(Arc::new(move |name| in_broker(name))), ..at_once() };
    let started = Broker::start(&cluster, options).unwrap();
    let _broker = match started {
        Started::Serving(broker) => Some(broker),
        Started::AlreadyRunning { .. } => None,
    };
    let client = Client::connect(&cluster.state, ClientOptions::default()).unwrap();
    let path = Path::new(&root).join("data/f");
    let in_command = |name| hook(name);
    let moving = Moving { steps: Some(&in_command), ..Moving::default() };
    match std::env::var(MOVE).unwrap().as_str() {
        "apply" => drop(apply(&client, &path, &testbed_placement, &moving).unwrap()),
        "release" => drop(release(&client, &path, &moving).unwrap()),
        direction => change_by_size(&Testbed::at(Path::new(&root)), &client, direction, &path),
    };
}

/// The broker makes the change; its steps are those of the command too.
fn change_by_size(testbed: &Testbed, client: &Client, direction: &str, path: &Path) {
    let ends_as_stub = direction == "grow";
    if ends_as_stub {
        let file = File::options().write(true).open(path).unwrap();
        client.closing(file.as_fd()).unwrap();
    } else {
        set_min_size(testbed, client, Some(REGION));
    }
    let is_done = || has_stub(path) == ends_as_stub && states(client) == ["live"][..usize::from(ends_as_stub)];
    while !is_done() {
        std::thread::yield_now();
    }
}

/// True when the child ended before it came to the step.
pub fn run_child(testbed: &Testbed, direction: &str, step: usize) -> bool {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["interrupted::child", "--exact", "--nocapture"])
        .env(ROOT, testbed.root())
        .env(MOVE, direction)
        .env(STEP, step.to_string())
        .output()
        .unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert!(
        output.status.success() || output.status.signal() == Some(9),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.status.success()
}

fn is_stub(path: &Path) -> bool {
    matches!(Stub::parse(&std::fs::read(path).unwrap()), Ok(Some(_)))
}

/// Starts a broker after the crash and checks that the file is whole; returns whether it is managed now, and what was said.
pub fn check_after(testbed: &Testbed, bytes: &[u8]) -> (bool, Vec<String>) {
    let broker = testbed.start();
    let said = broker.cleaned().to_vec();
    (check_whole(testbed, bytes, &connect(testbed)), said)
}

fn check_whole(testbed: &Testbed, bytes: &[u8], client: &Client) -> bool {
    let path = testbed.data("f");
    let names: Vec<_> =
        std::fs::read_dir(testbed.root().join("data")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["f"], "only the file stands in its directory");
    let managed = is_stub(&path);
    if managed {
        assert!(managed_bytes(client, &path) == bytes, "the managed file is whole");
    } else {
        assert!(std::fs::read(&path).unwrap() == bytes, "the ordinary file is whole");
        let (Reply::Files { files, .. }, _) =
            client.request(&Request::Admin(Admin::List { after: None }), &[]).unwrap()
        else {
            panic!("no list")
        };
        assert_eq!(files, [], "nothing is managed");
        let (Reply::Usage { servers }, _) = client.request(&Request::Admin(Admin::Usage), &[]).unwrap() else {
            panic!("no usage")
        };
        assert!(servers.iter().all(|server| server.promised_bytes == 0), "{servers:?}");
    }
    // The move works now, whichever way.
    if managed {
        release(client, &path, &Moving::default()).unwrap();
        assert!(std::fs::read(&path).unwrap() == bytes);
    } else {
        apply(client, &path, &testbed.placement(), &Moving::default()).unwrap();
        assert!(managed_bytes(client, &path) == bytes);
    }
    managed
}

#[test]
fn apply_killed_at_any_step_leaves_a_whole_file_and_the_next_broker_says_what_it_did() {
    let bytes = pattern(2 * REGION as usize + 77);
    let (mut was_managed, mut sentences) = (Vec::new(), 0);
    for step in 0.. {
        let testbed = Testbed::new();
        std::fs::write(testbed.data("f"), &bytes).unwrap();
        let ended = run_child(&testbed, "apply", step);
        let (managed, said) = check_after(&testbed, &bytes);
        assert!(said.iter().all(|line| line.contains("data/f")), "{said:?}");
        sentences += said.len();
        was_managed.push(managed);
        if ended {
            assert!(managed && said.is_empty(), "{said:?}");
            break;
        }
    }
    assert!(was_managed.len() > 12, "{was_managed:?}");
    assert!(was_managed.is_sorted(), "once managed, managed at every later step: {was_managed:?}");
    assert!(sentences >= 8, "{sentences}");
}

#[test]
fn release_killed_at_any_step_leaves_a_whole_file_and_the_next_broker_says_what_it_did() {
    let bytes = pattern(2 * REGION as usize + 77);
    let (mut was_managed, mut sentences) = (Vec::new(), 0);
    for step in 0.. {
        let testbed = Testbed::new();
        std::fs::write(testbed.data("f"), &bytes).unwrap();
        {
            let _broker = testbed.start();
            apply(&connect(&testbed), &testbed.data("f"), &testbed.placement(), &Moving::default()).unwrap();
        }
        let ended = run_child(&testbed, "release", step);
        let (managed, said) = check_after(&testbed, &bytes);
        sentences += said.len();
        was_managed.push(!managed);
        if ended {
            assert!(!managed && said.is_empty(), "{said:?}");
            break;
        }
    }
    assert!(was_managed.len() > 8, "{was_managed:?}");
    assert!(was_managed.is_sorted(), "once released, released at every later step: {was_managed:?}");
    assert!(sentences >= 5, "{sentences}");
}

/// The command lives and ends with an error. It had taken the stub away, and the next broker held what was left for a managed file whose stub was lost.
#[test]
fn a_broker_lost_at_any_step_of_apply_or_release_leaves_a_whole_file_and_nothing_else() {
    let bytes = pattern(REGION as usize + 77);
    for direction in ["apply", "release"] {
        for step in 0.. {
            let testbed = Testbed::new();
            std::fs::write(testbed.data("f"), &bytes).unwrap();
            let broker = RefCell::new(Some(testbed.start()));
            if direction == "release" {
                apply(&connect(&testbed), &testbed.data("f"), &testbed.placement(), &Moving::default()).unwrap();
            }
            let options = ClientOptions { patience: Duration::ZERO, ..ClientOptions::default() };
            let client = Client::connect(&testbed.cluster.state, options).unwrap();
            let count = Cell::new(0);
            let lose_broker = |_: &'static str| {
                if count.replace(count.get() + 1) == step {
                    drop(broker.take());
                }
            };
            let moving = Moving { steps: Some(&lose_broker), ..Moving::default() };
            let done = match direction {
                "apply" => apply(&client, &testbed.data("f"), &testbed.placement(), &moving).map(|_| ()),
                _ => release(&client, &testbed.data("f"), &moving).map(|_| ()),
            };
            drop(client);
            let ended = broker.take().is_some();
            let (managed, _) = check_after(&testbed, &bytes);
            if done.is_ok() {
                assert_eq!(managed, direction == "apply", "step {step}");
            }
            if ended {
                assert!(step > 4 && done.is_ok(), "{step}: {done:?}");
                break;
            }
        }
    }
}

/// Files that the broker knows, by their states.
fn states(client: &Client) -> Vec<String> {
    match client.request(&Request::Admin(Admin::List { after: None }), &[]).unwrap().0 {
        Reply::Files { files, .. } => files.into_iter().map(|file| file.state).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_killed_command_is_settled_by_the_broker_that_served_it() {
    let bytes = pattern(REGION as usize + 77);
    for direction in ["apply", "release"] {
        for step in 0.. {
            let testbed = Testbed::new();
            std::fs::write(testbed.data("f"), &bytes).unwrap();
            let _broker = testbed.start();
            let client = connect(&testbed);
            if direction == "release" {
                apply(&client, &testbed.data("f"), &testbed.placement(), &Moving::default()).unwrap();
            }
            let ended = run_child(&testbed, direction, step);
            // The broker hears of the death in its own time.
            while states(&client).iter().any(|state| state != "live") {
                std::thread::yield_now();
            }
            let managed = check_whole(&testbed, &bytes, &client);
            if ended {
                assert_eq!(managed, direction == "apply");
                assert!(step > 4, "{step}");
                break;
            }
        }
    }
}
