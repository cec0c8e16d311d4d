//! Parquet: batches of rows become row groups, one after the other.

use crate::rows::{Rows, schema};
use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use std::io::Write;
use std::sync::Arc;
use stripewise_trace::Trace;
use stripewise_trace::export::Row;

/// Why a trace was not written as a columnar file.
#[derive(Debug, thiserror::Error)]
pub enum ColumnarError {
    /// The target refused the bytes, or the Parquet writer an option.
    #[error("writing Parquet failed: {0}")]
    Parquet(#[from] ::parquet::errors::ParquetError),
    /// The rows do not fit the schema, which is an error of this crate.
    #[error("making a Parquet row group failed: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),
}

/// Rows of a row group.
const GROUP_ROWS: usize = 1 << 18;

/// Writes all calls, process after process, as Parquet with the columns [`COLUMNS`](stripewise_trace::export::COLUMNS): numbers as unsigned integers, names dictionary-encoded,
/// compressed by Zstandard. Memory holds one row group.
///
/// # Errors
/// When `target` cannot be written to.
pub fn write_parquet(trace: &Trace, target: impl Write + Send) -> Result<(), ColumnarError> {
    let schema = Arc::new(schema());
    let version = KeyValue::new("stripewise".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_key_value_metadata(Some(vec![version]))
        .build();
    let mut writer = ArrowWriter::try_new(target, Arc::clone(&schema), Some(properties))?;
    let mut rows = Rows::default();
    for event in trace.events() {
        rows.push(&event, &Row::of(trace, &event));
        if rows.count == GROUP_ROWS {
            writer.write(&rows.batch(&schema)?)?;
        }
    }
    if rows.count > 0 {
        writer.write(&rows.batch(&schema)?)?;
    }
    writer.close()?;
    Ok(())
}

#[cfg(test)]
mod tests;
