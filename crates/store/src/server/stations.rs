//! The stations of emulated servers: clocks in memory that every process of the host shares.
//!
//! A station (a channel of an SSD, a device's serial stage, a link) is the time at which it is next free, in nanoseconds of
//! `CLOCK_MONOTONIC`. A sub-request reserves its service by one compare-and-swap at each station it passes, device before link, so any number of
//! processes share a device as if they stood in its queue. No lock is ever held: a process killed at any instruction leaves
//! every word valid, and at worst a device busy for one request that nobody awaits. A disk's recent streams are one word each, changed by
//! compare-and-swap just before the reservation; two processes that issue within the same few hundred nanoseconds may so note
//! their streams in one order and queue in the other, which moves a startup from one to the other and keeps the sum.
//!
//! The file `run/stations`, made by the broker (mode 0600) and handed to clients as a descriptor. All words are 8 bytes, native byte order:
//!
//! | offset | what |
//! |---|---|
//! | 0 | magic and version |
//! | 8, 16 | boot id of the host: after a reboot the clock starts again and the file is rebuilt |
//! | 24 | number of servers |
//! | 64 | time of the last reset of the words below; tells a thread that its next issue is its first |
//! | 72 | waits counted |
//! | 80, 88 | lateness of wake-ups: sum and greatest, ns |
//! | 96 | stalls: wake-ups more than 20 ms late |
//! | 104 | overruns: waits that began after the request was due, because the host was slower than the devices |
//! | 112, 120 | first issues of the threads: earliest and latest |
//! | 128 | latest time that any wait was for |
//! | 4096 + 1024 s | server s: |
//! | +0, +64 | serial stage and link, next free |
//! | +128 … +248 | channels, next free |
//! | +256 … +376 | recent streams, see `stripewise-device` |
//! | +384 | accesses counted, for the age of streams |
//! | +448, +456, +464 | since the last reset: sub-requests, time reserved on the device's serial stage and on the link, ns |
//! | +512, +520 | log of dirty pages: records claimed, and those that were taken out up to the first that was not |
//! | +528 | dirty pages in the log |
//! | +536, +544 | end of the last write-back and of the one before it |
//! | next page on, 512 KiB each | logs of dirty pages (`dirty`), allocated by being used |

mod dirty;
mod host_report;

pub(super) use dirty::{DirtyPages, bytes_of};
pub use host_report::HostReport;

use dirty::LOG_BYTES;

use super::Predicted;
use super::clock::{Clock, Monotonic};
use crate::entry::{create_own_at, open_own_at};
use crate::shared::map::{self, SharedMap};
use host_report::STALL;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use stripewise_device::{Access, DeviceSpec, LinkSpec, MAX_CHANNELS, MAX_STREAMS, Nanos, Reservation, place};
use stripewise_layout::ServerId;

const MAGIC: u64 = u64::from_le_bytes(*b"SWSTNS\0\x03");
const BOOT_AT: usize = 8;
const SERVERS_AT: usize = 24;
const EPOCH_AT: usize = 64;
const WAITS_AT: usize = 72;
const LATE_SUM_AT: usize = 80;
const LATE_MAX_AT: usize = 88;
const STALLS_AT: usize = 96;
const OVERRUNS_AT: usize = 104;
const FIRST_MIN_AT: usize = 112;
const FIRST_MAX_AT: usize = 120;
const LAST_DUE_AT: usize = 128;
const HEADER_BYTES: usize = 4096;
const SERVER_BYTES: usize = 1024;
const SERIAL: usize = 0;
const LINK: usize = 64;
const CHANNELS: usize = 128;
const STREAMS: usize = 256;
const USES: usize = 384;
const REQUESTS: usize = 448;
const SERIAL_BUSY: usize = 456;
const LINK_BUSY: usize = 464;
const _: () = assert!(MAX_CHANNELS * 8 <= STREAMS - CHANNELS && MAX_STREAMS * 8 <= USES - STREAMS);

/// Why the memory of emulated servers' stations cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StationsError {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Os {
        /// The file or directory.
        path: PathBuf,
        /// What was tried, to follow "cannot".
        action: &'static str,
        /// Its cause.
        source: Errno,
    },
    /// The file cannot be mapped.
    #[error("the stations' memory cannot be mapped: {0}")]
    Map(Errno),
    /// Another version of stripewise made it, or it is damaged.
    #[error("the stations' memory has another version; end every process that uses this cluster and start again")]
    Version,
    /// Its times are those of a clock that began again.
    #[error("the stations' memory is of an earlier boot of this host; restart the broker of this cluster")]
    Boot,
    /// It was made for another list of servers.
    #[error(
        "the stations' memory holds {found} servers where the cluster has {expected}; end every process that uses this cluster and start again"
    )]
    Servers {
        /// Servers in the memory.
        found: u64,
        /// Servers of the cluster.
        expected: u64,
    },
}

/// Which time emulated servers take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// That of the named device and link.
    Emulated,
    /// None but the host's own: for placing and checking data, where no time is measured.
    Host,
}

/// Which stations a reservation passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parts {
    /// Device, then link: every ordinary sub-request.
    DeviceAndLink,
    /// The device alone, for calibration.
    Device,
    /// The link alone, as to a server with a device that takes no time; for calibration.
    Link,
}

/// Load of one server since the last reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerLoad {
    /// Sub-requests that reserved the device.
    pub sub_requests: u64,
    /// Time reserved on the device's serial stage (an SSD's channels are not in it).
    pub device_busy: Nanos,
    /// Time reserved on the server's own link.
    pub link_busy: Nanos,
}

/// All stations of one cluster, as this process sees them.
#[derive(Debug)]
pub struct Stations {
    map: SharedMap,
    servers: usize,
    /// Of this process only.
    at_host_speed: AtomicBool,
}

impl Stations {
    /// Broker only: the file at `path` for `servers` servers. One that a predecessor made in this boot is taken over, since clients may
    /// still queue in it; any other is replaced. Returns the descriptor to hand to clients.
    ///
    /// # Errors
    ///
    /// [`StationsError::Os`].
    pub fn establish(path: &Path, servers: usize) -> Result<OwnedFd, StationsError> {
        let (parent, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
        let directory = rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|source| StationsError::Os { path: parent.to_owned(), action: "open", source })?;
        Self::establish_at(directory, &name.to_string_lossy(), servers)
    }

    /// As [`Self::establish`], of this user's file `name` in `directory`.
    ///
    /// # Errors
    ///
    /// [`StationsError::Os`].
    pub fn establish_at(directory: impl AsFd, name: &str, servers: usize) -> Result<OwnedFd, StationsError> {
        let fault = |action| move |source| StationsError::Os { path: name.into(), action, source };
        let boot = boot_id()?;
        match open_own_at(&directory, name.as_ref(), OFlags::RDWR) {
            Ok(found) => {
                if Self::open_for_boot(&found, boot).is_ok_and(|stations| stations.servers == servers) {
                    return Ok(found);
                }
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(fault("open")(errno)),
        }
        let temporary = format!("{name}.new-{}", rustix::process::getpid().as_raw_nonzero());
        let file = create_own_at(&directory, temporary.as_ref()).map_err(fault("create"))?;
        let map = map::make(&file, length(servers), logs_at(servers)).map_err(fault("allocate")).inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty());
        })?;
        map.word(BOOT_AT).store(boot[0], Relaxed);
        map.word(BOOT_AT + 8).store(boot[1], Relaxed);
        map.word(SERVERS_AT).store(servers as u64, Relaxed);
        let stations = Self { map, servers, at_host_speed: AtomicBool::new(false) };
        stations.reset_counters();
        stations.map.word(0).store(MAGIC, Release);
        rustix::fs::renameat(&directory, &temporary, &directory, name).map_err(fault("rename"))?;
        Ok(file)
    }

    /// Maps what [`Self::establish`] made, for a cluster of `servers` servers.
    ///
    /// # Errors
    ///
    /// [`StationsError::Version`], [`StationsError::Boot`] or [`StationsError::Servers`];
    /// [`StationsError::Map`] or [`StationsError::Os`] where it cannot be mapped.
    pub fn open(file: impl AsFd, servers: usize) -> Result<Self, StationsError> {
        let stations = Self::open_for_boot(file, boot_id()?)?;
        if stations.servers != servers {
            return Err(StationsError::Servers { found: stations.servers as u64, expected: servers as u64 });
        }
        Ok(stations)
    }

    fn open_for_boot(file: impl AsFd, boot: [u64; 2]) -> Result<Self, StationsError> {
        let bytes = rustix::fs::fstat(&file).map_err(StationsError::Map)?.st_size;
        // Checked before any access: touching a mapping beyond its file's end kills the process.
        if bytes < HEADER_BYTES as i64 {
            return Err(StationsError::Version);
        }
        let map = SharedMap::new(&file, bytes as usize, true).map_err(StationsError::Map)?;
        if map.word(0).load(Acquire) != MAGIC {
            return Err(StationsError::Version);
        }
        if [map.word(BOOT_AT).load(Relaxed), map.word(BOOT_AT + 8).load(Relaxed)] != boot {
            return Err(StationsError::Boot);
        }
        let servers = map.word(SERVERS_AT).load(Relaxed) as usize;
        if bytes as usize != length(servers) {
            return Err(StationsError::Version);
        }
        Ok(Self { map, servers, at_host_speed: AtomicBool::new(false) })
    }

    /// Whether this process keeps the devices' time (as at first) or runs at the host's.
    pub fn set_pace(&self, pace: Pace) {
        self.at_host_speed.store(pace == Pace::Host, Relaxed);
    }

    /// Which time emulated servers take in this process.
    #[must_use]
    pub fn pace(&self) -> Pace {
        if self.at_host_speed.load(Relaxed) { Pace::Host } else { Pace::Emulated }
    }

    fn logs_at(&self) -> usize {
        logs_at(self.servers)
    }

    fn server_word(&self, server: ServerId, offset: usize) -> &AtomicU64 {
        assert!(usize::from(server.0) < self.servers, "server {server} of {}", self.servers);
        self.map.word(HEADER_BYTES + usize::from(server.0) * SERVER_BYTES + offset)
    }

    /// Reserves the stations of `server` for an access issued at `issue`, behind all that were reserved before.
    pub fn reserve_at(
        &self,
        server: ServerId,
        (device, link): (&DeviceSpec, Option<&LinkSpec>),
        parts: Parts,
        issue: Nanos,
        access: &Access,
    ) -> Reservation {
        self.reserve_with_demand(server, (device, link), parts, issue, access).0
    }

    /// As [`Self::reserve_at`], with the time that was reserved on the device's serial stage and on the link.
    pub(crate) fn reserve_with_demand(
        &self,
        server: ServerId,
        (device, link): (&DeviceSpec, Option<&LinkSpec>),
        parts: Parts,
        issue: Nanos,
        access: &Access,
    ) -> (Reservation, [Nanos; 2]) {
        let mut reserved = [Nanos(0); 2];
        self.server_word(server, REQUESTS).fetch_add(1, Relaxed);
        let mut device_end = issue;
        if parts != Parts::Link {
            let skipped_bytes = match device {
                DeviceSpec::Hdd(hdd) => self.note_stream(server, hdd.streams, access, hdd.skip_bytes),
                DeviceSpec::Ssd(_) => None,
            };
            let demand = device.demand(access.direction, access.bytes, skipped_bytes);
            let arrival = self.occupy_channel(server, device.channels(), issue, demand.channel);
            device_end = occupy(self.server_word(server, SERIAL), arrival, demand.serial);
            self.server_word(server, SERIAL_BUSY).fetch_add(demand.serial.0, Relaxed);
            reserved[0] = demand.serial;
        }
        let mut end = device_end;
        if let Some(link) = link.filter(|_| parts != Parts::Device) {
            let demand = link.demand(access.bytes);
            end = occupy(self.server_word(server, LINK), device_end, demand);
            self.server_word(server, LINK_BUSY).fetch_add(demand.0, Relaxed);
            reserved[1] = demand;
        }
        (Reservation { device_end, end }, reserved)
    }

    /// What an access issued at `issue` would take; nothing is reserved.
    pub(crate) fn predict(
        &self,
        server: ServerId,
        (device, link): (&DeviceSpec, Option<&LinkSpec>),
        issue: Nanos,
        access: &Access,
    ) -> Predicted {
        let free = |offset| Nanos(self.server_word(server, offset).load(Relaxed));
        let skipped_bytes = match device {
            DeviceSpec::Hdd(hdd) => {
                let words: [u64; MAX_STREAMS] =
                    std::array::from_fn(|slot| self.server_word(server, STREAMS + slot * 8).load(Relaxed));
                let uses = self.server_word(server, USES).load(Relaxed);
                place(&words[..hdd.streams], uses, access.place, access.bytes, hdd.skip_bytes).skipped_bytes
            }
            DeviceSpec::Ssd(_) => None,
        };
        let demand = device.demand(access.direction, access.bytes, skipped_bytes);
        let channel = (0..device.channels()).map(|channel| free(CHANNELS + channel * 8)).min();
        let own = |station: Nanos| if channel.is_some() { station } else { Nanos(0) };
        let arrival = issue.max(channel.unwrap_or(issue)) + own(demand.channel);
        let device_end = arrival.max(free(SERIAL)) + demand.serial;
        let of_link = link.map_or(Nanos(0), |link| link.demand(access.bytes));
        let end = if link.is_some() { device_end.max(free(LINK)) + of_link } else { device_end };
        let service_ns = own(demand.channel).0 + demand.serial.0 + of_link.0;
        let of_channel = own(demand.channel).0.div_ceil((device.channels() as u64).max(1));
        let held_ns = of_channel.max(demand.serial.0).max(of_link.0);
        Predicted { wait_ns: (end.0 - issue.0).saturating_sub(service_ns), service_ns, held_ns }
    }

    fn note_stream(&self, server: ServerId, streams: usize, access: &Access, skip_bytes: u64) -> Option<u64> {
        let uses = self.server_word(server, USES).fetch_add(1, Relaxed);
        loop {
            let words: [u64; MAX_STREAMS] =
                std::array::from_fn(|slot| self.server_word(server, STREAMS + slot * 8).load(Acquire));
            let placed = place(&words[..streams], uses, access.place, access.bytes, skip_bytes);
            let word = self.server_word(server, STREAMS + placed.slot * 8);
            if word.compare_exchange(placed.before, placed.after, AcqRel, Acquire).is_ok() {
                return placed.skipped_bytes;
            }
        }
    }

    fn occupy_channel(&self, server: ServerId, channels: usize, arrival: Nanos, demand: Nanos) -> Nanos {
        loop {
            let free = (0..channels).map(|channel| {
                let word = self.server_word(server, CHANNELS + channel * 8);
                (word.load(Acquire), word)
            });
            let Some((before, word)) = free.min_by_key(|(before, _)| *before) else { return arrival };
            let end = arrival.max(Nanos(before)) + demand;
            if word.compare_exchange(before, end.0, AcqRel, Acquire).is_ok() {
                return end;
            }
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.map.word(EPOCH_AT).load(Acquire)
    }

    pub(super) fn count_first_issue(&self, issue: Nanos) {
        self.map.word(FIRST_MIN_AT).fetch_min(issue.0, Relaxed);
        self.map.word(FIRST_MAX_AT).fetch_max(issue.0, Relaxed);
    }

    pub(super) fn count_wait(&self, due: Nanos, late: Nanos, overrun: bool) {
        self.map.word(WAITS_AT).fetch_add(1, Relaxed);
        self.map.word(LATE_SUM_AT).fetch_add(late.0, Relaxed);
        self.map.word(LATE_MAX_AT).fetch_max(late.0, Relaxed);
        self.map.word(LAST_DUE_AT).fetch_max(due.0, Relaxed);
        if late > STALL {
            self.map.word(STALLS_AT).fetch_add(1, Relaxed);
        }
        if overrun {
            self.map.word(OVERRUNS_AT).fetch_add(1, Relaxed);
        }
    }

    /// How well the host kept up since the last reset.
    #[must_use]
    pub fn host_report(&self) -> HostReport {
        let read = |offset| self.map.word(offset).load(Relaxed);
        let first = read(FIRST_MIN_AT);
        HostReport {
            waits: read(WAITS_AT),
            late_sum: Nanos(read(LATE_SUM_AT)),
            late_max: Nanos(read(LATE_MAX_AT)),
            stalls: read(STALLS_AT),
            overruns: read(OVERRUNS_AT),
            start_skew: Nanos(read(FIRST_MAX_AT).saturating_sub(first)),
            span: Nanos(read(LAST_DUE_AT).saturating_sub(first)),
        }
    }

    /// What `server` did since the last reset.
    ///
    /// # Panics
    ///
    /// If there is no such server.
    #[must_use]
    pub fn server_load(&self, server: ServerId) -> ServerLoad {
        let read = |offset| self.server_word(server, offset).load(Relaxed);
        ServerLoad {
            sub_requests: read(REQUESTS),
            device_busy: Nanos(read(SERIAL_BUSY)),
            link_busy: Nanos(read(LINK_BUSY)),
        }
    }

    /// Starts a new count, before a run. Counts of requests in flight may fall on either side.
    pub fn reset_counters(&self) {
        for offset in [WAITS_AT, LATE_SUM_AT, LATE_MAX_AT, STALLS_AT, OVERRUNS_AT, FIRST_MAX_AT, LAST_DUE_AT] {
            self.map.word(offset).store(0, Relaxed);
        }
        self.map.word(FIRST_MIN_AT).store(u64::MAX, Relaxed);
        for server in 0..self.servers {
            for offset in [REQUESTS, SERIAL_BUSY, LINK_BUSY] {
                self.server_word(ServerId(server as u16), offset).store(0, Relaxed);
            }
        }
        // Never the value it had: two resets within one clock tick still differ.
        let before = self.map.word(EPOCH_AT).load(Relaxed);
        self.map.word(EPOCH_AT).store(Monotonic.now().0.max(before + 1), Release);
    }
}

/// Where the logs of dirty pages begin.
fn logs_at(servers: usize) -> usize {
    (HEADER_BYTES + servers * SERVER_BYTES).next_multiple_of(4096)
}

fn length(servers: usize) -> usize {
    logs_at(servers) + servers * LOG_BYTES
}

fn occupy(next_free: &AtomicU64, arrival: Nanos, demand: Nanos) -> Nanos {
    let mut before = next_free.load(Acquire);
    loop {
        let end = arrival.max(Nanos(before)) + demand;
        match next_free.compare_exchange_weak(before, end.0, AcqRel, Acquire) {
            Ok(_) => return end,
            Err(found) => before = found,
        }
    }
}

/// The kernel's random name of this boot.
fn boot_id() -> Result<[u64; 2], StationsError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let fault = |source| StationsError::Os { path: path.to_owned(), action: "read", source };
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(fault)?;
    let mut text = [0; 64];
    let length = rustix::io::read(&file, &mut text).map_err(fault)?;
    let digits = text[..length].iter().filter_map(|&byte| char::from(byte).to_digit(16));
    let bits = digits.fold(0_u128, |bits, digit| bits << 4 | u128::from(digit));
    Ok([(bits >> 64) as u64, bits as u64])
}

#[cfg(test)]
mod tests;
