//! The broker's threads.

use crate::BrokerError;
use rustix::io::Errno;
use std::thread::JoinHandle;

/// Starts a thread. Its name shows in the kernel's lists of threads, whose names have at most 15 bytes.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, BrokerError> {
    std::thread::Builder::new().name(name.into()).spawn(run).map_err(|error| BrokerError::Os {
        action: "starting a thread",
        source: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
    })
}
