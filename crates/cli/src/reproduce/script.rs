//! Programs for experiments: steps written down process by process, or made while they are asked for.

use stripewise_layout::{Direction, FileOffset};
use stripewise_trace::{FileShape, IoRequest, Program, ProgramFile, Step};

type MakeSteps<'a> = dyn Fn(u32) -> Box<dyn Iterator<Item = Step> + Send + 'a> + Sync + 'a;

/// A program on one shared file whose steps are made when asked for: millions of requests take no memory.
pub(super) struct Generated<'a> {
    files: Vec<FileShape>,
    processes: u32,
    nodes: u32,
    phases: u32,
    make: Box<MakeSteps<'a>>,
}

impl<'a> Generated<'a> {
    /// `make` gives the steps of a process, the same at every call, with `phases` - 1 phase marks.
    pub(super) fn shared<I: Iterator<Item = Step> + Send + 'a>(
        file_bytes: u64,
        (processes, nodes): (u32, u32),
        phases: u32,
        make: impl Fn(u32) -> I + Sync + 'a,
    ) -> Self {
        let files = vec![FileShape { path: SHARED.to_owned(), size_bytes: file_bytes }];
        Self { files, processes, nodes, phases, make: Box::new(move |process| Box::new(make(process))) }
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

pub(super) struct Script {
    files: Vec<FileShape>,
    nodes: u32,
    phases: u32,
    steps: Vec<Vec<Step>>,
}

impl Script {
    /// A program on one shared file of `file_bytes`; `steps` of every process, at least one. Phases are counted in the first process.
    pub(super) fn shared(file_bytes: u64, nodes: u32, steps: Vec<Vec<Step>>) -> Self {
        Self::new(vec![FileShape { path: SHARED.to_owned(), size_bytes: file_bytes }], nodes, steps)
    }

    pub(super) fn new(files: Vec<FileShape>, nodes: u32, steps: Vec<Vec<Step>>) -> Self {
        let marks = steps[0].iter().filter(|step| matches!(step, Step::Phase)).count() as u32;
        Self { files, nodes, phases: marks + 1, steps }
    }
}

/// An access to a script's first file.
pub(super) fn access(direction: Direction, offset: u64, bytes: u64) -> Step {
    Step::Access(IoRequest { file: ProgramFile(0), direction, offset: FileOffset(offset), bytes })
}

impl Program for Script {
    fn files(&self) -> &[FileShape] {
        &self.files
    }

    fn processes(&self) -> u32 {
        self.steps.len() as u32
    }

    fn nodes(&self) -> u32 {
        self.nodes
    }

    fn phases(&self) -> u32 {
        self.phases
    }

    fn steps(&self, process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        Box::new(self.steps[process as usize].iter().copied())
    }
}
