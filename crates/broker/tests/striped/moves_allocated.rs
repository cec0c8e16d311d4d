//! Space that moves set aside for new objects, so that those of neighbouring regions lie together on a disk.

use crate::hooked::{Call, Hook, wrap};
use crate::mounts::{Kind, Mounts};
use crate::moves::{all_done, order, start_moves, wait_for};
use crate::world::{read, uniform, write};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use stripewise_broker::BrokerOptions;
use stripewise_store::server::ServerError;

const REGION: u64 = 1 << 20;
const SHORT: u64 = 300_000;

/// Length and space of every object of server `s1` just after it was made, by region.
struct Made {
    objects: PathBuf,
    found: Mutex<BTreeMap<u32, (u64, u64)>>,
}

impl Hook for Made {
    fn before(&self, _: &str, _: Call<'_>) -> Result<usize, ServerError> {
        Ok(usize::MAX)
    }

    fn after(&self, server: &str, call: Call<'_>) -> Result<(), ServerError> {
        if let ("s1", Call::Create(object)) = (server, call) {
            let made = std::fs::metadata(self.objects.join(object.to_string())).unwrap();
            self.found.lock().unwrap().insert(object.region.0, (made.len(), made.blocks() * 512));
        }
        Ok(())
    }
}

#[test]
fn moves_set_space_aside_for_what_they_copy_and_not_for_holes() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some((world, mounts)) = Mounts::world(2, &[("s0", Kind::Ext4), ("s1", kind)]) else { return };
        {
            ["s0", "s1"].iter().for_each(|name| mounts.give_space(name));
            let made = Arc::new(Made { objects: world.root.join("s1/stripewise-objects"), found: Mutex::default() });
            let hook = Arc::clone(&made);
            let wrap_server = Some(wrap(move |_| Arc::clone(&hook)));
            let _broker = world.broker_with(BrokerOptions { wrap_server, ..BrokerOptions::default() });
            let client = world.client();
            let (_stub, file) = world.create(&client, "file", uniform(REGION, &[(0, 65536)]));
            let mut bytes: Vec<u8> = (0..2 * REGION + SHORT).map(|at| (at % 251) as u8 + 1).collect();
            let (begin, hole) = (REGION as usize + 65536, 2 * REGION as usize - 65536);
            write(&file, 0, &bytes[..begin]);
            write(&file, hole as u64, &bytes[hole..]);
            bytes[begin..hole].fill(0);
            file.sync(false).unwrap();
            all_done(&wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 2, &[(1, 65536)])])));
            let found = made.found.lock().unwrap().clone();
            assert!(found.values().all(|(length, _)| *length == 0), "{kind:?}: {found:?}");
            assert!(found[&0].1 >= REGION, "{kind:?}: a region without holes: {found:?}");
            assert_eq!(found[&1].1, 0, "{kind:?}: a region with a hole: {found:?}");
            assert!((SHORT..REGION).contains(&found[&2].1), "{kind:?}: the last region: {found:?}");
            assert!(read(&file, 0, bytes.len()) == bytes);
            file.close().unwrap();
        }
        drop(mounts);
    }
}
