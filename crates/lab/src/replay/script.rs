//! The script that the C program reads: what each rank does, in words of 64 bits (`replay_io.c` tells the form).

use anyhow::{Context as _, Result, ensure};
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use stripewise_layout::{ByteCount, Direction};
use stripewise_trace::{IoRequest, Program, Step};

const MAGIC: u64 = 0x3159_4C50_4552_5753;
const RECORD_WORDS: u64 = 2;
/// MPI counts bytes in an `int`.
const LARGEST_REQUEST: u64 = i32::MAX as u64;
/// Files that 28 bits can number.
const MAX_FILES: usize = 1 << 28;

/// Kinds of records.
mod kind {
    pub(super) const READ: u64 = 0;
    pub(super) const WRITE: u64 = 1;
    pub(super) const THINK: u64 = 2;
    pub(super) const UNTIL: u64 = 3;
    pub(super) const BARRIER: u64 = 4;
    pub(super) const PHASE: u64 = 5;
}

/// What ranks do with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Use {
    pub(super) reads: bool,
    pub(super) writes: bool,
    /// Some rank reads it before it writes it.
    pub(super) reads_first: bool,
    pub(super) bytes_written: u64,
}

/// What the C program does about a file besides its requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ScriptFile {
    pub(super) path: PathBuf,
    pub(super) size_bytes: u64,
    /// Fill it before the run.
    pub(super) prepare: bool,
    /// Remove it after.
    pub(super) remove: bool,
}

/// A script whose records are written and whose head is not.
pub(super) struct Script {
    path: PathBuf,
    out: BufWriter<File>,
    paths: Vec<PathBuf>,
    phases: u64,
    /// First word and number of records of each rank.
    index: Vec<(u64, u64)>,
    pub(super) uses: Vec<Use>,
    pub(super) requests: u64,
}

impl Script {
    /// Writes the records of the first `ranks` processes; `paths` are where the program's files lie. Think times and times of the trace
    /// are multiplied by `time_scale`.
    pub(super) fn write(
        path: &Path,
        program: &dyn Program,
        ranks: u32,
        paths: Vec<PathBuf>,
        time_scale: f64,
    ) -> Result<Self> {
        ensure!(paths.len() < MAX_FILES, "{} files are too many for a replay; at most {MAX_FILES}", paths.len());
        let written = || format!("cannot write the replay's script {}", path.display());
        let file = File::create_new(path).with_context(written)?;
        let mut script = Self {
            path: path.to_owned(),
            out: BufWriter::new(file),
            uses: vec![Use::default(); paths.len()],
            paths,
            phases: u64::from(program.phases()),
            index: Vec::new(),
            requests: 0,
        };
        let mut at = script.head_words(ranks);
        script.out.seek(SeekFrom::Start(at * 8)).with_context(written)?;
        for rank in 0..ranks {
            let records = script.write_rank(program, rank, time_scale).with_context(written)?;
            script.index.push((at, records));
            at += records * RECORD_WORDS;
        }
        Ok(script)
    }

    fn head_words(&self, ranks: u32) -> u64 {
        let files: u64 = self.paths.iter().map(|path| 3 + (path.as_os_str().len() as u64).div_ceil(8)).sum();
        4 + files + 2 * u64::from(ranks)
    }

    fn write_rank(&mut self, program: &dyn Program, rank: u32, time_scale: f64) -> Result<u64> {
        let mut records = 0;
        let mut touched = vec![false; self.paths.len()];
        let scaled = |ns: u64| if time_scale == 1.0 { ns } else { (ns as f64 * time_scale).round() as u64 };
        for step in program.steps(rank) {
            let (kind, file, bytes, place) = match step {
                Step::Access(request) => {
                    self.note(program, &request, &mut touched)?;
                    let kind = if request.direction() == Direction::Read { kind::READ } else { kind::WRITE };
                    (kind, u64::from(request.file.0), request.bytes, request.offset.0)
                }
                Step::Think { nanoseconds } => (kind::THINK, 0, 0, scaled(nanoseconds)),
                Step::Until { nanoseconds } => (kind::UNTIL, 0, 0, scaled(nanoseconds)),
                // Programs are replayed without: the time that they took in the trace is computing.
                Step::Synchronize(_) => continue,
                Step::Barrier => (kind::BARRIER, 0, 0, 0),
                Step::Phase => (kind::PHASE, 0, 0, 0),
            };
            if matches!(kind, kind::THINK | kind::UNTIL) && place == 0 {
                continue;
            }
            self.out.write_all(&(kind | file << 4 | bytes << 32).to_ne_bytes())?;
            self.out.write_all(&place.to_ne_bytes())?;
            records += 1;
        }
        Ok(records)
    }

    fn note(&mut self, program: &dyn Program, request: &IoRequest, touched: &mut [bool]) -> Result<()> {
        let file = request.file.0 as usize;
        let shape = &program.files()[file];
        ensure!(
            request.bytes <= LARGEST_REQUEST,
            "a request of {} on {} is more than one MPI call moves; at most {LARGEST_REQUEST} bytes can be replayed",
            ByteCount(request.bytes),
            shape.path
        );
        let found = &mut self.uses[file];
        let is_first = !std::mem::replace(&mut touched[file], true);
        match request.direction() {
            Direction::Read => {
                found.reads = true;
                found.reads_first |= is_first;
            }
            Direction::Write => {
                found.writes = true;
                found.bytes_written = found.bytes_written.saturating_add(request.bytes);
            }
        }
        self.requests += 1;
        Ok(())
    }

    /// Writes the head. `files` are the paths given to [`Self::write`] with what is to be done about them.
    pub(super) fn finish(mut self, files: &[ScriptFile]) -> Result<()> {
        let mut words = vec![MAGIC, self.index.len() as u64, files.len() as u64, self.phases];
        for (file, found) in files.iter().zip(&self.uses) {
            let flags = [(found.reads, 1), (found.writes, 2), (file.prepare, 4), (file.remove, 8)];
            let flags: u64 = flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum();
            let path = file.path.as_os_str().as_encoded_bytes();
            words.extend([file.size_bytes, flags, path.len() as u64]);
            words.extend(path.chunks(8).map(|chunk| {
                let mut bytes = [0; 8];
                bytes[..chunk.len()].copy_from_slice(chunk);
                u64::from_ne_bytes(bytes)
            }));
        }
        words.extend(self.index.iter().flat_map(|(first, records)| [*first, *records]));
        let mut write = || {
            self.out.seek(SeekFrom::Start(0))?;
            words.iter().try_for_each(|word| self.out.write_all(&word.to_ne_bytes()))?;
            self.out.flush()
        };
        write().with_context(|| format!("cannot write the replay's script {}", self.path.display()))
    }
}
