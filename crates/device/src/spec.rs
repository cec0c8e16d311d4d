//! Parameters of devices and links, and the time that one access demands of each station.

use crate::Nanos;
use serde::Serialize;
use stripewise_layout::{Direction, ObjectOffset};

/// Most channels of one SSD; shared memory holds a word for each.
pub const MAX_CHANNELS: usize = 16;

/// Startup and transfer of one direction.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Service {
    /// Seconds before the first byte; on an HDD those of an access that continues a recent stream.
    pub startup_s: f64,
    /// Seconds before the first byte of an access that continues no recent stream: seek and rotation. On an SSD order does not
    /// matter, and this equals `startup_s`.
    pub random_startup_s: f64,
    /// Seconds per byte.
    pub transfer_s_per_byte: f64,
}

impl Service {
    pub(crate) const fn new(startup_us: f64, random_startup_us: f64, megabytes_per_s: f64) -> Self {
        Self {
            startup_s: startup_us / 1e6,
            random_startup_s: random_startup_us / 1e6,
            transfer_s_per_byte: 1.0 / (megabytes_per_s * 1e6),
        }
    }

    fn dilated(self, factor: f64) -> Self {
        Self {
            startup_s: self.startup_s * factor,
            random_startup_s: self.random_startup_s * factor,
            transfer_s_per_byte: self.transfer_s_per_byte * factor,
        }
    }
}

/// One head assembly: a single serial stage.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct HddSpec {
    /// Startup and transfer of reads.
    pub read: Service,
    /// Startup and transfer of writes.
    pub write: Service,
    /// Recent streams that the disk follows, 1 to [`crate::MAX_STREAMS`].
    pub streams: usize,
    /// Farthest forward skip, in bytes, that still counts as continuing; the skipped bytes pass under the head at transfer speed.
    pub skip_bytes: u64,
}

/// Startups side by side on several channels, transfers one after the other over the interface.
///
/// One request at a time costs startup + bytes x transfer, as the papers' alpha and beta; with many in flight the device
/// serves min(channels / startup, interface speed).
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct SsdSpec {
    /// Startup and transfer of reads.
    pub read: Service,
    /// Startup and transfer of writes.
    pub write: Service,
    /// 1 to [`MAX_CHANNELS`].
    pub channels: usize,
}

/// Parameters of a device, by the stages that it has.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeviceSpec {
    /// Startup and transfer in one serial stage; startup depends on the order of accesses.
    Hdd(HddSpec),
    /// Startup on parallel channels, transfer in a serial stage; order does not matter.
    Ssd(SsdSpec),
}

/// A server's own link: it is busy `message_s` + bytes x `transfer_s_per_byte` for each sub-request, either way (e and t of the papers).
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct LinkSpec {
    /// Seconds per message.
    pub message_s: f64,
    /// Seconds per byte.
    pub transfer_s_per_byte: f64,
}

/// Identity of something that lies contiguously on a device, such as an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExtentId(pub u64);

/// Where an access starts on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskPlace {
    /// The object, or whatever else lies contiguously, that holds the bytes.
    pub extent: ExtentId,
    /// The extent that lies just before this one, if any: the start of `extent` continues a stream that was in it. For objects: the
    /// previous region of the same file.
    pub after: Option<ExtentId>,
    /// Byte within `extent`.
    pub offset: ObjectOffset,
}

/// One access to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Whether the device reads or writes.
    pub direction: Direction,
    /// Its first byte.
    pub place: DiskPlace,
    /// Length in bytes.
    pub bytes: u64,
}

/// What one access asks of the two stages of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// Time on one of the channels.
    pub channel: Nanos,
    /// Time on the serial stage, after the channel.
    pub serial: Nanos,
}

impl DeviceSpec {
    /// Startup and transfer in `direction`.
    #[must_use]
    pub fn service(&self, direction: Direction) -> &Service {
        match (self, direction) {
            (Self::Hdd(hdd), Direction::Read) => &hdd.read,
            (Self::Hdd(hdd), Direction::Write) => &hdd.write,
            (Self::Ssd(ssd), Direction::Read) => &ssd.read,
            (Self::Ssd(ssd), Direction::Write) => &ssd.write,
        }
    }

    /// Channels of the first stage; 0 when the device has only the serial one.
    #[must_use]
    pub fn channels(&self) -> usize {
        match self {
            Self::Hdd(_) => 0,
            Self::Ssd(ssd) => ssd.channels,
        }
    }

    /// The demand of `bytes` in `direction`. `skipped_bytes` is what [`crate::place`] found on an HDD: `Some(gap)` when the
    /// access continues a recent stream; an SSD ignores it.
    #[must_use]
    pub fn demand(&self, direction: Direction, bytes: u64, skipped_bytes: Option<u64>) -> Demand {
        let service = self.service(direction);
        let transfer_s = bytes as f64 * service.transfer_s_per_byte;
        match self {
            Self::Hdd(_) => {
                let startup_s = match skipped_bytes {
                    // A disk seeks over a gap when that is faster than waiting for it to pass.
                    Some(gap) => (service.startup_s + gap as f64 * service.transfer_s_per_byte)
                        .min(service.random_startup_s.max(service.startup_s)),
                    None => service.random_startup_s,
                };
                Demand { channel: Nanos(0), serial: Nanos::from_seconds(startup_s + transfer_s) }
            }
            Self::Ssd(_) => {
                Demand { channel: Nanos::from_seconds(service.startup_s), serial: Nanos::from_seconds(transfer_s) }
            }
        }
    }

    /// The same device with every time multiplied by `factor`.
    #[must_use]
    pub fn dilated(self, factor: f64) -> Self {
        match self {
            Self::Hdd(hdd) => {
                Self::Hdd(HddSpec { read: hdd.read.dilated(factor), write: hdd.write.dilated(factor), ..hdd })
            }
            Self::Ssd(ssd) => {
                Self::Ssd(SsdSpec { read: ssd.read.dilated(factor), write: ssd.write.dilated(factor), ..ssd })
            }
        }
    }
}

impl LinkSpec {
    /// Time that one message of `bytes` holds the link.
    #[must_use]
    pub fn demand(&self, bytes: u64) -> Nanos {
        Nanos::from_seconds(self.message_s + bytes as f64 * self.transfer_s_per_byte)
    }

    /// The same link with every time multiplied by `factor`.
    #[must_use]
    pub fn dilated(self, factor: f64) -> Self {
        Self { message_s: self.message_s * factor, transfer_s_per_byte: self.transfer_s_per_byte * factor }
    }
}
