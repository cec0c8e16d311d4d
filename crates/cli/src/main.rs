//! The `stripewise` command: a thin layer over the libraries, one module for each subcommand.
//!
//! Data go to standard output, messages to standard error. Exit status 0: done; 1: a negative finding; 2: an error;
//! `trace` and `run` pass on the status of the program they ran.
#![deny(unsafe_code)]

mod calibrate;
mod command;
mod completions;
mod context;
mod demo;
mod devices;
mod doctor;
mod figures;
mod init;
mod launch;
mod man;
mod output;
mod plan;
mod progress;
mod report;
mod seconds;
mod table;
mod trace;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = command::Cli::parse();
    let name = cli.command.name();
    let context = context::Context::new(cli.cluster, cli.json, name);
    match cli.command.run(&context).and_then(|verdict| context.flush().map(|()| verdict)) {
        Ok(verdict) => verdict.into(),
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stripewise {name}: {}", output::chain(&error));
            ExitCode::from(2)
        }
    }
}
