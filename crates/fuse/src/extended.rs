//! Extended attributes: those of the file itself, of a managed one its stub's. A symbolic link has none that could be reached by a descriptor.

use crate::nodes::Node;
use rustix::fs::{FileType, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::LazyLock;

const SELINUX: &str = "security.selinux";
const ACLS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];
/// Without it no file gets that attribute.
static HAS_SELINUX: LazyLock<bool> = LazyLock::new(|| Path::new("/sys/fs/selinux/enforce").exists());

fn check(node: &Node) -> Result<(), Errno> {
    if node.kind() == FileType::Symlink { Err(Errno::OPNOTSUPP) } else { Ok(()) }
}

/// Whether it is one of those by which the kernel decides who may use the file.
pub(crate) fn is_acl(name: &OsStr) -> bool {
    ACLS.iter().any(|acl| name == *acl)
}

/// Whether the file system of the file has ACLs.
pub(crate) fn has_acls(node: &Node) -> bool {
    rustix::fs::getxattr(node.link(), ACLS[0], &mut [0u8; 0]) != Err(Errno::OPNOTSUPP)
}

/// `PERM` of an attribute that the owner alone may change. Of the system's own the kernel leaves that to the file system, and this process may more than who asks.
pub(crate) fn check_caller(node: &Node, name: &OsStr, caller: u32) -> Result<(), Errno> {
    let is_systems = name.as_bytes().starts_with(b"system.");
    if !is_systems || caller == 0 || node.stat()?.st_uid == caller { Ok(()) } else { Err(Errno::PERM) }
}

pub(crate) fn get(node: &Node, name: &OsStr, value: &mut [u8]) -> Result<usize, Errno> {
    match check(node).and_then(|()| rustix::fs::getxattr(node.link(), name, value)) {
        // The kernel asks before it permits anything, and would refuse all with that error.
        Err(Errno::OPNOTSUPP) if is_acl(name) => Err(Errno::NODATA),
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
