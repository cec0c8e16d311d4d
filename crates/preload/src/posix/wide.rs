//! Wide characters on streams: libc's affair, except on streams of managed files (see [`crate::redirect::wide`]).

use super::stdio::spill_into_list;
use crate::real::interpose;
use crate::redirect::wide::{END, of, orient};
use libc::{FILE, c_int, c_void, size_t, wchar_t};

type WideInt = u32;

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    fn __chk_fail() -> !;
}

/// Variadic functions, each going on in the one that takes a list: fixed bytes of arguments, the list's register.
macro_rules! variadic {
    ($($name:ident: $fixed:literal, $list:literal, $next:ident;)*) => {$(
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name() {
            std::arch::naked_asm!(spill_into_list!($fixed, $list, "{next}"), next = sym $next)
        }
    )*};
}

variadic! {
    fwprintf: 16, "rdx", vfwprintf;
    __fwprintf_chk: 24, "rcx", __vfwprintf_chk;
    wprintf: 8, "rsi", vwprintf;
    __wprintf_chk: 16, "rdx", __vwprintf_chk;
    fwscanf: 16, "rdx", vfwscanf;
    __isoc99_fwscanf: 16, "rdx", __isoc99_vfwscanf;
    wscanf: 8, "rsi", vwscanf;
    __isoc99_wscanf: 8, "rsi", __isoc99_vwscanf;
}

interpose! {
    fn fgetwc[getwc, fgetwc_unlocked, getwc_unlocked] (stream: *mut FILE) -> WideInt |real| {
        of(stream).map_or_else(|| real(stream), |stream| stream.get())
    }

    fn getwchar[getwchar_unlocked] () -> WideInt |real| {
        of(stdin).map_or_else(|| real(), |stream| stream.get())
    }

    fn fgetws[fgetws_unlocked] (text: *mut wchar_t, count: c_int, stream: *mut FILE) -> *mut wchar_t |real| {
        match of(stream) {
            None => real(text, count, stream),
            Some(stream) => if stream.line(text, count) { text } else { std::ptr::null_mut() },
        }
    }

    /// `size` is the room that the compiler knows of.
    fn __fgetws_chk[__fgetws_unlocked_chk] (
        text: *mut wchar_t, size: size_t, count: c_int, stream: *mut FILE
    ) -> *mut wchar_t |real| {
        match of(stream) {
            None => real(text, size, count, stream),
            Some(_) if size == 0 => __chk_fail(),
            Some(stream) => {
                let capacity = count.min(c_int::try_from(size).unwrap_or(c_int::MAX));
                if stream.line(text, capacity) { text } else { std::ptr::null_mut() }
            }
        }
    }

    fn ungetwc[] (wide: WideInt, stream: *mut FILE) -> WideInt |real| {
        of(stream).map_or_else(|| real(wide, stream), |stream| stream.unget(wide))
    }

    fn fputwc[putwc, fputwc_unlocked, putwc_unlocked] (wide: wchar_t, stream: *mut FILE) -> WideInt |real| {
        of(stream).map_or_else(|| real(wide, stream), |stream| if stream.put(wide) { wide as WideInt } else { END })
    }

    fn putwchar[putwchar_unlocked] (wide: wchar_t) -> WideInt |real| {
        of(stdout).map_or_else(|| real(wide), |stream| if stream.put(wide) { wide as WideInt } else { END })
    }

    fn fputws[fputws_unlocked] (text: *const wchar_t, stream: *mut FILE) -> c_int |real| {
        of(stream).map_or_else(|| real(text, stream), |stream| if stream.put_text(text) { 1 } else { -1 })
    }

    fn fwide[] (stream: *mut FILE, mode: c_int) -> c_int |real| {
        orient(stream, mode).unwrap_or_else(|| real(stream, mode))
    }

    fn vfwprintf[] (stream: *mut FILE, format: *const wchar_t, list: *mut c_void) -> c_int |real| {
        of(stream).map_or_else(|| real(stream, format, list), |stream| stream.format(format, list))
    }

    fn __vfwprintf_chk[] (stream: *mut FILE, flag: c_int, format: *const wchar_t, list: *mut c_void) -> c_int |real| {
        of(stream).map_or_else(|| real(stream, flag, format, list), |stream| stream.format(format, list))
    }

    fn vwprintf[] (format: *const wchar_t, list: *mut c_void) -> c_int |real| {
        of(stdout).map_or_else(|| real(format, list), |stream| stream.format(format, list))
    }

    fn __vwprintf_chk[] (flag: c_int, format: *const wchar_t, list: *mut c_void) -> c_int |real| {
        of(stdout).map_or_else(|| real(flag, format, list), |stream| stream.format(format, list))
    }

    fn vfwscanf[] (stream: *mut FILE, format: *const wchar_t, list: *mut c_void) -> c_int |real| {
        of(stream).map_or_else(|| real(stream, format, list), |stream| stream.refuse(b"fwscanf"))
    }

    fn __isoc99_vfwscanf[] (stream: *mut FILE, format: *const wchar_t, list: *mut c_void) -> c_int |real| {
        of(stream).map_or_else(|| real(stream, format, list), |stream| stream.refuse(b"fwscanf"))
    }

    fn vwscanf[] (format: *const wchar_t, list: *mut c_void) -> c_int |real| {
        of(stdin).map_or_else(|| real(format, list), |stream| stream.refuse(b"wscanf"))
    }

    fn __isoc99_vwscanf[] (format: *const wchar_t, list: *mut c_void) -> c_int |real| {
        of(stdin).map_or_else(|| real(format, list), |stream| stream.refuse(b"wscanf"))
    }
}
