//! Readers of Stripewise's own trace format and of others, counts, pattern statistics and workload generators.
#![deny(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

mod access;
pub mod counts;
pub mod darshan;
pub mod data_files;
pub mod export;
mod live;
pub mod manifest;
pub mod merging;
pub mod program;
pub mod reader;
mod slots;
pub mod statistics;
pub mod trace;
mod warning;
pub mod workload;

pub use access::{
    AccessClass, ClassIndex, Company, FileAccess, ProcessCount, RegionAccess, SLICES, Slices, Synchronizations,
    WindowAccess, WindowProcesses,
};
pub use counts::{CountError, CountOptions, Counted, count, count_and_report};
pub use export::{ExportError, write_csv};
pub use live::{LiveFile, LiveOptions, LiveProcess, LiveRequest};
pub use manifest::{Manifest, ManifestError};
pub use merging::{MergeError, count_together};
pub use program::{
    FileShape, IoRequest, Pacing, Program, ProgramCountOptions, ProgramFile, RecordedError, RecordedOptions, Step,
    TraceProgram, count_program,
};
pub use reader::{LineFault, ReadError, RecorderFault};
pub use statistics::{
    Alignment, FileStatistics, HeatMap, SMALL_REQUEST, TraceStatistics, alignment, heat_map, statistics,
};
pub use trace::{Communicator, Event, FileIndex, NodeIndex, Process, ProcessIndex, Trace, TraceTime, TracedFile};
pub use warning::Warning;
pub use workload::{Benchmark, Generator, Pattern, Request, TraceShape, Workload, WorkloadError, write_trace};
