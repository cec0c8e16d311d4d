//! Regions that move while programs run: by hand, by a plan's windows, off a server; and what stands in the way.

mod support;

#[path = "migration/daemon.rs"]
mod daemon;
#[path = "migration/leave_it.rs"]
mod leave_it;
#[path = "migration/online.rs"]
mod online;
#[path = "migration/orders.rs"]
mod orders;
#[allow(dead_code, reason = "shared with another test")]
#[path = "faults/plans.rs"]
mod plans;
#[path = "migration/servers.rs"]
mod servers;
#[path = "migration/serving.rs"]
mod serving;
#[path = "migration/windows.rs"]
mod windows;
