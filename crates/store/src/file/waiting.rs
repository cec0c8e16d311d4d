//! Calls that wait for a device, several at once.
//!
//! A read first takes what the page cache has. When more than one sub-request is left, their next calls go to the kernel together, so that the devices
//! work side by side; so do the syncs of a file's objects (`syncing`). That only brings the work forward: what is still left (the rest
//! of a long piece list, a short read, an error, no ring to be had) is done in turn afterwards, which also decides about ends and errors.
//! Writes go out in turn: the page cache takes them.

use super::StripedFile;
use super::buffers::{Batch, Buffers};
use super::fragments::disk_time_since;
use super::transfer::{Gather, RetryReason, Stopped, SubMove};
use crate::client::now;
use crate::client::rings::{Call, GROUP};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::ReadWriteFlags;
use stripewise_layout::Direction;

impl StripedFile {
    /// Takes what the page cache has; true when that was all.
    pub(super) fn read_from_cache(&self, moving: &mut SubMove<'_>, buffers: &Buffers<'_>) -> Result<bool, RetryReason> {
        let pin = self.pin(&moving.key)?;
        let Some(object) = pin.handle().descriptor() else { return Ok(false) };
        let sub = moving.sub;
        let (mut gather, mut batch) = (Gather::new(sub.pieces(), moving, buffers), Batch::new());
        while gather.next(&mut batch) {
            while batch.bytes() > 0 {
                match rustix::io::preadv2(object, batch.slices_to_fill(), moving.at().0, ReadWriteFlags::NOWAIT) {
                    // The object's end, or a kernel (5.9, 5.10) that says so of what is not in memory: the call in turn tells.
                    Ok(0) => return Ok(false),
                    Ok(bytes) => {
                        moving.moved += bytes as u64;
                        batch.advance(bytes as u64);
                    }
                    // Not there, or not a store that can tell; the server's own words for an error come from the call in turn.
                    Err(_) => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    /// Reads the rest of what the page cache had not.
    pub(super) fn finish_waiting(&self, waiting: &mut [SubMove<'_>], buffers: &Buffers<'_>) -> Result<(), Stopped> {
        let begun = now();
        if waiting.len() > 1 {
            for group in waiting.chunks_mut(GROUP) {
                self.read_at_once(group, buffers);
            }
        }
        let mut stopped = None;
        for moving in waiting {
            let result = match &stopped {
                None if moving.moved == moving.sub.length => Ok(()),
                None => self.move_sub_request(Direction::Read, moving, buffers),
                Some(_) if moving.moved == moving.sub.length => Ok(()),
                Some(_) => Err(RetryReason::Again),
            };
            // Asked for together, they are taken to have ended together.
            if let (Ok(()), Some(weigh), Some(took_ns)) = (&result, moving.weigh, disk_time_since(begun)) {
                self.served_by_disk(&weigh, took_ns);
            }
            let result = result.map_err(|reason| Stopped::new(moving, reason));
            stopped = Stopped::first(stopped, result);
        }
        stopped.map_or(Ok(()), Err)
    }

    /// One call for each, all under way together.
    fn read_at_once(&self, group: &mut [SubMove<'_>], buffers: &Buffers<'_>) {
        let mut pins = Vec::with_capacity(group.len());
        let mut batches = Vec::with_capacity(group.len());
        for moving in group.iter() {
            let Ok(pin) = self.pin(&moving.key) else { return };
            pins.push(pin);
            let mut batch = Batch::new();
            Gather::new(moving.sub.pieces(), moving, buffers).next(&mut batch);
            batches.push(batch);
        }
        let calls: Vec<Call<'_>> = group
            .iter()
            .zip(&pins)
            .zip(&batches)
            .map(|((moving, pin), batch)| Call::Read {
                descriptor: pin.handle().descriptor().map_or(-1, |object: BorrowedFd<'_>| object.as_raw_fd()),
                offset: moving.at().0,
                pieces: batch.pieces(),
            })
            .collect();
        self.core.rings.run(&calls, |number, result| {
            if let Ok(bytes) = result {
                group[number].moved += bytes as u64;
            }
        });
    }
}
