//! Calls of a trace as rows of typed columns.

use arrow_array::builder::{StringDictionaryBuilder, UInt32Builder, UInt64Builder};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use std::sync::Arc;
use stripewise_trace::Event;
use stripewise_trace::export::{COLUMNS, Row};

/// One field for each of [`COLUMNS`].
pub(crate) fn schema() -> Schema {
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

/// Rows that become a batch.
#[derive(Default)]
pub(crate) struct Rows {
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
    pub(crate) count: usize,
}

impl Rows {
    pub(crate) fn push(&mut self, event: &Event, row: &Row<'_>) {
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

    /// The rows in the order of [`COLUMNS`]; none are left. Names keep their numbers from batch to batch.
    pub(crate) fn batch(&mut self, schema: &Arc<Schema>) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.node.finish_preserve_values()),
            Arc::new(self.pid.finish()),
            Arc::new(self.mpi_rank.finish()),
            Arc::new(self.mpi_size.finish()),
            Arc::new(self.level.finish_preserve_values()),
            Arc::new(self.operation.finish_preserve_values()),
            Arc::new(self.call.finish_preserve_values()),
            Arc::new(self.communicator.finish()),
            Arc::new(self.path.finish_preserve_values()),
            Arc::new(self.renamed_to.finish_preserve_values()),
            Arc::new(self.offset.finish()),
            Arc::new(self.bytes.finish()),
            Arc::new(self.errno.finish()),
            Arc::new(self.start_ns.finish()),
            Arc::new(self.end_ns.finish()),
            Arc::new(self.write_class.finish_preserve_values()),
        ];
        self.count = 0;
        RecordBatch::try_new(Arc::clone(schema), columns)
    }
}
