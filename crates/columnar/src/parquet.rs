//! Parquet: batches of rows become row groups, one after the other.

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use arrow_array::builder::{StringDictionaryBuilder, UInt32Builder, UInt64Builder};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use std::io::Write;
use std::sync::Arc;
use stripewise_trace::export::{COLUMNS, Row};
use stripewise_trace::{Event, Trace};

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

fn schema() -> Schema {
    let name = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let field = |column: &str| match column {
        "node" | "level" | "operation" | "call" => Field::new(column, name(), false),
        "path" | "renamed_to" | "write_class" => Field::new(column, name(), true),
        "pid" => Field::new(column, DataType::UInt32, false),
        "mpi_rank" | "mpi_size" | "errno" => Field::new(column, DataType::UInt32, true),
        "communicator" | "offset" => Field::new(column, DataType::UInt64, true),
        _ => Field::new(column, DataType::UInt64, false),
    };
    Schema::new(COLUMNS.iter().map(|column| field(column)).collect::<Vec<_>>())
}

type Names = StringDictionaryBuilder<Int32Type>;

#[derive(Default)]
struct Rows {
    node: Names,
    pid: UInt32Builder,
    mpi_rank: UInt32Builder,
    mpi_size: UInt32Builder,
    level: Names,
    operation: Names,
    call: Names,
    communicator: UInt64Builder,
    path: Names,
    renamed_to: Names,
    offset: UInt64Builder,
    bytes: UInt64Builder,
    errno: UInt32Builder,
    start_ns: UInt64Builder,
    end_ns: UInt64Builder,
    write_class: Names,
    count: usize,
}

impl Rows {
    fn push(&mut self, event: &Event, row: &Row<'_>) {
        self.node.append_value(row.node);
        self.pid.append_value(row.pid);
        self.mpi_rank.append_option(row.mpi_rank);
        self.mpi_size.append_option(row.mpi_size);
        self.level.append_value(event.call.level().name());
        self.operation.append_value(event.operation().name());
        self.call.append_value(event.call.name());
        self.communicator.append_option(row.communicator);
        self.path.append_option(row.path);
        self.renamed_to.append_option(row.renamed_to);
        self.offset.append_option(row.offset);
        self.bytes.append_value(event.bytes);
        self.errno.append_option(Some(event.errno).filter(|errno| *errno != 0));
        self.start_ns.append_value(row.start_ns);
        self.end_ns.append_value(row.end_ns);
        self.write_class.append_option(row.write_class);
        self.count += 1;
    }

    /// The rows in the order of [`COLUMNS`]; none are left.
    fn batch(&mut self, schema: &Arc<Schema>) -> Result<RecordBatch, ColumnarError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.node.finish()),
            Arc::new(self.pid.finish()),
            Arc::new(self.mpi_rank.finish()),
            Arc::new(self.mpi_size.finish()),
            Arc::new(self.level.finish()),
            Arc::new(self.operation.finish()),
            Arc::new(self.call.finish()),
            Arc::new(self.communicator.finish()),
            Arc::new(self.path.finish()),
            Arc::new(self.renamed_to.finish()),
            Arc::new(self.offset.finish()),
            Arc::new(self.bytes.finish()),
            Arc::new(self.errno.finish()),
            Arc::new(self.start_ns.finish()),
            Arc::new(self.end_ns.finish()),
            Arc::new(self.write_class.finish()),
        ];
        self.count = 0;
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }
}

/// Writes all calls, process after process, as Parquet with the columns [`COLUMNS`]: numbers as unsigned integers, names dictionary-encoded,
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
