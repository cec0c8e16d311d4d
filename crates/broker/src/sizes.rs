//! How long a file is, by its last objects.
//!
//! Every host knows a lower bound of a file's size, and the master asks all of them for theirs. One that does not answer cannot be asked; one that has departed
//! knew what nobody knows any more. But what its programs were told is written is on the servers. So the file is at least as long as its objects reach, and
//! neither a reader nor whoever cuts objects at the size may go by less.
//!
//! What was removed does not come back by this: a cut leaves objects that end at the size, or says that it left something over. Then objects tell nothing. A host that
//! may have such a file open is not shut out ([`crate::fencing`]), and what lies beyond the size cannot be read while one is silent.
//!
//! Objects may also reach beyond the size by a write that failed, or that is under way. It may be seen, as a part of any write may.

use crate::context::Context;
use crate::managed::{Inner, Managed};
use crate::objects::stripe_servers;
use crate::others::Others;
use crate::rmt::{FileRecord, FileState, RegionRecord, RmtError};
use std::sync::atomic::Ordering::SeqCst;
use stripewise_layout::{FileId, ObjectOffset, RegionIndex};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{ObjectName, Operation, ServerError};

/// Regions whose objects are asked for at once.
const REGIONS_AT_ONCE: usize = 64;

/// Why it is not known how long a file is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SizeFault {
    /// Objects could not be asked.
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl From<SizeFault> for Refusal {
    fn from(fault: SizeFault) -> Self {
        match fault {
            SizeFault::Server(error) => error.into(),
            SizeFault::Refused(refusal) => refusal,
        }
    }
}

/// Whether a host may have known of a longer file that has departed, or that was there under another master, since the objects were asked last.
pub(crate) fn is_owed(context: &Context, managed: &Managed) -> bool {
    context.others().is_some_and(|others| managed.sizes_as_of.load(SeqCst) != as_of(others.departures()))
}

/// Of a file without objects: nobody can know of any.
pub(crate) fn owe_nothing(context: &Context, managed: &Managed) {
    if let Some(others) = context.others() {
        managed.sizes_as_of.store(as_of(others.departures()), SeqCst);
    }
}

/// After every departure something else than before, and nothing that a file begins with.
fn as_of(departures: u64) -> u64 {
    departures + 1
}

/// Raises the size to the end of the objects if a host may have known more that cannot be asked any more; under the file's lock. What cannot be told is left as it is, for
/// whoever cuts what is left over.
pub(crate) fn take_owed(context: &Context, managed: &Managed, inner: &Inner) -> Result<(), SizeFault> {
    match is_owed(context, managed) && !has_leftovers(managed, inner) {
        true => take(context, managed, inner),
        false => Ok(()),
    }
}

/// The same because of a host that may know more and does not answer, for the reason `why`.
pub(crate) fn take_unanswered(
    context: &Context,
    managed: &Managed,
    inner: &Inner,
    why: &Refusal,
) -> Result<(), SizeFault> {
    if has_leftovers(managed, inner) {
        let what = format!(
            "{why}; servers hold bytes that a truncation was to remove, so it is not known how long the file is"
        );
        return Err(Refusal::Table { what }.into());
    }
    take(context, managed, inner)
}

/// Whether objects may hold what was removed.
fn has_leftovers(managed: &Managed, inner: &Inner) -> bool {
    inner.record.has_leftovers
        || inner.record.truncating_to_bytes.is_some()
        || managed.control.notices().has_leftovers()
}

/// A file that the host may have open and whose objects do not tell how long it is.
pub(crate) fn unclear_file(context: &Context, others: &Others, host: &str) -> Result<Option<FileId>, RmtError> {
    let is_unclear = |record: &FileRecord| record.has_leftovers && record.state != FileState::Unlinked;
    let has_said = others.list().iter().any(|known| known.name == host && known.files.is_some());
    if !has_said {
        let all = context.table().all_files()?;
        return Ok(all.iter().find(|(_, record)| is_unclear(record)).map(|(file, _)| *file));
    }
    for file in others.files_of(host) {
        if context.table().file(file)?.as_ref().is_some_and(is_unclear) {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

fn take(context: &Context, managed: &Managed, inner: &Inner) -> Result<(), SizeFault> {
    let Some(others) = context.others().filter(|_| !inner.freed) else { return Ok(()) };
    // Whoever departs from here on may have written since.
    let departures = others.departures();
    if let Some(end_bytes) = end_of_objects(context, managed, inner)? {
        managed.extent.extend_to(end_bytes);
    }
    managed.sizes_as_of.store(as_of(departures), SeqCst);
    Ok(())
}

/// Up to where objects hold anything beyond the size.
fn end_of_objects(context: &Context, managed: &Managed, inner: &Inner) -> Result<Option<u64>, ServerError> {
    let geometry = inner.geometry();
    let first = u32::try_from(managed.extent.size_bytes() / geometry.region_bytes()).unwrap_or(u32::MAX);
    let beyond: Vec<(&RegionIndex, &RegionRecord)> = inner.regions.range(RegionIndex(first)..).collect();
    // The last region that holds anything says it.
    for regions in beyond.rchunks(REGIONS_AT_ONCE) {
        let objects = || {
            regions.iter().flat_map(|(region, placed)| {
                let object = ObjectName { file: managed.file, region: **region, generation: placed.generation };
                let view = placed.layout.view();
                stripe_servers(&placed.layout).enumerate().map(move |(turn, server)| (server, object, view, turn))
            })
        };
        let sizes = context.perform_together(objects().map(|(server, object, ..)| (server, Operation::Size(object))));
        let mut end_bytes = None;
        for ((server, object, view, turn), size) in objects().zip(sizes) {
            let size = match size {
                // It holds nothing; whoever reads it is told.
                Err(ServerError::Missing { .. }) => continue,
                size => size?.into_size(&context.server_name(server))?,
            };
            if let Some(last) = size.end_bytes.checked_sub(1) {
                let within = view.region_offset(turn, ObjectOffset(last)).0 + 1;
                let end = geometry.start_of(object.region).0 + within.min(geometry.region_bytes());
                end_bytes = end_bytes.max(Some(end));
            }
        }
        if end_bytes.is_some() {
            return Ok(end_bytes);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
