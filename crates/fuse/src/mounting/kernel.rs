//! Mounting and unmounting by the kernel itself, or, for those who are not root, by `fusermount3`.

use super::{MountError, MountOptions};
use rustix::cmsg_space;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};
use std::ffi::{CString, OsString};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Stdio};
use stripewise_layout::printing::shown;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// By which a mount says whose it is.
const SOURCE: &str = "stripewise:";

fn open_device() -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Whether each thread may have a descriptor of its own.
pub(super) fn can_open_device() -> bool {
    open_device().is_ok()
}

/// Mounts at `point` and returns the descriptor by which the kernel asks.
pub(super) fn mount(point: &Path, directory: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let uid = rustix::process::geteuid();
    if !Path::new(DEVICE).exists() {
        return Err(MountError::NoDevice);
    }
    if !uid.is_root() {
        return mount_by_helper(point, &source_of(directory), options);
    }
    let held = rustix::fs::open(point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let held = held.map_err(|source| MountError::Mount { path: point.to_owned(), source })?;
    let whose = Whose { uid: uid.as_raw(), gid: rustix::process::getegid().as_raw() };
    mount_on(&held, point, directory, options, whose)
}

/// Who may use a mount, all others apart.
#[derive(Clone, Copy)]
pub(super) struct Whose {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Mounts as root on the directory that is held, at `point`.
pub(super) fn mount_on(
    held: &OwnedFd,
    point: &Path,
    directory: &Path,
    options: &MountOptions,
    whose: Whose,
) -> Result<OwnedFd, MountError> {
    let device = open_device().map_err(|source| match source {
        Errno::NODEV | Errno::NXIO | Errno::NOENT => MountError::NoDevice,
        source => MountError::Device { uid: rustix::process::geteuid().as_raw(), source },
    })?;
    let (number, Whose { uid, gid }) = (device.as_raw_fd(), whose);
    let other = if options.allow_other { ",allow_other" } else { "" };
    let data =
        format!("fd={number},rootmode={:o},user_id={uid},group_id={gid},default_permissions{other}", libc::S_IFDIR);
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if options.read_only {
        flags |= MountFlags::RDONLY;
    }
    let data = CString::new(data).unwrap_or_default();
    let (source, target) = (source_of(directory), format!("/proc/self/fd/{}", held.as_raw_fd()));
    rustix::mount::mount(&source, target, "fuse.stripewise", flags, data.as_c_str()).map_err(
        |source| match source {
            Errno::NODEV => MountError::NoDevice,
            source => MountError::Mount { path: point.to_owned(), source },
        },
    )?;
    Ok(device)
}

fn source_of(directory: &Path) -> OsString {
    let mut source = OsString::from(SOURCE);
    source.push(directory);
    source
}

/// By the program that mounts for every user, which sends the descriptor over a socket that it inherits.
fn mount_by_helper(point: &Path, source: &OsString, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let refused = |what: String| MountError::Helper { path: point.to_owned(), what };
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None);
    let (ours, theirs) = pair.map_err(|errno| refused(errno.to_string()))?;
    let _ = rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC);
    let mut list = OsString::from("nosuid,nodev,default_permissions,subtype=stripewise,fsname=");
    list.push(escaped(source));
    list.push(if options.allow_other { ",allow_other" } else { "" });
    list.push(if options.read_only { ",ro" } else { "" });
    let mut helper = Command::new(HELPER);
    helper.arg("-o").arg(list).arg("--").arg(point).env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    let started = helper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let started = started.map_err(|error| match error.kind() {
        // The latter also where a directory of PATH is closed to this user.
        std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => {
            MountError::NoHelper { uid: rustix::process::geteuid().as_raw() }
        }
        _ => refused(error.to_string()),
    })?;
    drop(theirs);
    let received = receive(&ours);
    let ended = started.wait_with_output().map_err(|error| refused(error.to_string()))?;
    match received {
        Some(device) => Ok(device),
        None => Err(refused(String::from_utf8_lossy(&ended.stderr).trim().to_owned())),
    }
}

/// In a list of options a comma separates and a backslash escapes.
fn escaped(name: &OsString) -> OsString {
    let escape = |byte: &u8| if matches!(byte, b',' | b'\\') { vec![b'\\', *byte] } else { vec![*byte] };
    OsString::from_vec(name.as_bytes().iter().flat_map(escape).collect())
}

fn receive(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)
    })
    .ok()?;
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// Takes the mount out of the tree; it ends when nobody uses it any more.
pub(super) fn unmount(point: &Path) {
    if rustix::mount::unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) == Err(Errno::PERM) {
        let mut helper = Command::new(HELPER);
        helper.args(["-u", "-q", "-z", "--"]).arg(point);
        let ended = helper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !ended.is_ok_and(|status| status.success()) {
            tracing::warn!("{} is still mounted; unmount it with `{HELPER} -u`", shown(point));
        }
    }
}

/// What is mounted at the absolute path itself.
pub(super) fn mounted_at(point: &Path) -> Option<String> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    // The last one lies on top.
    let lines = table.split(|byte| *byte == b'\n').rev();
    let mut words = lines.map(|line| line.split(|byte| *byte == b' ').collect::<Vec<_>>());
    let found = words.find(|words| words.get(4).is_some_and(|path| unescaped(path) == point.as_os_str().as_bytes()))?;
    let dash = found.iter().position(|word| *word == b"-")?;
    Some(String::from_utf8_lossy(&unescaped(found.get(dash + 2)?)).into_owned())
}

/// Whether a mount of that source is one of this program's.
pub(super) fn is_ours(source: &str) -> bool {
    source.starts_with(SOURCE)
}

/// Blanks and their like stand as three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), word);
    while let [first, others @ ..] = rest {
        let digits = others.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[3..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_mounts_are_read_as_they_are() {
        assert_eq!(unescaped(br"/a\040b\134c"), br"/a b\c");
        assert_eq!(unescaped(br"/a\9"), br"/a\9");
        assert_eq!(escaped(&r"a,b\c".into()), OsString::from(r"a\,b\\c"));
        assert_eq!(mounted_at(Path::new("/proc")).as_deref(), Some("proc"));
        assert_eq!(mounted_at(Path::new("/proc/self")), None);
    }
}
