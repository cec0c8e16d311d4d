//! libpvfs2, loaded when it is first needed: its functions and the C types that they take, of a 64-bit host.

use super::OrangeError;
use libc::{c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// `PVFS_object_ref`
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Reference {
    pub(super) handle: u64,
    pub(super) file_system: i32,
    pub(super) padding: i32,
}

/// `PVFS_credential`
#[repr(C)]
pub(super) struct Credential {
    pub(super) user: u32,
    pub(super) group_count: u32,
    pub(super) groups: *mut u32,
    pub(super) issuer: *mut c_char,
    /// Seconds since the epoch.
    pub(super) expires: u64,
    pub(super) signature_bytes: u32,
    pub(super) signature: *mut u8,
    pub(super) certificate_bytes: u32,
    pub(super) certificate: *mut u8,
}

/// `PVFS_sys_attr`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Attributes {
    pub(super) owner: u32,
    pub(super) group: u32,
    pub(super) permissions: u32,
    pub(super) accessed: u64,
    pub(super) modified: u64,
    pub(super) changed: u64,
    pub(super) size: i64,
    pub(super) link_target: *mut c_char,
    pub(super) datafiles: i32,
    pub(super) directory_servers: i32,
    pub(super) directory_servers_most: i32,
    pub(super) directory_split: i32,
    pub(super) mirrors: u32,
    pub(super) distribution: *mut c_char,
    pub(super) distribution_parameters: *mut c_char,
    pub(super) entries: i64,
    pub(super) kind: c_uint,
    pub(super) flags: u64,
    pub(super) mask: u32,
    pub(super) block_bytes: i64,
}

impl Attributes {
    pub(super) const NONE: Self = Self {
        owner: 0,
        group: 0,
        permissions: 0,
        accessed: 0,
        modified: 0,
        changed: 0,
        size: 0,
        link_target: std::ptr::null_mut(),
        datafiles: 0,
        directory_servers: 0,
        directory_servers_most: 0,
        directory_split: 0,
        mirrors: 0,
        distribution: std::ptr::null_mut(),
        distribution_parameters: std::ptr::null_mut(),
        entries: 0,
        kind: 0,
        flags: 0,
        mask: 0,
        block_bytes: 0,
    };
}

/// `PVFS_sys_layout`
#[repr(C)]
pub(super) struct Layout {
    pub(super) algorithm: c_uint,
    pub(super) servers: ServerList,
}

/// `struct PVFS_sys_server_list`
#[repr(C)]
pub(super) struct ServerList {
    pub(super) count: i32,
    pub(super) addresses: *mut i64,
}

/// `PVFS_sysresp_lookup`
#[repr(C)]
pub(super) struct Found {
    pub(super) reference: Reference,
    pub(super) error_path: *mut c_char,
    pub(super) error_path_bytes: c_int,
}

/// `PVFS_sysresp_readdir`
#[repr(C)]
pub(super) struct Entries {
    pub(super) token: u64,
    pub(super) entries: *mut Entry,
    pub(super) count: u32,
    pub(super) version: u64,
}

/// `PVFS_dirent`
#[repr(C)]
pub(super) struct Entry {
    pub(super) name: [c_char; 257],
    pub(super) handle: u64,
}

/// `struct PVFS_mgmt_server_stat`
#[repr(C)]
pub(super) struct ServerStat {
    pub(super) file_system: i32,
    pub(super) bytes_available: i64,
    pub(super) bytes_total: i64,
    pub(super) figures: [u64; 8],
    pub(super) address: *const c_char,
    pub(super) kind: c_int,
}

/// `struct PVFS_sys_mntent`, as far as it is read here; the library makes it.
#[repr(C)]
pub(super) struct Mount {
    config_servers: *mut *mut c_char,
    config_server_count: i32,
    config_server: *mut c_char,
    name: *mut c_char,
    flow: c_uint,
    encoding: c_uint,
    /// Of the file system, once it is added.
    pub(super) file_system: i32,
}

/// `PVFS_Request`
pub(super) type Request = *mut c_void;
/// `PVFS_hint`: none is given.
pub(super) type Hint = *mut c_void;
/// `PVFS_sys_op_id`
pub(super) type OperationId = i64;

/// `PVFS_SYS_LAYOUT_LIST`
pub(super) const LAYOUT_LIST: c_uint = 4;
/// `PVFS_IO_READ`
pub(super) const IO_READ: c_uint = 1;
/// `PVFS_IO_WRITE`
pub(super) const IO_WRITE: c_uint = 2;
/// `PVFS_ATTR_SYS_SIZE`
pub(super) const SIZE: u32 = 1 << 20;
/// `PVFS_ATTR_SYS_ALL_SETABLE`: owner, group, permissions and times, all of which a new object needs.
pub(super) const SETTABLE: u32 = 0x3f;
/// `PVFS_ATTR_SYS_DFILE_COUNT`
pub(super) const DATAFILES: u32 = 1 << 25;
/// `PVFS_ATTR_SYS_TYPE`
const KIND: u32 = 1 << 6;
/// `PVFS_TYPE_SYMLINK`
const SYMLINK: c_uint = 1 << 3;
/// `PVFS_READDIR_START`
pub(super) const LIST_START: u64 = i32::MAX as u64 - 1;
/// `PVFS_READDIR_END`
pub(super) const LIST_END: u64 = i32::MAX as u64 - 2;
/// `PVFS_MGMT_IO_SERVER`
pub(super) const IO_SERVER: c_int = 1;
/// `PVFS_SYS_NCACHE_TIMEOUT_MSECS`
pub(super) const NAME_CACHE_MS: c_uint = 1;

/// Declares the table of functions from their C declarations, each with its name in the library.
macro_rules! functions {
    ($(fn $name:ident = $symbol:literal ($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions of libpvfs2 that are used here.
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// `PVFS_BYTE`
            pub(super) byte: Request,
            /// Not declared for users of the library, so it may be missing.
            pub(super) log_to: Option<unsafe extern "C" fn(*const c_char, *const c_char) -> c_int>,
        }

        impl Library {
            fn bind(library: &libloading::Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the types are those of the public headers of OrangeFS 2.9 and 2.10.
                    $($name: unsafe { *library.get(concat!($symbol, "\0").as_bytes())? },)*
                    // SAFETY: a variable of that type, which the library sets when it is loaded and never changes.
                    byte: unsafe { **library.get::<*mut Request>(b"PVFS_BYTE\0")? },
                    // SAFETY: a function that takes a path and how to open it, where there is one.
                    log_to: unsafe { library.get(b"gossip_enable_file\0").ok().map(|found| *found) },
                })
            }
        }
    };
}

functions! {
    fn initialize = "PVFS_sys_initialize"(u64) -> c_int;
    fn set_info = "PVFS_sys_set_info"(c_uint, c_uint) -> c_int;
    fn test_some = "PVFS_sys_testsome"(*mut OperationId, *mut c_int, *mut *mut c_void, *mut c_int, c_int) -> c_int;
    fn make_mount = "PVFS_util_gen_mntent"(*mut c_char, *mut c_char) -> *mut Mount;
    fn make_credential = "PVFS_util_gen_credential_defaults"(*mut Credential) -> c_int;
    fn release_attributes = "PVFS_util_release_sys_attr"(*mut Attributes);
    fn add_file_system = "PVFS_isys_fs_add"(*mut Mount, *mut OperationId, *mut c_void) -> c_int;
    fn lookup_root = "PVFS_sys_lookup"(i32, *mut c_char, *const Credential, *mut Found, i32, Hint) -> c_int;
    fn lookup = "PVFS_isys_ref_lookup"(
        i32, *mut c_char, Reference, *const Credential, *mut Found, i32, *mut OperationId, Hint, *mut c_void,
    ) -> c_int;
    fn attributes = "PVFS_isys_getattr"(
        Reference, u32, *const Credential, *mut Attributes, *mut OperationId, Hint, *mut c_void,
    ) -> c_int;
    fn make_directory = "PVFS_isys_mkdir"(
        *mut c_char, Reference, Attributes, *const Credential, *mut Reference, *mut OperationId, Hint, *mut c_void,
    ) -> c_int;
    fn read_directory = "PVFS_isys_readdir"(
        Reference, u64, i32, *const Credential, *mut Entries, *mut OperationId, Hint, *mut c_void,
    ) -> c_int;
    fn create = "PVFS_isys_create"(
        *mut c_char, Reference, Attributes, *const Credential, *mut c_void, *mut Layout, *mut Reference,
        *mut OperationId, Hint, *mut c_void,
    ) -> c_int;
    fn remove = "PVFS_isys_remove"(
        *mut c_char, Reference, *const Credential, *mut OperationId, Hint, *mut c_void,
    ) -> c_int;
    fn rename = "PVFS_isys_rename"(
        *mut c_char, Reference, *mut c_char, Reference, *const Credential, *mut OperationId, Hint, *mut c_void,
    ) -> c_int;
    fn io = "PVFS_isys_io"(
        Reference, Request, i64, *mut c_void, Request, *const Credential, *mut i64, c_uint, *mut OperationId, Hint,
        *mut c_void,
    ) -> c_int;
    fn truncate = "PVFS_isys_truncate"(
        Reference, i64, *const Credential, *mut OperationId, Hint, *mut c_void,
    ) -> c_int;
    fn flush = "PVFS_isys_flush"(Reference, *const Credential, *mut OperationId, Hint, *mut c_void) -> c_int;
    fn datafiles = "PVFS_imgmt_get_dfile_array"(
        Reference, *const Credential, *mut u64, c_int, *mut OperationId, Hint, *mut c_void,
    ) -> c_int;
    fn server_stats = "PVFS_mgmt_statfs_list"(
        i32, *const Credential, *mut ServerStat, *mut i64, c_int, *mut c_void, Hint,
    ) -> c_int;
    fn server_count = "PVFS_mgmt_count_servers"(i32, c_int, *mut c_int) -> c_int;
    fn server_addresses = "PVFS_mgmt_get_server_array"(i32, c_int, *mut i64, *mut c_int) -> c_int;
    fn address_text = "PVFS_mgmt_map_addr"(i32, i64, *mut c_int) -> *const c_char;
    fn server_of_handle = "PVFS_mgmt_map_handle"(i32, u64, *mut i64) -> c_int;
    fn request_of_bytes = "PVFS_Request_contiguous"(i32, Request, *mut Request) -> c_int;
    fn commit_request = "PVFS_Request_commit"(*mut Request) -> c_int;
    fn free_request = "PVFS_Request_free"(*mut Request) -> c_int;
}

/// What libpvfs2 is called, whatever its minor version.
const FILE: &str = "libpvfs2.so.2";

static INSTEAD: OnceLock<PathBuf> = OnceLock::new();

/// Has this process load another file than the one that the dynamic linker finds: for tests. Once it is loaded, nothing changes that.
pub fn use_library(path: &Path) {
    INSTEAD.get_or_init(|| path.to_owned());
}

impl Library {
    /// Loads the library, for ever: its threads run as long as the process does.
    ///
    /// # Errors
    /// [`OrangeError::NoLibrary`] where it is not on this host or lacks a function.
    pub(super) fn load() -> Result<Self, OrangeError> {
        let failed = |error: libloading::Error| OrangeError::NoLibrary { what: error.to_string() };
        let file = INSTEAD.get().map_or(Path::new(FILE), PathBuf::as_path);
        // SAFETY: what a library runs when it is loaded is its own; libpvfs2 only sets up its own data.
        let library = unsafe { libloading::Library::new(file) }.map_err(failed)?;
        let library = std::mem::ManuallyDrop::new(library);
        Self::bind(&library).map_err(failed)
    }

    /// Frees what the library allocated, in its own way: it may have been built with an allocator of its own, and declares no function that frees.
    ///
    /// # Safety
    /// Null, or memory of the library that nobody uses any more.
    pub(super) unsafe fn free(&self, memory: *mut c_void) {
        let mut attributes = Attributes { kind: SYMLINK, mask: KIND, link_target: memory.cast(), ..Attributes::NONE };
        // SAFETY: the target of a symbolic link is what this function frees.
        unsafe { (self.release_attributes)(&raw mut attributes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// As a C compiler lays them out on a 64-bit host.
    #[test]
    fn types_lie_in_memory_as_the_library_expects() {
        assert_eq!((size_of::<Reference>(), size_of::<Credential>(), size_of::<Attributes>()), (16, 64, 136));
        assert_eq!((offset_of!(Credential, expires), offset_of!(Credential, certificate)), (24, 56));
        assert_eq!((offset_of!(Attributes, link_target), offset_of!(Attributes, distribution)), (48, 80));
        assert_eq!((offset_of!(Attributes, kind), offset_of!(Attributes, mask)), (104, 120));
        assert_eq!((size_of::<Layout>(), size_of::<Found>(), size_of::<Entries>()), (24, 32, 32));
        assert_eq!((size_of::<Entry>(), offset_of!(Entry, handle), size_of::<ServerStat>()), (272, 264, 104));
        assert_eq!(offset_of!(Mount, file_system), 40);
    }
}
