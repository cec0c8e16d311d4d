//! The profile: what calibration found of every server and of the network.
//!
//! A request of v bytes costs a server `alpha + v beta`; both depend on direction and order. The network costs `e` for each
//! connection and `t` for each byte (H2DP table 1). A profile names the cluster it was measured on and is refused for another.

use serde::{Deserialize, Serialize};
use stripewise_layout::{Direction, Order, ServerClass};

/// The version written to and accepted from profile files.
pub const PROFILE_VERSION: u32 = 1;

/// A fitted line: time = alpha + bytes x beta.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Startup time in seconds.
    pub alpha_s: f64,
    /// Transfer time in seconds per byte.
    pub beta_s_per_byte: f64,
    /// Coefficient of determination of the fit, at most 1.
    pub r2: f64,
    /// Median absolute deviation of the measured times from the line, relative to the line.
    pub spread: f64,
    /// Times measured.
    pub samples: u32,
}

impl Line {
    /// Seconds for one request of `bytes`.
    #[must_use]
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.alpha_s + bytes * self.beta_s_per_byte
    }
}

/// The four lines of one server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerProfile {
    pub name: String,
    pub class: ServerClass,
    pub read_sequential: Line,
    pub read_random: Line,
    pub write_sequential: Line,
    pub write_random: Line,
}

impl ServerProfile {
    #[must_use]
    pub fn line(&self, direction: Direction, order: Order) -> &Line {
        match (direction, order) {
            (Direction::Read, Order::Sequential) => &self.read_sequential,
            (Direction::Read, Order::Random) => &self.read_random,
            (Direction::Write, Order::Sequential) => &self.write_sequential,
            (Direction::Write, Order::Random) => &self.write_random,
        }
    }
}

/// How the network parameters were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkSource {
    /// Measured over the servers' links.
    Measured,
    /// Given by the user.
    Given,
    /// All servers are directories of this host: no network lies between.
    Local,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkProfile {
    /// Seconds to establish one connection: e of the papers.
    pub e_s: f64,
    /// Seconds per byte: t of the papers.
    pub t_s_per_byte: f64,
    pub source: NetworkSource,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub version: u32,
    /// Id of the cluster that was measured.
    pub cluster: String,
    /// True when any server is emulated: its figures are those of a model, not of a device.
    pub emulated: bool,
    /// UTC, RFC 3339.
    pub measured_at: String,
    /// In the order of the cluster's servers.
    pub servers: Vec<ServerProfile>,
    pub network: NetworkProfile,
}
