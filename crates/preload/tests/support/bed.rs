//! A small cluster with its broker in this process, and a directory that it manages.

use std::path::{Path, PathBuf};
use stripewise_broker::{Broker, BrokerHandle, BrokerOptions, Started};
use stripewise_layout::{ByteCount, Cluster, Layout, Placement, Server, ServerClass, ServerId, ServerUrl};
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::protocol::{Admin, Reply, Request};
use stripewise_store::server::directory;
use stripewise_store::state::StateDirectory;

/// Small, so that small files cross regions.
pub const REGION_BYTES: u64 = 64 << 10;

pub struct Bed {
    /// New files in it are managed.
    pub data: PathBuf,
    pub state: PathBuf,
    _broker: BrokerHandle,
}

impl Bed {
    /// Two HServers and two SServers below `root`, unequal stripes.
    pub fn new(root: &Path, region_bytes: u64, stripe_bytes: u32) -> Self {
        Self::with_options(root, region_bytes, stripe_bytes, None, BrokerOptions::default())
    }

    /// Files below a size are ordinary, if one is given.
    pub fn with_options(
        root: &Path,
        region_bytes: u64,
        stripe_bytes: u32,
        min_bytes: Option<u64>,
        options: BrokerOptions,
    ) -> Self {
        let server = |name: &str, class| {
            let path = root.join("servers").join(name);
            std::fs::create_dir_all(&path).unwrap();
            directory::prepare("c0ffee", name, &path).unwrap();
            Server::new(name, class, ServerUrl::new("file", path))
        };
        let servers = vec![
            server("hdd0", ServerClass::Hdd),
            server("hdd1", ServerClass::Hdd),
            server("ssd0", ServerClass::Ssd),
            server("ssd1", ServerClass::Ssd),
        ];
        let state = root.join("state");
        let cluster = Cluster::new("c0ffee", state.clone(), ByteCount(region_bytes), servers);
        StateDirectory::make(&state).unwrap();
        let broker = match Broker::start(&cluster, options).unwrap() {
            Started::Serving(handle) => handle,
            Started::AlreadyRunning { process } => panic!("a broker runs already: {process:?}"),
        };
        let data = root.join("data");
        std::fs::create_dir_all(&data).unwrap();
        let stripes = |servers: std::ops::Range<u16>| {
            servers.map(|id| (ServerId(id), if id < 2 { stripe_bytes } else { 3 * stripe_bytes }))
        };
        let (layout, fallback) = (Layout::new(stripes(0..4)).unwrap(), Layout::new(stripes(0..2)).unwrap());
        let placement = Placement::uniform(ByteCount(region_bytes), layout, fallback);
        let client = Client::connect(&state, ClientOptions::default()).unwrap();
        let directory = std::fs::canonicalize(&data).unwrap().to_str().unwrap().to_owned();
        let (reply, _) =
            client.request(&Request::Admin(Admin::Manage { directory, placement, min_bytes }), &[]).unwrap();
        assert_eq!(reply, Reply::Done);
        Self { data, state, _broker: broker }
    }
}
