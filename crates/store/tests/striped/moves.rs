//! Regions that move while threads and processes read and write them.

use crate::world::{World, read, uniform, write};
use std::time::{Duration, Instant};
use stripewise_layout::{FileId, Layout, RegionIndex, ServerId};
use stripewise_store::client::Client;
use stripewise_store::protocol::{Admin, Finding, MoveOrder, MoveState, MoveStatus, MoveTotals, Reply, Request};

pub(crate) const REGION: u64 = 64 << 10;

pub(crate) fn layout(stripes: &[(u16, u32)]) -> Layout {
    Layout::new(stripes.iter().map(|(server, size)| (ServerId(*server), *size))).unwrap()
}

pub(crate) fn order(file: FileId, first: u32, last: u32, stripes: &[(u16, u32)]) -> MoveOrder {
    MoveOrder { file, first: RegionIndex(first), last: RegionIndex(last), layout: layout(stripes) }
}

pub(crate) fn ask(client: &Client, admin: Admin) -> Reply {
    client.request(&Request::Admin(admin), &[]).unwrap().0
}

/// Orders moves and returns the numbers behind theirs.
pub(crate) fn start_moves(client: &Client, orders: Vec<MoveOrder>) -> (u64, u64) {
    let Reply::MovesQueued { first, count } = ask(client, Admin::Move { orders }) else { panic!("not queued") };
    (first.0, first.0 + count)
}

pub(crate) fn status(client: &Client) -> (MoveTotals, Vec<MoveStatus>) {
    let mut all: Vec<MoveStatus> = Vec::new();
    loop {
        let after = all.last().map(|last| last.number);
        let Reply::Moves { totals, moves, more } = ask(client, Admin::Moves { after }) else { panic!("no moves") };
        all.extend(moves);
        if !more {
            return (totals, all);
        }
    }
}

/// Waits until the moves are over; the time-out is for a test that hangs, not for a measurement.
pub(crate) fn wait_for(client: &Client, (first, end): (u64, u64)) -> Vec<MoveStatus> {
    wait_until(client, |moves| {
        let of_ours = moves.iter().filter(|status| (first..end).contains(&status.number.0));
        let of_ours: Vec<MoveStatus> = of_ours.cloned().collect();
        (of_ours.len() as u64 == end - first && of_ours.iter().all(|status| status.state.is_final())).then_some(of_ours)
    })
}

pub(crate) fn wait_until<T>(client: &Client, mut look: impl FnMut(&[MoveStatus]) -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        let (totals, moves) = status(client);
        if let Some(found) = look(&moves) {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{totals:?} {moves:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn all_done(moves: &[MoveStatus]) {
    for status in moves {
        assert_eq!(status.state, MoveState::Done, "{status:?}");
    }
}

pub(crate) fn check(client: &Client) -> Vec<Finding> {
    let Reply::Findings { findings } = ask(client, Admin::Check { repair: false }) else { panic!("no findings") };
    findings
}

#[test]
fn a_region_moves_and_keeps_its_bytes() {
    let world = World::new(4);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
    let bytes: Vec<u8> = (0..2 * REGION + 777).map(|at| (at * 7 % 251) as u8).collect();
    write(&file, 0, &bytes);
    all_done(&wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 0, &[(2, 1000), (3, 3000)])])));
    assert_eq!(read(&file, 0, bytes.len() + 1), bytes);
    assert_eq!(file.region_layout(RegionIndex(0)).unwrap(), [(ServerId(2), 1000), (ServerId(3), 3000)]);
    assert_eq!(file.region_layout(RegionIndex(1)).unwrap(), [(ServerId(0), 4096), (ServerId(1), 4096)]);
    assert_eq!(world.objects().len(), 6, "the old ones are gone");
    assert_eq!(check(&client), []);
}

pub(crate) fn use_while_regions_move(_world: &World, _arguments: &[String]) {}
