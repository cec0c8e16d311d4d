//! The reading process: loads the library and writes one log as frames.

use crate::finding;
use crate::frame::{Component, Frame, FrameWriter, Item, Job, Module, Segment};
use crate::header::{truncation, why_refused};
use crate::library::{Library, Log, RawModule, RawName};
use rustix::process::{Resource, Rlimit};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::{BufWriter, Result, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use stripewise_layout::text::lossless;

/// Memory that the library may ask for. Names take most of it: about 10 million paths.
pub const MEMORY_BYTES: u64 = 2 << 30;
/// Processor time after which the library is taken to read in circles.
const PROCESSOR_S: u64 = 1800;
/// `HOSTNAME_SIZE`
const HOST_BYTES: usize = 64;
/// `DARSHAN_JOB_RECORD_SIZE`
const JOB_RECORD_BYTES: usize = 4096;
/// `DARSHAN_JOB_METADATA_LEN`
const METADATA_BYTES: usize = 1024;
/// Names of one frame.
const NAMES_PER_FRAME: usize = 4096;
/// No record has more segments: 2^31 of 40 bytes are beyond any memory that is given.
const MAX_SEGMENTS: u64 = 1 << 31;

/// What the modules' records are, by the modules' names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Base record and counters.
    Counters {
        prefix: &'static str,
    },
    /// Base record, number of the file, counters.
    CountersInFile {
        prefix: &'static str,
    },
    Lustre,
    Dxt,
}

const KINDS: &[(&str, Kind)] = &[
    ("POSIX", Kind::Counters { prefix: "posix" }),
    ("MPI-IO", Kind::Counters { prefix: "mpiio" }),
    ("STDIO", Kind::Counters { prefix: "stdio" }),
    ("H5F", Kind::Counters { prefix: "h5f" }),
    ("H5D", Kind::CountersInFile { prefix: "h5d" }),
    ("PNETCDF_FILE", Kind::Counters { prefix: "pnetcdf_file" }),
    ("PNETCDF_VAR", Kind::CountersInFile { prefix: "pnetcdf_var" }),
    ("LUSTRE", Kind::Lustre),
    ("DXT_POSIX", Kind::Dxt),
    ("DXT_MPIIO", Kind::Dxt),
];

/// Limits this process, reads `log` and writes its frames to `to`. What the library itself prints must not go there.
///
/// # Errors
/// When `to` cannot be written; faults of the log and a missing library are frames.
pub fn serve(log: &Path, to: impl Write) -> Result<()> {
    let mut to = FrameWriter::new(BufWriter::with_capacity(1 << 18, to))?;
    let last = match serve_frames(log, &mut to)? {
        Ok(()) => Frame::End,
        Err(fault) => Frame::Failed(fault),
    };
    to.frame(&last)?;
    to.finish()
}

/// As [`serve`], to standard output. What the library prints there goes to standard error.
///
/// # Errors
/// When standard output cannot be written.
pub fn serve_on_stdout(log: &Path) -> Result<()> {
    let to = std::io::stdout().as_fd().try_clone_to_owned()?;
    // SAFETY: both are open descriptors of this process.
    if unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    serve(log, std::fs::File::from(to))
}

type Fault = std::result::Result<(), String>;

fn serve_frames<W: Write>(path: &Path, to: &mut FrameWriter<W>) -> Result<Fault> {
    limit(Resource::Core, 0);
    limit(Resource::Cpu, PROCESSOR_S);
    let library = match Library::load() {
        Ok(library) => library,
        Err(fault) => return Ok(Err(fault)),
    };
    limit(Resource::Data, MEMORY_BYTES);
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return Ok(Err("its name has a NUL".to_owned())) };
    // SAFETY: `name` is a C string.
    let log = unsafe { (library.log_open)(name.as_ptr()) };
    if log.is_null() {
        return Ok(Err(why_refused(path)));
    }
    let truncated = truncation(path);
    let job = match job(&library, log) {
        Ok(job) => job,
        Err(fault) => return Ok(Err(truncated.unwrap_or(fault))),
    };
    to.item(Item::Job(job))?;
    let modules = modules(&library, log);
    to.item(Item::Modules(modules.iter().map(|(module, ..)| module.clone()).collect()))?;
    for (module, index, kind) in &modules {
        let Some(kind) = kind else { continue };
        let (records, fault) = records(&library, log, module, *index, *kind, to)?;
        let fault = fault.map(|fault| fault.text(truncated.as_deref(), module.version));
        to.item(Item::ModuleEnd { module: module.name.clone(), records, fault })?;
    }
    // At last, so that whoever reads the frames keeps only the names of records that it kept.
    names(&library, log, to)?;
    Ok(Ok(()))
}

/// A limit that cannot be set is one that this process is under already.
fn limit(resource: Resource, most: u64) {
    let now = rustix::process::getrlimit(resource);
    let most = now.maximum.map_or(most, |maximum| maximum.min(most));
    let _ = rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: now.maximum });
}

fn job(library: &Library, log: Log) -> std::result::Result<Job, String> {
    // As eight-byte words for alignment, longer than any version's record.
    let mut raw = [0u64; JOB_RECORD_BYTES / 8];
    // SAFETY: the library writes one job record.
    if unsafe { (library.log_get_job)(log, raw.as_mut_ptr().cast()) } < 0 {
        return Err("its job's record cannot be read".to_owned());
    }
    let word = |index: usize| raw[index] as i64;
    let ns = |s: i64, ns: i64| s.saturating_mul(1_000_000_000).saturating_add(ns);
    let (start_ns, end_ns, processes, job_id, metadata_at) = if library.has_runtime() {
        (ns(word(1), word(2)), ns(word(3), word(4)), word(5), word(6), 7)
    } else {
        (ns(word(1), 0), ns(word(2), 0), word(3), word(4), 5)
    };
    // SAFETY: `darshan_fd` begins with the version's text, of 8 bytes.
    let log_version = until_nul(unsafe { std::slice::from_raw_parts(log.cast::<u8>(), 8) });
    let metadata: Vec<u8> =
        raw[metadata_at..].iter().flat_map(|word| word.to_ne_bytes()).take(METADATA_BYTES).collect();
    let metadata = until_nul(&metadata);
    let metadata = metadata.lines().filter_map(|line| line.split_once('='));
    Ok(Job {
        run_s: run_s(&log_version, start_ns, end_ns),
        log_version,
        job_id,
        start_ns,
        end_ns,
        processes,
        command: command(library, log),
        mounts: mounts(library, log),
        metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
    })
}

/// Before format 3.41 jobs end in whole seconds, and begin in them.
fn run_s(version: &str, start_ns: i64, end_ns: i64) -> f64 {
    let number = |text: &str| text.parse::<u32>().unwrap_or(0);
    let (major, minor) = version.split_once('.').map_or((0, 0), |(major, minor)| (number(major), number(minor)));
    let whole = if (major, minor) >= (3, 41) { 0.0 } else { 1.0 };
    (end_ns.saturating_sub(start_ns)) as f64 * 1e-9 + whole
}

fn until_nul(bytes: &[u8]) -> String {
    lossless(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
}

fn command(library: &Library, log: Log) -> String {
    let mut buffer = [0u8; 2 * JOB_RECORD_BYTES];
    // SAFETY: the library writes at most a job record's length.
    let done = unsafe { (library.log_get_exe)(log, buffer.as_mut_ptr().cast::<c_char>()) };
    if done < 0 { String::new() } else { until_nul(&buffer) }
}

fn mounts(library: &Library, log: Log) -> Vec<(String, String)> {
    // DARSHAN_EXE_LEN: a record less the job's fixed part and a NUL.
    let fixed = if library.has_runtime() { 7 * 8 + METADATA_BYTES } else { 5 * 8 + METADATA_BYTES };
    let length = JOB_RECORD_BYTES - fixed - 1;
    let (mut first, mut count) = (std::ptr::null_mut(), 0);
    // SAFETY: the library allocates the array.
    if unsafe { (library.log_get_mounts)(log, &raw mut first, &raw mut count) } < 0 || first.is_null() {
        return Vec::new();
    }
    let one = |index: usize| {
        // SAFETY: the array has `count` entries of two texts of `length` bytes each.
        let entry = unsafe { std::slice::from_raw_parts(first.add(index * 2 * length).cast::<u8>(), 2 * length) };
        let (kind, path) = entry.split_at(length);
        (until_nul(kind), until_nul(path))
    };
    (0..usize::try_from(count).unwrap_or(0)).map(one).collect()
}

fn modules(library: &Library, log: Log) -> Vec<(Module, c_int, Option<Kind>)> {
    let (mut first, mut count): (*mut RawModule, c_int) = (std::ptr::null_mut(), 0);
    // SAFETY: the library allocates the array.
    unsafe { (library.log_get_modules)(log, &raw mut first, &raw mut count) };
    if first.is_null() {
        return Vec::new();
    }
    // SAFETY: the array has `count` entries.
    let raw = unsafe { std::slice::from_raw_parts(first, usize::try_from(count).unwrap_or(0)) };
    let module = |raw: &RawModule| {
        // SAFETY: names are constants of the library, or null for modules that it does not know.
        let name = (!raw.name.is_null()).then(|| lossless(unsafe { CStr::from_ptr(raw.name) }.to_bytes()));
        let kind = KINDS.iter().find(|(known, _)| name.as_deref() == Some(known)).map(|(_, kind)| *kind);
        let kind = kind.filter(|kind| *kind != Kind::Lustre || library.columns("lustre_comp").is_some());
        let module = Module {
            is_partial: name.is_some() && raw.partial_flag != 0,
            name: name.unwrap_or_else(|| format!("module {}", raw.idx)),
            version: raw.ver as u32,
            bytes: u64::from(raw.len as u32),
            is_read: kind.is_some(),
        };
        (module, raw.idx, kind)
    };
    raw.iter().map(module).collect()
}

fn names<W: Write>(library: &Library, log: Log, to: &mut FrameWriter<W>) -> Result<()> {
    let (mut first, mut count): (*mut RawName, c_int) = (std::ptr::null_mut(), 0);
    // SAFETY: the library allocates the array.
    unsafe { (library.log_get_name_records)(log, &raw mut first, &raw mut count) };
    if first.is_null() {
        return Ok(());
    }
    // SAFETY: the array has `count` entries.
    let raw = unsafe { std::slice::from_raw_parts(first, usize::try_from(count).unwrap_or(0)) };
    for chunk in raw.chunks(NAMES_PER_FRAME) {
        let name = |raw: &RawName| {
            // SAFETY: the library copied each name, or had no memory for it.
            let name = (!raw.name.is_null()).then(|| lossless(unsafe { CStr::from_ptr(raw.name) }.to_bytes()));
            (raw.id, name.unwrap_or_default())
        };
        to.item(Item::Names(chunk.iter().map(name).collect()))?;
    }
    Ok(())
}

/// One record that the library allocated.
struct RawRecord(*mut c_void);

impl RawRecord {
    fn words(&self, count: usize) -> &[i64] {
        // SAFETY: callers know the record's layout; records are aligned for eight-byte words.
        unsafe { std::slice::from_raw_parts(self.0.cast::<i64>(), count) }
    }

    /// What malloc made room for: the record's bytes, or some more.
    fn allocated_bytes(&self) -> usize {
        // SAFETY: the library allocated it with malloc.
        unsafe { libc::malloc_usable_size(self.0) }
    }

    fn bytes(&self, from: usize, count: usize) -> &[u8] {
        // SAFETY: callers know the record's layout.
        unsafe { std::slice::from_raw_parts(self.0.cast::<u8>().add(from), count) }
    }
}

impl Drop for RawRecord {
    fn drop(&mut self) {
        // SAFETY: the library allocated it with malloc, and nobody else frees it.
        unsafe { libc::free(self.0) };
    }
}

/// What ended the records of a module early.
enum RecordsFault {
    /// The library reads none of them.
    None,
    /// The library reads no further one.
    Next,
    /// What a record has or lacks.
    Other(String),
}

impl RecordsFault {
    /// `truncated` is why the log is not whole.
    fn text(self, truncated: Option<&str>, version: u32) -> String {
        let unreadable = match self {
            Self::Other(fault) => return fault,
            // It refuses versions that it does not know.
            Self::None => format!(
                "the library cannot read records of its version {version}: they are damaged, or a newer libdarshan-util is needed, which {} names",
                finding::LIBRARY_VARIABLE
            ),
            Self::Next => "the library cannot read its next record, which is damaged".to_owned(),
        };
        truncated.map_or(unreadable, str::to_owned)
    }
}

/// Records of a module and how many there were, and what ended them early.
fn records<W: Write>(
    library: &Library,
    log: Log,
    Module { name, .. }: &Module,
    index: c_int,
    kind: Kind,
    to: &mut FrameWriter<W>,
) -> Result<(u64, Option<RecordsFault>)> {
    let prefix = match kind {
        Kind::Counters { prefix } | Kind::CountersInFile { prefix } => prefix,
        Kind::Lustre => "lustre_comp",
        Kind::Dxt => "",
    };
    let columns = match (kind, library.columns(prefix)) {
        (Kind::Dxt, _) => None,
        (_, Some(columns)) => Some(columns),
        (_, None) => {
            let fault = "the library does not say what its counters are".to_owned();
            return Ok((0, Some(RecordsFault::Other(fault))));
        }
    };
    let (counters, real) = columns.as_ref().map_or((0, 0), |columns| (columns.counters.len(), columns.real.len()));
    if let Some(columns) = columns {
        to.item(Item::Columns { module: name.to_owned(), counters: columns.counters, real: columns.real })?;
    }
    let mut count = 0;
    loop {
        let mut record = std::ptr::null_mut();
        // SAFETY: the module is one that the library listed and knows; it allocates the record.
        match unsafe { (library.log_get_record)(log, index, &raw mut record) } {
            1 if !record.is_null() => {}
            0 => return Ok((count, None)),
            _ if count == 0 => return Ok((count, Some(RecordsFault::None))),
            _ => return Ok((count, Some(RecordsFault::Next))),
        }
        let record = RawRecord(record);
        match kind {
            Kind::Counters { .. } => counted(&record, false, counters, real, to)?,
            Kind::CountersInFile { .. } => counted(&record, true, counters, real, to)?,
            Kind::Lustre => lustre(&record, counters, to)?,
            Kind::Dxt => {
                if let Err(fault) = dxt(library, index, &record, to)? {
                    return Ok((count, Some(RecordsFault::Other(fault))));
                }
            }
        }
        count += 1;
    }
}

fn counted<W: Write>(
    record: &RawRecord,
    in_file: bool,
    counters: usize,
    real: usize,
    to: &mut FrameWriter<W>,
) -> Result<()> {
    let head = 2 + usize::from(in_file);
    let words = record.words(head + counters + real);
    to.item(Item::Record {
        id: words[0] as u64,
        rank: words[1],
        file: in_file.then_some(words[2] as u64),
        counters: words[head..head + counters].to_vec(),
        real: words[head + counters..].iter().map(|word| f64::from_bits(*word as u64)).collect(),
    })
}

fn lustre<W: Write>(record: &RawRecord, counters: usize, to: &mut FrameWriter<W>) -> Result<()> {
    /// A pool's name with its end.
    const POOL_BYTES: usize = 16;
    /// Base record, two numbers, two pointers.
    const HEAD_BYTES: usize = 48;
    let head = record.words(4);
    // Truncated by the library to what the file has.
    let (components, stripes) = (usize::try_from(head[2]).unwrap_or(0), usize::try_from(head[3]).unwrap_or(0));
    let one = counters * 8 + POOL_BYTES;
    let component = |index: usize| {
        let bytes = record.bytes(HEAD_BYTES + index * one, one);
        let (numbers, pool) = bytes.split_at(counters * 8);
        let words = numbers.as_chunks::<8>().0.iter().map(|word| i64::from_ne_bytes(*word));
        Component { counters: words.collect(), pool: until_nul(pool) }
    };
    let targets = if components == 0 { &[][..] } else { record.bytes(HEAD_BYTES + components * one, stripes * 8) };
    to.item(Item::Lustre {
        id: head[0] as u64,
        components: (0..components).map(component).collect(),
        targets: targets.as_chunks::<8>().0.iter().map(|word| i64::from_ne_bytes(*word)).collect(),
    })
}

/// Offset, length, begin and end.
const MIN_SEGMENT_BYTES: usize = 32;

/// With the number of a thread behind them.
const THREAD_SEGMENT_BYTES: usize = 40;

/// Bytes of one of a record's segments. `size`: of all of them, as the library counts them, if it does. A library that knows threads keeps their
/// numbers whatever the log's version, and no symbol tells it from others; what it allocated for the segments does.
fn segment_bytes(size: Option<usize>, allocated: usize, segments: usize) -> std::result::Result<usize, String> {
    match (size, segments) {
        (_, 0) => Ok(MIN_SEGMENT_BYTES),
        // malloc rounds up by less than 16 bytes, and by less than a page what is large.
        (None, _) if allocated >= segments * THREAD_SEGMENT_BYTES => Ok(THREAD_SEGMENT_BYTES),
        (None, _) => Ok(MIN_SEGMENT_BYTES),
        // The size is an `int`, which a large record overflows; what is left of it does not divide then.
        (Some(bytes), _) if bytes % segments == 0 && bytes / segments >= MIN_SEGMENT_BYTES => Ok(bytes / segments),
        (Some(bytes), _) => Err(format!("{segments} segments in {bytes} bytes")),
    }
}

fn dxt<W: Write>(library: &Library, index: c_int, record: &RawRecord, to: &mut FrameWriter<W>) -> Result<Fault> {
    /// Base record and the sharing mark.
    const BEFORE_HOST: usize = 24;
    const HEAD_BYTES: usize = BEFORE_HOST + HOST_BYTES + 16;
    let head = record.words(HEAD_BYTES / 8);
    let (writes, reads) = (head[HEAD_BYTES / 8 - 2], head[HEAD_BYTES / 8 - 1]);
    let (Ok(writes), Ok(reads)) = (u64::try_from(writes), u64::try_from(reads)) else {
        return Ok(Err(format!("a record has {writes} writes and {reads} reads")));
    };
    let segments = writes.saturating_add(reads);
    if segments > MAX_SEGMENTS {
        return Ok(Err(format!("a record has {segments} segments")));
    }
    let segments = segments as usize;
    let size = library.record_bytes(index, record.0).and_then(|bytes| bytes.checked_sub(HEAD_BYTES));
    let segment_bytes = match segment_bytes(size, record.allocated_bytes().saturating_sub(HEAD_BYTES), segments) {
        Ok(bytes) => bytes,
        Err(fault) => return Ok(Err(fault)),
    };
    to.item(Item::Dxt {
        id: head[0] as u64,
        rank: head[1],
        host: until_nul(record.bytes(BEFORE_HOST, HOST_BYTES)),
        writes,
        reads,
    })?;
    let segment = |bytes: &[u8]| {
        let word = |place: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[place * 8..place * 8 + 8]);
            word
        };
        Segment {
            offset: i64::from_ne_bytes(word(0)),
            length: i64::from_ne_bytes(word(1)),
            start_s: f64::from_ne_bytes(word(2)),
            end_s: f64::from_ne_bytes(word(3)),
        }
    };
    let bytes = record.bytes(HEAD_BYTES, segments * segment_bytes);
    to.segments(bytes.chunks_exact(segment_bytes).map(segment))?;
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_void;

    #[test]
    fn segments_are_as_long_as_what_was_allocated_for_them() {
        const HEAD: usize = 104;
        for segments in (1..200).chain([4095, 4096, 5000, 100_000]) {
            for bytes in [MIN_SEGMENT_BYTES, THREAD_SEGMENT_BYTES] {
                // SAFETY: freed as it was allocated.
                let record = RawRecord(unsafe { libc::malloc(HEAD + segments * bytes) }.cast::<c_void>());
                let allocated = record.allocated_bytes() - HEAD;
                assert_eq!(segment_bytes(None, allocated, segments), Ok(bytes), "{segments} segments");
            }
        }
        assert_eq!(segment_bytes(Some(96), 96, 3), Ok(32));
        assert_eq!(segment_bytes(Some(97), 97, 3), Err("3 segments in 97 bytes".to_owned()));
    }
}
