use super::keys::file_key;
use super::*;
use crate::rmt::lmdb::LmdbStore;
use proptest::prelude::*;
use std::collections::BTreeMap;
use stripewise_layout::{ByteCount, ServerId};

pub(super) fn layout(bytes: u32) -> Layout {
    Layout::new([(ServerId(0), bytes), (ServerId(1), 2 * bytes)]).unwrap()
}

pub(crate) fn record(path: &str) -> FileRecord {
    FileRecord {
        path: path.to_owned(),
        stub: Inode { device: 3, inode: 4, born_ns: 5 },
        boot: [9; 16],
        region_bytes: 1 << 20,
        size_bytes: 77,
        generations_reserved: 64,
        generations_synced: 3,
        state: FileState::Live,
        truncating_to_bytes: None,
        has_leftovers: false,
        mode: 0o640,
        uid: 1,
        gid: 2,
        created_ns: 6,
        epoch: 0,
        parent: None,
        above: Vec::new(),
        root: None,
        is_described: false,
        is_size_untold: false,
        put_away_in: None,
        put_away_unsynced: false,
        truncating_number: None,
        truncation_numbers: Vec::new(),
        truncations: 0,
    }
}

#[test]
fn programs_that_are_started_do_not_inherit_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let _store = LmdbStore::open(directory.path()).unwrap();
    let listed = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(text.contains("/proc/") && !text.contains(directory.path().to_str().unwrap()), "{text}");
}

#[test]
fn records_survive_reopening_and_lists_are_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Table::new(Box::new(LmdbStore::open(directory.path()).unwrap())).unwrap();
    let placement = Placement::uniform(ByteCount(1 << 20), layout(4096), layout(8192));
    let region = RegionRecord { fell_back: true, ..RegionRecord::placed(Generation(7), layout(4096)) };
    {
        let table = open();
        let mut changes = Changes::default();
        for file in [FileId(2), FileId(1), FileId(300)] {
            changes.put_file(file, &record(&file.to_string()));
            changes.put_placement(file, &placement);
        }
        changes.put_inode(record("").stub, FileId(2));
        for index in [256, 1, 0] {
            changes.put_region(FileId(2), RegionIndex(index), &region);
        }
        changes.put_region(FileId(300), RegionIndex(5), &region);
        table.commit(&changes).unwrap();
        table.set_name(NameKind::Managed, "/a/b", Some(&placement)).unwrap();
        table.set_name(NameKind::Expected, "/a/c", Some(&placement)).unwrap();
        assert!(matches!(table.set_name(NameKind::Managed, &"x".repeat(501), None), Err(RmtError::PathTooLong { .. })));
    }
    let table = open();
    assert_eq!(table.all_files().unwrap().iter().map(|(file, _)| file.0).collect::<Vec<_>>(), [1, 2, 300]);
    assert_eq!(table.files(Some(FileId(1)), 1).unwrap(), [(FileId(2), record(&FileId(2).to_string()))]);
    assert_eq!(table.placement(FileId(2)).unwrap(), Some(placement.clone()));
    assert_eq!(table.file_of(Inode { born_ns: 0, ..record("").stub }).unwrap(), Some(FileId(2)));
    let regions: Vec<_> =
        table.regions(FileId(2)).unwrap().into_iter().map(|(index, found)| (index.0, found)).collect();
    assert_eq!(regions, [(0, region.clone()), (1, region.clone()), (256, region.clone())]);
    let mut count = 0;
    table.every_region(|_, _, _| count += 1).unwrap();
    assert_eq!(count, 4);
    assert_eq!(table.names(NameKind::Managed).unwrap(), [("/a/b".to_owned(), placement)]);
    let mut changes = Changes::default();
    changes.remove_file(FileId(2));
    changes.remove_inode(record("").stub);
    changes.remove_region(FileId(2), RegionIndex(1));
    table.commit(&changes).unwrap();
    assert_eq!(table.file(FileId(2)).unwrap(), None);
    assert_eq!(table.file_of(record("").stub).unwrap(), None);
    assert_eq!(table.regions(FileId(2)).unwrap().len(), 2);
}

#[test]
fn another_version_and_a_damaged_record_are_named() {
    let directory = tempfile::tempdir().unwrap();
    {
        let table = Table::new(Box::new(LmdbStore::open(directory.path()).unwrap())).unwrap();
        table.store.put(&file_key(b'f', FileId(0xbad)), &[0xff; 9]).unwrap();
        let said = table.file(FileId(0xbad)).unwrap_err().to_string();
        assert!(said.contains("file 0000000000000bad"), "{said}");
    }
    let store = LmdbStore::open(directory.path()).unwrap();
    store.put(b"v", &sealed::seal(b"v", &[99])).unwrap();
    let said = Table::new(Box::new(store)).err().unwrap().to_string();
    assert!(said.contains("version 99"), "{said}");
}

#[test]
fn another_cluster_and_servers_in_another_order_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let table = Table::new(Box::new(LmdbStore::open(directory.path()).unwrap())).unwrap();
    let of = |id: &str, servers: &[&str]| {
        table.belong_to(&ClusterRecord {
            id: id.into(),
            servers: servers.iter().map(|name| (*name).to_owned()).collect(),
        })
    };
    of("c", &["a", "b"]).unwrap();
    of("c", &["a", "b", "new"]).unwrap();
    let said = of("c", &["b", "a", "new"]).unwrap_err().to_string();
    assert!(said.contains("b, a, new") && said.contains("a, b, new"), "{said}");
    assert!(matches!(of("c", &["a", "b"]), Err(RmtError::Servers { .. })));
    assert!(matches!(of("d", &["a", "b", "new"]), Err(RmtError::OtherCluster { .. })));
    of("c", &["a", "b", "new"]).unwrap();
}

#[test]
fn watchers_hear_of_what_took_effect() {
    let directory = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(directory.path()).unwrap();
    let heard = store.watch(b"a");
    store.put(b"b", b"1").unwrap();
    store.put(b"a1", b"1").unwrap();
    assert!(!store.compare_and_swap(b"a2", Some(b"x"), Some(b"y")).unwrap());
    assert!(store.compare_and_swap(b"a1", Some(b"1"), None).unwrap());
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [b"a1".to_vec(), b"a1".to_vec()]);
}

/// A key, what is expected there and what is put there.
type Step = (u8, Option<u8>, Option<u8>);

/// Batches of up to three such steps, to keys that differ.
pub(crate) fn batches() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let value = || proptest::option::of(0u8..4);
    proptest::collection::vec(proptest::collection::vec((0u8..12, value(), value()), 1..4), 1..30)
}

/// Commits the batches to an empty store and to a plain map.
pub(crate) fn check_as_sorted_map(store: &dyn MappingStore, batches: Vec<Vec<Step>>) -> Result<(), TestCaseError> {
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for steps in batches {
        let steps: BTreeMap<_, _> = steps.into_iter().map(|(key, old, new)| (vec![b'k', key], (old, new))).collect();
        let value = |value: Option<u8>| value.map(|value| vec![0xff; value.into()]);
        let expected: Vec<_> = steps.iter().map(|(key, (old, _))| (key.clone(), value(*old))).collect();
        let changes: Vec<_> = steps.iter().map(|(key, (_, new))| (key.clone(), value(*new))).collect();
        let holds = expected.iter().all(|(key, old)| model.get(key) == old.as_ref());
        prop_assert_eq!(store.commit(&Batch { expected, changes: changes.clone() }).unwrap(), holds);
        for (key, new) in changes {
            match new.filter(|_| holds) {
                Some(value) => drop(model.insert(key.clone(), value)),
                None if holds => drop(model.remove(&key)),
                None => {}
            }
            prop_assert_eq!(store.get(&key).unwrap(), model.get(&key).cloned());
        }
    }
    let all: Entries = model.into_iter().collect();
    prop_assert_eq!(&store.scan(b"k", None, 100).unwrap(), &all);
    prop_assert_eq!(&store.scan(b"", None, usize::MAX).unwrap(), &all);
    if let Some((first, _)) = all.first() {
        prop_assert_eq!(
            store.scan(b"k", Some(first), 3).unwrap(),
            all[1..].iter().take(3).cloned().collect::<Vec<_>>()
        );
    }
    prop_assert_eq!(store.scan(b"l", None, 3).unwrap(), vec![]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_store_behaves_as_a_sorted_map(batches in batches()) {
        let directory = tempfile::tempdir().unwrap();
        check_as_sorted_map(&LmdbStore::open(directory.path()).unwrap(), batches.clone())?;
        check_as_sorted_map(&memory::MemoryStore::default(), batches)?;
    }
}

/// What a broker of table version 1 wrote: keys and values in hexadecimal.
const VERSION_1: &str = include_str!("version_1.txt");
/// The same of versions 2 and 3.
const VERSION_2: &str = include_str!("version_2.txt");
const VERSION_3: &str = include_str!("version_3.txt");

fn bytes_of(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn entries_of(text: &str) -> Entries {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap()).map(|(key, value)| (bytes_of(key), bytes_of(value))).collect()
}

/// A directory with such a table in `rmt`.
fn table_of(text: &str, version: u8) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("rmt")).unwrap();
    let store = open_in(&directory);
    for (key, value) in entries_of(text) {
        store.put(&key, &value).unwrap();
    }
    assert_eq!(store.get(b"v").unwrap(), Some(vec![version]));
    drop(store);
    directory
}

fn open_in(directory: &tempfile::TempDir) -> LmdbStore {
    LmdbStore::open(&directory.path().join("rmt")).unwrap()
}

/// Counts and adds up all records, as the head should say.
fn assert_adds_up(table: &Table) {
    let entries = table.store.scan(b"", None, usize::MAX).unwrap();
    let records: Vec<_> = entries.iter().filter(|(key, _)| key != b"h").collect();
    let digests = records.iter().map(|(key, value)| sealed::digest_of(key, sealed::open(key, value).unwrap()));
    let head: HeadRecord = table.get(b"h").unwrap().unwrap();
    assert_eq!(head.records, records.len() as u64);
    assert_eq!(u128::from_le_bytes(head.digest), digests.fold(0, u128::wrapping_add));
}

#[test]
fn a_table_of_version_1_is_taken_over() {
    let directory = table_of(VERSION_1, 1);
    let open = || Table::new(Box::new(open_in(&directory))).unwrap();
    let file = FileId(0x0123_4567_89ab_cdef);
    {
        let table = open();
        table.belong_to(&ClusterRecord { id: "c0ffee".into(), servers: vec!["hdd0".into(), "ssd0".into()] }).unwrap();
        assert_eq!(table.all_files().unwrap(), [(file, record("/data/old"))]);
        let placement = Placement::uniform(ByteCount(1 << 20), layout(4096), layout(8192));
        assert_eq!(table.placement(file).unwrap(), Some(placement.clone()));
        let region = RegionRecord { fell_back: true, ..RegionRecord::placed(Generation(3), layout(4096)) };
        assert_eq!(table.regions(file).unwrap(), [(RegionIndex(7), region)]);
        assert_eq!(table.file_of(record("").stub).unwrap(), Some(file));
        assert_eq!(table.names(NameKind::Managed).unwrap(), [("/data".to_owned(), placement)]);
        assert_eq!(table.discards(None).unwrap(), []);
        let mut changes = Changes::default();
        changes.put_discard(file, RegionIndex(7), Generation(4), &layout(512));
        changes.put_discard(FileId(9), RegionIndex(0), Generation(1), &layout(1024));
        table.commit(&changes).unwrap();
        assert_eq!(table.fragments_switch(file).unwrap(), None, "as the cluster says");
    }
    let table = open();
    assert_eq!(table.discards(Some(file)).unwrap(), [(file, RegionIndex(7), Generation(4), layout(512))]);
    assert_eq!(table.discards(None).unwrap().len(), 2);
    let mut changes = Changes::default();
    changes.remove_discard(file, RegionIndex(7), Generation(4));
    table.commit(&changes).unwrap();
    assert_eq!(table.discards(Some(file)).unwrap(), []);
}

#[test]
fn the_switch_of_fragments_is_kept_and_goes_with_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Table::new(Box::new(LmdbStore::open(directory.path()).unwrap())).unwrap();
    for on in [Some(true), Some(false), None, Some(true)] {
        let mut changes = Changes::default();
        changes.put_fragments_switch(FileId(2), on);
        open().commit(&changes).unwrap();
        let table = open();
        assert_eq!(table.fragments_switch(FileId(2)).unwrap(), on);
        assert_eq!(table.fragments_switch(FileId(3)).unwrap(), None);
    }
    let table = open();
    let mut changes = Changes::default();
    changes.remove_file(FileId(2));
    table.commit(&changes).unwrap();
    assert_eq!(table.fragments_switch(FileId(2)).unwrap(), None);
}

#[test]
fn a_table_of_version_2_is_taken_over() {
    let directory = table_of(VERSION_2, 2);
    let open = || Table::new(Box::new(open_in(&directory))).unwrap();
    let file = FileId(0x0123_4567_89ab_cdef);
    let log = LogRecord { on: ServerId(1), generation: Generation(9) };
    {
        let table = open();
        assert_eq!(table.all_files().unwrap(), [(file, record("/data/old"))]);
        assert_eq!(table.discards(None).unwrap(), [(file, RegionIndex(7), Generation(4), layout(512))]);
        let replica = ReplicaRecord { generation: Generation(5), layout: layout(4096) };
        assert_eq!(table.replicas(None).unwrap(), [(file, RegionIndex(7), 0, replica)]);
        let wanted = |first, regions, layout| WantedReplicas { first: RegionIndex(first), regions, layout };
        assert_eq!(table.wanted(file).unwrap(), [wanted(7, 1, layout(4096))]);
        assert_eq!(table.expected_replicas("/data/new").unwrap(), [wanted(0, 2, layout(512))]);
        assert_eq!((table.logs(None).unwrap(), table.fragments_switch(file).unwrap()), (vec![], None));
        let mut changes = Changes::default();
        changes.put_log(file, ServerId(0), log);
        changes.put_fragments_switch(file, Some(true));
        table.commit(&changes).unwrap();
    }
    let table = open();
    assert_eq!(table.logs(Some(file)).unwrap(), [(file, ServerId(0), log)]);
    assert_eq!(table.logs(Some(FileId(1))).unwrap(), []);
    assert_eq!(table.fragments_switch(file).unwrap(), Some(true));
    let mut changes = Changes::default();
    changes.remove_log(file, ServerId(0));
    table.commit(&changes).unwrap();
    assert_eq!(table.logs(None).unwrap(), []);
}

#[test]
fn a_table_of_version_3_is_taken_over_after_a_copy_of_it_was_kept() {
    let directory = table_of(VERSION_3, 3);
    assert_eq!(earlier_version(&open_in(&directory)).unwrap(), Some(3));
    let open = || Table::new(Box::new(open_in(&directory))).unwrap();
    let file = FileId(0x0123_4567_89ab_cdef);
    let importing = FileId(0x1111_2222_3333_4444);
    let releasing = FileId(0x5555_6666_7777_8888);
    // The second opening finds what the first has written.
    for _ in 0..2 {
        let table = open();
        let original = Inode { device: 7, inode: 8, born_ns: 9 };
        let state = FileState::Importing { original, temporary: ".in".into(), complete: true };
        let truncated = Some(5 << 40);
        let first = FileRecord {
            state,
            truncating_to_bytes: truncated,
            has_leftovers: true,
            mode: 0o4755,
            ..record("/data/in")
        };
        let copy = Inode { device: 7, inode: 10, born_ns: 0 };
        let last = FileRecord { state: FileState::Releasing { copy, temporary: ".out".into() }, ..record("/data/out") };
        let files = [(file, record("/data/old")), (importing, first), (releasing, last)];
        assert_eq!(table.all_files().unwrap(), files);
        let placement = Placement {
            region_size: ByteCount(1 << 20),
            layouts: vec![layout(4096), layout(8192)],
            runs: vec![stripewise_layout::Run { regions: 3, layout: 1 }],
            beyond: 0,
            fallback: 1,
        };
        assert_eq!(table.placement(importing).unwrap(), Some(placement.clone()));
        assert_eq!(table.names(NameKind::Expected).unwrap(), [("/data/later".to_owned(), placement)]);
        let moved = RegionRecord::placed(Generation(1 << 31 | 5), layout(65536));
        assert_eq!(table.regions(importing).unwrap(), [(RegionIndex(300), moved)]);
        let log = LogRecord { on: ServerId(1), generation: Generation(9) };
        assert_eq!(table.logs(None).unwrap(), [(file, ServerId(0), log)]);
        assert_eq!(table.file_of(record("").stub).unwrap(), Some(file));
        let switches = [file, importing, releasing].map(|file| table.fragments_switch(file).unwrap());
        assert_eq!(switches, [Some(true), Some(false), None]);
        assert_eq!(table.discards(None).unwrap().len(), 1);
        assert_eq!((table.replicas(None).unwrap().len(), table.wanted(file).unwrap().len()), (1, 1));
        assert_adds_up(&table);
    }
    let copy = LmdbStore::open(&LmdbStore::copy_path(&directory.path().join("rmt"), "v3")).unwrap();
    let kept: BTreeMap<_, _> = copy.scan(b"", None, usize::MAX).unwrap().into_iter().collect();
    assert_eq!(kept, entries_of(VERSION_3).into_iter().collect());
}

#[test]
fn an_earlier_stripewise_reads_the_number_of_this_version() {
    let directory = tempfile::tempdir().unwrap();
    let table = Table::new(Box::new(LmdbStore::open(directory.path()).unwrap())).unwrap();
    // As versions 1 to 3 read it: what follows the number is not looked at.
    let value = table.store.get(b"v").unwrap().unwrap();
    assert_eq!(postcard::from_bytes::<u32>(&value).unwrap(), TABLE_VERSION);
}

#[test]
fn a_damaged_record_of_an_earlier_version_is_named_and_nothing_is_changed() {
    let directory = table_of(VERSION_3, 3);
    open_in(&directory).put(&file_key(b'f', FileId(7)), &[0xff; 3]).unwrap();
    let all = || open_in(&directory).scan(b"", None, usize::MAX).unwrap();
    let before = all();
    let said = Table::new(Box::new(open_in(&directory))).err().unwrap().to_string();
    assert!(said.contains("file 0000000000000007"), "{said}");
    assert_eq!(all(), before);
}

#[test]
fn a_later_stripewises_fields_are_passed_over_and_features_that_it_needs_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Table::new(Box::new(LmdbStore::open(directory.path()).unwrap()));
    {
        let table = open().unwrap();
        // A map of field 0 and of a field that is not known yet.
        let later = [0xa2, 0x00, 0xf5, 0x18, 99, 0x63, b'n', b'e', b'w'];
        table.set(file_key(b'g', FileId(1)), Some(later.to_vec())).unwrap();
        // And a kind of key that is not.
        table.set(file_key(b'q', FileId(1)), Some(vec![0xa0])).unwrap();
        assert_eq!(table.fragments_switch(FileId(1)).unwrap(), Some(true));
        assert_adds_up(&table);
        let head: HeadRecord = table.get(b"h").unwrap().unwrap();
        let head = HeadRecord { needs: vec!["small files".into()], ..head };
        table.store.put(b"h", &sealed::seal(b"h", &encode(&head))).unwrap();
    }
    let said = open().err().unwrap().to_string();
    assert!(said.contains("needs small files"), "{said}");
}

#[test]
fn a_record_at_anothers_key_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let table = Table::new(Box::new(LmdbStore::open(directory.path()).unwrap())).unwrap();
    let mut changes = Changes::default();
    changes.put_file(FileId(1), &record("/one"));
    table.commit(&changes).unwrap();
    let value = table.store.get(&file_key(b'f', FileId(1))).unwrap().unwrap();
    table.store.put(&file_key(b'f', FileId(2)), &value).unwrap();
    assert_eq!(table.file(FileId(1)).unwrap(), Some(record("/one")));
    assert!(matches!(table.file(FileId(2)), Err(RmtError::Damaged { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_head_adds_up_after_any_transactions(
        steps in proptest::collection::vec(proptest::collection::vec((0u64..9, any::<bool>(), any::<u8>()), 1..5), 1..12),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let open = || Table::new(Box::new(LmdbStore::open(directory.path()).unwrap())).unwrap();
        for step in steps {
            let mut changes = Changes::default();
            for (file, puts, path) in step {
                match puts {
                    true => changes.put_file(FileId(file), &record(&path.to_string())),
                    false => changes.remove_file(FileId(file)),
                }
            }
            let table = open();
            table.commit(&changes).unwrap();
            assert_adds_up(&table);
        }
    }
}
