//! Wide characters on streams of managed files.
//!
//! glibc's `fopencookie` makes byte streams, on which its own wide functions end the program. Here they are done above the
//! byte functions: a wide character is read and written as its multibyte form in the locale of the time. Only `fwscanf` and its
//! kin, which cannot be put above them, are refused.

use super::streams::{self, Place, descriptor_of};
use crate::process::{self, Level};
use libc::{FILE, c_char, c_int, c_void, size_t, wchar_t};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

type WideInt = u32;
/// `WEOF`.
pub(crate) const END: WideInt = u32::MAX;
/// `_IO_ERR_SEEN` in the first field of glibc's stream.
const FAILED: c_int = 0x20;
/// Longest multibyte character of any locale (`MB_LEN_MAX`).
const LONGEST: usize = 16;

unsafe extern "C" {
    fn mbrtowc(wide: *mut wchar_t, bytes: *const c_char, count: size_t, state: *mut u64) -> size_t;
    fn wcrtomb(bytes: *mut c_char, wide: wchar_t, state: *mut u64) -> size_t;
    fn vswprintf(text: *mut wchar_t, count: size_t, format: *const wchar_t, arguments: *mut c_void) -> c_int;
    fn flockfile(stream: *mut FILE);
    fn funlockfile(stream: *mut FILE);
}

/// A stream of ours, locked.
pub(crate) struct Stream {
    stream: *mut FILE,
    place: &'static Place,
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: locked by `of`.
        unsafe { funlockfile(self.stream) };
    }
}

/// The stream, if it is one of ours.
pub(crate) fn of(stream: *mut FILE) -> Option<Stream> {
    let place = streams::place(descriptor_of(stream)?)?;
    // SAFETY: an open stream.
    unsafe { flockfile(stream) };
    place.orientation.store(1, Ordering::Relaxed);
    Some(Stream { stream, place })
}

/// `fwide`; none for streams of libc's.
pub(crate) fn orient(stream: *mut FILE, mode: c_int) -> Option<c_int> {
    let orientation = &streams::place(descriptor_of(stream)?)?.orientation;
    let _ = orientation.compare_exchange(0, mode.signum() as i8, Ordering::Relaxed, Ordering::Relaxed);
    Some(c_int::from(orientation.load(Ordering::Relaxed)))
}

impl Stream {
    fn fail(&self, errno: Errno) {
        // SAFETY: the first field of the program's stream.
        unsafe { *self.stream.cast::<c_int>() |= FAILED };
        process::fail(errno);
    }

    /// The next character, or [`END`].
    pub(crate) fn get(&self) -> WideInt {
        let mut state = self.place.reading.load(Ordering::Relaxed);
        let mut is_begun = false;
        loop {
            // SAFETY: an open stream; one byte and plain memory of this frame.
            let (length, wide) = unsafe {
                let byte = libc::fgetc(self.stream);
                if byte < 0 {
                    if is_begun {
                        self.fail(Errno::ILSEQ);
                    }
                    return END;
                }
                let (byte, mut wide) = (byte as u8, 0);
                (mbrtowc(&raw mut wide, (&raw const byte).cast(), 1, &raw mut state), wide)
            };
            match length as isize {
                -1 => {
                    self.fail(Errno::ILSEQ);
                    return END;
                }
                -2 => is_begun = true,
                _ => {
                    self.place.reading.store(state, Ordering::Relaxed);
                    return wide as WideInt;
                }
            }
        }
    }

    /// A line into `count` places at `text`, as `fgetws` does; false at the end or when the stream failed.
    ///
    /// # Safety
    /// `text` has `count` places.
    pub(crate) unsafe fn line(&self, text: *mut wchar_t, count: c_int) -> bool {
        if count < 1 {
            return false;
        }
        let mut length = 0;
        while length < count as usize - 1 {
            let wide = self.get();
            if wide == END {
                // SAFETY: an open stream.
                if length == 0 || unsafe { libc::ferror(self.stream) } != 0 {
                    return false;
                }
                break;
            }
            // SAFETY: below `count`.
            unsafe { *text.add(length) = wide as wchar_t };
            length += 1;
            if wide == u32::from(b'\n') {
                break;
            }
        }
        // SAFETY: at most `count - 1`.
        unsafe { *text.add(length) = 0 };
        true
    }

    fn encode(&self, wide: wchar_t) -> Option<([u8; LONGEST], usize)> {
        let mut bytes = [0u8; LONGEST];
        let mut state = self.place.writing.load(Ordering::Relaxed);
        // SAFETY: space for the longest.
        let length = unsafe { wcrtomb(bytes.as_mut_ptr().cast(), wide, &raw mut state) };
        if length as isize == -1 {
            self.fail(Errno::ILSEQ);
            return None;
        }
        self.place.writing.store(state, Ordering::Relaxed);
        Some((bytes, length))
    }

    /// Writes one character; false when the stream failed.
    pub(crate) fn put(&self, wide: wchar_t) -> bool {
        let Some((bytes, length)) = self.encode(wide) else { return false };
        // SAFETY: an open stream and bytes of this frame.
        unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, length, self.stream) == length }
    }

    /// Writes a text up to its zero.
    ///
    /// # Safety
    /// `text` ends in a zero.
    pub(crate) unsafe fn put_text(&self, text: *const wchar_t) -> bool {
        // SAFETY: the caller's promise.
        (0..).map(|at| unsafe { *text.add(at) }).take_while(|wide| *wide != 0).all(|wide| self.put(wide))
    }

    /// Gives a character back, so that it is the next one read.
    pub(crate) fn unget(&self, wide: WideInt) -> WideInt {
        if wide == END {
            return END;
        }
        let Some((bytes, length)) = self.encode(wide as wchar_t) else { return END };
        for byte in bytes[..length].iter().rev() {
            // SAFETY: an open stream.
            if unsafe { libc::ungetc(c_int::from(*byte), self.stream) } < 0 {
                return END;
            }
        }
        wide
    }

    /// `vfwprintf`.
    ///
    /// # Safety
    /// `format` and `arguments` belong together; `arguments` is the address of a `va_list`.
    pub(crate) unsafe fn format(&self, format: *const wchar_t, arguments: *mut c_void) -> c_int {
        /// A `va_list` is 24 bytes on 64-bit x86 and 32 on 64-bit Arm; formatting uses it up.
        type List = [u64; if cfg!(target_arch = "x86_64") { 3 } else { 4 }];
        // SAFETY: the caller's promise.
        let list = unsafe { arguments.cast::<List>().read() };
        let mut text: Vec<wchar_t> = Vec::new();
        for places in (8..=28).map(|bits| 1usize << bits) {
            text.resize(places, 0);
            let mut list = list;
            // SAFETY: `places` are there; a copy of the list for every attempt.
            let length = unsafe { vswprintf(text.as_mut_ptr(), places, format, (&raw mut list).cast()) };
            if let Ok(length) = usize::try_from(length) {
                return if text[..length].iter().all(|wide| self.put(*wide)) { length as c_int } else { -1 };
            }
            if process::errno() == libc::EILSEQ {
                break;
            }
        }
        -1
    }

    /// What cannot be done here fails, and says so.
    pub(crate) fn refuse(&self, call: &[u8]) -> c_int {
        let parts: [&[u8]; 2] = [call, b" is not there for streams of managed files"];
        process::log_once(Level::Error, &parts);
        self.fail(Errno::OPNOTSUPP);
        -1
    }
}
