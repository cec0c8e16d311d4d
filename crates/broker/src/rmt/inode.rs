//! What identifies a file to the kernel.

use minicbor::{Decode, Encode};

/// Identity of a file's stub, or of an ordinary file: where it stands in the kernel's eyes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Inode {
    /// Device number. It may differ after the next boot of the host.
    #[n(0)]
    pub device: u64,
    /// Inode number.
    #[n(1)]
    pub inode: u64,
    /// Time of birth in ns since 1970; 0 where the file system does not say. An inode number is used again, with another birth.
    #[n(2)]
    pub born_ns: u64,
}

impl Inode {
    /// Whether both are the same file: a birth that only one of them knows decides nothing.
    #[must_use]
    pub fn is(&self, other: &Inode) -> bool {
        let born = self.born_ns == other.born_ns || self.born_ns == 0 || other.born_ns == 0;
        self.device == other.device && self.inode == other.inode && born
    }
}
