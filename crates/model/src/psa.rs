//! The file cost of PSA, as H2DP sections 5.1 and 6 and its reference 40 describe it: hybrid cost for the requests that the SServers have
//! space for, HServers-only cost for the rest. The request costs are those of [`crate::h2dp`].

use crate::Picoseconds;

/// What decides how many of a file's requests find their data on hybrid servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PsaExtent {
    /// k: requests.
    pub requests: u64,
    /// r in bytes, at least 1.
    pub request_bytes: u64,
    /// Bytes of the file that requests touch; what repeats is known from it.
    pub file_bytes: u64,
    /// C_s: room on each SServer for this file, in bytes.
    pub room_bytes: u64,
}

impl PsaExtent {
    /// Requests that hybrid servers serve, at most k: min(k, floor(C_s / s)) when every request touches other bytes. Requests that
    /// come back to the same bytes need no further room, so then the share of the file that fits counts:
    /// k min(1, floor(C_s / s) / ceil(file bytes / r)).
    #[must_use]
    pub fn hybrid_requests(&self, s_bytes: u64) -> u64 {
        if s_bytes == 0 {
            return self.requests;
        }
        let fitting = self.room_bytes / s_bytes;
        let distinct = self.file_bytes.div_ceil(self.request_bytes.max(1)).max(1);
        if self.requests > distinct {
            let share = u128::from(self.requests) * u128::from(fitting.min(distinct)) / u128::from(distinct);
            share as u64
        } else {
            self.requests.min(fitting)
        }
    }

    /// hybrid x T_hybrid + rest x T_pure, given the costs of all k requests under either placement.
    #[must_use]
    pub fn file_cost(&self, s_bytes: u64, all_hybrid: Picoseconds, all_pure: Picoseconds) -> Picoseconds {
        let requests = u128::from(self.requests.max(1));
        let hybrid = u128::from(self.hybrid_requests(s_bytes));
        let (on_hybrid, on_pure) = (all_hybrid.0.checked_mul(hybrid), all_pure.0.checked_mul(requests - hybrid));
        match on_hybrid.zip(on_pure).and_then(|(a, b)| a.checked_add(b)) {
            Some(sum) => Picoseconds(sum / requests),
            // Past 2^128 no trace of a run reaches; rounding is then of no concern.
            None => {
                let share = |all: Picoseconds, count| (all.0 / requests).saturating_mul(count);
                Picoseconds(share(all_hybrid, hybrid).saturating_add(share(all_pure, requests - hybrid)))
            }
        }
    }
}
