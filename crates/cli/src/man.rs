//! `stripewise man`: the manual page of the command, or of one of its subcommands.

use crate::command::Cli;
use crate::context::Context;
use crate::output::Verdict;
use anyhow::{Context as _, Result, bail};
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use std::path::{Path, PathBuf};
use stripewise::messages::shown;
use stripewise_layout::output;

/// Print the manual page, or write those of all commands into a directory
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise man | man -l -
  stripewise man plan | man -l -
  stripewise man --directory ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The subcommand that is meant [default: the command as a whole]
    subcommand: Option<String>,

    /// Write stripewise.1 and stripewise-SUBCOMMAND.1 for each subcommand into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "subcommand")]
    directory: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, arguments: ManArgs) -> Result<Verdict> {
    let mut whole = Cli::command();
    whole.build();
    if let Some(directory) = &arguments.directory {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", shown(directory)))?;
        return write_pages(&whole.disable_help_subcommand(true), directory).map(|()| Verdict::Done);
    }
    let page = match &arguments.subcommand {
        None => whole,
        Some(name) => match whole.find_subcommand(name) {
            Some(found) => found.clone().display_name(format!("stripewise-{name}")),
            None => bail!("no subcommand `{name}`; `stripewise --help` lists them"),
        },
    };
    let mut text = Vec::new();
    Man::new(page).render(&mut text).context("writing the manual page")?;
    context.bytes(&text)?;
    Ok(Verdict::Done)
}

/// A page for the command and for each of its subcommands.
fn write_pages(command: &Command, directory: &Path) -> Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_pages(subcommand, directory)?;
    }
    let page = Man::new(command.clone());
    let path = directory.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text)
        .and_then(|()| output::write(&path, text))
        .with_context(|| format!("cannot write {}", shown(&path)))
}
