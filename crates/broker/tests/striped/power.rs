//! Servers that forget what was not synced when their power goes, and tear the rest.
//!
//! The directories hold what the page cache would: every call takes effect there at once. Beside them [`Power`] keeps what is on the platter: of each
//! object the bytes of its last sync, of each server the names of the last sync of names. When the power goes, all calls fail from then on, those of
//! the mapping table too (whose commits are durable by themselves, and whose other changes are kept, lost or torn); [`Power::lose`] then makes the directories what a disk may hold after it:
//! sectors that were not synced are old or new, as dice decide, and so are lengths and names.

use crate::hooked::{Call, Hook, failing_table, register, wrap, wrap_table};
use crate::world::{Dice, World};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use stripewise_broker::BrokerOptions;
use stripewise_store::server::{Handle, ServerError};
use stripewise_store::state::PENDING;

const SECTOR_BYTES: usize = 512;

/// A server's name, and the object's path below its directory of objects.
type Key = (String, String);

pub(crate) struct Power {
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_off: bool,
    /// Calls until the power goes.
    calls_left: u64,
    /// By object, as of its last sync.
    synced: BTreeMap<Key, Vec<u8>>,
    named: BTreeSet<Key>,
    /// The table's changes that were not durable when the power went.
    pending: Vec<u8>,
}

impl Power {
    /// Of all servers of this world, and on for ever.
    pub(crate) fn of(world: &World) -> Arc<Self> {
        let state = Mutex::new(State { calls_left: u64::MAX, ..State::default() });
        let power = Arc::new(Self { root: world.root.clone(), state });
        register(&world.root, Arc::clone(&power) as Arc<dyn Hook>);
        power
    }

    pub(crate) fn broker(self: &Arc<Self>, options: BrokerOptions) -> BrokerOptions {
        let (of_servers, of_table) = (Arc::clone(self), Arc::clone(self));
        let wrap_server = Some(wrap(move |_| Arc::clone(&of_servers)));
        let commit = move || if of_table.call() { Ok(()) } else { Err(failing_table(Errno::IO)) };
        BrokerOptions { wrap_server, wrap_table: Some(wrap_table(commit)), ..options }
    }

    /// Goes at the call with this number from now.
    pub(crate) fn goes_after(&self, calls: u64) {
        self.state.lock().unwrap().calls_left = calls;
    }

    pub(crate) fn is_off(&self) -> bool {
        self.state.lock().unwrap().is_off
    }

    fn call(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        state.calls_left = state.calls_left.saturating_sub(1);
        if state.calls_left == 0 && !state.is_off {
            state.is_off = true;
            state.pending = std::fs::read(self.pending_path()).unwrap_or_default();
        }
        !state.is_off
    }

    /// What stands on the disks now, by dice; to be called when no process uses the cluster. The power is back then.
    pub(crate) fn lose(&self, dice: &mut Dice) {
        let mut state = self.state.lock().unwrap();
        let state = &mut *state;
        if state.is_off {
            let kept = match dice.roll(3) {
                0 => 0,
                1 => dice.roll(state.pending.len() as u64 + 1) as usize,
                _ => state.pending.len(),
            };
            std::fs::write(self.pending_path(), &state.pending[..kept]).unwrap();
        }
        let present = self.present();
        let keys: BTreeSet<Key> = present.keys().chain(&state.named).cloned().collect();
        let (mut synced, mut named) = (BTreeMap::new(), BTreeSet::new());
        for key in keys {
            let path = self.path(&key);
            let (now, was_named) = (present.get(&key), state.named.contains(&key));
            if (now.is_none() || !was_named) && dice.roll(2) == 0 {
                if now.is_some() {
                    std::fs::remove_file(path).unwrap();
                }
                continue;
            }
            let old = state.synced.remove(&key).unwrap_or_default();
            let found = torn(&old, now.map_or(&[], Vec::as_slice), dice);
            let directory = path.parent().unwrap();
            if !directory.exists() {
                std::fs::DirBuilder::new().mode(0o711).create(directory).unwrap();
            }
            std::fs::write(path, &found).unwrap();
            synced.insert(key.clone(), found);
            named.insert(key);
        }
        *state = State { calls_left: u64::MAX, synced, named, ..State::default() };
    }

    fn pending_path(&self) -> PathBuf {
        self.root.join("state/rmt").join(PENDING)
    }

    fn path(&self, (server, object): &Key) -> PathBuf {
        self.root.join(server).join("stripewise-objects").join(object)
    }

    fn present(&self) -> BTreeMap<Key, Vec<u8>> {
        let mut present = BTreeMap::new();
        for number in 0.. {
            let server = format!("s{number}");
            let Ok(files) = std::fs::read_dir(self.root.join(&server).join("stripewise-objects")) else { break };
            for file in files {
                for object in std::fs::read_dir(file.unwrap().path()).unwrap() {
                    let path = object.unwrap().path();
                    let content = std::fs::read(&path).unwrap();
                    present.insert((server.clone(), name_of(&path)), content);
                }
            }
        }
        present
    }

    /// All of the object, or a range of it, which is then no shorter than the range's end.
    fn object_synced(&self, server: &str, handle: Handle<'_>, range: Option<Range<usize>>) {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", handle.descriptor().unwrap().as_raw_fd())).unwrap();
        // Before anything is looked at, or of two that sync at once the earlier might be kept.
        let mut state = self.state.lock().unwrap();
        // Of one that was removed meanwhile nothing stays.
        let Ok(content) = std::fs::read(&path) else { return };
        let key = (server.to_owned(), name_of(&path));
        match range {
            None => {
                state.synced.insert(key, content);
            }
            Some(range) => {
                let synced = state.synced.entry(key).or_default();
                // It may have been truncated since.
                let end = range.end.min(content.len());
                synced.resize(synced.len().max(end), 0);
                synced[range.start.min(end)..end].copy_from_slice(&content[range.start.min(end)..end]);
            }
        }
    }

    fn names_synced(&self, server: &str, file: &str) {
        let directory = self.root.join(server).join("stripewise-objects").join(file);
        let mut state = self.state.lock().unwrap();
        let listed = std::fs::read_dir(directory).into_iter().flatten();
        let names: Vec<Key> = listed.map(|entry| (server.to_owned(), name_of(&entry.unwrap().path()))).collect();
        state.named.retain(|(of, object)| of != server || !object.starts_with(file));
        state.named.extend(names);
    }
}

/// `FILE/REGION.GENERATION`.
fn name_of(path: &Path) -> String {
    let last = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    format!("{}/{}", last(path.parent().unwrap()), last(path))
}

/// What may be left of an object whose bytes were `old` at its last sync and `new` at the end.
fn torn(old: &[u8], new: &[u8], dice: &mut Dice) -> Vec<u8> {
    let how = dice.roll(4);
    let (shorter, longer) = (old.len().min(new.len()), old.len().max(new.len()));
    let length = match how {
        0 => old.len(),
        1 => new.len(),
        _ => [old.len(), new.len(), shorter + dice.roll((longer - shorter) as u64 + 1) as usize][dice.roll(3) as usize],
    };
    let sectors = longer.div_ceil(SECTOR_BYTES);
    let reached = dice.roll(sectors as u64 + 1) as usize;
    let mut found = vec![0; length];
    for (number, sector) in found.chunks_mut(SECTOR_BYTES).enumerate() {
        let is_new = match how {
            0 => false,
            1 => true,
            2 => number < reached,
            _ => dice.roll(2) == 0,
        };
        let from = if is_new { new } else { old };
        let start = number * SECTOR_BYTES;
        // What the chosen one never had is a hole.
        let available = from.get(start..).unwrap_or_default();
        let bytes = available.len().min(sector.len());
        sector[..bytes].copy_from_slice(&available[..bytes]);
    }
    found
}

impl Hook for Power {
    fn before(&self, server: &str, _: Call<'_>) -> Result<usize, ServerError> {
        if self.call() { Ok(usize::MAX) } else { Err(without_power(server)) }
    }

    fn after(&self, server: &str, call: Call<'_>) -> Result<(), ServerError> {
        if self.is_off() {
            return Err(without_power(server));
        }
        match call {
            Call::Sync(handle) => self.object_synced(server, handle, None),
            Call::WriteDurably(handle, offset, bytes) => {
                self.object_synced(server, handle, Some(offset.0 as usize..offset.0 as usize + bytes));
            }
            Call::SyncNames(file) => self.names_synced(server, &file.to_string()),
            _ => {}
        }
        Ok(())
    }
}

fn without_power(server: &str) -> ServerError {
    ServerError::Os { server: server.to_owned(), action: "going on without power", source: Errno::IO }
}

#[test]
fn a_torn_object_holds_old_and_new_sectors_only() {
    let (old, new) = ([1; 3000], [2; 5000]);
    let mut lengths = BTreeSet::new();
    for seed in 0..200 {
        let found = torn(&old, &new, &mut Dice(seed));
        for (number, sector) in found.chunks(SECTOR_BYTES).enumerate() {
            let first = sector[0];
            let end = if first == 1 { old.len() } else { new.len() };
            let kept = end.saturating_sub(number * SECTOR_BYTES).min(sector.len());
            assert!(sector[..kept].iter().all(|byte| *byte == first) && sector[kept..].iter().all(|byte| *byte == 0));
        }
        lengths.insert(found.len());
    }
    assert!(lengths.len() > 10 && lengths.first() == Some(&3000) && lengths.last() == Some(&5000));
}
