//! Checkpoints: all processes compute for a while and then write their state at once; at a restart they read the last one back.

use super::collective::Range;
use super::parameters::{Described, Parameter, parameter};
use super::stages::{InStages, Run, Staged, run_parameters, stage_count};
use super::{WorkloadError, largest_file};
use crate::program::{FileShape, IoRequest, Program, ProgramFile, Step};
use std::time::Duration;
use stripewise_layout::{ByteCount, Direction, FileOffset};

/// Checkpoints of a simulation; see its part of `docs/workloads.md`.
#[derive(Clone, PartialEq, Debug)]
pub struct Checkpoint {
    pub(super) checkpoints: u32,
    /// Of each process.
    pub(super) state: ByteCount,
    pub(super) transfer: ByteCount,
    pub(super) compute: Duration,
    pub(super) keep: u32,
    pub(super) file_per_process: bool,
    pub(super) restart: bool,
    pub(super) run: Run,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self {
            checkpoints: 4,
            state: ByteCount(64 << 20),
            transfer: ByteCount(1 << 20),
            compute: Duration::from_secs(10),
            keep: 2,
            file_per_process: false,
            restart: true,
            run: Run::default(),
        }
    }
}

impl Described for Checkpoint {
    const NAME: &'static str = "checkpoint";
    const ABOUT: &'static str = "This is a simulation that saves its state. Every process computes for `compute` and then \
        writes its `state`, all at once, into one file for each checkpoint or into a file for each \
        process. After `keep` checkpoints the oldest is overwritten. At the end a restart reads the \
        last one back. There is no benchmark of that name: it is the pattern of checkpoint \
        libraries, N processes to 1 file or N to N.";
    const EXAMPLE: &'static str = "checkpoint:checkpoints=6,state=256MiB,transfer=4MiB,compute=30s,processes=64";

    fn parameters() -> Vec<Parameter<Self>> {
        let own = [
            parameter!("checkpoints", "", checkpoints, "how many are written"),
            parameter!("state", "", state, "bytes that each process saves"),
            parameter!("transfer", "", transfer, "bytes of a request; the last one takes the rest"),
            parameter!("compute", "", compute, "computing before each checkpoint, as in `10s`"),
            parameter!("keep", "", keep, "checkpoints that are kept side by side"),
            parameter!("file_per_process", "", file_per_process, "`yes`: a file for each process and kept checkpoint"),
            parameter!("restart", "", restart, "`no`: the last checkpoint is not read back"),
        ];
        own.into_iter().chain(run_parameters!("", "")).collect()
    }
}

impl Checkpoint {
    /// # Errors
    /// When the parameters do not fit one another.
    pub fn program(&self) -> Result<Box<dyn Program>, WorkloadError> {
        self.run.check(Self::NAME)?;
        let refuse = |key, value: String, want: &str| Err(WorkloadError::of(Self::NAME, key, value, want));
        for (key, number) in [("checkpoints", self.checkpoints), ("keep", self.keep)] {
            if number == 0 {
                return refuse(key, "0".to_owned(), "at least 1");
            }
        }
        for (key, size) in [("state", self.state), ("transfer", self.transfer)] {
            if size.0 == 0 {
                return refuse(key, size.to_string(), "at least 1 byte");
            }
        }
        let sharers = if self.file_per_process { 1 } else { self.run.processes };
        let Some(size_bytes) = self.state.0.checked_mul(u64::from(sharers)).and_then(largest_file) else {
            return refuse("state", self.state.to_string(), "a file that an offset of 63 bits can reach");
        };
        let stages = stage_count(Self::NAME, &self.run, u64::from(self.bursts()))?;
        let path = |slot: u32, process: u32| match self.file_per_process {
            true => format!("{}.{slot}.{process:08}", self.run.file),
            false => format!("{}.{slot}", self.run.file),
        };
        let owners = if self.file_per_process { self.run.processes } else { 1 };
        let slots = self.keep.min(self.checkpoints);
        let files = (0..slots)
            .flat_map(|slot| (0..owners).map(move |process| (slot, process)))
            .map(|(slot, process)| FileShape { path: path(slot, process), size_bytes })
            .collect();
        Ok(Box::new(InStages(Bursts { checkpoint: self.clone(), slots, owners, stages, files })))
    }

    /// Of a repetition.
    fn bursts(&self) -> u32 {
        self.checkpoints.saturating_add(u32::from(self.restart))
    }
}

struct Bursts {
    checkpoint: Checkpoint,
    slots: u32,
    /// Files of a kept checkpoint.
    owners: u32,
    stages: u32,
    files: Vec<FileShape>,
}

impl Staged for Bursts {
    fn run(&self) -> &Run {
        &self.checkpoint.run
    }

    fn files(&self) -> &[FileShape] {
        &self.files
    }

    fn stages(&self) -> u32 {
        self.stages
    }

    fn entry(&self, stage: u32) -> [Option<Step>; 2] {
        let nanoseconds = u64::try_from(self.checkpoint.compute.as_nanos()).unwrap_or(u64::MAX);
        let writes = stage % self.checkpoint.bursts() < self.checkpoint.checkpoints;
        let compute = (writes && nanoseconds > 0).then_some(Step::Think { nanoseconds });
        [compute, Some(Step::Barrier)]
    }

    fn requests(&self, process: u32, stage: u32) -> impl Iterator<Item = IoRequest> + Send + '_ {
        let checkpoint = &self.checkpoint;
        let burst = stage % checkpoint.bursts();
        let (number, direction) = match burst < checkpoint.checkpoints {
            true => (burst, Direction::Write),
            false => (checkpoint.checkpoints - 1, Direction::Read),
        };
        let alone = checkpoint.file_per_process;
        let file = ProgramFile(number % self.slots * self.owners + if alone { process } else { 0 });
        let start = if alone { 0 } else { u64::from(process) * checkpoint.state.0 };
        let pieces = Range { start, bytes: checkpoint.state.0 }.pieces(checkpoint.transfer.0);
        pieces.map(move |piece| IoRequest {
            file,
            kind: direction.into(),
            offset: FileOffset(piece.start),
            bytes: piece.bytes,
        })
    }
}

#[cfg(test)]
mod tests;
