//! Links between the agents of a cluster's hosts: TCP, TLS 1.3 with one key pair of the cluster, and frames.
//!
//! Both sides of a link may ask questions, answer them and send notices at any time. What the bytes of a question mean is not known here.
//!
//! # How a link begins
//!
//! One side listens ([`Listener`]), the other connects ([`connect`]). In the TLS handshake each proves that it has the cluster's private key
//! ([`ClusterKey`]) and expects the cluster's public key of the other. These are raw public keys (RFC 7250): there is no certificate, so there are
//! no dates, and hosts whose clocks differ by hours can talk. Then each sends one [`Introduction`]. Each refuses another version of the frames or
//! of the messages, another cluster, and a host name that two machines have. The listening side calls [`Hears::met`] first; if that accepts, the
//! connecting side calls its own. Nothing is asked before both have accepted.
//!
//! # While it lasts
//!
//! Whoever sends puts a frame into the link's queue. If nobody else is writing, the same thread encrypts it and writes it to the socket. Otherwise
//! the link's thread does, which also reads and sends a ping each second when there is nothing else to send. It takes answers to those who
//! wait for them and puts questions and notices into the inbox. Worker threads empty the inbox in order: one notice at a time, each before any
//! later question; questions side by side. Workers are started when all are busy and end when they have been idle.
//!
//! # What bounds it
//!
//! A side may have [`MAX_QUESTIONS`] unanswered questions on a link, of [`MAX_QUESTION_BYTES`] together; an asker waits while there are so many.
//! A link has a worker for each, so that no slow question delays another, nor a notice. The queue of frames to be sent is bounded, and a sender waits while it is full. While
//! too many notices wait in the inbox, the link's thread does not read.
//!
//! # How it ends
//!
//! A link from which nothing came for [`Limits::silence`] ends. So do links whose socket breaks, whose other side closes, or from which bytes
//! come that are no frames. Whoever waits for an answer gets the reason. [`Hears::left`] follows when the last question has been heard.

mod address;
mod asked;
mod error;
mod frame;
mod greeting;
mod hears;
mod inbox;
mod introduction;
mod key;
mod key_files;
mod limits;
mod link;
mod listener;
mod outgoing;
mod peer;
mod refusals;
mod socket;
mod threads;
mod tls;
mod wire;

#[cfg(test)]
mod tests;

pub use address::address_of;
pub use asked::{MAX_QUESTION_BYTES, MAX_QUESTIONS};
pub use error::LinkError;
pub use frame::{Decoder, FRAMES_VERSION, Frame, FrameError, Kind, MAX_FRAME_BYTES, Received, encode_hello};
pub use greeting::{connect, connect_with};
pub use hears::Hears;
pub use introduction::Introduction;
pub use key::{ClusterKey, KeyError};
pub(crate) use key_files::KeyFiles;
pub use limits::Limits;
pub use listener::Listener;
pub use peer::{Peer, Question};
