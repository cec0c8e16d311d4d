//! Which files a version has, and the tables and times in them.

use super::super::ReadError;
use super::super::positions::Paths;
use super::RecorderFault;
use super::bytes::Rest;
use super::grammar::Grammar;
use super::metadata::{ALL_TIMES, Form, Metadata, bytes_of};
use super::signatures::Signatures;
use super::times::Times;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What there is of one rank.
pub(super) struct Rank<'a> {
    pub(super) signatures: Rc<Signatures>,
    pub(super) grammar: Rc<Grammar>,
    time_bytes: Cow<'a, [u8]>,
    pub(super) times_path: PathBuf,
    start_ns: i64,
    unit_ns: f64,
}

impl Rank<'_> {
    pub(super) fn times(&self) -> Times<'_> {
        Times::new(&self.time_bytes, self.start_ns, self.unit_ns)
    }
}

/// What all ranks have in common.
pub(super) struct Tables<'a> {
    directory: &'a Path,
    metadata: &'a Metadata,
    signatures: Option<Rc<Signatures>>,
    grammars: Vec<Rc<Grammar>>,
    /// By rank.
    grammar_of: Vec<usize>,
    times: Vec<u8>,
    /// Where a rank's times begin and end in `times`.
    time_ranges: Vec<std::ops::Range<usize>>,
}

impl<'a> Tables<'a> {
    pub(super) fn open(directory: &'a Path, metadata: &'a Metadata, paths: &mut Paths) -> Result<Self, ReadError> {
        let mut found = Self {
            directory,
            metadata,
            signatures: None,
            grammars: Vec::new(),
            grammar_of: Vec::new(),
            times: Vec::new(),
            time_ranges: Vec::new(),
        };
        if metadata.is_merged {
            found.read_merged(paths)?;
        }
        if metadata.form == Form::Compressed {
            let path = directory.join(ALL_TIMES);
            found.times = bytes_of(&path)?;
            found.time_ranges = ranges(&found.times, metadata.ranks).map_err(|fault| fault.of(&path))?;
        }
        Ok(found)
    }

    fn read_merged(&mut self, paths: &mut Paths) -> Result<(), ReadError> {
        let is_compressed = self.metadata.form == Form::Compressed;
        let path = self.directory.join(if is_compressed { "recorder.cst" } else { "0.cst" });
        let signatures = self.read_signatures(&path, paths)?;
        let list = self.directory.join("ug.mt");
        let (of_ranks, grammars) =
            list_of_grammars(&bytes_of(&list)?, self.metadata.ranks).map_err(|fault| fault.of(&list))?;
        let all = self.directory.join("ug.cfg");
        let bytes = if is_compressed { bytes_of(&all)? } else { Vec::new() };
        let mut rest = Rest(&bytes);
        for number in 0..grammars {
            let grammar = match is_compressed {
                true => rest.block("a grammar").and_then(|data| Grammar::read(&mut Rest(&data), signatures.all.len())),
                false => Ok(self.read_grammar(&self.directory.join(format!("{number}.cfg")), &signatures)?),
            };
            self.grammars.push(Rc::new(grammar.map_err(|fault| fault.of(&all))?));
        }
        (self.signatures, self.grammar_of) = (Some(Rc::new(signatures)), of_ranks);
        Ok(())
    }

    fn read_signatures(&self, path: &Path, paths: &mut Paths) -> Result<Signatures, ReadError> {
        let bytes = bytes_of(path)?;
        let has_counts = self.metadata.form != Form::Plain;
        let data = match self.metadata.form {
            Form::Compressed => Rest(&bytes).block("the signatures"),
            _ => Ok(Cow::Borrowed(bytes.as_slice())),
        };
        let found = data.and_then(|data| Signatures::read(Rest(&data), has_counts, self.metadata, paths));
        found.map_err(|fault| fault.of(path))
    }

    fn read_grammar(&self, path: &Path, signatures: &Signatures) -> Result<Grammar, ReadError> {
        let bytes = bytes_of(path)?;
        let data = match self.metadata.form {
            Form::Compressed => Rest(&bytes).block("the rules"),
            _ => Ok(Cow::Borrowed(bytes.as_slice())),
        };
        let found = data.and_then(|data| Grammar::read(&mut Rest(&data), signatures.all.len()));
        found.map_err(|fault| fault.of(path))
    }

    pub(super) fn rank(&self, rank: u32, paths: &mut Paths) -> Result<Rank<'_>, ReadError> {
        let of_rank = |kind: &str| self.directory.join(format!("{rank}.{kind}"));
        let signatures = match &self.signatures {
            Some(signatures) => Rc::clone(signatures),
            None => Rc::new(self.read_signatures(&of_rank("cst"), paths)?),
        };
        let grammar = match self.grammar_of.get(rank as usize) {
            Some(grammar) => Rc::clone(&self.grammars[*grammar]),
            None => Rc::new(self.read_grammar(&of_rank("cfg"), &signatures)?),
        };
        let (times_path, time_bytes) = match self.time_ranges.get(rank as usize) {
            None => (of_rank("ts"), Cow::Owned(bytes_of(&of_rank("ts"))?)),
            Some(range) => {
                let (path, bytes) = (self.directory.join(ALL_TIMES), &self.times[range.clone()]);
                let data = match self.metadata.has_compressed_times {
                    true => Rest(bytes).block("the times of a rank").map_err(|fault| fault.of(&path))?,
                    false => Cow::Borrowed(bytes),
                };
                (path, data)
            }
        };
        let Metadata { start_ns, unit_ns, .. } = *self.metadata;
        Ok(Rank { signatures, grammar, time_bytes, times_path, start_ns, unit_ns })
    }
}

/// Which grammar each rank has, and how many there are.
fn list_of_grammars(bytes: &[u8], ranks: u32) -> Result<(Vec<usize>, usize), RecorderFault> {
    const LIST: &str = "the list of grammars";
    let mut rest = Rest(bytes);
    let mut of_ranks = Vec::new();
    for _ in 0..ranks {
        let number = rest.i32(LIST)?;
        of_ranks.push(usize::try_from(number).map_err(|_| RecorderFault::number("a rank's grammar", number))?);
    }
    let count = rest.i32(LIST)?;
    match of_ranks.iter().find(|number| i64::try_from(**number).is_ok_and(|number| number >= i64::from(count))) {
        Some(number) => Err(RecorderFault::number("a rank's grammar", number)),
        None => Ok((of_ranks, usize::try_from(count).unwrap_or(0))),
    }
}

/// Where the times of each rank are: as many lengths as ranks, and the times one behind the other.
fn ranges(bytes: &[u8], ranks: u32) -> Result<Vec<std::ops::Range<usize>>, RecorderFault> {
    const HEAD: &str = "the lengths of the ranks' times";
    let mut rest = Rest(bytes);
    let mut lengths = Vec::new();
    for _ in 0..ranks {
        lengths.push(rest.u64(HEAD)?);
    }
    let (mut begin, mut found) = (bytes.len() - rest.0.len(), Vec::new());
    for length in lengths {
        let end = usize::try_from(length).ok().and_then(|length| begin.checked_add(length));
        let end =
            end.filter(|end| *end <= bytes.len()).ok_or(RecorderFault::Truncated { what: "the times of a rank" })?;
        found.push(begin..end);
        begin = end;
    }
    Ok(found)
}
