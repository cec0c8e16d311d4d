//! Hosts that do not answer, and do no harm any more.
//!
//! A host that is cut off, or whose agent is stopped, goes on doing I/O on what it knows, or will when it runs again. While that may be, nothing that it has open
//! is moved, truncated or freed. Where every server can shut a host out ([`ObjectStore::fence_host`]), the master has that done as soon as it needs the answer
//! of a silent host. Its steps:
//!
//! 1. The table says, durably, that the host is shut out and that what it has open is closed.
//! 2. Every server shuts its agent out. From here on nothing that the host sends takes effect, however late it comes.
//! 3. The host counts no more ([`Others::departs`]). Moves under way are given up, since nobody has its marks; they begin again, and copy everything. How long the host
//!    has made its files their objects tell, which are asked before anything goes by the size ([`crate::sizes`]).
//!
//! Where objects do not tell that, because an earlier truncation left something over in them, the host is not shut out: only it knows, and what it was told
//! is written would be lost.
//!
//! A host that fails in the middle of this, or a master, leaves a host that may have its files open and is to be told that it has not: it is shut out again when its
//! answer is needed.
//!
//! A master that hears no host any more shuts none out, since it is the one that is cut off ([`alone`]): it gives its role up.
//!
//! When the host comes back it is told so. It abandons what its programs had open ([`crate::lost_files`]), is admitted by a higher number, and
//! opens the servers as a new client.

use crate::context::Context;
use crate::log::note;
use crate::others::{Others, alone};
use crate::sizes;
use std::time::Instant;
use stripewise_layout::{FileId, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{Operation, ServerError, capabilities_by_agent};

/// Whether a host can be shut out of all servers of the cluster.
pub(crate) fn can_fence(context: &Context) -> bool {
    let can = |capabilities: stripewise_store::server::Capabilities| capabilities.fences_hosts;
    context.cluster().servers.iter().all(|server| capabilities_by_agent(&server.url).is_some_and(can))
}

/// Whether a host that does not answer now answers soon, or is shut out: what it was needed for is tried again.
pub(crate) fn settles_soon(context: &Context) -> bool {
    can_fence(context) && context.others().is_some_and(|others| others.list().iter().any(|host| !host.answers))
}

/// Shuts out the hosts that may have the file open and are silent. Returns whether there was one. An error: one could not be shut out of a server, and counts
/// as before.
pub(crate) fn shut_out_silent(context: &Context, file: FileId) -> Result<bool, Refusal> {
    let Some(others) = context.others() else { return Ok(false) };
    let silent = others.silent_hosts_of(file);
    // A master that is cut off from all hosts ends; whom they follow next decides.
    if silent.is_empty() || !can_fence(context) || alone::wait_whether_alone(others) {
        return Ok(false);
    }
    let mut any = false;
    for host in silent {
        any |= shut_out(context, others, &host, Why::Silent)?;
    }
    Ok(any)
}

/// The same of a host that a person says is gone. Where servers cannot shut it out it is told when it comes back, so that its programs learn that what they had open
/// is not theirs any more. `false`: it came back meanwhile.
pub(crate) fn shut_out_forgotten(context: &Context, others: &Others, host: &str) -> Result<bool, Refusal> {
    if can_fence(context) {
        return shut_out(context, others, host, Why::Forgotten);
    }
    let _admission = others.admission();
    if others.answers(host) {
        return Ok(false);
    }
    context.table().note_shut_out(host)?;
    // If it is just coming back, it comes once more and is told.
    others.begins_to_shut_out(host);
    context.table().note_host(host, None)?;
    others.departs(host);
    Ok(true)
}

/// Another machine has the name of a host that may have files open, and wants to take part. It can once that host is shut out, if that is silent and servers can
/// do so.
pub(crate) fn shut_out_for_namesake(context: &Context, others: &Others, host: &str) -> Result<(), Refusal> {
    if !can_fence(context) || !others.is_host_silent(host) || alone::wait_whether_alone(others) {
        return Ok(());
    }
    shut_out(context, others, host, Why::Silent).map(drop)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Silent,
    Forgotten,
}

fn shut_out(context: &Context, others: &Others, host: &str, why: Why) -> Result<bool, Refusal> {
    let _admission = others.admission();
    // It may have come back, or gone, meanwhile.
    let is_gone = others.end_silent(host) || (why == Why::Forgotten && !others.answers(host));
    if !is_gone {
        return Ok(false);
    }
    // A person who says that it is gone gives up what it alone knew.
    if why == Why::Silent
        && let Some(file) = sizes::unclear_file(context, others, host)?
    {
        let holder = format!(
            "host {host}, which does not answer and is not shut out: an unfinished truncation has left bytes on servers, so only the host knows how long file {file} is. If it is gone for good, `stripewise host forget {host}`"
        );
        return Err(Refusal::Busy { file, holder });
    }
    context.table().note_shut_out(host)?;
    // Before the servers are asked, however many of them do it.
    let admission = others.begins_to_shut_out(host);
    context.step("fence: noted");
    let fence = |number| (ServerId(number), Operation::FenceHost { host: host.into(), admission });
    let fenced = context.perform_together((0..).take(context.servers().len()).map(fence));
    fenced.into_iter().try_for_each(|outcome| outcome.map(drop)).map_err(|error: ServerError| {
        // Each move and truncation that waits for the host tries it.
        if others.complaints.is_due((host.to_owned(), error.to_string()), Instant::now()) {
            note!(context.log(), warn, host, %error, "a host that does not answer cannot be shut out");
        }
        Refusal::from(error)
    })?;
    context.step("fence: shut out");
    context.table().note_host(host, None)?;
    others.departs(host);
    context.counts().note_fenced_host();
    note!(
        context.log(),
        warn,
        host,
        "the host does not answer and is shut out of all servers: what it had open counts as closed"
    );
    Ok(true)
}
