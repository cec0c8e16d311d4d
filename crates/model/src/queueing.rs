//! How many requests a second servers complete when many processes ask at once: the operational laws of closed queueing networks.
//!
//! The papers cost one request at a time and multiply by p. Here p processes each have one request in flight. A request forks into one
//! sub-request per server that it touches, each of which passes the server's device and then the server's own link, both first come first
//! served, and is done when its last sub-request is. [`request_demand`] says what one request of a class asks of every server under a
//! layout; a [`Network`] adds up a mix of requests and answers with the asymptotic bound ([`Network::bound`]) and with an estimate of
//! what is reached ([`Network::throughput`]).
//!
//! All here is pure and deterministic. `docs/equations.md` has the equations and their sources.

mod demand;
mod ending;
mod mixture;
mod network;
mod streaming;
mod tally;
mod throughput;
mod write_back;

pub use demand::{Fork, Part, RequestDemand, ServerDemand, Splitting, Work, request_demand};
pub use ending::ends_apart;
pub use mixture::marching_share;
pub use network::{Bottleneck, Network, Station};
pub use streaming::{FOLLOWED_STREAMS, Streaming};
pub use tally::{KINDS, ServiceSeconds, Side, Tally, kind};
pub use write_back::{BufferedRequests, RegionWriteBack};
