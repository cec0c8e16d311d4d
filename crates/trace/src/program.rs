//! What a parallel program does, process by process and in order, without saying how long the storage takes for it.
//!
//! Workload generators and recorded traces are both programs. The simulator runs one against modelled servers, `replay` against real
//! ones, and [`count_program`] gives the counts that planning needs without a run in between.

mod counting;
mod recorded;

pub use counting::{ProgramCountOptions, count_program};
pub use recorded::{Pacing, RecordedError, RecordedOptions, TraceProgram};

use stripewise_layout::{Direction, FileOffset, RequestKind};

/// Position in [`Program::files`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProgramFile(pub u32);

/// A file that a program accesses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileShape {
    /// Absolute path.
    pub path: String,
    /// The size that the program leaves it with.
    pub size_bytes: u64,
}

/// One read or write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoRequest {
    /// The file accessed.
    pub file: ProgramFile,
    /// Whether it reads or writes, and what its write waits for.
    pub kind: RequestKind,
    /// First byte of the file.
    pub offset: FileOffset,
    /// At least 1.
    pub bytes: u64,
}

impl IoRequest {
    /// Whether it reads or writes.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.kind.direction()
    }
}

/// What a process does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Waits until the request is done.
    Access(IoRequest),
    /// Computes for so many nanoseconds.
    Think {
        /// Computing time, of the run and not of the host.
        nanoseconds: u64,
    },
    /// Goes on no earlier than so many nanoseconds after the start of the run: a trace's own times.
    Until {
        /// Time since the start of the run.
        nanoseconds: u64,
    },
    /// Waits until what was written to the file before, by whichever process, is on its servers.
    Synchronize(ProgramFile),
    /// Goes on when all processes have come here.
    Barrier,
    /// A barrier at which the program enters its next phase, counted from 1; phase 0 needs no mark. Plans may place every phase again.
    Phase,
}

/// A parallel program.
pub trait Program: Sync {
    /// At least one.
    fn files(&self) -> &[FileShape];

    /// At least 1.
    fn processes(&self) -> u32;

    /// Client nodes, 1 to [`Self::processes`]; processes are spread over them in blocks.
    fn nodes(&self) -> u32;

    /// 1 and the [`Step::Phase`] marks of any process (all have equally many).
    fn phases(&self) -> u32;

    /// The steps of one process, the same at every call.
    fn steps(&self, process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_>;

    /// The node of a process.
    fn node_of(&self, process: u32) -> u32 {
        (u64::from(process) * u64::from(self.nodes()) / u64::from(self.processes())) as u32
    }
}
