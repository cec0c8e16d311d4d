//! Whether fragments were switched on or off for a file.

use super::{Changes, RmtError, Table, encode, file_key};
use stripewise_layout::FileId;

impl Changes {
    /// `None`: as the cluster says.
    pub fn put_fragments_switch(&mut self, file: FileId, on: Option<bool>) {
        self.0.changes.push((file_key(b'g', file), on.map(|on| encode(&on))));
    }
}

impl Table {
    /// Whether fragments of the file are to go to SSDs; `None`: as the cluster says.
    pub fn fragments_switch(&self, file: FileId) -> Result<Option<bool>, RmtError> {
        self.get(&file_key(b'g', file))
    }
}
