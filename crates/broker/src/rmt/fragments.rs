//! Whether fragments were switched on or off for a file.

use super::keys::file_key;
use super::records::{FragmentsRecord, encode};
use super::{Changes, RmtError, Table};
use stripewise_layout::FileId;

impl Changes {
    /// `None`: as the cluster says.
    pub fn put_fragments_switch(&mut self, file: FileId, on: Option<bool>) {
        self.set(file_key(b'g', file), on.map(|on| encode(&FragmentsRecord { on })));
    }
}

impl Table {
    /// Whether fragments of the file are to go to SSDs; `None`: as the cluster says.
    pub fn fragments_switch(&self, file: FileId) -> Result<Option<bool>, RmtError> {
        Ok(self.get::<FragmentsRecord>(&file_key(b'g', file))?.map(|record| record.on))
    }
}
