//! The mapping table's file, which LMDB would trust.

use crate::Outcome;
use crate::directory;
use stripewise_broker::rmt::{Audit, NameKind, Table};

/// The name that LMDB gives its file.
const FILE: &str = "data.mdb";

pub fn run(bytes: &[u8]) -> Outcome {
    directory::with(&[(FILE, bytes)], |directory| {
        let audit = Audit::of(directory).expect("a file that can be read");
        assert!(audit.damages.iter().all(|damage| !damage.is_empty()));
        // Of records that are all whole, one takes more than a hundredth of its file.
        assert!(audit.records <= bytes.len() as u64);
        let table = Table::salvage(directory).expect("whatever is whole");
        let files = table.all_files().unwrap();
        assert!(files.len() <= bytes.len());
        for (file, _) in files {
            table.placement(file).unwrap();
            table.regions(file).unwrap();
            table.wanted(file).unwrap();
        }
        table.names(NameKind::Managed).unwrap();
        table.names(NameKind::Expected).unwrap();
        table.name_changes().unwrap();
        if audit.is_whole() { Outcome::Read } else { Outcome::Refused }
    })
}
