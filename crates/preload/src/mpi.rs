//! MPI-IO: what the program asked MPI for, recorded above the POSIX calls that MPI then makes.
//!
//! One shim serves MPICH, OpenMPI and their kin, although their handles differ (integers here, pointers there): no
//! argument is looked into, all travel as they came, in registers, and MPI's own functions are asked about them. They
//! are called by their profiling names (`PMPI_…`), found at the first use: in the global scope, or, when Python
//! loaded MPI for itself, among the loaded libraries.
//!
//! A record's offset is in bytes of the file, through the view, by `MPI_File_get_byte_offset`; of calls at the shared
//! pointer it is unknown until they are done, and left out. Its size is what was asked for. Of a nonblocking or split
//! call the record ends where the call returns. Fortran's `mpi_file_…_` are wrapped for OpenMPI, which goes from
//! there to its inside; MPICH's lead to the C functions. The `mpi_f08` entry points of OpenMPI lead past both: there
//! the POSIX records are all there is.

mod calls;
mod files;
mod hints;

use crate::capture;
use crate::process;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// A C function of MPI: at most six arguments, each an integer or a pointer, and a seventh for Fortran's error.
type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> c_int;
type FortranFunction = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize);

/// `MPI_ERR_OTHER` is 15 in MPICH and 16 in OpenMPI; any value but 0 is an error.
const FAILED: c_int = 16;

/// A function behind ours.
struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let found = find(self.name);
        self.address.store(found, Ordering::Relaxed);
        found
    }

    fn get(&self) -> Option<Function> {
        let address = self.address();
        // SAFETY: an MPI function of at most six integer or pointer arguments that answers an int; more registers
        // than it reads do no harm.
        (!address.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Function>(address) })
    }

    fn get_fortran(&self) -> Option<FortranFunction> {
        let address = self.address();
        // SAFETY: as above; Fortran's arguments are addresses.
        (!address.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, FortranFunction>(address) })
    }
}

/// A function behind this library, in any scope.
fn find(name: &CStr) -> *mut c_void {
    find_from(libc::RTLD_NEXT, name)
}

/// A variable of MPI's. A program that names it itself has a copy, which then is the one that everybody uses; it lies
/// before this library.
fn find_variable(name: &CStr) -> *mut c_void {
    find_from(libc::RTLD_DEFAULT, name)
}

fn find_from(scope: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a string.
    let next = unsafe { libc::dlsym(scope, name.as_ptr()) };
    if !next.is_null() {
        return next;
    }
    struct Search<'a> {
        name: &'a CStr,
        found: *mut c_void,
    }
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
        // SAFETY: what `dl_iterate_phdr` hands over.
        let (library, search) = unsafe { ((*info).dlpi_name, &mut *search.cast::<Search<'_>>()) };
        // SAFETY: null or a string.
        if library.is_null() || !unsafe { CStr::from_ptr(library) }.to_bytes().windows(3).any(|part| part == b"mpi") {
            return 0;
        }
        // SAFETY: the library is loaded; the handle is given back.
        unsafe {
            let handle = libc::dlopen(library, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if !handle.is_null() {
                search.found = libc::dlsym(handle, search.name.as_ptr());
                libc::dlclose(handle);
            }
        }
        c_int::from(!search.found.is_null())
    }
    let mut search = Search { name, found: std::ptr::null_mut() };
    // SAFETY: `search` outlives the walk.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

/// Calls an MPI function for ourselves; its error code, or [`FAILED`] if there is none of that name.
macro_rules! ask {
    ($name:literal $(, $argument:expr)*) => {{
        static NEXT: $crate::mpi::Next = $crate::mpi::Next::new($name);
        let mut arguments = [0usize; 6];
        let mut count = 0;
        $(arguments[count] = $argument as usize; count += 1;)*
        let _ = count;
        match NEXT.get() {
            // SAFETY: the arguments are those of the function's C interface.
            Some(next) => unsafe {
                next(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5])
            },
            None => $crate::mpi::FAILED,
        }
    }};
}
use ask;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Handles are integers with fixed values for the predefined ones.
    Mpich = 1,
    /// Handles are addresses of objects.
    OpenMpi = 2,
}

fn family() -> Family {
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    match KNOWN.load(Ordering::Relaxed) {
        1 => Family::Mpich,
        2 => Family::OpenMpi,
        _ => {
            let family = if find_variable(c"ompi_mpi_comm_world").is_null() { Family::Mpich } else { Family::OpenMpi };
            KNOWN.store(family as u8, Ordering::Relaxed);
            family
        }
    }
}

/// `MPI_COMM_WORLD`.
fn world() -> usize {
    match family() {
        Family::Mpich => 0x4400_0000,
        Family::OpenMpi => find_variable(c"ompi_mpi_comm_world") as usize,
    }
}

/// `MPI_INFO_NULL`, to be compared with [`handle`].
fn info_null() -> usize {
    match family() {
        Family::Mpich => 0x1c00_0000,
        Family::OpenMpi => find_variable(c"ompi_mpi_info_null") as usize,
    }
}

/// A handle argument without what an integer handle leaves undefined in its register.
fn handle(argument: usize) -> usize {
    match family() {
        Family::Mpich => argument & 0xffff_ffff,
        Family::OpenMpi => argument,
    }
}

/// After `MPI_Init`: who this process is.
fn initialised() {
    let Some(recorder) = capture::recorder() else { return };
    let (mut rank, mut size) = (0 as c_int, 0 as c_int);
    if ask!(c"PMPI_Comm_rank", world(), &raw mut rank) == 0 && ask!(c"PMPI_Comm_size", world(), &raw mut size) == 0 {
        recorder.set_mpi(rank as u32, size as u32);
    }
}

/// Says once per process that an MPI function is missing.
#[cold]
fn missing(name: &CStr) -> c_int {
    process::say(&[b"the MPI library of this program has no ", name.to_bytes()]);
    FAILED
}

/// The string argument of a call.
///
/// # Safety
/// Null or a string.
unsafe fn text<'a>(argument: usize) -> Option<&'a CStr> {
    let pointer = argument as *const c_char;
    // SAFETY: the caller's promise.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) })
}
