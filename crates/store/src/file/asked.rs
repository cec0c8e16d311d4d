//! What a request on a file that other hosts use has asked before it believes what it sees.
//!
//! Size and places in this host's memory lag behind what other hosts did until somebody asks ([`Request::Refresh`](crate::protocol::Request::Refresh)). A
//! request asks where what it sees would have it read less than others may have written: its end lies beyond the size, or a region has no place. After that
//! a region without a place is a hole, and the size is the size, as long as no place was taken from this host's view since: then it asks again.
//!
//! A request within the size and within regions that have places asks nothing. Neither does any request where one host uses the file.

use super::core::FileCore;

/// What was asked, if anything: how many places this host had lost by then.
#[derive(Clone, Copy, Default)]
pub(super) struct Asked(Option<u32>);

impl Asked {
    /// To be taken right before the question is put.
    pub(super) fn now(file: &FileCore) -> Self {
        Self(Some(file.control().regions().retractions()))
    }

    /// Whether an absent region that was just seen is a hole, and the size that was just seen the size.
    #[inline]
    pub(super) fn is_enough(self, file: &FileCore) -> bool {
        !file.is_shared() || self.0 == Some(file.control().regions().retractions())
    }
}
