//! Root works on files and directories of a user who means harm: nothing outside of the user's reach is touched.

mod support;

#[path = "hostile/directories.rs"]
mod directories;
#[path = "hostile/user.rs"]
mod user;
