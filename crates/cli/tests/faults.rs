//! Bad input and faults as a person meets them: a clear message, the right exit status, and nothing else harmed.

mod support;

#[path = "faults/access.rs"]
mod access;
#[path = "faults/capture.rs"]
mod capture;
#[path = "faults/driver.rs"]
mod driver;
#[path = "faults/evil_names.rs"]
mod evil_names;
#[path = "faults/hanging.rs"]
mod hanging;
#[path = "faults/inputs.rs"]
mod inputs;
#[path = "faults/instructions.rs"]
mod instructions;
#[path = "faults/interrupts.rs"]
mod interrupts;
#[path = "faults/killing.rs"]
mod killing;
#[path = "faults/large_plans.rs"]
mod large_plans;
#[path = "faults/limits.rs"]
mod limits;
#[path = "faults/making.rs"]
mod making;
#[path = "faults/mounts.rs"]
mod mounts;
#[path = "faults/originals.rs"]
mod originals;
#[path = "faults/plans.rs"]
mod plans;
#[path = "faults/redirected.rs"]
mod redirected;
#[path = "faults/releasing.rs"]
mod releasing;
#[path = "faults/servers.rs"]
mod servers;
#[path = "faults/sizes.rs"]
mod sizes;
#[path = "faults/state_full.rs"]
mod state_full;
#[path = "faults/stopping.rs"]
mod stopping;
#[path = "faults/stubs.rs"]
mod stubs;
#[path = "faults/tables.rs"]
mod tables;
