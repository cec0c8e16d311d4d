//! Open MPI files: which file and communicator each handle means in the trace of this process.

use super::{Family, ask, family, world};
use crate::capture;
use crate::process;
use libc::c_int;
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};
use stripewise_capture::call::Call;
use stripewise_capture::clock::{self, Ticks};
use stripewise_capture::format::{CommunicatorKey, FileKey, NO_OFFSET, RawEvent};
use stripewise_layout::FileOffset;

#[derive(Clone, Copy)]
pub(super) struct Known {
    /// As MPI has it: an address in both families.
    handle: usize,
    file: FileKey,
    communicator: CommunicatorKey,
    /// The process whose trace has the numbers.
    process: u32,
}

static FILES: Mutex<Vec<Known>> = Mutex::new(Vec::new());
static COMMUNICATORS: Mutex<Vec<(u64, CommunicatorKey, u32)>> = Mutex::new(Vec::new());

pub(super) fn find(handle: usize) -> Option<Known> {
    capture::recorder()?;
    let files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    files.iter().find(|known| known.handle == handle && known.process == std::process::id()).copied()
}

pub(super) fn forget(handle: usize) {
    FILES.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| known.handle != handle);
}

/// The file's name without what ROMIO takes for the kind of file system (`ufs:/data/x`).
pub(super) fn plain_name(name: &CStr) -> &CStr {
    const KINDS: [&str; 12] =
        ["ufs", "nfs", "lustre", "gpfs", "panfs", "pvfs2", "testfs", "xfs", "bglockless", "zoidfs", "daos", "ime"];
    let bytes = name.to_bytes();
    let Some(colon) = bytes.iter().position(|byte| *byte == b':') else { return name };
    let is_kind = KINDS.iter().any(|kind| kind.as_bytes() == &bytes[..colon]);
    if is_kind { CStr::from_bytes_with_nul(&name.to_bytes_with_nul()[colon + 1..]).unwrap_or(name) } else { name }
}

/// Gives the file its number in the trace.
pub(super) fn define(name: &CStr) -> Option<FileKey> {
    let recorder = capture::recorder()?;
    if !process::is_begun() {
        process::begin_child();
    }
    let name = plain_name(name);
    let mut buffer: capture::PathBuffer = [0; _];
    let length = capture::name_at(libc::AT_FDCWD, name, &mut buffer);
    let (device, inode) = rustix::fs::stat(name).map_or((0, 0), |status| (status.st_dev, status.st_ino));
    (length > 0).then(|| recorder.define_file(&buffer[..length], device, inode))
}

/// `MPI_File_open` succeeded.
pub(super) fn opened(communicator: usize, name: &CStr, handle: usize, creates: bool, start: Ticks) {
    let (Some(recorder), Some(file)) = (capture::recorder(), define(name)) else { return };
    let communicator = define_communicator(communicator);
    let known = Known { handle, file, communicator, process: std::process::id() };
    forget(handle);
    FILES.lock().unwrap_or_else(PoisonError::into_inner).push(known);
    let event = RawEvent::new(Call::MpiOpen, file, NO_OFFSET, 0, start, clock::now());
    recorder.record(&RawEvent { communicator, created: creates, ..event });
}

/// The communicator's number: told apart by its size and by the world rank of its first process, which all of its
/// processes see alike.
fn define_communicator(communicator: usize) -> CommunicatorKey {
    let none = CommunicatorKey(0);
    let Some(recorder) = capture::recorder() else { return none };
    let (mut size, mut rank, mut leader) = (0 as c_int, 0 as c_int, -1 as c_int);
    if ask!(c"PMPI_Comm_size", communicator, &raw mut size) != 0
        || ask!(c"PMPI_Comm_rank", communicator, &raw mut rank) != 0
    {
        return none;
    }
    // Groups are integers or addresses; either fits.
    let (mut group, mut world_group, first) = (0usize, 0usize, 0 as c_int);
    if ask!(c"PMPI_Comm_group", communicator, &raw mut group) == 0 {
        if ask!(c"PMPI_Comm_group", world(), &raw mut world_group) == 0 {
            ask!(c"PMPI_Group_translate_ranks", group, 1, &raw const first, world_group, &raw mut leader);
            ask!(c"PMPI_Group_free", &raw mut world_group);
        }
        ask!(c"PMPI_Group_free", &raw mut group);
    }
    let hash = (u64::from(size as u32) << 32 | u64::from(leader as u32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let process = std::process::id();
    let mut known = COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, key, _)) = known.iter().find(|(known, _, of)| *known == hash && *of == process) {
        return *key;
    }
    let mut name = [0u8; 256];
    let mut length: c_int = 0;
    // MPI names have fewer than 256 bytes in every family.
    let named = ask!(c"PMPI_Comm_get_name", communicator, name.as_mut_ptr(), &raw mut length) == 0;
    let name = if named { name.get(..length.max(0) as usize).unwrap_or(b"") } else { b"" };
    let key = recorder.define_communicator(name, hash, size as u32, rank as u32);
    known.push((hash, key, process));
    key
}

/// Records a call on an open MPI file.
pub(super) fn record(call: Call, known: Known, offset: FileOffset, bytes: u64, start: Ticks, result: c_int) {
    let Some(recorder) = capture::recorder() else { return };
    let event = RawEvent::new(call, known.file, offset, if result == 0 { bytes } else { 0 }, start, clock::now());
    recorder.record(&RawEvent { communicator: known.communicator, errno: error_class(result), ..event });
}

/// Records a call on a file by name.
pub(super) fn record_of(call: Call, file: FileKey, start: Ticks, result: c_int) {
    capture::event_with(call, file, NO_OFFSET, 0, start, error_class(result));
}

fn error_class(result: c_int) -> u32 {
    let mut class = result;
    if result != 0 {
        ask!(c"PMPI_Error_class", result, &raw mut class);
    }
    class as u32
}

/// Bytes of `count` items.
pub(super) fn bytes(count: i64, datatype: usize) -> u64 {
    let mut size = 0i64;
    if ask!(c"PMPI_Type_size_x", datatype, &raw mut size) != 0 {
        return 0;
    }
    u64::try_from(count.saturating_mul(size)).unwrap_or(0)
}

/// The byte of the file that `offset` units of the view's elementary type mean.
pub(super) fn byte_offset(handle: usize, offset: i64) -> FileOffset {
    let mut place = -1i64;
    if ask!(c"PMPI_File_get_byte_offset", handle, offset, &raw mut place) == 0 && place >= 0 {
        FileOffset(place as u64)
    } else {
        NO_OFFSET
    }
}

/// The byte where the individual file pointer stands.
pub(super) fn position(handle: usize) -> FileOffset {
    let mut offset = 0i64;
    if ask!(c"PMPI_File_get_position", handle, &raw mut offset) == 0 { byte_offset(handle, offset) } else { NO_OFFSET }
}

/// A file handle as Fortran has it, in C.
pub(super) fn from_fortran(handle: c_int) -> usize {
    static NEXT: super::Next = super::Next::new(c"PMPI_File_f2c");
    let address = NEXT.address();
    if address.is_null() || family() != Family::OpenMpi {
        return 0;
    }
    // SAFETY: `MPI_File MPI_File_f2c(MPI_Fint)`, where a file is a pointer.
    unsafe { std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(c_int) -> usize>(address)(handle) }
}

/// As [`from_fortran`], of a communicator.
pub(super) fn communicator_from_fortran(handle: c_int) -> usize {
    static NEXT: super::Next = super::Next::new(c"PMPI_Comm_f2c");
    let address = NEXT.address();
    if address.is_null() {
        return 0;
    }
    // SAFETY: `MPI_Comm MPI_Comm_f2c(MPI_Fint)` of OpenMPI, where a communicator is a pointer.
    unsafe { std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(c_int) -> usize>(address)(handle) }
}

/// As [`from_fortran`], of a datatype.
pub(super) fn datatype_from_fortran(handle: c_int) -> usize {
    static NEXT: super::Next = super::Next::new(c"PMPI_Type_f2c");
    let address = NEXT.address();
    if address.is_null() {
        return 0;
    }
    // SAFETY: `MPI_Datatype MPI_Type_f2c(MPI_Fint)` of OpenMPI, where a datatype is a pointer.
    unsafe { std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(c_int) -> usize>(address)(handle) }
}
