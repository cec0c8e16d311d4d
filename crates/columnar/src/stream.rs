//! Traces and counts as record batches, for whoever takes Arrow's data as it lies in memory.

use crate::rows::{Rows, schema};
use arrow_array::builder::{Float64Builder, StringDictionaryBuilder, UInt32Builder, UInt64Builder};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use stripewise_layout::{Direction, Order};
use stripewise_trace::export::Row;
use stripewise_trace::{FileAccess, Trace};

/// Rows of a batch.
const BATCH_ROWS: usize = 1 << 16;

/// Batches that a thread makes as they are taken, at most one ahead. The thread ends with the reader.
struct Made {
    schema: SchemaRef,
    batches: Receiver<Result<RecordBatch, ArrowError>>,
}

impl Iterator for Made {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batches.recv().ok()
    }
}

impl RecordBatchReader for Made {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// All calls of the trace, process after process, with the columns [`COLUMNS`](stripewise_trace::export::COLUMNS). Memory holds a few batches.
#[must_use]
pub fn calls(trace: Arc<Trace>) -> Box<dyn RecordBatchReader + Send> {
    let schema = Arc::new(schema());
    let (send, batches) = sync_channel(1);
    let of_thread = Arc::clone(&schema);
    std::thread::spawn(move || {
        let mut rows = Rows::default();
        for event in trace.events() {
            rows.push(&event, &Row::of(&trace, &event));
            // Nobody takes more.
            if rows.count == BATCH_ROWS && send.send(rows.batch(&of_thread)).is_err() {
                return;
            }
        }
        if rows.count > 0 {
            let _ = send.send(rows.batch(&of_thread));
        }
    });
    Box::new(Made { schema, batches })
}

/// The counts of files: a row for each class of requests of each region in each window.
///
/// # Errors
/// When the columns do not fit the schema, which is an error of this crate.
pub fn counts(files: &[FileAccess]) -> Result<RecordBatch, ArrowError> {
    let name = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let field = |column: &str, kind| Field::new(column, kind, column == "write_class");
    let schema = Schema::new(vec![
        field("path", name()),
        field("window_start_s", DataType::Float64),
        field("window_end_s", DataType::Float64),
        field("region", DataType::UInt32),
        field("offset", DataType::UInt64),
        field("direction", name()),
        field("write_class", name()),
        field("order", name()),
        field("request_bytes", DataType::UInt64),
        field("requests", DataType::UInt64),
        field("processes", DataType::UInt32),
        field("processes_per_node", DataType::UInt32),
    ]);
    type Names = StringDictionaryBuilder<Int32Type>;
    let (mut path, mut direction, mut write_class, mut order) =
        (Names::new(), Names::new(), Names::new(), Names::new());
    let (mut start, mut end) = (Float64Builder::new(), Float64Builder::new());
    let (mut number, mut processes, mut per_node) = (UInt32Builder::new(), UInt32Builder::new(), UInt32Builder::new());
    let (mut offset, mut bytes, mut requests) = (UInt64Builder::new(), UInt64Builder::new(), UInt64Builder::new());
    for file in files {
        for window in &file.windows {
            for region in &window.regions {
                for (index, count) in &region.counts {
                    let class = file.class(*index);
                    path.append_value(&file.path);
                    start.append_value(window.start_s);
                    end.append_value(window.end_s);
                    number.append_value(region.region.0);
                    offset.append_value(u64::from(region.region.0) * file.region_size.0);
                    direction.append_value(match class.direction() {
                        Direction::Read => "read",
                        Direction::Write => "write",
                    });
                    write_class.append_option(class.kind.write_class().map(|class| class.name()));
                    order.append_value(match class.order {
                        Order::Sequential => "sequential",
                        Order::Random => "random",
                    });
                    bytes.append_value(class.request_bytes);
                    requests.append_value(*count);
                    processes.append_value(region.processes);
                    per_node.append_value(region.processes_per_node);
                }
            }
        }
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(path.finish()),
        Arc::new(start.finish()),
        Arc::new(end.finish()),
        Arc::new(number.finish()),
        Arc::new(offset.finish()),
        Arc::new(direction.finish()),
        Arc::new(write_class.finish()),
        Arc::new(order.finish()),
        Arc::new(bytes.finish()),
        Arc::new(requests.finish()),
        Arc::new(processes.finish()),
        Arc::new(per_node.finish()),
    ];
    RecordBatch::try_new(Arc::new(schema), columns)
}
