//! OrangeFS: what is asked of its I/O servers, in safe words.
//!
//! libpvfs2 is loaded when the first server is opened (`library`), so that nothing links it and one binary serves hosts without OrangeFS. The library has
//! threads of its own and may fork a program that signs credentials. So the broker calls it, by one thread (`driver`), and nobody else does.
//!
//! An object is a file of OrangeFS with one datafile, which lies on a named I/O server (`file_system`). What a write acknowledged lies in that server's page
//! cache; a flush has it written to its disks.
//!
//! OrangeFS cannot shut out a client, and compares nothing before it writes: what an agent sent before it was killed may arrive after its successor has begun.
//! It arrives at the object that it was sent to. Names of objects hold file, region and generation and are never used again, so it changes nothing in a region that
//! has moved since, in another file, or where a removed object was. In a region that has not moved it repeats what the successor has done again, and undoes what
//! came after that in the same place (docs/orangefs.md, "Late requests").

mod driver;
mod error;
mod file_system;
mod kept;
mod library;
mod names;
mod preparing;
mod scratch;
mod store;
mod task;
mod transfer;
mod tree;

pub use error::OrangeError;
pub use library::use_library;
pub use preparing::prepare_url;
pub use scratch::scratch;
pub(crate) use store::open_shared;
pub use store::{OrangeServer, open};
