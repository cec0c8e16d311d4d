//! Memory that the kernel gives as zeros, page by page, as it is used first.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

/// `count` values of which every byte is zero; their pages are not touched.
///
/// # Safety
///
/// Zero bytes are a value of the type.
pub(crate) unsafe fn zeroed<T>(count: usize) -> Box<[T]> {
    let layout = Layout::array::<T>(count).unwrap_or_else(|_| panic!("{count} values are more than memory can hold"));
    if layout.size() == 0 {
        return Box::new([]);
    }
    // SAFETY: the layout is not empty.
    let begin = unsafe { alloc_zeroed(layout) };
    if begin.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: just allocated with the layout of such a slice, and valid by the caller's word.
    unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(begin.cast(), count)) }
}
