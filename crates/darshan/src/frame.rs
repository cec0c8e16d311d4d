//! What the reading process writes to the pipe: frames of a kind, a length and a body, behind a magic number with a version.
//!
//! Segments, of which a log may have many millions, are plain numbers of 8 bytes; all else is `Frame` in `postcard`.

use serde::{Deserialize, Serialize};
use std::io::{Read, Write};

/// Begins the stream; its last byte is the version of the frames.
const MAGIC: [u8; 8] = *b"SWDSHN\0\x01";
/// A frame's body is no longer; the longest are names and the stripes of a file.
const MAX_FRAME_BYTES: u32 = 64 << 20;
/// Segments of one frame.
pub(crate) const SEGMENTS_PER_FRAME: usize = 4096;
const SEGMENT_BYTES: usize = 32;
const FRAME: u8 = 1;
const SEGMENTS: u8 = 2;

/// What a log says of its job.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Job {
    /// Version of the log's format.
    pub log_version: String,
    /// The batch system's number, or a process's.
    pub job_id: i64,
    /// Nanoseconds since 1970-01-01 UTC.
    pub start_ns: i64,
    /// Nanoseconds since 1970-01-01 UTC.
    pub end_ns: i64,
    /// Run time in seconds, as Darshan counts it for that version.
    pub run_s: f64,
    /// MPI processes; 1 outside MPI.
    pub processes: i64,
    /// The command line, as far as the log has it; empty where it is not readable.
    pub command: String,
    /// Kind of file system and where it was mounted, in the order in which a path is looked up.
    pub mounts: Vec<(String, String)>,
    /// `key=value` as the runtime wrote them.
    pub metadata: Vec<(String, String)>,
}

/// A module of a log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Module {
    /// As Darshan names it; `module N` for one that the library does not know.
    pub name: String,
    /// Of its records.
    pub version: u32,
    /// Compressed, in the log.
    pub bytes: u64,
    /// It ran out of memory: records are missing.
    pub is_partial: bool,
    /// Its records follow.
    pub is_read: bool,
}

/// A component of a file's layout on Lustre.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Component {
    /// By [`Item::Columns`] of the module.
    pub counters: Vec<i64>,
    /// Empty: none.
    pub pool: String,
}

/// A request of DXT.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Segment {
    /// Negative where the log does not know it.
    pub offset: i64,
    /// Bytes.
    pub length: i64,
    /// Seconds since the program's start.
    pub start_s: f64,
    /// Seconds since the program's start.
    pub end_s: f64,
}

/// What a log holds but for segments, in the order of reading: job, modules, then module by module columns and records, at last the names.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Item {
    /// The job; once.
    Job(Job),
    /// All modules of the log; once.
    Modules(Vec<Module>),
    /// Names of counters of a module that follows, by [`Module::name`].
    Columns {
        /// The module.
        module: String,
        /// Of whole numbers.
        counters: Vec<String>,
        /// Of real numbers.
        real: Vec<String>,
    },
    /// Paths of records, by their numbers.
    Names(Vec<(u64, String)>),
    /// Counters of one file and rank; those of the module whose [`Item::Columns`] came last.
    Record {
        /// Number of the file (or data set).
        id: u64,
        /// -1: all ranks together.
        rank: i64,
        /// Number of the file that a data set is in.
        file: Option<u64>,
        /// By [`Item::Columns`].
        counters: Vec<i64>,
        /// By [`Item::Columns`].
        real: Vec<f64>,
    },
    /// Layout of a file on Lustre.
    Lustre {
        /// Number of the file.
        id: u64,
        /// Components, in order of their beginning.
        components: Vec<Component>,
        /// Targets of all components, one after the other.
        targets: Vec<i64>,
    },
    /// Requests of one file and rank, whose segments follow: first all writes, then all reads.
    Dxt {
        /// Number of the file.
        id: u64,
        /// The rank.
        rank: i64,
        /// Its node.
        host: String,
        /// Segments that follow.
        writes: u64,
        /// Segments that follow these.
        reads: u64,
    },
    /// A module has no more records.
    ModuleEnd {
        /// The module.
        module: String,
        /// Records that were read.
        records: u64,
        /// What kept the others from being read.
        fault: Option<String>,
    },
}

/// One message of the reading process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Frame {
    Item(Item),
    /// The last one.
    End,
    /// The last one: nothing can be read.
    Failed(String),
}

/// Why a stream of frames is refused.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The pipe broke.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The stream is of another version of this program, or of none.
    #[error("the reading process is of another version of Stripewise")]
    Foreign,
    /// A frame has an impossible length or kind, or does not decode.
    #[error("the reading process wrote a damaged frame")]
    Damaged,
}

pub(crate) struct FrameWriter<W: Write> {
    to: W,
    buffer: Vec<u8>,
}

impl<W: Write> FrameWriter<W> {
    pub(crate) fn new(mut to: W) -> std::io::Result<Self> {
        to.write_all(&MAGIC)?;
        Ok(Self { to, buffer: Vec::new() })
    }

    fn body(&mut self, kind: u8, body: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(body.len()).ok().filter(|length| *length <= MAX_FRAME_BYTES);
        let length = length.ok_or(std::io::ErrorKind::FileTooLarge)?;
        self.to.write_all(&[kind])?;
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(body)
    }

    pub(crate) fn frame(&mut self, frame: &Frame) -> std::io::Result<()> {
        let body = postcard::to_stdvec(frame).map_err(std::io::Error::other)?;
        self.body(FRAME, &body)
    }

    pub(crate) fn item(&mut self, item: Item) -> std::io::Result<()> {
        self.frame(&Frame::Item(item))
    }

    pub(crate) fn segments(&mut self, segments: impl Iterator<Item = Segment>) -> std::io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        for segment in segments {
            buffer.extend_from_slice(&segment.offset.to_le_bytes());
            buffer.extend_from_slice(&segment.length.to_le_bytes());
            buffer.extend_from_slice(&segment.start_s.to_le_bytes());
            buffer.extend_from_slice(&segment.end_s.to_le_bytes());
            if buffer.len() == SEGMENTS_PER_FRAME * SEGMENT_BYTES {
                self.body(SEGMENTS, &buffer)?;
                buffer.clear();
            }
        }
        if !buffer.is_empty() {
            self.body(SEGMENTS, &buffer)?;
        }
        self.buffer = buffer;
        Ok(())
    }

    pub(crate) fn finish(mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

/// Reads frames back.
pub(crate) struct FrameReader<R: Read> {
    from: R,
    buffer: Vec<u8>,
}

/// What [`FrameReader::receive`] finds.
pub(crate) enum Received<'a> {
    Frame(Frame),
    Segments(&'a [[u8; SEGMENT_BYTES]]),
}

impl Segment {
    pub(crate) fn from_bytes(bytes: &[u8; SEGMENT_BYTES]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            word
        };
        Self {
            offset: i64::from_le_bytes(word(0)),
            length: i64::from_le_bytes(word(8)),
            start_s: f64::from_le_bytes(word(16)),
            end_s: f64::from_le_bytes(word(24)),
        }
    }
}

impl<R: Read> FrameReader<R> {
    pub(crate) fn new(mut from: R) -> Result<Self, FrameError> {
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic)?;
        if magic == MAGIC { Ok(Self { from, buffer: Vec::new() }) } else { Err(FrameError::Foreign) }
    }

    pub(crate) fn receive(&mut self) -> Result<Received<'_>, FrameError> {
        let mut head = [0; 5];
        self.from.read_exact(&mut head)?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
        if length > MAX_FRAME_BYTES {
            return Err(FrameError::Damaged);
        }
        self.buffer.resize(length as usize, 0);
        self.from.read_exact(&mut self.buffer)?;
        match head[0] {
            FRAME => postcard::from_bytes(&self.buffer).map(Received::Frame).map_err(|_| FrameError::Damaged),
            SEGMENTS => match self.buffer.as_chunks() {
                (segments, []) => Ok(Received::Segments(segments)),
                _ => Err(FrameError::Damaged),
            },
            _ => Err(FrameError::Damaged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_segments_are_read_as_they_were_written() {
        let items = [
            Item::Job(Job { log_version: "3.41".to_owned(), processes: 7, ..Job::default() }),
            Item::Names(vec![(1, "/a b\n".to_owned())]),
            Item::Dxt { id: 1, rank: 2, host: "n".to_owned(), writes: 5000, reads: 0 },
        ];
        let segment =
            |number: i64| Segment { offset: number, length: -1, start_s: number as f64 / 3.0, end_s: f64::MAX };
        let mut bytes = Vec::new();
        let mut writer = FrameWriter::new(&mut bytes).unwrap();
        items.iter().for_each(|item| writer.item(item.clone()).unwrap());
        writer.segments((0..5000).map(segment)).unwrap();
        writer.frame(&Frame::End).unwrap();
        writer.finish().unwrap();
        let mut reader = FrameReader::new(&bytes[..]).unwrap();
        let (mut read, mut segments) = (Vec::new(), Vec::new());
        loop {
            match reader.receive().unwrap() {
                Received::Frame(Frame::End) => break,
                Received::Frame(Frame::Item(item)) => read.push(item),
                Received::Frame(Frame::Failed(_)) => panic!("{read:?}"),
                Received::Segments(found) => segments.extend(found.iter().map(Segment::from_bytes)),
            }
        }
        assert_eq!(read, items);
        assert_eq!(segments, (0..5000).map(segment).collect::<Vec<_>>());
    }

    #[test]
    fn damaged_streams_are_refused() {
        assert!(matches!(FrameReader::new(&b"SWDSHN\0\x02"[..]), Err(FrameError::Foreign)));
        let damaged: [&[u8]; 4] =
            [&[1, 255, 255, 255, 255], &[1, 1, 0, 0, 0, 99], &[2, 3, 0, 0, 0, 1, 2, 3], &[9, 0, 0, 0, 0]];
        for body in damaged {
            let bytes = [&MAGIC[..], body].concat();
            assert!(matches!(FrameReader::new(&bytes[..]).unwrap().receive(), Err(FrameError::Damaged)), "{body:?}");
        }
    }
}
