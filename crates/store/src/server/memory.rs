//! A server in this process's memory, without any descriptor: objects are reached by their names.
//!
//! It keeps the seam honest: what works here depends on nothing but [`ObjectStore`]. Every call takes effect at once and is as durable as the process.

use super::calls::perform_in_turn;
use super::{
    Call, Capabilities, FIRST_LINE_OF_DESCRIPTIONS, FreeSpace, Handle, ObjectHandle, ObjectName, ObjectSize,
    ObjectStore, OpenMode, Ownership, ServerError, Standing, Syncing, Transfer,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use stripewise_layout::{Direction, FileId};

/// Capacity unless another is given.
const CAPACITY_BYTES: u64 = 64 << 30;

type Object = Arc<RwLock<Vec<u8>>>;

#[derive(Debug, Default)]
struct Content {
    objects: BTreeMap<ObjectName, Object>,
    descriptions: BTreeMap<FileId, String>,
}

/// Objects in memory. Clones share them, as the broker's and a client's view of one server must.
#[derive(Clone, Debug)]
pub struct MemoryServer {
    name: String,
    capacity_bytes: u64,
    content: Arc<Mutex<Content>>,
}

impl MemoryServer {
    /// An empty server.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), capacity_bytes: CAPACITY_BYTES, content: Arc::default() }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn object(&self, object: ObjectName) -> Result<Object, ServerError> {
        let missing = || ServerError::Missing { server: self.name.clone(), object };
        self.content().objects.get(&object).cloned().ok_or_else(missing)
    }

    fn named(&self, handle: Handle<'_>) -> Result<Object, ServerError> {
        match handle {
            Handle::Named(object) => self.object(object),
            Handle::Descriptor(_) => {
                let what = "its objects have names, and were asked for by a descriptor".to_owned();
                Err(ServerError::Unusable { server: self.name.clone(), what })
            }
        }
    }

    fn transfer(&self, transfer: &mut Transfer<'_>) -> Result<usize, ServerError> {
        let object = self.named(transfer.handle)?;
        let mut at = transfer.offset.0 as usize;
        let mut moved = 0;
        match transfer.memory.direction() {
            Direction::Read => {
                let bytes = object.read().unwrap_or_else(PoisonError::into_inner);
                for buffer in transfer.memory.slices_to_fill() {
                    let held = bytes.get(at..).unwrap_or_default();
                    let count = held.len().min(buffer.len());
                    buffer[..count].copy_from_slice(&held[..count]);
                    (at, moved) = (at + count, moved + count);
                }
            }
            Direction::Write => {
                let mut bytes = object.write().unwrap_or_else(PoisonError::into_inner);
                let end = at + transfer.memory.bytes();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                for buffer in transfer.memory.slices_to_take() {
                    bytes[at..at + buffer.len()].copy_from_slice(buffer);
                    (at, moved) = (at + buffer.len(), moved + buffer.len());
                }
            }
        }
        Ok(moved)
    }
}

impl ObjectStore for MemoryServer {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ownership: false,
            syncing: Syncing::Nothing,
            free_space: FreeSpace::Own,
            ..Capabilities::UNKNOWN
        }
    }

    fn submit(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        for transfer in batch {
            transfer.completion = Some(self.transfer(transfer));
        }
        others();
    }

    fn perform_batch(&self, batch: &mut [Call<'_>], others: &mut dyn FnMut()) {
        perform_in_turn(self, batch, others);
    }

    fn probe(&self) -> Result<(), ServerError> {
        Ok(())
    }

    fn standing(&self) -> Result<Standing, ServerError> {
        Ok(Standing { free_bytes: self.free_bytes()?, total_bytes: self.capacity_bytes, file_system: None })
    }

    fn create_expecting(&self, object: ObjectName, _: Ownership, _: u64) -> Result<(), ServerError> {
        let mut content = self.content();
        if content.objects.contains_key(&object) {
            return Err(ServerError::Exists { server: self.name.clone(), object });
        }
        content.objects.insert(object, Object::default());
        Ok(())
    }

    fn open_as(&self, object: ObjectName, _: OpenMode) -> Result<ObjectHandle, ServerError> {
        self.object(object).map(|_| ObjectHandle::Named(object))
    }

    fn size(&self, object: ObjectName) -> Result<ObjectSize, ServerError> {
        let bytes = self.object(object)?.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        Ok(ObjectSize { end_bytes: bytes, occupied_bytes: bytes })
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), ServerError> {
        let object = self.object(object)?;
        object.write().unwrap_or_else(PoisonError::into_inner).truncate(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(())
    }

    fn sync(&self, handle: Handle<'_>) -> Result<(), ServerError> {
        self.named(handle).map(drop)
    }

    fn sync_names(&self, _: FileId) -> Result<(), ServerError> {
        Ok(())
    }

    fn set_ownership(&self, object: ObjectName, _: Ownership) -> Result<(), ServerError> {
        self.object(object).map(drop)
    }

    fn remove(&self, object: ObjectName) -> Result<(), ServerError> {
        self.content().objects.remove(&object);
        Ok(())
    }

    fn remove_file(&self, file: FileId) -> Result<(), ServerError> {
        let mut content = self.content();
        content.descriptions.remove(&file);
        content.objects.retain(|object, _| object.file != file);
        Ok(())
    }

    fn describe(&self, file: FileId, head: &str, lines: &str) -> Result<u64, ServerError> {
        let mut content = self.content();
        let text = content.descriptions.entry(file).or_insert_with(|| format!("{FIRST_LINE_OF_DESCRIPTIONS}\n{head}"));
        text.push_str(lines);
        Ok(text.len() as u64)
    }

    fn describe_again(&self, file: FileId, text: &str) -> Result<(), ServerError> {
        self.content().descriptions.insert(file, text.to_owned());
        Ok(())
    }

    fn sync_description(&self, _: FileId) -> Result<(), ServerError> {
        Ok(())
    }

    fn descriptions(&self) -> Result<Vec<(FileId, String)>, ServerError> {
        Ok(self.content().descriptions.iter().map(|(file, text)| (*file, text.clone())).collect())
    }

    fn objects(&self) -> Result<Vec<ObjectName>, ServerError> {
        Ok(self.content().objects.keys().copied().collect())
    }

    fn free_bytes(&self) -> Result<u64, ServerError> {
        let held = |object: &Object| object.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        Ok(self.capacity_bytes.saturating_sub(self.content().objects.values().map(held).sum()))
    }
}
