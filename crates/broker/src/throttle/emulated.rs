//! What the foreground takes of emulated devices: the time reserved at a server's stations, less what the movers reserved themselves.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use stripewise_layout::{Direction, ObjectOffset};
use stripewise_store::server::directory::DirectoryServer;
use stripewise_store::server::emulated::EmulatedServer;
use stripewise_store::server::stations::{ServerLoad, Stations};
use stripewise_store::server::{Due, ObjectName, Opening, ServerError};

/// Time over which a device's load is taken together.
pub(super) const SAMPLE: Duration = Duration::from_millis(50);
/// The share of a busy device that movers take all the same.
const MIN_SHARE: f64 = 0.06;
/// Of what the foreground leaves.
const SHARE_OF_REST: f64 = 0.3;
/// Below this the foreground counts as absent.
const QUIET: f64 = 0.01;

/// An emulated server's stations, and what movers have reserved there since the broker started, ns.
pub(super) struct EmulatedDevice {
    server: EmulatedServer<DirectoryServer>,
    pub(super) is_disk: bool,
    own_ns: [AtomicU64; 2],
    /// What was reserved over what it would have been with a startup each time, in 1/1024.
    startup_ratio: AtomicU64,
}

impl EmulatedDevice {
    /// Of a server, if it is emulated.
    pub(super) fn of(opening: &Opening<'_>, stations: &std::sync::Arc<Stations>) -> Result<Option<Self>, ServerError> {
        let Some(server) = EmulatedServer::of_directory(opening, stations)? else { return Ok(None) };
        let is_disk = matches!(server.spec().device, stripewise_device::DeviceSpec::Hdd(_));
        Ok(Some(Self { server, is_disk, own_ns: Default::default(), startup_ratio: AtomicU64::new(1024) }))
    }

    /// Takes the device's time for a part of a copy, behind all that was reserved before.
    pub(super) fn reserve(&self, direction: Direction, object: ObjectName, offset: ObjectOffset, length: u64) -> Due {
        let (due, busy_ns) = self.server.reserve_in_background(direction, object, offset, length);
        self.own_ns[0].fetch_add(busy_ns[0], Relaxed);
        self.own_ns[1].fetch_add(busy_ns[1], Relaxed);
        let most = self.server.demand_ns(direction, length).max(1);
        let ratio = busy_ns[0].max(busy_ns[1]) * 1024 / most;
        // Two that do this at once may lose one's part; it is an estimate.
        let before = self.startup_ratio.load(Relaxed);
        self.startup_ratio.store((7 * before + ratio) / 8, Relaxed);
        due
    }

    /// Time that programs have reserved, ns.
    pub(super) fn foreground_ns(&self, load: ServerLoad) -> u64 {
        load.device_busy.0.wrapping_sub(self.own_ns[0].load(Relaxed))
    }

    /// What a piece will take, s.
    pub(super) fn work_s(&self, direction: Direction, bytes: u64) -> f64 {
        let ratio = self.startup_ratio.load(Relaxed) as f64 / 1024.0;
        self.server.demand_ns(direction, bytes) as f64 / 1e9 * ratio
    }
}

/// How busy programs keep one server, and when movers may use it next.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    load: ServerLoad,
    own_ns: [u64; 2],
    share: f64,
    pub(super) next: Instant,
}

impl Seen {
    pub(super) fn new(now: Instant) -> Self {
        Self { load: ServerLoad::default(), own_ns: [0; 2], share: 0.0, next: now }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.share >= QUIET
    }

    /// Brings the share that programs take up to date, `elapsed` after the last time.
    pub(super) fn sample(&mut self, device: &EmulatedDevice, load: ServerLoad, elapsed: Duration) {
        let own_ns = [0, 1].map(|station: usize| device.own_ns[station].load(Relaxed));
        let foreground = |now: u64, before: u64, station: usize| {
            // Saturating: the counters may have been reset.
            now.saturating_sub(before).saturating_sub(own_ns[station] - self.own_ns[station])
        };
        let serial = foreground(load.device_busy.0, self.load.device_busy.0, 0);
        let link = foreground(load.link_busy.0, self.load.link_busy.0, 1);
        let share = (serial.max(link) as f64 / elapsed.as_nanos() as f64).min(1.0);
        // A sample much longer than usual is of a time in which nothing was moved.
        let weight = if elapsed > 4 * SAMPLE { 1.0 } else { 0.5 };
        self.share += (share - self.share) * weight;
        (self.load, self.own_ns) = (load, own_ns);
    }

    /// The movers have begun `work_s` of work.
    pub(super) fn charge(&mut self, now: Instant, work_s: f64) {
        self.next = now.max(self.next) + Duration::from_secs_f64(spread(work_s, self.share).min(10.0));
    }
}

/// Over how much time work of `work_s` is spread where programs take `share` of the device.
fn spread(work_s: f64, share: f64) -> f64 {
    if share < QUIET { 0.0 } else { work_s / (MIN_SHARE + SHARE_OF_REST * (1.0 - share)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn movers_take_all_of_an_idle_device_and_little_of_a_busy_one() {
        assert_eq!(spread(1.0, 0.0), 0.0);
        assert!((1.0 / spread(1.0, 1.0) - MIN_SHARE).abs() < 1e-9);
        // Where a program takes all that movers leave, their share settles below a tenth.
        let mut movers = 0.5;
        for _ in 0..50 {
            movers = 1.0 / spread(1.0, 1.0 - movers);
        }
        assert!(movers < 0.1, "{movers}");
    }
}
