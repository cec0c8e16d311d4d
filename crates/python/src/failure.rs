//! Errors as Python exceptions: what an operating system would say of a file is `OSError` with number and path, all else `StripewiseError`.

use crate::brokers;
use pyo3::exceptions::{PyException, PyOSError};
use pyo3::{PyErr, create_exception};
use rustix::io::Errno;
use std::error::Error;
use std::ffi::OsStr;
use std::path::Path;
use stripewise::messages::chain;
use stripewise_store::client::ClientError;
use stripewise_store::errno::ToErrno;

create_exception!(
    _stripewise,
    StripewiseError,
    PyException,
    "What Stripewise cannot do; the message names the file, the value and the remedy."
);

/// Of an operation that is not a file's.
pub(crate) fn failed(error: impl Error + 'static) -> PyErr {
    StripewiseError::new_err(chain(&error))
}

/// As `open(2)` and its like fail on `path`.
pub(crate) fn of_file(error: &(impl ToErrno + Error + 'static), path: &Path) -> PyErr {
    let mut text = chain(error);
    if let Some(state) = lost_broker(error) {
        text = format!("{text}; {}", brokers::remedy(state));
    }
    os_error(error.errno(), &text, path)
}

/// The state directory of a broker that went away, if that is the cause.
fn lost_broker<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Path> {
    std::iter::successors(Some(error), |error| (*error).source()).find_map(|error| match error.downcast_ref() {
        Some(ClientError::Lost { path, .. }) => Some(path.as_path()),
        _ => None,
    })
}

/// The system's own error.
pub(crate) fn of_system(errno: Errno, path: &Path) -> PyErr {
    // Without the number that std puts behind it.
    let text = std::io::Error::from(errno).to_string();
    let end = text.rfind(" (os error").unwrap_or(text.len());
    os_error(errno, &text[..end], path)
}

/// `OSError(errno, text, path)`, which Python makes a `FileNotFoundError` and the like.
pub(crate) fn os_error(errno: Errno, text: &str, path: &Path) -> PyErr {
    let path: &OsStr = path.as_os_str();
    PyOSError::new_err((errno.raw_os_error(), text.to_owned(), path.to_owned()))
}
