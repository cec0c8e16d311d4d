//! Lists of directories by their offsets, as servers of NFS ask for them: by an open of their own for each part.

use crate::bed::{Mounted, place};
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
use std::collections::BTreeSet;
use std::path::Path;

/// Names from an offset on, each with the offset after it, by another open.
fn listed_from(directory: &Path, offset: u64, wanted: usize) -> Vec<(String, u64)> {
    let opened = rustix::fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    assert_eq!(rustix::fs::seek(&opened, SeekFrom::Start(offset)).unwrap(), offset);
    let mut buffer = Vec::with_capacity(4096);
    let mut listing = RawDir::new(&opened, buffer.spare_capacity_mut());
    let mut found = Vec::new();
    while found.len() < wanted
        && let Some(entry) = listing.next()
    {
        let entry = entry.unwrap();
        found.push((entry.file_name().to_str().unwrap().to_owned(), entry.next_entry_cookie()));
    }
    found
}

#[test]
fn a_list_goes_on_at_an_offset_by_another_open_of_the_directory() {
    let Some(place) = place() else { return };
    let expected: BTreeSet<String> = (0..3000).map(|number| format!("file-{number}")).collect();
    expected.iter().for_each(|name| place.write(&format!("data/{name}"), b""));
    for cache in ["0s", "10s"] {
        let mounted = Mounted::start(&place, &["--cache", cache]);
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            // Of a part that was read, some entries are asked for again, as after an answer that did not fit.
            let part = listed_from(&mounted.path(""), offset, 700);
            let Some((_, next)) = part.last() else { break };
            offset = *next;
            names.extend(part.into_iter().map(|(name, _)| name));
        }
        let all: BTreeSet<_> = names.iter().filter(|name| !name.starts_with('.')).cloned().collect();
        assert_eq!(names.len(), all.len() + 2, "each is listed once");
        assert_eq!(all, expected);
        // As by any open, from the begin and again.
        let whole: Vec<_> = listed_from(&mounted.path(""), 0, usize::MAX).into_iter().map(|(name, _)| name).collect();
        assert_eq!(whole, names);
        mounted.interrupt();
    }
}
