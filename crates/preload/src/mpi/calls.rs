//! The MPI-IO calls themselves, in one table: name, large-count twin, Fortran twin, and where offset, count and
//! datatype stand.

use super::{Family, Next, family, files, hints, initialised, missing, text};
use crate::capture;
use crate::process;
use std::ffi::{CStr, c_int};
use stripewise_capture::call::Call;
use stripewise_capture::clock;
use stripewise_capture::format::NO_OFFSET;
use stripewise_layout::FileOffset;

type Arguments = [usize; 6];

/// Where a data call takes place, and with that what its arguments are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// (file, offset, buffer, count, datatype, …)
    Explicit,
    /// (file, buffer, count, datatype, …)
    Individual,
    /// As `Individual`, at the pointer that all processes share.
    Shared,
}

/// Forwards a call.
fn forward(next: &'static Next, a: Arguments) -> c_int {
    match next.get() {
        // SAFETY: the arguments are the program's own.
        Some(real) => unsafe { real(a[0], a[1], a[2], a[3], a[4], a[5]) },
        None => missing(next.name),
    }
}

/// A read or write: recorded with what it asks for.
fn data(call: Call, place: Place, large: bool, next: &'static Next, a: Arguments) -> c_int {
    let Some(known) = (process::is_active()).then(|| files::find(a[0])).flatten() else { return forward(next, a) };
    let first = if place == Place::Explicit { 1 } else { 0 };
    let count = if large { a[2 + first] as i64 } else { i64::from(a[2 + first] as c_int) };
    let bytes = files::bytes(count, a[3 + first]);
    let offset = match place {
        Place::Explicit => files::byte_offset(a[0], a[1] as i64),
        Place::Individual => files::position(a[0]),
        Place::Shared => NO_OFFSET,
    };
    let start = clock::now();
    let result = forward(next, a);
    files::record(call, known, offset, bytes, start, result);
    result
}

/// A call on an open file that moves no data.
fn other(call: Call, offset: FileOffset, next: &'static Next, a: Arguments) -> c_int {
    let Some(known) = (process::is_active()).then(|| files::find(a[0])).flatten() else { return forward(next, a) };
    let start = clock::now();
    let result = forward(next, a);
    files::record(call, known, offset, 0, start, result);
    result
}

fn forward_fortran(next: &'static Next, a: [usize; 7]) {
    match next.get_fortran() {
        // SAFETY: the arguments are the program's own.
        Some(real) => unsafe { real(a[0], a[1], a[2], a[3], a[4], a[5], a[6]) },
        None => {
            missing(next.name);
        }
    }
}

/// # Safety
/// The address of an integer of Fortran's.
unsafe fn integer(address: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *(address as *const c_int) }
}

/// # Safety
/// The address of an `MPI_OFFSET_KIND` integer.
unsafe fn long(address: usize) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { *(address as *const i64) }
}

/// Fortran's error argument: the last one of a call of `count` arguments.
fn error_of(a: [usize; 7], count: usize) -> c_int {
    // SAFETY: Fortran passes the address of an integer there.
    unsafe { integer(a[count - 1]) }
}

/// # Safety
/// The arguments are those of the Fortran call: addresses.
unsafe fn data_from_fortran(call: Call, place: Place, arguments: usize, next: &'static Next, a: [usize; 7]) {
    if !process::is_active() || capture::recorder().is_none() || family() != Family::OpenMpi {
        return forward_fortran(next, a);
    }
    // SAFETY: the caller's promise.
    let handle = files::from_fortran(unsafe { integer(a[0]) });
    let Some(known) = files::find(handle) else { return forward_fortran(next, a) };
    let first = if place == Place::Explicit { 1 } else { 0 };
    // SAFETY: as above.
    let (count, datatype) = unsafe { (integer(a[2 + first]), files::datatype_from_fortran(integer(a[3 + first]))) };
    let bytes = files::bytes(i64::from(count), datatype);
    let offset = match place {
        // SAFETY: as above.
        Place::Explicit => files::byte_offset(handle, unsafe { long(a[1]) }),
        Place::Individual => files::position(handle),
        Place::Shared => NO_OFFSET,
    };
    let start = clock::now();
    forward_fortran(next, a);
    files::record(call, known, offset, bytes, start, error_of(a, arguments));
}

macro_rules! next {
    ($name:ident) => {{
        static NEXT: Next =
            Next::new(match CStr::from_bytes_with_nul(concat!("P", stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a symbol has no zero byte"),
            });
        &NEXT
    }};
    (fortran $name:ident) => {{
        static NEXT: Next =
            Next::new(match CStr::from_bytes_with_nul(concat!("p", stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a symbol has no zero byte"),
            });
        &NEXT
    }};
}

/// `name large-twin fortran-twin(arguments) call place`: one line for each read and write.
macro_rules! data_calls {
    ($($name:ident $large:ident $fortran:ident($arguments:literal) $call:ident $place:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_int {
            data(Call::$call, Place::$place, false, next!($name), [a, b, c, d, e, f])
        }

        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $large(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_int {
            data(Call::$call, Place::$place, true, next!($large), [a, b, c, d, e, f])
        }

        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $fortran(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize) {
            // SAFETY: Fortran passes addresses.
            unsafe { data_from_fortran(Call::$call, Place::$place, $arguments, next!(fortran $fortran), [a, b, c, d, e, f, g]) }
        }
    )*};
}

data_calls! {
    MPI_File_read MPI_File_read_c mpi_file_read_(6) MpiRead Individual;
    MPI_File_read_all MPI_File_read_all_c mpi_file_read_all_(6) MpiReadAll Individual;
    MPI_File_read_at MPI_File_read_at_c mpi_file_read_at_(7) MpiReadAt Explicit;
    MPI_File_read_at_all MPI_File_read_at_all_c mpi_file_read_at_all_(7) MpiReadAtAll Explicit;
    MPI_File_read_shared MPI_File_read_shared_c mpi_file_read_shared_(6) MpiReadShared Shared;
    MPI_File_read_ordered MPI_File_read_ordered_c mpi_file_read_ordered_(6) MpiReadOrdered Shared;
    MPI_File_read_all_begin MPI_File_read_all_begin_c mpi_file_read_all_begin_(5) MpiReadAllBegin Individual;
    MPI_File_read_at_all_begin MPI_File_read_at_all_begin_c mpi_file_read_at_all_begin_(6) MpiReadAtAllBegin Explicit;
    MPI_File_read_ordered_begin MPI_File_read_ordered_begin_c mpi_file_read_ordered_begin_(5) MpiReadOrderedBegin Shared;
    MPI_File_iread MPI_File_iread_c mpi_file_iread_(6) MpiIread Individual;
    MPI_File_iread_all MPI_File_iread_all_c mpi_file_iread_all_(6) MpiIreadAll Individual;
    MPI_File_iread_at MPI_File_iread_at_c mpi_file_iread_at_(7) MpiIreadAt Explicit;
    MPI_File_iread_at_all MPI_File_iread_at_all_c mpi_file_iread_at_all_(7) MpiIreadAtAll Explicit;
    MPI_File_iread_shared MPI_File_iread_shared_c mpi_file_iread_shared_(6) MpiIreadShared Shared;
    MPI_File_write MPI_File_write_c mpi_file_write_(6) MpiWrite Individual;
    MPI_File_write_all MPI_File_write_all_c mpi_file_write_all_(6) MpiWriteAll Individual;
    MPI_File_write_at MPI_File_write_at_c mpi_file_write_at_(7) MpiWriteAt Explicit;
    MPI_File_write_at_all MPI_File_write_at_all_c mpi_file_write_at_all_(7) MpiWriteAtAll Explicit;
    MPI_File_write_shared MPI_File_write_shared_c mpi_file_write_shared_(6) MpiWriteShared Shared;
    MPI_File_write_ordered MPI_File_write_ordered_c mpi_file_write_ordered_(6) MpiWriteOrdered Shared;
    MPI_File_write_all_begin MPI_File_write_all_begin_c mpi_file_write_all_begin_(5) MpiWriteAllBegin Individual;
    MPI_File_write_at_all_begin MPI_File_write_at_all_begin_c mpi_file_write_at_all_begin_(6) MpiWriteAtAllBegin Explicit;
    MPI_File_write_ordered_begin MPI_File_write_ordered_begin_c mpi_file_write_ordered_begin_(5) MpiWriteOrderedBegin Shared;
    MPI_File_iwrite MPI_File_iwrite_c mpi_file_iwrite_(6) MpiIwrite Individual;
    MPI_File_iwrite_all MPI_File_iwrite_all_c mpi_file_iwrite_all_(6) MpiIwriteAll Individual;
    MPI_File_iwrite_at MPI_File_iwrite_at_c mpi_file_iwrite_at_(7) MpiIwriteAt Explicit;
    MPI_File_iwrite_at_all MPI_File_iwrite_at_all_c mpi_file_iwrite_at_all_(7) MpiIwriteAtAll Explicit;
    MPI_File_iwrite_shared MPI_File_iwrite_shared_c mpi_file_iwrite_shared_(6) MpiIwriteShared Shared;
}

/// Calls with an open file and no data: the expression is the offset of the record, of the second argument.
macro_rules! other_calls {
    ($($name:ident $call:ident |$second:ident| $offset:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(a: usize, $second: usize, c: usize, d: usize, e: usize, f: usize) -> c_int {
            let offset = $offset;
            other(Call::$call, offset, next!($name), [a, $second, c, d, e, f])
        }
    )*};
}

other_calls! {
    MPI_File_set_size MpiSetSize |size| FileOffset(size as u64);
    MPI_File_preallocate MpiPreallocate |size| FileOffset(size as u64);
    MPI_File_sync MpiSync |_nothing| NO_OFFSET;
    MPI_File_set_view MpiSetView |displacement| FileOffset(displacement as u64);
    MPI_File_seek MpiSeek |_offset| NO_OFFSET;
    MPI_File_seek_shared MpiSeekShared |_offset| NO_OFFSET;
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn MPI_Init(a: usize, b: usize) -> c_int {
    let result = forward(next!(MPI_Init), [a, b, 0, 0, 0, 0]);
    if result == 0 && process::is_active() {
        initialised();
    }
    result
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn MPI_Init_thread(a: usize, b: usize, c: usize, d: usize) -> c_int {
    let result = forward(next!(MPI_Init_thread), [a, b, c, d, 0, 0]);
    if result == 0 && process::is_active() {
        initialised();
    }
    result
}

/// (communicator, name, mode, info, where the file goes)
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn MPI_File_open(
    comm: usize,
    name: usize,
    mode: usize,
    info: usize,
    file: usize,
) -> c_int {
    let next = next!(MPI_File_open);
    // SAFETY: the program's string.
    let text = unsafe { text(name) };
    let Some(text) = text.filter(|_| process::is_active()) else {
        return forward(next, [comm, name, mode, info, file, 0]);
    };
    let start = capture::now();
    let extended = hints::extended(text, mode, info);
    let result = forward(next, [comm, name, mode, extended.unwrap_or(info), file, 0]);
    if let Some(extended) = extended {
        hints::free(extended);
    }
    if result == 0 && file != 0 {
        // SAFETY: MPI has just put the handle there; an address in both families.
        files::opened(comm, text, unsafe { *(file as *const usize) }, is_created(mode), start);
    }
    result
}

/// An open that must create its file (`MPI_MODE_EXCL` is 64 in both families) did; of others it is not known.
fn is_created(mode: usize) -> bool {
    mode & (hints::MODE_CREATE | 64) == hints::MODE_CREATE | 64
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn MPI_File_close(file: usize) -> c_int {
    let next = next!(MPI_File_close);
    // SAFETY: the program's handle, or null, which MPI refuses.
    let handle = if file == 0 { 0 } else { unsafe { *(file as *const usize) } };
    let known = process::is_active().then(|| files::find(handle)).flatten();
    let start = capture::now();
    let result = forward(next, [file, 0, 0, 0, 0, 0]);
    if let Some(known) = known {
        files::record(Call::MpiClose, known, NO_OFFSET, 0, start, result);
        files::forget(handle);
    }
    result
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn MPI_File_delete(name: usize, info: usize) -> c_int {
    let next = next!(MPI_File_delete);
    // SAFETY: the program's string.
    let key = unsafe { text(name) }.filter(|_| process::is_active()).and_then(files::define);
    let start = capture::now();
    let result = forward(next, [name, info, 0, 0, 0, 0]);
    if let Some(key) = key {
        files::record_of(Call::MpiDelete, key, start, result);
    }
    result
}

/// (communicator, name, mode, info, file, error, length of the name)
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mpi_file_open_(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize) {
    let next = next!(fortran mpi_file_open_);
    let start = capture::now();
    forward_fortran(next, [a, b, c, d, e, f, g]);
    if !process::is_active() || capture::recorder().is_none() || family() != Family::OpenMpi {
        return;
    }
    // SAFETY: Fortran's arguments are addresses; the name has the hidden length, which gfortran passes as a size at the end.
    unsafe {
        if integer(f) != 0 {
            return;
        }
        let name = std::slice::from_raw_parts(b as *const u8, g & 0xffff);
        let length = name.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
        if let Ok(name) = std::ffi::CString::new(&name[..length]) {
            let communicator = files::communicator_from_fortran(integer(a));
            files::opened(communicator, &name, files::from_fortran(integer(e)), is_created(integer(c) as usize), start);
        }
    }
}

/// (file, error)
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mpi_file_close_(a: usize, b: usize) {
    let next = next!(fortran mpi_file_close_);
    let active = process::is_active() && capture::recorder().is_some() && family() == Family::OpenMpi;
    // SAFETY: Fortran's arguments are addresses.
    let handle = if active { files::from_fortran(unsafe { integer(a) }) } else { 0 };
    let known = if active { files::find(handle) } else { None };
    let start = capture::now();
    forward_fortran(next, [a, b, 0, 0, 0, 0, 0]);
    if let Some(known) = known {
        // SAFETY: as above.
        files::record(Call::MpiClose, known, NO_OFFSET, 0, start, unsafe { integer(b) });
        files::forget(handle);
    }
}

/// (error)
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mpi_init_(a: usize) {
    forward_fortran(next!(fortran mpi_init_), [a, 0, 0, 0, 0, 0, 0]);
    if process::is_active() && family() == Family::OpenMpi {
        initialised();
    }
}
