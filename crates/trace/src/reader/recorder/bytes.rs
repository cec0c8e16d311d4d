//! Numbers of a file in the order in which they stand, little-endian as every machine that runs Recorder has them.

use super::RecorderFault;
use flate2::read::ZlibDecoder;
use std::borrow::Cow;
use std::io::Read as _;
use stripewise_layout::input::MAX_TRACE_BYTES;

/// What is not read yet.
#[derive(Clone, Copy)]
pub(super) struct Rest<'a>(pub(super) &'a [u8]);

impl<'a> Rest<'a> {
    pub(super) fn bytes(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], RecorderFault> {
        let (found, rest) = self.0.split_at_checked(count).ok_or(RecorderFault::Truncated { what })?;
        self.0 = rest;
        Ok(found)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], RecorderFault> {
        let (found, rest) = self.0.split_first_chunk::<N>().ok_or(RecorderFault::Truncated { what })?;
        self.0 = rest;
        Ok(*found)
    }

    pub(super) fn i32(&mut self, what: &'static str) -> Result<i32, RecorderFault> {
        self.array(what).map(i32::from_le_bytes)
    }

    pub(super) fn f64(&mut self, what: &'static str) -> Result<f64, RecorderFault> {
        self.array(what).map(f64::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, RecorderFault> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A number of things, of which each takes `least` bytes or more of what follows.
    pub(super) fn count(&mut self, least: usize, what: &'static str) -> Result<usize, RecorderFault> {
        let found = self.i32(what)?;
        let count = usize::try_from(found).map_err(|_| RecorderFault::number(what, found))?;
        match count.checked_mul(least).is_some_and(|bytes| bytes <= self.0.len()) {
            true => Ok(count),
            false => Err(RecorderFault::Truncated { what }),
        }
    }

    /// Sizes before and after compression, and compressed data.
    pub(super) fn block(&mut self, what: &'static str) -> Result<Cow<'a, [u8]>, RecorderFault> {
        let (compressed, whole) = (self.u64(what)?, self.u64(what)?);
        if whole > MAX_TRACE_BYTES.0 {
            return Err(RecorderFault::number("the size of decompressed data", whole));
        }
        let compressed = usize::try_from(compressed).map_err(|_| RecorderFault::Truncated { what })?;
        let data = self.bytes(compressed, what)?;
        let mut found = Vec::new();
        let read = ZlibDecoder::new(data).take(whole).read_to_end(&mut found);
        read.map_err(|error| RecorderFault::Compressed { text: error.to_string() })?;
        match found.len() as u64 == whole {
            true => Ok(Cow::Owned(found)),
            false => Err(RecorderFault::Truncated { what }),
        }
    }
}
