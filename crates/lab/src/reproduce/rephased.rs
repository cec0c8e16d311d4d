//! Programs that do what another does, in other phases.

use stripewise_trace::{FileShape, Program, Step};

/// ProcessSteps of a process.
pub(super) type ProcessSteps<'a> = Box<dyn Iterator<Item = Step> + Send + 'a>;

/// Another program's files, processes and nodes, with `phases` phases and the steps that `steps` makes for a process.
pub(super) struct Rephased<'a> {
    pub(super) program: &'a dyn Program,
    pub(super) phases: u32,
    pub(super) steps: Box<dyn Fn(u32) -> ProcessSteps<'a> + Sync + 'a>,
}

impl Program for Rephased<'_> {
    fn files(&self) -> &[FileShape] {
        self.program.files()
    }

    fn processes(&self) -> u32 {
        self.program.processes()
    }

    fn nodes(&self) -> u32 {
        self.program.nodes()
    }

    fn phases(&self) -> u32 {
        self.phases
    }

    fn steps(&self, process: u32) -> ProcessSteps<'_> {
        (self.steps)(process)
    }
}
