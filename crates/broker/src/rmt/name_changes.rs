//! Calls that change names of managed files (unlink, rename, exchange). Each is recorded before it is made.

use super::records::{encode, file as file_id};
use super::{Changes, Inode, RmtError, SCAN, Table, decode};
use minicbor::{Decode, Encode};
use stripewise_layout::FileId;
use stripewise_store::protocol::NameCall;

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Place {
    /// Path of the directory when the call was made.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub path: Vec<u8>,
    /// Inode of the directory.
    #[n(1)]
    pub directory: Inode,
    /// Name in the directory.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub name: Vec<u8>,
}

/// The managed file whose name is to go or, in an exchange, to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Victim {
    /// The managed file.
    #[cbor(n(0), with = "file_id")]
    pub file: FileId,
    /// Inode of its stub.
    #[n(1)]
    pub stub: Inode,
    /// Names that it had before the call.
    #[n(2)]
    pub links: u32,
}

/// The file that gets another name: of a managed one, its stub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Mover {
    /// Inode of the ordinary file or of the stub.
    #[n(0)]
    pub inode: Inode,
    /// File id, if the file is managed.
    #[n(1)]
    managed: Option<u64>,
    /// Whether the caller is yet to give the file the source's name. If the file is ordinary, that name is removed when the caller
    /// dies.
    #[n(2)]
    nameless: Option<bool>,
}

impl Mover {
    #[must_use]
    pub fn new(inode: Inode, file: Option<FileId>) -> Self {
        Self { inode, managed: file.map(|file| file.0), nameless: None }
    }

    /// One that has no name yet: the caller is about to give it the source's.
    #[must_use]
    pub fn nameless(inode: Inode, file: Option<FileId>) -> Self {
        Self { nameless: Some(true), ..Self::new(inode, file) }
    }

    #[must_use]
    pub fn file(&self) -> Option<FileId> {
        self.managed.map(FileId)
    }

    #[must_use]
    pub fn is_nameless(&self) -> bool {
        self.nameless == Some(true)
    }
}

/// The process that makes a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Caller {
    /// Its process slot.
    #[n(0)]
    pub slot: u16,
    /// Incarnation of the slot.
    #[n(1)]
    pub incarnation: u64,
}

/// A call that was about to change names. The client draws the number under which the record is stored. The record is durable
/// before the call is made, and it is removed when the call's outcome is known.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct NameChange {
    /// Stored as 0 `Remove`, 1 `Rename` or 2 `Exchange`.
    #[cbor(n(0), with = "name_call")]
    pub call: NameCall,
    /// Known by its slot, in that boot.
    #[n(1)]
    pub caller: Option<Caller>,
    /// Boot of the host when the call was about to be made.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub boot: [u8; 16],
    /// The name that is removed or given.
    #[n(3)]
    pub target: Place,
    /// The name that is given up.
    #[n(4)]
    pub source: Option<Place>,
    /// The managed file at the target.
    #[n(5)]
    pub victim: Option<Victim>,
    /// The file at the source.
    #[n(6)]
    pub mover: Option<Mover>,
}

impl NameChange {
    /// The source, if it is a temporary name that the caller alone gives an ordinary file. Of a managed one, the file's own record knows.
    #[must_use]
    pub fn temporary(&self) -> Option<(&Place, Inode)> {
        let mover = self.mover.filter(|mover| mover.is_nameless() && mover.managed.is_none())?;
        Some((self.source.as_ref()?, mover.inode))
    }

    /// Whether anything is to be settled when the caller or the broker dies.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.files().next().is_some() || self.temporary().is_some()
    }

    /// Managed files that it concerns.
    pub fn files(&self) -> impl Iterator<Item = FileId> {
        self.victim.map(|victim| victim.file).into_iter().chain(self.mover.and_then(|mover| mover.file()))
    }
}

fn change_key(number: u64) -> Vec<u8> {
    let mut key = vec![b'n'];
    key.extend(number.to_be_bytes());
    key
}

impl Changes {
    pub fn put_name_change(&mut self, number: u64, change: &NameChange) {
        self.set(change_key(number), Some(encode(change)));
    }

    pub fn remove_name_change(&mut self, number: u64) {
        self.set(change_key(number), None);
    }
}

impl Table {
    /// All that are not settled.
    pub fn name_changes(&self) -> Result<Vec<(u64, NameChange)>, RmtError> {
        let (mut all, mut after) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let entries = self.store.scan(b"n", after.as_deref(), SCAN)?;
            for (key, value) in &entries {
                let number = key.get(1..9).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
                all.push((number, decode(key, value)?));
            }
            match entries.into_iter().next_back() {
                Some((last, _)) => after = Some(last),
                None => return Ok(all),
            }
        }
    }
}

/// The number of a call in the table.
mod name_call {
    use minicbor::decode::{Decoder, Error};
    use minicbor::encode::{Encoder, Write};
    use stripewise_store::protocol::NameCall;

    pub(super) fn encode<C, W: Write>(
        call: &NameCall,
        encoder: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        let number = match call {
            NameCall::Remove => 0,
            NameCall::Rename => 1,
            NameCall::Exchange => 2,
        };
        encoder.u8(number)?.ok()
    }

    pub(super) fn decode<C>(decoder: &mut Decoder<'_>, _: &mut C) -> Result<NameCall, Error> {
        match decoder.u32()? {
            0 => Ok(NameCall::Remove),
            1 => Ok(NameCall::Rename),
            2 => Ok(NameCall::Exchange),
            other => Err(Error::unknown_variant(other.into())),
        }
    }
}
