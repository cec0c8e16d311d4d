//! DFTracer's traces: a JSON object a line in `.pfw` files, or `.pfw.gz` compressed by gzip; one for each process, or any split of them.
//!
//! A file's or host's name stands in one line with its hash, and other lines have the hash, so the lines are read twice: for names and ranks, then for calls.
//! `read`, `write` and streams have no offset: [`positions`](super::positions) follows each descriptor, through the calls of a process in the order of their
//! starts. Streams, and descriptors of version 2, have no handle in the trace and are distinguished by their files. Times are microseconds since 1970.

mod calls;
mod line;
mod names;
#[cfg(test)]
mod tests;

use super::gather::{Gatherer, ProcessName};
use super::positions::{Call, emit};
use super::{LineFault, ReadError, Reader, has_extension, those};
use crate::trace::Trace;
use crate::warning::Warning;
use calls::{Found, Lost};
use flate2::bufread::MultiGzDecoder;
use line::{Line, Phase};
use names::Names;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use stripewise_layout::figures::counted;
use stripewise_layout::input::{MAX_LINE_BYTES, open_regular};
use stripewise_layout::text::lossless;

pub(super) const READER: Reader = Reader {
    expects: "a directory that holds DFTracer's .pfw or .pfw.gz files or one of them",
    in_directory: |_, names| those(names, is_dftracer),
    is_file: is_dftracer,
    read,
};

fn is_dftracer(path: &Path) -> bool {
    let is_compressed = || path.file_stem().is_some_and(|stem| has_extension(Path::new(stem), "pfw"));
    has_extension(path, "pfw") || (has_extension(path, "gz") && is_compressed())
}

fn read(source: &Path, files: &[PathBuf]) -> Result<Trace, ReadError> {
    let mut names = Names::default();
    let mut warnings = Vec::new();
    for (number, path) in files.iter().enumerate() {
        let missing = each_line(path, |line| {
            if line.phase == Phase::Metadata {
                names.take(number, line);
            }
        })?;
        warnings.extend(missing.into_iter().map(|what| Warning::Incomplete { path: path.clone(), what }));
    }
    let mut of_processes: BTreeMap<ProcessName, Vec<Call>> = BTreeMap::new();
    let mut lost = Lost::default();
    for (number, path) in files.iter().enumerate() {
        each_line(path, |line| match line.phase {
            Phase::Complete => {
                let Some(found) = Found::of(line) else { return };
                match calls::call(&found, line, &mut names) {
                    Some(call) => of_processes.entry(names.process(number, line)).or_default().push(call),
                    None => lost.without_facts += u64::from(found.is_data()),
                }
            }
            Phase::Sums => lost.sums += u64::from(Found::of(line).is_some()),
            Phase::Metadata | Phase::Other => {}
        })?;
    }
    let mut gatherer = Gatherer::default();
    for (name, calls) in of_processes {
        lost.without_offset += emit(&mut gatherer, &name, names.mpi_size(), calls, names.paths());
    }
    let mut said = lost.sentences();
    said.extend(names.faults());
    warnings.extend(said.into_iter().map(|what| Warning::Incomplete { path: source.to_owned(), what }));
    Ok(Trace::assemble(None, gatherer.finish(source), warnings))
}

/// Gives every object of a file to `take`. Returns what is missing, and an error where the file has other contents.
fn each_line(path: &Path, mut take: impl FnMut(&Line<'_>)) -> Result<Option<String>, ReadError> {
    let io = |source| ReadError::Io { path: path.to_owned(), source };
    let mut raw = BufReader::with_capacity(1 << 18, open_regular(path).map_err(io)?);
    let is_compressed = raw.fill_buf().map_err(io)?.starts_with(&[0x1f, 0x8b]);
    let mut lines: Box<dyn BufRead> = match is_compressed {
        true => Box::new(BufReader::with_capacity(1 << 18, MultiGzDecoder::new(raw))),
        false => Box::new(raw),
    };
    let (mut bytes, mut number, mut objects) = (Vec::new(), 0u64, 0u64);
    let mut damaged: Option<(u64, String)> = None;
    let mut damaged_lines = 0u64;
    loop {
        bytes.clear();
        number += 1;
        match lines.by_ref().take(MAX_LINE_BYTES.0 + 1).read_until(b'\n', &mut bytes) {
            Ok(0) => break,
            Ok(_) => {}
            Err(_) if is_compressed && objects > 0 => {
                return Ok(Some(format!("its compressed data end or are damaged in line {number}; read up to there")));
            }
            Err(error) => return Err(io(error)),
        }
        if bytes.len() as u64 > MAX_LINE_BYTES.0 {
            let what = format!("a line has more than {MAX_LINE_BYTES}, the most that is read");
            return Err(io(std::io::Error::new(std::io::ErrorKind::FileTooLarge, what)));
        }
        let text = std::str::from_utf8(&bytes).map_or_else(|_| Cow::Owned(lossless(&bytes)), Cow::Borrowed);
        // The array that some versions begin and end, with commas in what others made of it.
        let text = text.trim().trim_end_matches(',');
        if matches!(text, "" | "[" | "]") {
            continue;
        }
        match serde_json::from_str::<Line<'_>>(text) {
            Ok(line) => {
                objects += 1;
                take(&line);
            }
            Err(error) => {
                damaged_lines += 1;
                damaged.get_or_insert_with(|| (number, error.to_string()));
            }
        }
        if let (0, Some((line, text))) = (objects, &damaged) {
            let fault = LineFault::Syntax { text: format!("no event of DFTracer: {text}") };
            return Err(ReadError::Line { path: path.to_owned(), line: *line, fault });
        }
    }
    Ok(damaged.map(|(first, _)| {
        format!("{} damaged, line {first} first, and skipped", counted(damaged_lines as usize, "line is", "lines are"))
    }))
}
