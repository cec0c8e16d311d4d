//! The devices and links that can be named in a server's URL, each with the source of its figures.

use crate::disk::DiskSpec;
use crate::flash::FlashSpec;
use crate::spec::{DeviceSpec, HddSpec, LinkSpec, Service, SsdSpec};

/// A device or link that has a name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Named<T: 'static> {
    /// As in `?device=` or `?link=` of a server's URL.
    pub name: &'static str,
    /// What it is, in a few words.
    pub what: &'static str,
    /// Its parameters.
    pub spec: T,
}

/// A name that is in none of the tables here.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown {kind} `{name}`; known: {known}")]
pub struct UnknownName {
    /// "device", "link", …
    pub kind: &'static str,
    /// The name as it was given.
    pub name: String,
    /// All names of that kind.
    pub known: String,
}

/// How many streams a disk follows, and how far a skip may go: no data sheet states them. Eight is the order of the cache
/// segments of drives with 8 MB of cache; 128 KiB is Linux's default read-ahead. Ours.
const STREAMS: usize = 8;
const SKIP_BYTES: u64 = 128 << 10;

/// Services are (sequential startup, random startup in microseconds, transfer in 10^6 bytes per second).
pub const DEVICES: &[Named<DeviceSpec>] = &[
    // Seagate Barracuda 7200.12 data sheet (2009): average seek 8.5 ms reading and 9.5 ms writing, rotational latency 4.16 ms,
    // sustained rate on the outer tracks 125 MB/s. Sequential startup: Cost-intelligent layout, table 4.
    Named {
        name: "hdd-7200",
        what: "7,200 rpm SATA disk of 2009 by its data sheet",
        spec: DeviceSpec::Hdd(HddSpec {
            read: Service::new(100.0, 12_660.0, 125.0),
            write: Service::new(100.0, 13_660.0, 125.0),
            streams: STREAMS,
            skip_bytes: SKIP_BYTES,
        }),
    },
    // Intel SSD 520 product specification 325968 (February 2012): latency 80 us read and 85 us write, sequential 550 and 520 MB/s, random
    // 4 KiB reads 50,000/s at depth 32, which with 80 us each makes 4 at a time.
    Named {
        name: "sata-ssd-2012",
        what: "SATA 6 Gb/s flash drive of 2012 by its data sheet",
        spec: DeviceSpec::Ssd(SsdSpec {
            read: Service::new(80.0, 80.0, 550.0),
            write: Service::new(85.0, 85.0, 520.0),
            channels: 4,
        }),
    },
    // Intel SSD DC P3700 product specification 330566 (2014): latency 20 us either way, sequential 2,800 and 2,000 MB/s, random 4 KiB reads
    // 460,000/s, which with 20 us each makes 9 at a time.
    Named {
        name: "nvme",
        what: "NVMe flash drive of 2014 by its data sheet",
        spec: DeviceSpec::Ssd(SsdSpec {
            read: Service::new(20.0, 20.0, 2_800.0),
            write: Service::new(20.0, 20.0, 2_000.0),
            channels: 9,
        }),
    },
    // Cost-intelligent layout, table 4, measured on the Sun Fire cluster that H2DP and PADP also used (SATA II, 250 GB, 7,200 rpm): alpha
    // 0.1 ms sequential and 0.3 ms random, beta 1/120 MB. Read as 10^6 bytes; the paper does not tell reads from writes. Random
    // reads this fast come from the servers' caches, so a real seek costs far more: see hdd-7200.
    Named {
        name: "paper-hdd",
        what: "HServer's disk as measured in Cost-intelligent layout, table 4",
        spec: DeviceSpec::Hdd(HddSpec {
            read: Service::new(100.0, 300.0, 120.0),
            write: Service::new(100.0, 300.0, 120.0),
            streams: STREAMS,
            skip_bytes: SKIP_BYTES,
        }),
    },
    // The same disk when nothing is cached: 5 ms for what continues no stream, between a cache and the data sheet's 12.66 ms. Ours.
    Named {
        name: "paper-hdd-5ms",
        what: "paper-hdd whose random accesses take 5 ms to start",
        spec: DeviceSpec::Hdd(HddSpec {
            read: Service::new(100.0, 5_000.0, 120.0),
            write: Service::new(100.0, 5_000.0, 120.0),
            streams: STREAMS,
            skip_bytes: SKIP_BYTES,
        }),
    },
    // OCZ RevoDrive 100 GB, the SServers' drive by PADP section 4.1; none of the papers prints its alpha and beta. Rates by the vendor:
    // 540 MB/s reading, 400 MB/s sustained writing. Its startup is not published: taken from the Intel SSD 520 above, whose controller
    // is of the same maker (SandForce). Channels: 75,000 writes/s of 4 KiB by the vendor times 85 us makes 6.
    Named {
        name: "paper-ssd",
        what: "SServer's OCZ RevoDrive of PADP and H2DP by its vendor's figures",
        spec: DeviceSpec::Ssd(SsdSpec {
            read: Service::new(80.0, 80.0, 540.0),
            write: Service::new(85.0, 85.0, 400.0),
            channels: 6,
        }),
    },
    // HServer and SServer of PADP (and of H2DP, run on the same cluster) as PADP's published stripe pairs suggest them, for the reproduction of
    // both papers' figures: with these rates, an HServer's startups are those at which its four pairs are balanced (a test of the command
    // repeats it). Random writes so start sooner than sequential ones: the paper gives them the larger h.
    Named {
        name: "padp-hdd",
        what: "HServer through its file system, from PADP's stripe pairs",
        spec: DeviceSpec::Hdd(HddSpec {
            read: Service::new(404.266_667, 779.733_333, 30.0),
            write: Service::new(1_237.948_148, 600.792_593, 30.0),
            streams: STREAMS,
            skip_bytes: SKIP_BYTES,
        }),
    },
    Named {
        name: "padp-ssd",
        what: "SServer through its file system, from PADP's stripe pairs",
        spec: DeviceSpec::Ssd(SsdSpec {
            read: Service::new(80.0, 80.0, 80.0),
            write: Service::new(85.0, 85.0, 54.0),
            channels: 6,
        }),
    },
    #[cfg(test)]
    Named {
        name: "dummy",
        what: "a device for the tests alone",
        spec: DeviceSpec::Ssd(SsdSpec {
            read: Service::new(10.0, 10.0, 1_000.0),
            write: Service::new(10.0, 10.0, 1_000.0),
            channels: 1,
        }),
    },
];

const fn link(message_us: f64, megabytes_per_s: f64) -> LinkSpec {
    LinkSpec { message_s: message_us / 1e6, transfer_s_per_byte: 1.0 / (megabytes_per_s * 1e6) }
}

/// Links of servers and client nodes (time of a message in microseconds, transfer in 10^6 bytes per
/// second).
pub const LINKS: &[Named<LinkSpec>] = &[
    // Cost-intelligent layout, table 4, Ethernet column: e 0.3 ms, v 1/120 MB.
    Named {
        name: "gigabit",
        what: "Gigabit Ethernet as measured in Cost-intelligent layout, table 4",
        spec: link(300.0, 120.0),
    },
    // Cost-intelligent layout, table 4, InfiniBand column (4X): e 0.2 ms, v 1/1000 MB.
    Named {
        name: "infiniband",
        what: "4X InfiniBand as measured in Cost-intelligent layout, table 4",
        spec: link(200.0, 1_000.0),
    },
    // docs/equations.md: not published by PADP; the usual 117 of Gigabit Ethernet's 125 million bytes a second, and a short message.
    Named {
        name: "padp-gigabit",
        what: "Gigabit Ethernet of the reproduction of PADP and H2DP",
        spec: link(20.0, 117.0),
    },
];

/// Mechanics of the disks above that a data sheet describes well enough.
pub const DISKS: &[Named<DiskSpec>] = &[
    // Seagate Barracuda 7200.12, 1 TB, data sheet and product manual 100529369 (2009): 7,200 rpm, average seek 8.5 ms reading and 9.5 ms writing,
    // track to track 1.0 ms, 125 MB/s sustained on the outer tracks, interface 300 MB/s, cache 32 MB. Not stated there: the full stroke
    // (2 x average, as in manuals of that time that state it), the rate on the inner tracks (half the outer one, the usual ratio of the radii),
    // segments (16 of 2 MB), what it reads ahead of a stream (512 KiB). Controller time: as the sequential startup of `hdd-7200`.
    Named {
        name: "hdd-7200",
        what: "its seeks, rotation, zones and cache",
        spec: DiskSpec {
            revolutions_per_s: 120.0,
            track_to_track_s: 1.0e-3,
            average_seek_s: 8.5e-3,
            full_stroke_s: 17.0e-3,
            write_settle_s: 1.0e-3,
            command_s: 100e-6,
            outer_bytes_per_s: 125e6,
            inner_bytes_per_s: 62.5e6,
            interface_bytes_per_s: 300e6,
            capacity_bytes: 1_000_204_886_016,
            segments: 16,
            segment_bytes: 2 << 20,
            ahead_bytes: 512 << 10,
        },
    },
];

/// Parts of the SSDs above.
pub const DRIVES: &[Named<FlashSpec>] = &[
    // Intel SSD 520, 240 GB: rates, latency and 50,000 reads/s as above, 80,000 writes/s of 4 KiB. Its flash is Intel and Micron's 25 nm MLC: Micron data
    // sheet L74A (MT29F64G08CBAAA): page 8,192 bytes, 256 pages a block, 2 planes, read 50 us, program 1,300 us, erase 3.8 ms, 200 MT/s. 8 channels of 4 dies
    // of 8 GiB make 256 GiB. The controller compresses; data here does not, so long writes run at the flash's 400 MB/s instead of
    // the 520 of the data sheet. The buffer is not stated: 4 MiB, 8 multi-plane pages a die.
    Named {
        name: "sata-ssd-2012",
        what: "its 32 dies on 8 channels, garbage collection",
        spec: FlashSpec {
            channels: 8,
            dies_per_channel: 4,
            planes: 2,
            page_bytes: 8 << 10,
            pages_per_block: 256,
            read_page_s: 50e-6,
            program_page_s: 1.3e-3,
            erase_block_s: 3.8e-3,
            channel_bytes_per_s: 200e6,
            read_command_s: 20e-6,
            write_command_s: 12.5e-6,
            read_interface_bytes_per_s: 550e6,
            write_interface_bytes_per_s: 520e6,
            buffer_bytes: 4 << 20,
            capacity_bytes: 240_057_409_536,
            physical_bytes: 256 << 30,
        },
    },
];

/// The mechanics of the disk named `name`, or an error that lists the disks that have them.
///
/// # Errors
///
/// [`UnknownName`] if `name` is not in [`DISKS`].
pub fn lookup_disk(name: &str) -> Result<DiskSpec, UnknownName> {
    lookup("disk with mechanics", DISKS, name)
}

/// The parts of the SSD named `name`, or an error that lists the SSDs that have them.
///
/// # Errors
///
/// [`UnknownName`] if `name` is not in [`DRIVES`].
pub fn lookup_flash(name: &str) -> Result<FlashSpec, UnknownName> {
    lookup("SSD with parts", DRIVES, name)
}

/// The parameters of the device named `name`, or an error that lists the known names.
///
/// # Errors
///
/// [`UnknownName`] if `name` is not in [`DEVICES`].
pub fn lookup_device(name: &str) -> Result<DeviceSpec, UnknownName> {
    lookup("device", DEVICES, name)
}

/// The parameters of the link named `name`, or an error that lists the known names.
///
/// # Errors
///
/// [`UnknownName`] if `name` is not in [`LINKS`].
pub fn lookup_link(name: &str) -> Result<LinkSpec, UnknownName> {
    lookup("link", LINKS, name)
}

fn lookup<T: Copy>(kind: &'static str, table: &[Named<T>], name: &str) -> Result<T, UnknownName> {
    table.iter().find(|named| named.name == name).map(|named| named.spec).ok_or_else(|| UnknownName {
        kind,
        name: name.to_owned(),
        known: table.iter().map(|named| named.name).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_CHANNELS, MAX_STREAMS};

    #[test]
    fn every_entry_is_possible() {
        for device in DEVICES {
            let services = match device.spec {
                DeviceSpec::Hdd(hdd) => {
                    assert!((1..=MAX_STREAMS).contains(&hdd.streams), "{}", device.name);
                    [hdd.read, hdd.write]
                }
                DeviceSpec::Ssd(ssd) => {
                    assert!((1..=MAX_CHANNELS).contains(&ssd.channels), "{}", device.name);
                    assert_eq!(ssd.read.startup_s, ssd.read.random_startup_s, "{}", device.name);
                    assert_eq!(ssd.write.startup_s, ssd.write.random_startup_s, "{}", device.name);
                    [ssd.read, ssd.write]
                }
            };
            for service in services {
                assert!(service.startup_s > 0.0 && service.random_startup_s > 0.0, "{}", device.name);
                let is_derived = device.name == "padp-hdd";
                assert!(service.startup_s <= service.random_startup_s || is_derived, "{}", device.name);
                assert!((1e-10..1e-7).contains(&service.transfer_s_per_byte), "{}", device.name);
            }
            assert_eq!(lookup_device(device.name), Ok(device.spec));
        }
        for link in LINKS {
            assert_eq!(lookup_link(link.name), Ok(link.spec));
        }
    }

    /// Everything else finds devices by these: `devices` lists [`DEVICES`], and servers, simulations and experiments look their names up.
    #[test]
    fn a_row_makes_a_device_known() {
        assert_eq!(DEVICES.last().map(|device| device.name), Some("dummy"));
        assert!(matches!(lookup_device("dummy"), Ok(DeviceSpec::Ssd(SsdSpec { channels: 1, .. }))));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = lookup_device("floppy").unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown device `floppy`; known: hdd-7200, sata-ssd-2012, nvme, paper-hdd, paper-hdd-5ms, paper-ssd, padp-hdd, padp-ssd, dummy"
        );
        assert_eq!(
            lookup_link("").unwrap_err().to_string(),
            "unknown link ``; known: gigabit, infiniband, padp-gigabit"
        );
    }
}
