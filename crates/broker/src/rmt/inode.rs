//! What identifies a file to the kernel.

use minicbor::{Decode, Encode};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Hosts share the cluster that this process serves. Each has its own device number for a mount that all have.
static DEVICES_DIFFER: AtomicBool = AtomicBool::new(false);

/// From here on a birth tells what a device number does otherwise.
pub(crate) fn let_devices_differ() {
    DEVICES_DIFFER.store(true, Relaxed);
}

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
    /// Whether both are the same file: a birth that only one of them knows decides nothing. One that was recorded by another host may have another device number,
    /// and is the same if its birth is.
    #[must_use]
    pub fn is(&self, other: &Inode) -> bool {
        let born = self.born_ns == other.born_ns || self.born_ns == 0 || other.born_ns == 0;
        self.inode == other.inode && born && (self.device == other.device || self.is_on_another_host(other))
    }

    fn is_on_another_host(&self, other: &Inode) -> bool {
        DEVICES_DIFFER.load(Relaxed) && self.born_ns != 0 && self.born_ns == other.born_ns
    }
}
