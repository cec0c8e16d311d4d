//! Collective buffering, as ROMIO does it: one process of each node (an aggregator) makes the requests of all.
//!
//! The range from the first to the last byte of a collective call is cut into equal shares, one for each aggregator, and each aggregator
//! goes through its share in requests of the buffer's size (`cb_buffer_size`, 16 MiB by default). Where a write leaves holes, the buffer
//! is read first. The exchange of data among the processes before takes no storage time and is left out.

use super::stages::Run;
use stripewise_layout::{ByteCount, Direction};

/// ROMIO's default of `cb_buffer_size`.
pub(super) const BUFFER: ByteCount = ByteCount(16 << 20);

/// A contiguous part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) bytes: u64,
}

impl Range {
    /// In pieces of that size, the last one of the rest.
    pub(super) fn pieces(self, bytes: u64) -> impl Iterator<Item = Range> + Send {
        let end = self.start + self.bytes;
        (self.start..end)
            .step_by(usize::try_from(bytes.max(1)).unwrap_or(usize::MAX))
            .map(move |start| Range { start, bytes: bytes.min(end - start) })
    }
}

fn node_of(process: u32, run: &Run) -> u64 {
    u64::from(process) * u64::from(run.nodes()) / u64::from(run.processes)
}

/// The process's share of the range, empty if it is no aggregator: these are the first processes of the nodes.
pub(super) fn domain(run: &Run, process: u32, range: Range) -> Range {
    let node = node_of(process, run);
    if process > 0 && node_of(process - 1, run) == node {
        return Range { start: range.start, bytes: 0 };
    }
    let share = range.bytes.div_ceil(u64::from(run.nodes()));
    let begin = (node * share).min(range.bytes);
    Range { start: range.start + begin, bytes: share.min(range.bytes - begin) }
}

/// What the process does in a collective call over the range.
pub(super) fn accesses(
    domain: Range,
    buffer: ByteCount,
    direction: Direction,
    holes: bool,
) -> impl Iterator<Item = (Direction, Range)> + Send {
    let before = (direction == Direction::Write && holes).then_some(Direction::Read);
    domain
        .pieces(buffer.0)
        .flat_map(move |piece| before.into_iter().chain([direction]).map(move |direction| (direction, piece)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn aggregators_share_the_range(processes in 1u32..40, nodes in 1u32..40, start in 0u64..100, bytes in 1u64..500, buffer in 1u64..50) {
            let nodes = nodes.min(processes);
            let run = Run { processes, nodes: Some(nodes), ..Run::default() };
            let range = Range { start, bytes };
            let mut found = Vec::new();
            let mut aggregators = 0;
            for process in 0..processes {
                let domain = domain(&run, process, range);
                aggregators += u32::from(domain.bytes > 0);
                for (direction, piece) in accesses(domain, ByteCount(buffer), Direction::Write, false) {
                    prop_assert_eq!(direction, Direction::Write);
                    prop_assert!(piece.bytes <= buffer && piece.bytes > 0);
                    found.extend(piece.start..piece.start + piece.bytes);
                }
            }
            prop_assert!(aggregators <= nodes);
            found.sort_unstable();
            prop_assert!(found.into_iter().eq(start..start + bytes));
        }
    }
}
