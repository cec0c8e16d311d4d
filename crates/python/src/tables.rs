//! Record batches as Arrow C streams: whoever takes one gets the memory itself, nothing is copied.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// As the protocol `__arrow_c_stream__` names it.
const NAME: &std::ffi::CStr = c"arrow_array_stream";

pub(crate) fn stream(py: Python<'_>, batches: Box<dyn RecordBatchReader + Send>) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(batches), NAME)
}

/// A table of one batch.
pub(crate) fn table(py: Python<'_>, batch: RecordBatch) -> PyResult<Bound<'_, PyCapsule>> {
    let schema = batch.schema();
    stream(py, Box::new(RecordBatchIterator::new([Ok(batch)], schema)))
}
