//! `stripewise host`: the hosts of a cluster.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use stripewise::Store;
use stripewise::hosts::{self, Host};
use stripewise::table::Table;

/// List the hosts of a cluster, or forget one that is gone
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise host list
  stripewise host forget node17")]
pub(crate) struct HostArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Which hosts use the cluster, which of them is master, and which do not answer
    List,
    /// A host is gone for good: what it had open counts as closed
    ///
    /// While a host may come back, files that it may have open are neither cut nor moved nor freed. Say this only of a host whose programs have
    /// ended: one that goes on writing would write where other data may lie by then.
    Forget {
        /// As `list` shows it
        host: String,
    },
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// The master first.
    hosts: Vec<Host>,
}

pub(crate) fn run(context: &Context, arguments: HostArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    if let Action::Forget { host } = &arguments.action {
        hosts::forget(&store, host)?;
        context.say(format_args!("host {host} is forgotten"));
    }
    let hosts = hosts::list(&store)?;
    if context.json {
        context.object(&Shown { hosts })?;
    } else if matches!(arguments.action, Action::List) {
        let mut table = Table::new(&["host", "role", "answers", ">open files"]);
        for host in &hosts {
            let role = if host.is_master { "master" } else { "" };
            let answers = if host.answers { "yes" } else { "no" };
            let files = host.files.map_or_else(|| "unknown".to_owned(), |files| files.to_string());
            table.row([&*host.name, role, answers, &files]);
        }
        context.line(table)?;
    }
    Ok(Verdict::Done)
}
