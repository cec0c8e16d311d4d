//! The laboratory: what measures Stripewise rather than serves its users' programs.
//!
//! [`replay`] runs a trace or a benchmark for real, [`demo`] does the main job on an emulated testbed, [`reproduce`] holds the papers' experiments.
//! Product code uses nothing of this.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]

pub mod demo;
mod dilation;
mod programs;
pub mod replay;
#[cfg(test)]
mod report_page_tests;
pub mod reproduce;
