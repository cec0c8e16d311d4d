//! The broker by its protocol: every request, and what it leaves on the servers.

#![allow(unreachable_pub, dead_code, reason = "a test has no users, and keeps what must not be dropped")]

#[path = "broker/check.rs"]
mod check;
#[path = "broker/clients_gone.rs"]
mod clients_gone;
#[path = "broker/cluster.rs"]
mod cluster;
#[path = "broker/crashes.rs"]
mod crashes;
#[path = "broker/failing.rs"]
mod failing;
#[path = "broker/faults.rs"]
mod faults;
#[path = "broker/fragments.rs"]
mod fragments;
#[path = "broker/fragments_at_once.rs"]
mod fragments_at_once;
#[path = "broker/fragments_gone.rs"]
mod fragments_gone;
#[path = "broker/fragments_killed.rs"]
mod fragments_killed;
#[path = "broker/hanging.rs"]
mod hanging;
#[path = "hooked/server.rs"]
mod hooked;
#[path = "broker/model.rs"]
mod model;
#[path = "broker/names.rs"]
mod names;
#[path = "broker/narrow.rs"]
mod narrow;
#[path = "broker/requests.rs"]
mod requests;
#[path = "broker/table.rs"]
mod table;
#[path = "broker/user.rs"]
mod user;
#[path = "broker/users.rs"]
mod users;
#[path = "broker/versions.rs"]
mod versions;
