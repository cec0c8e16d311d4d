//! The version of a trace, its head, and the names of functions.

use super::super::ReadError;
use super::bytes::Rest;
use super::{METADATA, RecorderFault};
use std::path::Path;
use stripewise_layout::input::{MAX_TRACE_BYTES, read};
use stripewise_layout::text::lossless;

/// The times of all ranks, from version 3.0 on and in what was version 2.5 on its way there.
pub(super) const ALL_TIMES: &str = "recorder.ts";

/// The number that all functions of the program have.
const OF_PROGRAM: u32 = 255;

/// How a version stores its tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Form {
    /// 2.3: a file of each kind for each rank.
    Plain,
    /// 2.4 and 2.5: also one table of signatures for all ranks, and each grammar once.
    Shared,
    /// 2.5 and 3.0: the same, compressed, and the times of all ranks in one file.
    Compressed,
}

pub(super) fn bytes_of(path: &Path) -> Result<Vec<u8>, ReadError> {
    read(path, MAX_TRACE_BYTES).map_err(|source| ReadError::Io { path: path.to_owned(), source })
}

/// `VERSION` and the head of `recorder.mt`.
pub(super) struct Metadata {
    pub(super) form: Form,
    pub(super) ranks: u32,
    pub(super) start_ns: i64,
    pub(super) unit_ns: f64,
    pub(super) is_merged: bool,
    pub(super) has_compressed_times: bool,
    /// Names of functions, by number.
    functions: Vec<String>,
}

impl Metadata {
    pub(super) fn read(directory: &Path) -> Result<Self, ReadError> {
        let version_path = directory.join("VERSION");
        let form = form_of(&bytes_of(&version_path)?, directory.join(ALL_TIMES).exists())
            .map_err(|fault| fault.of(&version_path))?;
        let path = directory.join(METADATA);
        Self::parse(&bytes_of(&path)?, form).map_err(|fault| fault.of(&path))
    }

    /// The struct as x86-64 lays it out, and a line for each function.
    fn parse(bytes: &[u8], form: Form) -> Result<Self, RecorderFault> {
        const HEAD: &str = "the head";
        let mut rest = Rest(bytes);
        let found = rest.i32(HEAD)?;
        // What is traced, and what fills up to the next number.
        rest.bytes(if form == Form::Compressed { 12 } else { 4 }, HEAD)?;
        let (start_s, unit_s) = (rest.f64(HEAD)?, rest.f64(HEAD)?);
        rest.i32(HEAD)?;
        let last = rest.bytes(if form == Form::Shared { 12 } else { 4 }, HEAD)?;
        let (is_merged, has_compressed_times, has_patterns) = match form {
            Form::Plain => (false, false, false),
            Form::Shared => (last[4..8] != [0; 4], false, false),
            Form::Compressed => (last[1] != 0, last[0] != 0, last[2] != 0 || last[3] != 0),
        };
        if has_patterns {
            return Err(RecorderFault::Patterns);
        }
        if form == Form::Compressed && last.iter().any(|flag| *flag > 1) {
            return Err(RecorderFault::number("a flag of the head", last.iter().max().unwrap_or(&0)));
        }
        let ranks = u32::try_from(found).ok().filter(|ranks| *ranks > 0);
        let ranks = ranks.ok_or_else(|| RecorderFault::number("the number of ranks", found))?;
        if !(0.0..9e9).contains(&start_s) {
            return Err(RecorderFault::number("the start in seconds", start_s));
        }
        if !(1e-12..=10.0).contains(&unit_s) {
            return Err(RecorderFault::number("the resolution of times in seconds", unit_s));
        }
        // 3.0 leaves free what follows the struct.
        let free = rest.0.iter().take_while(|byte| **byte == 0).count();
        let lines = rest.0[free..].split_inclusive(|byte| *byte == b'\n');
        let functions: Vec<String> = lines.filter_map(|line| line.strip_suffix(b"\n")).map(lossless).collect();
        if functions.is_empty() {
            return Err(RecorderFault::Truncated { what: "the names of functions" });
        }
        Ok(Self {
            form,
            ranks,
            start_ns: (start_s * 1e9).round() as i64,
            unit_ns: unit_s * 1e9,
            is_merged,
            has_compressed_times,
            functions,
        })
    }

    /// The name of a function; empty for one of the program's own.
    pub(super) fn function(&self, number: u32) -> Result<&str, RecorderFault> {
        match self.functions.get(number as usize) {
            Some(name) => Ok(name.strip_prefix('P').filter(|name| name.starts_with("MPI_")).unwrap_or(name)),
            None if number == OF_PROGRAM => Ok(""),
            None => Err(RecorderFault::number("the number of a function", number)),
        }
    }
}

fn form_of(version: &[u8], has_all_times: bool) -> Result<Form, RecorderFault> {
    let text = lossless(version.get(..40).unwrap_or(version));
    let text = text.trim();
    let mut parts = text.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next(), has_all_times) {
        (Some(Ok(2)), Some(Ok(3)), false) => Ok(Form::Plain),
        (Some(Ok(2)), Some(Ok(4 | 5)), false) => Ok(Form::Shared),
        (Some(Ok(2)), Some(Ok(5)), true) | (Some(Ok(3)), Some(Ok(0)), _) => Ok(Form::Compressed),
        _ => Err(RecorderFault::Version { found: text.to_owned() }),
    }
}
