//! How fast movers copy: all they can, at most so many bytes per second, or what the foreground leaves.
//!
//! What the foreground leaves is told from the devices, each for itself. On emulated servers that is the time reserved at a server's stations, less what
//! the movers reserved themselves; elsewhere, how often programs are found inside a file that moves. Movers take a part of what is left
//! and a small share beside, so that a device that programs keep busy loses little and a move still ends; where nobody else is about they
//! take all. A part, not all, because what a program leaves depends on what it is left: one that waits for its requests looks less
//! busy for every request of ours that it waited behind.

use crate::guard;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stripewise_layout::{Cluster, Direction, ObjectOffset, ServerId};
use stripewise_store::protocol::MigrateBandwidth;
use stripewise_store::server::directory::DirectoryServer;
use stripewise_store::server::emulated::EmulatedServer;
use stripewise_store::server::stations::{ServerLoad, Stations};
use stripewise_store::server::{Due, ObjectName, Opening, ServerError};

/// Time over which a device's load is taken together.
const SAMPLE: Duration = Duration::from_millis(50);
/// The share of a busy device that movers take all the same.
const MIN_SHARE: f64 = 0.06;
/// Of what the foreground leaves.
const SHARE_OF_REST: f64 = 0.3;
/// Below this the foreground counts as absent.
const QUIET: f64 = 0.01;
/// Bytes of one object that are copied at once. Where programs would have to wait behind them, fewer: on a disk, where each costs a seek, more than elsewhere.
const PIECE_BYTES: u64 = 256 << 10;
const POLITE_PIECE_BYTES: u64 = 64 << 10;

/// An emulated server's stations, and what movers have reserved there since the broker started, ns.
struct Device {
    server: EmulatedServer<DirectoryServer>,
    is_disk: bool,
    own_ns: [AtomicU64; 2],
    /// What was reserved over what it would have been with a startup each time, in 1/1024.
    startup_ratio: AtomicU64,
}

/// How busy programs keep one server, and when movers may use it next.
#[derive(Clone, Copy)]
struct Seen {
    load: ServerLoad,
    own_ns: [u64; 2],
    share: f64,
    next: Instant,
}

struct State {
    bandwidth: MigrateBandwidth,
    paused: bool,
    stopping: bool,
    /// When the next unit may begin under a fixed bandwidth.
    next: Instant,
    sampled: Instant,
    seen: Vec<Seen>,
    /// Share of the looks that found a program inside a file, on servers without stations, smoothed.
    inside: f64,
    /// Time that a byte took on servers without stations, s, smoothed.
    byte_s: f64,
}

pub(crate) struct Throttle {
    state: Mutex<State>,
    changed: Condvar,
    stations: Option<Arc<Stations>>,
    devices: Vec<Option<Device>>,
    copied: AtomicU64,
}

/// Movers were stopped, or the move was ended.
pub(crate) struct Ended;

impl Throttle {
    pub(crate) fn new(cluster: &Cluster, stations: Option<Arc<Stations>>) -> Result<Self, ServerError> {
        let device = |(number, server): (u16, &stripewise_layout::Server)| {
            let Some(stations) = &stations else { return Ok(None) };
            let opening = Opening {
                cluster: &cluster.id,
                number: ServerId(number),
                name: &server.name,
                url: &server.url,
                stations: Some(stations),
            };
            let Some(server) = EmulatedServer::of_directory(&opening, stations)? else { return Ok(None) };
            let is_disk = matches!(server.spec().device, stripewise_device::DeviceSpec::Hdd(_));
            let own_ns = [const { AtomicU64::new(0) }; 2];
            Ok(Some(Device { server, is_disk, own_ns, startup_ratio: AtomicU64::new(1024) }))
        };
        let devices = (0..).zip(&cluster.servers).map(device).collect::<Result<Vec<_>, ServerError>>()?;
        let now = Instant::now();
        let state = State {
            bandwidth: MigrateBandwidth::Unlimited,
            paused: false,
            stopping: false,
            next: now,
            sampled: now,
            seen: vec![Seen { load: ServerLoad::default(), own_ns: [0; 2], share: 0.0, next: now }; devices.len()],
            inside: 0.0,
            byte_s: 0.0,
        };
        Ok(Self { state: Mutex::new(state), changed: Condvar::new(), stations, devices, copied: AtomicU64::new(0) })
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

    /// Bytes of one object to copy at once between these servers.
    pub(crate) fn piece_bytes(&self, servers: impl Iterator<Item = ServerId>) -> u64 {
        let state = guard(&self.state);
        match state.bandwidth {
            MigrateBandwidth::Unlimited => PIECE_BYTES,
            MigrateBandwidth::Auto => {
                let mut busy = servers.filter(|server| state.seen[usize::from(server.0)].share >= QUIET).peekable();
                let is_disk = |server: ServerId| {
                    self.devices[usize::from(server.0)].as_ref().is_some_and(|device| device.is_disk)
                };
                if busy.peek().is_some() && busy.all(is_disk) { PIECE_BYTES } else { POLITE_PIECE_BYTES }
            }
            MigrateBandwidth::BytesPerS(bytes) => (bytes / 16).clamp(4096, PIECE_BYTES),
        }
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
        let device = self.devices.get(usize::from(server.0))?.as_ref()?;
        let (due, busy_ns) = device.server.reserve_in_background(direction, object, offset, length);
        device.own_ns[0].fetch_add(busy_ns[0], Relaxed);
        device.own_ns[1].fetch_add(busy_ns[1], Relaxed);
        let most = device.server.demand_ns(direction, length).max(1);
        let ratio = busy_ns[0].max(busy_ns[1]) * 1024 / most;
        // Two that do this at once may lose one's part; it is an estimate.
        let before = device.startup_ratio.load(Relaxed);
        device.startup_ratio.store((7 * before + ratio) / 8, Relaxed);
        due
    }

    /// Time that programs have reserved at an emulated device, ns; `None`: it has no stations to tell by.
    pub(crate) fn foreground_ns(&self, server: ServerId) -> Option<u64> {
        let (device, stations) = (self.devices.get(usize::from(server.0))?.as_ref()?, self.stations.as_ref()?);
        let own_ns = device.own_ns[0].load(Relaxed);
        Some(stations.server_load(server).device_busy.0.wrapping_sub(own_ns))
    }

    /// Waits until `bytes` may be copied between these servers. `is_inside` tells whether a program is inside the file just now.
    pub(crate) fn admit(
        &self,
        bytes: u64,
        servers: &[(Direction, ServerId, u64)],
        is_inside: impl Fn() -> bool,
        is_ended: impl Fn() -> bool,
    ) -> Result<(), Ended> {
        let mut state = guard(&self.state);
        loop {
            if state.stopping || is_ended() {
                return Err(Ended);
            }
            let now = Instant::now();
            let next = match state.bandwidth {
                MigrateBandwidth::Unlimited => now,
                MigrateBandwidth::BytesPerS(_) => state.next,
                MigrateBandwidth::Auto => {
                    servers.iter().map(|(_, server, _)| state.seen[usize::from(server.0)].next).max().unwrap_or(now)
                }
            };
            if !state.paused && next <= now {
                // Paid for by the next one, who waits.
                self.charge(&mut state, now, bytes, servers, &is_inside);
                return Ok(());
            }
            let wait = if state.paused { SAMPLE } else { (next - now).min(SAMPLE) };
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn charge(
        &self,
        state: &mut State,
        now: Instant,
        bytes: u64,
        servers: &[(Direction, ServerId, u64)],
        is_inside: &impl Fn() -> bool,
    ) {
        match state.bandwidth {
            MigrateBandwidth::Unlimited => {}
            MigrateBandwidth::BytesPerS(rate) => {
                state.next = now + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            }
            MigrateBandwidth::Auto => {
                self.sample(state, is_inside);
                for (direction, server, bytes) in servers {
                    let number = usize::from(server.0);
                    let (work_s, share) = match &self.devices[number] {
                        Some(device) => {
                            let ratio = device.startup_ratio.load(Relaxed) as f64 / 1024.0;
                            let most_s = device.server.demand_ns(*direction, *bytes) as f64 / 1e9;
                            (most_s * ratio, state.seen[number].share)
                        }
                        None => (*bytes as f64 * state.byte_s, state.inside),
                    };
                    let seen = &mut state.seen[number];
                    seen.next = now.max(seen.next) + Duration::from_secs_f64(spread(work_s, share).min(10.0));
                }
            }
        }
    }

    /// Brings the shares that programs take up to date.
    fn sample(&self, state: &mut State, is_inside: &impl Fn() -> bool) {
        if self.devices.iter().any(Option::is_none) {
            state.inside += (f64::from(u8::from(is_inside())) - state.inside) / 8.0;
        }
        let elapsed = state.sampled.elapsed();
        let Some(stations) = self.stations.as_ref().filter(|_| elapsed >= SAMPLE) else { return };
        state.sampled = Instant::now();
        let elapsed_ns = elapsed.as_nanos() as f64;
        for (number, (device, seen)) in self.devices.iter().zip(&mut state.seen).enumerate() {
            let Some(device) = device else { continue };
            let load = stations.server_load(ServerId(number as u16));
            let own_ns = [0, 1].map(|station: usize| device.own_ns[station].load(Relaxed));
            let foreground = |now: u64, before: u64, station: usize| {
                // Saturating: the counters may have been reset.
                now.saturating_sub(before).saturating_sub(own_ns[station] - seen.own_ns[station])
            };
            let serial = foreground(load.device_busy.0, seen.load.device_busy.0, 0);
            let link = foreground(load.link_busy.0, seen.load.link_busy.0, 1);
            let share = (serial.max(link) as f64 / elapsed_ns).min(1.0);
            // A sample much longer than usual is of a time in which nothing was moved.
            let weight = if elapsed > 4 * SAMPLE { 1.0 } else { 0.5 };
            seen.share += (share - seen.share) * weight;
            (seen.load, seen.own_ns) = (load, own_ns);
        }
    }

    /// Notes how long a unit took on servers without stations.
    pub(crate) fn note_speed(&self, bytes: u64, took: Duration) {
        let mut state = guard(&self.state);
        let byte_s = took.as_secs_f64() / bytes.max(1) as f64;
        state.byte_s = if state.byte_s == 0.0 { byte_s } else { state.byte_s + (byte_s - state.byte_s) / 8.0 };
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
