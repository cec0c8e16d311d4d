//! `kill -9` of the broker between any two steps of its work on fragments, together with a program that uses them.
//!
//! Whatever the step, with the next broker holds: every byte is that of the last write that had ended, or of the one that was under way; written back, the disks have
//! the same; `check` with repair leaves nothing to find; and a removed file leaves nothing behind.

use crate::cluster::{REGION, STRIPE, Testbed};
use crate::user::{OBJECT, REGIONS, User, range, until};
use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stripewise_broker::{BrokerHandle, BrokerOptions};
use stripewise_layout::{Layout, RegionIndex, ServerId};
use stripewise_store::protocol::{Admin, Finding, MoveOrder, Reply, Request};
use stripewise_store::shared::fragments::hints::Suggestion;
use stripewise_store::shared::fragments::{Class, DiskRange, WriteChoice};
use stripewise_store::stub::Stub;

const ROOT: &str = "STRIPEWISE_TEST_ROOT";
const STEP: &str = "STRIPEWISE_TEST_STEP";
/// Within region 1: its first server keeps 4096 + 100 bytes.
const CUT: u64 = REGION + 4 * STRIPE as u64 + 100;

#[derive(Clone, Copy)]
enum Op {
    /// On the server with this turn.
    Write(u16, DiskRange, u8, WriteChoice),
    /// Has a range read by its disk copied in.
    CopyIn(u16, DiskRange),
    Flush,
    /// The servers of region 0 change their turns.
    Move,
    Cut,
    Extend,
    SwitchOff,
    SwitchOn,
    Remove,
}

fn ops() -> Vec<Op> {
    let add = WriteChoice::Add(Class::Fragment);
    vec![
        Op::Write(0, range(0, 100, 300), 1, add),
        Op::Write(1, range(1, 0, 500), 2, add),
        Op::Write(0, range(1, 4100, 400), 3, add),
        Op::Write(0, range(2, 9, 900), 4, add),
        Op::Write(1, range(0, 0, 6000), 5, WriteChoice::Disk),
        Op::CopyIn(1, range(0, 70, 700)),
        Op::Flush,
        Op::Write(0, range(0, 200, 50), 6, WriteChoice::Present),
        Op::Write(0, range(1, 4150, 200), 7, WriteChoice::Present),
        Op::Write(0, range(0, 0, 150), 8, WriteChoice::Disk),
        Op::Move,
        Op::Write(0, range(0, 100, 300), 9, add),
        Op::Cut,
        Op::Extend,
        Op::Write(1, range(0, 9000, 10), 10, add),
        Op::SwitchOff,
        Op::SwitchOn,
        Op::Write(0, range(1, 50, 10), 11, add),
        Op::Remove,
    ]
}

/// What the first two servers' objects of every region hold.
type Model = Vec<Vec<u8>>;

fn object(turn: u16, region: u32) -> usize {
    usize::from(turn) * REGIONS as usize + region as usize
}

fn after(model: &Model, op: &Op) -> Model {
    let mut model = model.clone();
    match op {
        Op::Write(turn, at, byte, _) => {
            model[object(*turn, at.region.0)][at.offset.0 as usize..at.end() as usize].fill(*byte);
        }
        Op::Cut => {
            for turn in 0..2 {
                let kept = STRIPE as usize + if turn == 0 { 100 } else { 0 };
                model[object(turn, 1)][kept..].fill(0);
                (2..REGIONS).for_each(|region| model[object(turn, region)].fill(0));
            }
        }
        _ => {}
    }
    model
}

fn act(user: &mut User<'_>, broker: &BrokerHandle, op: &Op) {
    let file = user.file();
    let switch = |user: &User<'_>, on| {
        user.client.ask(Request::Admin(Admin::SetFragments { file, on })).unwrap();
    };
    match op {
        Op::Write(turn, at, byte, choice) => {
            let server = user.server_of(*turn, at.region.0).unwrap();
            user.write_unnoted(server, at, &vec![*byte; at.length as usize], *choice);
        }
        Op::CopyIn(turn, at) => {
            let disk = user.server_of(*turn, at.region.0).unwrap();
            user.hints.suggest(&Suggestion { disk: ServerId(disk), range: *at, class: Class::Random });
            until("it is copied in", || user.entries(disk).iter().any(|seen| seen.range == *at));
        }
        Op::Flush => user.flush().unwrap(),
        Op::Move => {
            let layout = Layout::new([1, 0, 3, 2].map(|server| (ServerId(server), STRIPE))).unwrap();
            let order = MoveOrder { file, first: RegionIndex(0), last: RegionIndex(0), layout };
            broker.queue_moves(&[order]).unwrap();
            until("the region has moved", || broker.move_totals().done == 1);
        }
        Op::Cut => _ = user.client.ask(Request::Truncate { file, size_bytes: CUT, number: 0 }).unwrap(),
        Op::Extend => {
            _ = user
                .client
                .ask(Request::Truncate { file, size_bytes: u64::from(REGIONS) * REGION, number: 0 })
                .unwrap();
        }
        Op::SwitchOff => switch(user, Some(false)),
        Op::SwitchOn => switch(user, None),
        Op::Remove => {
            user.client.remove(&user.testbed.data("f"), file, &user.stub).unwrap();
            user.opened.slots.drop_user(user.client.claim.unwrap().0);
            user.client.ask(Request::Close { file }).unwrap();
        }
    }
}

/// The child's part; nothing when run as a test of its own.
#[test]
fn child() {
    let Ok(root) = std::env::var(ROOT) else { return };
    let step: usize = std::env::var(STEP).unwrap().parse().unwrap();
    let testbed = Testbed::at(Path::new(&root));
    let count = AtomicUsize::new(0);
    let kill_at = move |name: &'static str| {
        let is_ours =
            name.starts_with("fragments:") || name == "truncate: entries truncated" || name == "move: committed";
        if is_ours && count.fetch_add(1, Ordering::SeqCst) == step {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
            // Nothing else is done meanwhile.
            std::thread::park();
        }
    };
    let broker = testbed.start_with(BrokerOptions { steps: Some(Arc::new(kill_at)), ..BrokerOptions::default() });
    let mut done = File::options().append(true).create(true).open(testbed.root().join("done")).unwrap();
    let mut user = User::create(&testbed, "f");
    for op in ops() {
        writeln!(done).unwrap();
        act(&mut user, &broker, &op);
        writeln!(done).unwrap();
    }
}

fn check(user: &crate::cluster::Client) -> Vec<Finding> {
    match user.ask(Request::Admin(Admin::Check { repair: true })).unwrap() {
        Reply::Findings { findings } => findings,
        other => panic!("{other:?}"),
    }
}

/// Runs the child up to `step`. Returns how many operations had begun, and whether it came to its end.
fn kill_at(step: usize) -> (usize, bool) {
    let testbed = Testbed::with_fragments(64);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["fragments_killed::child", "--exact", "--nocapture"])
        .env(ROOT, testbed.root())
        .env(STEP, step.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || output.status.signal() == Some(9), "{step}: {text}");
    let noted = std::fs::read_to_string(testbed.root().join("done")).unwrap_or_default().len();
    let (begun, ended) = (noted.div_ceil(2), noted / 2);
    let _broker = testbed.start();
    check_after(&testbed, step, begun, ended);
    (begun, output.status.success())
}

fn check_after(testbed: &Testbed, step: usize, begun: usize, ended: usize) {
    let client = testbed.client();
    check(&client);
    assert_eq!(check(&client), [], "step {step}");
    let stub = std::fs::read(testbed.data("f")).unwrap_or_default();
    if begun == 0 || stub.is_empty() {
        assert!(begun == 0 || begun == ops().len(), "step {step}: the file is gone");
        return;
    }
    let mut states: Vec<Model> = vec![vec![vec![0; OBJECT]; 2 * REGIONS as usize]];
    for op in ops() {
        states.push(after(states.last().unwrap(), &op));
    }
    // It may have been switched off, and its logs be gone with its user.
    let file = Stub::parse(&stub).unwrap().unwrap().file;
    client.ask(Request::Admin(Admin::SetFragments { file, on: None })).unwrap();
    let mut user = User::open(testbed, "f");
    let read = |user: &User<'_>, turn, region| match user.server_of(turn, region) {
        Some(disk) => user.read(disk, &range(region, 0, OBJECT as u64)),
        None => vec![0; OBJECT],
    };
    for (turn, region) in (0..2).flat_map(|turn| (0..REGIONS).map(move |region| (turn, region))) {
        let (old, new) = (&states[ended][object(turn, region)], &states[begun][object(turn, region)]);
        let found = read(&user, turn, region);
        let wrong = (0..OBJECT).find(|at| found[*at] != old[*at] && found[*at] != new[*at]);
        assert_eq!(wrong, None, "step {step}, {ended} operations: turn {turn} of region {region}");
        if let Some(disk) = user.server_of(turn, region) {
            user.flush().unwrap();
            assert!(user.on_disk(disk, region) == found, "step {step}: turn {turn} of region {region} on its disk");
        }
    }
    assert_eq!(user.newer(), 0);
    user.client.remove(&testbed.data("f"), file, &user.stub).unwrap();
    user.opened.slots.drop_user(user.client.claim.take().unwrap().0);
    user.close_stub();
    user.client.ask(Request::Close { file }).unwrap();
    until("the file is freed", || testbed.object_count(file) == 0);
    assert_eq!(check(&client), [], "step {step}");
}

#[test]
fn no_step_of_a_killed_broker_loses_a_byte_or_leaves_anything() {
    const AT_ONCE: usize = 4;
    let mut reached = Vec::new();
    for first in (0..).step_by(AT_ONCE) {
        let results: Vec<(usize, bool)> = std::thread::scope(|scope| {
            let runs: Vec<_> = (first..first + AT_ONCE).map(|step| scope.spawn(move || kill_at(step))).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        reached.extend(results.iter().map(|(begun, _)| *begun));
        if results.iter().any(|(_, ended)| *ended) {
            break;
        }
    }
    assert!(reached.len() > 30, "{reached:?}");
    // In setting up, in flushing, moving, cutting and switching.
    for op in [0, 7, 11, 13, 16] {
        assert!(reached.contains(&op), "{op}: {reached:?}");
    }
}
