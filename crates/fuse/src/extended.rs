//! Extended attributes: those of the file itself, of a managed one its stub's. A symbolic link has none that could be reached by a descriptor.

use crate::nodes::Node;
use rustix::fs::{FileType, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::LazyLock;

const SELINUX: &str = "security.selinux";
/// Without it no file gets that attribute.
static HAS_SELINUX: LazyLock<bool> = LazyLock::new(|| Path::new("/sys/fs/selinux/enforce").exists());

fn check(node: &Node) -> Result<(), Errno> {
    if node.kind() == FileType::Symlink { Err(Errno::OPNOTSUPP) } else { Ok(()) }
}

pub(crate) fn get(node: &Node, name: &OsStr, value: &mut [u8]) -> Result<usize, Errno> {
    check(node)?;
    match rustix::fs::getxattr(node.link(), name, value) {
        // `ls` asks for it of every file, unless it hears that the file system has none.
        Err(Errno::NODATA) if name == SELINUX && !*HAS_SELINUX => Err(Errno::OPNOTSUPP),
        got => got,
    }
}

pub(crate) fn list(node: &Node, names: &mut [u8]) -> Result<usize, Errno> {
    if check(node).is_err() {
        return Ok(0);
    }
    rustix::fs::listxattr(node.link(), names)
}

pub(crate) fn set(node: &Node, name: &OsStr, value: &[u8], flags: i32) -> Result<(), Errno> {
    check(node)?;
    rustix::fs::setxattr(node.link(), name, value, XattrFlags::from_bits_retain(flags as u32))
}

pub(crate) fn remove(node: &Node, name: &OsStr) -> Result<(), Errno> {
    check(node)?;
    rustix::fs::removexattr(node.link(), name)
}
