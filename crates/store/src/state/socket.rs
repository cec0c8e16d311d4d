//! The socket at which the broker answers, in `run/` of the state directory.
//!
//! The kernel says whose the other end is, so that nobody else's process is taken for the broker.

use super::{StateDirectory, StateError};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::path::Path;

const SOCKET: &str = "broker.sock";

impl StateDirectory {
    /// The broker's listening socket. What a predecessor left is replaced: call with the lock held.
    ///
    /// # Errors
    ///
    /// [`StateError::Os`].
    pub fn listen(&self) -> Result<OwnedFd, StateError> {
        match rustix::fs::unlinkat(&self.run, SOCKET, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(source) => return Err(self.fault("run", "remove the old socket")(source)),
        }
        let make = || {
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            rustix::net::bind(&socket, &socket_address(&self.run)?)?;
            rustix::fs::chmodat(&self.run, SOCKET, Mode::from_raw_mode(0o666), AtFlags::empty())?;
            rustix::net::listen(&socket, 1024)?;
            Ok(socket)
        };
        make().map_err(self.fault("run", "listen"))
    }
}

/// Connects to the broker of the state directory at `path`.
///
/// # Errors
///
/// [`StateError::NoBroker`] if nobody listens, [`StateError::Foreign`] if another user does,
/// otherwise [`StateError::Os`].
pub fn connect(path: &Path) -> Result<OwnedFd, StateError> {
    let fault = |action| move |source| StateError::Os { path: path.to_owned(), action, source };
    // O_PATH: other users may pass through the directory but not read it.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let run = rustix::fs::open(path.join("run"), flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT => StateError::NoBroker { path: path.to_owned() },
        source => fault("open")(source),
    })?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(fault("make a socket"))?;
    let address = socket_address(&run).map_err(fault("name the socket"))?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => match check_peer(&socket, &run) {
            Ok(()) => Ok(socket),
            Err(Errno::PERM) => {
                Err(StateError::Foreign { path: path.join("run").join(SOCKET), what: "another user's socket" })
            }
            Err(source) => Err(fault("see whose the broker is")(source)),
        },
        Err(Errno::NOENT | Errno::CONNREFUSED) => Err(StateError::NoBroker { path: path.to_owned() }),
        Err(source) => Err(fault("connect to the broker")(source)),
    }
}

/// Through the descriptor, since a socket's name has at most 107 bytes and a path any number.
fn socket_address(run: &OwnedFd) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/{SOCKET}", run.as_raw_fd()))
}

/// Refuses what `socket` is connected to if it is not of the user whose directory `run` is.
fn check_peer(socket: &OwnedFd, run: &OwnedFd) -> rustix::io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    if peer.uid.as_raw() == rustix::fs::fstat(run)?.st_uid { Ok(()) } else { Err(Errno::PERM) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_too_long_for_a_socket_works_and_the_directory_is_private() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d".repeat(120)).join("e".repeat(120));
        let state = StateDirectory::make(&path).unwrap();
        assert!(matches!(connect(&path), Err(StateError::NoBroker { .. })));
        let listener = state.listen().unwrap();
        let client = connect(&path).unwrap();
        let server = rustix::net::accept(&listener).unwrap();
        crate::packet::send(&client, &7u32, &[]).unwrap();
        assert_eq!(crate::packet::receive::<u32>(&server, &mut Default::default()).unwrap().0, 7);
        let mode = |name: &str| std::fs::symlink_metadata(path.join(name)).unwrap().mode() & 0o777;
        assert_eq!((mode(""), mode("run"), mode("run/broker.sock")), (0o700, 0o711, 0o666));
        state.open_to_others().unwrap();
        assert_eq!((mode(""), mode("run"), mode("run/broker.sock"), mode("rmt")), (0o711, 0o711, 0o666, 0o700));
    }
}
