//! Functions and tables of libdarshan-util 3.4.0 and later, with the layouts of its records.
//!
//! What a record holds depends on the library's version, not on the log's: the library brings all versions to its own. How many
//! counters there are is read from its exported tables of names, which end with a name `..._NUM_INDICES`. The layout of a job's record
//! is told by a function that came with it, the size of a DXT segment by the library's own function for sizes.

use crate::finding;
use std::ffi::{CStr, c_char, c_int, c_void};
use stripewise_layout::text::lossless;

/// `darshan_fd`
pub(crate) type Log = *mut c_void;

/// `struct darshan_mod_info`
#[repr(C)]
pub(crate) struct RawModule {
    pub(crate) name: *const c_char,
    pub(crate) len: c_int,
    pub(crate) ver: c_int,
    pub(crate) idx: c_int,
    pub(crate) partial_flag: c_int,
}

/// `struct darshan_name_record_info`
#[repr(C)]
pub(crate) struct RawName {
    pub(crate) id: u64,
    pub(crate) name: *mut c_char,
}

macro_rules! functions {
    ($(fn $name:ident($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The library.
        pub(crate) struct Library {
            library: libloading::Library,
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn bind(library: libloading::Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the types are those of darshan-logutils.h from 3.4.0 on.
                    $($name: unsafe { *library.get(concat!("darshan_", stringify!($name), "\0").as_bytes())? },)*
                    library,
                })
            }
        }
    };
}

functions! {
    fn log_open(*const c_char) -> Log;
    fn log_get_job(Log, *mut c_void) -> c_int;
    fn log_get_exe(Log, *mut c_char) -> c_int;
    fn log_get_mounts(Log, *mut *mut c_char, *mut c_int) -> c_int;
    fn log_get_modules(Log, *mut *mut RawModule, *mut c_int);
    fn log_get_name_records(Log, *mut *mut RawName, *mut c_int);
    fn log_get_record(Log, c_int, *mut *mut c_void) -> c_int;
}

/// Names of a module's counters.
pub(crate) struct Columns {
    pub(crate) counters: Vec<String>,
    pub(crate) real: Vec<String>,
}

/// No table of names is longer: one without its end is not read for ever.
const MAX_COLUMNS: usize = 4096;

impl Library {
    pub(crate) fn load() -> Result<Self, String> {
        let mut faults = Vec::new();
        for path in finding::candidates() {
            // SAFETY: what a library runs when it is loaded is its own; this process exists to run it.
            let loaded = unsafe { libloading::Library::new(&path) };
            match loaded.and_then(Self::bind) {
                Ok(library) => return Ok(library),
                Err(error) => faults.push(cause(&error)),
            }
        }
        Err(format!(
            "Darshan's library libdarshan-util 3.4 or later is needed ({}): install PyDarshan (`pip install darshan`) or darshan-util, or name the library in {}",
            faults.join("; "),
            finding::LIBRARY_VARIABLE
        ))
    }

    /// Whether the library is 3.4.1 or later, whose job records have nanoseconds and whose table of functions has sizes.
    pub(crate) fn has_runtime(&self) -> bool {
        self.symbol(b"darshan_log_get_job_runtime\0").is_some()
    }

    fn symbol(&self, name: &[u8]) -> Option<*const c_void> {
        // SAFETY: only the address is taken; the library stays loaded as long as `self` is there.
        let address = unsafe { self.library.get::<*const c_void>(name).ok()?.try_as_raw_ptr() };
        address.map(|address| address.cast_const())
    }

    /// The names of `table`, without the one that ends it; `None` where the library has no such table.
    fn names(&self, table: &str) -> Option<Vec<String>> {
        let first = self.symbol(format!("{table}\0").as_bytes())?.cast::<*const c_char>();
        let mut names = Vec::new();
        for index in 0..MAX_COLUMNS {
            // SAFETY: the table ends with a name `..._NUM_INDICES`, and no entry behind it is read.
            let entry = unsafe { *first.add(index) };
            if entry.is_null() {
                return None;
            }
            // SAFETY: entries are C strings in the library's constants.
            let name = lossless(unsafe { CStr::from_ptr(entry) }.to_bytes());
            if name.ends_with("_NUM_INDICES") {
                return Some(names);
            }
            names.push(name);
        }
        None
    }

    pub(crate) fn columns(&self, prefix: &str) -> Option<Columns> {
        let counters = self.names(&format!("{prefix}_counter_names"))?;
        let real = self.names(&format!("{prefix}_f_counter_names")).unwrap_or_default();
        Some(Columns { counters, real })
    }

    /// Bytes of a record of module `index`, as the library counts them; `None` before 3.4.1.
    pub(crate) fn record_bytes(&self, index: c_int, record: *mut c_void) -> Option<usize> {
        /// Place of `log_sizeof_record` in `struct darshan_mod_logutil_funcs`.
        const SIZE_OF_RECORD: usize = 6;
        type SizeOf = unsafe extern "C" fn(*mut c_void) -> c_int;
        if !self.has_runtime() {
            return None;
        }
        let tables = self.symbol(b"mod_logutils\0")?.cast::<*const Option<SizeOf>>();
        // SAFETY: the library has read a record of this module, so it has its table, of at least 8 functions from 3.4.1 on.
        let size_of = unsafe { *(*tables.add(index as usize)).add(SIZE_OF_RECORD) }?;
        // SAFETY: the record is one that the library read.
        usize::try_from(unsafe { size_of(record) }).ok()
    }
}

/// The loader's own words, which name the file.
fn cause(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
