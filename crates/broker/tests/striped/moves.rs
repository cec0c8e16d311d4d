//! Regions that move while threads and processes read and write them.

use crate::world::{Dice, World, read, succeed, uniform, write};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stripewise_layout::{FileId, Layout, RegionIndex, ServerId};
use stripewise_store::client::Client;
use stripewise_store::file::StripedFile;
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

pub(crate) fn wait_until<T>(client: &Client, mut find: impl FnMut(&[MoveStatus]) -> Option<T>) -> T {
    let (mut since, mut copied_bytes) = (Instant::now(), 0);
    loop {
        let (totals, moves) = status(client);
        if let Some(found) = find(&moves) {
            return found;
        }
        if totals.copied_bytes != copied_bytes {
            (since, copied_bytes) = (Instant::now(), totals.copied_bytes);
        }
        assert!(since.elapsed() < Duration::from_secs(100), "{totals:?} {moves:?}");
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

/// A number from the environment, for long runs.
pub(crate) fn scale(name: &str, short: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}

pub(crate) const REGIONS: u64 = 6;
/// Neither chunks nor stripes nor regions end where grains do.
const GRAIN: u64 = 3000;
const THREADS: u64 = 2;
/// At the start of the file: one number for each thread, which only grows. Grains come behind.
pub(crate) const NUMBERS: u64 = 1024;

/// What one thread has written, against what it reads.
struct Owner<'a> {
    file: &'a StripedFile,
    me: u64,
    owners: u64,
    dice: Dice,
    model: Vec<u8>,
    seen: Vec<u64>,
    turn: u64,
}

impl Owner<'_> {
    fn grains(&self) -> u64 {
        (REGIONS * REGION - NUMBERS) / GRAIN / self.owners
    }

    /// A part of one of its own grains.
    fn own_range(&mut self) -> (u64, u64) {
        let grain = self.dice.roll(self.grains()) * self.owners + self.me;
        let (a, b) = (self.dice.roll(GRAIN), self.dice.roll(GRAIN));
        let start = NUMBERS + grain * GRAIN;
        (start + a.min(b), start + a.max(b) + 1)
    }

    fn step(&mut self) {
        self.turn += 1;
        let (at, end) = self.own_range();
        match self.dice.roll(8) {
            0..4 => {
                let bytes: Vec<u8> =
                    (at..end).map(|at| (at.wrapping_mul(7) ^ self.turn.wrapping_mul(13)) as u8).collect();
                assert_eq!(write(self.file, at, &bytes), bytes.len());
                self.model[at as usize..end as usize].copy_from_slice(&bytes);
            }
            4..7 => self.compare(at, end),
            _ => {
                write(self.file, self.me * 8, &self.turn.to_le_bytes());
                let other = self.dice.roll(self.owners);
                let found = read(self.file, other * 8, 8);
                let found = u64::from_le_bytes(found.try_into().unwrap());
                assert!(found >= self.seen[other as usize], "owner {other} went back to {found}: {:?}", self.seen);
                self.seen[other as usize] = found;
            }
        }
    }

    fn compare(&self, at: u64, end: u64) {
        let found = read(self.file, at, (end - at) as usize);
        let expected = &self.model[at as usize..end as usize];
        if let Some(wrong) = found.iter().zip(expected).position(|(found, expected)| found != expected) {
            let (at, byte) = (at + wrong as u64, found[wrong]);
            panic!("owner {}, turn {}: byte {at} is {byte}, not {}", self.me, self.turn, expected[wrong]);
        }
    }
}

/// Uses its own bytes of the file with several threads until the parent ends its input, then checks all of them.
pub(crate) fn use_while_regions_move(world: &World, arguments: &[String]) {
    let numbers: Vec<u64> = arguments.iter().map(|text| text.parse().unwrap()).collect();
    let [process, processes, seed] = numbers[..] else { panic!("{arguments:?}") };
    let client = world.client();
    let (_stub, file) = world.open(&client, "moving", true);
    static END: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        END.store(true, Ordering::SeqCst);
    });
    let owners = processes * THREADS;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let file = &file;
            scope.spawn(move || {
                let me = process * THREADS + thread;
                let mut owner = Owner {
                    file,
                    me,
                    owners,
                    dice: Dice(seed + me),
                    model: vec![0; (REGIONS * REGION) as usize],
                    seen: vec![0; owners as usize],
                    turn: 0,
                };
                while !END.load(Ordering::SeqCst) {
                    owner.step();
                    if owner.turn.is_multiple_of(512) && thread == 0 {
                        file.sync(true).unwrap();
                    }
                }
                for grain in 0..owner.grains() {
                    let at = NUMBERS + (grain * owners + me) * GRAIN;
                    owner.compare(at, at + GRAIN);
                }
                std::fs::write(world.root.join(format!("model{me}")), owner.model).unwrap();
            });
        }
    });
}

/// A layout over some of the servers, with stripes of whole words.
pub(crate) fn any_layout(dice: &mut Dice, servers: u64) -> Vec<(u16, u32)> {
    let first = dice.roll(servers);
    let count = 1 + dice.roll(servers);
    (0..count).map(|turn| (((first + turn) % servers) as u16, 8 * (1 + dice.roll(1 << (dice.0 % 12))) as u32)).collect()
}

/// `STRIPED_MOVE_PROCESSES` (64) and `STRIPED_MOVES` of each region make it long.
#[test]
fn processes_keep_their_bytes_while_every_region_moves_many_times() {
    let (processes, moves) = (scale("STRIPED_MOVE_PROCESSES", 4), scale("STRIPED_MOVES", 12));
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let world = World::new(4);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "moving", uniform(REGION, &[(0, 4096), (1, 4096)]));
    write(&file, 0, &vec![0; (REGIONS * REGION) as usize]);
    let children: Vec<_> = (0..processes)
        .map(|me| world.spawn("move-user", &[me.to_string(), processes.to_string(), (seed + 1000 * me).to_string()]))
        .collect();
    let mut most_copied = 0;
    // They may be slow to begin.
    for round in 0..10 * moves {
        if round >= moves && most_copied > REGION {
            break;
        }
        let orders = (0..REGIONS as u32).map(|region| order(file.id(), region, region, &any_layout(&mut dice, 4)));
        let done = wait_for(&client, start_moves(&client, orders.collect()));
        all_done(&done);
        most_copied = most_copied.max(done.iter().map(|status| status.copied_bytes).max().unwrap());
    }
    assert!(most_copied > REGION, "something was written while it moved and copied again");
    children.into_iter().for_each(succeed);
    let found = read(&file, NUMBERS, (REGIONS * REGION) as usize);
    let mut expected = vec![0u8; found.len()];
    for me in 0..processes * THREADS {
        let model = std::fs::read(world.root.join(format!("model{me}"))).unwrap();
        expected.iter_mut().zip(&model[NUMBERS as usize..]).for_each(|(byte, own)| *byte |= own);
    }
    assert!(found == expected, "seed {seed}");
    assert_eq!(check(&client), [], "seed {seed}");
}
