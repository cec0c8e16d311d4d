//! The threads that count, plan and simulate.
//!
//! Each call has a pool of its own, which ends with it. A child of `fork` has none of its parent's threads: in a pool that the process keeps it would wait
//! for them for ever.

use crate::failure::failed;
use pyo3::prelude::*;

/// Runs `call` on threads of its own while the interpreter's other threads go on.
pub(crate) fn on_workers<T: Send>(py: Python<'_>, call: impl FnOnce() -> PyResult<T> + Send) -> PyResult<T> {
    py.detach(|| rayon::ThreadPoolBuilder::new().build().map_err(failed)?.install(call))
}
