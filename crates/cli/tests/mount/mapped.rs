//! Shared mappings of managed files.

use crate::bed::{Mounted, place};
use crate::driver::Driver;
use crate::support::Place;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::ffi::c_void;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::ptr;
use std::time::{Duration, Instant};

const LENGTH: usize = 3 * 4096;
const PATIENCE: Duration = Duration::from_secs(60);

/// A shared mapping of the first pages of a file. It is unmapped when this is dropped.
struct Mapping(*mut c_void);

impl Mapping {
    fn make(file: &File) -> rustix::io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, so nothing is mapped over.
        unsafe { mmap(ptr::null_mut(), LENGTH, access, MapFlags::SHARED, file, 0) }.map(Self)
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= LENGTH);
        // SAFETY: the range is mapped and writable, and no reference to it exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast::<u8>().add(offset), bytes.len()) };
    }

    fn read(&self, offset: usize) -> [u8; 3] {
        assert!(offset + 3 <= LENGTH);
        // SAFETY: the range is mapped; others change it, hence volatile.
        unsafe { ptr::read_volatile(self.0.cast::<u8>().add(offset).cast::<[u8; 3]>()) }
    }

    fn sync(&self) {
        // SAFETY: the range is mapped.
        unsafe { msync(self.0, LENGTH, MsyncFlags::SYNC) }.unwrap();
    }

    fn wait_for(&self, offset: usize, bytes: &[u8; 3]) {
        let begun = Instant::now();
        while self.read(offset) != *bytes {
            assert!(begun.elapsed() < PATIENCE, "{:?} at {offset}", self.read(offset));
            std::thread::yield_now();
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by this, and nobody has a reference to it.
        unsafe { munmap(self.0, LENGTH) }.unwrap();
    }
}

fn of_cluster(place: &Place) -> Vec<u8> {
    place.command(&["cat", "data/file"]).output().unwrap().stdout
}

fn mounted_file() -> Option<(Place, Mounted, File)> {
    let place = place()?;
    place.write("source", &[b'.'; LENGTH]);
    place.done(&["cp", "source", "data/file"]);
    let mounted = Mounted::start(&place, &[]);
    let file = File::options().read(true).write(true).open(mounted.path("file")).unwrap();
    Some((place, mounted, file))
}

#[test]
fn what_is_written_by_a_shared_mapping_reaches_others_at_msync_munmap_and_close() {
    let Some((place, mounted, file)) = mounted_file() else { return };
    let mapping = match Mapping::make(&file) {
        Err(errno) if !Mounted::kernel_is((6, 6)) => {
            // No other errno, and nothing is mapped that would not be coherent.
            return assert_eq!(errno, rustix::io::Errno::NODEV);
        }
        mapping => mapping.unwrap(),
    };
    let mut expected = vec![b'.'; LENGTH];
    let mut wrote = |offset: usize, bytes: &[u8]| {
        mapping.write(offset, bytes);
        expected[offset..offset + bytes.len()].copy_from_slice(bytes);
        expected.clone()
    };
    let synced = wrote(10, b"synced");
    mapping.sync();
    assert!(of_cluster(&place) == synced, "at msync");
    // A close of any descriptor of the file, while the mapping stays.
    let closed = wrote(4096, b"closed");
    drop(file);
    assert!(of_cluster(&place) == closed, "at close");
    let unmapped = wrote(2 * 4096 - 3, b"unmapped");
    drop(mapping);
    assert!(of_cluster(&place) == unmapped, "at munmap");
    mounted.interrupt();
}

#[test]
fn what_others_write_reaches_mapped_pages_and_what_they_cut_off_is_not_seen_again() {
    let Some((place, mounted, file)) = mounted_file() else { return };
    if !Mounted::kernel_is((6, 6)) {
        return eprintln!("SKIPPED: shared mappings take Linux 6.6");
    }
    let mapping = Mapping::make(&file).unwrap();
    assert_eq!(mapping.read(4096), *b"...");
    let mut driver = Driver::start(&place, &[]);
    assert_eq!(driver.ask("globals().update(f=os.open('data/file', os.O_RDWR))"), "None");
    assert_eq!(driver.ask("os.pwrite(f, b'XYZ', 4096)"), "3");
    mapping.wait_for(4096, b"XYZ");
    // Of a page that others cut within, the rest becomes zeros; what grows again is zeros too.
    assert_eq!(driver.ask("os.ftruncate(f, 4097)"), "None");
    mapping.wait_for(4096, b"X\0\0");
    assert_eq!(driver.ask("os.ftruncate(f, 12288)"), "None");
    assert_eq!(file.metadata().unwrap().len(), LENGTH as u64);
    mapping.wait_for(2 * 4096, b"\0\0\0");
    assert_eq!(driver.ask("os.pwrite(f, b'end', 8192)"), "3");
    mapping.wait_for(2 * 4096, b"end");
    drop((mapping, file));
    assert!(driver.end().status.success());
    mounted.interrupt();
}

#[test]
fn what_others_write_and_close_at_once_reaches_mapped_pages() {
    let Some((place, mounted, file)) = mounted_file() else { return };
    if !Mounted::kernel_is((6, 6)) {
        return eprintln!("SKIPPED: shared mappings take Linux 6.6");
    }
    let mapping = Mapping::make(&file).unwrap();
    let mut driver = Driver::start(&place, &[]);
    for number in 100..120 {
        mapping.read(4096);
        // The pages are believed by now, as the last change is ticks ago.
        std::thread::sleep(Duration::from_millis(40));
        mapping.read(4096);
        std::thread::sleep(Duration::from_millis(40));
        let step =
            format!("(lambda f: (os.pwrite(f, b'{number}', 4096), os.close(f)))(os.open('data/file', os.O_RDWR))");
        assert_eq!(driver.ask(&step), "(3, None)");
        mapping.wait_for(4096, number.to_string().as_bytes().try_into().unwrap());
    }
    drop((mapping, file));
    assert!(driver.end().status.success());
    mounted.interrupt();
}

#[test]
fn what_others_cut_off_is_not_brought_back_by_pages_that_were_stored_to() {
    let Some((place, mounted, file)) = mounted_file() else { return };
    if !Mounted::kernel_is((6, 6)) {
        return eprintln!("SKIPPED: shared mappings take Linux 6.6");
    }
    let mut driver = Driver::start(&place, &[]);
    for (text, length) in [("", 0), ("new", 3)] {
        file.write_all_at(&[b'.'; LENGTH], 0).unwrap();
        let file = File::options().read(true).write(true).open(mounted.path("file")).unwrap();
        let mapping = Mapping::make(&file).unwrap();
        mapping.write(2 * 4096 + 5, b"stored");
        let write = format!(
            "(lambda f: (os.write(f, b'{text}'), os.close(f)))(os.open('data/file', os.O_WRONLY | os.O_TRUNC))"
        );
        assert_eq!(driver.ask(&write), format!("({length}, None)"));
        drop((mapping, file));
        assert_eq!(of_cluster(&place), text.as_bytes());
        assert_eq!(mounted.path("file").metadata().unwrap().len(), length);
    }
    // What the mount itself has extended is stored to.
    file.set_len(LENGTH as u64).unwrap();
    let mapping = Mapping::make(&file).unwrap();
    mapping.write(LENGTH - 6, b"stored");
    drop(mapping);
    let seen = of_cluster(&place);
    assert!(seen.len() == LENGTH && seen.starts_with(b"new\0") && seen.ends_with(b"\0stored"));
    drop(file);
    assert!(driver.end().status.success());
    mounted.interrupt();
}

/// A mapped ordinary file that the kernel does not read itself.
fn mapped_ordinary() -> Option<(Place, Mounted, File, Mapping)> {
    let place = place()?;
    if !Mounted::kernel_is((6, 6)) {
        eprintln!("SKIPPED: shared mappings take Linux 6.6");
        return None;
    }
    place.write("data/ordinary", &[b'.'; LENGTH]);
    std::fs::set_permissions(place.path("data/ordinary"), Permissions::from_mode(0o2644)).unwrap();
    let mounted = Mounted::start(&place, &[]);
    let file = File::options().read(true).write(true).open(mounted.path("ordinary")).unwrap();
    let mapping = Mapping::make(&file).unwrap();
    Some((place, mounted, file, mapping))
}

#[test]
fn what_is_cut_off_beneath_a_mount_is_not_brought_back_to_ordinary_files_that_the_kernel_does_not_read_itself() {
    let Some((place, mounted, file, mapping)) = mapped_ordinary() else { return };
    mapping.write(2 * 4096, b"stored");
    File::options().write(true).open(place.path("data/ordinary")).unwrap().set_len(5).unwrap();
    drop((mapping, file));
    assert_eq!(place.read("data/ordinary"), b".....");
    mounted.interrupt();
}

#[test]
fn what_others_write_reaches_mapped_pages_of_ordinary_files_that_the_kernel_does_not_read_itself() {
    let Some((place, mounted, file, mapping)) = mapped_ordinary() else { return };
    let other = File::options().write(true).open(place.path("data/ordinary")).unwrap();
    for (offset, bytes) in [(4096, b"XYZ"), (10, b"abc"), (4096, b"zyx")] {
        mapping.read(offset);
        other.write_all_at(bytes, offset as u64).unwrap();
        mapping.wait_for(offset, bytes);
    }
    drop((mapping, file));
    mounted.interrupt();
}
