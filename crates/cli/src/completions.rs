//! `stripewise completions`: what a shell needs to complete commands, options, policies and servers.
//!
//! What is printed calls the command itself at every completion, with [`VARIABLE`] set: [`answer`] then prints candidates, among them the servers of the
//! cluster file that the command line means.

use crate::command::Cli;
use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Zsh};
use std::ffi::OsString;
use std::path::PathBuf;
use stripewise::{Session, Voice};
use stripewise_planner::policy::PolicyName;

/// Names the shell that asks.
const VARIABLE: &str = "STRIPEWISE_COMPLETE";
const NAME: &str = "stripewise";

/// Print the completions for a shell
///
/// They complete commands, options, policies and the names of servers, those of the cluster file that `-C`, STRIPEWISE_CLUSTER or the current directory names.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise completions bash > ~/.local/share/bash-completion/completions/stripewise
  stripewise completions zsh > ~/.zfunc/_stripewise
  stripewise completions fish > ~/.config/fish/completions/stripewise.fish")]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Shell {
    Bash,
    Elvish,
    Fish,
    Zsh,
}

impl Shell {
    fn completer(self) -> &'static dyn EnvCompleter {
        match self {
            Self::Bash => &Bash,
            Self::Elvish => &Elvish,
            Self::Fish => &Fish,
            Self::Zsh => &Zsh,
        }
    }
}

pub(crate) fn run(context: &Context, arguments: CompletionsArgs) -> Result<Verdict> {
    let mut text = Vec::new();
    arguments.shell.completer().write_registration(VARIABLE, NAME, NAME, NAME, &mut text)?;
    context.bytes(&text)?;
    Ok(Verdict::Done)
}

/// Prints candidates and ends the process if a shell asks for them.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).bin(NAME).completer(NAME).complete();
}

/// The names of all policies.
pub(crate) fn policies() -> ArgValueCandidates {
    ArgValueCandidates::new(|| PolicyName::ALL.map(|policy| CompletionCandidate::new(policy.name())).into())
}

/// As [`policies`], and `all`.
pub(crate) fn policies_or_all() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let named = PolicyName::ALL.into_iter().map(PolicyName::name);
        named.chain(["all"]).map(CompletionCandidate::new).collect()
    })
}

/// The names of the cluster's servers; none where no cluster file can be read.
pub(crate) fn servers() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let cluster = Session::new(cluster_meant(std::env::args_os()), Voice::silent()).cluster();
        let servers = cluster.map(|cluster| cluster.servers).unwrap_or_default();
        servers.iter().map(|server| CompletionCandidate::new(server.name.as_str())).collect()
    })
}

/// What `-C` or `--cluster` says in a command line that is not complete, else the environment.
fn cluster_meant(words: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let words: Vec<OsString> = words.collect();
    let given = words.iter().enumerate().find_map(|(place, word)| match word.to_str() {
        Some("-C" | "--cluster") => words.get(place + 1).map(PathBuf::from),
        Some(word) => word.strip_prefix("--cluster=").or_else(|| word.strip_prefix("-C")).map(PathBuf::from),
        None => None,
    });
    given.or_else(|| std::env::var_os("STRIPEWISE_CLUSTER").map(PathBuf::from))
}
