//! Packets with descriptors over a `SOCK_SEQPACKET` Unix socket.

use crate::protocol::MAX_PACKET_BYTES;
use crate::zeroed::zeroed;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{IoSlice, IoSliceMut};

/// Descriptors that one packet may carry.
pub const MAX_DESCRIPTORS: usize = 4;

/// Why a message did not go or come.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// Nothing more will come on this connection.
    #[error("the other side closed the connection")]
    Closed,
    /// The message is too long for a packet, or the kernel dropped descriptors for want of free
    /// numbers.
    #[error("a packet of more than {MAX_PACKET_BYTES} bytes or with lost descriptors")]
    Truncated,
    /// The bytes are no message of that type; the other side is of another build.
    #[error("a packet that does not fit the protocol: {0}")]
    Malformed(#[from] postcard::Error),
    /// The kernel refused.
    #[error("socket: {0}")]
    Os(Errno),
}

impl From<Errno> for PacketError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::SHUTDOWN => PacketError::Closed,
            other => PacketError::Os(other),
        }
    }
}

/// The packet of a message.
///
/// # Errors
///
/// [`PacketError::Truncated`] above [`MAX_PACKET_BYTES`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, PacketError> {
    let bytes = postcard::to_stdvec(message)?;
    if bytes.len() > MAX_PACKET_BYTES { Err(PacketError::Truncated) } else { Ok(bytes) }
}

/// The message of a packet.
///
/// # Errors
///
/// [`PacketError::Malformed`], or [`PacketError::Closed`] for an empty packet.
pub fn decode<T: DeserializeOwned>(packet: &[u8]) -> Result<T, PacketError> {
    if packet.is_empty() { Err(PacketError::Closed) } else { Ok(postcard::from_bytes(packet)?) }
}

/// Sends `message` with `descriptors`; blocks while the peer's queue is full.
///
/// # Errors
///
/// [`PacketError::Truncated`] above [`MAX_PACKET_BYTES`], [`PacketError::Closed`] or
/// [`PacketError::Os`].
///
/// # Panics
///
/// Above [`MAX_DESCRIPTORS`] descriptors.
pub fn send<T: Serialize>(socket: impl AsFd, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<(), PacketError> {
    let bytes = encode(message)?;
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(descriptors.len() <= MAX_DESCRIPTORS && control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    loop {
        match rustix::net::sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
            Ok(_) => return Ok(()),
        }
    }
}

/// Room for any packet, used for one after the other. Packets are short, most of them of some 30 bytes, and pages that none has reached take no memory.
#[derive(Debug)]
pub struct Buffer(Box<[u8]>);

impl Default for Buffer {
    fn default() -> Self {
        // SAFETY: zero is a byte.
        Self(unsafe { zeroed(MAX_PACKET_BYTES) })
    }
}

/// Waits for one message and the descriptors that came with it (closed on exec). On a socket with a limit of time the wait ends with
/// [`PacketError::Os`] of [`Errno::AGAIN`].
///
/// # Errors
///
/// [`PacketError::Closed`], [`PacketError::Malformed`], [`PacketError::Truncated`] also where
/// descriptors were lost, or [`PacketError::Os`].
pub fn receive<T: DeserializeOwned>(socket: impl AsFd, buffer: &mut Buffer) -> Result<(T, Vec<OwnedFd>), PacketError> {
    receive_by(RecvFlags::empty(), socket, buffer)
}

/// As [`receive`] of a packet that has come; `None`: none has.
pub fn receive_now<T: DeserializeOwned>(
    socket: impl AsFd,
    buffer: &mut Buffer,
) -> Option<Result<(T, Vec<OwnedFd>), PacketError>> {
    match receive_by(RecvFlags::DONTWAIT, socket, buffer) {
        Err(PacketError::Os(Errno::AGAIN)) => None,
        received => Some(received),
    }
}

fn receive_by<T: DeserializeOwned>(
    how: RecvFlags,
    socket: impl AsFd,
    buffer: &mut Buffer,
) -> Result<(T, Vec<OwnedFd>), PacketError> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let (message, flags) = receive_into(how, socket, buffer, &mut control);
    let descriptors = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if flags.contains(ReturnFlags::CTRUNC) {
        return Err(PacketError::Truncated);
    }
    Ok((message?, descriptors))
}

/// As [`receive`], but descriptors that come along are left to the kernel, which never gives them a number here: closing a descriptor
/// drops this process's record locks on its file.
///
/// # Errors
///
/// Those of [`receive`]; descriptors that were left are none.
pub fn receive_message<T: DeserializeOwned>(socket: impl AsFd, buffer: &mut Buffer) -> Result<T, PacketError> {
    receive_into(RecvFlags::empty(), socket, buffer, &mut RecvAncillaryBuffer::new(&mut [])).0
}

fn receive_into<T: DeserializeOwned>(
    how: RecvFlags,
    socket: impl AsFd,
    Buffer(bytes): &mut Buffer,
    control: &mut RecvAncillaryBuffer<'_>,
) -> (Result<T, PacketError>, ReturnFlags) {
    let received = loop {
        let mut buffers = [IoSliceMut::new(bytes)];
        match rustix::net::recvmsg(&socket, &mut buffers, control, how | RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(errno) => return (Err(errno.into()), ReturnFlags::empty()),
            Ok(received) => break received,
        }
    };
    let message = match received.flags.contains(ReturnFlags::TRUNC) {
        true => Err(PacketError::Truncated),
        false => decode(&bytes[..received.bytes]),
    };
    (message, received.flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::io::{Read, Seek, Write};

    #[test]
    fn messages_and_descriptors_arrive_and_closing_is_seen() {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut buffer = Buffer::default();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"hello").unwrap();
        send(&a, &("open", 7u64), &[file.as_fd()]).unwrap();
        send(&a, &("plain", 8u64), &[]).unwrap();
        let ((word, number), mut descriptors) = receive::<(String, u64)>(&b, &mut buffer).unwrap();
        assert_eq!((word.as_str(), number, descriptors.len()), ("open", 7, 1));
        let mut passed = std::fs::File::from(descriptors.remove(0));
        let mut text = String::new();
        passed.rewind().unwrap();
        passed.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        let plain = receive_now::<(String, u64)>(&b, &mut buffer).expect("it has come").unwrap();
        assert_eq!(plain.0, ("plain".to_owned(), 8));
        assert!(receive_now::<(String, u64)>(&b, &mut buffer).is_none(), "nothing else has");
        assert!(matches!(send(&a, &vec![0u8; MAX_PACKET_BYTES + 1], &[]), Err(PacketError::Truncated)));
        drop(a);
        assert!(matches!(receive::<u8>(&b, &mut buffer), Err(PacketError::Closed)));
    }
}
