//! Why figures of a profile may be wrong.
//!
//! A line from single requests is right for single requests. A token bucket lets a burst of them pass, a cache answers
//! them, and a device under two servers serves both only while one of them is idle. Calibration looks for each and
//! keeps what it found in the profile, so that plans, explanations and reports repeat it.

use serde::{Deserialize, Serialize};
use std::fmt;
use stripewise_layout::{Direction, Order};

/// One reason why figures of a profile may be wrong. Its text is one sentence that names the servers and the remedy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Caveat {
    /// A stream of large requests fell below the rate of single ones. The server's lines have the lower rate.
    LimitedRate {
        /// As in the cluster file.
        server: String,
        /// Reads or writes.
        direction: Direction,
        /// Bytes per second of single requests of the stream's size.
        single_bytes_per_s: f64,
        /// Bytes per second at the end of the stream.
        sustained_bytes_per_s: f64,
        /// Bytes that the stream moved before it slowed down; 0 if it was slow from the start.
        burst_bytes: u64,
    },
    /// A stream of small requests fell below the rate of single ones. The server's startup times are those of the stream.
    LimitedRequests {
        /// As in the cluster file.
        server: String,
        /// Reads or writes.
        direction: Direction,
        /// Requests per second, one after the other, by the line.
        single_per_s: f64,
        /// Requests per second at the end of the stream.
        sustained_per_s: f64,
    },
    /// All measured requests together took longer than their line says: the line follows most of them and misses the slow.
    SlowRequests {
        /// As in the cluster file.
        server: String,
        /// Reads or writes.
        direction: Direction,
        /// Sequential or random.
        order: Order,
        /// Total measured time over the line's.
        factor: f64,
    },
    /// The times are not on a line.
    NoLine {
        /// As in the cluster file.
        server: String,
        /// Reads or writes.
        direction: Direction,
        /// Sequential or random.
        order: Order,
        /// The fit's coefficient of determination.
        r2: f64,
        /// Median distance from the line, relative to it.
        spread: f64,
    },
    /// Buffered writes, which devices get in order, stayed slower than direct ones.
    SlowBuffered {
        /// As in the cluster file.
        server: String,
        /// Sequential or random.
        order: Order,
        /// Bytes per second of buffered writes of 4 MiB, their sync included.
        buffered_bytes_per_s: f64,
        /// Bytes per second of direct ones.
        direct_bytes_per_s: f64,
    },
    /// A server of class `hdd` starts random reads as fast as sequential ones.
    NoSeeks {
        /// As in the cluster file.
        server: String,
        /// Startup of random reads over that of sequential ones.
        ratio: f64,
    },
    /// Servers whose directories lie on one device.
    SharedDevice {
        /// As in the cluster file, in its order.
        servers: Vec<String>,
        /// Device number `major:minor` of what they share.
        device: String,
    },
    /// Servers that slow each other down when they are read at once.
    SharedLoad {
        /// As in the cluster file, in its order.
        servers: Vec<String>,
        /// Bytes per second of all at once over the sum of each alone.
        share: f64,
    },
    /// Tasks waited for a processor while calibration measured; times contain such waits, and limits on small requests
    /// were not looked for.
    BusyHost {
        /// Share of the time during which some task waited for a processor.
        share: f64,
    },
    /// The profile is of a version that knows one class of writes. Reading it adds this.
    DerivedWrites,
    /// Nobody measured these servers: their lines are those of a data sheet or of figures that a site gave.
    Unmeasured {
        /// How many servers.
        servers: u64,
    },
    /// The trace does not say what writes waited for, so they are taken as buffered. Of the trace, not of the profile: planning adds it.
    AssumedWrites {
        /// Files with such writes.
        files: u64,
        /// The first of them.
        path: String,
    },
    /// The host's agent slows a server down, as the cluster file has it: figures are not those of a device.
    Throttled {
        /// As in the cluster file.
        server: String,
        /// What a request takes at least, as in the cluster file.
        to: String,
    },
    /// The slowest SSD server is hardly faster than the fastest HDD server.
    AlikeClasses {
        /// As in the cluster file.
        hdd: String,
        /// As in the cluster file.
        ssd: String,
        /// Time of a random 64 KiB request on `hdd` over that on `ssd`; below 1 where the SSD server is the slower one.
        ratio: f64,
    },
}

impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LimitedRate { server, direction, single_bytes_per_s, sustained_bytes_per_s, burst_bytes } => {
                let what = gerund(*direction);
                write!(f, "{server}: {what} reaches {} in single requests and ", megabytes(*single_bytes_per_s))?;
                match burst_bytes {
                    0 => write!(f, "{} in a stream", megabytes(*sustained_bytes_per_s))?,
                    bytes => {
                        let sustained = megabytes(*sustained_bytes_per_s);
                        write!(f, "{sustained} once {:.0} MB were moved", *bytes as f64 * 1e-6)?;
                    }
                }
                write!(f, " (a rate limit or a cache); the profile has the sustained rate")
            }
            Self::LimitedRequests { server, direction, single_per_s, sustained_per_s } => write!(
                f,
                "{server}: {} of small requests sustains {sustained_per_s:.0} requests/s, where single ones promise \
                 {single_per_s:.0} (a limit on requests or a cache); the profile has the sustained rate",
                gerund(*direction)
            ),
            Self::SlowRequests { server, direction, order, factor } => write!(
                f,
                "{server}: {} {} took {factor:.1} times as long in total as its line says; some requests are far slower \
                 than most. Calibrate again when the server is idle, or with more --seconds",
                adverb(*order),
                gerund(*direction)
            ),
            Self::NoLine { server, direction, order, r2, spread } => write!(
                f,
                "{server}: times of {} {} do not lie on a line (R2 {r2:.3}, spread {:.0} %): is the server in use? \
                 Calibrate again when it is idle, or with more --seconds",
                adverb(*order),
                gerund(*direction),
                spread * 100.0
            ),
            Self::SlowBuffered { server, order, buffered_bytes_per_s, direct_bytes_per_s } => write!(
                f,
                "{server}: {} buffered writing reaches {} where direct writing reaches {}: another program was writing, \
                 or this machine copies more slowly than the server writes. Calibrate again when the machine is idle",
                adverb(*order),
                megabytes(*buffered_bytes_per_s),
                megabytes(*direct_bytes_per_s)
            ),
            Self::NoSeeks { server, .. } => write!(
                f,
                "{server}: random reads start as fast as sequential ones: the server is no disk, or a cache answers. \
                 For a disk, calibrate with a --file-size larger than the cache"
            ),
            Self::SharedDevice { servers, device } => write!(
                f,
                "{} lie on one device ({device}), so their rates do not add up; give every server a device of its own",
                servers.join(", ")
            ),
            Self::SharedLoad { servers, share } => write!(
                f,
                "{} slow each other down: read at once, they reach {:.0} % of the sum of their rates (a shared device, \
                 link or controller, or this machine's processors)",
                servers.join(", "),
                share * 100.0
            ),
            Self::BusyHost { share } => write!(
                f,
                "this machine's processors were overloaded for {:.0} % of the time: startup times are too long. Calibrate \
                 again when the machine is idle",
                share * 100.0
            ),
            Self::DerivedWrites => write!(
                f,
                "the profile is of a version without classes of writes: buffered writes are taken to cost their bytes alone, \
                 synchronous ones as much as direct ones. Run `stripewise calibrate` again"
            ),
            Self::Unmeasured { servers } => write!(
                f,
                "nobody measured {servers} of the servers: their times are those of data sheets or of the site's figures, buffered writes \
                 are taken to cost their bytes alone. `stripewise calibrate` on directories of the targets measures them"
            ),
            Self::AssumedWrites { files, path } => {
                write!(f, "the trace does not say whether writes to {path}")?;
                if *files > 1 {
                    write!(f, " and {} other files", files - 1)?;
                }
                write!(
                    f,
                    " were direct, buffered or synchronous (format 1, or another tool's trace): they are taken as \
                     buffered. Trace again to know"
                )
            }
            Self::Throttled { server, to } => write!(
                f,
                "{server} is throttled: its host's agent makes every request take {to} at least, one after the other, so its figures are \
                 of no real device"
            ),
            Self::AlikeClasses { hdd, ssd, ratio } => write!(
                f,
                "the classes hardly differ: a random 64 KiB request takes {ratio:.2} times as long on {hdd} (hdd) as on \
                 {ssd} (ssd), so little can be gained"
            ),
        }
    }
}

fn megabytes(bytes_per_s: f64) -> String {
    format!("{:.0} MB/s", bytes_per_s * 1e-6)
}

fn gerund(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "reading",
        Direction::Write => "writing",
    }
}

fn adverb(order: Order) -> &'static str {
    match order {
        Order::Sequential => "sequential",
        Order::Random => "random",
    }
}

/// Servers that a merged sentence names.
const SERVERS_NAMED: usize = 6;

impl Caveat {
    /// One sentence for each kind of caveat, in the order of their first: that one's text, and how many more there are of which servers.
    #[must_use]
    pub fn merged(caveats: &[Self]) -> Vec<String> {
        let kind = std::mem::discriminant::<Self>;
        let first = |at: usize| caveats[..at].iter().all(|before| kind(before) != kind(&caveats[at]));
        let sentence = |at: usize| {
            let alike: Vec<&Self> = caveats[at..].iter().filter(|other| kind(other) == kind(&caveats[at])).collect();
            match alike.len() {
                1 => caveats[at].to_string(),
                count => {
                    format!("{} (one of {count} such notes, {}; the profile has them all)", caveats[at], named(&alike))
                }
            }
        };
        (0..caveats.len()).filter(|at| first(*at)).map(sentence).collect()
    }

    fn servers(&self) -> &[String] {
        match self {
            Self::LimitedRate { server, .. }
            | Self::LimitedRequests { server, .. }
            | Self::SlowRequests { server, .. }
            | Self::NoLine { server, .. }
            | Self::SlowBuffered { server, .. }
            | Self::NoSeeks { server, .. }
            | Self::Throttled { server, .. } => std::slice::from_ref(server),
            Self::SharedDevice { servers, .. } | Self::SharedLoad { servers, .. } => servers,
            Self::AlikeClasses { ssd, .. } => std::slice::from_ref(ssd),
            Self::BusyHost { .. } | Self::DerivedWrites | Self::Unmeasured { .. } | Self::AssumedWrites { .. } => &[],
        }
    }

    /// Its numbers by field, for the check of a profile that was read; `r2` may be negative.
    pub(crate) fn numbers(&self) -> Vec<(&'static str, f64)> {
        match self {
            Self::LimitedRate { single_bytes_per_s, sustained_bytes_per_s, .. } => {
                vec![("single_bytes_per_s", *single_bytes_per_s), ("sustained_bytes_per_s", *sustained_bytes_per_s)]
            }
            Self::LimitedRequests { single_per_s, sustained_per_s, .. } => {
                vec![("single_per_s", *single_per_s), ("sustained_per_s", *sustained_per_s)]
            }
            Self::SlowRequests { factor, .. } => vec![("factor", *factor)],
            Self::SlowBuffered { buffered_bytes_per_s, direct_bytes_per_s, .. } => {
                vec![("buffered_bytes_per_s", *buffered_bytes_per_s), ("direct_bytes_per_s", *direct_bytes_per_s)]
            }
            Self::NoLine { spread, .. } => vec![("spread", *spread)],
            Self::NoSeeks { ratio, .. } | Self::AlikeClasses { ratio, .. } => vec![("ratio", *ratio)],
            Self::SharedLoad { share, .. } | Self::BusyHost { share } => vec![("share", *share)],
            Self::SharedDevice { .. }
            | Self::DerivedWrites
            | Self::Unmeasured { .. }
            | Self::AssumedWrites { .. }
            | Self::Throttled { .. } => Vec::new(),
        }
    }
}

/// The servers of several caveats, each once.
fn named(caveats: &[&Caveat]) -> String {
    let mut servers: Vec<&str> = Vec::new();
    for server in caveats.iter().flat_map(|caveat| caveat.servers()) {
        if !servers.contains(&server.as_str()) {
            servers.push(server);
        }
    }
    let more = servers.len().saturating_sub(SERVERS_NAMED);
    servers.truncate(SERVERS_NAMED);
    let names = servers.join(", ");
    if more > 0 { format!("of {names} and {more} other servers") } else { format!("of {names}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caveats_of_one_kind_are_one_sentence() {
        let slow = |server: String, direction| Caveat::LimitedRequests {
            server,
            direction,
            single_per_s: 900.0,
            sustained_per_s: 100.0,
        };
        let seeks = Caveat::NoSeeks { server: "hdd0".to_owned(), ratio: 1.0 };
        let mut caveats = vec![slow("hdd0".to_owned(), Direction::Read), seeks.clone()];
        assert_eq!(Caveat::merged(&caveats), [caveats[0].to_string(), seeks.to_string()]);
        for server in (0..8).map(|number| format!("hdd{number}")) {
            caveats.push(slow(server, Direction::Write));
        }
        let merged = Caveat::merged(&caveats);
        let of = "(one of 9 such notes, of hdd0, hdd1, hdd2, hdd3, hdd4, hdd5 and 2 other servers; the profile has them all)";
        assert_eq!(merged, [format!("{} {of}", caveats[0]), seeks.to_string()]);
    }
}
