//! Traces as columns: files and streams of record batches. A crate of its own, because Arrow and Parquet take longer to build than all else that the command links.
#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

#[cfg(feature = "parquet")]
mod parquet;
mod rows;
mod stream;

#[cfg(feature = "parquet")]
pub use crate::parquet::{ColumnarError, write_parquet};
pub use crate::stream::{calls, counts};
