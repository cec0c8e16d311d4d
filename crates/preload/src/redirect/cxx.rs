//! `std::cin`, `cout`, `cerr` and `clog` of libstdc++, whose buffers keep the address of the C stream that they write
//! through since before `main`: when `stdout` points elsewhere, so must they.
//!
//! The places used are part of libstdc++'s binary interface, unchanged since GCC 3.4: `basic_ios::_M_streambuf` within the four
//! objects, and `_M_file` of `stdio_sync_filebuf` right behind its base. A buffer of another class (after
//! `sync_with_stdio(false)`, or the program's own) is left alone: the former uses the descriptor.

use libc::{FILE, c_void};
use std::ffi::CStr;

/// The objects, and where in them the address of the buffer is.
const STREAMS: [(&CStr, usize); 4] =
    [(c"_ZSt3cin", 248), (c"_ZSt4cout", 240), (c"_ZSt4cerr", 240), (c"_ZSt4clog", 240)];
/// The table of functions of `stdio_sync_filebuf<char>`, and how far in an object of the class points.
const CLASS: &CStr = c"_ZTVN9__gnu_cxx18stdio_sync_filebufIcSt11char_traitsIcEEE";
const CLASS_AT: usize = 16;
/// `sizeof(std::streambuf)`.
const FILE_AT: usize = 64;

fn symbol(name: &CStr) -> *mut u8 {
    // SAFETY: the name ends in a zero byte.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast()
}

/// Lets C++ streams that go through `from` go through `to`.
pub(super) fn lead(from: *mut FILE, to: *mut FILE) {
    let class = symbol(CLASS);
    if class.is_null() {
        return;
    }
    for (name, buffer_at) in STREAMS {
        let object = symbol(name);
        if object.is_null() {
            continue;
        }
        // SAFETY: libstdc++'s objects, zero until they are constructed; their buffers are objects with a table of functions.
        unsafe {
            let buffer = object.add(buffer_at).cast::<*mut u8>().read();
            if buffer.is_null() || buffer.cast::<*mut c_void>().read() != class.add(CLASS_AT).cast() {
                continue;
            }
            let file = buffer.add(FILE_AT).cast::<*mut FILE>();
            if file.read() == from {
                file.write(to);
            }
        }
    }
}
