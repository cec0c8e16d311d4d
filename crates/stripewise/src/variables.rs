//! Names of the environment variables by which command, library and programs tell each other where things are.

/// Where the preload library puts its records: a trace's directory.
pub const TRACE: &str = "STRIPEWISE_TRACE";
/// Where the preload library finds the broker: a cluster's state directory.
pub const STATE: &str = "STRIPEWISE_STATE";
/// The command that the preload library starts to serve a host where nothing does, on a cluster of several hosts.
pub const AGENT: &str = "STRIPEWISE_AGENT";
/// The cluster file.
pub const CLUSTER: &str = "STRIPEWISE_CLUSTER";
/// Set when programs that cannot be redirected may meet stubs all the same.
pub const ALLOW_UNREDIRECTED: &str = "STRIPEWISE_ALLOW_UNREDIRECTED";
/// Where the preload library leaves an empty file for each program that it has warned of: a directory of the run's own.
pub const MARKS: &str = "STRIPEWISE_MARKS";
/// Names the preload library, if it is not beside the command.
pub const PRELOAD: &str = "STRIPEWISE_PRELOAD";
