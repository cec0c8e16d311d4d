//! The simulator against truths that need no simulator: closed forms, conservation laws, reservation at issue.

mod closed_forms;
mod detail;
mod fragments;
mod laws;
mod migration;
mod script;
mod testbed;
mod write_back;
