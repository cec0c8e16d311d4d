//! librados, loaded when it is first needed.

use super::RadosError;
use libc::{c_char, c_int, c_void, size_t, ssize_t, time_t, timeval};
use std::sync::OnceLock;

/// `rados_t`
pub(super) type Cluster = *mut c_void;
/// `rados_ioctx_t`
pub(super) type IoContext = *mut c_void;
/// `rados_write_op_t`
pub(super) type WriteOperation = *mut c_void;
/// `rados_read_op_t`
pub(super) type ReadOperation = *mut c_void;
/// `rados_completion_t`
pub(super) type Completion = *mut c_void;
/// `rados_list_ctx_t`
pub(super) type Listing = *mut c_void;
/// `rados_omap_iter_t`
pub(super) type OmapIterator = *mut c_void;
/// `rados_callback_t`
pub(super) type Callback = extern "C" fn(Completion, *mut c_void);

/// `LIBRADOS_CMPXATTR_OP_EQ`
pub(super) const EQUAL: u8 = 1;
/// `LIBRADOS_CREATE_EXCLUSIVE`
pub(super) const EXCLUSIVE: c_int = 1;
/// `LIBRADOS_LOCK_FLAG_MAY_RENEW`
pub(super) const MAY_RENEW: u8 = 1;
/// `LIBRADOS_LOCK_FLAG_MUST_RENEW`
pub(super) const MUST_RENEW: u8 = 2;
/// `LIBRADOS_OPERATION_FULL_TRY`: a full pool refuses instead of keeping the caller waiting, and lets objects be removed.
pub(super) const FULL_TRY: c_int = 64;

/// Declares the table of functions from their C declarations, without the prefix `rados_`.
macro_rules! functions {
    ($(fn $name:ident($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions of librados that are used here.
        pub struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn bind(library: &libloading::Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the types are those of librados.h, whose functions are never changed, only added to.
                    $($name: unsafe { *library.get(concat!("rados_", stringify!($name), "\0").as_bytes())? },)*
                })
            }
        }
    };
}

functions! {
    fn create2(*mut Cluster, *const c_char, *const c_char, u64) -> c_int;
    fn conf_read_file(Cluster, *const c_char) -> c_int;
    fn conf_set(Cluster, *const c_char, *const c_char) -> c_int;
    fn connect(Cluster) -> c_int;
    fn shutdown(Cluster);
    fn cluster_fsid(Cluster, *mut c_char, size_t) -> c_int;
    fn getaddrs(Cluster, *mut *mut c_char) -> c_int;
    fn blocklist_add(Cluster, *mut c_char, u32) -> c_int;
    fn wait_for_latest_osdmap(Cluster) -> c_int;
    fn mon_command(
        Cluster, *mut *const c_char, size_t, *const c_char, size_t,
        *mut *mut c_char, *mut size_t, *mut *mut c_char, *mut size_t,
    ) -> c_int;
    fn osd_command(
        Cluster, c_int, *mut *const c_char, size_t, *const c_char, size_t,
        *mut *mut c_char, *mut size_t, *mut *mut c_char, *mut size_t,
    ) -> c_int;
    fn buffer_free(*mut c_char);
    fn ioctx_create(Cluster, *const c_char, *mut IoContext) -> c_int;
    fn ioctx_destroy(IoContext);
    fn ioctx_set_namespace(IoContext, *const c_char);
    fn set_pool_full_try(IoContext) -> c_int;
    fn aio_create_completion2(*mut c_void, Callback, *mut Completion) -> c_int;
    fn aio_get_return_value(Completion) -> c_int;
    fn aio_release(Completion);
    fn create_write_op() -> WriteOperation;
    fn release_write_op(WriteOperation);
    fn write_op_assert_exists(WriteOperation);
    fn write_op_cmpxattr(WriteOperation, *const c_char, u8, *const c_char, size_t);
    fn write_op_setxattr(WriteOperation, *const c_char, *const c_char, size_t);
    fn write_op_create(WriteOperation, c_int, *const c_char);
    fn write_op_write(WriteOperation, *const c_char, size_t, u64);
    fn write_op_write_full(WriteOperation, *const c_char, size_t);
    fn write_op_append(WriteOperation, *const c_char, size_t);
    fn write_op_truncate(WriteOperation, u64);
    fn write_op_remove(WriteOperation);
    fn write_op_omap_set(WriteOperation, *const *const c_char, *const *const c_char, *const size_t, size_t);
    fn write_op_omap_rm_keys(WriteOperation, *const *const c_char, size_t);
    fn write_op_omap_cmp(WriteOperation, *const c_char, u8, *const c_char, size_t, *mut c_int);
    fn aio_write_op_operate(WriteOperation, IoContext, Completion, *const c_char, *mut time_t, c_int) -> c_int;
    fn create_read_op() -> ReadOperation;
    fn release_read_op(ReadOperation);
    fn read_op_assert_exists(ReadOperation);
    fn read_op_cmpxattr(ReadOperation, *const c_char, u8, *const c_char, size_t);
    fn read_op_read(ReadOperation, u64, size_t, *mut c_char, *mut size_t, *mut c_int);
    fn read_op_stat(ReadOperation, *mut u64, *mut time_t, *mut c_int);
    fn read_op_omap_get_vals2(
        ReadOperation, *const c_char, *const c_char, u64, *mut OmapIterator, *mut u8, *mut c_int,
    );
    fn read_op_omap_get_vals_by_keys(ReadOperation, *const *const c_char, size_t, *mut OmapIterator, *mut c_int);
    fn aio_read_op_operate(ReadOperation, IoContext, Completion, *const c_char, c_int) -> c_int;
    fn omap_get_next2(OmapIterator, *mut *mut c_char, *mut *mut c_char, *mut size_t, *mut size_t) -> c_int;
    fn omap_get_end(OmapIterator);
    fn lock_exclusive(
        IoContext, *const c_char, *const c_char, *const c_char, *const c_char, *mut timeval, u8,
    ) -> c_int;
    fn unlock(IoContext, *const c_char, *const c_char, *const c_char) -> c_int;
    fn break_lock(IoContext, *const c_char, *const c_char, *const c_char, *const c_char) -> c_int;
    fn list_lockers(
        IoContext, *const c_char, *const c_char, *mut c_int, *mut c_char, *mut size_t, *mut c_char, *mut size_t,
        *mut c_char, *mut size_t, *mut c_char, *mut size_t,
    ) -> ssize_t;
    fn nobjects_list_open(IoContext, *mut Listing) -> c_int;
    fn nobjects_list_next(Listing, *mut *const c_char, *mut *const c_char, *mut *const c_char) -> c_int;
    fn nobjects_list_close(Listing);
}

/// What librados 2 is called, whatever its further version.
const FILE: &str = "librados.so.2";
/// Ceph's libraries set up their options with more than half a MiB of stack, which threads of the broker do not have.
const LOADING_STACK_BYTES: usize = 8 << 20;

impl Library {
    /// The library, loaded at the first call.
    ///
    /// # Errors
    /// [`RadosError::NoLibrary`] where it is not on this host or lacks a function; the next call tries again.
    pub fn load() -> Result<&'static Self, RadosError> {
        static LOADED: OnceLock<Library> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(library);
        }
        let load = || {
            // SAFETY: what a library runs when it is loaded is its own; librados only sets up its own data.
            let library = unsafe { libloading::Library::new(FILE) }?;
            // Never unloaded: its threads run as long as the process does.
            let library = std::mem::ManuallyDrop::new(library);
            Self::bind(&library)
        };
        let failed = |what: String| RadosError::NoLibrary { what };
        let loading = std::thread::Builder::new().name("stripewise-load".into()).stack_size(LOADING_STACK_BYTES);
        let loading = loading.spawn(load).map_err(|error| failed(error.to_string()))?;
        let bound = loading.join().map_err(|_| failed("loading it panicked".to_owned()))?;
        let bound = bound.map_err(|error| failed(error.to_string()))?;
        Ok(LOADED.get_or_init(|| bound))
    }
}
