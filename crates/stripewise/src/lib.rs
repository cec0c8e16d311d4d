//! Operations on a cluster as a library: what the command, the experiments and other languages call.
//!
//! A [`Session`] says which cluster is meant and where to report what takes long; a [`Store`] is the cluster in use. Nothing here prints,
//! reads arguments or ends the process: operations return typed results and errors, and report to a [`Progress`](progress::Progress).
#![deny(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

pub mod applied;
pub mod apply;
pub mod calibrate;
pub mod capture;
pub mod daemon;
pub mod data_files;
pub mod doctor;
pub mod emulated;
pub mod envelope;
pub mod inputs;
pub mod interrupt;
pub mod laboratory;
pub mod launch;
pub mod layouts;
pub mod messages;
pub mod moves;
pub mod owner;
pub mod paths;
pub mod preload;
pub mod progress;
pub mod relay;
pub mod removal;
pub mod replicas;
pub mod run;
pub mod scratch;
pub mod session;
pub mod shell;
pub mod silent_servers;
pub mod simulate;
pub mod store;
pub mod table;
pub mod trace_faults;
pub mod transfer;
pub mod variables;
pub mod workload;

pub use interrupt::Interrupt;
pub use progress::Voice;
pub use session::Session;
pub use store::Store;
