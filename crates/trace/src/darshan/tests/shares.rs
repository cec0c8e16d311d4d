//! What each rank did: from records of one rank, of all ranks, and from DXT.

use super::*;

/// Reads and writes of all ranks in `seconds`, the slowest of them in `slowest`.
fn shared(reader: &mut Reader, id: u64, requests: i64, seconds: f64, slowest: (i64, f64)) {
    let counters = [("WRITES", requests), ("BYTES_WRITTEN", requests * MIB), ("SLOWEST_RANK", slowest.0)];
    let counters = [&counters[..], &[("SLOWEST_RANK_BYTES", MIB), ("FASTEST_RANK", 1)]].concat();
    let real = [("WRITE_TIME", seconds), ("SLOWEST_RANK_TIME", slowest.1), ("FASTEST_RANK_TIME", 0.0)];
    record(reader, id, -1, &counters, &real);
}

fn close(one: f64, two: f64) -> bool {
    (one - two).abs() < 1e-6
}

#[test]
fn mpi_io_without_posix_has_its_ranks_and_its_time_line() {
    let mut reader = begun(4, 100.0, &["MPI-IO", "STDIO"]);
    let counters = [("INDEP_WRITES", 400), ("BYTES_WRITTEN", 400 * MIB)];
    let real = [("WRITE_TIME", 200.0), ("WRITE_START_TIMESTAMP", 10.0), ("WRITE_END_TIMESTAMP", 90.0)];
    record_of(&mut reader, ("MPI-IO", "MPIIO"), 1, -1, &counters, &real);
    reader.take_item(end_of("MPI-IO", 1));
    let said = [("WRITES", 1), ("BYTES_WRITTEN", 80)];
    record_of(&mut reader, ("STDIO", "STDIO"), 2, 0, &said, &[("WRITE_TIME", 0.001)]);
    reader.take_item(end_of("STDIO", 1));
    let log = reader.finish().unwrap();
    assert!(close(log.near_servers.data_s(), 200.001) && close(log.shares.mean().time_s, 200.001 / 4.0));
    assert!(log.shares.busiest().time_s >= 50.0, "{:?}", log.shares);
    assert!(log.shares.most_data_s() >= 50.0, "{:?}", log.shares);
    let written: f64 = log.timeline.iter().map(|slice| slice[1]).sum();
    assert_eq!(written.round() as i64, 400 * MIB + 80);
}

#[test]
fn mpi_io_above_posix_counts_once() {
    let mut reader = begun(4, 100.0, &["POSIX", "MPI-IO"]);
    let real = [("WRITE_TIME", 40.0), ("META_TIME", 4.0)];
    record(&mut reader, 1, -1, &[("WRITES", 10), ("BYTES_WRITTEN", 100)], &real);
    // Opened by POSIX, and written in another way.
    record(&mut reader, 2, -1, &[("OPENS", 4)], &[("META_TIME", 2.0)]);
    reader.take_item(end_of("POSIX", 2));
    for id in [1, 2] {
        let real = [("WRITE_TIME", 50.0), ("META_TIME", 5.0)];
        record_of(&mut reader, ("MPI-IO", "MPIIO"), id, -1, &[("COLL_WRITES", 8), ("BYTES_WRITTEN", 100)], &real);
    }
    reader.take_item(end_of("MPI-IO", 2));
    let log = reader.finish().unwrap();
    assert_eq!((log.near_servers.requests(), log.near_servers.bytes()), (18, 200));
    assert!(close(log.near_servers.data_s(), 90.0) && close(log.near_servers.metadata_s, 6.0));
}

#[test]
fn the_slowest_rank_of_shared_files_has_the_time_that_the_log_says() {
    let mut reader = begun(4, 100.0, &["POSIX"]);
    shared(&mut reader, 1, 40, 40.0, (2, 30.0));
    let one = reader.finish().unwrap();
    assert!(close(one.shares.busiest().time_s, 30.0) && close(one.shares.most_data_s(), 30.0), "{:?}", one.shares);
    assert!(close(one.shares.mean().time_s, 10.0));
    assert!(close(one.shares.busiest().bytes, MIB as f64), "{:?}", one.shares);

    // One rank is slowest in two files, and another has a file of its own.
    let mut reader = begun(4, 100.0, &["POSIX"]);
    shared(&mut reader, 1, 40, 40.0, (2, 30.0));
    shared(&mut reader, 2, 40, 20.0, (2, 14.0));
    record(&mut reader, 3, 3, &[("READS", 1), ("BYTES_READ", 9)], &[("READ_TIME", 7.0)]);
    let log = reader.finish().unwrap();
    assert!(close(log.shares.busiest().time_s, 44.0), "{:?}", log.shares);
    assert!(close(log.shares.mean().time_s, 67.0 / 4.0));
    assert!(close(log.shares.most_data_s(), 51.0), "any rank may come close to the slowest: {:?}", log.shares);

    // Different ranks are slowest: no rank has more than both, and none is known to have more than the one.
    let mut reader = begun(8, 100.0, &["POSIX"]);
    shared(&mut reader, 1, 40, 40.0, (2, 30.0));
    shared(&mut reader, 2, 40, 20.0, (3, 14.0));
    let log = reader.finish().unwrap();
    assert!((30.0..44.0).contains(&log.shares.busiest().time_s), "{:?}", log.shares);
    assert!(close(log.shares.most_data_s(), 44.0), "{:?}", log.shares);
}

#[test]
fn with_dxt_each_rank_of_a_shared_file_has_its_own_time_unless_requests_are_missing() {
    let read = |requests: i64| {
        let mut reader = begun(4, 100.0, &["POSIX", "DXT_POSIX"]);
        shared(&mut reader, 1, requests, 40.0, (2, 30.0));
        reader.take_item(end_of("POSIX", 1));
        for rank in 0..4 {
            let segment = |number: i64| Segment {
                offset: number * MIB,
                length: MIB,
                start_s: number as f64,
                end_s: number as f64 + if rank == 3 { 0.5 } else { 0.125 },
            };
            segments(&mut reader, 1, rank, &(0..10).map(segment).collect::<Vec<_>>(), &[]);
        }
        reader.take_item(end_of("DXT_POSIX", 4));
        reader.finish().unwrap().shares
    };
    let whole = read(40);
    assert!(close(whole.busiest().time_s, 5.0) && close(whole.most_data_s(), 5.0), "{whole:?}");
    assert!(close(whole.busiest().bytes, (10 * MIB) as f64));
    let part = read(41);
    assert!(close(part.busiest().time_s, 30.0) && close(part.most_data_s(), 30.0), "{part:?}");
}

#[test]
fn the_first_request_of_a_rank_has_no_order() {
    // 200 ranks with one write each, and one of them with ten.
    let mut reader = begun(200, 10.0, &["POSIX"]);
    for rank in 0..200 {
        let counters = if rank == 7 { [("WRITES", 10), ("SEQ_WRITES", 4)] } else { [("WRITES", 1), ("SEQ_WRITES", 0)] };
        let counters = [&counters[..], &[("BYTES_WRITTEN", 10), ("CONSEC_WRITES", 0)]].concat();
        record(&mut reader, rank as u64, rank, &counters, &[]);
    }
    let log = reader.finish().unwrap();
    assert_eq!((log.near_servers.write.ordered, log.near_servers.write.sequential), (9, 4));
}
