//! Which small ranges of a disk's objects lie in a log on an SSD, and the order of operations that keeps them right.
//!
//! For each disk that holds parts of a file there is a *log*, an object on an SSD, cut into *slots* of one size; an *entry* says which range of which
//! region's object on the disk lies in which slot. Entries stand in sets: the set is the hash of region and granule (offset / slot size), so a range
//! is found by looking at the sets of the granules in which an entry that overlaps it can begin.
//!
//! | state | what is in the slot | who leads out of it |
//! |---|---|---|
//! | empty | nothing | a writer, or the broker copying in: claimed |
//! | claimed | being prepared; nobody else looks at it | its owner: pending |
//! | pending | being filled; nobody reads it | its owner, when it is filled: dirty (a writer) or clean (the broker); anybody: empty |
//! | clean | what the disk has | a writer: dirty, or empty; the broker: empty |
//! | dirty | what the disk will have | the broker: flushing; the writer that found it clean and could not write the slot: empty |
//! | flushing | as dirty, and being written back | a writer: dirty; the broker: clean, or dirty again |
//!
//! Why no byte is lost or old, with every operation here sequentially consistent. A process has taken its lane in the file's slots before it looks here,
//! so the broker can wait for those who were inside when it changed an entry ("drains").
//!
//! - *Readers* read the slot, or the disk with the bytes of dirty entries laid over, and look afterwards whether the entries still hold
//!   the same ranges (the occupancy in the word); if not, they begin again. So a slot may be used again at any time.
//! - *Writers* make an entry dirty before they touch the slot, and change the word of one that is dirty already. An entry becomes clean only by the broker that found it dirty, called it flushing, drained,
//!   read the slot and wrote the disk while nobody changed the word. So nobody is writing the slot of a clean entry, and it may go.
//! - *Writers of the disk* first remove what is clean or pending there, and write dirty entries' slots too, which stay dirty; so whatever the broker
//!   writes back meanwhile is written again. The slots come before the disk: a reader who looked before an entry was there reads the disk, and one
//!   who comes after it the slot, which must not be the older of the two.
//! - *Written back* means drained, read, written, and one at a time: of two at once, the later could make clean what the earlier then overwrites.
//! - *No range lies in two entries.* Who adds one publishes it as pending and then looks for others: of two that add at the same time at least one sees the
//!   other and removes it. The owner finds out when it wants to declare it filled.
//! - *Copying in:* the broker publishes the entry as pending, drains, and only then reads the disk. A writer that came later has seen the entry and removed it.
//! - *A region that moves* loses its entries before it is copied, and has none when its new place is published. Who came to read the old place may look
//!   here after that and find ranges of the new one. So who is to read slots looks at the region's word once more, after the entries, and begins again if
//!   the region has another place.
//! - *The dead* leave entries claimed or pending. When nobody is left inside who was there when the broker saw them, they are removed. Slots that
//!   they had in hand without an entry are found when nobody is inside ([`Sets::regain_slots`]).
//! - *`fsync`* needs to know whether anything is dirty that no flush has finished writing ([`Dirtied`]).
//!
//! The code is generic over [`Word`](super::marking::Word) so that a model checker runs exactly what the store runs.

mod dirtied;
mod entry;
pub mod hints;
mod plan;
mod sets;
pub mod table;

pub use dirtied::Dirtied;
pub use entry::{Class, DiskRange, OFFSET_LIMIT, Seen, State};
pub use plan::{ReadPlan, WriteChoice, WritePlan};
pub use sets::Sets;

/// Entries of a set.
pub const WAYS: usize = 8;
/// Words of an entry: state, place, length and slot.
pub const ENTRY_WORDS: usize = 3;

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod tests;
