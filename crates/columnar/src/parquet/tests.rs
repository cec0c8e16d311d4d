use super::*;
use ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt32Type, UInt64Type};
use stripewise_capture::format::NO_OFFSET;
use stripewise_layout::{ByteCount, Direction};
use stripewise_trace::export::COLUMNS;
use stripewise_trace::{Pattern, TraceShape, Workload, write_trace};

#[test]
fn parquet_holds_all_of_a_trace_in_row_groups() {
    let directory = tempfile::tempdir().unwrap();
    let workload = Workload {
        pattern: Pattern::Strided,
        file_size: ByteCount(1 << 30),
        request_size: ByteCount(4096),
        direction: Direction::Write,
        ranks: 3,
        requests_per_rank: 100_000,
        seed: 1,
    };
    write_trace(&workload.generator().unwrap(), &TraceShape::default(), directory.path()).unwrap();
    let trace = Trace::open(directory.path()).unwrap();
    let path = directory.path().join("trace.parquet");
    write_parquet(&trace, std::fs::File::create(&path).unwrap()).unwrap();

    let builder = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(builder.metadata().num_row_groups(), 2);
    let columns: Vec<_> = builder.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(columns, COLUMNS);
    let mut expected = trace.events();
    let mut rows = 0;
    for batch in builder.build().unwrap() {
        let batch = batch.unwrap();
        let number = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<UInt64Type>().clone();
        let (offsets, bytes) = (number("offset"), number("bytes"));
        let (starts, ends) = (number("start_ns"), number("end_ns"));
        let ranks = batch.column_by_name("mpi_rank").unwrap().as_primitive::<UInt32Type>().clone();
        let calls = batch.column_by_name("call").unwrap().as_dictionary::<Int32Type>().clone();
        let calls = calls.downcast_dict::<arrow_array::StringArray>().unwrap();
        let errnos = batch.column_by_name("errno").unwrap();
        assert_eq!(errnos.null_count(), errnos.len());
        for row in 0..batch.num_rows() {
            let event = expected.next().unwrap();
            let offset = Some(event.offset).filter(|offset| *offset != NO_OFFSET).map(|offset| offset.0);
            assert_eq!(arrow_array::Array::is_null(&offsets, row), offset.is_none());
            assert!(offset.is_none_or(|offset| offsets.value(row) == offset));
            assert_eq!(bytes.value(row), event.bytes);
            assert_eq!(starts.value(row) - trace.origin_unix_ns(), event.start.0);
            assert_eq!(ends.value(row) - trace.origin_unix_ns(), event.end.0);
            assert_eq!(Some(ranks.value(row)), trace.process(event.process).mpi_rank);
            assert_eq!(arrow_array::ArrayAccessor::value(&calls, row), event.call.name());
            rows += 1;
        }
    }
    assert_eq!((rows, expected.next()), (300_006, None));
}
