//! The bytes of a link, inside TLS: a hello, then frames. Numbers are little-endian.
//!
//! | part | field | bytes |
//! |---|---|---|
//! | hello | `stripew` and a zero byte | 8 |
//! | hello | version of the frames | 4 |
//! | hello | length of the introduction | 4 |
//! | hello | the introduction in CBOR: a map from 0 to the cluster's id, 1 to the host's name, 2 to its machine id, 3 to its process id, 4 to the version of its messages, 5 to its boot id, 6 to the id of its state directory | at most 4096 |
//! | frame | length of the body | 4 |
//! | frame | kind: 1 question, 2 answer, 3 failure instead of an answer, 4 notice, 5 ping, 6 welcome, 7 refusal instead of a welcome | 1 |
//! | frame | number of the question that is asked or answered, from 1; 0 in other frames | 8 |
//! | frame | body; of a failure or a refusal it is a text, of a ping or a welcome it is empty | at most 64 MiB |
//!
//! The hello never changes, so that versions can refuse each other by name.

use super::introduction::Introduction;

/// The version of the frames. Hosts with different ones refuse each other.
pub const FRAMES_VERSION: u32 = 1;
/// The longest body of a frame, in bytes.
pub const MAX_FRAME_BYTES: usize = 64 << 20;
const MAGIC: [u8; 8] = *b"stripew\0";
const HELLO_BYTES: usize = 16;
const HEADER_BYTES: usize = 13;
const MAX_INTRODUCTION_BYTES: usize = 4096;
/// The longest text of a refusal or a failure, in bytes.
const MAX_TEXT_BYTES: usize = 4096;
/// Allocated at once for a body whose length the other side claims.
const BODY_STEP: usize = 1 << 20;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Question = 1,
    Answer = 2,
    /// Instead of an answer; the body is a text.
    Failure = 3,
    Notice = 4,
    /// Nothing else was to be sent. No body.
    Ping = 5,
    /// The link is accepted. No body.
    Welcome = 6,
    /// Instead of a welcome; the body is a text.
    Refusal = 7,
}

impl Kind {
    fn of(byte: u8) -> Result<Self, FrameError> {
        const KINDS: [Kind; 7] =
            [Kind::Question, Kind::Answer, Kind::Failure, Kind::Notice, Kind::Ping, Kind::Welcome, Kind::Refusal];
        KINDS.into_iter().find(|kind| *kind as u8 == byte).ok_or(FrameError::Kind(byte))
    }

    fn max_bytes(self) -> usize {
        match self {
            Kind::Question | Kind::Answer | Kind::Notice => MAX_FRAME_BYTES,
            Kind::Failure | Kind::Refusal => MAX_TEXT_BYTES,
            Kind::Ping | Kind::Welcome => 0,
        }
    }

    fn has_number(self) -> bool {
        matches!(self, Kind::Question | Kind::Answer | Kind::Failure)
    }
}

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("its first bytes are not those of stripewise")]
    Magic,
    #[error("an introduction of {0} bytes")]
    IntroductionLength(u32),
    #[error("an introduction that cannot be read: {0}")]
    Introduction(String),
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    #[error("a frame of kind {kind:?} with {bytes} bytes")]
    Length { kind: Kind, bytes: u32 },
    #[error("a frame of kind {kind:?} with the number {number}")]
    Number { kind: Kind, number: u64 },
    #[error("a frame of kind {0:?} whose text is not UTF-8")]
    Text(Kind),
}

/// A frame with its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    pub number: u64,
    pub body: Vec<u8>,
}

impl Frame {
    /// The frame as it is sent.
    ///
    /// # Panics
    ///
    /// Above [`MAX_FRAME_BYTES`].
    #[must_use]
    pub fn encode(kind: Kind, number: u64, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).ok().filter(|length| *length as usize <= kind.max_bytes());
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        bytes.extend_from_slice(&length.expect("the body's length was checked").to_le_bytes());
        bytes.push(kind as u8);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    /// A frame whose body is a text, shortened to what is allowed.
    #[must_use]
    pub fn encode_text(kind: Kind, number: u64, text: &str) -> Vec<u8> {
        let end = (0..=text.len().min(MAX_TEXT_BYTES)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        Self::encode(kind, number, &text.as_bytes()[..end])
    }

    /// The text of a failure or a refusal.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The first bytes of each side.
#[must_use]
pub fn encode_hello(introduction: &Introduction) -> Vec<u8> {
    let body = minicbor::to_vec(introduction).expect("strings and numbers");
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FRAMES_VERSION.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(body.len()).expect("names are short").to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Always first. Of another version, what follows cannot be read.
    Hello {
        version: u32,
        introduction: Introduction,
    },
    Frame(Frame),
}

#[derive(Debug)]
enum Reading {
    HelloHead,
    Introduction { version: u32, length: usize },
    Head,
    Body { kind: Kind, number: u64, length: usize },
}

/// Puts hello and frames together from bytes that come in pieces.
#[derive(Debug)]
pub struct Decoder {
    reading: Reading,
    held: Vec<u8>,
    fault: Option<FrameError>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { reading: Reading::HelloHead, held: Vec::new(), fault: None }
    }
}

impl Decoder {
    /// Takes bytes from the front of `bytes` until something is complete; `None` when it has taken all. An error stays.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Received>, FrameError> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        self.advance(bytes).inspect_err(|fault| self.fault = Some(fault.clone()))
    }

    fn advance(&mut self, bytes: &mut &[u8]) -> Result<Option<Received>, FrameError> {
        loop {
            let want = match self.reading {
                Reading::HelloHead => HELLO_BYTES,
                Reading::Head => HEADER_BYTES,
                Reading::Introduction { length, .. } | Reading::Body { length, .. } => length,
            };
            let missing = want - self.held.len();
            let taken = missing.min(bytes.len());
            if self.held.capacity() - self.held.len() < taken {
                self.held.reserve_exact(taken.max(missing.min(self.held.len().max(BODY_STEP))));
            }
            self.held.extend_from_slice(&bytes[..taken]);
            *bytes = &bytes[taken..];
            if taken < missing {
                return Ok(None);
            }
            if let Some(received) = self.complete()? {
                return Ok(Some(received));
            }
        }
    }

    /// Whether nothing of a frame is held.
    #[must_use]
    pub fn is_between(&self) -> bool {
        matches!(self.reading, Reading::Head) && self.held.is_empty()
    }

    fn complete(&mut self) -> Result<Option<Received>, FrameError> {
        let held = std::mem::take(&mut self.held);
        match self.reading {
            Reading::HelloHead => {
                let (version, length) = (u32_at(&held, 8), u32_at(&held, 12));
                if held[..8] != MAGIC {
                    return Err(FrameError::Magic);
                }
                if length as usize > MAX_INTRODUCTION_BYTES {
                    return Err(FrameError::IntroductionLength(length));
                }
                self.reading = Reading::Introduction { version, length: length as usize };
                Ok(None)
            }
            Reading::Introduction { version, .. } => {
                let introduction: Introduction =
                    minicbor::decode(&held).map_err(|error| FrameError::Introduction(error.to_string()))?;
                introduction.check().map_err(FrameError::Introduction)?;
                self.reading = Reading::Head;
                Ok(Some(Received::Hello { version, introduction }))
            }
            Reading::Head => {
                let (bytes, kind) = (u32_at(&held, 0), Kind::of(held[4])?);
                let number = u64::from_le_bytes(held[5..13].try_into().expect("8 bytes"));
                if bytes as usize > kind.max_bytes() {
                    return Err(FrameError::Length { kind, bytes });
                }
                if (number != 0) != kind.has_number() {
                    return Err(FrameError::Number { kind, number });
                }
                self.reading = Reading::Body { kind, number, length: bytes as usize };
                Ok(None)
            }
            Reading::Body { kind, number, .. } => {
                if matches!(kind, Kind::Failure | Kind::Refusal) && std::str::from_utf8(&held).is_err() {
                    return Err(FrameError::Text(kind));
                }
                self.reading = Reading::Head;
                Ok(Some(Received::Frame(Frame { kind, number, body: held })))
            }
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}
