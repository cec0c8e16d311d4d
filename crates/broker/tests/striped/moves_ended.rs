//! Moves that are ended: by errors of servers, full ones, and by what is done to the file meanwhile.

use crate::hooked::{FailOnce, wrap};
use crate::moves::{REGION, all_done, ask, check, order, start_moves, status, wait_for, wait_until};
use crate::moves_killed::nothing_is_left_over;
use crate::world::{World, open_stub, read, uniform, write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use stripewise_broker::BrokerOptions;
use stripewise_layout::{RegionIndex, ServerId};
use stripewise_store::client::Client;
use stripewise_store::file::StripedFile;
use stripewise_store::protocol::{Admin, MigrateBandwidth, MoveControl, MoveState, Reply, Request, WhichMoves};

/// All servers fail at the call that the first number says; server `s2` is full after the bytes of the second.
pub(crate) fn failing() -> (BrokerOptions, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (calls, bytes) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::new(AtomicUsize::new(usize::MAX)));
    let (calls_left, bytes_left) = (Arc::clone(&calls), Arc::clone(&bytes));
    let failing = wrap(move |server| {
        let is_small = server == "s2";
        let bytes_left = if is_small { Arc::clone(&bytes_left) } else { Arc::new(AtomicUsize::new(usize::MAX)) };
        FailOnce { calls_left: Arc::clone(&calls_left), bytes_left }
    });
    (BrokerOptions { wrap_server: Some(failing), ..BrokerOptions::default() }, calls, bytes)
}

fn some_bytes(length: u64) -> Vec<u8> {
    (0..length).map(|at| (at * 7 % 251) as u8).collect()
}

#[test]
fn one_failing_call_of_the_movers_servers_is_survived_wherever_it_falls() {
    let (mut failed, mut freed_late) = (0, 0);
    for number in 0.. {
        let world = World::new(4);
        let (options, calls_left, _) = failing();
        let _broker = world.broker_with(options);
        let client = world.client();
        let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
        let bytes = some_bytes(REGION + 999);
        write(&file, 0, &bytes);
        calls_left.store(number, Ordering::SeqCst);
        let target = [(2, 1000), (3, 3000)];
        let moved = &wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 0, &target)]))[0];
        let ended = calls_left.load(Ordering::SeqCst) < usize::MAX / 2;
        calls_left.store(usize::MAX, Ordering::SeqCst);
        assert_eq!(read(&file, 0, bytes.len() + 1), bytes, "call {number}");
        match &moved.state {
            MoveState::Done => freed_late += 1,
            MoveState::Failed { why } => {
                assert!(why.contains("server s") && why.contains("what a test forbids"), "{why}");
                failed += 1;
                assert_eq!(file.region_layout(RegionIndex(0)).unwrap()[0].0, ServerId(0));
                all_done(&wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 0, &target)])));
                assert_eq!(read(&file, 0, bytes.len() + 1), bytes, "call {number}");
            }
            other => panic!("{other:?}"),
        }
        nothing_is_left_over(&world, &client, &file, 2, &format!("call {number}"));
        if ended {
            assert!(failed > 20 && freed_late > 2, "{number} calls, {failed} failed, {freed_late} did not");
            break;
        }
    }
}

#[test]
fn a_target_that_fills_up_halfway_leaves_the_region_where_it_was() {
    let world = World::new(4);
    let (options, _, bytes_left) = failing();
    let _broker = world.broker_with(options);
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
    let bytes = some_bytes(REGION + 999);
    write(&file, 0, &bytes);
    for left in [0, 1, 700, 20_000] {
        bytes_left.store(left, Ordering::SeqCst);
        let moved = &wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 0, &[(3, 1000), (2, 3000)])]))[0];
        assert_eq!(moved.state, MoveState::Failed { why: "server s2: no space left".to_owned() });
        assert_eq!(read(&file, 0, bytes.len() + 1), bytes);
        nothing_is_left_over(&world, &client, &file, 2, &format!("full after {left}"));
    }
    bytes_left.store(usize::MAX, Ordering::SeqCst);
    all_done(&wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 0, &[(3, 1000), (2, 3000)])])));
    assert_eq!(read(&file, 0, bytes.len() + 1), bytes);
}

#[test]
fn what_leaves_goes_before_what_comes_and_a_full_server_takes_no_more() {
    let world = World::new(4);
    let path = world.root.join("cluster.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("name = \"s2\"", "name = \"s2\"\ncapacity = \"64KiB\"\nreserve = \"0\""))
        .unwrap();
    let _broker = world.broker();
    let client = world.client();
    let (_stub, fast) = world.create(&client, "fast", uniform(REGION, &[(2, 4096)]));
    let (_stub, slow) = world.create(&client, "slow", uniform(REGION, &[(0, 4096)]));
    let bytes = some_bytes(REGION);
    write(&fast, 0, &bytes);
    write(&slow, 0, &bytes);
    let refused = &wait_for(&client, start_moves(&client, vec![order(slow.id(), 0, 0, &[(2, 4096)])]))[0];
    let MoveState::Failed { why } = &refused.state else { panic!("{refused:?}") };
    assert!(why.contains("server s2 has 0 B left of the 64 KiB"), "{why}");
    // The one that needs room is ordered first.
    let orders = vec![order(slow.id(), 0, 0, &[(2, 4096)]), order(fast.id(), 0, 0, &[(1, 4096)])];
    all_done(&wait_for(&client, start_moves(&client, orders)));
    assert_eq!((read(&fast, 0, bytes.len()), read(&slow, 0, bytes.len())), (bytes.clone(), bytes));
    assert_eq!(check(&client), []);
}

/// Holds the mover at the first step with this name until it is let go on.
struct Held {
    reached: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

fn hold_at(step: &'static str) -> (BrokerOptions, Held) {
    let ((tell, reached), (go_on, wait)) = (mpsc::channel(), mpsc::channel());
    let once = Mutex::new(Some((tell, wait)));
    let hook = move |name: &'static str| {
        let taken = if name == step { once.lock().unwrap().take() } else { None };
        if let Some((tell, wait)) = taken {
            tell.send(()).unwrap();
            // Until it is let go on or the test ends.
            let _: Result<(), _> = wait.recv();
        }
    };
    (BrokerOptions { steps: Some(Arc::new(hook)), ..BrokerOptions::default() }, Held { reached, go_on })
}

/// Steps of a move during which others may use and change the file.
const STEPS: [&str; 6] =
    ["move: begun", "move: drained", "move: round copied", "move: copied and synced", "move: sealed", "move: whole"];
const TARGET: [(u16, u32); 2] = [(2, 1000), (3, 3000)];

/// Calls `act` with a file whose region 0 is held in a move at each step; afterwards the file's bytes are the model's.
fn at_every_step(act: impl Fn(&World, &stripewise_store::client::Client, &Change<'_>, &mut Vec<u8>)) {
    for step in STEPS {
        let (options, held) = hold_at(step);
        let world = World::new(4);
        let _broker = world.broker_with(options);
        let client = world.client();
        let (stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
        let mut model = some_bytes(2 * REGION + 999);
        write(&file, 0, &model);
        let moves = start_moves(&client, vec![order(file.id(), 0, 0, &TARGET)]);
        held.reached.recv().unwrap();
        let change = Change { stub: &stub, file: &file, held: &held, moves, step };
        act(&world, &client, &change, &mut model);
        assert!(read(&file, 0, model.len() + 1) == model, "{step}");
        wait_until(&client, |moves| moves.iter().all(|status| status.state.is_final()).then_some(()));
        assert_eq!(check(&client), [], "{step}");
    }
}

struct Change<'a> {
    stub: &'a std::fs::File,
    file: &'a stripewise_store::file::StripedFile,
    held: &'a Held,
    moves: (u64, u64),
    step: &'static str,
}

impl Change<'_> {
    fn go_on(&self) {
        self.held.go_on.send(()).unwrap();
    }

    fn has_moved(&self) -> bool {
        self.file.region_layout(RegionIndex(0)).unwrap()[0].0 == ServerId(2)
    }
}

#[test]
fn a_file_may_be_truncated_while_it_moves() {
    at_every_step(|_, client, change, model| {
        change.file.truncate(30_000).unwrap();
        write(change.file, 40_000, &[7; 10]);
        change.go_on();
        model.truncate(30_000);
        model.resize(40_000, 0);
        model.extend([7; 10]);
        // It begins again with what is left.
        all_done(&wait_for(client, change.moves));
        assert!(change.has_moved(), "{}", change.step);
        assert_eq!(read(change.file, 0, model.len() + 1), *model, "{}", change.step);
        // Nothing that was cut comes back.
        change.file.truncate(2 * REGION).unwrap();
        model.resize(2 * REGION as usize, 0);
    });
}

#[test]
fn a_region_that_is_cut_off_while_it_moves_is_placed_as_ordered_later() {
    at_every_step(|_, client, change, model| {
        change.file.truncate(0).unwrap();
        change.go_on();
        all_done(&wait_for(client, change.moves));
        *model = some_bytes(5000);
        write(change.file, 0, model);
        assert!(change.has_moved(), "{}", change.step);
    });
}

#[test]
fn a_file_may_be_extended_renamed_and_synced_while_it_moves() {
    at_every_step(|world, client, change, model| {
        change.file.truncate(3 * REGION).unwrap();
        model.resize(3 * REGION as usize, 0);
        std::fs::rename(world.path("f"), world.path("g")).unwrap();
        change.file.sync(false).unwrap();
        assert_eq!(read(change.file, 0, model.len() + 1), *model);
        change.go_on();
        all_done(&wait_for(client, change.moves));
        assert!(change.has_moved(), "{}", change.step);
        let (_stub, again) = world.open(client, "g", false);
        assert_eq!(read(&again, 0, model.len() + 1), *model, "{}", change.step);
    });
}

#[test]
fn a_file_may_be_unlinked_while_it_moves() {
    at_every_step(|world, client, change, model| {
        client.remove(&world.path("f"), change.stub.as_fd(), change.file.id()).unwrap();
        write(change.file, 100, &[3; 100]);
        model[100..200].fill(3);
        change.go_on();
        let moved = &wait_for(client, change.moves)[0];
        assert_eq!(moved.state, MoveState::Failed { why: "the file was removed".to_owned() }, "{}", change.step);
        assert!(!change.has_moved(), "{}", change.step);
    });
}

#[test]
fn the_last_close_of_an_unlinked_file_frees_what_its_move_had_made() {
    for step in STEPS {
        let (options, held) = hold_at(step);
        let world = World::new(4);
        let _broker = world.broker_with(options);
        let client = world.client();
        let (stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
        write(&file, 0, &some_bytes(REGION));
        let moves = start_moves(&client, vec![order(file.id(), 0, 0, &TARGET)]);
        held.reached.recv().unwrap();
        let stub = World::closed(stub);
        client.remove(&world.path("f"), stub.as_fd(), file.id()).unwrap();
        file.close().unwrap();
        held.go_on.send(()).unwrap();
        let moved = &wait_for(&client, moves)[0];
        assert_eq!(moved.state, MoveState::Failed { why: "the file was removed".to_owned() }, "{step}");
        // Before it answers, the broker frees what was removed.
        let Reply::Usage { servers } = ask(&client, Admin::Usage) else { panic!("no usage") };
        assert_eq!(world.objects(), Vec::<std::path::PathBuf>::new(), "{step}");
        assert!(servers.iter().all(|server| (server.promised_bytes, server.objects) == (0, 0)), "{step}: {servers:?}");
        assert_eq!(check(&client), [], "{step}");
    }
}

#[test]
fn a_release_ends_the_moves_of_its_file() {
    at_every_step(|world, client, change, _| {
        let temporary = world.path("copy");
        let copy = std::fs::File::create(&temporary).unwrap();
        let (file, temporary) = (change.file.id(), temporary.to_str().unwrap().to_owned());
        let begin = Request::Admin(Admin::BeginRelease { file, temporary });
        client.request(&begin, &[copy.as_fd()]).unwrap();
        change.go_on();
        let moved = &wait_for(client, change.moves)[0];
        assert_eq!(moved.state, MoveState::Failed { why: "the file is being released".to_owned() }, "{}", change.step);
        ask(client, Admin::CancelRelease { file });
        assert!(!change.has_moved());
        all_done(&wait_for(client, start_moves(client, vec![order(file, 0, 0, &TARGET)])));
        assert!(change.has_moved());
    });
}

#[test]
fn moves_are_cancelled_replaced_and_paused() {
    at_every_step(|_, client, change, model| {
        let file = change.file.id();
        // Not begun: the later order for the region counts.
        let (earlier, later) = ([(1, 512)], [(3, 512)]);
        let replaced = start_moves(client, vec![order(file, 1, 1, &earlier)]);
        ask(client, Admin::ControlMoves(MoveControl::Pause { why: "a test".to_owned() }));
        assert_eq!(status(client).0.paused, Some("a test".to_owned()));
        let replacing = start_moves(client, vec![order(file, 1, 1, &later)]);
        ask(
            client,
            Admin::ControlMoves(MoveControl::Cancel(WhichMoves::One(stripewise_store::protocol::MoveNumber(
                change.moves.0,
            )))),
        );
        change.go_on();
        assert_eq!(wait_for(client, change.moves)[0].state, MoveState::Cancelled, "{}", change.step);
        assert!(!change.has_moved(), "{}", change.step);
        ask(client, Admin::ControlMoves(MoveControl::Bandwidth(MigrateBandwidth::BytesPerS(100 << 20))));
        ask(client, Admin::ControlMoves(MoveControl::Resume));
        all_done(&wait_for(client, replacing));
        assert!(matches!(wait_for(client, replaced)[0].state, MoveState::Cancelled | MoveState::Done));
        assert_eq!(change.file.region_layout(RegionIndex(1)).unwrap(), [(ServerId(3), 512)]);
        assert_eq!(status(client).0.bandwidth, MigrateBandwidth::BytesPerS(100 << 20));
        let _ = model;
    });
}

#[test]
fn writers_of_a_sealed_region_go_on_when_it_has_moved_or_stays() {
    for cancel in [false, true] {
        at_every_step(|_, client, change, model| {
            std::thread::scope(|scope| {
                // Across the border, so that a part is in a region that does not move.
                let writer = scope.spawn(|| write(change.file, REGION - 5000, &[9; 10_000]));
                if cancel {
                    ask(client, Admin::ControlMoves(MoveControl::Cancel(WhichMoves::All)));
                }
                change.go_on();
                assert_eq!(writer.join().unwrap(), 10_000);
            });
            model[REGION as usize - 5000..REGION as usize + 5000].fill(9);
            let moved = &wait_for(client, change.moves)[0];
            assert_eq!(moved.state, if cancel { MoveState::Cancelled } else { MoveState::Done }, "{}", change.step);
        });
    }
}

#[test]
fn a_broker_that_stops_leaves_regions_where_they_are_and_its_successor_moves_them() {
    for step in STEPS {
        let (options, held) = hold_at(step);
        let world = World::new(4);
        let broker = world.broker_with(options);
        let client = world.client();
        let (stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
        let bytes = some_bytes(REGION + 5);
        write(&file, 0, &bytes);
        start_moves(&client, vec![order(file.id(), 0, 0, &TARGET)]);
        held.reached.recv().unwrap();
        std::thread::scope(|scope| {
            let stopping = scope.spawn(|| broker.stop());
            // Stopping ends the move; it waits for the mover.
            let (totals, _) = status(&client);
            assert_eq!(totals.active + totals.queued, 1, "{step}");
            held.go_on.send(()).unwrap();
            stopping.join().unwrap();
        });
        let _broker = world.broker();
        assert_eq!(read(&file, 0, bytes.len() + 1), bytes, "{step}");
        drop(file);
        let file = open_stub(&client, &stub);
        all_done(&wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 0, &TARGET)])));
        assert_eq!(read(&file, 0, bytes.len() + 1), bytes, "{step}");
        nothing_is_left_over(&world, &client, &file, 2, step);
    }
}

#[test]
fn moves_take_the_time_of_emulated_devices_and_are_no_process_of_the_run() {
    use stripewise_store::server::stations::Pace;
    let world =
        World::with_urls(4, |directory| format!("emulated://{directory}?device=nvme&link=gigabit&time_scale=0.01"));
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
    let stations = client.stations().unwrap();
    stations.set_pace(Pace::Host);
    let bytes = some_bytes(REGION);
    write(&file, 0, &bytes);
    stations.reset_counters();
    let before = stations.host_report();
    for bandwidth in [MigrateBandwidth::Unlimited, MigrateBandwidth::Auto, MigrateBandwidth::BytesPerS(1 << 30)] {
        ask(&client, Admin::ControlMoves(MoveControl::Bandwidth(bandwidth)));
        for target in [TARGET, [(0, 4096), (1, 4096)]] {
            all_done(&wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 0, &target)])));
            assert_eq!(read(&file, 0, bytes.len()), bytes);
        }
    }
    // Written three times and read three times, by two of the servers each.
    let link = stripewise_device::lookup_link("gigabit").unwrap().dilated(0.01);
    let least = link.demand(6 * REGION / 4).0;
    for server in 0..4 {
        let load = stations.server_load(ServerId(server));
        assert!(load.link_busy.0 >= least && load.sub_requests >= 6, "server {server}: {load:?}, {least}");
    }
    let after = stations.host_report();
    assert_eq!((after.waits, after.start_skew), (before.waits, before.start_skew));
}

/// What is left when rounds do not get smaller is copied at full speed, and not only once the region is sealed.
#[test]
fn a_slow_move_hurries_where_programs_write_as_fast_as_it_copies() {
    const LARGE: u64 = 512 << 10;
    let world = World::with_urls(3, |directory| format!("emulated://{directory}?device=hdd-7200&link=gigabit"));
    let (rounds, at_seal) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    type Program = Option<(Client, Arc<StripedFile>)>;
    let program: Arc<Mutex<Program>> = Arc::default();
    let (counted, sealed, writer) = (Arc::clone(&rounds), Arc::clone(&at_seal), Arc::clone(&program));
    let hook = move |step: &'static str| match step {
        "move: round copied" => {
            let round = counted.fetch_add(1, Ordering::SeqCst) + 1;
            let program = writer.lock().unwrap();
            let (client, file) = program.as_ref().unwrap();
            if round <= 2 {
                write(file, 0, &some_bytes(LARGE));
            }
            if round == 2 {
                // A round that keeps to this does not end.
                ask(client, Admin::ControlMoves(MoveControl::Bandwidth(MigrateBandwidth::BytesPerS(1))));
            }
        }
        "move: sealed" => sealed.store(counted.load(Ordering::SeqCst), Ordering::SeqCst),
        _ => {}
    };
    let _broker = world.broker_with(BrokerOptions { steps: Some(Arc::new(hook)), ..BrokerOptions::default() });
    let client = world.client();
    ask(&client, Admin::ControlMoves(MoveControl::Bandwidth(MigrateBandwidth::BytesPerS(1 << 30))));
    let (_stub, file) = world.create(&client, "f", uniform(LARGE, &[(0, 64 << 10)]));
    write(&file, 0, &some_bytes(LARGE));
    *program.lock().unwrap() = Some((world.client(), Arc::clone(&file)));
    all_done(&wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 0, &[(2, 64 << 10)])])));
    assert!(read(&file, 0, LARGE as usize + 1) == some_bytes(LARGE));
    assert_eq!(at_seal.load(Ordering::SeqCst), 3, "rounds before the seal");
    // It ends before its broker.
    program.lock().unwrap().take();
}
