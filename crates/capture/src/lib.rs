//! What a traced process runs: the calls that are captured, the clock, the record format, and the recorder that writes it.
//!
//! The library that is loaded into strangers' programs links this crate and not the readers of traces, so it has few dependencies on purpose.
#![deny(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

pub mod call;
pub mod clock;
pub mod format;
pub mod recorder;

pub use call::{Call, Level, Operation};
pub use clock::{Ticks, now};
pub use format::{CommunicatorKey, FileKey, NO_OFFSET, RawEvent};
pub use recorder::{Meta, Recorder, Stage, StartError};
