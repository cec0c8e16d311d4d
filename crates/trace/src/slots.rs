//! Slots made in memory: how readers of other formats and workload generators produce what the recorder would have written.

use std::io::Write;
use std::path::Path;
use stripewise_capture::format::{
    CommunicatorKey, Definition, FileKey, HEADER_BYTES, Header, NAME_LIMIT, RawEvent, Slot, continuation,
    definition_slots, slot_to_bytes,
};

/// The slots of one process.
#[derive(Default)]
pub(crate) struct SlotBuffer {
    bytes: Vec<u8>,
    files: u32,
}

impl SlotBuffer {
    fn push(&mut self, slot: &Slot) {
        self.bytes.extend_from_slice(&slot_to_bytes(slot));
    }

    pub(crate) fn define_file(&mut self, path: &[u8]) -> FileKey {
        self.files += 1;
        let key = FileKey(self.files);
        let name = path.get(..NAME_LIMIT).unwrap_or(path);
        self.push(&Definition::File { key, device: 0, inode: 0, name_bytes: name.len() as u16 }.encode());
        for index in 0..definition_slots(name.len()) - 1 {
            self.push(&continuation(name, index));
        }
        key
    }

    pub(crate) fn define_communicator(&mut self, key: CommunicatorKey, hash: u64) {
        self.push(&Definition::Communicator { key, hash, size: 0, rank: 0, name_bytes: 0 }.encode());
    }

    pub(crate) fn push_event(&mut self, event: &RawEvent) {
        let (slot, extension) = event.encode();
        self.push(&slot);
        if let Some(extension) = extension {
            self.push(&extension);
        }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Writes a finished process file; `header` gets the length.
    pub(crate) fn write(&self, path: &Path, header: &Header<'_>) -> std::io::Result<()> {
        let used_bytes = (HEADER_BYTES + self.bytes.len()) as u64;
        let mut file = std::fs::File::create_new(path)?;
        file.write_all(&Header { finished: true, used_bytes, ..*header }.encode())?;
        file.write_all(&self.bytes)
    }
}
