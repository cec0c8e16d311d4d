//! `stripewise init`: write cluster.toml and prepare the directories that it names.
//!
//! Everything is looked at first; then the state directory and the servers' markers are made, and the cluster file appears last
//! and whole, so that an interrupted `init` leaves no cluster that looks complete.

mod server;

use crate::context::Context;
use crate::output::Verdict;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Serialize;
use server::NamedServer;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use stripewise::emulated::{self, EmulatedServers};
use stripewise::paths::absolute;
use stripewise::table::Table;
use stripewise_layout::cluster::DEFAULT_REGION_BYTES;
use stripewise_layout::{ByteCount, Cluster, Server, output};
use stripewise_store::server::directory;
use stripewise_store::state::StateDirectory;

/// Write cluster.toml and prepare the directories of its servers
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise init --server hdd0=hdd:/mnt/a --server ssd0=ssd:/mnt/nvme:100GiB
  stripewise init --emulated 12xhdd-7200,4xsata-ssd-2012:64MiB --link gigabit --region 4MiB")]
pub(crate) struct InitArgs {
    /// A server: NAME=hdd:DIR or NAME=ssd:DIR, with :CAPACITY if not all of the file system may be filled
    #[arg(long = "server", value_name = "NAME=CLASS:DIR[:CAPACITY]")]
    servers: Vec<NamedServer>,

    /// Emulated servers: real bytes in directories, the time of named devices
    #[arg(long, value_name = "COUNTxDEVICE[:CAPACITY],...", value_delimiter = ',')]
    emulated: Vec<EmulatedServers>,

    /// The link in front of each emulated server
    #[arg(long, value_name = "LINK", requires = "emulated")]
    link: Option<String>,

    /// Where the directories of emulated servers go [default: /dev/shm where they fit, else beside the cluster file]
    #[arg(long, value_name = "DIR", requires = "emulated")]
    emulated_dir: Option<PathBuf>,

    /// The unit of placement
    #[arg(long, value_name = "SIZE", default_value_t = ByteCount(DEFAULT_REGION_BYTES))]
    region: ByteCount,

    /// Where the mapping table and what programs share lie; on a local file system
    #[arg(long, value_name = "DIR", default_value = "stripewise-state")]
    state: PathBuf,
}

pub(crate) fn run(context: &Context, arguments: InitArgs) -> Result<Verdict> {
    let path = absolute(&context.session.cluster_path())?;
    let base = path.parent().unwrap_or(Path::new("/"));
    if path.symlink_metadata().is_ok() {
        bail!(
            "{} exists already and is the way to its cluster's files; name another with -C for another cluster",
            path.display()
        );
    }
    if !base.is_dir() {
        bail!("there is no directory {}; make it first", base.display());
    }
    if arguments.servers.is_empty() && arguments.emulated.is_empty() {
        bail!("no servers; name at least one with --server or --emulated");
    }
    let id = new_id()?;
    let mut servers = arguments.servers.iter().map(NamedServer::to_server).collect::<Result<Vec<Server>>>()?;
    let emulated = emulated::servers(&arguments.emulated, arguments.link.as_deref(), servers.len())?;
    let mut made = Made::default();
    if !emulated.is_empty() {
        let root = match &arguments.emulated_dir {
            Some(directory) => absolute(directory)?,
            None => emulated::choose_root(base, &id, &emulated)?,
        };
        servers.extend(emulated.iter().map(|server| server.at(&root)));
    }
    let cluster = Cluster::new(id, base.join(&arguments.state), arguments.region, servers);
    cluster.check().map_err(|what| anyhow::anyhow!("{what}"))?;
    prepare(&cluster, &mut made)?;
    output::create(&path, cluster.to_toml()).with_context(|| format!("cannot write {}", path.display()))?;
    made.keep();
    report(context, &path, &cluster)?;
    Ok(Verdict::Done)
}

/// 64 random bits as 16 hexadecimal digits.
fn new_id() -> Result<String> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).context("cannot get random bits")?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

/// Directories made so far; removed again, with what was put into them, unless all went well.
#[derive(Default)]
struct Made {
    directories: Vec<PathBuf>,
}

impl Made {
    fn directory(&mut self, path: &Path) -> Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.directory(parent)?;
        }
        self.create(path, 0o777)
    }

    /// As [`Self::directory`]; if it is made, only this user may pass through it.
    fn private_directory(&mut self, path: &Path) -> Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.directory(parent)?;
        }
        self.create(path, 0o700)
    }

    fn create(&mut self, path: &Path, mode: u32) -> Result<()> {
        let made = std::fs::DirBuilder::new().mode(mode).create(path);
        made.with_context(|| format!("cannot create {}", path.display()))?;
        self.directories.push(path.to_owned());
        Ok(())
    }

    fn keep(mut self) {
        self.directories.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for directory in self.directories.iter().rev() {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

fn prepare(cluster: &Cluster, made: &mut Made) -> Result<()> {
    for server in cluster.servers.iter().filter(|server| !server.url.is_emulated()) {
        server::check_directory(server)?;
    }
    if std::fs::read_dir(&cluster.state).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!(
            "the state directory {} is not empty: it belongs to another cluster; choose another with --state",
            cluster.state.display()
        );
    }
    made.private_directory(&cluster.state)?;
    StateDirectory::open(&cluster.state)?;
    for server in cluster.servers.iter().filter(|server| server.url.is_emulated()) {
        made.directory(server.url.directory())?;
        server::check_writable(server.url.directory(), &format!("server `{}`", server.name))?;
    }
    // Markers come last: only they tell that a directory belongs to this cluster.
    for server in &cluster.servers {
        directory::prepare(&cluster.id, &server.name, server.url.directory())?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Written<'a> {
    path: &'a Path,
    cluster: &'a Cluster,
}

fn report(context: &Context, path: &Path, cluster: &Cluster) -> Result<()> {
    if context.json {
        return context.object(&Written { path, cluster });
    }
    let mut table = Table::new(&["server", "class", ">capacity", "url"]);
    for server in &cluster.servers {
        let capacity = server.capacity.map_or("-".to_owned(), |capacity| capacity.to_string());
        table.row([&server.name, &server.class.to_string(), &capacity, &server.url.to_string()]);
    }
    context.line(table)?;
    context.say(format_args!("wrote {}; next: `stripewise calibrate`", path.display()));
    Ok(())
}
