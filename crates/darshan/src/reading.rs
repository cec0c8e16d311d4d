//! The side that wants a log read: starts the reading process and hands on what it says, item by item.

use crate::frame::{Frame, FrameError, FrameReader, Item, Received, Segment};
use std::io::{BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

/// The hidden command that calls [`serve`](crate::serve) with the log that follows.
pub const READER_COMMAND: &str = "darshan-reader";
/// Path of a `stripewise` that has [`READER_COMMAND`], for programs that use the library without being it.
pub const COMMAND_VARIABLE: &str = "STRIPEWISE_COMMAND";
/// What is kept of what the library printed.
const PRINTED_BYTES: usize = 2048;

/// Why a log is not read.
#[derive(Debug, thiserror::Error)]
pub enum DarshanError {
    /// The reading process does not start.
    #[error("{log}: cannot start `{command} {READER_COMMAND}` to read it: {source}; name a stripewise in {COMMAND_VARIABLE}", command = command.display())]
    Start {
        /// The log.
        log: PathBuf,
        /// The executable.
        command: PathBuf,
        /// Its cause.
        source: std::io::Error,
    },
    /// The library is missing or refuses the log.
    #[error("{log}: {fault}{}", after(printed))]
    Refused {
        /// The log.
        log: PathBuf,
        /// What is wrong.
        fault: String,
        /// What the library printed.
        printed: String,
    },
    /// The reading process died.
    #[error("{log}: Darshan's library {end} while it read it, so the log is damaged or too large{}", after(printed))]
    Died {
        /// The log.
        log: PathBuf,
        /// How it ended.
        end: String,
        /// What the library printed.
        printed: String,
    },
    /// The reading process says what is not to be understood.
    #[error("{log}: {source}")]
    Stream {
        /// The log.
        log: PathBuf,
        /// Its cause.
        source: FrameError,
    },
}

fn after(printed: &str) -> String {
    if printed.is_empty() { String::new() } else { format!(" ({printed})") }
}

/// What reading finds, piece by piece.
pub enum Found<'a> {
    /// Anything but segments.
    Item(Item),
    /// Some of the requests of the last [`Item::Dxt`].
    Segments(&'a mut dyn Iterator<Item = Segment>),
    /// All records were read, but the library died when it read the names.
    NamesLost,
}

/// Reads a log and gives `take` what is in it. Memory holds one record.
///
/// # Errors
/// When Darshan's library is missing, or the log is none, damaged beyond reading, or of a later version.
pub fn read(log: &Path, mut take: impl FnMut(Found<'_>)) -> Result<(), DarshanError> {
    let command = command();
    let mut reading = Reading::start(log, &command)?;
    let ended = reading.frames(&mut take);
    let reading_is_done = reading.modules_left == Some(0);
    let (status, printed) = reading.finish();
    let log = log.to_owned();
    match ended {
        Ok(None) => Ok(()),
        Ok(Some(fault)) => Err(DarshanError::Refused { log, fault, printed }),
        Err(FrameError::Io(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof && reading_is_done => {
            take(Found::NamesLost);
            Ok(())
        }
        Err(FrameError::Io(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(DarshanError::Died { log, end: end_of(status), printed })
        }
        Err(source) => Err(DarshanError::Stream { log, source }),
    }
}

/// This executable if it is `stripewise`, otherwise what the variable or the path says.
fn command() -> PathBuf {
    if let Some(named) = std::env::var_os(COMMAND_VARIABLE).filter(|named| !named.is_empty()) {
        return PathBuf::from(named);
    }
    let is_ours =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"stripewise"));
    let own = std::env::current_exe().ok().filter(is_ours);
    // The link in /proc leads to the executable also when it was replaced.
    own.map_or_else(|| PathBuf::from("stripewise"), |_| PathBuf::from("/proc/self/exe"))
}

fn end_of(status: Option<ExitStatus>) -> String {
    match status.and_then(|status| status.signal()) {
        Some(libc::SIGXCPU) => "took more processor time than it may".to_owned(),
        Some(signal) => format!("died of signal {signal}"),
        None => format!("ended with status {}", status.and_then(|status| status.code()).unwrap_or(-1)),
    }
}

struct Reading {
    child: Child,
    from: Option<FrameSource>,
    printed: Option<JoinHandle<String>>,
    /// Modules whose records are not all read yet; `None` before they are known.
    modules_left: Option<usize>,
}

type FrameSource = BufReader<std::process::ChildStdout>;

impl Reading {
    fn start(log: &Path, command: &Path) -> Result<Self, DarshanError> {
        let failed = |source| DarshanError::Start { log: log.to_owned(), command: command.to_owned(), source };
        let log = std::path::absolute(log).map_err(failed)?;
        let mut child = Command::new(command)
            .arg(READER_COMMAND)
            .arg(&log)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let from = child.stdout.take().map(|from| BufReader::with_capacity(1 << 18, from));
        let printed = child.stderr.take().map(|from| std::thread::spawn(move || printed(from)));
        Ok(Self { child, from, printed, modules_left: None })
    }

    /// Until the last frame; what the log was refused for.
    fn frames(&mut self, take: &mut impl FnMut(Found<'_>)) -> Result<Option<String>, FrameError> {
        let Some(from) = self.from.take() else { return Err(FrameError::Damaged) };
        let mut frames = FrameReader::new(from)?;
        let mut columns = (0, 0);
        loop {
            let item = match frames.receive()? {
                Received::Segments(segments) => {
                    take(Found::Segments(&mut segments.iter().map(Segment::from_bytes)));
                    continue;
                }
                Received::Frame(Frame::Item(item)) => item,
                Received::Frame(Frame::End) => return Ok(None),
                Received::Frame(Frame::Failed(fault)) => return Ok(Some(fault)),
            };
            match &item {
                Item::Modules(modules) => {
                    self.modules_left = Some(modules.iter().filter(|module| module.is_read).count());
                }
                Item::Columns { counters, real, .. } => columns = (counters.len(), real.len()),
                Item::Record { counters, real, .. } if (counters.len(), real.len()) != columns => {
                    return Err(FrameError::Damaged);
                }
                Item::ModuleEnd { .. } => self.modules_left = self.modules_left.map(|left| left.saturating_sub(1)),
                _ => {}
            }
            take(Found::Item(item));
        }
    }

    fn finish(mut self) -> (Option<ExitStatus>, String) {
        // A process that still writes gets SIGPIPE.
        drop(self.from.take());
        let status = self.child.wait().ok();
        let printed = self.printed.take().and_then(|printed| printed.join().ok());
        (status, printed.unwrap_or_default())
    }
}

/// The first lines that the library prints, as one; the rest is read and forgotten, so that it never waits.
fn printed(mut from: impl Read) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let free = PRINTED_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..count.min(free)]);
    }
    let text = stripewise_layout::text::lossless(&kept);
    // It ends with the error number of something else.
    let is_of_use = |line: &&str| !line.is_empty() && !line.contains("darshan_log_open failed");
    let lines = text.lines().map(str::trim).filter(is_of_use);
    lines.map(|line| line.trim_start_matches("Error: ").trim_end_matches('.')).collect::<Vec<_>>().join("; ")
}
