//! The broker by its protocol: every request, and what it leaves on the servers.

#![allow(unreachable_pub, reason = "a test has no users")]

#[path = "broker/check.rs"]
mod check;
#[path = "broker/cluster.rs"]
mod cluster;
#[path = "broker/faults.rs"]
mod faults;
#[path = "broker/requests.rs"]
mod requests;
