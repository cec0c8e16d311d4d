//! The files that are loaded. Who asks for one that is not has it loaded first, once however many ask.

use crate::guard;
use crate::managed::Managed;
use crate::rmt::FileState;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, TryLockError, Weak};
use stripewise_layout::FileId;
use stripewise_store::protocol::Refusal;

/// Files that stay loaded without users.
const KEPT: usize = 2048;

/// Loads a file that is asked for. Registered at the start, since all that a file is loaded with asks for files itself.
pub(crate) trait Load: Send + Sync {
    fn load(&self, file: FileId) -> Result<Managed, Refusal>;
}

/// A file that is being loaded or is loaded.
#[derive(Default)]
struct Entry {
    loaded: Mutex<Option<Arc<Managed>>>,
}

impl Entry {
    fn loaded_now(&self) -> Option<Arc<Managed>> {
        match self.loaded.try_lock() {
            Ok(loaded) => loaded.clone(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().clone(),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[derive(Default)]
pub(crate) struct Files {
    entries: Mutex<HashMap<FileId, Arc<Entry>>>,
    loader: OnceLock<Weak<dyn Load>>,
}

impl Files {
    /// To be called once, before the first file is asked for.
    pub(crate) fn load_by(&self, loader: Weak<dyn Load>) {
        let _ = self.loader.set(loader);
    }

    fn load(&self, file: FileId) -> Result<Managed, Refusal> {
        match self.loader.get().and_then(Weak::upgrade) {
            Some(loader) => loader.load(file),
            None => Err(Refusal::Table { what: format!("file {file} is asked for while the broker ends") }),
        }
    }

    /// Files that are loaded or being loaded.
    pub(crate) fn ids(&self) -> Vec<FileId> {
        guard(&self.entries).keys().copied().collect()
    }

    /// The file was freed.
    pub(crate) fn remove(&self, file: FileId) {
        guard(&self.entries).remove(&file);
    }

    /// The file, loaded.
    pub(crate) fn managed(&self, file: FileId) -> Result<Arc<Managed>, Refusal> {
        let entry = Arc::clone(guard(&self.entries).entry(file).or_default());
        let mut loaded = guard(&entry.loaded);
        if let Some(managed) = &*loaded {
            return Ok(Arc::clone(managed));
        }
        match self.load(file) {
            Ok(managed) => Ok(Arc::clone(loaded.insert(Arc::new(managed)))),
            Err(refusal) => {
                drop(loaded);
                self.forget(file, &entry);
                Err(refusal)
            }
        }
    }

    /// The file if it is loaded.
    pub(crate) fn if_loaded(&self, file: FileId) -> Option<Arc<Managed>> {
        let entry = guard(&self.entries).get(&file).cloned()?;
        let loaded = guard(&entry.loaded);
        loaded.clone()
    }

    /// The file if it is loaded and nobody is at loading it, which may take as long as a server does.
    pub(crate) fn if_loaded_now(&self, file: FileId) -> Option<Arc<Managed>> {
        guard(&self.entries).get(&file)?.loaded_now()
    }

    /// All such files.
    pub(crate) fn all_loaded_now(&self) -> Vec<Arc<Managed>> {
        guard(&self.entries).values().filter_map(|entry| entry.loaded_now()).collect()
    }

    /// A file that was just made is loaded.
    pub(crate) fn remember(&self, managed: &Arc<Managed>) {
        let entry = Entry { loaded: Mutex::new(Some(Arc::clone(managed))) };
        guard(&self.entries).insert(managed.file, Arc::new(entry));
    }

    fn forget(&self, file: FileId, entry: &Arc<Entry>) {
        let mut files = guard(&self.entries);
        if files.get(&file).is_some_and(|found| Arc::ptr_eq(found, entry)) {
            files.remove(&file);
        }
    }

    /// Unloads files without users when many are loaded. Only those that no other thread has in hand: counted under the map's lock,
    /// without which no further hand can reach for them. Each is put away before.
    pub(crate) fn unload_some(&self, put_away: impl Fn(&Managed)) {
        let mut files = guard(&self.entries);
        if files.len() <= KEPT {
            return;
        }
        files.retain(|_, entry| {
            let Some(alone) = Arc::get_mut(entry) else { return true };
            let loaded = alone.loaded.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            match loaded {
                Some(managed) => match Arc::get_mut(managed) {
                    Some(managed) => {
                        let inner = managed.inner.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
                        // Hosts that have come back are openers without a stub.
                        let is_used = inner.stub.is_some()
                            || !inner.openers.is_empty()
                            || inner.holder.is_some()
                            || !inner.forgotten.is_empty()
                            || managed.stays_shut.load(Ordering::SeqCst)
                            || managed.fragments.logs().is_some();
                        let stays = is_used || !matches!(inner.record.state, FileState::Live);
                        if !stays {
                            put_away(managed);
                        }
                        stays
                    }
                    None => true,
                },
                None => false,
            }
        });
    }
}
