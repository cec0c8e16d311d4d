//! A cluster as a whole, for people.

use crate::context::Context;
use anyhow::Result;
use stripewise::hosts::Host;
use stripewise::stat::ClusterStat;
use stripewise::table::Table;
use stripewise_layout::figures::{bytes, counted, duration, grouped};
use stripewise_report::date::utc;

pub(super) fn print(context: &Context, cluster: &ClusterStat) -> Result<()> {
    context.line(format_args!("cluster      {}", cluster.id))?;
    match &cluster.coordinator {
        None => context.line("coordinator  none: this cluster has one host, and no [coordinator] in cluster.toml")?,
        Some(coordinator) => {
            let state = coordinator.fault.as_ref().map_or_else(|| "answers".to_owned(), |fault| fault.clone());
            let endpoints = coordinator.endpoints.join(" ");
            context.line(format_args!("coordinator  {} at {endpoints}: {state}", coordinator.engine))?;
            let term = cluster.term.map_or_else(String::new, |term| format!(", term {term}"));
            context.line(format_args!("master       {}{term}", cluster.master))?;
            if let Some(key) = &cluster.key {
                context.line(format_args!("key          {key}"))?;
            }
        }
    }
    let silent: Vec<&str> = cluster.hosts.iter().filter(|host| host.is_silent).map(|host| &*host.name).collect();
    if !silent.is_empty() {
        context.line(format_args!(
            "silent       {}; if one is gone for good, `stripewise host forget` says so",
            silent.join(" ")
        ))?;
    }
    context.line(hosts(&cluster.hosts))?;
    print_moves(context, cluster)?;
    let mut table = Table::new(&["server", "class", ">promised", ">capacity", ">objects", "state", "url"]);
    for server in &cluster.servers {
        table.row([
            server.name.clone(),
            server.class.to_string(),
            bytes(server.promised_bytes),
            server.capacity_bytes.map_or_else(|| "-".to_owned(), bytes),
            grouped(server.objects as i64),
            state(server.fault.as_deref(), server.drained),
            server.url.clone(),
        ]);
    }
    context.line(table)
}

/// Of a server: what is wrong with it, or whether it takes anything.
pub(crate) fn state(fault: Option<&str>, is_drained: bool) -> String {
    let sound = if is_drained { "drained: takes nothing new" } else { "usable" };
    fault.unwrap_or(sound).to_owned()
}

/// Hosts, the master first.
pub(crate) fn hosts(hosts: &[Host]) -> Table {
    let mut table =
        Table::new(&["host", "role", "state", ">open files", ">admission", ">process", "version", "serves since"]);
    for host in hosts {
        let role = if host.is_master { "master" } else { "" };
        let state = match (host.answers, host.is_silent) {
            (true, false) => "answers".to_owned(),
            (_, true) => format!("silent for {}", duration(host.unheard_s.round())),
            (false, false) => "does not answer".to_owned(),
        };
        let files = host.files.map_or_else(|| "unknown".to_owned(), |files| files.to_string());
        let admission = host.admission.map_or_else(|| "-".to_owned(), |admission| admission.to_string());
        let (process, version, since) = host.agent.as_ref().map_or_else(
            || ("-".to_owned(), String::new(), String::new()),
            |agent| (agent.process.to_string(), agent.version.clone(), utc(agent.since_ns)),
        );
        table.row([host.name.clone(), role.to_owned(), state, files, admission, process, version, since]);
    }
    table
}

fn print_moves(context: &Context, cluster: &ClusterStat) -> Result<()> {
    let moves = &cluster.moves;
    let under_way = counted(moves.active as usize, "move", "moves");
    context.line(format_args!(
        "{under_way} under way, {} queued, {} done, {} failed",
        moves.queued, moves.done, moves.failed
    ))?;
    if let Some(why) = &moves.paused {
        context.line(format_args!("moves are paused: {why}"))?;
    }
    if cluster.moves_under_way.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["  state", ">region", "to", "path"]);
    for moving in &cluster.moves_under_way {
        let state = format!("  {}", moving.state);
        table.row([state, moving.region.to_string(), moving.to.clone(), moving.path.clone()]);
    }
    context.line(table)
}
