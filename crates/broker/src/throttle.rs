//! How fast movers copy: all they can, at most so many bytes per second, or what the foreground leaves (`auto`).
//!
//! What the foreground leaves is told of each device for itself, whatever programs have open: of a real device by the kernel's statistics of the block device, else
//! by the time that pieces take ([`pacing`]); of an emulated one by its stations ([`emulated`]). Movers take a part of what is left
//! and a small share beside, so that a device that programs keep busy loses little and a move still ends; where nobody else is about they
//! take all. A part, not all, because what a program leaves depends on what it is left: one that waits for its requests looks less
//! busy for every request of ours that it waited behind.

mod device_statistics;
mod emulated;
mod pacing;

use crate::guard;
use device_statistics::DeviceStatistics;
use emulated::{EmulatedDevice, SAMPLE, Seen};
use pacing::{Costs, Pacer, Piece, Reading};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stripewise_layout::{Cluster, Direction, ObjectOffset, ServerId};
use stripewise_store::protocol::{MigrateBandwidth, RequestCost};
use stripewise_store::server::stations::Stations;
use stripewise_store::server::{Due, ObjectName, Opening, ServerError, is_by_agent};

/// Bytes of one object that are copied at once. Where programs would have to wait behind them, fewer: on a disk, where each costs a seek, more than elsewhere.
/// Those of real devices under `auto` are [`Pacer::piece_bytes`].
const PIECE_BYTES: u64 = 256 << 10;
const POLITE_PIECE_BYTES: u64 = 64 << 10;
/// Bytes of a unit, which is a piece for each server.
const MAX_UNIT_BYTES: u64 = 4 << 20;
const MAX_REAL_UNIT_BYTES: u64 = 16 << 20;

/// What a server is on.
enum Device {
    Emulated(Box<EmulatedDevice>),
    /// Its number; servers may share one.
    Real(usize),
}

/// A device, and the statistics that it has.
struct RealDevice {
    block: Option<DeviceStatistics>,
    /// Of its first server, for the pacer.
    costs: Costs,
}

impl RealDevice {
    fn reading(&self) -> Option<Reading> {
        self.block.as_ref()?.reading()
    }
}

struct State {
    bandwidth: MigrateBandwidth,
    paused: bool,
    stopping: bool,
    /// When the next unit may begin under a fixed bandwidth.
    next: Instant,
    sampled: Instant,
    /// By server; of emulated ones.
    seen: Vec<Seen>,
    /// By real device.
    pacers: Vec<Pacer>,
}

pub(crate) struct Throttle {
    state: Mutex<State>,
    changed: Condvar,
    stations: Option<Arc<Stations>>,
    /// By server.
    devices: Vec<Device>,
    real: Vec<RealDevice>,
    /// Pacers count time from here.
    origin: Instant,
    copied: AtomicU64,
}

/// Movers were stopped, or the move was ended.
pub(crate) struct Ended;

/// A unit that may be copied. What it has under way on real devices ends with it.
pub(crate) struct Admitted<'t> {
    throttle: &'t Throttle,
    pieces: Vec<Begun>,
}

/// A piece on a real device.
struct Begun {
    server: ServerId,
    device: usize,
    piece: Piece,
    /// Whether a program was inside a file on the server; only of a device without statistics.
    is_inside: bool,
}

impl Admitted<'_> {
    /// Whether the unit's writes are to reach their devices before they count as done: what the page cache writes later would be taken for the foreground's.
    pub(crate) fn writes_through(&self) -> bool {
        self.pieces.iter().any(|begun| begun.piece.direction == Direction::Write)
    }

    /// The unit's reads or writes are over, and took so long.
    pub(crate) fn end(&mut self, direction: Direction, took: Duration) {
        self.end_pieces(direction, Some(took));
    }

    fn end_pieces(&mut self, direction: Direction, took: Option<Duration>) {
        let ended: Vec<_> = self.pieces.extract_if(.., |begun| begun.piece.direction == direction).collect();
        if ended.is_empty() {
            return;
        }
        let mut state = guard(&self.throttle.state);
        for Begun { device, piece, is_inside, .. } in ended {
            let (now, reading) = (self.throttle.now(), self.throttle.real[device].reading());
            state.pacers[device].end(now, reading, piece, took, is_inside);
        }
        drop(state);
        self.throttle.changed.notify_all();
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.end_pieces(Direction::Read, None);
        self.end_pieces(Direction::Write, None);
    }
}

impl Throttle {
    /// `reads` and `writes`: what those of each server take.
    pub(crate) fn new(
        cluster: &Cluster,
        stations: Option<Arc<Stations>>,
        (reads, writes): (&[RequestCost], &[RequestCost]),
    ) -> Result<Self, ServerError> {
        let costs = reads.iter().zip(writes).map(|(read, write)| Costs { read: *read, write: *write });
        let (mut devices, mut real): (_, Vec<RealDevice>) = (Vec::new(), Vec::new());
        let mut blocks = device_statistics::under_all(cluster.servers.iter().map(|server| {
            // No path of this host: the broker knows nothing of what lies under it.
            if is_by_agent(&server.url) { Path::new("") } else { server.url.directory() }
        }));
        for ((number, server), costs) in (0..).zip(&cluster.servers).zip(costs) {
            let block = blocks.get_mut(usize::from(number)).and_then(Option::take);
            let (name, url) = (&server.name, &server.url);
            let opening = |stations| Opening {
                cluster: &cluster.id,
                number: ServerId(number),
                name,
                url,
                stations: Some(stations),
            };
            let emulated =
                stations.as_ref().map(|stations| EmulatedDevice::of(&opening(stations), stations)).transpose()?;
            devices.push(match emulated.flatten() {
                Some(emulated) => Device::Emulated(Box::new(emulated)),
                None => Device::Real(add_real(&mut real, block, costs)),
            });
        }
        Ok(Self::of_devices(stations, devices, real))
    }

    fn of_devices(stations: Option<Arc<Stations>>, devices: Vec<Device>, real: Vec<RealDevice>) -> Self {
        let now = Instant::now();
        let state = State {
            bandwidth: MigrateBandwidth::Unlimited,
            paused: false,
            stopping: false,
            next: now,
            sampled: now,
            seen: vec![Seen::new(now); devices.len()],
            pacers: real.iter().map(|device| Pacer::new(device.costs)).collect(),
        };
        let (state, changed, copied) = (Mutex::new(state), Condvar::new(), AtomicU64::new(0));
        Self { state, changed, stations, devices, real, origin: now, copied }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn emulated(&self, server: ServerId) -> Option<&EmulatedDevice> {
        match self.devices.get(usize::from(server.0))? {
            Device::Emulated(device) => Some(device),
            Device::Real(_) => None,
        }
    }

    /// The number of the server's real device.
    fn real_device(&self, server: ServerId) -> Option<usize> {
        match self.devices.get(usize::from(server.0))? {
            Device::Emulated(_) => None,
            Device::Real(number) => Some(*number),
        }
    }

    pub(crate) fn set(&self, bandwidth: MigrateBandwidth) {
        let mut state = guard(&self.state);
        state.bandwidth = bandwidth;
        state.next = Instant::now();
    }

    pub(crate) fn pause(&self, paused: bool) {
        guard(&self.state).paused = paused;
    }

    pub(crate) fn stop(&self) {
        guard(&self.state).stopping = true;
        self.changed.notify_all();
    }

    /// For those who wait here: something has changed.
    pub(crate) fn wake(&self) {
        drop(guard(&self.state));
        self.changed.notify_all();
    }

    pub(crate) fn copied_bytes(&self) -> u64 {
        self.copied.load(Relaxed)
    }

    pub(crate) fn count(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Relaxed);
    }

    /// Bytes to copy at once between these servers, of which the wider side has `width`.
    pub(crate) fn unit_bytes(&self, servers: impl Iterator<Item = (Direction, ServerId)> + Clone, width: u64) -> u64 {
        let state = guard(&self.state);
        let (piece_bytes, most) = match state.bandwidth {
            MigrateBandwidth::Unlimited => (PIECE_BYTES, MAX_UNIT_BYTES),
            MigrateBandwidth::BytesPerS(bytes) => ((bytes / 16).clamp(4096, PIECE_BYTES), MAX_UNIT_BYTES),
            MigrateBandwidth::Auto => {
                let piece_bytes = |(direction, server)| {
                    self.real_device(server).map(|device| state.pacers[device].piece_bytes(direction))
                };
                match servers.clone().filter_map(piece_bytes).max() {
                    Some(piece_bytes) => (piece_bytes, MAX_REAL_UNIT_BYTES),
                    None => {
                        let is_shared = |server: &ServerId| state.seen[usize::from(server.0)].is_shared();
                        let is_disk = |server| self.emulated(server).is_some_and(|device| device.is_disk);
                        let mut busy = servers.map(|(_, server)| server).filter(is_shared).peekable();
                        let is_long = busy.peek().is_some() && busy.all(is_disk);
                        (if is_long { PIECE_BYTES } else { POLITE_PIECE_BYTES }, MAX_UNIT_BYTES)
                    }
                }
            }
        };
        (piece_bytes * width).min(most)
    }

    /// Takes the emulated device's time for a part of a copy, behind all that was reserved before.
    pub(crate) fn reserve(
        &self,
        server: ServerId,
        direction: Direction,
        object: ObjectName,
        offset: ObjectOffset,
        length: u64,
    ) -> Due {
        self.emulated(server)?.reserve(direction, object, offset, length)
    }

    /// Time that programs have reserved at an emulated device, ns; `None`: it has no stations to tell by.
    pub(crate) fn foreground_ns(&self, server: ServerId) -> Option<u64> {
        let (device, stations) = (self.emulated(server)?, self.stations.as_ref()?);
        Some(device.foreground_ns(stations.server_load(server)))
    }

    /// Waits until `bytes` may be copied between these servers. `used` tells on which servers programs are inside files just now.
    pub(crate) fn admit(
        &self,
        bytes: u64,
        servers: &[(Direction, ServerId, u64)],
        used: impl FnOnce() -> BTreeSet<ServerId>,
        is_ended: impl Fn() -> bool,
    ) -> Result<Admitted<'_>, Ended> {
        let mut state = guard(&self.state);
        loop {
            if state.stopping || is_ended() {
                return Err(Ended);
            }
            let now = Instant::now();
            let delay = match state.bandwidth {
                _ if state.paused => SAMPLE,
                MigrateBandwidth::Unlimited => Duration::ZERO,
                MigrateBandwidth::BytesPerS(_) => state.next.saturating_duration_since(now),
                MigrateBandwidth::Auto => {
                    let delay = |(_, server, _): &(Direction, ServerId, u64)| self.delay(&mut state, *server, now);
                    servers.iter().map(delay).max().unwrap_or(Duration::ZERO)
                }
            };
            if delay.is_zero() {
                // Paid for by the next one, who waits.
                let mut pieces = self.charge(&mut state, now, bytes, servers);
                drop(state);
                let has_no_statistics = |begun: &&mut Begun| self.real[begun.device].block.is_none();
                let mut blind = pieces.iter_mut().filter(has_no_statistics).peekable();
                if blind.peek().is_some() {
                    let used = used();
                    blind.for_each(|begun| begun.is_inside = used.contains(&begun.server));
                }
                return Ok(Admitted { throttle: self, pieces });
            }
            state = self.changed.wait_timeout(state, delay.min(SAMPLE)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits while moves are paused, whatever the bandwidth.
    pub(crate) fn wait_while_paused(&self, is_ended: impl Fn() -> bool) -> Result<(), Ended> {
        let mut state = guard(&self.state);
        while state.paused && !state.stopping && !is_ended() {
            state = self.changed.wait_timeout(state, SAMPLE).unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.stopping || is_ended() { Err(Ended) } else { Ok(()) }
    }

    /// How long a unit has to wait for this server under `auto`.
    fn delay(&self, state: &mut State, server: ServerId, now: Instant) -> Duration {
        match self.real_device(server) {
            Some(device) => state.pacers[device].delay(self.now(), self.real[device].reading()),
            None => state.seen[usize::from(server.0)].next.saturating_duration_since(now),
        }
    }

    fn charge(
        &self,
        state: &mut State,
        now: Instant,
        bytes: u64,
        servers: &[(Direction, ServerId, u64)],
    ) -> Vec<Begun> {
        let mut pieces = Vec::new();
        match state.bandwidth {
            MigrateBandwidth::Unlimited => {}
            MigrateBandwidth::BytesPerS(rate) => {
                state.next = now + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            }
            MigrateBandwidth::Auto => {
                self.sample(state);
                for (direction, server, bytes) in servers {
                    if let Some(device) = self.emulated(*server) {
                        let work_s = device.work_s(*direction, *bytes);
                        state.seen[usize::from(server.0)].charge(now, work_s);
                    } else if let Some(device) = self.real_device(*server) {
                        let piece = state.pacers[device].begin(self.real[device].reading(), *direction, *bytes);
                        pieces.push(Begun { server: *server, device, piece, is_inside: false });
                    }
                }
            }
        }
        pieces
    }

    /// Brings the shares that programs take of emulated devices up to date.
    fn sample(&self, state: &mut State) {
        let elapsed = state.sampled.elapsed();
        let Some(stations) = self.stations.as_ref().filter(|_| elapsed >= SAMPLE) else { return };
        state.sampled = Instant::now();
        for (number, seen) in (0..).map(ServerId).zip(&mut state.seen) {
            if let Some(device) = self.emulated(number) {
                seen.sample(device, stations.server_load(number), elapsed);
            }
        }
    }
}

/// The number of a server's device, which is added if no server before was on it.
fn add_real(real: &mut Vec<RealDevice>, block: Option<DeviceStatistics>, costs: Costs) -> usize {
    let is_same = |known: &RealDevice| match (&known.block, &block) {
        (Some(known), Some(block)) => known.path == block.path,
        _ => false,
    };
    if let Some(number) = real.iter().position(is_same) {
        return number;
    }
    real.push(RealDevice { block, costs });
    real.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, AtomicU32};

    const PIECE: u64 = 1 << 20;

    const BOTH: [ServerId; 2] = [ServerId(0), ServerId(1)];

    /// Two servers on devices whose statistics the test writes, if they have any.
    struct Devices {
        _keep: tempfile::TempDir,
        paths: [PathBuf; 2],
        throttle: Throttle,
    }

    impl Devices {
        fn new(have_statistics: bool) -> Self {
            let keep = tempfile::tempdir().unwrap();
            let paths = ["a", "b"].map(|name| keep.path().join(name));
            paths.iter().for_each(|path| write(path, 0, 0));
            let cost = RequestCost { startup_ns: 5_000_000, kib_ns: 8_000 };
            let costs = Costs { read: cost, write: cost };
            let block = |path: &PathBuf| have_statistics.then(|| DeviceStatistics::of_statistics(path));
            let real = |path: &PathBuf| RealDevice { block: block(path), costs };
            let devices = vec![Device::Real(0), Device::Real(1)];
            let throttle = Throttle::of_devices(None, devices, paths.iter().map(real).collect());
            throttle.set(MigrateBandwidth::Auto);
            Self { _keep: keep, paths, throttle }
        }

        /// While programs are inside files on these servers.
        fn admit_beside(&self, used: &[ServerId]) -> Admitted<'_> {
            let servers = [(Direction::Read, ServerId(0), PIECE), (Direction::Write, ServerId(1), PIECE)];
            let used = || used.iter().copied().collect();
            let Ok(admitted) = self.throttle.admit(PIECE, &servers, used, || false) else { panic!("not ended") };
            admitted
        }

        fn admit(&self) -> Admitted<'_> {
            self.admit_beside(&BOTH)
        }

        fn are_shared(&self) -> [bool; 2] {
            let state = guard(&self.throttle.state);
            [0, 1].map(|device: usize| state.pacers[device].is_shared())
        }
    }

    /// In one call, so that no reader finds half of it.
    fn write(path: &Path, busy_ms: u64, bytes: u64) {
        let line = format!("0 0 {:20} 0 0 0 0 0 0 {busy_ms:20} 0\n", bytes / 512);
        let file = std::fs::File::options().write(true).create(true).truncate(false).open(path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, line.as_bytes(), 0).unwrap();
    }

    #[test]
    fn a_program_inside_a_file_is_no_load() {
        let devices = Devices::new(true);
        for number in 1..=100 {
            let mut admitted = devices.admit();
            assert!(admitted.writes_through());
            let took = Duration::from_millis(14);
            for (path, direction) in devices.paths.iter().zip([Direction::Read, Direction::Write]) {
                write(path, 0, number * PIECE);
                admitted.end(direction, took);
            }
        }
        assert_eq!(devices.are_shared(), [false, false]);
    }

    #[test]
    fn without_statistics_slow_pieces_count_where_programs_are_inside_files() {
        for (used, shared) in [(&BOTH[..], [true, true]), (&BOTH[1..], [false, true]), (&BOTH[..0], [false, false])] {
            let devices = Devices::new(false);
            let mut admitted = devices.admit_beside(used);
            for direction in [Direction::Read, Direction::Write] {
                admitted.end(direction, Duration::from_millis(100));
            }
            assert_eq!(devices.are_shared(), shared, "{used:?}");
        }
    }

    #[test]
    fn pieces_on_a_busy_device_go_one_at_a_time_until_it_is_idle() {
        let devices = Devices::new(true);
        let (is_busy, begun) = (AtomicBool::new(true), Instant::now());
        let (under_way, most) = (AtomicU32::new(0), AtomicU32::new(0));
        let until = |is_shared: bool| {
            // What was under way together before the first window does not count.
            while devices.are_shared()[1] != is_shared {
                drop(devices.admit());
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while is_busy.load(Relaxed) {
                    write(&devices.paths[1], begun.elapsed().as_millis() as u64, 0);
                    std::thread::yield_now();
                }
            });
            until(true);
            let movers = [0; 3].map(|_| {
                scope.spawn(|| {
                    for _ in 0..3 {
                        let admitted = devices.admit();
                        most.fetch_max(1 + under_way.fetch_add(1, Relaxed), Relaxed);
                        std::thread::yield_now();
                        under_way.fetch_sub(1, Relaxed);
                        drop(admitted);
                    }
                })
            });
            movers.into_iter().for_each(|mover| mover.join().unwrap());
            assert_eq!((most.load(Relaxed), devices.are_shared()), (1, [false, true]));
            is_busy.store(false, Relaxed);
            until(false);
        });
        assert_eq!(devices.are_shared(), [false, false]);
    }
}
