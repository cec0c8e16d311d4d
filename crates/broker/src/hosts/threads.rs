//! The threads of links. They emit events to whoever took those of the thread that made the listener or the connection.

use super::error::LinkError;
use rustix::io::Errno;
use std::cell::Cell;
use tracing::dispatcher::{self, Dispatch};

thread_local! {
    static IS_OF_A_LINK: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is one of those that run links; it must not wait for their end.
pub(super) fn is_of_a_link() -> bool {
    IS_OF_A_LINK.get()
}

/// Where events of this thread go.
pub(super) fn events() -> Dispatch {
    dispatcher::get_default(Clone::clone)
}

/// Starts a thread with a name of at most 15 bytes. Nobody joins it.
pub(super) fn spawn(name: &str, events: Dispatch, run: impl FnOnce() + Send + 'static) -> Result<(), LinkError> {
    let run = move || {
        IS_OF_A_LINK.set(true);
        dispatcher::with_default(&events, run);
    };
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map(drop).map_err(|error| LinkError::Os {
        action: "starting a thread",
        source: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
    })
}
