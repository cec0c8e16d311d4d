//! Paths of descriptors in `/proc`.

use std::ffi::{CStr, c_int};

/// `/proc/PROCESS/fd/NUMBER`.
pub(crate) struct DescriptorPath([u8; 48]);

impl DescriptorPath {
    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// The path of a descriptor, of this process unless another is named.
pub(crate) fn descriptor_path(process: Option<i32>, descriptor: c_int) -> DescriptorPath {
    use std::io::Write;
    let mut path = DescriptorPath([0; 48]);
    let mut buffer = &mut path.0[..47];
    // The longest has 31 bytes.
    let _ = match process {
        Some(process) => write!(buffer, "/proc/{process}/fd/{descriptor}"),
        None => write!(buffer, "/proc/self/fd/{descriptor}"),
    };
    path
}
