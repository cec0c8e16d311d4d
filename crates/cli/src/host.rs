//! `stripewise host`: the hosts of a cluster.

use crate::context::Context;
use crate::output::Verdict;
use crate::stat::cluster;
use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::PathBuf;
use stripewise::Store;
use stripewise::agent_metrics::agent_metrics;
use stripewise::hosts::{self, Host, Probed};
use stripewise::table::Table;
use stripewise_layout::figures::counted;

/// List the hosts of a cluster, forget one that is gone, probe a directory that they share, replace their key, or print what this host's agent counts
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise host list
  stripewise host forget node17
  stripewise host probe /lustre/project/data
  stripewise host rekey
  stripewise host metrics > /var/lib/node_exporter/stripewise.prom")]
pub(crate) struct HostArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Which hosts use the cluster, which of them is master, and which do not answer
    #[command(after_help = "\
Examples:
  stripewise host list
  stripewise host list --json | jq -r '.hosts[] | select(.is_silent) | .name'")]
    List,
    /// A host is gone for good: what it had open counts as closed
    ///
    /// While a host may come back, files that it may have open are neither cut nor moved nor freed. Say this only of a host whose programs have
    /// ended: one that goes on writing would write where other data may lie by then.
    #[command(after_help = "\
Examples:
  stripewise host forget node17")]
    Forget {
        /// As `list` shows it
        host: String,
    },
    /// Replace the key pair by which the hosts know each other, on all hosts
    ///
    /// Programs go on. Every host that `list` shows has to answer: forget one that is gone first. On a host where no agent runs copy the key file
    /// from another one afterwards; until then it is refused, and says so. Interrupted, the same command goes through with it.
    #[command(after_help = "\
Examples:
  stripewise host rekey")]
    Rekey,
    /// What the process that serves this host has counted, as Prometheus reads it
    ///
    /// Questions to and from the master by kind and what they took, I/O that it does for programs by server, elections, refusals. A daemon on this
    /// host serves the same behind its own metrics.
    #[command(after_help = "\
Examples:
  stripewise host metrics > /var/lib/node_exporter/stripewise.prom")]
    Metrics,
    /// What hosts see of each other's changes in a directory, and so whether it can have managed files or be a server
    ///
    /// The master's host and each other with an agent take steps there in turn: names, lengths, bytes and fcntl locks. Exit status 1 where the
    /// directory is fit for neither. The directory need not belong to the cluster yet.
    #[command(after_help = "\
Examples:
  stripewise host probe /lustre/project/data")]
    Probe {
        /// Any directory that all hosts have mounted at this path
        directory: PathBuf,
    },
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// The master first.
    hosts: Vec<Host>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct ShownMetrics {
    /// In Prometheus's text format.
    metrics: String,
}

pub(crate) fn run(context: &Context, arguments: HostArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    if let Action::Metrics = arguments.action {
        let metrics = agent_metrics(&store)?;
        match context.json {
            true => context.object(&ShownMetrics { metrics })?,
            false => context.bytes(metrics.as_bytes())?,
        }
        return Ok(Verdict::Done);
    }
    if let Action::Rekey = arguments.action {
        let rekeyed = hosts::rekey(&store)?;
        if context.json {
            context.object(&rekeyed)?;
            return Ok(Verdict::Done);
        }
        if rekeyed.was_begun {
            context.say("a replacement that was interrupted is complete; repeat the command for a further key");
        }
        let hosts = counted(rekeyed.hosts as usize, "host has", "hosts have");
        context.line(format_args!("{hosts} the key {}", rekeyed.key))?;
        return Ok(Verdict::Done);
    }
    if let Action::Probe { directory } = &arguments.action {
        return probe(context, &hosts::probe(&store, directory)?);
    }
    if let Action::Forget { host } = &arguments.action {
        hosts::forget(&store, host)?;
        context.say(format_args!("host {host} is forgotten"));
    }
    let hosts = hosts::list(&store)?;
    if context.json {
        context.object(&Shown { hosts })?;
    } else if matches!(arguments.action, Action::List) {
        context.line(cluster::hosts(&hosts))?;
    }
    Ok(Verdict::Done)
}

fn probe(context: &Context, probed: &Probed) -> Result<Verdict> {
    if context.json {
        context.object(probed)?;
    } else {
        let mut table = Table::new(&["host", "names", "lengths", "bytes", "locks"]);
        let mut faults = Vec::new();
        for host in &probed.hosts {
            let properties = [&host.names, &host.attributes, &host.data, &host.locks];
            let shown = properties.map(|fault| if fault.is_none() { "yes" } else { "no" });
            table.row([&*host.host, shown[0], shown[1], shown[2], shown[3]]);
            faults.extend(properties.into_iter().flatten().map(|fault| format!("{}: {fault}", host.host)));
        }
        context.line(table)?;
        for fault in &faults {
            context.line(fault)?;
        }
        let fit = |is_fit: bool| if is_fit { "fit" } else { "not fit" };
        context.line(format_args!(
            "{}: {} for managed files, {} for a server",
            probed.directory,
            fit(probed.fit_for_stubs),
            fit(probed.fit_for_servers)
        ))?;
    }
    Ok(if probed.fit_for_stubs || probed.fit_for_servers { Verdict::Done } else { Verdict::Finding })
}
