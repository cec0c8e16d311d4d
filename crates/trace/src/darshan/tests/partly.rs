//! Logs in which DXT has some of the requests only, and the times of some of a log's files.

use super::*;

/// Reads of 64 KiB one after the other, from an offset on.
fn reads(count: i64, from: i64) -> Vec<Segment> {
    let at = |number: i64| {
        let start_s = number as f64 * 1e-3;
        Segment { offset: from + number * 65536, length: 65536, start_s, end_s: start_s + 1e-4 }
    };
    (0..count).map(at).collect()
}

/// Counters of reads of 64 KiB somewhere in 1 GiB.
fn counted(reader: &mut Reader, id: u64, requests: i64) {
    let counters = [
        ("READS", requests),
        ("BYTES_READ", requests * 65536),
        ("MAX_BYTE_READ", (1 << 30) - 1),
        ("SIZE_READ_10K_100K", requests),
    ];
    record(reader, id, 0, &counters, &[("READ_TIME", 2.0), ("READ_END_TIMESTAMP", 9.0)]);
}

#[test]
fn of_a_file_with_fewer_segments_than_requests_the_counters_count() {
    let mut reader = begun(1, 10.0, &["POSIX", "DXT_POSIX"]);
    counted(&mut reader, 1, 600);
    counted(&mut reader, 2, 6);
    reader.take_item(end_of("POSIX", 2));
    // The last of them ends behind what the counters say.
    segments(&mut reader, 1, 0, &[], &reads(6, 2 << 30));
    segments(&mut reader, 2, 0, &[], &reads(6, 0));
    segments(&mut reader, 3, 0, &[], &reads(6, 0));
    reader.take_item(end_of("DXT_POSIX", 3));
    reader.take_item(Item::Names((1..4).map(|id| (id, format!("/d/{id}"))).collect()));
    let mut log = reader.finish().unwrap();

    let end = (2 << 30) + 6 * 65536;
    let partly = PartlyTraced { segments: 6, requests: 600, end };
    assert_eq!(log.partly_traced, BTreeMap::from([("/d/1".to_owned(), partly)]));
    assert_eq!(log.traced, HashSet::from(["/d/2".to_owned(), "/d/3".to_owned()]));
    assert!(log.missing[0].starts_with("DXT kept 6 of the 600 requests on /d/1; "), "{:?}", log.missing);
    assert_eq!(log.trace.as_ref().unwrap().warnings.len(), 1);
    let (access, _) = accesses(&log, Arrangement::Apart);
    assert_eq!((sums(&access), access.size_bytes), ((600, 600 * 65536), end));

    let trace = log.take_trace().unwrap();
    let with_data: Vec<&str> =
        trace.files.iter().filter(|file| file.data_level().is_some()).map(|file| file.path.as_str()).collect();
    assert_eq!((with_data, trace.event_count()), (vec!["/d/2", "/d/3"], 18));
}

#[test]
fn a_file_whose_offsets_are_beyond_what_is_planned_is_known_as_too_large() {
    let mut reader = begun(1, 10.0, &["POSIX"]);
    record(&mut reader, 1, 0, &[("READS", 6), ("BYTES_READ", 60), ("MAX_BYTE_READ", (1 << 50) - 1)], &[]);
    record(&mut reader, 2, 0, &[("READS", 6), ("BYTES_READ", 6), ("MAX_BYTE_READ", 1 << 50)], &[]);
    let log = reader.finish().unwrap();
    let is_too_large = |number: usize| super::coarse::is_too_large(&log, &log.files[number], ByteCount(64 << 20));
    assert_eq!((is_too_large(0), is_too_large(1)), (false, true));
}

#[test]
fn what_ranks_spent_is_known_of_some_files_alone() {
    let mut reader = begun(4, 100.0, &["POSIX", "DXT_POSIX"]);
    let read = |reader: &mut Reader, id: u64, rank: i64, seconds: f64| {
        let real = [("READ_TIME", seconds), ("SLOWEST_RANK_TIME", 8.0), ("META_TIME", 1.0)];
        record(reader, id, rank, &[("READS", 1), ("BYTES_READ", 65536)], &real);
    };
    // Files of one rank each, one of two of the ranks, and shared ones, of one of which all requests are known.
    [(1, 0, 7.0), (2, 0, 2.0), (3, 1, 5.0), (4, 2, 3.0), (4, 3, 4.0), (5, -1, 20.0), (6, -1, 20.0)]
        .into_iter()
        .for_each(|(id, rank, seconds)| read(&mut reader, id, rank, seconds));
    reader.take_item(end_of("POSIX", 7));
    segments(&mut reader, 6, 3, &[], &[Segment { offset: 0, length: 65536, start_s: 1.0, end_s: 7.5 }]);
    reader.take_item(end_of("DXT_POSIX", 1));
    reader.take_item(Item::Names((1..7).map(|id| (id, format!("/d/{id}"))).collect()));
    let log = reader.finish().unwrap();
    let of = |wanted: &[&str]| {
        let shares = log.shares_of(|path| wanted.contains(&path));
        let round = |seconds: f64| (seconds * 1e6).round() / 1e6;
        (round(shares.most_data_s()), round(shares.busiest().time_s))
    };
    assert_eq!(of(&["/d/1", "/d/3"]), (7.0, 8.0), "the rank that has more, its opens included");
    assert_eq!(of(&["/d/1", "/d/2"]), (9.0, 11.0), "both are of one rank");
    assert_eq!(of(&["/d/4"]), (5.0, 5.0), "no rank took longer than the slower one");
    assert_eq!(of(&["/d/5"]), (8.0, 8.0), "the slowest rank of a shared file");
    assert_eq!(of(&["/d/6"]).0, 6.5, "what DXT has of it");
    assert_eq!(of(&["/d/3", "/d/5"]).0, 13.0, "the slowest one may be that rank");
    assert_eq!(of(&[]), (0.0, 0.0));
    assert!(log.shares_of(|_| true).most_data_s() >= log.shares.most_data_s());
}
