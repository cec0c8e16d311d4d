//! The caller's buffers as one range of bytes, and pieces of it gathered for one system call.

use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Pieces per system call. Enough for 4 MiB in stripes of 64 KiB on one server; more goes in several calls.
pub(super) const BATCH: usize = 64;

/// The buffers of one request, in order. For reads they are the caller's to write, for writes to read; each user knows which.
#[derive(Clone, Copy)]
pub(super) struct Buffers<'a> {
    parts: &'a [libc::iovec],
    /// Bytes of the first part that lie before the range.
    skipped_bytes: u64,
    total_bytes: u64,
    buffers: PhantomData<&'a mut [u8]>,
}

impl<'a> Buffers<'a> {
    #[inline]
    pub(super) fn to_fill(buffers: &'a mut [IoSliceMut<'_>]) -> Self {
        // SAFETY: `IoSliceMut` has the layout of `iovec`, as its documentation guarantees.
        Self::new(unsafe { std::slice::from_raw_parts(buffers.as_ptr().cast(), buffers.len()) })
    }

    #[inline]
    pub(super) fn to_take(buffers: &'a [IoSlice<'_>]) -> Self {
        // SAFETY: `IoSlice` has the layout of `iovec`, as its documentation guarantees.
        Self::new(unsafe { std::slice::from_raw_parts(buffers.as_ptr().cast(), buffers.len()) })
    }

    #[inline]
    fn new(parts: &'a [libc::iovec]) -> Self {
        let total_bytes = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.iov_len as u64));
        Self { parts, skipped_bytes: 0, total_bytes, buffers: PhantomData }
    }

    /// The range without its first `bytes` bytes.
    #[inline]
    pub(super) fn after(&self, bytes: u64) -> Self {
        let (mut parts, mut skipped_bytes) = (self.parts, self.skipped_bytes + bytes);
        while let Some((first, rest)) = parts.split_first()
            && skipped_bytes >= first.iov_len as u64
        {
            skipped_bytes -= first.iov_len as u64;
            parts = rest;
        }
        Self { parts, skipped_bytes, total_bytes: self.total_bytes - bytes, buffers: PhantomData }
    }

    #[inline]
    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The first `length` bytes where they lie in one piece of memory.
    #[inline]
    pub(super) fn start_in_one(&self, length: u64) -> Option<*mut u8> {
        let part = self.parts.first()?;
        (part.iov_len as u64 - self.skipped_bytes >= length)
            .then(|| part.iov_base.cast::<u8>().wrapping_add(self.skipped_bytes as usize))
    }

    pub(super) fn cursor(&self) -> Cursor<'a> {
        Cursor { parts: self.parts, skipped_bytes: self.skipped_bytes, part_start: 0 }
    }

    /// Zeros `length` bytes from `from`. For reads only.
    pub(super) fn zero(&self, from: u64, length: u64) {
        let mut cursor = self.cursor();
        cursor.each(from, length, |start, bytes| {
            // SAFETY: within a buffer that the caller lent for writing.
            unsafe { start.write_bytes(0, bytes) };
            true
        });
    }
}

/// A place in the buffers that moves forward.
pub(super) struct Cursor<'a> {
    parts: &'a [libc::iovec],
    skipped_bytes: u64,
    /// Position of the first of `parts`, counted with the bytes skipped.
    part_start: u64,
}

impl Cursor<'_> {
    /// Adds the memory of `[from, from + length)` to `pieces`.
    pub(super) fn gather(&mut self, from: u64, length: u64, pieces: &mut Vec<libc::iovec>) {
        self.each(from, length, |start, bytes| {
            pieces.push(libc::iovec { iov_base: start.cast(), iov_len: bytes });
            true
        });
    }

    /// Calls `act` for the memory of `[from, from + length)`, in order, until it declines; returns the bytes taken. `from` never
    /// lies before that of an earlier call.
    fn each(&mut self, from: u64, length: u64, mut act: impl FnMut(*mut u8, usize) -> bool) -> u64 {
        let mut done = 0;
        while done < length {
            let Some(part) = self.parts.first() else { break };
            let within = self.skipped_bytes + from + done - self.part_start;
            let part_bytes = part.iov_len as u64;
            if within >= part_bytes {
                self.part_start += part_bytes;
                self.parts = &self.parts[1..];
                continue;
            }
            let bytes = (part_bytes - within).min(length - done);
            // SAFETY: `within` lies inside the part.
            if !act(unsafe { part.iov_base.cast::<u8>().add(within as usize) }, bytes as usize) {
                break;
            }
            done += bytes;
        }
        done
    }
}

/// Memory for one `preadv` or `pwritev`.
pub(super) struct Batch<'a> {
    pieces: [MaybeUninit<libc::iovec>; BATCH],
    count: usize,
    first: usize,
    bytes: u64,
    buffers: PhantomData<&'a mut [u8]>,
}

impl Batch<'_> {
    pub(super) fn new() -> Self {
        Self { pieces: [const { MaybeUninit::uninit() }; BATCH], count: 0, first: 0, bytes: 0, buffers: PhantomData }
    }

    pub(super) fn clear(&mut self) {
        (self.count, self.first, self.bytes) = (0, 0, 0);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds as much of `[from, from + length)` as has space; returns the bytes added.
    pub(super) fn add(&mut self, cursor: &mut Cursor<'_>, from: u64, length: u64) -> u64 {
        let added = cursor.each(from, length, |start, bytes| {
            let has_space = self.count < BATCH;
            if has_space {
                self.pieces[self.count].write(libc::iovec { iov_base: start.cast(), iov_len: bytes });
                self.count += 1;
            }
            has_space
        });
        self.bytes += added;
        added
    }

    /// Drops the first `bytes` bytes, which are done.
    pub(super) fn advance(&mut self, mut bytes: u64) {
        self.bytes -= bytes;
        while bytes > 0 {
            // SAFETY: pieces below `count` are written; `bytes` was at most their sum.
            let piece = unsafe { self.pieces[self.first].assume_init_mut() };
            let taken = bytes.min(piece.iov_len as u64);
            piece.iov_base = piece.iov_base.wrapping_byte_add(taken as usize);
            piece.iov_len -= taken as usize;
            bytes -= taken;
            if piece.iov_len == 0 {
                self.first += 1;
            }
        }
    }

    pub(super) fn slices_to_fill(&mut self) -> &mut [IoSliceMut<'_>] {
        let start = self.pieces[self.first..self.count].as_mut_ptr();
        // SAFETY: these pieces are written, lie in buffers lent for writing, and do not overlap; `IoSliceMut` has the layout of `iovec`.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), self.count - self.first) }
    }

    pub(super) fn slices_to_take(&self) -> &[IoSlice<'_>] {
        let start = self.pieces[self.first..self.count].as_ptr();
        // SAFETY: these pieces are written and lie in buffers lent for reading; `IoSlice` has the layout of `iovec`.
        unsafe { std::slice::from_raw_parts(start.cast(), self.count - self.first) }
    }

    /// Zeros what is left, which is done then; returns its bytes. For reads only.
    pub(super) fn zero(&mut self) -> u64 {
        for buffer in self.slices_to_fill() {
            buffer.fill(0);
        }
        let bytes = self.bytes;
        self.clear();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn batches_see_the_buffers_as_one_range(
            parts in prop::collection::vec(0usize..7, 0..100), skip in 0usize..60, from in 0usize..60, length in 0usize..300, step in 1usize..9,
        ) {
            let bytes: Vec<Vec<u8>> = parts.iter().scan(0u8, |next, length| {
                Some((0..*length).map(|_| { *next = next.wrapping_add(1); *next }).collect())
            }).collect();
            let whole: Vec<u8> = bytes.concat();
            let slices: Vec<IoSlice> = bytes.iter().map(|part| IoSlice::new(part)).collect();
            let buffers = Buffers::to_take(&slices);
            prop_assert_eq!(buffers.total_bytes(), whole.len() as u64);
            let skip = skip.min(whole.len());
            let (buffers, whole) = (buffers.after(skip as u64), &whole[skip..]);
            prop_assert_eq!(buffers.total_bytes(), whole.len() as u64);
            if let Some(start) = buffers.start_in_one(1) {
                // SAFETY: within `bytes`.
                prop_assert_eq!(unsafe { *start }, whole[0]);
            }
            let from = from.min(whole.len());
            let length = length.min(whole.len() - from);
            let (mut cursor, mut batch, mut done) = (buffers.cursor(), Batch::new(), 0);
            let mut seen = Vec::new();
            while done < length {
                batch.clear();
                let added = batch.add(&mut cursor, (from + done) as u64, (length - done) as u64);
                prop_assert!(added > 0);
                done += added as usize;
                while batch.bytes() > 0 {
                    let now: Vec<u8> = batch.slices_to_take().iter().flat_map(|s| s.to_vec()).collect();
                    let part = step.min(now.len());
                    seen.extend_from_slice(&now[..part]);
                    batch.advance(part as u64);
                }
            }
            prop_assert_eq!(&seen[..], &whole[from..from + length]);
        }

        #[test]
        fn zeroing_touches_its_range_only(parts in prop::collection::vec(0usize..7, 0..30), from in 0usize..60, length in 0usize..90) {
            let mut bytes: Vec<Vec<u8>> = parts.iter().map(|length| vec![1; *length]).collect();
            let total: usize = parts.iter().sum();
            let from = from.min(total);
            let length = length.min(total - from);
            let mut slices: Vec<IoSliceMut> = bytes.iter_mut().map(|part| IoSliceMut::new(part)).collect();
            Buffers::to_fill(&mut slices).zero(from as u64, length as u64);
            for (i, byte) in bytes.concat().iter().enumerate() {
                prop_assert_eq!(*byte == 0, (from..from + length).contains(&i));
            }
        }
    }
}
