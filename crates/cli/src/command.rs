//! The one table of subcommands and global options: parsing, help, manual pages and completions are made from it.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::{Arg, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Stripe parallel files over slow and fast servers as a program's own accesses ask for
#[derive(Parser, Debug)]
#[command(
    name = "stripewise",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = "\
The way from a program to a faster one:
  stripewise init --server hdd0=hdd:/mnt/a --server ssd0=ssd:/mnt/nvme:100GiB
  stripewise calibrate
  stripewise trace -o run.trace -- mpiexec -n 32 ./app
  stripewise plan run.trace -o plan.json
  stripewise apply plan.json
  stripewise run -- mpiexec -n 32 ./app

Exit status: 0 done, 1 a negative finding, 2 an error, 130 and 143 stopped by Ctrl-C and SIGTERM; trace and run pass on the program's."
)]
pub(crate) struct Cli {
    /// The cluster file, or a directory that holds a cluster.toml [default: ./cluster.toml]
    #[arg(
        short = 'C',
        long,
        global = true,
        value_name = "PATH",
        env = "STRIPEWISE_CLUSTER",
        hide_env_values = true,
        help_heading = "Global options"
    )]
    pub(crate) cluster: Option<PathBuf>,

    /// As root: become the owner of the cluster file before anything of the cluster is opened
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) as_owner: bool,

    /// Print JSON objects with a version instead of text
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command line; ends the process where it is wrong or asks for help.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Cli {
    let matches = with_negative_values(Cli::command()).get_matches_from(words);
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// A negative number is the value of the option before it, which says what is wrong with it, and no option of its own.
fn with_negative_values(command: clap::Command) -> clap::Command {
    let is_option = |arg: &Arg| !arg.is_positional() && arg.get_action().takes_values();
    let with = |arg: Arg| if is_option(&arg) { arg.allow_negative_numbers(true) } else { arg };
    command.mut_args(with).mut_subcommands(with_negative_values)
}

macro_rules! commands {
    ($(
        $([feature $feature:tt])? $(#[$attribute:meta])*
        $variant:ident($module:ident :: $arguments:ident) = $name:literal;
    )*) => {
        #[derive(Subcommand, Debug)]
        pub(crate) enum Command {
            $(
                $(#[cfg(feature = $feature)])? $(#[$attribute])*
                #[command(name = $name)] $variant(crate::$module::$arguments),
            )*
        }

        impl Command {
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$variant(_) => $name,)*
                }
            }

            pub(crate) fn run(self, context: &Context) -> Result<Verdict> {
                match self {
                    $(
                        $(#[cfg(feature = $feature)])?
                        Self::$variant(arguments) => crate::$module::run(context, arguments),
                    )*
                }
            }
        }
    };
}

commands! {
    Init(init::InitArgs) = "init";
    Calibrate(calibrate::CalibrateArgs) = "calibrate";
    Doctor(doctor::DoctorArgs) = "doctor";
    Trace(trace::TraceArgs) = "trace";
    Plan(plan::PlanArgs) = "plan";
    Explain(explain::ExplainArgs) = "explain";
    Advise(advise::AdviseArgs) = "advise";
    Export(export::ExportArgs) = "export";
    Apply(apply::ApplyArgs) = "apply";
    Run(run::RunArgs) = "run";
    Mount(mount::MountArgs) = "mount";
    Daemon(daemon::DaemonArgs) = "daemon";
    Host(host::HostArgs) = "host";
    Phase(phase::PhaseArgs) = "phase";
    Restripe(restripe::RestripeArgs) = "restripe";
    Migrate(migrate::MigrateArgs) = "migrate";
    #[command(alias = "drain")]
    Evacuate(evacuate::EvacuateArgs) = "evacuate";
    Rebalance(rebalance::RebalanceArgs) = "rebalance";
    Ls(ls::LsArgs) = "ls";
    Stat(stat::StatArgs) = "stat";
    Sync(sync::SyncArgs) = "sync";
    Fragments(fragments::FragmentsArgs) = "fragments";
    Cat(cat::CatArgs) = "cat";
    Cp(cp::CpArgs) = "cp";
    Rm(rm::RmArgs) = "rm";
    Rescue(rescue::RescueArgs) = "rescue";
    Release(release::ReleaseArgs) = "release";
    Check(check::CheckArgs) = "check";
    Manage(manage::ManageArgs) = "manage";
    Unmanage(unmanage::UnmanageArgs) = "unmanage";
    Broker(broker::BrokerArgs) = "broker";
    Report(report::ReportArgs) = "report";
    Replay(replay::ReplayArgs) = "replay";
    Demo(demo::DemoArgs) = "demo";
    Simulate(simulate::SimulateArgs) = "simulate";
    Reproduce(reproduce::ReproduceArgs) = "reproduce";
    Site(site::SiteArgs) = "site";
    Devices(devices::DevicesArgs) = "devices";
    [feature "schemas"] Schema(schema::SchemaArgs) = "schema";
    Completions(completions::CompletionsArgs) = "completions";
    Man(man::ManArgs) = "man";
    #[command(hide = true)]
    DarshanReader(darshan_reader::DarshanReaderArgs) = "darshan-reader";
}

/// The arguments of the command, without a bare `--cluster` of `stat`: it has no value where an option or nothing follows, and means the cluster that is
/// meant without it. Other commands refuse that.
pub(crate) fn arguments(all: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let all: Vec<OsString> = all.collect();
    if !all.iter().any(|argument| argument == "stat") {
        return all;
    }
    let is_option = |argument: Option<&OsString>| argument.is_none_or(|next| next.as_encoded_bytes().starts_with(b"-"));
    let is_bare = |(place, argument): (usize, &OsString)| argument == "--cluster" && is_option(all.get(place + 1));
    let bare: Vec<bool> = all.iter().enumerate().map(is_bare).collect();
    all.into_iter().zip(bare).filter(|(_, is_bare)| !is_bare).map(|(argument, _)| argument).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_table_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_bare_cluster_of_stat_means_the_cluster_that_is_meant_without_it() {
        let parse = |words: &str| Cli::try_parse_from(arguments(words.split(' ').map(OsString::from)));
        assert!(parse("stripewise stat --cluster").unwrap().cluster.is_none());
        let found = parse("stripewise stat --cluster --json").unwrap();
        assert!(found.cluster.is_none() && found.json);
        assert_eq!(parse("stripewise stat --cluster other.toml").unwrap().cluster, Some(PathBuf::from("other.toml")));
        assert!(parse("stripewise ls --cluster").is_err());
    }

    #[test]
    fn every_command_has_an_example_and_says_what_it_does() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name} has no description");
            let example = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(example.contains(&format!("stripewise {name}")), "{name} has no example");
        }
    }
}
