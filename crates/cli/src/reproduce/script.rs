//! Programs for experiments, whose steps are made while they are asked for.

use stripewise_layout::{Direction, FileOffset};
use stripewise_trace::{FileShape, IoRequest, Program, ProgramFile, Step};

type MakeSteps<'a> = dyn Fn(u32) -> Box<dyn Iterator<Item = Step> + Send + 'a> + Sync + 'a;

/// A program whose steps are made when asked for: millions of requests take no memory.
pub(super) struct Generated<'a> {
    files: Vec<FileShape>,
    processes: u32,
    nodes: u32,
    phases: u32,
    make: Box<MakeSteps<'a>>,
}

impl<'a> Generated<'a> {
    /// On one shared file. `make` gives the steps of a process, the same at every call, with `phases` - 1 phase marks.
    pub(super) fn shared<I: Iterator<Item = Step> + Send + 'a>(
        file_bytes: u64,
        (processes, nodes): (u32, u32),
        phases: u32,
        make: impl Fn(u32) -> I + Sync + 'a,
    ) -> Self {
        let files = vec![FileShape { path: SHARED.to_owned(), size_bytes: file_bytes }];
        Self { files, processes, nodes, phases, make: Box::new(move |process| Box::new(make(process))) }
    }

    /// With a file of `file_bytes` for each process, in one phase.
    pub(super) fn file_per_process<I: Iterator<Item = Step> + Send + 'a>(
        file_bytes: u64,
        (processes, nodes): (u32, u32),
        make: impl Fn(u32) -> I + Sync + 'a,
    ) -> Self {
        let file = |process| FileShape { path: format!("/data/own.{process}"), size_bytes: file_bytes };
        let make = Box::new(move |process| -> Box<dyn Iterator<Item = Step> + Send + 'a> { Box::new(make(process)) });
        Self { files: (0..processes).map(file).collect(), processes, nodes, phases: 1, make }
    }
}

impl Program for Generated<'_> {
    fn files(&self) -> &[FileShape] {
        &self.files
    }

    fn processes(&self) -> u32 {
        self.processes
    }

    fn nodes(&self) -> u32 {
        self.nodes
    }

    fn phases(&self) -> u32 {
        self.phases
    }

    fn steps(&self, process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        (self.make)(process)
    }
}

/// The path of a program's shared file, which never exists outside the simulation.
pub(super) const SHARED: &str = "/data/shared";

/// An access to a program's first file.
pub(super) fn access(direction: Direction, offset: u64, bytes: u64) -> Step {
    Step::Access(IoRequest { file: ProgramFile(0), direction, offset: FileOffset(offset), bytes })
}
