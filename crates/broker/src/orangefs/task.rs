//! Operations of libpvfs2, made of a state that the library reads and writes and what is done when they are over.

use super::driver::{Beginning, Driver, Operation};
use super::library::Library;
use libc::{c_char, c_int, c_void};
use std::ffi::CString;
use std::sync::mpsc::sync_channel;

/// Memory of the library or of a caller that waits: the library uses it, and whoever waits for the operation's end.
pub(super) struct Lent<T>(pub(super) T);

// SAFETY: as `Lent` says, one of them after the other uses it.
unsafe impl<T> Send for Lent<T> {}

struct Task<S, B, E> {
    is_alone: bool,
    state: S,
    begin: Option<B>,
    end: E,
}

impl<S, B, E> Operation for Task<S, B, E>
where
    S: Send,
    B: FnOnce(&mut S, &Beginning<'_>) -> c_int + Send,
    E: FnOnce(S, &Library, c_int) + Send,
{
    fn is_alone(&self) -> bool {
        self.is_alone
    }

    fn begin(&mut self, with: &Beginning<'_>) -> c_int {
        match self.begin.take() {
            Some(begin) => begin(&mut self.state, with),
            None => -libc::EALREADY,
        }
    }

    fn end(self: Box<Self>, library: &Library, status: c_int) {
        (self.end)(self.state, library, status);
    }
}

impl Driver {
    /// Begins an operation whose state stays where it is until the end. `end` is called once, by the driver's thread.
    pub(super) fn begin_with<S: Send + 'static>(
        &self,
        state: S,
        begin: impl FnOnce(&mut S, &Beginning<'_>) -> c_int + Send + 'static,
        end: impl FnOnce(S, &Library, c_int) + Send + 'static,
    ) {
        self.begin(Box::new(Task { is_alone: false, state, begin: Some(begin), end }));
    }

    /// The same, and waits. Returns what `take` makes of the state of one that succeeded.
    ///
    /// # Errors
    /// The negative status of one that failed.
    pub(super) fn run<S: Send + 'static, R: Send + 'static>(
        &self,
        state: S,
        begin: impl FnOnce(&mut S, &Beginning<'_>) -> c_int + Send + 'static,
        take: impl FnOnce(S, &Library) -> R + Send + 'static,
    ) -> Result<R, c_int> {
        self.run_task(false, state, begin, take)
    }

    /// The same, when nothing else is under way.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub(super) fn run_alone<S: Send + 'static, R: Send + 'static>(
        &self,
        state: S,
        begin: impl FnOnce(&mut S, &Beginning<'_>) -> c_int + Send + 'static,
        take: impl FnOnce(S, &Library) -> R + Send + 'static,
    ) -> Result<R, c_int> {
        self.run_task(true, state, begin, take)
    }

    fn run_task<S: Send + 'static, R: Send + 'static>(
        &self,
        is_alone: bool,
        state: S,
        begin: impl FnOnce(&mut S, &Beginning<'_>) -> c_int + Send + 'static,
        take: impl FnOnce(S, &Library) -> R + Send + 'static,
    ) -> Result<R, c_int> {
        let (said, says) = sync_channel(1);
        let end = move |state: S, library: &Library, status: c_int| {
            let result = if status < 0 { Err(status) } else { Ok(take(state, library)) };
            // Whoever waits is there as long as the operation is.
            let _ = said.send(result);
        };
        self.begin(Box::new(Task { is_alone, state, begin: Some(begin), end }));
        // The driver's thread ends with the process.
        says.recv().unwrap_or(Err(-libc::EIO))
    }
}

/// A name for the library, which declares its texts as not constant and does not write them.
pub(super) fn text_of(name: &CString) -> *mut c_char {
    name.as_ptr().cast_mut()
}

/// None is given.
pub(super) const NO_HINT: *mut c_void = std::ptr::null_mut();
