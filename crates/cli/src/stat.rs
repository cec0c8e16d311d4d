//! `stripewise stat`: what is known of a managed file, down to its regions.

mod fragments;

use crate::context::Context;
use crate::output::Verdict;
use anyhow::{Context as _, Result};
use clap::Args;
use fragments::FragmentsShown;
use serde::Serialize;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use stripewise::messages::printable;
use stripewise::store::{Managed, Store};
use stripewise::table::Table;
use stripewise_layout::figures::{bytes, grouped};
use stripewise_layout::{FileId, Layout, RegionGeometry, Server, ServerId};
use stripewise_planner::layout_text;
use stripewise_report::date::utc;
use stripewise_store::protocol::{RegionInfo, ReplicaInfo};

/// Show size, times, owner, servers and regions of managed files
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise stat data.h5
  stripewise stat --json data.h5 | jq '.files[0].spans'")]
pub(crate) struct StatArgs {
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Shown {
    files: Vec<FileShown>,
}

#[derive(Serialize)]
struct FileShown {
    path: PathBuf,
    file: FileId,
    size_bytes: u64,
    blocks_512: u64,
    mode: String,
    uid: u32,
    gid: u32,
    modified_ns: u64,
    region_bytes: u64,
    regions: u32,
    regions_placed: usize,
    /// Further copies that placed regions are to have.
    replicas: usize,
    /// Of those, such as hold what the file holds.
    replicas_fresh: usize,
    fragments: FragmentsShown,
    /// Bytes of the file on each server that has some.
    servers: Vec<ServerShown>,
    spans: Vec<SpanShown>,
}

#[derive(Serialize)]
struct ServerShown {
    name: String,
    bytes: u64,
    /// Of fresh replicas, beside `bytes`.
    replica_bytes: u64,
}

#[derive(Serialize)]
struct SpanShown {
    first_region: u32,
    regions: u32,
    layout: String,
    /// Its own layout had no room.
    fell_back: bool,
    replicas: Vec<ReplicaShown>,
}

#[derive(Serialize)]
struct ReplicaShown {
    layout: String,
    /// It holds what the file holds, and reads may go there. Otherwise it takes no room until it is made anew.
    fresh: bool,
}

pub(crate) fn run(context: &Context, arguments: StatArgs) -> Result<Verdict> {
    let store = Store::open(&context.session)?;
    let mut files = Vec::new();
    for path in &arguments.paths {
        files.push(look_at(&store, &store.managed(path, false)?)?);
    }
    if context.json {
        context.object(&Shown { files })?;
        return Ok(Verdict::Done);
    }
    for (number, file) in files.iter().enumerate() {
        if number > 0 {
            context.line("")?;
        }
        print(context, file)?;
    }
    Ok(Verdict::Done)
}

fn look_at(store: &Store, managed: &Managed) -> Result<FileShown> {
    let status = managed.striped.status();
    let stub = managed.stub.metadata().with_context(|| format!("cannot look at {}", managed.path.display()))?;
    let regions = store.regions(managed.striped.id())?;
    let geometry = RegionGeometry::new(managed.striped.region_bytes());
    let stub_modified_ns = stub.mtime() as u64 * 1_000_000_000 + stub.mtime_nsec() as u64;
    Ok(FileShown {
        path: managed.path.clone(),
        file: managed.striped.id(),
        size_bytes: status.size_bytes,
        blocks_512: status.blocks_512,
        mode: format!("{:04o}", stub.mode() & 0o7777),
        uid: stub.uid(),
        gid: stub.gid(),
        modified_ns: status.modified_ns.unwrap_or(stub_modified_ns),
        region_bytes: geometry.region_bytes(),
        regions: geometry.count_for(status.size_bytes),
        regions_placed: regions.len(),
        replicas: regions.iter().map(|region| region.replicas.len()).sum(),
        replicas_fresh: regions.iter().flat_map(|region| &region.replicas).filter(|replica| replica.fresh).count(),
        fragments: FragmentsShown::look_at(store, managed.striped.id())?,
        servers: bytes_by_server(store, &regions, geometry, status.size_bytes)?,
        spans: spans(store, &regions)?,
    })
}

fn layout_of(stripes: &[(u16, u32)]) -> Result<Layout> {
    Ok(Layout::new(stripes.iter().map(|(server, size)| (ServerId(*server), *size)))?)
}

fn bytes_by_server(
    store: &Store,
    regions: &[RegionInfo],
    geometry: RegionGeometry,
    size_bytes: u64,
) -> Result<Vec<ServerShown>> {
    let empty = |server: &Server| ServerShown { name: server.name.clone(), bytes: 0, replica_bytes: 0 };
    let mut held: Vec<ServerShown> = store.cluster.servers.iter().map(empty).collect();
    for region in regions {
        let used = geometry.used_bytes(region.region, size_bytes);
        let fresh = region.replicas.iter().filter(|replica| replica.fresh).map(|replica| (&replica.stripes, true));
        for (stripes, is_replica) in fresh.chain([(&region.stripes, false)]) {
            let layout = layout_of(stripes)?;
            for (turn, stripe) in layout.stripes().iter().enumerate() {
                let Some(server) = held.get_mut(usize::from(stripe.server.0)) else { continue };
                let sum = if is_replica { &mut server.replica_bytes } else { &mut server.bytes };
                *sum += layout.view().object_bytes(turn, used);
            }
        }
    }
    held.retain(|server| server.bytes + server.replica_bytes > 0);
    Ok(held)
}

/// Neighbouring regions with one layout, together.
fn spans(store: &Store, regions: &[RegionInfo]) -> Result<Vec<SpanShown>> {
    let mut spans: Vec<SpanShown> = Vec::new();
    let mut last: Option<&RegionInfo> = None;
    for region in regions {
        let continues = last.is_some_and(|last| {
            last.region.0 + 1 == region.region.0
                && (&last.stripes, last.fell_back, &last.replicas)
                    == (&region.stripes, region.fell_back, &region.replicas)
        });
        match spans.last_mut() {
            Some(span) if continues => span.regions += 1,
            _ => spans.push(SpanShown {
                first_region: region.region.0,
                regions: 1,
                layout: layout_text(&layout_of(&region.stripes)?, &store.cluster),
                fell_back: region.fell_back,
                replicas: region.replicas.iter().map(|replica| shown(store, replica)).collect::<Result<_>>()?,
            }),
        }
        last = Some(region);
    }
    Ok(spans)
}

fn shown(store: &Store, replica: &ReplicaInfo) -> Result<ReplicaShown> {
    Ok(ReplicaShown { layout: layout_text(&layout_of(&replica.stripes)?, &store.cluster), fresh: replica.fresh })
}

fn print(context: &Context, file: &FileShown) -> Result<()> {
    context.line(format_args!("path      {}", printable(&file.path.display().to_string(), false)))?;
    context.line(format_args!("file      {}", file.file))?;
    context.line(format_args!("size      {} ({} bytes)", bytes(file.size_bytes), grouped(file.size_bytes as i64)))?;
    context.line(format_args!("blocks    {} of 512 bytes", grouped(file.blocks_512 as i64)))?;
    context.line(format_args!("mode      {}, owner {}:{}", file.mode, file.uid, file.gid))?;
    context.line(format_args!("modified  {}", utc(file.modified_ns)))?;
    context.line(format_args!(
        "regions   {} of {}, {} placed",
        file.regions,
        bytes(file.region_bytes),
        file.regions_placed
    ))?;
    if file.replicas > 0 {
        context.line(format_args!("replicas  {}, {} fresh", file.replicas, file.replicas_fresh))?;
    }
    file.fragments.print(context)?;
    let mut table = if file.replicas > 0 {
        Table::new(&["  server", ">bytes", ">in replicas"])
    } else {
        Table::new(&["  server", ">bytes"])
    };
    for server in &file.servers {
        let (name, held) = (format!("  {}", server.name), bytes(server.bytes));
        match file.replicas {
            0 => table.row([name, held]),
            _ => table.row([name, held, bytes(server.replica_bytes)]),
        }
    }
    context.line(table)?;
    let mut table = Table::new(&["  regions", "layout", ""]);
    for span in &file.spans {
        let last = span.first_region + span.regions - 1;
        let range = if span.regions == 1 { last.to_string() } else { format!("{}..{last}", span.first_region) };
        let note = if span.fell_back { "fallback: its servers were full or could not be used" } else { "" };
        table.row([format!("  {range}"), span.layout.clone(), note.to_owned()]);
        for replica in &span.replicas {
            let note = if replica.fresh { "replica, fresh" } else { "replica, to be refreshed" };
            table.row([String::new(), replica.layout.clone(), note.to_owned()]);
        }
    }
    context.line(table)
}
