//! Moves between emulated disks and SSDs, alone and beside a program:
//!
//!     cargo bench -p stripewise-broker --bench emulated_moves [-- THREADS [SECONDS]]
//!
//! First, how fast regions move when nothing else runs, beside what the slower side's devices and links allow. Then a closed loop of threads
//! with random requests of 64 KiB (three reads to a write) on the same file, undisturbed and while regions move under the `auto` bandwidth:
//! its bandwidth and its slowest requests. All times are those of emulated devices. Each line is a JSON object; the floor is the busiest station's time, or the
//! undisturbed program.

#[path = "../tests/striped/world.rs"]
#[allow(dead_code, reason = "the tests of this crate use the rest")]
mod world;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stripewise_layout::{Layout, RegionIndex, ServerId};
use stripewise_store::client::Client;
use stripewise_store::file::StripedFile;
use stripewise_store::protocol::{
    Admin, MigrateBandwidth, MoveControl, MoveOrder, MoveState, Reply, Request, WhichMoves,
};
use world::{Dice, World, read, uniform, write};

const REGION: u64 = 16 << 20;
const REGIONS: u64 = 12;
const REQUEST: u64 = 64 << 10;
const DISKS: [(u16, u32); 4] = [(0, 65_536), (1, 65_536), (2, 65_536), (3, 65_536)];
const SSDS: [(u16, u32); 4] = [(4, 65_536), (5, 65_536), (6, 65_536), (7, 65_536)];

fn ask(client: &Client, admin: Admin) -> Reply {
    client.request(&Request::Admin(admin), &[]).expect("the broker answers").0
}

/// Moves the regions and returns the bytes and the time until the last is done, or until `limit`.
fn move_regions(
    client: &Client,
    file: &StripedFile,
    regions: (u32, u32),
    to: &[(u16, u32)],
    limit: Duration,
) -> (u64, f64) {
    let layout = Layout::new(to.iter().map(|(server, size)| (ServerId(*server), *size))).expect("a layout");
    let before = totals(client).0;
    let (first, last) = (RegionIndex(regions.0), RegionIndex(regions.1));
    let begun = Instant::now();
    ask(client, Admin::Move { orders: vec![MoveOrder { file: file.id(), first, last, layout }] });
    while !totals(client).1 && begun.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(1));
    }
    (totals(client).0 - before, begun.elapsed().as_secs_f64())
}

fn totals(client: &Client) -> (u64, bool) {
    let Reply::Moves { totals, moves, .. } = ask(client, Admin::Moves { after: None }) else { panic!("no moves") };
    if let Some(failed) = moves.iter().find(|status| matches!(status.state, MoveState::Failed { .. })) {
        panic!("{failed:?}");
    }
    (totals.copied_bytes, totals.queued + totals.active == 0)
}

/// A closed loop: bytes per second and the sorted times of all requests.
fn program(file: &StripedFile, threads: u64, until: &AtomicBool) -> (f64, Vec<Duration>) {
    let begun = Instant::now();
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let (mut dice, mut times) = (Dice(thread + 1), Vec::new());
                    let bytes = vec![thread as u8; REQUEST as usize];
                    while !until.load(Ordering::Relaxed) {
                        let at = dice.roll(REGIONS * REGION / REQUEST) * REQUEST;
                        let asked = Instant::now();
                        if dice.roll(4) == 0 {
                            write(file, at, &bytes);
                        } else {
                            read(file, at, REQUEST as usize);
                        }
                        times.push(asked.elapsed());
                    }
                    times
                })
            })
            .collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a thread")).collect()
    });
    let bandwidth = times.len() as f64 * REQUEST as f64 / begun.elapsed().as_secs_f64();
    times.sort_unstable();
    (bandwidth, times)
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let (threads, seconds): (u64, u64) = (arguments.next().unwrap_or(8), arguments.next().unwrap_or(4));
    let world = World::with_urls(8, |directory| {
        let is_disk = directory.ends_with(['0', '1', '2', '3']);
        let device = if is_disk { "hdd-7200" } else { "sata-ssd-2012" };
        format!("emulated://{directory}?device={device}&link=gigabit")
    });
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &DISKS));
    client.stations().expect("stations").set_pace(stripewise_store::server::stations::Pace::Host);
    let bytes = vec![7; 1 << 20];
    for at in (0..REGIONS * REGION).step_by(bytes.len()) {
        write(&file, at, &bytes);
    }
    client.stations().expect("stations").set_pace(stripewise_store::server::stations::Pace::Emulated);
    let last = REGIONS as u32 - 1;
    for (name, to) in [("disks-to-ssds", &SSDS), ("ssds-to-disks", &DISKS)] {
        let before: Vec<_> = load(&client);
        let (bytes, time_s) = move_regions(&client, &file, (0, last), to, Duration::from_secs(100));
        // The busiest station's time is the least that the move could have taken.
        let busiest_s = load(&client).iter().zip(&before).map(|(now, then)| now - then).fold(0.0, f64::max);
        tell(&format!("moves.alone.{name}"), "MB/s", bytes as f64 / 1e6 / time_s, bytes as f64 / 1e6 / busiest_s);
    }
    let (over, limit) = (AtomicBool::new(false), Duration::from_secs(seconds));
    // To the same servers with another stripe: where a region lies must not decide how fast the program is.
    for (from, place) in [("disks", DISKS), ("ssds", SSDS)] {
        ask(&client, Admin::ControlMoves(MoveControl::Bandwidth(MigrateBandwidth::Unlimited)));
        move_regions(&client, &file, (0, last), &place, Duration::from_secs(100));
        ask(&client, Admin::ControlMoves(MoveControl::Bandwidth(MigrateBandwidth::Auto)));
        let to = place.map(|(server, stripe)| (server, 2 * stripe));
        let alone = std::thread::scope(|scope| {
            over.store(false, Ordering::Relaxed);
            let program = scope.spawn(|| program(&file, threads, &over));
            std::thread::sleep(limit);
            over.store(true, Ordering::Relaxed);
            program.join().expect("the program")
        });
        let (moved, beside) = std::thread::scope(|scope| {
            over.store(false, Ordering::Relaxed);
            let program = scope.spawn(|| program(&file, threads, &over));
            let moved = move_regions(&client, &file, (0, 5), &to, 5 * limit);
            over.store(true, Ordering::Relaxed);
            (moved, program.join().expect("the program"))
        });
        let p99 = |times: &[Duration]| times[times.len() * 99 / 100].as_secs_f64() * 1e3;
        tell(&format!("moves.program.{from}"), "MB/s", beside.0 / 1e6, alone.0 / 1e6);
        tell(&format!("moves.p99.{from}"), "ms", p99(&beside.1), p99(&alone.1));
        println!(r#"{{"name": "moves.auto.{from}", "value": {:.2}, "unit": "MB/s"}}"#, moved.0 as f64 / 1e6 / moved.1);
        ask(&client, Admin::ControlMoves(MoveControl::Cancel(WhichMoves::All)));
        while !totals(&client).1 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn tell(name: &str, unit: &str, value: f64, floor: f64) {
    let ratio = value / floor;
    println!(
        r#"{{"name": "{name}", "value": {value:.2}, "unit": "{unit}", "floor": {floor:.2}, "ratio": {ratio:.3}}}"#
    );
}

/// Seconds reserved at each server's busier station.
fn load(client: &Client) -> Vec<f64> {
    let stations = client.stations().expect("stations");
    let of = |server| {
        let load = stations.server_load(ServerId(server));
        load.device_busy.max(load.link_busy).seconds()
    };
    (0..8).map(of).collect()
}
