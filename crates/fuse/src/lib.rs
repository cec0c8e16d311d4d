//! A mount over the store: managed files with their real size, times and data for every program, through the kernel's FUSE.
//!
//! The mount is one more client of the store. The kernel sends each call of a program as a request, and `file_system` answers it: of an ordinary file by
//! the same call on the file itself, of a managed one by the striped file behind its stub. Nothing is cached that redirected programs could change, unless
//! the person who mounts asks for it.
//!
//! | module | what |
//! |---|---|
//! | `mounting` | what a mount point must be, the session with the kernel, its end |
//! | `file_system` | the one implementation of the kernel's operations: what is asked, and the answer |
//! | `operations` | what is done for each of them, by the modules below |
//! | `nodes` | files that the kernel knows, each held by a descriptor with `O_PATH` |
//! | `handles` | files that it has forgotten, for servers of NFS |
//! | `managed` | which of them are managed, and their striped files |
//! | `attributes` | what `stat` shows |
//! | `making` | new files |
//! | `identity` | making files as the user who asks |
//! | `umask` | the mask of new files' modes |
//! | `names` | removals and renames, of which the broker hears first |
//! | `opens` | open files and directories |
//! | `data` | reads, writes and what else is done to an open file |
//! | `sizes` | sizes that the kernel believes |
//! | `setting` | changes of size, mode, owner and times |
//! | `extended` | extended attributes |
//! | `locks` | record locks |
//! | `moments` | attributes that the kernel may believe for a moment |
//! | `mapped` | mapped pages, and writes that come by other ways |
#![deny(clippy::print_stdout)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

mod attributes;
mod data;
mod extended;
mod failure;
mod file_system;
mod handles;
mod identity;
mod locks;
mod making;
mod managed;
mod mapped;
mod moments;
mod mounting;
mod names;
mod nodes;
mod opens;
mod operations;
mod setting;
mod sizes;
mod umask;

pub use mounting::{Attached, Mount, MountError, MountOptions, PointError};
