//! Telling managed files by their inodes, whatever their size and text says: the broker's table of them (`stripewise_store::shared::inodes`), mapped at the
//! first need. An open or `stat` of an unmanaged file costs one look into it.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use stripewise_store::shared::inodes::{ClosedStatus, Inodes};
use stripewise_store::state::INODES;

/// Never given back, since another thread may be looking; a broker replaces the table only when it starts or when the table is full.
static TABLE: AtomicPtr<Inodes> = AtomicPtr::new(ptr::null_mut());
/// This process may not look at the table.
static DENIED: AtomicBool = AtomicBool::new(false);

/// Whether the file of this device and inode may be a stub; the broker knows.
#[inline]
pub(crate) fn holds(identity: (u64, u64)) -> bool {
    table().is_some_and(|table| table.holds(identity))
}

/// What the broker says of a managed file that nobody has open, if its stub is the file of this device and inode. The birth time is to be compared.
pub(crate) fn status(identity: (u64, u64)) -> Option<ClosedStatus> {
    table()?.status(identity)
}

/// Whether stubs may stand outside the table, those that other hosts made: the text tells.
pub(crate) fn asks_by_text() -> bool {
    table().is_some_and(Inodes::asks_by_text)
}

/// The least minimum size of any managed directory, in bytes; `None`: none has one.
#[inline]
pub(crate) fn least_min_size() -> Option<u64> {
    table()?.least_min_size()
}

#[inline]
fn table() -> Option<&'static Inodes> {
    // SAFETY: null, or a table that is never given back.
    match unsafe { TABLE.load(Acquire).as_ref() } {
        Some(table) if !table.is_replaced() => Some(table),
        _ => find(),
    }
}

#[cold]
fn find() -> Option<&'static Inodes> {
    if !DENIED.load(Relaxed) {
        match open() {
            Ok(table) => TABLE.store(Box::into_raw(Box::new(table)), Release),
            Err(Errno::ACCESS) => DENIED.store(true, Relaxed),
            // No broker has made one yet.
            Err(_) => {}
        }
    }
    // SAFETY: as above.
    unsafe { TABLE.load(Acquire).as_ref() }
}

fn open() -> Result<Inodes, Errno> {
    let directory = super::state().directory.clone().ok_or(Errno::NOENT)?;
    let path: &Path = &directory.join("run").join(INODES);
    let file = super::Closing(Some(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?));
    Inodes::open(file.borrow(), false)
}
