//! The functions that ours stand in front of.
//!
//! They are found by `dlsym(RTLD_NEXT)` at their first use, because constructors of other libraries run before ours.
//! libc's own functions are called, not the kernel, wherever the program called them: they are points of
//! cancellation.
//!
//! # Variadic functions
//! `open`, `openat` and `fcntl` are variadic in C; Rust cannot define such functions. It need not: on x86-64 (System
//! V) and on aarch64 Linux an integer or pointer behind the `...` travels in the same register as a named argument at
//! its place (x86-64 adds the number of vector registers in `al`, which an integer function ignores), so functions
//! with one more fixed argument read what variadic ones would. What is read when the caller passed nothing is
//! whatever the register holds, as in C, and goes unused. `tests/capture.rs` holds this against callers compiled
//! with `-O2`.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the next library in the search order, of type `F`.
pub(crate) struct Real<F> {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

// SAFETY: only the atomic changes.
unsafe impl<F> Sync for Real<F> {}

impl<F: Copy> Real<F> {
    /// # Safety
    /// The symbol, where it exists, is a function that may be called as an `F`.
    pub(crate) const unsafe fn new(name: &'static CStr) -> Self {
        assert!(size_of::<F>() == size_of::<*mut c_void>());
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()), function: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> F {
        let address = self.address.load(Ordering::Relaxed);
        let address = if address.is_null() { self.find() } else { address };
        // SAFETY: `F` is a function pointer by the promise made to `new`, and the address is that function's.
        unsafe { std::mem::transmute_copy(&address) }
    }

    /// As [`Self::get`], of a library that need not be loaded.
    pub(crate) fn lookup(&self) -> Option<F> {
        // SAFETY: the name ends in a zero byte.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        // SAFETY: as in `get`.
        (!address.is_null()).then(|| unsafe { std::mem::transmute_copy(&address) })
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends in a zero byte.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if address.is_null() {
            // Only a program that itself found the symbol in a newer libc than the one loaded could get here.
            crate::log::say(&[b"this system's libc has no ", self.name.to_bytes()]);
            // SAFETY: ends the process.
            unsafe { libc::abort() };
        }
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Defines libc symbols. `fn name[twin, ...] (arguments) -> type |real| { body }` exports `name` and its twins, which
/// are the same function under another name on 64-bit Linux; in the body, `real` is libc's own. The body is also there
/// as `name::over(real, arguments)`, for a caller that comes by another way than the symbol and brings the function
/// behind it.
macro_rules! interpose {
    ($($(#[$meta:meta])* fn $name:ident[$($twin:ident),*] $arguments:tt -> $result:ty |$real:ident| $body:block)*) => {$(
        $crate::real::interpose!(@first [$(#[$meta])*] $name $arguments $result, $real, $body);
        $( $crate::real::interpose!(@twin $twin $name $arguments $result); )*
    )*};
    (@first [$($meta:tt)*] $name:ident ($($arg:ident: $type:ty),* $(,)?) $result:ty, $real:ident, $body:block) => {
        $($meta)*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            // SAFETY: the type is the one of the C declaration (variadics: see the module).
            static REAL: $crate::real::Real<Function> = unsafe {
                $crate::real::Real::new(
                    match ::std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a symbol has no zero byte"),
                    })
            };
            // SAFETY: what the C interface asks of its callers holds for the body, too.
            unsafe { $name::over(REAL.get(), $($arg),*) }
        }

        #[allow(non_camel_case_types, reason = "the function's own name, which types and functions do not share")]
        pub(crate) enum $name {}

        impl $name {
            /// # Safety
            /// As of the C function; `real` does what it does.
            #[inline(always)]
            #[allow(dead_code, unused_unsafe, reason = "not every call has a number")]
            pub(crate) unsafe fn over($real: unsafe extern "C" fn($($type),*) -> $result, $($arg: $type),*) -> $result {
                // SAFETY: the caller's promise.
                unsafe { $body }
            }
        }
    };
    (@twin $twin:ident $name:ident ($($arg:ident: $type:ty),* $(,)?) $result:ty) => {
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $twin($($arg: $type),*) -> $result {
            // SAFETY: the same function.
            unsafe { $name($($arg),*) }
        }
    };
}
pub(crate) use interpose;
