//! What a host does with what others ask and report.

use super::error::LinkError;
use super::peer::Peer;
use std::sync::Arc;

/// What a host does with what others ask and report.
pub trait Hears: Send + Sync {
    /// Answers a question. It is called by a thread of its own for every question and may block; several are called at once, also of one peer.
    fn hear(&self, from: &Arc<Peer>, question: Vec<u8>) -> Vec<u8>;

    /// Takes a notice. Notices of a peer are taken one at a time, in the order in which they were sent, and before any later question of that peer is heard.
    /// Must not block for long: the peer's later questions wait.
    fn notified(&self, from: &Arc<Peer>, notice: Vec<u8>);

    /// A peer has connected and introduced itself. Notices and questions to it are sent only after both sides have accepted
    /// the link, so this must not wait for an answer of the peer. An error refuses it: the other side gets the text as its error.
    fn met(&self, peer: &Arc<Peer>) -> Result<(), String>;

    /// The link has ended. It is called once for every peer that [`Hears::met`] accepted, after everything that came from it was heard.
    fn left(&self, peer: &Arc<Peer>, why: &LinkError);
}
