//! Stripewise's own format.
#![allow(unsafe_code, reason = "finished trace files are mapped")]

use super::{ReadError, Reader, has_extension, those};
use crate::manifest::{MANIFEST_NAME, Manifest};
use crate::trace::{ProcessSource, Slots, Trace};
use crate::warning::Warning;
use memmap2::Mmap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use stripewise_capture::format::{EXTENSION, HEADER_BYTES, Header, HeaderFault, MAGIC};

pub(super) const READER: Reader = Reader {
    expects: "a directory that holds *.swt files or a .swt file",
    in_directory: |directory, names| {
        let files = those(names, |name| has_extension(name, EXTENSION));
        // A run in which nothing was captured has a manifest alone.
        files.or_else(|| directory.join(MANIFEST_NAME).exists().then(Vec::new))
    },
    is_file: |path| has_extension(path, EXTENSION),
    read: |path, files| read(if files == [path] { Path::new("") } else { path }, files),
};

/// `directory` is empty for a single file.
fn read(directory: &Path, files: &[PathBuf]) -> Result<Trace, ReadError> {
    let manifest = if directory.as_os_str().is_empty() { None } else { Manifest::read(directory)? };
    let mut warnings = Vec::new();
    let mut sources = Vec::new();
    for path in files {
        if let Some(source) = read_process(path, &mut warnings)? {
            sources.push(source);
        }
    }
    Ok(Trace::assemble(manifest, sources, warnings))
}

/// The slots of one process file; none, with a warning, when it was cut off before its first slot's place.
fn read_process(path: &Path, warnings: &mut Vec<Warning>) -> Result<Option<ProcessSource>, ReadError> {
    let io = |source| ReadError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io)?;
    let mut page = Vec::with_capacity(HEADER_BYTES);
    file.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut page).map_err(io)?;
    let is_own = super::has_extension(path, stripewise_capture::format::EXTENSION);
    // A process that was killed before its first record leaves an empty file or a header of zeros.
    if page.len() < HEADER_BYTES || page.iter().all(|byte| *byte == 0) {
        let known = page.len().min(MAGIC.len());
        let plausible = page[..known] == MAGIC[..known] || page.iter().all(|byte| *byte == 0);
        if !plausible || (!is_own && page.len() < MAGIC.len()) {
            return Err(ReadError::Foreign { path: path.to_owned() });
        }
        warnings.push(Warning::TruncatedInHeader { path: path.to_owned(), bytes: page.len() as u64 });
        return Ok(None);
    }
    let page: &[u8; HEADER_BYTES] = page.first_chunk().ok_or_else(|| ReadError::Foreign { path: path.to_owned() })?;
    let header = Header::decode(page).map_err(|fault| match fault {
        HeaderFault::Foreign => ReadError::Foreign { path: path.to_owned() },
        HeaderFault::Version(found) => ReadError::Version { path: path.to_owned(), found },
        HeaderFault::Field(field, value) => ReadError::Header { path: path.to_owned(), field, value },
    })?;
    let slots = if header.finished {
        // SAFETY: a finished file is not cut any more, except of room beyond its records by a process that records again after it
        // finished and finishes a second time; that nobody else truncates trace files while they are read is a documented demand.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        // Pages are read in order, by several threads.
        let _ = map.advise(memmap2::Advice::WillNeed);
        Slots::mapped(map)
    } else {
        // Its process may live and cut it at any time; a copy is safe from that.
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        Slots::owned(bytes)
    };
    let length = slots.byte_len() + HEADER_BYTES as u64;
    // A process that did not finish has not said how long its file is; then only a part of a record shows.
    let expected_bytes = header.used_bytes.max(length.next_multiple_of(stripewise_capture::format::SLOT_BYTES as u64));
    if length < expected_bytes {
        warnings.push(Warning::Truncated { path: path.to_owned(), bytes: length, expected_bytes });
    }
    if !header.finished {
        warnings.push(Warning::Unfinished { path: path.to_owned(), pid: header.pid });
    }
    if header.lost > 0 {
        warnings.push(Warning::Lost { path: path.to_owned(), pid: header.pid, records: header.lost });
    }
    Ok(Some(ProcessSource::new(path, &header, slots)))
}
