//! The trace format of one process: a header page, then 32-byte slots. `docs/trace-format.md` has it byte by byte.
//!
//! A slot is a record of one call, the extension of the record before it, a definition (of a file or a communicator), or the
//! continuation of the definition before it. The first byte tells which; 0 is a slot that nobody finished writing. Every slot says by
//! itself what it is, so reading can start at any slot. All numbers are little-endian.

mod header;

pub use header::{ClockPair, HEADER_FINISHED, Header, HeaderFault, NO_RANK, at, mpi_word};

use crate::call::{Call, Operation};
use crate::clock::Ticks;
use stripewise_layout::{FileOffset, WriteClass};

/// The first eight bytes of a process file.
pub const MAGIC: [u8; 8] = *b"SWTRACE\n";
/// The version written to process files.
pub const FORMAT_VERSION: u32 = 2;
/// The oldest version that is read. Version 1 has no write classes.
pub const OLDEST_READ_FORMAT: u32 = 1;
/// Bytes before the first slot.
pub const HEADER_BYTES: usize = 4096;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 32;
/// The extension of process files.
pub const EXTENSION: &str = "swt";

/// First bytes of slots that are not records.
pub mod tag {
    /// A slot that was claimed and never finished, or never used.
    pub const EMPTY: u8 = 0;
    /// The first slot of a file's definition.
    pub const DEFINE_FILE: u8 = 0xF0;
    /// The first slot of a communicator's definition.
    pub const DEFINE_COMMUNICATOR: u8 = 0xF1;
    /// Size and duration, in 64 bits, of the record in the slot before.
    pub const EXTENSION: u8 = 0xFD;
    /// Part of the name of the definition before.
    pub const CONTINUATION: u8 = 0xFE;
}

/// Second byte of a record.
pub mod flag {
    use super::WriteClass;

    /// The call failed; the size field holds the error number.
    pub const FAILED: u8 = 1;
    /// The next slot holds size and duration in 64 bits.
    pub const EXTENDED: u8 = 2;
    /// The open made the file.
    pub const CREATED: u8 = 4;

    /// Where the class of a write stands: two bits, 0 for none.
    const WRITE_CLASS_SHIFT: u32 = 3;
    const WRITE_CLASS: u8 = 3 << WRITE_CLASS_SHIFT;

    /// The bits of a class.
    pub(super) const fn of_write_class(class: Option<WriteClass>) -> u8 {
        let number: u8 = match class {
            None => 0,
            Some(WriteClass::Buffered) => 1,
            Some(WriteClass::Direct) => 2,
            Some(WriteClass::Synchronous) => 3,
        };
        number << WRITE_CLASS_SHIFT
    }

    /// The class in the flags, if there is one.
    pub(super) const fn known_write_class(flags: u8) -> Option<WriteClass> {
        match (flags & WRITE_CLASS) >> WRITE_CLASS_SHIFT {
            0 => None,
            1 => Some(WriteClass::Buffered),
            2 => Some(WriteClass::Direct),
            _ => Some(WriteClass::Synchronous),
        }
    }

    /// Whether the flags say the class of a write.
    #[must_use]
    pub const fn has_write_class(flags: u8) -> bool {
        flags & WRITE_CLASS != 0
    }

    /// The class of a write with these flags, [`ASSUMED_WRITE_CLASS`](super::ASSUMED_WRITE_CLASS) where they do not say it.
    #[must_use]
    #[inline]
    pub const fn write_class(flags: u8) -> WriteClass {
        match known_write_class(flags) {
            Some(class) => class,
            None => super::ASSUMED_WRITE_CLASS,
        }
    }
}

/// What writes are taken for whose records do not say their class.
pub const ASSUMED_WRITE_CLASS: WriteClass = WriteClass::Buffered;

/// A slot as four little-endian words.
pub type Slot = [u64; SLOT_BYTES / 8];

/// Number of a file within its process, from 1; 0 is no file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FileKey(pub u32);

/// Number of a communicator within its process, from 1; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CommunicatorKey(pub u16);

/// The offset of calls that have none, or that cannot know it (shared file pointers).
pub const NO_OFFSET: FileOffset = FileOffset(u64::MAX);

/// One call of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawEvent {
    /// What was called; tells interface and operation.
    pub call: Call,
    /// The open made the file.
    pub created: bool,
    /// What a write waits for; at opens and at `fcntl` what writes through the descriptor wait for from then on. `None` where it is
    /// not recorded: other calls, MPI-IO, version 1.
    pub write_class: Option<WriteClass>,
    /// 0 for a call that succeeded, otherwise errno (POSIX) or the MPI error class.
    pub errno: u32,
    /// The communicator that the MPI file was opened with; 0 at POSIX calls.
    pub communicator: CommunicatorKey,
    /// 0 where the call's file is not known.
    pub file: FileKey,
    /// First byte read or written; the new length for truncations; the [`FileKey`] of the new name for renames; else [`NO_OFFSET`].
    pub offset: FileOffset,
    /// Bytes that moved; 0 for failed calls.
    pub bytes: u64,
    /// When the call was entered.
    pub start: Ticks,
    /// Not before `start`.
    pub end: Ticks,
}

impl RawEvent {
    /// A successful call without communicator.
    #[must_use]
    pub const fn new(call: Call, file: FileKey, offset: FileOffset, bytes: u64, start: Ticks, end: Ticks) -> Self {
        Self {
            call,
            created: false,
            write_class: None,
            errno: 0,
            communicator: CommunicatorKey(0),
            file,
            offset,
            bytes,
            start,
            end,
        }
    }

    /// The operation, opens that created their file told apart.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        match self.call.operation() {
            Operation::Open if self.created => Operation::Create,
            other => other,
        }
    }

    /// The record, and its extension when size or duration need more than 32 bits.
    #[inline(always)]
    #[must_use]
    pub const fn encode(&self) -> (Slot, Option<Slot>) {
        let duration = self.end.0.saturating_sub(self.start.0);
        let size = if self.errno == 0 { self.bytes } else { self.errno as u64 };
        let extended = (size | duration) >> 32 != 0;
        let mut flags = flag::of_write_class(self.write_class);
        if self.errno != 0 {
            flags |= flag::FAILED;
        }
        if extended {
            flags |= flag::EXTENDED;
        }
        if self.created {
            flags |= flag::CREATED;
        }
        let head = self.call.code() as u64
            | (flags as u64) << 8
            | (self.communicator.0 as u64) << 16
            | (self.file.0 as u64) << 32;
        let slot = [head, self.offset.0, size & 0xFFFF_FFFF | duration << 32, self.start.0];
        let extension = if extended { Some([tag::EXTENSION as u64, size, duration, self.start.0]) } else { None };
        (slot, extension)
    }

    /// The event of a record slot; `next` is the slot after it. None: not a record, or an extension that is missing.
    #[inline]
    #[must_use]
    pub fn decode(slot: &Slot, next: Option<&Slot>) -> Option<Self> {
        let [head, offset, sizes, start] = *slot;
        let call = Call::from_code(head as u8)?;
        let flags = (head >> 8) as u8;
        let (size, duration) = if flags & flag::EXTENDED == 0 {
            (sizes & 0xFFFF_FFFF, sizes >> 32)
        } else {
            let extension = next?;
            // The start is repeated there, so that a slot of another call is never taken for the extension.
            if extension[0] as u8 != tag::EXTENSION || extension[3] != start {
                return None;
            }
            (extension[1], extension[2])
        };
        let failed = flags & flag::FAILED != 0;
        Some(Self {
            call,
            created: flags & flag::CREATED != 0,
            write_class: flag::known_write_class(flags),
            errno: if failed { size as u32 } else { 0 },
            communicator: CommunicatorKey((head >> 16) as u16),
            file: FileKey((head >> 32) as u32),
            offset: FileOffset(offset),
            bytes: if failed { 0 } else { size },
            start: Ticks(start),
            end: Ticks(start.wrapping_add(duration)),
        })
    }
}

/// The slot of 32 bytes as they stand in the file.
#[inline]
#[must_use]
pub fn slot_from_bytes(bytes: &[u8; SLOT_BYTES]) -> Slot {
    let (words, _) = bytes.as_chunks::<8>();
    [
        u64::from_le_bytes(words[0]),
        u64::from_le_bytes(words[1]),
        u64::from_le_bytes(words[2]),
        u64::from_le_bytes(words[3]),
    ]
}

/// The bytes of a slot as they stand in the file.
#[must_use]
pub fn slot_to_bytes(slot: &Slot) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    let (words, _) = bytes.as_chunks_mut::<8>();
    for (target, word) in words.iter_mut().zip(slot) {
        *target = word.to_le_bytes();
    }
    bytes
}

/// Bytes of a name that fit into one continuation slot.
pub const CONTINUATION_BYTES: usize = SLOT_BYTES - 1;
/// Longest name that is stored; longer ones are cut.
pub const NAME_LIMIT: usize = 4096;

/// Slots that a definition with a name of that length takes, the first one included.
#[must_use]
pub const fn definition_slots(name_bytes: usize) -> usize {
    1 + name_bytes.div_ceil(CONTINUATION_BYTES)
}

/// The first slot of a definition: what follows the tag, and the length of the name that its continuations hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Definition {
    /// A file, named before its first record.
    File {
        /// Number by which records refer to it.
        key: FileKey,
        /// `st_dev`; 0 when unknown.
        device: u64,
        /// `st_ino`; 0 when unknown.
        inode: u64,
        /// Length of its path, at most [`NAME_LIMIT`].
        name_bytes: u16,
    },
    /// A communicator, named before its first record.
    Communicator {
        /// Number by which records refer to it.
        key: CommunicatorKey,
        /// The same in all its processes, so that their traces can be joined.
        hash: u64,
        /// Processes in it.
        size: u32,
        /// Rank of this process in it.
        rank: u32,
        /// Length of its name, at most [`NAME_LIMIT`].
        name_bytes: u16,
    },
}

impl Definition {
    /// The slot; the name goes into those after it ([`continuation`]).
    #[must_use]
    pub const fn encode(&self) -> Slot {
        match *self {
            Self::File { key, device, inode, name_bytes } => {
                [tag::DEFINE_FILE as u64 | (name_bytes as u64) << 16 | (key.0 as u64) << 32, device, inode, 0]
            }
            Self::Communicator { key, hash, size, rank, name_bytes } => [
                tag::DEFINE_COMMUNICATOR as u64 | (name_bytes as u64) << 16 | (key.0 as u64) << 32,
                hash,
                size as u64 | (rank as u64) << 32,
                0,
            ],
        }
    }

    /// None when the slot is not a definition.
    #[must_use]
    pub const fn decode(slot: &Slot) -> Option<Self> {
        let name_bytes = (slot[0] >> 16) as u16;
        let key = (slot[0] >> 32) as u32;
        match slot[0] as u8 {
            tag::DEFINE_FILE => Some(Self::File { key: FileKey(key), device: slot[1], inode: slot[2], name_bytes }),
            tag::DEFINE_COMMUNICATOR => Some(Self::Communicator {
                key: CommunicatorKey(key as u16),
                hash: slot[1],
                size: slot[2] as u32,
                rank: (slot[2] >> 32) as u32,
                name_bytes,
            }),
            _ => None,
        }
    }

    /// Length of the name that the continuations hold.
    #[must_use]
    pub const fn name_bytes(&self) -> usize {
        match *self {
            Self::File { name_bytes, .. } | Self::Communicator { name_bytes, .. } => name_bytes as usize,
        }
    }
}

/// The continuation slot number `index` (from 0) of a name.
#[must_use]
pub fn continuation(name: &[u8], index: usize) -> Slot {
    let mut bytes = [0; SLOT_BYTES];
    bytes[0] = tag::CONTINUATION;
    let start = (index * CONTINUATION_BYTES).min(name.len());
    let end = (start + CONTINUATION_BYTES).min(name.len());
    if let (Some(target), Some(part)) = (bytes.get_mut(1..=end - start), name.get(start..end)) {
        target.copy_from_slice(part);
    }
    slot_from_bytes(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_event() -> impl Strategy<Value = RawEvent> {
        let sizes = prop_oneof![any::<u64>(), 0..100_000u64, Just(u64::from(u32::MAX)), Just(1 << 32)];
        let class = proptest::option::of(0..WriteClass::ALL.len());
        let head = (0..Call::ALL.len(), any::<bool>(), class, prop_oneof![Just(0u32), any::<u32>()], any::<u16>());
        (head, any::<u32>(), any::<u64>(), sizes.clone(), 0..1u64 << 60, sizes).prop_map(
            |((call, created, class, errno, communicator), file, offset, bytes, start, duration)| RawEvent {
                call: Call::ALL[call],
                created,
                write_class: class.map(|class| WriteClass::ALL[class]),
                errno,
                communicator: CommunicatorKey(communicator),
                file: FileKey(file),
                offset: FileOffset(offset),
                bytes: if errno == 0 { bytes } else { 0 },
                start: Ticks(start),
                end: Ticks(start + (duration >> 4)),
            },
        )
    }

    proptest! {
        #[test]
        fn an_event_comes_back_from_its_slots(event in any_event()) {
            let (slot, extension) = event.encode();
            prop_assert_eq!(slot_from_bytes(&slot_to_bytes(&slot)), slot);
            prop_assert_eq!(RawEvent::decode(&slot, extension.as_ref()), Some(event));
            if extension.is_some() {
                prop_assert_eq!(RawEvent::decode(&slot, None), None);
                prop_assert_eq!(RawEvent::decode(&slot, Some(&slot)), None);
            }
        }

        #[test]
        fn a_name_comes_back_from_its_continuations(name in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut back = Vec::new();
            for index in 0..definition_slots(name.len()) - 1 {
                let bytes = slot_to_bytes(&continuation(&name, index));
                prop_assert_eq!(bytes[0], tag::CONTINUATION);
                back.extend_from_slice(&bytes[1..]);
            }
            prop_assert!(back.len() < name.len() + CONTINUATION_BYTES);
            back.truncate(name.len());
            prop_assert_eq!(back, name);
        }
    }
}
