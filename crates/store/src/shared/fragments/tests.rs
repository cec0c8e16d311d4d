//! One thread against plain vectors: disks, slots, and what a program that knows nothing of fragments would see. The broker's work is cut into steps
//! with other operations between them. What several threads do at once is in `interleavings`.

use super::entry::{ONE_OCCUPANCY, STATE};
use super::*;
use crate::shared::marking::Word;
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use stripewise_layout::{ObjectOffset, RegionIndex};

const SLOT_BYTES: u64 = 16;
const REGIONS: usize = 2;
const REGION_BYTES: u64 = 160;

fn words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn at(region: u32, offset: u64, length: u64) -> DiskRange {
    DiskRange { region: RegionIndex(region), offset: ObjectOffset(offset), length }
}

fn bytes(range: &DiskRange) -> std::ops::Range<usize> {
    range.offset.0 as usize..range.end() as usize
}

/// Where in the log, and where on the disk, a slot's bytes of this range are.
fn both(seen: &Seen, range: &DiskRange) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
    let from = range.offset.0.max(seen.range.offset.0);
    let to = range.end().min(seen.range.end()).max(from);
    let slot = u64::from(seen.slot) * SLOT_BYTES;
    let in_log = (slot + from - seen.range.offset.0) as usize..(slot + to - seen.range.offset.0) as usize;
    (in_log, from as usize..to as usize)
}

struct Bed {
    entries: Vec<AtomicU64>,
    free: Vec<AtomicU64>,
    granted: u32,
    log: Vec<u8>,
    disks: Vec<Vec<u8>>,
    plain: Vec<Vec<u8>>,
    /// Entries that the broker is writing back, with their bytes once it has read them.
    flushing: Vec<(Seen, Option<Vec<u8>>)>,
    /// What the broker is copying in, with the disk's bytes once it has read them.
    copying: Option<(Seen, Option<Vec<u8>>)>,
    /// Pending entries whose owners are dead.
    left: Vec<Seen>,
    /// Slots that nobody knows of: the dead had them, and somebody removed their entries.
    lost: u32,
}

impl Bed {
    fn new(sets: usize, granted: u32) -> Self {
        let free = words(1);
        Sets::new(&[], &free, SLOT_BYTES).regain_slots(granted);
        let disk: Vec<u8> = (0..REGION_BYTES).map(|at| at as u8).collect();
        Self {
            entries: words(sets * WAYS * ENTRY_WORDS),
            free,
            granted,
            log: vec![0xee; 64 * SLOT_BYTES as usize],
            disks: vec![disk.clone(); REGIONS],
            plain: vec![disk; REGIONS],
            flushing: Vec::new(),
            copying: None,
            left: Vec::new(),
            lost: 0,
        }
    }

    fn sets(&self) -> Sets<'_, AtomicU64> {
        Sets::new(&self.entries, &self.free, SLOT_BYTES)
    }

    fn in_state(&self, state: State) -> Vec<Seen> {
        self.sets().all().filter(|seen| seen.state() == state).collect()
    }

    fn slot(&self, seen: &Seen) -> Vec<u8> {
        self.log[both(seen, &seen.range).0].to_vec()
    }

    fn put_slot(&mut self, seen: &Seen, range: &DiskRange, data: &[u8]) {
        let (in_log, on_disk) = both(seen, range);
        let start = range.offset.0 as usize;
        self.log[in_log].copy_from_slice(&data[on_disk.start - start..on_disk.end - start]);
    }

    fn write(&mut self, range: &DiskRange, choice: WriteChoice, data: &[u8]) {
        self.plain[range.region.0 as usize][bytes(range)].copy_from_slice(data);
        match self.sets().plan_write(range, choice) {
            WritePlan::Slot(seen) => {
                assert_ne!(choice, WriteChoice::Disk);
                assert!(seen.range.covers(range) && seen.state() == State::Dirty, "{seen:?}");
                self.put_slot(&seen, range, data);
            }
            WritePlan::Fill(own) => {
                assert!(matches!(choice, WriteChoice::Add(class) if class == own.class) && own.range == *range);
                self.put_slot(&own, range, data);
                assert!(self.sets().declare(&own, State::Dirty));
            }
            WritePlan::Disk(newer) => {
                assert!(newer.iter().all(|seen| seen.state() == State::Dirty && seen.range.overlaps(range)));
                newer.iter().for_each(|seen| self.put_slot(seen, range, data));
                self.disks[range.region.0 as usize][bytes(range)].copy_from_slice(data);
            }
        }
    }

    fn read(&self, range: &DiskRange) -> Vec<u8> {
        match self.sets().plan_read(range) {
            ReadPlan::Slot(seen) => {
                assert!(self.sets().still_holds(&seen));
                self.log[both(&seen, range).0].to_vec()
            }
            ReadPlan::Disk(newer) => {
                let mut data = self.disks[range.region.0 as usize][bytes(range)].to_vec();
                for seen in newer {
                    assert!(self.sets().still_holds(&seen) && seen.state().is_newer());
                    let (in_log, on_disk) = both(&seen, range);
                    let start = range.offset.0 as usize;
                    data[on_disk.start - start..on_disk.end - start].copy_from_slice(&self.log[in_log]);
                }
                data
            }
        }
    }

    /// One step further: entries are called flushing, their slots are read, the disk is written.
    fn write_back(&mut self) {
        if self.flushing.is_empty() {
            let sets = self.sets();
            let changed =
                self.in_state(State::Dirty).into_iter().map(|seen| sets.change(&seen, State::Flushing).unwrap());
            self.flushing = changed.map(|seen| (seen, None)).collect();
        } else if self.flushing[0].1.is_none() {
            self.flushing = self.flushing.iter().map(|(seen, _)| (*seen, Some(self.slot(seen)))).collect();
        } else {
            for (seen, data) in std::mem::take(&mut self.flushing) {
                self.disks[seen.range.region.0 as usize][bytes(&seen.range)].copy_from_slice(&data.unwrap());
                let _ = self.sets().change(&seen, State::Clean);
            }
        }
    }

    fn copy_in(&mut self, range: &DiskRange) {
        match self.copying.take() {
            None => {
                let own = self.sets().publish(range, Class::Random);
                self.copying = own.filter(|own| self.sets().alone(own)).map(|own| (own, None));
            }
            Some((own, None)) => {
                let data = self.disks[own.range.region.0 as usize][bytes(&own.range)].to_vec();
                self.copying = Some((own, Some(data)));
            }
            Some((own, Some(data))) => {
                self.put_slot(&own, &own.range, &data);
                if !self.sets().declare(&own, State::Clean) {
                    self.sets().free_slot(own.slot);
                }
            }
        }
    }

    /// A writer that dies before it declares its entry.
    fn leave(&mut self, range: &DiskRange) {
        if let WritePlan::Fill(own) = self.sets().plan_write(range, WriteChoice::Add(Class::Fragment)) {
            self.put_slot(&own, range, &vec![0xdd; range.length as usize]);
            self.left.push(own);
        }
    }

    fn clean_up(&mut self) {
        for own in std::mem::take(&mut self.left) {
            if self.sets().remove(&own) {
                self.sets().free_slot(own.slot);
            } else {
                self.lost += 1;
            }
        }
    }

    fn check(&self) {
        let sets = self.sets();
        let entries: Vec<Seen> = sets.all().collect();
        for (number, one) in entries.iter().enumerate() {
            assert!(one.slot < self.granted && one.range.length <= SLOT_BYTES);
            for other in &entries[..number] {
                assert!(!one.range.overlaps(&other.range) && one.slot != other.slot, "{one:?} and {other:?}");
            }
            if one.state() == State::Clean {
                let disk = &self.disks[one.range.region.0 as usize][bytes(&one.range)];
                assert_eq!(self.slot(one), disk, "{one:?}");
            }
        }
        let in_hand = self.left.iter().chain(self.copying.iter().map(|(own, _)| own)).map(|own| own.slot);
        let owned: HashSet<u32> = entries.iter().map(|seen| seen.slot).chain(in_hand).collect();
        let free: HashSet<u32> = (0..64).filter(|slot| Word::load(&self.free[0]) >> slot & 1 == 1).collect();
        assert_eq!(free.len(), sets.free_slots() as usize);
        assert!(free.is_disjoint(&owned), "{free:?} and {owned:?}");
        assert_eq!((free.len() + owned.len()) as u32 + self.lost, self.granted);
        for region in 0..REGIONS as u32 {
            assert_eq!(self.read(&at(region, 0, REGION_BYTES)), self.plain[region as usize], "region {region}");
        }
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Write(DiskRange, WriteChoice, u8),
    Read(DiskRange),
    WriteBack,
    CopyIn(DiskRange),
    /// The clean entry of this number, modulo how many there are.
    Evict(usize),
    Leave(DiskRange),
    CleanUp,
}

fn range(most: u64) -> impl Strategy<Value = DiskRange> {
    (0..REGIONS as u32, 0..REGION_BYTES, 1..=most)
        .prop_map(|(region, offset, length)| at(region, offset, length.min(REGION_BYTES - offset)))
}

fn small() -> impl Strategy<Value = DiskRange> {
    prop_oneof![
        range(SLOT_BYTES),
        // Few of them, which meet again.
        (0..REGIONS as u32, 0..REGION_BYTES / 8 - 1).prop_map(|(region, number)| at(region, number * 8, 12)),
    ]
}

fn any_range() -> impl Strategy<Value = DiskRange> {
    prop_oneof![3 => small(), 1 => range(REGION_BYTES)]
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![Just(Class::Fragment), Just(Class::Random)]
}

fn operation() -> impl Strategy<Value = Operation> {
    let add = (small(), class()).prop_map(|(range, class)| (range, WriteChoice::Add(class)));
    let other = (any_range(), prop_oneof![Just(WriteChoice::Disk), Just(WriteChoice::Present)]);
    let write = (prop_oneof![3 => add, 2 => other], any::<u8>());
    prop_oneof![
        8 => write.prop_map(|((range, choice), fill)| Operation::Write(range, choice, fill)),
        2 => any_range().prop_map(Operation::Read),
        5 => Just(Operation::WriteBack),
        4 => small().prop_map(Operation::CopyIn),
        2 => any::<usize>().prop_map(Operation::Evict),
        1 => small().prop_map(Operation::Leave),
        1 => Just(Operation::CleanUp),
    ]
}

/// Bytes that tell where they were written.
fn data(range: &DiskRange, fill: u8) -> Vec<u8> {
    (0..range.length).map(|at| fill.wrapping_add((at * 7) as u8)).collect()
}

fn run(bed: &mut Bed, operation: &Operation) {
    match operation {
        Operation::Write(range, choice, fill) => bed.write(range, *choice, &data(range, *fill)),
        Operation::Read(range) => {
            assert_eq!(bed.read(range), bed.plain[range.region.0 as usize][bytes(range)], "{range:?}");
        }
        Operation::WriteBack => bed.write_back(),
        Operation::CopyIn(range) => bed.copy_in(range),
        Operation::Evict(number) => {
            let clean = bed.in_state(State::Clean);
            if !clean.is_empty() {
                assert!(bed.sets().remove(&clean[number % clean.len()]));
            }
        }
        Operation::Leave(range) => bed.leave(range),
        Operation::CleanUp => {
            bed.clean_up();
            if bed.copying.is_none() {
                assert_eq!(bed.sets().regain_slots(bed.granted), std::mem::take(&mut bed.lost));
            }
        }
    }
}

proptest! {
    #[test]
    fn reads_are_those_of_a_plain_disk(
        sets in 1usize..5,
        granted in 0u32..24,
        operations in prop::collection::vec(operation(), 0..60),
        ranges in prop::collection::vec(any_range(), 8),
    ) {
        let mut bed = Bed::new(sets, granted);
        bed.check();
        for operation in &operations {
            run(&mut bed, operation);
            bed.check();
        }
        for range in ranges {
            let mut found = Vec::new();
            bed.sets().overlapping(&range, |seen| found.push(seen.number));
            found.sort_unstable();
            let all = bed.sets().all().filter(|seen| seen.range.overlaps(&range));
            prop_assert_eq!(found, all.map(|seen| seen.number).collect::<Vec<_>>());
        }
        (0..6).for_each(|_| bed.write_back());
        prop_assert!(bed.in_state(State::Dirty).is_empty() && bed.in_state(State::Flushing).is_empty());
        prop_assert_eq!(bed.disks, bed.plain);
    }

    #[test]
    fn entries_are_found_wherever_they_begin(
        slot_bits in 12u32..21,
        granules in prop::collection::vec((0u32..3, 0u64..1 << 20, any::<u64>(), any::<u64>()), 1..40),
        ranges in prop::collection::vec((0u32..3, 0u64..1 << 20, any::<u64>(), 0u64..1 << 24), 20),
    ) {
        let (entries, free) = (words(64 * WAYS * ENTRY_WORDS), words(1));
        let slot_bytes = 1 << slot_bits;
        let sets = Sets::new(&entries, &free, slot_bytes);
        sets.regain_slots(64);
        for (region, granule, offset, length) in granules {
            let range = at(region, granule % 64 * slot_bytes + offset % slot_bytes, 1 + length % slot_bytes);
            if sets.overlaps(&range).is_empty() {
                let own = sets.publish(&range, Class::Random);
                prop_assert!(own.is_none_or(|own| sets.peek(own.number).is_some_and(|seen| seen.range == range)));
            }
        }
        for (region, granule, offset, length) in ranges {
            let range = at(region, granule % 64 * slot_bytes + offset % slot_bytes, length);
            let mut found = sets.overlaps(&range);
            found.sort_unstable_by_key(|seen| seen.number);
            let all: Vec<Seen> = sets.all().filter(|seen| seen.range.overlaps(&range)).collect();
            prop_assert_eq!(found, if length == 0 { Vec::new() } else { all });
        }
    }

    /// Others may write anything into the table. Then bytes may be wrong, but nobody panics, waits for ever, or leaves the log.
    #[test]
    fn damaged_words_lead_nowhere_else(
        damage in prop::collection::vec((any::<prop::sample::Index>(), damaged()), 1..80),
        free in any::<u64>(),
        operations in prop::collection::vec(operation(), 1..12),
    ) {
        let mut bed = Bed::new(2, 8);
        Word::store(&bed.free[0], free);
        for (place, words) in damage {
            let entry = place.index(bed.sets().count()) * ENTRY_WORDS;
            bed.entries[entry..entry + ENTRY_WORDS].iter().zip(words).for_each(|(word, bits)| Word::store(word, bits));
        }
        for operation in &operations {
            for seen in bed.sets().all() {
                let (in_log, _) = both(&seen, &seen.range);
                prop_assert!(in_log.end <= bed.log.len() && seen.range.end() < OFFSET_LIMIT + SLOT_BYTES);
            }
            match operation {
                Operation::Write(range, choice, fill) => {
                    if let WritePlan::Fill(own) = bed.sets().plan_write(range, *choice) {
                        bed.put_slot(&own, range, &data(range, *fill));
                        let _ = bed.sets().declare(&own, State::Dirty);
                    }
                }
                Operation::Read(range) => drop(bed.read(range)),
                Operation::WriteBack => {
                    for seen in bed.in_state(State::Dirty) {
                        let flushing = bed.sets().change(&seen, State::Flushing);
                        prop_assert!(bed.sets().change(&flushing.unwrap(), State::Clean).is_some());
                    }
                }
                Operation::CleanUp => {
                    let claimed = bed.sets().claimed();
                    bed.sets().remove_claimed(&claimed);
                    prop_assert!(bed.sets().claimed().is_empty());
                    bed.in_state(State::Pending).iter().for_each(|seen| bed.sets().take_back(seen));
                    bed.sets().regain_slots(u32::MAX);
                }
                Operation::CopyIn(range) => bed.copy_in(range),
                other => run(&mut bed, other),
            }
        }
    }
}

/// The words of an entry: any, or such as mean something.
fn damaged() -> impl Strategy<Value = [u64; ENTRY_WORDS]> {
    let place =
        prop_oneof![any::<u64>(), (0..3u64, 0..REGION_BYTES).prop_map(|(region, offset)| region << 44 | offset)];
    let state = (any::<u64>(), 0..7u64).prop_map(|(word, state)| word & !STATE | state);
    let rest = prop_oneof![any::<u64>(), (0..40u64, 0..80u64).prop_map(|(length, slot)| slot << 21 | length)];
    (prop_oneof![any::<u64>(), state], place, rest).prop_map(|(word, place, rest)| [word, place, rest])
}

#[test]
fn a_writer_uses_what_is_there_or_adds_or_goes_to_the_disk() {
    let mut bed = Bed::new(1, 64);
    let add = WriteChoice::Add(Class::Fragment);
    let plan = |bed: &Bed, range: &DiskRange, choice| bed.sets().plan_write(range, choice);
    assert_eq!(plan(&bed, &at(0, 4, 8), WriteChoice::Present), WritePlan::Disk(vec![]));
    assert_eq!(plan(&bed, &at(0, 4, SLOT_BYTES + 1), add), WritePlan::Disk(vec![]));
    assert_eq!(plan(&bed, &at(0, OFFSET_LIMIT - 4, 5), add), WritePlan::Disk(vec![]));
    bed.write(&at(0, 4, 8), add, &[1; 8]);
    let dirty = bed.in_state(State::Dirty);
    assert_eq!((dirty.len(), dirty[0].range), (1, at(0, 4, 8)));
    // Whoever uses it changes its word.
    let is_it = |seen: &Seen| (seen.number, seen.range, seen.slot) == (dirty[0].number, dirty[0].range, dirty[0].slot);
    let one = |plan| matches!(plan, WritePlan::Disk(newer) if newer.len() == 1 && is_it(&newer[0]));
    let slot = |plan| match plan {
        WritePlan::Slot(seen) if is_it(&seen) => seen,
        other => panic!("{other:?}"),
    };
    let seen = slot(plan(&bed, &at(0, 5, 7), WriteChoice::Present));
    assert!(one(plan(&bed, &at(0, 5, 7), WriteChoice::Disk)));
    assert!(one(plan(&bed, &at(0, 5, 8), add)), "it covers only a part");
    assert!(!bed.sets().forsake(&seen), "the disk has older bytes");
    assert_eq!(plan(&bed, &at(1, 5, 7), WriteChoice::Present), WritePlan::Disk(vec![]), "another region");
    (0..3).for_each(|_| bed.write_back());
    let clean = bed.in_state(State::Clean);
    assert_eq!((clean.len(), bed.in_state(State::Dirty).len()), (1, 0));
    assert_eq!(bed.sets().plan_read(&at(0, 5, 7)), ReadPlan::Slot(clean[0]));
    assert_eq!(bed.sets().plan_read(&at(0, 5, 8)), ReadPlan::Disk(vec![]), "the disk has it all");
    // One that finds it clean and cannot write it leaves it to another who uses it, else it goes.
    let (first, second) = (slot(plan(&bed, &at(0, 4, 8), add)), slot(plan(&bed, &at(0, 4, 8), add)));
    assert!(!bed.sets().forsake(&first) && !bed.sets().forsake(&second));
    (0..3).for_each(|_| bed.write_back());
    let only = slot(plan(&bed, &at(0, 4, 8), add));
    assert!(bed.sets().forsake(&only) && !bed.sets().forsake(&only));
    assert_eq!((bed.sets().all().count(), bed.sets().free_slots()), (0, 64));
    bed.write(&at(0, 4, 8), add, &[1; 8]);
    (0..3).for_each(|_| bed.write_back());
    assert_eq!(plan(&bed, &at(0, 5, 7), WriteChoice::Disk), WritePlan::Disk(vec![]));
    assert_eq!((bed.sets().all().count(), bed.sets().free_slots()), (0, 64), "a clean one goes");
    assert!(!bed.sets().still_holds(&clean[0]));
}

#[test]
fn what_was_written_meanwhile_is_not_called_clean() {
    let mut bed = Bed::new(1, 64);
    bed.write(&at(0, 0, 8), WriteChoice::Add(Class::Random), &[1; 8]);
    (0..2).for_each(|_| bed.write_back());
    bed.write(&at(0, 0, 4), WriteChoice::Present, &[2; 4]);
    bed.write_back();
    assert_eq!((&bed.disks[0][..8], bed.in_state(State::Dirty).len()), (&[1; 8][..], 1));
    bed.check();
    (0..3).for_each(|_| bed.write_back());
    assert_eq!((&bed.disks[0][..8], bed.in_state(State::Clean).len()), (&[2, 2, 2, 2, 1, 1, 1, 1][..], 1));
}

#[test]
fn what_a_dead_broker_left_flushing_is_written_back_though_a_writer_came() {
    let bed = Bed::new(1, 4);
    let sets = bed.sets();
    let own = sets.publish(&at(0, 3, 5), Class::Fragment).unwrap();
    assert!(sets.declare(&own, State::Dirty));
    let dirty = sets.all().next().unwrap();
    let left = sets.change(&dirty, State::Flushing).unwrap();
    assert!(matches!(sets.plan_write(&at(0, 3, 5), WriteChoice::Present), WritePlan::Slot(_)));
    let flushing = sets.begin_flushing(&left).unwrap();
    assert_eq!((flushing.state(), flushing.range), (State::Flushing, at(0, 3, 5)));
    let clean = sets.change(&flushing, State::Clean).unwrap();
    assert_eq!(sets.begin_flushing(&flushing), None);
    assert!(sets.remove(&clean) && sets.begin_flushing(&clean).is_none());
}

#[test]
fn a_change_fails_though_the_state_is_the_same_again() {
    let bed = Bed::new(1, 64);
    let own = bed.sets().publish(&at(0, 0, 8), Class::Random).unwrap();
    let dirty = bed.sets().change(&own, State::Dirty).unwrap();
    let flushing = bed.sets().change(&dirty, State::Flushing).unwrap();
    let again = bed.sets().change(&flushing, State::Dirty).unwrap();
    let flushing_again = bed.sets().change(&again, State::Flushing).unwrap();
    assert!(bed.sets().change(&flushing, State::Clean).is_none() && bed.sets().still_holds(&dirty));
    assert!(bed.sets().change(&flushing_again, State::Clean).is_some());
}

#[test]
fn a_full_set_or_log_takes_nothing_more() {
    let add = WriteChoice::Add(Class::Fragment);
    for (granted, fit) in [(64, WAYS), (3, 3)] {
        let mut bed = Bed::new(1, granted);
        for number in 0..fit as u64 + 1 {
            bed.write(&at(0, number * 8, 8), add, &[number as u8; 8]);
            bed.check();
        }
        assert_eq!((bed.sets().all().count(), bed.sets().free_slots()), (fit, granted - fit as u32));
        assert!(bed.sets().claimed().is_empty());
        assert_eq!(bed.disks[0][fit * 8], fit as u8);
        // The same range again in another slot: who saw the old one notices.
        (0..3).for_each(|_| bed.write_back());
        let seen = bed.in_state(State::Clean)[0];
        assert!(bed.sets().still_holds(&seen) && bed.sets().remove(&seen) && !bed.sets().still_holds(&seen));
        bed.write(&seen.range, add, &[9; 8]);
        assert!(!bed.sets().still_holds(&seen) && bed.sets().change(&seen, State::Dirty).is_none());
        assert_eq!(bed.sets().all().count(), fit);
        bed.check();
    }
}

#[test]
fn what_the_dead_left_is_taken_back() {
    let mut bed = Bed::new(1, 4);
    // Died with a slot in hand, before the entry had a range.
    Word::store(&bed.entries[0], ONE_OCCUPANCY | State::Claimed as u64);
    bed.leave(&at(0, 0, 8));
    bed.leave(&at(0, 32, 8));
    assert_eq!((bed.sets().take_slot(), bed.sets().all().count()), (Some(2), 2));
    bed.write(&at(0, 0, 4), WriteChoice::Disk, &[1; 4]);
    assert_eq!((bed.sets().all().count(), bed.sets().free_slots()), (1, 1));
    let claimed = bed.sets().claimed();
    bed.sets().remove_claimed(&claimed);
    bed.clean_up();
    assert_eq!((bed.sets().all().count(), bed.sets().claimed().len(), bed.sets().free_slots()), (0, 0, 2));
    assert_eq!((bed.sets().regain_slots(4), bed.sets().regain_slots(4), bed.sets().free_slots()), (2, 0, 4));
    // Who claimed it again meanwhile keeps it.
    let own = bed.sets().publish(&at(0, 0, 8), Class::Random).unwrap();
    bed.sets().remove_claimed(&claimed);
    assert_eq!((own.number, bed.sets().peek(0)), (claimed[0].0, Some(own)));
}

#[test]
fn a_log_without_entries_or_slots_is_the_disk() {
    let free: [AtomicU64; 0] = [];
    let sets = Sets::new(&[], &free, SLOT_BYTES);
    assert_eq!(sets.plan_write(&at(0, 0, 8), WriteChoice::Add(Class::Random)), WritePlan::Disk(vec![]));
    assert_eq!((sets.plan_read(&at(0, 0, 8)), sets.regain_slots(9)), (ReadPlan::Disk(vec![]), 0));
}

#[test]
fn a_note_made_while_a_flush_goes_on_outlives_it() {
    let word = AtomicU64::new(0);
    let dirtied = Dirtied(&word);
    assert!(!dirtied.begin_flush() && !dirtied.needs_flush());
    dirtied.note();
    assert!(dirtied.begin_flush() && dirtied.needs_flush());
    // It failed: the next one takes it up.
    assert!(dirtied.begin_flush());
    dirtied.end_flush();
    assert!(!dirtied.needs_flush());
    dirtied.note();
    assert!(dirtied.begin_flush());
    dirtied.note();
    dirtied.end_flush();
    assert!(dirtied.needs_flush());
}
