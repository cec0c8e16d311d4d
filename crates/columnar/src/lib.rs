//! Traces as columnar files. A crate of its own, because Arrow and Parquet take longer to build than all else that the command links.
#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

mod parquet;

pub use crate::parquet::{ColumnarError, write_parquet};
