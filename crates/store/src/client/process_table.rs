//! The table of processes of a cluster, as a client comes by it.
//!
//! A process has one descriptor of it for all its clients: to close another would drop their locks ([`crate::shared::processes`]).

use super::connection::{Answer, Connection};
use super::{ClientError, into_owned, missing_descriptors, unexpected};
use crate::descriptors::Descriptor;
use crate::lock::Lock;
use crate::protocol::{Reply, Request};
use crate::shared::processes::Processes;
use rustix::fd::RawFd;
use rustix::fs::AtFlags;

/// One thread at a time looks for this process's descriptor of the table of processes, and has one opened where there is none.
static OPENING: Lock<()> = Lock::new(());

/// Says hello and comes by the table of processes: by the descriptor that this process has of it or, the first time, one of the broker's, which is asked
/// for along with the greeting.
pub(super) fn open(
    connection: &mut Connection,
    run: &Descriptor,
    base: RawFd,
) -> Result<(Answer, Processes), ClientError> {
    let fault = |action| move |source| ClientError::Os { action, source };
    let _opening = OPENING.lock();
    let named = rustix::fs::statat(run, "processes", AtFlags::SYMLINK_NOFOLLOW)
        .map_err(fault("looking at the table of processes"))?;
    let known = Processes::of_this_process((named.st_dev, named.st_ino), base)
        .map_err(fault("mapping the table of processes"))?;
    if let Some(processes) = known {
        return Ok((welcomed(connection, None)?.0, processes));
    }
    let (welcome, table) = welcomed(connection, Some(&Request::Processes))?;
    let table = table.ok_or_else(|| missing_descriptors("Processes"))?;
    match (table.reply, table.descriptors.into_iter().next()) {
        (Reply::Processes, Some(descriptor)) => {
            let received = Processes::receive(into_owned(descriptor), base);
            Ok((welcome, received.map_err(fault("mapping the table of processes"))?))
        }
        (Reply::Refused(refusal), _) => Err(ClientError::Refused(refusal)),
        (reply, _) => Err(unexpected("Processes", &reply)),
    }
}

/// The answers to the greeting, which is not refused, and to what is asked along with it.
fn welcomed(connection: &mut Connection, along: Option<&Request>) -> Result<(Answer, Option<Answer>), ClientError> {
    let (welcome, answer) = connection.hello(along).map_err(ClientError::Packet)?;
    match welcome.reply {
        Reply::Refused(refusal) => Err(connection.not_welcome(refusal)),
        _ => Ok((welcome, answer)),
    }
}

pub(super) fn take_for_fork() {
    OPENING.take_for_fork();
}

pub(super) fn free_after_fork() {
    OPENING.free_after_fork();
}
