//! Moving files in and out of management, with every kind of interruption.
#![allow(unreachable_pub, dead_code, reason = "a test has no users, and shares its testbed with another")]

#[path = "broker/cluster.rs"]
mod cluster;
#[path = "manage/interrupted.rs"]
mod interrupted;
#[path = "manage/min_size.rs"]
mod min_size;
#[path = "manage/moves.rs"]
mod moves;
