//! Reads Darshan's logs by Darshan's own library, in a process of its own.
//!
//! The library (libdarshan-util) knows every version of the format, but it trusts what it reads: a damaged log can crash it or make it
//! ask for any amount of memory. [`read`] therefore starts this executable again with the hidden command `darshan-reader`, which calls
//! [`serve`]: it limits its own memory, loads the library, reads the log record by record and writes [`Item`]s to a pipe. Neither side
//! holds more than one record, but the library all names. A reader that dies becomes a [`DarshanError`] that names the log.
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

mod finding;
mod frame;
mod header;
mod library;
mod reading;
mod serving;

pub use finding::LIBRARY_VARIABLE;
pub use frame::{Component, FrameError, Item, Job, Module, Segment};
pub use header::is_log;
pub use reading::{COMMAND_VARIABLE, DarshanError, Found, READER_COMMAND, read};
pub use serving::{MEMORY_BYTES, serve, serve_on_stdout};
