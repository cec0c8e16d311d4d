//! Where in a record the counters stand that are used, by their names.

use super::Interface;
use super::counters::{DirectionCounters, Extreme, LevelCounters, MpiCalls, counted, plus};
use super::sizes::{BIN_SUFFIXES, BINS};

/// Places of the counters of one direction.
struct Direction {
    requests: Vec<usize>,
    bytes: Option<usize>,
    max_byte: Option<usize>,
    consecutive: Option<usize>,
    sequential: Option<usize>,
    bins: [Option<usize>; BINS],
    time: Option<usize>,
    start: Option<usize>,
    end: Option<usize>,
}

/// Places of what is said of one rank of a shared record.
struct Ends {
    rank: Option<usize>,
    time: Option<usize>,
    bytes: Option<usize>,
}

/// Places of counters in the records of one module.
pub(super) struct Columns {
    pub(super) interface: Interface,
    directions: [Direction; 2],
    opens: Vec<usize>,
    metadata: Vec<usize>,
    syncs: Vec<usize>,
    common: Vec<(usize, usize)>,
    not_aligned: Option<usize>,
    alignment: Option<usize>,
    metadata_time: Option<usize>,
    slowest: Ends,
    fastest: Ends,
    collective: Vec<usize>,
    independent: Vec<usize>,
}

impl Columns {
    pub(super) fn new(interface: Interface, counters: &[String], real: &[String]) -> Self {
        let prefix = match interface {
            Interface::Posix => "POSIX",
            Interface::MpiIo => "MPIIO",
            Interface::Stdio => "STDIO",
        };
        let place = |names: &[String], name: String| names.iter().position(|known| *known == name);
        let whole = |suffix: &str| place(counters, format!("{prefix}_{suffix}"));
        let fraction = |suffix: &str| place(real, format!("{prefix}_F_{suffix}"));
        let those = |suffixes: &[&str]| suffixes.iter().filter_map(|suffix| whole(suffix)).collect::<Vec<usize>>();
        let direction = |word: &str, past: &str| Direction {
            requests: those(
                &["", "INDEP_", "COLL_", "SPLIT_", "NB_"]
                    .map(|kind| format!("{kind}{word}S"))
                    .each_ref()
                    .map(String::as_str),
            ),
            bytes: whole(&format!("BYTES_{past}")),
            max_byte: whole(&format!("MAX_BYTE_{past}")),
            consecutive: whole(&format!("CONSEC_{word}S")),
            sequential: whole(&format!("SEQ_{word}S")),
            bins: BIN_SUFFIXES
                .map(|bin| whole(&format!("SIZE_{word}_{bin}")).or_else(|| whole(&format!("SIZE_{word}_AGG_{bin}")))),
            time: fraction(&format!("{word}_TIME")),
            start: fraction(&format!("{word}_START_TIMESTAMP")),
            end: fraction(&format!("{word}_END_TIMESTAMP")),
        };
        let ends = |end: &str| Ends {
            rank: whole(&format!("{end}_RANK")),
            time: fraction(&format!("{end}_RANK_TIME")),
            bytes: whole(&format!("{end}_RANK_BYTES")),
        };
        let common = (1..=4).filter_map(|number| {
            Some((whole(&format!("ACCESS{number}_ACCESS"))?, whole(&format!("ACCESS{number}_COUNT"))?))
        });
        Self {
            interface,
            directions: [direction("READ", "READ"), direction("WRITE", "WRITTEN")],
            opens: those(&["OPENS", "INDEP_OPENS", "COLL_OPENS"]),
            metadata: those(&["SEEKS", "STATS", "RENAME_SOURCES"]),
            syncs: those(&["FSYNCS", "FDSYNCS", "SYNCS", "FLUSHES"]),
            common: common.collect(),
            not_aligned: whole("FILE_NOT_ALIGNED"),
            alignment: whole("FILE_ALIGNMENT"),
            metadata_time: fraction("META_TIME"),
            slowest: ends("SLOWEST"),
            fastest: ends("FASTEST"),
            collective: those(&["COLL_READS", "COLL_WRITES", "SPLIT_READS", "SPLIT_WRITES"]),
            independent: those(&["INDEP_READS", "INDEP_WRITES", "NB_READS", "NB_WRITES"]),
        }
    }

    /// The counters of one record. Shared records are those of all ranks.
    pub(super) fn level(&self, rank: i64, processes: u32, counters: &[i64], real: &[f64]) -> LevelCounters {
        let whole = |place: Option<usize>| place.and_then(|place| counters.get(place)).copied().unwrap_or(0);
        let count = |place: Option<usize>| counted(whole(place));
        let sum = |places: &[usize]| places.iter().fold(0, |sum, place| plus(sum, count(Some(*place))));
        let seconds = |place: Option<usize>| {
            place.and_then(|place| real.get(place)).copied().filter(|found| found.is_finite()).unwrap_or(0.0).max(0.0)
        };
        let is_shared = rank < 0;
        let ranks = if is_shared { processes } else { 1 };
        let extreme = |places: &Ends| Extreme {
            rank: places
                .rank
                .and_then(|place| u32::try_from(*counters.get(place)?).ok())
                .filter(|rank| *rank < processes),
            time_s: seconds(places.time),
            bytes: count(places.bytes),
        };
        let direction = |places: &Direction| {
            let requests = sum(&places.requests);
            let knows_order = places.consecutive.is_some();
            DirectionCounters {
                requests,
                bytes: count(places.bytes),
                // The highest byte is counted from 0, and 0 is written where there was none.
                end: if requests > 0 && places.max_byte.is_some() { count(places.max_byte) + 1 } else { 0 },
                consecutive: count(places.consecutive),
                sequential: count(places.sequential),
                knows_order,
                ordered: if knows_order { requests.saturating_sub(ranks.into()) } else { 0 },
                bins: places.bins.map(count),
                time_s: seconds(places.time),
                start_s: if requests > 0 { seconds(places.start) } else { f64::INFINITY },
                end_s: seconds(places.end),
            }
        };
        let mut level = LevelCounters {
            read: direction(&self.directions[0]),
            write: direction(&self.directions[1]),
            opens: sum(&self.opens),
            metadata: sum(&self.metadata),
            syncs: sum(&self.syncs),
            metadata_s: seconds(self.metadata_time),
            common: self
                .common
                .iter()
                .map(|(size, found)| (count(Some(*size)), count(Some(*found))))
                .filter(|(size, found)| *size > 0 && *found > 0)
                .collect(),
            not_aligned: count(self.not_aligned),
            alignment: count(self.alignment),
            ranks,
            is_shared,
            slowest: extreme(&self.slowest),
            fastest: extreme(&self.fastest),
        };
        if !is_shared {
            let own = Extreme { rank: u32::try_from(rank).ok(), time_s: level.time_s(), bytes: level.bytes() };
            (level.slowest, level.fastest) = (own, own);
        }
        level
    }

    pub(super) fn mpi_calls(&self, counters: &[i64]) -> MpiCalls {
        let sum = |places: &[usize]| {
            let found = places.iter().filter_map(|place| counters.get(*place));
            found.fold(0, |sum, count| plus(sum, counted(*count)))
        };
        MpiCalls { collective: sum(&self.collective), independent: sum(&self.independent) }
    }
}
