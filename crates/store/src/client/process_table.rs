//! The table of processes of a cluster, as a client comes by it.
//!
//! A process has one descriptor of it for all its clients: to close another would drop their locks ([`crate::shared::processes`]).

use super::connection::Connection;
use super::{ClientError, into_owned, unexpected};
use crate::descriptors::Descriptor;
use crate::lock::Lock;
use crate::protocol::{Reply, Request};
use crate::shared::processes::Processes;
use rustix::fd::RawFd;
use rustix::fs::AtFlags;

/// One thread at a time looks for this process's descriptor of the table of processes, and has one opened where there is none.
static OPENING: Lock<()> = Lock::new(());

/// The table of processes, by the descriptor that this process has of it or, the first time, one of the broker's.
pub(super) fn open(connection: &mut Connection, run: &Descriptor, base: RawFd) -> Result<Processes, ClientError> {
    let fault = |action| move |source| ClientError::Os { action, source };
    let _opening = OPENING.lock();
    let named = rustix::fs::statat(run, "processes", AtFlags::SYMLINK_NOFOLLOW)
        .map_err(fault("looking at the table of processes"))?;
    let known = Processes::of_this_process((named.st_dev, named.st_ino), base);
    if let Some(processes) = known.map_err(fault("mapping the table of processes"))? {
        return Ok(processes);
    }
    let answer = connection.call(&Request::Processes, &[]).map_err(ClientError::Packet)?;
    match (answer.reply, answer.descriptors.into_iter().next()) {
        (Reply::Processes, Some(descriptor)) => {
            Processes::receive(into_owned(descriptor), base).map_err(fault("mapping the table of processes"))
        }
        (Reply::Refused(refusal), _) => Err(ClientError::Refused(refusal)),
        (reply, _) => Err(unexpected("Processes", &reply)),
    }
}

pub(super) fn take_for_fork() {
    OPENING.take_for_fork();
}

pub(super) fn free_after_fork() {
    OPENING.free_after_fork();
}
