//! Stubs as other hosts show them: by the path that their kernel remembers, which may lead elsewhere by now.

use super::Parts;
use crate::connection::Connection;
use crate::guard;
use crate::host_messages::Shown;
use crate::proof::Granted;
use rustix::fd::OwnedFd;
use stripewise_layout::FileId;
use stripewise_store::protocol::{Refusal, Reply, Request};

/// What was found of a file's size, with what programs of other hosts have written that have it open.
pub(super) fn with_latest_size(parts: &Parts, connection: &Connection, found: Reply) -> Result<Reply, Refusal> {
    match found {
        Reply::Found { file: Some(file), status: Some(_) } if parts.base.context.is_elsewhere(file) => {
            parts.refresh(connection, file)?;
            Ok(Reply::Found { file: Some(file), status: parts.identities.status_of(file)? })
        }
        found => Ok(found),
    }
}

/// How the file's stub may be reached from here: the path that the table has, and the descriptor of a file that is open.
pub(crate) fn ways_to(parts: &Parts, file: FileId) -> Option<(String, Option<OwnedFd>)> {
    let Some(managed) = parts.base.files.if_loaded(file) else {
        return Some((parts.base.context.table().file(file).ok()??.path, None));
    };
    let inner = guard(&managed.inner);
    Some((inner.record.path.clone(), inner.stub.as_ref().and_then(|stub| stub.try_clone().ok())))
}

/// What another host asks of a stub to which no way leads from here: it was renamed behind the cluster's back, or has no name and only that host has it open.
/// The host's word of its inode stands for it where that is enough; else the answer is `refusal`.
pub(crate) fn answer_unreached(
    parts: &Parts,
    connection: &Connection,
    request: &Request,
    shown: &[Shown],
    refusal: Refusal,
) -> Reply {
    let known = shown.first().and_then(|shown| Some((shown.file?, shown)));
    let answer = match (request, known) {
        (Request::Open { file }, Some((_, shown))) => {
            let granted = Granted { readable: shown.is_readable, writable: shown.is_writable };
            parts.lifecycle.open_by_inode(connection, *file, shown.inode, granted).map(|(reply, _)| reply)
        }
        (Request::Find, Some((file, shown))) => parts
            .identities
            .find_by_inode(file, shown.inode)
            .and_then(|found| with_latest_size(parts, connection, found)),
        _ => Err(refusal),
    };
    answer.unwrap_or_else(Reply::Refused)
}
