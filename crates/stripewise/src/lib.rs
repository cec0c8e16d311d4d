//! Operations on a cluster as a library: what the command, the experiments and other languages call.
//!
//! A [`Session`] says which cluster is meant and where to report what takes long; a [`Store`] is the
//! cluster in use. Nothing here prints, reads arguments or ends the process: operations return typed
//! results and errors, and report to a [`Progress`](progress::Progress).
//!
//! Each operation is a function in a module of its own. Options are a structure, the result is what
//! the command prints with `--json`, and the error is an enum that names the file, the value and the
//! remedy.
//!
//! | what | function |
//! |---|---|
//! | make a cluster, measure it | [`init::init`] [`calibrate::calibrate`] |
//! | record a program and read the record | [`capture::capture`] [`trace_summary::summarize`] [`counts::count`] [`trace_export::to_csv`] |
//! | plan, and say why | [`plan::plan`] [`explain::explain`] [`simulate::simulate`] [`report::report`] |
//! | describe a site's own file system, and set its layouts | [`site::load`] [`export::export`] |
//! | advise from a job's logs how its files should lie | [`advise::advise`] |
//! | put files where a plan has them | [`apply::apply`] |
//! | run programs, follow a plan | [`run::run`] [`daemon::daemon`] [`phase::mark_phase`] |
//! | move regions of files in use | [`restripe::restripe`] [`evacuate::evacuate`] [`rebalance::rebalance`] [`migrate::status`] |
//! | see files | [`list::list`] [`stat::stat`] [`check::check`] |
//! | copy, remove and rescue files | [`copy::copy`] [`removal::remove`] [`release::release`] [`rescue::rescue`] |
//! | settings of files and directories | [`fragments::set_fragments`] [`replicas::sync`] [`manage::manage`] |
//!
//! # Example
//!
//! A cluster of two directories, and a file that is striped over both:
//!
//! ```
//! use std::time::Duration;
//! use stripewise::calibrate::{Options, calibrate};
//! use stripewise::copy::{CopyKind, copy};
//! use stripewise::init::{InitOptions, init};
//! use stripewise::stat::stat;
//! use stripewise::{Interrupt, Session, Store, Voice};
//! use stripewise_layout::ByteCount;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! let path = |name: &str| directory.path().join(name);
//! std::fs::create_dir(path("disk"))?;
//! std::fs::create_dir(path("flash"))?;
//!
//! let session = Session::new(Some(path("cluster.toml")), Voice::silent());
//! let servers = vec![
//!     format!("hdd0=hdd:{}", path("disk").display()).parse()?,
//!     format!("ssd0=ssd:{}", path("flash").display()).parse()?,
//! ];
//! let made = init(&session, &InitOptions { servers, region: ByteCount(1 << 20), ..InitOptions::default() })?;
//!
//! let options = Options { file_bytes: 16 << 20, ..Options::quick() };
//! let options = options.within(Duration::from_millis(100), &made.cluster);
//! let measured = calibrate(&made.cluster, &options, &session.profile_path(), session.voice())?;
//! assert!(measured.profile.servers[1].read_random.seconds(4096.0) > 0.0);
//!
//! std::fs::write(path("data"), vec![7; 3 << 20])?;
//! let store = Store::open(&session)?;
//! let (kind, interrupt) = (Some(CopyKind::Managed), Interrupt::never());
//! copy(&store, session.voice(), &path("data"), &path("striped"), kind, interrupt)?;
//!
//! let file = stat(&store, &path("striped"))?;
//! assert_eq!((file.size_bytes, file.regions), (3 << 20, 3));
//! assert_eq!(file.spans[0].layout, "<64KiB,64KiB>");
//! assert_eq!((file.servers[0].bytes, file.servers[1].bytes), (3 << 19, 3 << 19));
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

pub mod advise;
pub mod agent_metrics;
mod applied;
pub mod apply;
pub mod calibrate;
pub mod capture;
pub mod check;
pub mod copy;
pub mod counts;
pub mod daemon;
pub use stripewise_trace::data_files;
pub mod doctor;
pub mod emulated;
pub mod envelope;
pub mod evacuate;
pub mod explain;
pub mod export;
pub mod fragments;
pub mod free_space;
pub mod hosts;
pub mod init;
pub mod inputs;
pub mod interrupt;
pub mod laboratory;
pub mod launch;
pub mod layouts;
pub mod limits;
pub mod list;
pub mod made_from;
pub mod manage;
pub mod messages;
pub mod migrate;
pub mod moves;
pub mod named_plan;
pub mod own_places;
pub mod owner;
pub mod paths;
pub mod phase;
pub mod plan;
mod plan_space;
mod prefixes;
mod preload;
pub mod progress;
pub mod rebalance;
mod recordings;
pub mod relay;
pub mod release;
pub mod removal;
pub mod replicas;
pub mod report;
pub mod rescue;
pub mod restripe;
pub mod run;
pub mod scratch;
pub mod session;
pub mod shell;
pub mod silent_servers;
pub mod simulate;
pub mod site;
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
