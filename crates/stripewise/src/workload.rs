//! What is replayed or simulated: a benchmark by its text, or a recorded trace.

use crate::data_files::is_data;
use crate::prefixes::Prefix;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use stripewise_trace::trace::FileIndex;
use stripewise_trace::workload::ParseBenchmarkError;
use stripewise_trace::{
    Benchmark, Program, ReadError, RecordedError, RecordedOptions, Trace, TraceProgram, WorkloadError,
};
use thiserror::Error;

/// Why a workload cannot be had.
#[derive(Debug, Error)]
pub enum SourceError {
    /// Nothing of that name.
    #[error(
        "{word} is neither a trace nor a benchmark; benchmarks are {}, as in ior:size=1GiB,transfer=64KiB",
        Benchmark::NAMES.join(", ")
    )]
    Unknown {
        /// As it was named.
        word: String,
    },
    /// Two numbers of processes.
    #[error("--processes and {word} both give the number of processes; give it once")]
    ProcessesTwice {
        /// The workload as it was named.
        word: String,
    },
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] ReadError),
    /// The benchmark's text is wrong.
    #[error(transparent)]
    Parse(#[from] ParseBenchmarkError),
    /// The benchmark's parameters do not go together.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The trace has no such file.
    #[error("{named} begins no traced path; `stripewise trace show` lists the paths")]
    NoFile {
        /// As it was named, and what that stands for.
        named: String,
    },
    /// Nothing of the trace can be run again.
    #[error("the trace cannot be replayed")]
    Recorded {
        /// Why no program can be made of it.
        source: RecordedError,
    },
}

type Result<T> = std::result::Result<T, SourceError>;

/// A workload as the command line names it.
pub enum Source {
    /// Made as a program when it is run.
    Benchmark(Benchmark),
    /// Read, and replayed by its records.
    Trace(Box<Trace>),
}

impl Source {
    /// What `word` names: a path that exists is a trace, anything else a benchmark. `processes` takes the place of the benchmark's own number.
    ///
    /// # Errors
    /// When it is neither, or cannot be read.
    pub fn open(word: &str, processes: Option<u32>) -> Result<Self> {
        let name = word.split(':').next().unwrap_or(word);
        let is_benchmark = Benchmark::NAMES.contains(&name);
        if !is_benchmark || Path::new(word).exists() {
            if !Path::new(word).exists() {
                return Err(SourceError::Unknown { word: word.to_owned() });
            }
            return Ok(Self::Trace(Box::new(Trace::open(Path::new(word))?)));
        }
        let text = match processes {
            None => word.to_owned(),
            Some(_) if word.contains("processes=") => {
                return Err(SourceError::ProcessesTwice { word: word.to_owned() });
            }
            Some(processes) => format!("{word}{}processes={processes}", if word.contains(':') { "," } else { ":" }),
        };
        Ok(Self::Benchmark(text.parse()?))
    }

    /// The program; of a trace the files that hold data, or those that `only` names unless it is empty.
    ///
    /// # Errors
    /// When the trace lacks a file that is named, or cannot be replayed.
    pub fn program(&self, options: &RecordedOptions, only: &[PathBuf]) -> Result<Box<dyn Program + '_>> {
        match self {
            Self::Benchmark(benchmark) => Ok(benchmark.program()?),
            Self::Trace(trace) => {
                let meant = only.iter().map(|named| files_named(trace, named)).collect::<Result<Vec<_>>>()?;
                let meant: BTreeSet<&str> = meant.into_iter().flatten().collect();
                let indices = (0..trace.files.len() as u32).map(FileIndex);
                let is_wanted = |index: &FileIndex| {
                    let file = trace.file(*index);
                    let path = Path::new(&file.path);
                    let is_meant = if only.is_empty() { is_data(path) } else { meant.contains(&*file.path) };
                    is_meant && file.data_level().is_some()
                };
                let files = Some(indices.filter(is_wanted).collect());
                let program = TraceProgram::new(trace, &RecordedOptions { files, ..options.clone() });
                Ok(Box::new(program.map_err(|source| SourceError::Recorded { source })?))
            }
        }
    }
}

/// The file of that path; if there is none, those whose paths begin so.
fn files_named<'t>(trace: &'t Trace, named: &Path) -> Result<Vec<&'t str>> {
    let paths = || trace.files.iter().map(|file| &*file.path);
    let prefix = Prefix::new(named);
    if let Some(path) = paths().find(|path| prefix.is(path)) {
        return Ok(vec![path]);
    }
    let found: Vec<&str> = paths().filter(|path| prefix.begins(path)).collect();
    if found.is_empty() { Err(SourceError::NoFile { named: prefix.text() }) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(word: &str, processes: Option<u32>) -> String {
        Source::open(word, processes).err().unwrap().to_string()
    }

    #[test]
    fn benchmarks_are_told_from_traces() {
        let Source::Benchmark(benchmark) = Source::open("ior:size=1GiB", Some(4)).unwrap() else { panic!() };
        assert_eq!(benchmark.to_string(), "ior:size=1GiB,processes=4");
        let Source::Benchmark(benchmark) = Source::open("hpio", Some(3)).unwrap() else { panic!() };
        assert_eq!(benchmark.to_string(), "hpio:processes=3");
        assert!(fault("ior:processes=2", Some(4)).contains("give it once"));
        assert!(fault("iro:size=1GiB", None).contains("neither a trace nor a benchmark; benchmarks are ior, hpio"));
        assert!(fault("ior:sise=1", None).contains("`sise`"));
    }
}
