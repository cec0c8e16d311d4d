//! Memory that every process of the host shares, and who may write what.
//!
//! Six kinds of file in the state directory's `run/`, all created by the broker with mode 0600 and handed to clients as
//! descriptors (a client proves its right to a file by passing the stub's descriptor):
//!
//! | file | one per | clients map it | holds |
//! |---|---|---|---|
//! | [`control`] `ID.ctl` | managed file | read-only | region -> generation, layout and whether it moves, gate, life state |
//! | [`extent`] `ID.ext` | managed file | writable only through a descriptor open for writing | size, times, append lock, write counters, marks of moves |
//! | [`fragments::table`] `ID.frag` | managed file, when needed | writable only through a descriptor open for writing | which small ranges lie in logs on SSDs |
//! | [`fragments::hints`] `ID.hints` | managed file, when needed | writable | what is worth a place there, counters |
//! | [`slots`] `ID.slots` | managed file | writable | who has the file open, I/O in flight, the latest requests while they are observed |
//! | [`processes`] `processes` | cluster | writable | incarnation of every process slot, reads under way ([`loads`]) |
//! | [`inodes`] `inodes` | cluster | read-only, by its path | inodes of all stubs |
//!
//! A process takes one *process slot* for its life: a number below [`process_slot::MAX_PROCESSES`], held by a POSIX record lock on
//! one byte of `processes`. The lock is the kernel's, so it goes when the process dies; a forked child does not inherit it and
//! takes its own slot. Every claim raises the slot's incarnation, and what a process leaves in `slots` counts only together with
//! the incarnation that is alive.
//!
//! All structures are plain atomics at fixed offsets, in words of 8 bytes in native byte order unless a table says otherwise. A file
//! that begins with a magic number has six letters, a zero byte and the version there, as a little-endian number. A change of a
//! layout raises the version.
//!
//! The files are sparse. The parts that are always used are allocated when a file is made, all others before they are first
//! touched, because a page that the file system cannot allocate would end the process that touches it. A managed file takes 28 KiB
//! in `run/`, and more from its 513th region and its 33rd process on.

pub mod agent_lane;
pub mod control;
pub mod extent;
pub mod fragments;
pub mod inodes;
pub mod loads;
pub mod map;
pub mod marking;
pub mod process_slot;
pub mod processes;
pub mod recent;
pub mod robust;
pub mod slots;
