//! Where the last requests left a disk, so that a sample of ranks that march through a file finds out by itself which of them seek.
//!
//! Ranks that read request i, i + p, i + 2p .. of a file do not stay abreast: one that waited for a busy disk falls behind, and soon groups of ranks
//! stand at different stripes. How many seeks that costs depends on the stripes and follows from no count, so the sample follows the streams: a
//! disk continues one of its [`FOLLOWED_STREAMS`] last ones when a request begins where it ended or a short skip behind, also from
//! the end of a region to the start of the next.

use stripewise_model::queueing::FOLLOWED_STREAMS;

/// Farthest forward skip that continues a stream. Ours: Linux's default read-ahead.
const SKIP_BYTES: u64 = 128 << 10;

/// Where a sub-request begins on its server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// Regions that lie one behind the other have numbers one behind the other.
    pub(crate) region: u32,
    pub(crate) offset: u64,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    region: u32,
    next: u64,
}

/// The recent streams of every server, the most recent last.
#[derive(Debug)]
pub(crate) struct Heads(Vec<Vec<Stream>>);

impl Heads {
    pub(crate) fn new(servers: usize) -> Self {
        Self(vec![Vec::with_capacity(FOLLOWED_STREAMS as usize); servers])
    }

    /// Notes a sub-request; returns the bytes skipped when it continues a stream. What comes first to a server counts as continuing: a sample
    /// begins in the middle of the run.
    pub(crate) fn note(&mut self, server: usize, spot: Spot, bytes: u64) -> Option<u64> {
        let streams = &mut self.0[server];
        let gap = |stream: &Stream| {
            let gap = if stream.region == spot.region {
                spot.offset.checked_sub(stream.next)
            } else {
                (stream.region + 1 == spot.region && spot.offset == 0).then_some(0)
            };
            gap.filter(|gap| *gap <= SKIP_BYTES)
        };
        let nearest = streams.iter().enumerate().filter_map(|(at, stream)| Some((gap(stream)?, at))).min();
        let skipped = if streams.is_empty() { Some(0) } else { nearest.map(|(gap, _)| gap) };
        match nearest {
            Some((_, at)) => drop(streams.remove(at)),
            None if streams.len() == FOLLOWED_STREAMS as usize => drop(streams.remove(0)),
            None => {}
        }
        streams.push(Stream { region: spot.region, next: spot.offset + bytes });
        skipped
    }

    /// Notes a sub-request that continues no stream and that none will continue.
    pub(crate) fn disturb(&mut self, server: usize) {
        let streams = &mut self.0[server];
        if streams.len() == FOLLOWED_STREAMS as usize {
            streams.remove(0);
        }
        // No region has this number, nor the one behind it.
        streams.push(Stream { region: u32::MAX - 1, next: u64::MAX });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_continues_its_recent_streams_only() {
        let mut heads = Heads::new(1);
        let mut note = |region, offset| heads.note(0, Spot { region, offset }, 4096);
        assert_eq!(note(0, 0), Some(0), "the run began before the sample");
        assert_eq!(note(0, 4096), Some(0));
        assert_eq!(note(0, 8192 + SKIP_BYTES), Some(SKIP_BYTES));
        assert_eq!(note(0, 0), None, "backwards");
        assert_eq!(note(1, 0), Some(0), "the next region lies behind");
        for region in 0..FOLLOWED_STREAMS {
            assert_eq!(note(10 + 2 * region, 0), None);
        }
        assert_eq!(note(1, 4096), None, "so many others since: forgotten");
    }

    #[test]
    fn requests_without_order_make_a_disk_forget_streams_too() {
        let mut heads = Heads::new(1);
        let note = |heads: &mut Heads, offset| heads.note(0, Spot { region: 3, offset }, 4096);
        note(&mut heads, 0);
        (1..FOLLOWED_STREAMS).for_each(|_| heads.disturb(0));
        assert_eq!(note(&mut heads, 4096), Some(0));
        (0..FOLLOWED_STREAMS).for_each(|_| heads.disturb(0));
        assert_eq!(note(&mut heads, 8192), None);
    }
}
