//! Discrete-event simulation of a parallel program on storage servers.
//!
//! Processes issue the steps of a [`Program`](stripewise_trace::Program); the placement splits every request into sub-requests; each
//! waits for and holds the stations on its way: the server's device, the server's link, the client node's link. A request is done
//! when the last of its sub-requests is. Nothing here knows a cost model: the simulator uses no formula of the planner, so that it can
//! prove one wrong. The same scenario and seed give the same result on every machine.
#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

mod addresses;
mod engine;
mod histogram;
mod outcome;
mod places;
mod queue;
mod scenario;
mod server;
mod timeline;

pub use engine::{Progress, simulate};
pub use outcome::{DirectionOutcome, Latency, Outcome, PhaseOutcome, ServerOutcome, TimeSlice};
pub use scenario::{
    Borders, FilePlacements, FragmentService, Migration, PlacedWindow, Scenario, ServerDetail, ServerModel, SimError,
    SimOptions, StationOrder, System,
};
