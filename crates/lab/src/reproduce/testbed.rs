//! The testbed that an experiment was asked to run on: what runs is said once, and simulated or emulated.

use super::emulated::{EmulatedLab, Prepared};
use super::experiment::{Setting, TestbedKind};
use super::run_log::{RunLog, Scale};
use crate::replay::Ranks;
use anyhow::Result;
use stripewise::laboratory::Lab;
use stripewise_layout::ByteCount;
use stripewise_sim::{FilePlacements, SimOptions};
use stripewise_trace::Program;

/// A laboratory with a program, on the testbed that was asked for.
pub(crate) enum Bench<'a> {
    Simulated { lab: &'a Lab, program: &'a dyn Program },
    Emulated { prepared: Prepared<'a>, lab: Box<EmulatedLab>, log: &'a RunLog },
}

impl Setting<'_> {
    /// The paper's size in simulation, `emulated` on the emulated testbed.
    pub(crate) fn scale(&self, emulated: Scale) -> Scale {
        match self.testbed {
            TestbedKind::Simulated => Scale::FULL,
            TestbedKind::Emulated => {
                let mut logged = self.log.lock();
                let is_larger = |known: &Scale| known.files > emulated.files;
                logged.scale = logged.scale.filter(is_larger).or(Some(emulated));
                emulated
            }
        }
    }

    /// Emulated servers are rebuilt, and go with the bench.
    pub(crate) fn bench<'a>(&'a self, lab: &'a Lab, program: &'a dyn Program) -> Result<Bench<'a>> {
        if self.testbed == TestbedKind::Simulated {
            return Ok(Bench::Simulated { lab, program });
        }
        let bytes = program.files().iter().map(|file| file.size_bytes).sum();
        let lab = EmulatedLab::build(self.voice, lab, ByteCount(bytes), Ranks::Mpi)?;
        Ok(Bench::Emulated { prepared: lab.prepare(program)?, lab: Box::new(lab), log: &self.log })
    }
}

impl Bench<'_> {
    /// The machines to plan for.
    pub(crate) fn lab(&self) -> &Lab {
        match self {
            Self::Simulated { lab, .. } => lab,
            Self::Emulated { lab, .. } => lab.lab(),
        }
    }

    /// Million bytes per second of the program on these placements, reads and writes together; `options` are the simulation's. `None` when the machine and
    /// not the emulated devices set the pace.
    pub(crate) fn mb_per_s(&self, files: &[FilePlacements], options: SimOptions) -> Result<Option<f64>> {
        match self {
            Self::Simulated { lab, program } => Ok(Some(lab.simulate_with(files, *program, options)?.mb_per_s)),
            Self::Emulated { prepared, lab, log } => Ok(log.mb_per_s(&lab.run(prepared, files)?)),
        }
    }
}
