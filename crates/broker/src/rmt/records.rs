//! The values of the table: maps with numbered fields in [CBOR](https://www.rfc-editor.org/rfc/rfc8949).
//!
//! A field keeps its number for ever. A new field gets a number that was never used, and it is optional or has a default, so that
//! the version of the table stays: earlier records are read without the field, and a stripewise that does not know the field drops
//! it when it rewrites the record. Where this would lose something, [`HeadRecord::needs`] names the feature, and a stripewise that
//! does not know the feature refuses the table.
//!
//! A layout is an array of server numbers and stripe sizes in turn. An enumeration is an array of the variant's number, from 0,
//! and a map of the variant's fields. A value that is not a record of its own is a map with the single field 0: the layout of an
//! `o`, the list of a `w` or an `x`, the file id of an `i`, and the boolean of a `g`.

use super::RmtError;
use super::inode::Inode;
use super::keys::describe;
use crate::agent_identity::AgentIdentity;
use minicbor::{Decode, Encode};
use stripewise_layout::{FileId, Generation, Layout, Placement, RegionIndex, Run, ServerId};
use stripewise_store::protocol::WantedReplicas;

/// Where a managed file is in its life.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub enum FileState {
    /// The stub has no name yet.
    #[n(0)]
    Creating,
    /// The stub has a name.
    #[n(1)]
    Live,
    /// `apply` copies an ordinary file in; `temporary` is the stub's name meanwhile. `complete` once the data is in place and synced.
    #[n(2)]
    Importing {
        #[n(0)]
        original: Inode,
        #[n(1)]
        temporary: String,
        #[n(2)]
        complete: bool,
    },
    /// `release` copies it out to `temporary`.
    #[n(3)]
    Releasing {
        #[n(0)]
        copy: Inode,
        #[n(1)]
        temporary: String,
    },
    /// No name is left; freed with the last user.
    #[n(4)]
    Unlinked,
}

/// What the table says of one file.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct FileRecord {
    /// Where the stub stood when last heard of: a hint.
    #[n(0)]
    pub path: String,
    /// The inode that is the stub.
    #[n(1)]
    pub stub: Inode,
    /// Boot of the host when `stub.device` was seen: device numbers may differ after the next one.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub boot: [u8; 16],
    /// Size of the file's regions in bytes.
    #[n(3)]
    pub region_bytes: u64,
    /// The durable size; while processes use the file, the shared extent knows more.
    #[n(4)]
    pub size_bytes: u64,
    /// Every generation up to this may have been used.
    #[n(5)]
    pub generations_reserved: u32,
    /// Objects of generations up to this have durable names. A later one that a power failure took held nothing that was ever synced.
    #[n(6)]
    pub generations_synced: u32,
    /// The phase of the file's life.
    #[n(7)]
    pub state: FileState,
    /// A truncation that may be unfinished: the file must be truncated to this size before anything else happens to it.
    #[n(8)]
    pub truncating_to_bytes: Option<u64>,
    /// A server may hold bytes beyond the file's size because it failed during a truncation. The broker tries again at the next
    /// occasion.
    #[cbor(n(9), default)]
    pub has_leftovers: bool,
    /// Mode of stub and objects, as last applied to the objects.
    #[n(10)]
    pub mode: u32,
    /// Owner of stub and objects, as last applied to the objects.
    #[n(11)]
    pub uid: u32,
    /// Group of stub and objects, as last applied to the objects.
    #[n(12)]
    pub gid: u32,
    /// Time of creation in ns since 1970.
    #[n(13)]
    pub created_ns: u64,
    /// Reserved for the number of the file's owner among several brokers; 0 while there is one broker.
    #[cbor(n(14), default)]
    pub epoch: u64,
    /// Directory that the stub's name was last seen in.
    #[n(15)]
    pub parent: Option<Inode>,
    /// The managed directory above the stub, free of symbolic links.
    #[n(16)]
    pub root: Option<String>,
    /// Servers hold descriptions of all its regions. Those of files of earlier versions are written when the file is first loaded.
    #[cbor(n(17), default)]
    pub is_described: bool,
    /// Directories above `parent`, the nearest first, at most 64.
    #[cbor(n(18), default)]
    pub above: Vec<Inode>,
    /// Nobody has told the servers of the size, which may be another than what they hold shows.
    #[cbor(n(19), default)]
    pub is_size_untold: bool,
    /// The boot in which the file's shared memory was removed in order, when nobody used it: nothing lies beyond the size.
    #[cbor(n(20), with = "minicbor::bytes", default)]
    pub put_away_in: Option<[u8; 16]>,
    /// What the memory said then of lines of its descriptions: not all are synced.
    #[cbor(n(21), default)]
    pub put_away_unsynced: bool,
    /// The number by which a client asked for the truncation that may be unfinished, where hosts share the file.
    #[cbor(n(22), default)]
    pub truncating_number: Option<u64>,
    /// Those of the last that took effect, at most 64, the latest last.
    #[cbor(n(23), default)]
    pub truncation_numbers: Vec<u64>,
    /// The last truncation, as masters count them: a size that a host knew before says nothing.
    #[cbor(n(24), default)]
    pub truncations: u64,
}

/// Truncations of a file whose numbers are kept. They follow each other, and the answer of one is on its way when the next begins.
const TRUNCATIONS_KEPT: usize = 64;

impl FileRecord {
    /// With the truncation of this number, or the unfinished one, among those that took effect.
    #[must_use]
    pub fn with_truncation(mut self, number: Option<u64>) -> Self {
        self.truncation_numbers.extend(self.truncating_number.take().or(number));
        let surplus = self.truncation_numbers.len().saturating_sub(TRUNCATIONS_KEPT);
        self.truncation_numbers.drain(..surplus);
        self
    }
}

/// A host of a cluster that has many.
#[derive(Clone, PartialEq, Eq, Default, Debug, Encode, Decode)]
#[cbor(map)]
pub struct HostRecord {
    /// Directories that were probed with it, of a host that is known.
    #[cbor(n(0), default)]
    pub probed: Vec<String>,
    /// The agent that was there last, of a host that may have files open; the one that these directories were probed with, of a host that is known.
    #[n(1)]
    pub agent: Option<AgentIdentity>,
    /// Those that have yet to learn it, of a host that was shut out; none: whichever comes.
    #[cbor(n(2), default)]
    pub shut_out: Vec<AgentIdentity>,
}

/// The key by which the hosts of a cluster know each other, once it was replaced.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct KeyRecord {
    /// Of the present key.
    #[n(0)]
    pub fingerprint: String,
    /// The order by which it came.
    #[n(1)]
    pub order: u64,
    /// No host accepts the key before it any more.
    #[n(2)]
    pub has_ended: bool,
}

/// Where one region lies.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct RegionRecord {
    /// Generation of the objects that hold the region's data.
    #[cbor(n(0), with = "generation")]
    pub generation: Generation,
    /// Server numbers and stripe sizes in bytes.
    #[cbor(n(1), with = "layout")]
    pub layout: Layout,
    /// The planned layout had not enough free space, so the fallback layout was used.
    #[cbor(n(2), default)]
    pub fell_back: bool,
    /// Of a narrow region, whose `layout` is the first stripe of this one: what it gets before more than that stripe is written, and what is promised to
    /// it. A stripewise that does not know the field leaves the region on one server.
    #[cbor(n(3), with = "wide", default)]
    pub wide: Option<Layout>,
    /// The region was narrow, and the names of the objects of its other stripes may not be durable.
    #[cbor(n(4), default)]
    pub has_new_names: bool,
}

impl RegionRecord {
    /// Of a region that lies as planned, in all of its layout.
    #[must_use]
    pub fn placed(generation: Generation, layout: Layout) -> Self {
        Self { generation, layout, fell_back: false, wide: None, has_new_names: false }
    }

    /// The layout of which each server promises its share.
    #[must_use]
    pub fn promised(&self) -> &Layout {
        self.wide.as_ref().unwrap_or(&self.layout)
    }
}

/// A replica of a region that equals the region's place. Before the region is written, the record becomes an `o`.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct ReplicaRecord {
    /// Generation of the replica's objects.
    #[cbor(n(0), with = "generation")]
    pub generation: Generation,
    /// Server numbers and stripe sizes in bytes.
    #[cbor(n(1), with = "layout")]
    pub layout: Layout,
}

/// The log of a file's fragments on one disk: an object on an SSD, named as if it belonged to region 2^20 + number of the disk.
///
/// The record is durable before the object is made. The log may hold bytes that are newer than the disk. It is valid only together
/// with the file's table of fragments of the same boot (`stripewise_store::shared::fragments`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct LogRecord {
    /// Server that holds it.
    #[cbor(n(0), with = "server")]
    pub on: ServerId,
    /// Generation of the log's object.
    #[cbor(n(1), with = "generation")]
    pub generation: Generation,
}

/// Whose table it is. Regions name servers by number, so the order of names is part of it.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct ClusterRecord {
    /// `id` of `cluster.toml`.
    #[n(0)]
    pub id: String,
    /// Names of the servers, in order.
    #[n(1)]
    pub servers: Vec<String>,
}

/// What all the other records add up to; replaced with every transaction.
#[derive(Clone, PartialEq, Eq, Default, Debug, Encode, Decode)]
#[cbor(map)]
pub struct HeadRecord {
    /// Number of records, without this one.
    #[n(0)]
    pub records: u64,
    /// Sum modulo 2^128 of the records' 128-bit hashes, little-endian.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub digest: [u8; 16],
    /// Grows with every transaction.
    #[n(2)]
    pub transactions: u64,
    /// Features without which nobody may change this table.
    #[cbor(n(3), default)]
    pub needs: Vec<String>,
}

/// A `Placement` of crate `layout`, with its fields in the same order, and what a managed directory says besides.
#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct PlacementRecord {
    #[n(0)]
    region_bytes: u64,
    #[cbor(n(1), with = "layouts")]
    layouts: Vec<Layout>,
    /// Number of regions and of their layout.
    #[n(2)]
    runs: Vec<(u32, u32)>,
    #[n(3)]
    beyond: u32,
    #[n(4)]
    fallback: u32,
    /// Of a managed directory: files that are smaller become ordinary once nobody has them open, and larger ones managed.
    #[n(5)]
    pub(super) min_bytes: Option<u64>,
}

impl From<&Placement> for PlacementRecord {
    fn from(placement: &Placement) -> Self {
        Self {
            region_bytes: placement.region_size.0,
            layouts: placement.layouts.clone(),
            runs: placement.runs.iter().map(|run| (run.regions, run.layout)).collect(),
            beyond: placement.beyond,
            fallback: placement.fallback,
            min_bytes: None,
        }
    }
}

impl From<PlacementRecord> for Placement {
    fn from(record: PlacementRecord) -> Self {
        Self {
            region_size: stripewise_layout::ByteCount(record.region_bytes),
            layouts: record.layouts,
            runs: record.runs.into_iter().map(|(regions, layout)| Run { regions, layout }).collect(),
            beyond: record.beyond,
            fallback: record.fallback,
        }
    }
}

/// Layouts that take the places of others.
pub(super) type Relaid<T> = Result<Option<T>, ServerId>;

impl PlacementRecord {
    /// With other layouts in the places of those that change; `None`: all stay.
    pub(super) fn relaid(mut self, relaid: impl Fn(&Layout) -> Relaid<Layout>) -> Relaid<Self> {
        let changed = relay_all(self.layouts.iter_mut(), relaid)?;
        Ok(changed.then_some(self))
    }
}

/// Whether any was changed.
fn relay_all<'l>(
    layouts: impl Iterator<Item = &'l mut Layout>,
    relaid: impl Fn(&Layout) -> Relaid<Layout>,
) -> Result<bool, ServerId> {
    let mut changed = false;
    for layout in layouts {
        if let Some(other) = relaid(layout)? {
            *layout = other;
            changed = true;
        }
    }
    Ok(changed)
}

/// Objects that belong to no region.
#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct DiscardRecord {
    #[cbor(n(0), with = "layout")]
    pub(super) layout: Layout,
}

/// The further copies that a file's regions are to have.
#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct WantedRecord {
    #[n(0)]
    replicas: Vec<ReplicasRecord>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct ReplicasRecord {
    /// First of the regions.
    #[cbor(n(0), with = "region")]
    first: RegionIndex,
    /// Number of regions.
    #[n(1)]
    regions: u32,
    /// Layout of the replica of each region.
    #[cbor(n(2), with = "layout")]
    layout: Layout,
}

impl WantedRecord {
    pub(super) fn new(wanted: impl IntoIterator<Item = WantedReplicas>) -> Self {
        let record = |WantedReplicas { first, regions, layout }| ReplicasRecord { first, regions, layout };
        Self { replicas: wanted.into_iter().map(record).collect() }
    }

    /// See [`PlacementRecord::relaid`].
    pub(super) fn relaid(mut self, relaid: impl Fn(&Layout) -> Relaid<Layout>) -> Relaid<Self> {
        let changed = relay_all(self.replicas.iter_mut().map(|replicas| &mut replicas.layout), relaid)?;
        Ok(changed.then_some(self))
    }

    pub(super) fn into_wanted(self) -> Vec<WantedReplicas> {
        let wanted = |ReplicasRecord { first, regions, layout }| WantedReplicas { first, regions, layout };
        self.replicas.into_iter().map(wanted).collect()
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct InodeRecord {
    #[cbor(n(0), with = "file")]
    pub(super) file: FileId,
}

/// Whether fragments of a file go to SSDs.
#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct FragmentsRecord {
    #[n(0)]
    pub(super) on: bool,
}

pub(super) fn encode<T: Encode<()>>(record: &T) -> Vec<u8> {
    minicbor::to_vec(record).expect("memory takes all")
}

/// Exactly one record of this kind.
pub(super) fn decode<T: for<'b> Decode<'b, ()>>(key: &[u8], bytes: &[u8]) -> Result<T, RmtError> {
    let damaged = |what: String| RmtError::Damaged { key: describe(key), what };
    let mut decoder = minicbor::Decoder::new(bytes);
    let record = decoder.decode().map_err(|error| damaged(error.to_string()))?;
    match bytes.len() - decoder.position() {
        0 => Ok(record),
        more => Err(damaged(format!("{more} bytes follow the record"))),
    }
}

/// How the newtypes of the layout stand in records: as their numbers.
macro_rules! number {
    ($module:ident, $type:path, $method:ident) => {
        pub(super) mod $module {
            use minicbor::encode::Write;
            use minicbor::{Decoder, Encoder};

            pub(in crate::rmt) fn encode<C, W: Write>(
                value: &$type,
                encoder: &mut Encoder<W>,
                _: &mut C,
            ) -> Result<(), minicbor::encode::Error<W::Error>> {
                encoder.$method(value.0)?.ok()
            }

            pub(in crate::rmt) fn decode<C>(
                decoder: &mut Decoder<'_>,
                _: &mut C,
            ) -> Result<$type, minicbor::decode::Error> {
                decoder.$method().map($type)
            }
        }
    };
}

number!(file, stripewise_layout::FileId, u64);
number!(generation, stripewise_layout::Generation, u32);
number!(region, stripewise_layout::RegionIndex, u32);
number!(server, stripewise_layout::ServerId, u16);

/// A layout: an array of server and stripe size in turn.
mod layout {
    use minicbor::decode::Error;
    use minicbor::encode::Write;
    use minicbor::{Decoder, Encoder};
    use stripewise_layout::{Layout, MAX_SERVERS_PER_LAYOUT, ServerId};

    pub(super) fn encode<C, W: Write>(
        layout: &Layout,
        encoder: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        encoder.array(2 * layout.stripes().len() as u64)?;
        for stripe in layout.stripes() {
            encoder.u16(stripe.server.0)?.u32(stripe.size_bytes)?;
        }
        Ok(())
    }

    pub(super) fn decode<C>(decoder: &mut Decoder<'_>, _: &mut C) -> Result<Layout, Error> {
        let length = decoder.array()?.filter(|length| length % 2 == 0 && *length <= 2 * MAX_SERVERS_PER_LAYOUT as u64);
        let count = length.ok_or_else(|| Error::message("a layout that is no list of pairs"))? / 2;
        let mut pairs = Vec::with_capacity(count as usize);
        for _ in 0..count {
            pairs.push((ServerId(decoder.u16()?), decoder.u32()?));
        }
        Layout::new(pairs).map_err(|error| Error::message(error.to_string()))
    }
}

/// A layout or null.
mod wide {
    use minicbor::data::Type;
    use minicbor::decode::Error;
    use minicbor::encode::Write;
    use minicbor::{Decoder, Encoder};
    use stripewise_layout::Layout;

    pub(super) fn encode<C, W: Write>(
        wide: &Option<Layout>,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        match wide {
            Some(layout) => super::layout::encode(layout, encoder, context),
            None => encoder.null()?.ok(),
        }
    }

    pub(super) fn decode<C>(decoder: &mut Decoder<'_>, context: &mut C) -> Result<Option<Layout>, Error> {
        match decoder.datatype()? {
            Type::Null => decoder.null().map(|()| None),
            _ => super::layout::decode(decoder, context).map(Some),
        }
    }
}

mod layouts {
    use minicbor::decode::Error;
    use minicbor::encode::Write;
    use minicbor::{Decoder, Encoder};
    use stripewise_layout::Layout;

    pub(super) fn encode<C, W: Write>(
        layouts: &[Layout],
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        encoder.array(layouts.len() as u64)?;
        layouts.iter().try_for_each(|layout| super::layout::encode(layout, encoder, context))
    }

    pub(super) fn decode<C>(decoder: &mut Decoder<'_>, context: &mut C) -> Result<Vec<Layout>, Error> {
        let count = decoder.array()?.ok_or_else(|| Error::message("layouts without their number"))?;
        (0..count).map(|_| super::layout::decode(decoder, context)).collect()
    }
}
