//! Files with replicas on emulated servers: several programs read and write them as they lie, and the store keeps them in step.

use super::{EmulatedLab, EmulatedRun, Prepared, REPEATS};
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use stripewise_layout::{FileId, Layout, Placement, RegionIndex};
use stripewise_store::protocol::{Admin, Reply, WantedReplicas};
use stripewise_trace::Program;

/// How often the broker is asked whether replicas are there.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// How often syncs are ordered that end without all replicas.
const MAX_ORDERS: u32 = 3;

/// What came of a program that writes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct WrittenRun {
    pub(crate) run: EmulatedRun,
    /// From the program's end until all replicas hold what the files hold; 0 without replicas.
    pub(crate) sync_s: f64,
}

impl EmulatedLab {
    /// Fresh files on these placements, all regions with these further copies.
    pub(crate) fn place_with(
        &self,
        prepared: &Prepared<'_>,
        placements: &[Placement],
        replicas: &[Vec<Layout>],
    ) -> Result<()> {
        self.place(prepared, placements)?;
        let files = self.ids(&prepared.managed())?;
        for ((file, shape), layouts) in files.iter().zip(prepared.program.files()).zip(replicas) {
            let regions = u32::try_from(shape.size_bytes.div_ceil(self.lab.cluster.region_size.0).max(1))?;
            let one = |layout: &Layout| WantedReplicas { first: RegionIndex(0), regions, layout: layout.clone() };
            self.store.done(Admin::SetReplicas { file: *file, wanted: layouts.iter().map(one).collect() })?;
        }
        self.make_replicas(&files)
    }

    /// Ends what [`Self::place_with`] began.
    pub(crate) fn clear(&self, prepared: &Prepared<'_>) -> Result<()> {
        self.remove(&prepared.managed())
    }

    /// Runs a program on the first of the prepared files, as they lie.
    pub(crate) fn run_placed(&self, prepared: &Prepared<'_>, program: &dyn Program) -> Result<EmulatedRun> {
        let paths = first_of(prepared, program);
        let mut found = self.measure(program, &paths)?;
        for _ in 0..REPEATS {
            if found.host_bound {
                found = self.measure(program, &paths)?;
            }
        }
        Ok(found)
    }

    /// As [`Self::run_placed`] for a program that writes, with the time that its files' replicas take to follow. They begin when the program has
    /// ended: this process has the files open for writing meanwhile, so that no rank is the last writer to close one.
    pub(crate) fn write_placed(&self, prepared: &Prepared<'_>, program: &dyn Program) -> Result<WrittenRun> {
        let paths = first_of(prepared, program);
        let mut found = self.write_once(program, &paths)?;
        for _ in 0..REPEATS {
            if found.run.host_bound {
                found = self.write_once(program, &paths)?;
            }
        }
        Ok(found)
    }

    fn write_once(&self, program: &dyn Program, paths: &[PathBuf]) -> Result<WrittenRun> {
        let open = paths.iter().map(|path| self.store.managed(path, true)).collect::<Result<Vec<_>, _>>()?;
        let run = self.measure(program, paths)?;
        let begun = Instant::now();
        let files: Vec<FileId> = open.iter().map(|managed| managed.striped.id()).collect();
        let lacking = files.iter().map(|file| self.lacking(*file)).collect::<Result<Vec<_>>>()?;
        if lacking.iter().all(|(lacking, _)| *lacking == 0) {
            return Ok(WrittenRun { run, sync_s: 0.0 });
        }
        self.make_replicas(&files)?;
        Ok(WrittenRun { run, sync_s: begun.elapsed().as_secs_f64() / self.dilation })
    }

    fn ids(&self, paths: &[PathBuf]) -> Result<Vec<FileId>> {
        paths.iter().map(|path| Ok(self.store.managed(path, false)?.striped.id())).collect()
    }

    /// Replicas that are not there, and whether any is being made.
    fn lacking(&self, file: FileId) -> Result<(u64, u64)> {
        match self.store.admin(Admin::Replicas { file })? {
            Reply::Replicas { wanted, fresh, syncing, .. } => Ok((wanted.saturating_sub(fresh), syncing)),
            _ => {
                bail!("the broker answered a question for replicas with something else; use one version of stripewise")
            }
        }
    }

    fn make_replicas(&self, files: &[FileId]) -> Result<()> {
        for file in files {
            self.store.done(Admin::SyncReplicas { file: *file })?;
        }
        for file in files {
            let mut orders = 1;
            loop {
                match self.lacking(*file)? {
                    (0, 0) => break,
                    (_, 0) if orders == MAX_ORDERS => bail!("file {file}: its replicas cannot be made"),
                    (_, 0) => {
                        orders += 1;
                        self.store.done(Admin::SyncReplicas { file: *file })?;
                    }
                    _ => std::thread::sleep(CHECK_INTERVAL),
                }
            }
        }
        Ok(())
    }
}

fn first_of(prepared: &Prepared<'_>, program: &dyn Program) -> Vec<PathBuf> {
    prepared.managed().into_iter().take(program.files().len()).collect()
}
