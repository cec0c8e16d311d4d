//! Whether there is space for regions where they are to go, asked before the first is moved.
//!
//! The broker asks again for each region by its own rules (`stripewise_broker::capacity`). This adds the sum: what leaves a server frees space for
//! what comes, in whatever order, since the broker moves regions aside that wait for each other's space.

use crate::store::{Store, StoreError};
use std::collections::HashMap;
use stripewise_layout::figures::shortage;
use stripewise_layout::{FileId, Layout, LayoutError, RegionGeometry, RegionIndex};
use stripewise_store::protocol::{FileInfo, MoveOrder, RegionInfo};
use thiserror::Error;

/// Why moves cannot be ordered.
#[derive(Debug, Error)]
pub enum CapacityError {
    /// The broker cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A region's layout makes no sense.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A server would hold more than it may.
    #[error(
        "server {server} has space for {} more, and the moves need {} there; nothing was moved. Give it more capacity, or free some space with `stripewise \
         release` or `stripewise rm`",
        shortage(*left_bytes, *needed_bytes).0,
        shortage(*left_bytes, *needed_bytes).1
    )]
    Server {
        /// Name of the server.
        server: String,
        /// Bytes that regions may still occupy there.
        left_bytes: u64,
        /// Bytes that the moves would bring, more than those.
        needed_bytes: u64,
    },
    /// A server that regions are to move to does not say what it has free.
    #[error("what server {server} has free is not known, so nothing was moved: {why}")]
    Unknown {
        /// Name of the server.
        server: String,
        /// Its cause.
        why: String,
    },
    /// A server's file system or pool is too full.
    #[error(
        "the store of server {server} has {} free, and the moves need {} there; nothing was moved. Free some space there first",
        shortage(*free_bytes, *needed_bytes).0,
        shortage(*free_bytes, *needed_bytes).1
    )]
    FileSystem {
        /// Name of the server.
        server: String,
        /// Bytes that its file system or pool has free.
        free_bytes: u64,
        /// Bytes that the moves would write, more than those.
        needed_bytes: u64,
    },
}

/// What moves come to, by server.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Change {
    /// Of promises, which are of full regions.
    promised_bytes: i128,
    /// Of what is written there.
    written_bytes: i128,
    /// Of a region that comes, what its promise is more than what is written: so much is to be free when the last one begins.
    most_unwritten_bytes: u64,
    is_target: bool,
}

/// Whether there is space for what `orders` bring.
///
/// # Errors
/// When there is none, with the server that lacks it, or the broker cannot be asked.
pub fn check(
    store: &Store,
    files: &[FileInfo],
    regions: &HashMap<FileId, Vec<RegionInfo>>,
    orders: &[MoveOrder],
) -> Result<(), CapacityError> {
    let mut changes = vec![Change::default(); store.cluster.servers.len()];
    for order in orders {
        let Some(file) = files.iter().find(|file| file.file == order.file) else { continue };
        let geometry = RegionGeometry::new(file.region_bytes);
        let moved = regions.get(&order.file).into_iter().flatten();
        for info in moved.filter(|info| (order.first..=order.last).contains(&info.region)) {
            add(&mut changes, geometry, file.size_bytes, info.region, &super::layout_of(info)?, &order.layout);
        }
    }
    let mut file_systems: HashMap<u64, (i128, u64)> = HashMap::new();
    let servers = store.cluster.servers.iter().zip(store.usage()?);
    for ((id, (server, usage)), change) in store.cluster.ids().zip(servers).zip(&changes) {
        if let Some(capacity) = usage.room_bytes
            && change.promised_bytes > 0
            && i128::from(usage.promised_bytes) + change.promised_bytes > i128::from(capacity)
        {
            let left = capacity.saturating_sub(usage.promised_bytes);
            return Err(CapacityError::Server {
                server: server.name.clone(),
                left_bytes: left,
                needed_bytes: change.promised_bytes as u64,
            });
        }
        let standing = match usage.standing {
            Ok(standing) => standing,
            // What only leaves needs no space.
            Err(_) if !change.is_target => continue,
            Err(why) => return Err(CapacityError::Unknown { server: server.name.clone(), why }),
        };
        let sum = file_systems.entry(standing.file_system.unwrap_or(u64::MAX - u64::from(id.0))).or_default();
        sum.0 += change.written_bytes;
        sum.1 = sum.1.max(change.most_unwritten_bytes);
        let needed = sum.0 + i128::from(sum.1);
        let free = standing.free_bytes.saturating_sub(store.cluster.kept_free_bytes(id));
        if sum.0 > 0 && needed > i128::from(free) {
            return Err(CapacityError::FileSystem {
                server: server.name.clone(),
                free_bytes: free,
                needed_bytes: needed as u64,
            });
        }
    }
    Ok(())
}

fn add(
    changes: &mut [Change],
    geometry: RegionGeometry,
    size_bytes: u64,
    region: RegionIndex,
    from: &Layout,
    to: &Layout,
) {
    let full_bytes = geometry.region_bytes();
    let used_bytes = geometry.used_bytes(region, size_bytes);
    for (layout, sign) in [(from, -1), (to, 1)] {
        for (turn, stripe) in layout.stripes().iter().enumerate() {
            let Some(change) = changes.get_mut(usize::from(stripe.server.0)) else { continue };
            let promised = layout.view().object_bytes(turn, full_bytes);
            let written = layout.view().object_bytes(turn, used_bytes);
            change.promised_bytes += sign * i128::from(promised);
            change.written_bytes += sign * i128::from(written);
            if sign > 0 {
                change.is_target = true;
                change.most_unwritten_bytes = change.most_unwritten_bytes.max(promised - written);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::ServerId;

    #[test]
    fn moves_take_and_give() {
        let layout = |pairs: &[(u16, u32)]| Layout::new(pairs.iter().map(|(id, size)| (ServerId(*id), *size))).unwrap();
        let mut changes = vec![Change::default(); 3];
        let geometry = RegionGeometry::new(8192);
        // A full region, and one of which half is written.
        for region in [0, 1] {
            let (from, to) = (layout(&[(0, 4096), (1, 4096)]), layout(&[(1, 2048), (2, 2048)]));
            add(&mut changes, geometry, 12288, RegionIndex(region), &from, &to);
        }
        let change = |promised_bytes, written_bytes, most_unwritten_bytes, is_target| Change {
            promised_bytes,
            written_bytes,
            most_unwritten_bytes,
            is_target,
        };
        assert_eq!(
            changes,
            [change(-8192, -8192, 0, false), change(0, 2048, 2048, true), change(8192, 6144, 2048, true)]
        );
    }
}
