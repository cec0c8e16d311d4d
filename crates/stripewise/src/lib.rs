//! Operations on a cluster as a library: what the command, the experiments and other languages call.
//!
//! A [`Session`] says which cluster is meant and where to report what takes long; a [`Store`] is the cluster in use. Nothing here prints,
//! reads arguments or ends the process: operations return typed results and errors, and report to a [`Progress`](progress::Progress).
#![deny(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

#[allow(missing_docs, clippy::missing_errors_doc, reason = "moved from the command, not documented yet")]
pub mod applied;
#[allow(missing_docs, clippy::missing_errors_doc, reason = "moved from the command, not documented yet")]
pub mod apply;
#[allow(missing_docs, clippy::missing_errors_doc, reason = "moved from the command, not documented yet")]
pub mod calibrate;
#[allow(missing_docs, clippy::missing_errors_doc, reason = "moved from the command, not documented yet")]
pub mod capture;
pub mod check;
pub mod copy;
#[allow(missing_docs, clippy::missing_errors_doc, reason = "moved from the command, not documented yet")]
pub mod daemon;
pub mod data_files;
#[allow(missing_docs, clippy::missing_errors_doc, reason = "moved from the command, not documented yet")]
pub mod doctor;
pub mod emulated;
pub mod envelope;
pub mod evacuate;
pub mod explain;
pub mod fragments;
pub mod init;
#[allow(missing_docs, clippy::missing_errors_doc, reason = "moved from the command, not documented yet")]
pub mod inputs;
pub mod interrupt;
pub mod laboratory;
#[allow(missing_docs, clippy::missing_errors_doc, reason = "moved from the command, not documented yet")]
pub mod launch;
pub mod layouts;
pub mod list;
pub mod manage;
pub mod messages;
pub mod migrate;
pub mod moves;
pub mod owner;
pub mod paths;
pub mod phase;
pub mod plan;
#[allow(missing_docs, clippy::missing_errors_doc, reason = "moved from the command, not documented yet")]
pub mod preload;
pub mod progress;
pub mod rebalance;
pub mod relay;
pub mod release;
pub mod removal;
pub mod replicas;
pub mod rescue;
pub mod restripe;
#[allow(missing_docs, clippy::missing_errors_doc, reason = "moved from the command, not documented yet")]
pub mod run;
pub mod scratch;
pub mod session;
pub mod shell;
pub mod silent_servers;
#[allow(missing_docs, clippy::missing_errors_doc, reason = "moved from the command, not documented yet")]
pub mod simulate;
pub mod stat;
pub mod store;
pub mod table;
pub mod trace_export;
pub mod trace_faults;
pub mod trace_summary;
pub mod transfer;
pub mod variables;
pub mod workload;

pub use interrupt::Interrupt;
pub use progress::Voice;
pub use session::Session;
pub use store::Store;
