//! Loading shared objects by name.
//!
//! libc looks at who called `dlopen`: the caller's `DT_RUNPATH` and namespace decide what a name means. So these wrappers must not stand between: what is
//! not a managed file goes on to libc by a jump, with the program's own return address on the stack. Rust has no such jump; hence the assembly.

use crate::real::Real;
use crate::redirect::load::load;
use libc::{c_char, c_int, c_long, c_void};
use std::ffi::CStr;

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlmopen = unsafe extern "C" fn(c_long, *const c_char, c_int) -> *mut c_void;

// SAFETY: the types of the two functions.
static DLOPEN: Real<Dlopen> = unsafe { Real::new(c"dlopen") };
// SAFETY: as above.
static DLMOPEN: Real<Dlmopen> = unsafe { Real::new(c"dlmopen") };

/// Serves a `dlopen`, with the answer in `answer` and null returned, or returns libc's own to go on to.
unsafe extern "C" fn serve_dlopen(path: *const c_char, flags: c_int, answer: *mut *mut c_void) -> *const c_void {
    let real = DLOPEN.get();
    // SAFETY: null or a string, by the C interface.
    let path = unsafe { path.as_ref().map(|path| CStr::from_ptr(path)) };
    // SAFETY: libc's function with the program's flags and a string.
    match path.and_then(|path| load(path, flags, |path, flags| unsafe { real(path.as_ptr(), flags) })) {
        Some(handle) => {
            // SAFETY: the wrapper's own place on the stack.
            unsafe { *answer = handle };
            std::ptr::null()
        }
        None => real as *const c_void,
    }
}

/// As [`serve_dlopen`].
unsafe extern "C" fn serve_dlmopen(
    namespace: c_long,
    path: *const c_char,
    flags: c_int,
    answer: *mut *mut c_void,
) -> *const c_void {
    let real = DLMOPEN.get();
    // SAFETY: as above.
    let path = unsafe { path.as_ref().map(|path| CStr::from_ptr(path)) };
    // A new namespace has nothing loaded to be found again; a name in it is its own.
    // SAFETY: as above.
    match path.and_then(|path| load(path, flags, |path, flags| unsafe { real(namespace, path.as_ptr(), flags) })) {
        Some(handle) => {
            // SAFETY: as above.
            unsafe { *answer = handle };
            std::ptr::null()
        }
        None => real as *const c_void,
    }
}

/// # Safety
/// As in C.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        // Three words and the return address keep the stack aligned to 16 bytes.
        "push rdi", "push rsi", "sub rsp, 8",
        "mov rdx, rsp",
        "call {serve}",
        "mov r11, rax",
        "pop rax", "pop rsi", "pop rdi",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2: ret",
        serve = sym serve_dlopen,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-48]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "add x2, sp, #32",
        "bl {serve}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldr x9, [sp, #32]",
        "ldp x29, x30, [sp], #48",
        "cbz x16, 2f",
        "br x16",
        "2: mov x0, x9",
        "ret",
        serve = sym serve_dlopen,
    );
}

/// # Safety
/// As in C.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlmopen(namespace: c_long, path: *const c_char, flags: c_int) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        "push rdi", "push rsi", "push rdx", "sub rsp, 16",
        "mov rcx, rsp",
        "call {serve}",
        "mov r11, rax",
        "pop rax", "add rsp, 8", "pop rdx", "pop rsi", "pop rdi",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2: ret",
        serve = sym serve_dlmopen,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-64]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "add x3, sp, #40",
        "bl {serve}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldr x2, [sp, #32]",
        "ldr x9, [sp, #40]",
        "ldp x29, x30, [sp], #64",
        "cbz x16, 2f",
        "br x16",
        "2: mov x0, x9",
        "ret",
        serve = sym serve_dlmopen,
    );
}
