//! What is asked of one object in one round trip.

use super::RadosError;
use std::marker::PhantomData;

/// Which of an object's writers may write it. It grows; an operation that names another than the object's is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Of an object that was just made.
    pub const FIRST: Self = Self(1);
}

/// Contiguous memory of an operation, lent for `'a`.
#[derive(Debug)]
pub struct Piece<'a> {
    start: *mut u8,
    length: usize,
    lent: PhantomData<&'a mut [u8]>,
}

// SAFETY: memory lent like a slice, which may be lent to another thread as well.
unsafe impl Send for Piece<'_> {}

impl<'a> Piece<'a> {
    /// Memory to be filled.
    #[must_use]
    pub fn to_fill(memory: &'a mut [u8]) -> Self {
        Self { start: memory.as_mut_ptr(), length: memory.len(), lent: PhantomData }
    }

    /// Memory that is only read.
    #[must_use]
    pub fn to_take(memory: &'a [u8]) -> Self {
        Self { start: memory.as_ptr().cast_mut(), length: memory.len(), lent: PhantomData }
    }

    /// # Safety
    /// The memory is valid for reads (a write operation) or for reads and writes (a read operation) for `'a`.
    pub unsafe fn from_raw(start: *mut u8, length: usize) -> Self {
        Self { start, length, lent: PhantomData }
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }
}

/// One operation on one object: atomic, and refused as a whole where the object is not of the epoch.
#[derive(Debug)]
pub enum Operation<'a> {
    /// Makes an empty object of an epoch; [`RadosError::Exists`] if there is one.
    Create {
        /// The new object's.
        epoch: Epoch,
    },
    /// Reads from `offset` on; fewer bytes than asked for where the object ends.
    Read {
        /// The object's.
        epoch: Epoch,
        /// First byte.
        offset: u64,
        /// Where the bytes go.
        into: Piece<'a>,
    },
    /// Writes from `offset` on, all of it.
    Write {
        /// The object's.
        epoch: Epoch,
        /// First byte.
        offset: u64,
        /// The bytes.
        from: Piece<'a>,
    },
    /// Makes the object so long; a shorter one is filled up with zeros.
    Truncate {
        /// The object's.
        epoch: Epoch,
        /// In bytes.
        length: u64,
    },
    /// Gives the object another epoch: from then on its writers of before are refused.
    RaiseEpoch {
        /// The object's.
        from: Epoch,
        /// The new one.
        to: Epoch,
    },
    /// The object's length.
    Stat {
        /// The object's.
        epoch: Epoch,
    },
    /// Removes the object; of any epoch where none is given.
    Remove {
        /// The object's.
        epoch: Option<Epoch>,
    },
    /// Appends to an object without epoch, which has to be there.
    Append {
        /// The bytes.
        from: &'a [u8],
    },
    /// Replaces an object without epoch, or makes it.
    Replace {
        /// The bytes.
        from: &'a [u8],
    },
    /// Reads an object without epoch.
    ReadPlain {
        /// First byte.
        offset: u64,
        /// Where the bytes go.
        into: Piece<'a>,
    },
    /// Length of an object without epoch.
    StatPlain,
    /// Sets keys in the omap of an object without epoch, which is made if it is not there.
    SetKeys(&'a [(&'a str, &'a [u8])]),
    /// Removes keys of an object without epoch, which has to be there.
    RemoveKeys(&'a [&'a str]),
    /// Changes keys of an object without epoch, which has to be there, if all that is expected of them holds; else
    /// [`RadosError::Unmet`].
    ChangeKeys {
        /// Values that must stand there; an absent key counts as one with an empty value.
        expected: &'a [(&'a str, &'a [u8])],
        /// What stands there afterwards.
        set: &'a [(&'a str, &'a [u8])],
        /// Keys that are removed.
        remove: &'a [&'a str],
    },
    /// Of an object without epoch, as it is at one moment: the named keys that are there, and after them some that start with a
    /// prefix, each in order.
    ReadKeys {
        /// The named ones; may be none.
        keys: &'a [&'a str],
        /// The others.
        range: KeyRange<'a>,
        /// Where keys and values are appended.
        into: &'a mut Vec<(String, Vec<u8>)>,
    },
    /// Keys of an object without epoch, in order.
    Keys {
        /// The last key that is not wanted any more; empty: from the first one on.
        after: &'a str,
        /// Where keys and values are appended.
        into: &'a mut Vec<(String, Vec<u8>)>,
    },
}

/// Keys that follow each other.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'a> {
    /// What they start with.
    pub prefix: &'a str,
    /// The last key that is not wanted any more; empty: from the first one on.
    pub after: &'a str,
    /// How many at most; the cluster may give fewer (`osd_max_omap_entries_per_request`). 0: none.
    pub limit: u64,
}

impl KeyRange<'_> {
    /// No keys.
    pub const NONE: KeyRange<'static> = KeyRange { prefix: "", after: "", limit: 0 };
}

/// What an operation gave: the bytes of a read, the length of a stat, 1 where there are more keys, else 0.
pub type Completion = Result<u64, RadosError>;

impl Operation<'_> {
    /// The epoch that is asserted.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        match self {
            Operation::Read { epoch, .. }
            | Operation::Write { epoch, .. }
            | Operation::Truncate { epoch, .. }
            | Operation::RaiseEpoch { from: epoch, .. }
            | Operation::Stat { epoch } => Some(*epoch),
            Operation::Remove { epoch } => *epoch,
            Operation::Create { .. }
            | Operation::Append { .. }
            | Operation::Replace { .. }
            | Operation::ReadPlain { .. }
            | Operation::StatPlain
            | Operation::SetKeys(_)
            | Operation::RemoveKeys(_)
            | Operation::ChangeKeys { .. }
            | Operation::ReadKeys { .. }
            | Operation::Keys { .. } => None,
        }
    }

    /// In words, for errors.
    pub(super) fn action(&self) -> &'static str {
        match self {
            Operation::Create { .. } => "creating an object",
            Operation::Read { .. } | Operation::ReadPlain { .. } => "reading an object",
            Operation::Write { .. } | Operation::Append { .. } | Operation::Replace { .. } => "writing an object",
            Operation::Truncate { .. } => "truncating an object",
            Operation::RaiseEpoch { .. } => "raising an object's epoch",
            Operation::Stat { .. } | Operation::StatPlain => "asking for an object's length",
            Operation::Remove { .. } => "removing an object",
            Operation::SetKeys(_) => "setting an object's keys",
            Operation::ChangeKeys { .. } => "changing an object's keys",
            Operation::Keys { .. } | Operation::ReadKeys { .. } => "reading an object's keys",
            Operation::RemoveKeys(_) => "removing an object's keys",
        }
    }
}
