//! Loading managed shared objects.
//!
//! The loader opens files itself, so it gets a sealed memory file with the bytes, by the path of its descriptor. Descriptor and name stay for as long as
//! the process does: the loader tells objects apart by their names and inodes, and a second `dlopen` of the same file must find the first.

use super::exec::{image, is_managed_path};
use super::failure::failed;
use super::{is_on, with_file_at};
use crate::managed::link::{DescriptorPath, descriptor_path};
use crate::process::{self, Inside};
use libc::{c_int, c_void};
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use stripewise_store::descriptors::Descriptor;

struct Copy {
    /// Device and inode of the stub; none when the file has changed since.
    identity: Option<(u64, u64)>,
    /// Size and time of modification of what was copied.
    version: (u64, u64),
    /// Never closed: what is loaded under its name would be found for another file.
    memory: Descriptor,
}

static COPIES: Mutex<Vec<Copy>> = Mutex::new(Vec::new());

fn copies() -> MutexGuard<'static, Vec<Copy>> {
    COPIES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name_of(copy: &Copy) -> DescriptorPath {
    descriptor_path(None, copy.memory.as_fd().as_raw_fd())
}

/// Loads the managed file at `path` by `load`, libc's own; none when it is libc's affair.
pub(crate) fn load(path: &CStr, flags: c_int, load: impl Fn(&CStr, c_int) -> *mut c_void) -> Option<*mut c_void> {
    if !is_on() || !process::is_active() || !path.to_bytes().contains(&b'/') || !process::owns_tables() {
        return None;
    }
    let identity = {
        let _errno = process::Errno::keep();
        let _inside = Inside::enter()?;
        is_managed_path(path)?
    };
    let known = copies().iter().find(|copy| copy.identity == Some(identity)).map(name_of);
    if let Some(name) = known {
        let loaded = load(name.as_c_str(), flags | libc::RTLD_NOLOAD);
        if !loaded.is_null() {
            return Some(loaded);
        }
    }
    if flags & libc::RTLD_NOLOAD != 0 {
        return Some(std::ptr::null_mut());
    }
    let made = {
        let _inside = Inside::enter()?;
        make(path, identity)
    };
    let name = match made {
        Ok(name) => name,
        // The loader would fail on the stub; it says so of the path that the program knows.
        Err(errno) => {
            let text = errno.to_string();
            process::log(process::Level::Error, &[b"loading ", path.to_bytes(), b": ", text.as_bytes()]);
            return None;
        }
    };
    Some(load(name.as_c_str(), flags))
}

/// Makes the copy, unless there is one of the file as it is now, and returns its name.
fn make(path: &CStr, identity: (u64, u64)) -> Result<DescriptorPath, Errno> {
    let version = with_file_at(libc::AT_FDCWD, path, true, |stub, _, file| {
        let status = file.ok_or(Errno::IO)?.status().map_err(|error| failed(&error))?;
        let of_stub = rustix::fs::fstat(stub)?;
        let of_stub = (of_stub.st_mtime as u64).wrapping_mul(1_000_000_000).wrapping_add(of_stub.st_mtime_nsec as u64);
        Ok((status.size_bytes, status.modified_ns.unwrap_or(of_stub)))
    });
    let version = version.unwrap_or(Err(Errno::ACCESS))?;
    let mut copies = copies();
    if let Some(copy) = copies.iter_mut().find(|copy| copy.identity == Some(identity)) {
        if copy.version == version {
            return Ok(name_of(copy));
        }
        copy.identity = None;
    }
    let memory = image::of_library(path)?.0.take().ok_or(Errno::BADF)?;
    let memory = Descriptor::raise(memory, crate::descriptors::FLOOR);
    let copy = Copy { identity: Some(identity), version, memory };
    let name = name_of(&copy);
    copies.push(copy);
    Ok(name)
}
