//! Damages of a table's file, each found or harmless.

use super::*;
use crate::rmt::keys::file_key;
use crate::rmt::lmdb::LmdbStore;
use crate::rmt::tests::{layout, record};
use crate::rmt::{Changes, Inode, MappingStore, Table};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::PathBuf;
use stripewise_layout::{ByteCount, Generation, Placement, RegionIndex};

fn open(directory: &Path) -> Table {
    Table::new(Box::new(LmdbStore::open(directory).unwrap())).unwrap().witnessed_in(directory).unwrap()
}

/// Transactions as a broker makes them: files come and go, regions are placed and moved; some values are longer than a page.
fn change(table: &Table, dice: &mut StdRng, count: usize) {
    for _ in 0..count {
        let file = FileId(dice.random_range(1..20));
        let mut changes = Changes::default();
        if dice.random_bool(0.2) {
            changes.remove_file(file);
            for (region, _) in table.regions(file).unwrap() {
                changes.remove_region(file, region);
            }
        } else {
            let stub = Inode { device: 1, inode: file.0, born_ns: 0 };
            changes.put_file(file, &FileRecord { stub, size_bytes: dice.random(), ..record("/some/where") });
            changes.put_inode(stub, file);
            for _ in 0..dice.random_range(0..30) {
                let generation = Generation(dice.random());
                let region = RegionRecord::placed(generation, layout(dice.random_range(1..9) * 512));
                changes.put_region(file, RegionIndex(dice.random_range(0..200)), &region);
            }
            let layouts = (0..dice.random_range(1..600)).map(|number| layout(512 * (number + 1)));
            let of = Placement::from_regions(ByteCount(1 << 20), layouts, layout(512), layout(512));
            changes.put_placement(file, &of);
        }
        table.commit(&changes).unwrap();
    }
}

fn all(table: &Table) -> BTreeMap<Vec<u8>, Vec<u8>> {
    table.store.scan(b"", None, usize::MAX).unwrap().into_iter().collect()
}

const PAGE: usize = 4096;

/// What a failing disk, a stray write or a restored copy leaves.
fn damaged(now: &[u8], before: &[u8], dice: &mut StdRng) -> (Vec<u8>, String) {
    let mut bytes = now.to_vec();
    let pages = now.len() / PAGE;
    let page = dice.random_range(0..pages) * PAGE;
    let what = match dice.random_range(0..10) {
        kind @ 0..4 => {
            // The pages that lead to all others are hit as often as all the rest.
            let range = if dice.random() { 0..3 * PAGE } else { 0..now.len() };
            let places: Vec<usize> = (0..if kind < 2 { 1 } else { dice.random_range(2..17) })
                .map(|_| dice.random_range(range.clone()))
                .collect();
            places.iter().for_each(|at| bytes[*at] ^= dice.random_range(1..=255u8));
            format!("bytes {places:?}")
        }
        4 => {
            bytes.truncate(dice.random_range(0..now.len()));
            format!("cut to {}", bytes.len())
        }
        5 => {
            bytes[page..page + PAGE].fill(0);
            format!("zeros in page {}", page / PAGE)
        }
        6 => {
            dice.fill(&mut bytes[page..page + PAGE]);
            format!("noise in page {}", page / PAGE)
        }
        7 => {
            let other = dice.random_range(0..pages) * PAGE;
            bytes[page..page + PAGE].copy_from_slice(&now[other..other + PAGE]);
            format!("page {} is page {}", page / PAGE, other / PAGE)
        }
        8 => {
            let page = page % before.len();
            bytes[page..page + PAGE].copy_from_slice(&before[page..page + PAGE]);
            format!("page {} is old", page / PAGE)
        }
        _ => {
            // The later meta page says that it is the earlier one.
            let newer = if bytes[144..152] < bytes[PAGE + 144..PAGE + 152] { PAGE } else { 0 };
            bytes[newer + 144..newer + 152].fill(0);
            bytes[newer + 144] = u8::from(newer > 0);
            "the last transaction is taken back".to_owned()
        }
    };
    (bytes, what)
}

struct Bed {
    _keep: tempfile::TempDir,
    directory: PathBuf,
    seed: u64,
    dice: StdRng,
}

impl Bed {
    fn new() -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let seed = number("STRIPED_SEED").unwrap_or_else(|| u64::from(std::process::id()));
        println!("seed {seed}");
        let keep = tempfile::tempdir().unwrap();
        let directory = keep.path().join("rmt");
        std::fs::create_dir(&directory).unwrap();
        Self { _keep: keep, directory, seed, dice: StdRng::seed_from_u64(seed) }
    }

    fn file(&self) -> PathBuf {
        self.directory.join(pages::FILE)
    }

    /// Some transactions more, and the file after them.
    fn go_on(&mut self, transactions: usize) -> Vec<u8> {
        change(&open(&self.directory), &mut self.dice, transactions);
        std::fs::read(self.file()).unwrap()
    }
}

/// `STRIPED_TABLE_DAMAGES` makes it long.
#[test]
fn a_damaged_table_is_named_or_says_all_that_it_said_and_can_be_changed() {
    let mut bed = Bed::new();
    let before = bed.go_on(40);
    let now = bed.go_on(40);
    let witness = std::fs::read(bed.directory.join("committed")).unwrap();
    let expected = all(&open(&bed.directory));
    let count = std::env::var("STRIPED_TABLE_DAMAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let mut harmless = 0;
    for number in 0..count {
        let (bytes, what) = damaged(&now, &before, &mut bed.dice);
        let context = format!("seed {}, number {number}: {what}", bed.seed);
        std::fs::write(bed.file(), &bytes).unwrap();
        std::fs::write(bed.directory.join("committed"), &witness).unwrap();
        let audit = Audit::of(&bed.directory).unwrap();
        if !audit.is_whole() {
            continue;
        }
        harmless += 1;
        let table = open(&bed.directory);
        assert!(all(&table) == expected, "{context}: other records, and nothing was said");
        change(&table, &mut bed.dice, 10);
        drop(table);
        assert_eq!(Audit::of(&bed.directory).unwrap().damages, [""; 0], "{context}, then changed");
    }
    println!("{harmless} of {count} damages hit what nothing reads");
    assert!(harmless < count, "no damage was found");
}

#[test]
fn every_table_that_was_changed_in_order_is_whole() {
    let mut bed = Bed::new();
    for step in 0..30 {
        bed.go_on(1 + step % 5);
        let audit = Audit::of(&bed.directory).unwrap();
        assert_eq!(audit.damages, [""; 0], "seed {}, step {step}", bed.seed);
        assert_eq!(audit.records, all(&open(&bed.directory)).len() as u64);
        let table = open(&bed.directory);
        table.keep_good_copy(&bed.directory).unwrap();
        let copy = LmdbStore::copy_path(&bed.directory, crate::rmt::GOOD_COPY);
        assert_eq!(Audit::of(&copy).unwrap(), audit);
    }
}

#[test]
fn an_older_table_and_a_lost_record_are_named() {
    let mut bed = Bed::new();
    let before = bed.go_on(3);
    // Random transactions may leave no file, and one is to be lost below.
    let mut changes = Changes::default();
    let lost = FileId(1 << 40);
    changes.put_file(lost, &record("/some/where"));
    changes.put_region(lost, RegionIndex(0), &RegionRecord::placed(Generation(0), layout(512)));
    open(&bed.directory).commit(&changes).unwrap();
    let now = std::fs::read(bed.file()).unwrap();
    std::fs::write(bed.file(), &before).unwrap();
    let said = Audit::of(&bed.directory).unwrap().damages.join("; ");
    assert!(said.contains("it is that of transaction 3, but 4 were committed"), "{said}");
    std::fs::write(bed.file(), &now).unwrap();
    {
        let store = LmdbStore::open(&bed.directory).unwrap();
        store.commit(&crate::rmt::Batch { expected: vec![], changes: vec![(file_key(b'f', lost), None)] }).unwrap();
    }
    let said = Audit::of(&bed.directory).unwrap().damages.join("; ");
    assert!(said.contains("do not add up") && said.contains("files that it does not know"), "{said}");
}

#[test]
fn records_of_files_that_are_not_known_are_named() {
    let bed = Bed::new();
    let mut changes = Changes::default();
    changes.set(file_key(b'p', FileId(9)), Some(vec![0xa0]));
    changes.put_fragments_switch(FileId(9), Some(true));
    open(&bed.directory).commit(&changes).unwrap();
    let said = Audit::of(&bed.directory).unwrap().damages.join("; ");
    assert!(said.contains("entry for file 0000000000000009 is damaged"), "{said}");
    assert!(said.contains("1 entries belong to files that it does not know"), "{said}");
}

/// The figure of the release notes: `cargo test --release -p stripewise-store --lib hundred_thousand -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn a_table_of_a_hundred_thousand_regions_is_read_in_time() {
    let bed = Bed::new();
    let table = open(&bed.directory);
    for file in 0..100 {
        let mut changes = Changes::default();
        changes.put_file(FileId(file), &record("/some/where"));
        for region in 0..1000 {
            let place = RegionRecord::placed(Generation(region), layout(512));
            changes.put_region(FileId(file), RegionIndex(region), &place);
        }
        table.commit(&changes).unwrap();
    }
    drop(table);
    let begun = std::time::Instant::now();
    let audit = Audit::of(&bed.directory).unwrap();
    println!("{} records in {:?}", audit.records, begun.elapsed());
    assert_eq!((audit.damages, audit.records), (vec![], 100_102));
}
