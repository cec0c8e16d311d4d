//! A quick hash for small keys of our own making.

use std::hash::{BuildHasherDefault, Hasher};

/// A multiplication is all that these keys need; their words differ in the low bits.
#[derive(Default)]
pub(super) struct MultiplyHasher(u64);

pub(super) type Quick = BuildHasherDefault<MultiplyHasher>;

/// 2^64 divided by the golden ratio.
pub(super) const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for MultiplyHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(SPREAD);
    }
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
}
