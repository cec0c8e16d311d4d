//! By what a process is known to others: the number of its slot, and which holder of that it is (`super::processes`).

/// Processes of one host that can use a cluster at the same time.
pub const MAX_PROCESSES: u16 = 4096;

/// Number of a process's place in the table, below [`MAX_PROCESSES`]; free for others once the
/// process is gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProcessSlot(pub u16);

/// Number of a claim of a slot; 0 is nobody's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Incarnation(pub u64);
