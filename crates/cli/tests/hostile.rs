//! Root works on files and directories of a user who means harm: nothing outside of the user's reach is touched.

mod support;

#[path = "hostile/directories.rs"]
mod directories;
#[path = "hostile/outputs.rs"]
mod outputs;
#[path = "hostile/servers.rs"]
mod servers;
#[path = "hostile/state.rs"]
mod state;
#[allow(dead_code, reason = "shared with the tests of names, which use all of it")]
#[path = "names/traced.rs"]
mod traced;
#[path = "hostile/user.rs"]
mod user;
