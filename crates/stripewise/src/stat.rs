//! What is known of a managed file, down to its regions, and of a cluster as a whole.

mod cluster;
mod fragments;

pub use cluster::{ClusterStat, ClusterStatError, CoordinatorStat, ServerStat, cluster_stat};
pub use fragments::{FragmentClassStat, FragmentLogStat, FragmentsStat};

use crate::moves::layout_of;
use crate::paths::{self, OnPath as _, PathError};
use crate::store::{Managed, Store, StoreError};
use serde::Serialize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use stripewise_layout::{FileId, Layout, LayoutError, RegionGeometry, Server, ServerId};
use stripewise_planner::layout_text;
use stripewise_store::file::FileError;
use stripewise_store::protocol::{RegionInfo, ReplicaInfo};
use thiserror::Error;

/// Why nothing is known of a file.
#[derive(Debug, Error)]
pub enum StatError {
    /// The cluster or the file cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stub cannot be examined.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Other hosts use the file too, and what they have made of it cannot be asked.
    #[error(transparent)]
    File(#[from] FileError),
    /// A region's stripes are no layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

type Result<T> = std::result::Result<T, StatError>;

/// A managed file.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct FileStat {
    /// As it was named.
    pub path: PathBuf,
    /// Its id.
    pub file: FileId,
    /// Logical size.
    pub size_bytes: u64,
    /// Blocks of 512 bytes that its objects occupy.
    pub blocks_512: u64,
    /// Permission bits in octal, four digits.
    pub mode: String,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Last change of the data, ns since 1970.
    pub modified_ns: u64,
    /// Size of a region.
    pub region_bytes: u64,
    /// Regions up to the file's end.
    pub regions: u32,
    /// Regions that have objects.
    pub regions_placed: usize,
    /// Replicas that placed regions are to have.
    pub replicas: usize,
    /// Those of them that hold what the file holds.
    pub replicas_fresh: usize,
    /// Size below which the file becomes an ordinary one after its last close, by the managed directory above it; absent
    /// if it is managed whatever its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size_bytes: Option<u64>,
    /// Its fragments on SSDs.
    pub fragments: FragmentsStat,
    /// Servers that hold some of it, in cluster order.
    pub servers: Vec<ServerBytes>,
    /// Its placed regions, ascending; neighbours with one layout are together.
    pub spans: Vec<RegionSpan>,
}

/// What one server holds of a file.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ServerBytes {
    /// Name of the server.
    pub name: String,
    /// Bytes of the file there.
    pub bytes: u64,
    /// Bytes of its fresh replicas there, not counted in `bytes`.
    pub replica_bytes: u64,
    /// Bytes that its placed regions and fresh replicas are promised there: their full size, whatever is written.
    pub promised_bytes: u64,
    /// Bytes that they occupy there now, holes excepted; `None`: the server cannot be asked.
    pub held_bytes: Option<u64>,
}

/// Neighbouring regions with one layout and the same replicas.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RegionSpan {
    /// Number of the first region.
    pub first_region: u32,
    /// How many regions.
    pub regions: u32,
    /// Their layout, as `layouts::parse` reads it.
    pub layout: String,
    /// The servers of their own layout were full or could not be used.
    pub fell_back: bool,
    /// Their replicas.
    pub replicas: Vec<ReplicaLayout>,
}

/// A replica of regions.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ReplicaLayout {
    /// Its layout, as `layouts::parse` reads it.
    pub layout: String,
    /// It holds what the file holds, and reads may use it. Otherwise it occupies nothing until it is
    /// refreshed.
    pub fresh: bool,
}

/// What is known of the managed file at `path`.
///
/// # Errors
///
/// [`StatError::Store`], also of an ordinary file; [`StatError::Path`] if the stub cannot be
/// examined; [`StatError::Layout`] if the broker's answer is no layout.
pub fn stat(store: &Store, path: &Path) -> Result<FileStat> {
    let managed: Managed = store.managed(path, false)?;
    let status = managed.striped.status()?;
    let stub = managed.stub.metadata().on("look at", path)?;
    let regions = store.regions(managed.striped.id())?;
    let geometry = RegionGeometry::new(managed.striped.region_bytes());
    let stub_modified_ns = stub.mtime() as u64 * 1_000_000_000 + stub.mtime_nsec() as u64;
    Ok(FileStat {
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
        min_size_bytes: match paths::real(path) {
            Ok(path) => store.min_size_of(&path)?,
            Err(_) => None,
        },
        fragments: FragmentsStat::of(store, managed.striped.id())?,
        servers: bytes_by_server(store, managed.striped.id(), &regions, geometry, status.size_bytes)?,
        spans: spans(store, &regions)?,
    })
}

fn bytes_by_server(
    store: &Store,
    file: FileId,
    regions: &[RegionInfo],
    geometry: RegionGeometry,
    size_bytes: u64,
) -> Result<Vec<ServerBytes>> {
    let empty = |(server, held_bytes): (&Server, Option<u64>)| {
        let name = server.name.clone();
        ServerBytes { name, bytes: 0, replica_bytes: 0, promised_bytes: 0, held_bytes }
    };
    let occupied = store.held_bytes(file)?;
    let mut held: Vec<ServerBytes> = store.cluster.servers.iter().zip(occupied).map(empty).collect();
    for region in regions {
        let used = geometry.used_bytes(region.region, size_bytes);
        let mut add = |layout: &Layout, is_replica: bool| {
            for (turn, stripe) in layout.stripes().iter().enumerate() {
                let Some(server) = held.get_mut(usize::from(stripe.server.0)) else { continue };
                let sum = if is_replica { &mut server.replica_bytes } else { &mut server.bytes };
                *sum += layout.view().object_bytes(turn, used);
                server.promised_bytes += layout.view().object_bytes(turn, geometry.region_bytes());
            }
        };
        add(&layout_of(region)?, false);
        for replica in region.replicas.iter().filter(|replica| replica.fresh) {
            add(&replica_layout(replica)?, true);
        }
    }
    held.retain(|server| server.promised_bytes > 0);
    Ok(held)
}

fn replica_layout(replica: &ReplicaInfo) -> Result<Layout> {
    Ok(Layout::new(replica.stripes.iter().map(|(server, size)| (ServerId(*server), *size)))?)
}

/// Neighbouring regions with one layout, together.
fn spans(store: &Store, regions: &[RegionInfo]) -> Result<Vec<RegionSpan>> {
    let mut spans: Vec<RegionSpan> = Vec::new();
    let mut last: Option<&RegionInfo> = None;
    for region in regions {
        let continues = last.is_some_and(|last| {
            last.region.0 + 1 == region.region.0
                && (&last.stripes, last.fell_back, &last.replicas)
                    == (&region.stripes, region.fell_back, &region.replicas)
        });
        match spans.last_mut() {
            Some(span) if continues => span.regions += 1,
            _ => spans.push(RegionSpan {
                first_region: region.region.0,
                regions: 1,
                layout: layout_text(&layout_of(region)?, &store.cluster),
                fell_back: region.fell_back,
                replicas: region.replicas.iter().map(|replica| described(store, replica)).collect::<Result<_>>()?,
            }),
        }
        last = Some(region);
    }
    Ok(spans)
}

fn described(store: &Store, replica: &ReplicaInfo) -> Result<ReplicaLayout> {
    Ok(ReplicaLayout { layout: layout_text(&replica_layout(replica)?, &store.cluster), fresh: replica.fresh })
}
