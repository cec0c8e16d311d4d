//! `stripewise init`: write cluster.toml and prepare the directories that it names.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use clap::{ArgGroup, Args};
use std::path::PathBuf;
use stripewise::emulated::EmulatedServers;
use stripewise::init::{CephOptions, EngineOptions, InitOptions, Initialized, NamedClass, NamedServer, init};
use stripewise::messages::shown;
use stripewise::table::Table;
use stripewise_layout::ByteCount;
use stripewise_layout::figures::bytes;

/// Write cluster.toml and prepare the directories of its servers
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("engine").args(["etcd", "rados"]), group = ArgGroup::new("in_ceph").args(["ceph", "rados"]).multiple(true))]
#[command(after_help = "\
Examples:
  stripewise init --server hdd0=hdd:/mnt/a --server ssd0=ssd:/mnt/nvme:100GiB
  stripewise init --etcd http://etcd1:2379 --listen eth0 --server ost0=hdd:/lustre/ost0 --server ost1=ssd:/lustre/ost1
  stripewise init --rados stripewise-table --server ost0=hdd:/lustre/ost0 --server ost1=ssd:/lustre/ost1
  stripewise init --emulated 12xhdd-7200,4xsata-ssd-2012:64MiB --link gigabit --region 4MiB
  stripewise init --ceph --user stripewise --create-pools")]
pub(crate) struct InitArgs {
    /// A server: NAME=hdd:DIR or NAME=ssd:DIR, with :CAPACITY if not all of the file system may be filled; rados://POOL in the place of DIR for a pool of Ceph, orangefs://HOST:PORT?fs=tcp://HOST:PORT/NAME for an I/O server of OrangeFS
    #[arg(long = "server", value_name = "NAME=CLASS:DIR[:CAPACITY]")]
    servers: Vec<NamedServer>,

    /// One server for each OSD of a Ceph: the pool that lies on that OSD alone; names the commands that make those that are missing
    #[arg(long)]
    ceph: bool,

    /// Ceph's configuration [default: $CEPH_CONF, then Ceph's usual places]
    #[arg(long, value_name = "PATH", requires = "in_ceph")]
    conf: Option<PathBuf>,

    /// Ceph's user, as in client.NAME [default: admin]
    #[arg(long, value_name = "NAME", requires = "in_ceph")]
    user: Option<String>,

    /// Run the commands that make the pools that are missing
    #[arg(long, requires = "ceph")]
    create_pools: bool,

    /// The class of an OSD, or of OSDs of a device class of Ceph other than hdd, ssd and nvme
    #[arg(long = "osd-class", value_name = "OSD|CLASS=hdd|ssd", requires = "ceph")]
    osd_classes: Vec<NamedClass>,

    /// Emulated servers: real bytes in directories, the time of named devices
    #[arg(long, value_name = "COUNTxDEVICE[:CAPACITY],...", value_delimiter = ',')]
    emulated: Vec<EmulatedServers>,

    /// The link in front of each emulated server
    #[arg(long, value_name = "LINK", requires = "emulated")]
    link: Option<String>,

    /// Where the directories of emulated servers go [default: /dev/shm where they fit, else next to the cluster file]
    #[arg(long, value_name = "DIR", requires = "emulated")]
    emulated_dir: Option<PathBuf>,

    /// The unit of placement
    #[arg(long, value_name = "SIZE", default_value_t = InitOptions::default().region)]
    region: ByteCount,

    /// Where what the programs of a host share lies, and the mapping table of a cluster of one host; on a local file system [default: stripewise-state, in /dev/shm with --etcd and --rados]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// A cluster of many hosts, whose mapping table is in this etcd
    #[arg(long, value_name = "http://HOST:PORT,...", value_delimiter = ',')]
    etcd: Vec<String>,

    /// A cluster of many hosts, whose mapping table is in this replicated pool of Ceph
    #[arg(long, value_name = "POOL")]
    rados: Option<String>,

    /// Where each host listens for the others: an address, an interface, or either with :PORT [default: the first interface that is not the loopback]
    #[arg(long, value_name = "WHERE", requires = "engine")]
    listen: Option<String>,
}

pub(crate) fn run(context: &Context, arguments: InitArgs) -> Result<Verdict> {
    let InitArgs { servers, emulated, link, emulated_dir: emulated_directory, region, state, .. } = arguments;
    let InitArgs { ceph, conf, user, create_pools, osd_classes: classes, etcd, rados, listen, .. } = arguments;
    let engine = match rados {
        Some(pool) => Some(EngineOptions::Pool { pool, conf: conf.clone(), user: user.clone() }),
        None => (!etcd.is_empty()).then_some(EngineOptions::Etcd(etcd)),
    };
    let ceph = ceph.then_some(CephOptions { conf, user, create_pools, classes });
    let options = InitOptions { servers, ceph, emulated, link, emulated_directory, region, state, engine, listen };
    let made = init(&context.session, &options)?;
    if context.json {
        context.object(&made)?;
    } else {
        print(context, &made)?;
    }
    Ok(Verdict::Done)
}

fn print(context: &Context, made: &Initialized) -> Result<()> {
    let mut table = Table::new(&["server", "class", ">capacity", "url"]);
    for server in &made.cluster.servers {
        let capacity = server.capacity.map_or("-".to_owned(), |capacity| bytes(capacity.0));
        table.row([&server.name, &server.class.to_string(), &capacity, &server.url.to_string()]);
    }
    context.line(table)?;
    if made.cluster.coordinator.is_some() && made.cluster.servers.iter().any(|server| server.url.scheme() == "file") {
        context.say(
            "what hosts see of each other's changes in these directories could not be probed: there is one host yet; each other host is probed when its first agent starts",
        );
    }
    context.say(format_args!("wrote {}; next: `stripewise calibrate`", shown(&made.path)));
    Ok(())
}
