use crate::client::ClientOptions;
use crate::client::stand_in::{PATIENCE, STRIPE, StandIn};
use crate::file::StripedFile;
use crate::shared::agent_lane::{AgentLane, Ask, Order, SLOTS};
use crate::shared::slots::InFlight;
use std::io::IoSliceMut;
use std::time::{Duration, Instant};
use stripewise_layout::{Direction, FileOffset, RegionIndex};

/// Longer than a thread waits at the agent before it looks after it.
const A_WHILE: Duration = Duration::from_millis(700);

/// What the client asks of its agent next.
fn next_order(lane: &AgentLane) -> (usize, Order) {
    let begun = Instant::now();
    loop {
        let seen = lane.submitted();
        if let Some((slot, order)) = (0..SLOTS).find_map(|slot| Some((slot, lane.take(slot)?))) {
            return (slot, order.unwrap());
        }
        assert!(begun.elapsed() < PATIENCE, "the client asks for nothing");
        lane.wait_for_orders(seen, Duration::from_millis(10));
    }
}

fn read_stripe(file: &StripedFile) -> usize {
    let mut bytes = [0; STRIPE as usize];
    file.read_at(FileOffset(0), &mut [IoSliceMut::new(&mut bytes)]).unwrap()
}

/// Answers the open of the object, and returns the slot with the read.
fn until_read(lane: &AgentLane) -> usize {
    let (slot, order) = next_order(lane);
    assert_eq!(order.ask, Ask::Size);
    lane.complete(slot, &Ok(u64::from(STRIPE)));
    let (slot, order) = next_order(lane);
    assert_eq!((order.ask, order.length), (Ask::Read, STRIPE as usize));
    slot
}

/// The reader looked after the broker with the lock that who truncates holds, and did not see the end of its own read: both waited until the broker gave up.
#[test]
fn a_slow_read_by_the_agent_ends_while_a_truncation_of_its_file_waits_for_it() {
    let broker = StandIn::start("slow-read", &["rados://pool"], u64::from(STRIPE));
    let client = broker.client(ClientOptions::default());
    let file = broker.open(&client);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_stripe(&file));
        let lane = broker.lane();
        let slot = until_read(&lane);
        let truncation = scope.spawn(|| client.core.truncate(file.id(), 0));
        broker.wait_for_truncation();
        std::thread::sleep(A_WHILE);
        lane.complete(slot, &Ok(u64::from(STRIPE)));
        assert_eq!(reader.join().unwrap(), STRIPE as usize);
        truncation.join().unwrap().expect("the reader leaves the file");
    });
}

/// The first I/O of a process makes its lane, which takes the same lock.
#[test]
fn the_lane_to_the_agent_is_made_outside_of_the_file() {
    let broker = StandIn::start("first-read", &["rados://pool"], u64::from(STRIPE));
    let client = broker.client(ClientOptions::default());
    let file = broker.open(&client);
    let (slot, _) = client.core.identity().unwrap();
    let what = InFlight { direction: Direction::Read, first: RegionIndex(0), last: RegionIndex(0) };
    std::thread::scope(|scope| {
        let other = broker.slots.occupy(slot, 9, what).unwrap();
        let truncation = scope.spawn(|| client.core.truncate(file.id(), 0));
        broker.wait_for_truncation();
        let reader = scope.spawn(|| read_stripe(&file));
        std::thread::sleep(A_WHILE);
        other.free();
        truncation.join().unwrap().expect("the reader waits outside");
        let lane = broker.lane();
        let slot = until_read(&lane);
        lane.complete(slot, &Ok(u64::from(STRIPE)));
        assert_eq!(reader.join().unwrap(), STRIPE as usize);
    });
}
