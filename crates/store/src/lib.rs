//! What a client process needs: striped files over servers, the memory that processes share, and the client's half of the protocol.
//!
//! Three roles. The *broker* (`stripewise-broker`, one per state directory) owns the mapping table, creates and frees objects and is
//! the only writer of control blocks. *Clients* (the preload library in every process of an application, and the command) ask it when
//! they open, create or truncate a file or reach a region without objects; every other read and write touches mapped memory and the
//! servers only. *Servers* store objects behind the [`server::ObjectStore`] trait.
//!
//! All I/O goes through `rustix`, that is raw system calls: the preload library defines the libc symbols itself.
#![deny(clippy::print_stdout)]
#![deny(missing_docs, clippy::missing_errors_doc)]

pub mod block_device;
mod byte_lock;
pub mod client;
pub mod common_memory;
pub mod copies;
pub mod descriptors;
pub mod entry;
pub mod errno;
pub mod executable;
pub mod file;
pub mod holders;
mod lock;
pub mod log_line;
pub mod manage;
pub mod nameless;
pub mod new_stub;
pub mod observer;
pub mod packet;
pub mod protocol;
pub mod server;
pub mod shared;
pub mod signals;
pub mod size_limit;
pub mod state;
pub mod stub;
pub mod times;
mod zeroed;
