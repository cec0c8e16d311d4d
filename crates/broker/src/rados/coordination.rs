//! The mapping table and the election in a pool of Ceph.
//!
//! All of a cluster's table is the omap of the object `table` in the namespace `stripewise-<cluster id>-table`:
//!
//! | key | value |
//! |---|---|
//! | `t/` and a key of the table in hexadecimal digits | `=` and the table's value |
//! | `state` | [`state::State`]: which batch was the last |
//! | `master` | [`state::MasterRecord`]: the master, its term, and under which addresses Ceph knows it |
//! | `w/` number of a batch, 16 hexadecimal digits | [`state::Recent`]: what that batch changed; of the last [`state::RECENT`] batches |
//! | `k/` name | [`copies::CopyRecord`]: which object is the copy of this name |
//!
//! # Why one object
//!
//! RADOS changes one object at a time as a whole. With all keys in one object a batch is one operation: it compares what has to hold, and
//! changes all or nothing. There is nothing to finish after a master that dies, and nothing that a reader could see half done.
//! The price is the size: an object is recovered as a whole, and Ceph warns (`LARGE_OMAP_OBJECTS`) above 200,000 keys. `docs/ceph.md` has
//! the figures. What a batch changed is kept in `w/` with its values, so a later version can distribute `t/` over objects
//! that are brought up to date from there.
//!
//! # A commit
//!
//! The operation compares `master` with the record of this master's election (the fence) and `state` with what this master left, besides
//! what the batch expects, and replaces `state` by the name of its own batch. So an operation whose answer was lost can be repeated: it
//! takes effect once at most, and one that arrives late takes no effect. An absent key compares as one with an empty
//! value, therefore no value is empty.
//!
//! # A reader
//!
//! One operation reads about 1,024 keys. A longer scan takes several, between which batches may take effect. At its end it reads what was changed
//! since its beginning (`w/`), and puts that over what it has read: the result is the table at the moment of the last operation.
//!
//! # The election
//!
//! Whoever has the lock `master` on the object may take over. It ends by itself when its holder does not renew it. The new holder
//! blocklists the master before it unless that one resigned, and then replaces `master` by a record with the next term, provided that
//! the record is still the one that it read. From that moment on the fence refuses the master before it.

mod copies;
mod election;
mod error;
mod objects;
mod salvaging;
mod scanning;
mod state;
mod store;
mod watch;

#[cfg(test)]
pub(super) mod tests;

pub use election::{RadosCoordinator, RadosOptions};
pub use error::RadosTableError;
pub use store::RadosTable;
