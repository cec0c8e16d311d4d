//! A generated program as a recorded trace, with invented times.

use super::sequence::SHARED_FILE;
use super::{Generator, WorkloadError};
use crate::manifest::Manifest;
use crate::slots::SlotBuffer;
use std::path::Path;
use stripewise_capture::call::Call;
use stripewise_capture::clock::{Clock, Ticks};
use stripewise_capture::format::{ClockPair, Header, RawEvent};
use stripewise_layout::{Direction, WriteClass};

/// When and where the requests of a synthetic trace happen.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceShape {
    /// The path of the file in the trace.
    pub file: String,
    /// Client nodes; ranks are spread in blocks.
    pub nodes: u32,
    /// From the start of one request of a rank to the start of its next.
    pub interval_ns: u64,
    /// From start to end of a request.
    pub duration_ns: u64,
    /// Begin of the run.
    pub start_unix_ns: u64,
}

impl Default for TraceShape {
    fn default() -> Self {
        Self {
            file: SHARED_FILE.to_owned(),
            nodes: 1,
            interval_ns: 1_000_000,
            duration_ns: 800_000,
            start_unix_ns: 1_700_000_000_000_000_000,
        }
    }
}

/// Writes the workload as a trace of Stripewise's own format: manifest, and a process file per rank that opens, accesses and closes.
///
/// # Errors
/// When `directory` (which must exist) cannot be written to.
pub fn write_trace(generator: &Generator, shape: &TraceShape, directory: &Path) -> Result<(), WorkloadError> {
    let workload = generator.workload();
    let nodes = shape.nodes.clamp(1, workload.ranks);
    let mut manifest = Manifest::new("node0".to_owned(), vec!["synthetic".to_owned()], shape.start_unix_ns);
    manifest.mpi_size = Some(workload.ranks);
    manifest.write(directory)?;
    let call = match workload.direction {
        Direction::Read => Call::Pread,
        Direction::Write => Call::Pwrite,
    };
    for rank in 0..workload.ranks {
        let node = format!("node{}", u64::from(rank) * u64::from(nodes) / u64::from(workload.ranks));
        let mut slots = SlotBuffer::default();
        let file = slots.define_file(shape.file.as_bytes());
        let at = |ns: u64| Ticks(1_000_000 + ns);
        // As the simulator and replay take generated programs: every write waits for the servers.
        let write_class = Some(WriteClass::Direct);
        let open = RawEvent::new(Call::Open, file, stripewise_capture::format::NO_OFFSET, 0, at(0), at(0));
        slots.push_event(&RawEvent { write_class, ..open });
        let mut start = 0;
        for request in generator.requests(rank) {
            let end = at(start + shape.duration_ns);
            let event = RawEvent::new(call, file, request.offset, request.bytes, at(start), end);
            let write_class = write_class.filter(|_| call == Call::Pwrite);
            slots.push_event(&RawEvent { write_class, ..event });
            start += shape.interval_ns;
        }
        slots.push_event(&RawEvent::new(
            Call::Close,
            file,
            stripewise_capture::format::NO_OFFSET,
            0,
            at(start),
            at(start),
        ));
        let header = Header {
            clock: Clock::Monotonic,
            pid: 1000 + rank,
            parent_pid: 1,
            mpi_rank: Some(rank),
            mpi_size: workload.ranks,
            start_wall_ns: shape.start_unix_ns,
            start_monotonic_ns: at(0).0,
            start_ticks: at(0).0,
            ticks_per_second: 1_000_000_000,
            lost: 0,
            finished: true,
            used_bytes: 0,
            pairs: [ClockPair { sequence: 1, ticks: at(start).0, monotonic_ns: at(start).0 }, ClockPair::default()],
            node: node.as_bytes(),
            program: b"synthetic",
        };
        let path = directory.join(format!("{node}.{}.{}", header.pid, stripewise_capture::format::EXTENSION));
        slots.write(&path, &header).map_err(|source| WorkloadError::Io { path, source })?;
    }
    Ok(())
}
