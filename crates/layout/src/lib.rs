//! Vocabulary and arithmetic of striped files: servers, regions, layouts, and the mapping of a byte range of a file to the
//! sub-requests that servers see, and back.
//!
//! The arithmetic is pure: no I/O, no clock, no randomness. How all crates read ([`input`]) and write ([`output`]) the files that a person
//! names, and how they write numbers for people ([`figures`]), stands here too, below everything that does. A file is cut into regions of one fixed size; every region has one
//! [`Layout`], a cycle of (server, stripe size) pairs repeated round-robin; what one server stores of a region is one object.
//! The mapping has a closed form, so a request of any length costs one division per end and server, never one per stripe.
#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

pub mod cluster;
pub mod figures;
pub mod input;
mod layout;
pub mod output;
mod placement;
pub mod printing;
mod region;
mod size;
mod split_mix;
pub mod text;

pub use cluster::{Cluster, ClusterError, Coordinator, FragmentLog, Server, ServerClass, ServerUrl, UrlNames};
pub use layout::{Layout, LayoutError, MAX_SERVERS_PER_LAYOUT, Place, Stripe, StripeView, SubRequest};
pub use placement::{Placement, Run};
pub use region::{RegionGeometry, RegionPiece};
pub use size::{ByteCount, ByteRate, ParseRateError, ParseSizeError};
pub use split_mix::SplitMix64;

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $repr:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(pub $repr);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// Position of a server in its cluster's list, from 0.
    ServerId, u16
);
number!(
    /// Number of a region within its file, from 0.
    RegionIndex, u32
);
number!(
    /// Number of a region's placement; 0 means "never placed". A move makes the next one; numbers are never reused within a file.
    Generation, u32
);
number!(
    /// Byte position within a logical file.
    FileOffset, u64
);
number!(
    /// Byte position within one region.
    RegionOffset, u64
);
number!(
    /// Byte position within one object on a server.
    ObjectOffset, u64
);

/// Identity of a managed file: 64 random bits, never 0, printed as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u64);

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl std::str::FromStr for FileId {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(FileId)
    }
}

impl Serialize for FileId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for FileId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FileId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "minLength": 16,
            "maxLength": 16,
            "description": "Identity of a managed file, 16 hexadecimal digits."
        })
    }
}

impl<'de> Deserialize<'de> for FileId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Which way the bytes of a request go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From servers to the program.
    Read,
    /// From the program to servers.
    Write,
}

/// What a write waits for before it returns. It decides what a write costs its process and what order the servers' devices
/// see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum WriteClass {
    /// For the device: `O_DIRECT` without `O_SYNC` or `O_DSYNC`.
    Direct,
    /// For a copy into memory: none of these flags. The kernel writes back later, in order of address.
    Buffered,
    /// For the device and a flush of its cache: `O_SYNC` or `O_DSYNC`.
    Synchronous,
}

impl WriteClass {
    /// Every class.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Buffered, Self::Synchronous];

    /// As printed in tables and exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
            Self::Synchronous => "synchronous",
        }
    }
}

impl fmt::Display for WriteClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A read, or a write of a class: what requests are told apart by besides size and order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RequestKind {
    /// From servers to the program.
    Read,
    /// From the program to servers.
    Write(WriteClass),
}

impl RequestKind {
    /// Every kind, by [`Self::index`].
    pub const ALL: [Self; 4] = [
        Self::Read,
        Self::Write(WriteClass::Direct),
        Self::Write(WriteClass::Buffered),
        Self::Write(WriteClass::Synchronous),
    ];

    /// Position in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Read => 0,
            Self::Write(WriteClass::Direct) => 1,
            Self::Write(WriteClass::Buffered) => 2,
            Self::Write(WriteClass::Synchronous) => 3,
        }
    }

    /// Which way the bytes go.
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Self::Read => Direction::Read,
            Self::Write(_) => Direction::Write,
        }
    }

    /// The class of a write; `None` for reads.
    #[must_use]
    pub const fn write_class(self) -> Option<WriteClass> {
        match self {
            Self::Read => None,
            Self::Write(class) => Some(class),
        }
    }
}

/// Requests that wait for the device, as those of the papers' equations do: writes are direct.
impl From<Direction> for RequestKind {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Read => Self::Read,
            Direction::Write => Self::Write(WriteClass::Direct),
        }
    }
}

/// Whether a request continues a recent one or starts elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The request starts where a recent one ended.
    Sequential,
    /// The request starts anywhere else; a disk seeks for it.
    Random,
}
