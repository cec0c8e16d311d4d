//! The devices and links that can be named in a server's URL, each with the source of its figures.

use crate::spec::{DeviceSpec, HddSpec, LinkSpec, Service, SsdSpec};

/// A device or link that has a name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Named<T: 'static> {
    pub name: &'static str,
    /// What it is, in a few words.
    pub what: &'static str,
    pub spec: T,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown {kind} `{name}`; known: {known}")]
pub struct UnknownName {
    /// "device" or "link".
    pub kind: &'static str,
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
];

const fn link(message_us: f64, megabytes_per_s: f64) -> LinkSpec {
    LinkSpec { message_s: message_us / 1e6, transfer_s_per_byte: 1.0 / (megabytes_per_s * 1e6) }
}

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
];

/// The parameters of the device named `name`, or an error that lists the known names.
pub fn lookup_device(name: &str) -> Result<DeviceSpec, UnknownName> {
    lookup("device", DEVICES, name)
}

/// The parameters of the link named `name`, or an error that lists the known names.
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
                assert!(service.startup_s > 0.0 && service.startup_s <= service.random_startup_s, "{}", device.name);
                assert!((1e-10..1e-7).contains(&service.transfer_s_per_byte), "{}", device.name);
            }
            assert_eq!(lookup_device(device.name), Ok(device.spec));
        }
        for link in LINKS {
            assert_eq!(lookup_link(link.name), Ok(link.spec));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = lookup_device("floppy").unwrap_err().to_string();
        assert_eq!(error, "unknown device `floppy`; known: hdd-7200, sata-ssd-2012, nvme, paper-hdd, paper-ssd");
        assert_eq!(lookup_link("").unwrap_err().to_string(), "unknown link ``; known: gigabit, infiniband");
    }
}
