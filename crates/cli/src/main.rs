//! The `stripewise` command: a thin layer over the libraries, one module for each subcommand.
//!
//! Data go to standard output, messages to standard error. Exit status 0: done; 1: a negative finding; 2: an error;
//! `trace` and `run` pass on the status of the program they ran: 127 if there is none, 126 if it cannot be executed.
#![deny(unsafe_code)]

mod advise;
mod apply;
mod broker;
mod calibrate;
mod cat;
mod check;
mod command;
mod completions;
mod context;
mod cp;
mod daemon;
mod darshan_reader;
mod demo;
mod devices;
mod doctor;
mod each;
mod evacuate;
mod explain;
mod export;
mod fragments;
mod host;
mod init;
mod interrupt;
mod log;
mod ls;
mod man;
mod manage;
mod migrate;
mod mount;
mod output;
mod phase;
mod plan;
mod progress;
mod rebalance;
mod release;
mod replay;
mod report;
mod reproduce;
mod rescue;
mod restripe;
mod rm;
mod run;
#[cfg(feature = "schemas")]
mod schema;
mod seconds;
mod simulate;
mod site;
mod stat;
mod sync;
mod trace;
mod unmanage;

use std::process::ExitCode;
use stripewise::capture::CaptureError;
use stripewise::messages;
use stripewise::run::RunError;

/// Under a limit of address space (`ulimit -v`), threads share one arena: glibc reserves 64 MiB for each that they have.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "a setting of the allocator")]
fn spare_address_space() {
    if rustix::process::getrlimit(rustix::process::Resource::As).current.is_some() {
        // SAFETY: called before any other thread; the call changes glibc's own settings only.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

#[cfg(not(target_env = "gnu"))]
fn spare_address_space() {}

/// The status of a program that was not started, if that is what failed.
fn program_status(error: &anyhow::Error) -> Option<u8> {
    let of_run = error.downcast_ref::<RunError>().and_then(RunError::exit_status);
    of_run.or_else(|| error.downcast_ref::<CaptureError>().and_then(CaptureError::exit_status))
}

/// Becomes the owner of the cluster, after what only root can do for the command.
fn become_owner(context: &context::Context, command: &mut command::Command) -> anyhow::Result<()> {
    let owner = context.session.owner()?;
    if let command::Command::Mount(arguments) = command {
        arguments.attach_for(owner)?;
    }
    Ok(context.session.become_owner(owner)?)
}

fn main() -> ExitCode {
    spare_address_space();
    completions::answer();
    let mut cli = command::parse(command::arguments(std::env::args_os()));
    let name = cli.command.name();
    log::start(name);
    let context = context::Context::new(cli.cluster, cli.json, name);
    let owned = if cli.as_owner { become_owner(&context, &mut cli.command) } else { Ok(()) };
    match owned.and_then(|()| cli.command.run(&context)).and_then(|verdict| context.flush().map(|()| verdict)) {
        Ok(output::Verdict::Finding) => ExitCode::from(interrupt::status().unwrap_or(1)),
        Ok(verdict) => verdict.into(),
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(target: log::COMMAND, "{}", messages::message(&messages::chain(error.as_ref())));
            ExitCode::from(interrupt::status().or_else(|| program_status(&error)).unwrap_or(2))
        }
    }
}
