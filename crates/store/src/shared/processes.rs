//! Process slots of a cluster: which processes live, by kernel locks.
//!
//! The file has one 64-byte entry for each slot:
//!
//! | offset in an entry | bytes | what |
//! |---|---|---|
//! | 0 | 8 | incarnation, raised by every claim and every release |
//! | 8 | 8 | process id, for messages |
//! | 16 | 8 | 1: the process has counted reads since it claimed the slot |
//! | 24 | 8 | number of the truncation that the process asked for last |
//! | 32 | 8 | number of the truncation that was done for it last |
//!
//! The counts of reads in flight follow the entries, if the file is that long (`super::loads`).
//!
//! A process holds slot n by a POSIX record lock on byte 2^40 + n. POSIX locks end with the process, and a forked child does not
//! inherit them. They also end when the process closes *any* descriptor of this inode, and whoever has no lock counts as dead: what it writes then is
//! lost to a move. So a process has one descriptor of the table and never closes it ([`Processes::of_this_process`]), whatever number of clients it has and
//! whether they run this very code or, as a redirected program with the Python module does, two copies of it. A process never conflicts with its own
//! locks, so it records the slots that it has claimed in its own memory.

use super::loads::{self, Loads};
use super::map::{self, SharedMap};
use super::process_slot::{Incarnation, MAX_PROCESSES, ProcessSlot};
use crate::byte_lock::byte_lock;
use crate::copies::{descriptors_of, leads_to, permits_locks};
use crate::descriptors::{self, Descriptor};
use rustix::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64};
use stripewise_layout::ServerId;

const ENTRY_BYTES: usize = 64;
const COUNTS_AT: usize = 16;
const ASKED_AT: usize = 24;
const DONE_AT: usize = 32;
const TABLE_LENGTH: usize = MAX_PROCESSES as usize * ENTRY_BYTES;
const LENGTH: usize = TABLE_LENGTH + loads::LENGTH;
const LOCKS_AT: i64 = 1 << 40;

/// Slots of one table that this process has claimed, one bit each.
#[derive(Debug)]
struct Claims {
    /// The table's device and inode.
    table: (u64, u64),
    /// The process's descriptor of it.
    descriptor: AtomicI32,
    slots: [AtomicU64; MAX_PROCESSES as usize / 64],
    next: *const Claims,
}

/// Those of every table that this process has opened; only ever added to, so that neither threads nor a fork need a lock.
static CLAIMS: AtomicPtr<Claims> = AtomicPtr::new(std::ptr::null_mut());

impl Claims {
    fn all() -> impl Iterator<Item = &'static Claims> {
        // SAFETY: entries are leaked, and complete before the list leads to them.
        let at = |entry: *const Claims| unsafe { entry.as_ref() };
        std::iter::successors(at(CLAIMS.load(Acquire)), move |entry: &&Claims| at(entry.next))
    }

    fn of(table: (u64, u64), descriptor: RawFd) -> &'static Claims {
        let slots = [const { AtomicU64::new(0) }; _];
        let descriptor = AtomicI32::new(descriptor);
        let mut new = Box::new(Claims { table, descriptor, slots, next: std::ptr::null() });
        loop {
            new.next = CLAIMS.load(Acquire);
            if let Some(found) = Self::all().find(|entry| entry.table == table) {
                found.descriptor.store(new.descriptor.load(Relaxed), Relaxed);
                return found;
            }
            let entry = Box::into_raw(new);
            // SAFETY: leaked if it went into the list, else still nobody else's.
            unsafe {
                match CLAIMS.compare_exchange((*entry).next.cast_mut(), entry, AcqRel, Relaxed) {
                    Ok(_) => return &*entry,
                    Err(_) => new = Box::from_raw(entry),
                }
            }
        }
    }

    fn place(&self, slot: u16) -> (&AtomicU64, u64) {
        (&self.slots[usize::from(slot % MAX_PROCESSES) / 64], 1 << (slot % 64))
    }
}

// SAFETY: `next` leads to entries that live for ever and are never changed but for their atomics.
unsafe impl Sync for Claims {}
// SAFETY: as above.
unsafe impl Send for Claims {}

/// The mapped table of process slots.
#[derive(Debug)]
pub struct Processes {
    descriptor: BorrowedFd<'static>,
    map: SharedMap,
    /// Not behind a table that an older broker has made.
    has_loads: bool,
    claims: &'static Claims,
}

impl Processes {
    /// Broker only: makes a new file, or gives one that a predecessor made what room it lacks.
    ///
    /// # Errors
    ///
    /// `NOSPC` when the state directory is full, otherwise the error of sizing or mapping the file.
    pub fn build(descriptor: OwnedFd) -> rustix::io::Result<Self> {
        Self::build_over(kept(descriptor))
    }

    fn build_over(descriptor: BorrowedFd<'static>) -> rustix::io::Result<Self> {
        map::make(descriptor, LENGTH, TABLE_LENGTH + loads::ROWS_AT)?;
        Self::over(descriptor)
    }

    /// The table of this device and inode by the descriptor that this process has of it; `None`: it has none. What another copy of this code has opened is
    /// duplicated, to a number of at least `base`.
    ///
    /// # Errors
    ///
    /// `INVAL` if the file is too short, otherwise the error of mapping it or of looking at the process's descriptors.
    pub fn of_this_process(table: (u64, u64), base: RawFd) -> rustix::io::Result<Option<Self>> {
        kept_of(table, base)?.map(Self::over_all).transpose()
    }

    /// As [`Self::of_this_process`], for a broker: gives the table what room it lacks.
    ///
    /// # Errors
    ///
    /// Those of [`Self::build`], and of looking at the process's descriptors.
    pub fn build_of_this_process(table: (u64, u64), base: RawFd) -> rustix::io::Result<Option<Self>> {
        kept_of(table, base)?.map(Self::build_over).transpose()
    }

    /// The table that a descriptor leads to which this process has just received, moved to a number of at least `base` and never closed. It stays
    /// where it came where its number cannot be closed without harm: this process has another descriptor of the table.
    ///
    /// # Errors
    ///
    /// Those of [`Self::of_this_process`], and of looking at the process's descriptors.
    pub fn receive(descriptor: OwnedFd, base: RawFd) -> rustix::io::Result<Self> {
        let received = kept(descriptor);
        descriptors::keep(received);
        let found = rustix::fs::fstat(received)?;
        let table = (found.st_dev, found.st_ino);
        if is_used_here(table) {
            return Self::over(received);
        }
        let high = kept(Descriptor::duplicate(received, base)?.into_owned());
        let own = [received.as_raw_fd(), high.as_raw_fd()];
        let others: Vec<_> = descriptors_of(table)?.into_iter().filter(|number| !own.contains(number)).collect();
        if others.is_empty() {
            // SAFETY: nobody uses this number, and no lock is held by this process that would end.
            drop(unsafe { Descriptor::from_number(received.as_raw_fd()) });
        }
        let processes = Self::over(high)?;
        others.into_iter().for_each(keep_open);
        Ok(processes)
    }

    /// From here on a redirected program cannot close what it has of the table from before.
    fn over_all(descriptor: BorrowedFd<'static>) -> rustix::io::Result<Self> {
        let processes = Self::over(descriptor)?;
        descriptors_of(processes.claims.table)?.into_iter().for_each(keep_open);
        Ok(processes)
    }

    fn over(descriptor: BorrowedFd<'static>) -> rustix::io::Result<Self> {
        let found = rustix::fs::fstat(descriptor)?;
        let has_loads = found.st_size >= LENGTH as i64;
        let map = SharedMap::new(descriptor, if has_loads { LENGTH } else { TABLE_LENGTH }, true)?;
        let claims = Claims::of((found.st_dev, found.st_ino), descriptor.as_raw_fd());
        Ok(Self { descriptor, map, has_loads, claims })
    }

    fn loads(&self) -> Option<Loads<'_>> {
        self.has_loads.then(|| Loads::new(&self.map, TABLE_LENGTH))
    }

    fn has_counted(&self, slot: ProcessSlot) -> &AtomicU64 {
        self.map.word(usize::from(slot.0 % MAX_PROCESSES) * ENTRY_BYTES + COUNTS_AT)
    }

    /// Where the holder of `slot` counts the reads that it has under way; `None` if there is no space for that.
    #[must_use]
    pub fn loads_of(&self, slot: ProcessSlot) -> Option<Loads<'_>> {
        let loads = self.loads().filter(|loads| loads.has_space_for(slot))?;
        if self.has_counted(slot).load(Relaxed) == 0 {
            self.has_counted(slot).store(1, Relaxed);
        }
        Some(loads)
    }

    /// Sub-requests of reads that had a choice, under way at a server.
    #[must_use]
    pub fn reads_under_way(&self, server: ServerId) -> u64 {
        self.loads().map_or(0, |loads| loads.under_way(server))
    }

    /// Forgets the reads under way of a claim that is gone.
    pub fn forget_reads(&self, slot: ProcessSlot, incarnation: Incarnation) {
        // Another claim has settled what it found.
        if self.incarnation(slot) == incarnation {
            self.settle(slot);
        }
    }

    fn settle(&self, slot: ProcessSlot) {
        if let Some(loads) = self.loads()
            && self.has_counted(slot).swap(0, Relaxed) != 0
        {
            loads.settle(slot);
        }
    }

    /// A broker that starts: forgets the reads of all processes that are gone.
    pub fn forget_reads_of_the_dead(&self) {
        let is_alive = |slot: &ProcessSlot| self.is_alive(*slot, self.incarnation(*slot));
        let (living, dead): (Vec<_>, Vec<_>) = (0..MAX_PROCESSES)
            .map(ProcessSlot)
            .filter(|slot| self.has_counted(*slot).load(Relaxed) != 0)
            .partition(is_alive);
        dead.into_iter().for_each(|slot| self.settle(slot));
        if let Some(loads) = self.loads().filter(|_| living.is_empty()) {
            loads.clear_sums();
        }
    }

    /// The table's descriptor, to be handed to clients.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'static> {
        self.descriptor
    }

    /// Takes a free slot for the calling process; `None` when all are taken.
    #[must_use]
    pub fn claim(&self) -> Option<(ProcessSlot, Incarnation)> {
        let process = rustix::process::getpid().as_raw_nonzero().get() as u64;
        // The lowest, so that what files keep for each slot stays small.
        for slot in 0..MAX_PROCESSES {
            let (word, bit) = self.claims.place(slot);
            let entry = usize::from(slot) * ENTRY_BYTES;
            let owner = self.map.word(entry + 8);
            // A redirected `stripewise` has this code twice, and the kernel gives both what one of them has locked.
            let is_others = owner.load(SeqCst) == process && is_held(self.descriptor, slot);
            if word.load(SeqCst) & bit != 0 || is_others || !lock(self.descriptor, slot) {
                continue;
            }
            if word.fetch_or(bit, SeqCst) & bit == 0 {
                // A thread that gave the slot back meanwhile has given up the lock too.
                if !take_entry(owner, process) || !lock(self.descriptor, slot) {
                    word.fetch_and(!bit, SeqCst);
                    continue;
                }
                let incarnation = self.map.word(entry).fetch_add(1, SeqCst) + 1;
                self.settle(ProcessSlot(slot));
                self.map.word(entry + ASKED_AT).store(0, SeqCst);
                self.map.word(entry + DONE_AT).store(0, SeqCst);
                return Some((ProcessSlot(slot), Incarnation(incarnation)));
            }
        }
        None
    }

    /// Numbers the truncation that the holder of `slot` is about to ask for. It asks for one at a time, and repeats it under the same number.
    pub fn number_truncation(&self, slot: ProcessSlot) {
        self.map.word(usize::from(slot.0) * ENTRY_BYTES + ASKED_AT).fetch_add(1, SeqCst);
    }

    /// The number of the truncation that the holder of `slot` asks for; 0: it numbers none.
    #[must_use]
    pub fn truncation_asked(&self, slot: ProcessSlot) -> u64 {
        self.map.word(usize::from(slot.0) * ENTRY_BYTES + ASKED_AT).load(SeqCst)
    }

    /// Whether the truncation of that number was done for the claim.
    #[must_use]
    pub fn is_truncation_done(&self, slot: ProcessSlot, incarnation: Incarnation, number: u64) -> bool {
        self.incarnation(slot) == incarnation
            && self.map.word(usize::from(slot.0) * ENTRY_BYTES + DONE_AT).load(SeqCst) == number
    }

    /// Broker only: the truncation of that number takes effect now.
    pub fn note_truncation_done(&self, slot: ProcessSlot, incarnation: Incarnation, number: u64) {
        if self.incarnation(slot) == incarnation {
            self.map.word(usize::from(slot.0) * ENTRY_BYTES + DONE_AT).store(number, SeqCst);
        }
    }

    /// Gives a claim of this process back: it counts as dead from here on.
    pub fn release(&self, slot: ProcessSlot) {
        let process = rustix::process::getpid().as_raw_nonzero().get() as u64;
        self.map.word(usize::from(slot.0) * ENTRY_BYTES).fetch_add(1, SeqCst);
        // While the entry names this process, no other copy of this code takes the slot, whose lock would go with this one.
        let _ = byte_lock(self.descriptor, at(slot.0), libc::F_SETLK, libc::F_UNLCK);
        let owner = self.map.word(usize::from(slot.0) * ENTRY_BYTES + 8);
        let _ = owner.compare_exchange(process, 0, SeqCst, SeqCst);
        // Last: another thread that claims the slot must not have its lock taken away.
        let (word, bit) = self.claims.place(slot.0);
        word.fetch_and(!bit, SeqCst);
    }

    /// In a forked child, before it claims: the claims in its memory are its parent's.
    pub fn forget_parents_claims() {
        for word in Claims::all().flat_map(|claims| &claims.slots) {
            word.store(0, SeqCst);
        }
    }

    /// Whether the claim is the slot's latest and its process lives.
    #[must_use]
    pub fn is_alive(&self, slot: ProcessSlot, incarnation: Incarnation) -> bool {
        let (word, bit) = self.claims.place(slot.0);
        // The claims may be of a former table whose inode number this one has: its entry names the process as well.
        let is_ours = || {
            let process = rustix::process::getpid().as_raw_nonzero().get() as u64;
            word.load(SeqCst) & bit != 0 && self.process_id(slot) == process
        };
        self.incarnation(slot) == incarnation && (is_ours() || is_held(self.descriptor, slot.0))
    }

    /// A process that lives and has a slot, if there is any.
    #[must_use]
    pub fn any_living(&self) -> Option<u64> {
        let mut slots = (0..MAX_PROCESSES).map(ProcessSlot);
        let living = slots.find(|slot| self.is_alive(*slot, self.incarnation(*slot)));
        living.map(|slot| self.process_id(slot))
    }

    /// The slot's latest claim, alive or dead.
    #[must_use]
    pub fn incarnation(&self, slot: ProcessSlot) -> Incarnation {
        Incarnation(self.map.word(usize::from(slot.0) * ENTRY_BYTES).load(SeqCst))
    }

    /// The process id of the slot's latest claim.
    #[must_use]
    pub fn process_id(&self, slot: ProcessSlot) -> u64 {
        self.map.word(usize::from(slot.0) * ENTRY_BYTES + 8).load(Relaxed)
    }
}

/// A redirected program cannot close the number any more.
fn keep_open(number: RawFd) {
    // SAFETY: counted as one that nobody closes.
    descriptors::keep(unsafe { BorrowedFd::borrow_raw(number) });
}

/// Never closed.
fn kept(descriptor: OwnedFd) -> BorrowedFd<'static> {
    // SAFETY: nobody owns the number any more.
    unsafe { BorrowedFd::borrow_raw(descriptor.into_raw_fd()) }
}

/// Whether this process has a descriptor of the table of this device and inode: then none but that may be closed, or its locks end.
#[must_use]
pub fn is_used_here(table: (u64, u64)) -> bool {
    Claims::all().any(|claims| claims.table == table)
}

/// A descriptor that this process keeps of the table.
fn kept_of(table: (u64, u64), base: RawFd) -> rustix::io::Result<Option<BorrowedFd<'static>>> {
    let known = Claims::all().find(|claims| claims.table == table);
    // SAFETY: never closed, if it still leads there.
    let borrowed = |number| unsafe { BorrowedFd::borrow_raw(number) };
    if let Some(number) = known
        .map(|claims| claims.descriptor.load(Relaxed))
        .filter(|number| leads_to(*number, table) && permits_locks(*number))
    {
        return Ok(Some(borrowed(number)));
    }
    let Some(others) = descriptors_of(table)?.into_iter().find(|number| permits_locks(*number)) else {
        return Ok(None);
    };
    Ok(Some(kept(Descriptor::duplicate(borrowed(others), base)?.into_owned())))
}

/// Where the slot's lock is.
fn at(slot: u16) -> i64 {
    LOCKS_AT + i64::from(slot)
}

fn lock(descriptor: BorrowedFd<'_>, slot: u16) -> bool {
    byte_lock(descriptor, at(slot), libc::F_SETLK, libc::F_WRLCK).is_ok()
}

/// Whether a process has the slot's lock, this one included: to `F_GETLK` a process's own locks are none.
fn is_held(descriptor: BorrowedFd<'_>, slot: u16) -> bool {
    byte_lock(descriptor, at(slot), libc::F_OFD_GETLK, libc::F_WRLCK)
        .is_ok_and(|found| i32::from(found.l_type) != libc::F_UNLCK)
}

/// Names this process, which has the lock, in a slot's entry; whoever it named is gone. False: the other copy of this code was quicker.
fn take_entry(owner: &AtomicU64, process: u64) -> bool {
    let mut before = owner.load(SeqCst);
    if before == process {
        // Of a process that is gone and had the same number.
        let _ = owner.compare_exchange(process, 0, SeqCst, SeqCst);
        before = 0;
    }
    while let Err(now) = owner.compare_exchange(before, process, SeqCst, SeqCst) {
        if now == process {
            return false;
        }
        before = now;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_one_process_differ_and_end_with_their_release() {
        let processes = Processes::build(tempfile::tempfile().unwrap().into()).unwrap();
        let (first, second) = (processes.claim().unwrap(), processes.claim().unwrap());
        assert_ne!(first.0, second.0);
        assert!(processes.is_alive(first.0, first.1) && processes.is_alive(second.0, second.1));
        assert!(!processes.is_alive(first.0, Incarnation(first.1.0 + 1)));
        assert_eq!(processes.process_id(first.0), u64::from(std::process::id()));
        processes.release(first.0);
        assert!(!processes.is_alive(first.0, first.1) && processes.is_alive(second.0, second.1));
        assert!(!processes.is_alive(ProcessSlot(first.0.0 ^ 0x800), Incarnation(0)));
    }

    #[test]
    fn a_process_finds_its_one_descriptor_of_a_table() {
        let file = tempfile::tempfile().unwrap();
        let found = rustix::fs::fstat(&file).unwrap();
        let table = (found.st_dev, found.st_ino);
        // One to look by, and one that it is found by before this code knows of it.
        let (looking, other_code) = (file.try_clone().unwrap(), file.into_raw_fd());
        std::mem::forget(looking.try_clone().unwrap());
        map::make(&looking, LENGTH, TABLE_LENGTH).unwrap();
        let base = descriptors::default_base();
        let first = Processes::of_this_process(table, base).unwrap().expect("it is open");
        assert!(first.descriptor().as_raw_fd() > other_code, "its own, which the other cannot close");
        let (slot, incarnation) = first.claim().unwrap();
        let second = Processes::of_this_process(table, base).unwrap().expect("it is open");
        assert_eq!(second.descriptor().as_raw_fd(), first.descriptor().as_raw_fd());
        assert!(second.is_alive(slot, incarnation));
        // Not by one that locks cannot be taken by, nor in another file.
        let named = tempfile::NamedTempFile::new().unwrap();
        let found = rustix::fs::fstat(&named).unwrap();
        drop(named.reopen().unwrap());
        let path = named.into_temp_path();
        let read_only = std::fs::File::open(&path).unwrap();
        assert!(Processes::of_this_process((found.st_dev, found.st_ino), base).unwrap().is_none());
        drop(read_only);
    }

    #[test]
    fn reads_under_way_are_summed_and_end_with_their_process() {
        let processes = Processes::build(tempfile::tempfile().unwrap().into()).unwrap();
        let (one, other) = (processes.claim().unwrap(), processes.claim().unwrap());
        let under_way = || [3, 5].map(|server| processes.reads_under_way(ServerId(server)));
        for (slot, server) in [(one.0, 3), (one.0, 3), (one.0, 5), (other.0, 5)] {
            processes.loads_of(slot).unwrap().begin(slot, ServerId(server));
        }
        assert_eq!(under_way(), [2, 2]);
        processes.loads_of(one.0).unwrap().end(one.0, ServerId(3));
        assert_eq!(under_way(), [1, 2]);
        // Of a claim that is not the latest nothing is taken.
        processes.forget_reads(one.0, Incarnation(one.1.0 - 1));
        assert_eq!(under_way(), [1, 2]);
        processes.forget_reads(one.0, one.1);
        processes.forget_reads(one.0, one.1);
        assert_eq!(under_way(), [0, 1]);
        // It lived after all: what it ends is not taken off again.
        processes.loads_of(one.0).unwrap().end(one.0, ServerId(3));
        assert_eq!(under_way(), [0, 1]);
        // Dead, and nobody saw it: a broker that starts does, and the next process with its slot.
        processes.loads_of(one.0).unwrap().begin(one.0, ServerId(3));
        processes.release(one.0);
        processes.forget_reads_of_the_dead();
        assert_eq!(under_way(), [0, 1]);
        processes.release(other.0);
        let next = processes.claim().unwrap();
        assert!([one.0, other.0].contains(&next.0));
        processes.forget_reads_of_the_dead();
        assert_eq!(under_way(), [0, 0]);
        // Beyond the sums, one is shared.
        processes.loads_of(next.0).unwrap().begin(next.0, ServerId(3 + 256));
        assert_eq!(under_way(), [1, 0]);
    }

    #[test]
    fn a_table_without_counts_has_none() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(TABLE_LENGTH as u64).unwrap();
        let processes = Processes::over(kept(file.into())).unwrap();
        let (slot, incarnation) = processes.claim().unwrap();
        assert!(processes.loads_of(slot).is_none() && processes.reads_under_way(ServerId(0)) == 0);
        processes.forget_reads(slot, incarnation);
        processes.forget_reads_of_the_dead();
    }

    #[test]
    fn a_claim_in_one_table_says_nothing_of_another() {
        let table = || Processes::build(tempfile::tempfile().unwrap().into()).unwrap();
        let (ours, other) = (table(), table());
        let (slot, incarnation) = ours.claim().unwrap();
        // A dead process's claim of the slot with the same number.
        let die_in = |table: &Processes| table.map.word(usize::from(slot.0) * ENTRY_BYTES).store(incarnation.0, SeqCst);
        die_in(&other);
        assert!(ours.is_alive(slot, incarnation) && !other.is_alive(slot, incarnation));
        // Nor does one in a table that is gone, whose inode number another has now.
        let next = Processes { claims: ours.claims, ..table() };
        die_in(&next);
        assert!(!next.is_alive(slot, incarnation));
    }
}
