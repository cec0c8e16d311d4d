//! `stripewise completions`: what a shell needs to complete commands and options.

use crate::command::Cli;
use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print the completions for a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise completions bash > ~/.local/share/bash-completion/completions/stripewise
  stripewise completions zsh > ~/.zfunc/_stripewise
  stripewise completions fish > ~/.config/fish/completions/stripewise.fish")]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

pub(crate) fn run(context: &Context, arguments: CompletionsArgs) -> Result<Verdict> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "stripewise", &mut text);
    context.bytes(&text)?;
    Ok(Verdict::Done)
}
