//! Which requests find a disk's head where the last one left it.

use stripewise_layout::Order;
use stripewise_trace::Company;

/// Recent streams that a disk is taken to follow. No data sheet states it: eight is the order of the cache segments of drives with 8 MB of
/// cache. Ours; a profile does not carry it.
pub const FOLLOWED_STREAMS: u32 = 8;

/// What a disk sees of the order of requests.
///
/// A process that reads on where it left off finds the disk there only if not too many other streams met on the disk meanwhile: with one request in
/// flight per process the disk serves the streams nearly in turn, and follows the last [`FOLLOWED_STREAMS`] of them. On the other hand ranks that
/// together march through a shared file, each with a stride, are random by themselves and sequential to the disk.
///
/// A process that comes back to a disk, from the other servers of its region, meets all who have been there meanwhile. One whose last request was to the same stripe stays:
/// it meets those only who are there just now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Streaming {
    /// Processes that access the file at the same time.
    pub processes: u32,
    /// Share of the file's accessed data, 0 to 1, that lies on one disk wholly or in part: the probability that a process is busy there.
    pub presence: f64,
    /// Share of the file's requests, 0 to 1 and at most `presence`, that touch the disk: the probability that a process is there just now.
    pub touching: f64,
    /// [`Company::adjoining`] of the window.
    pub adjoining: f64,
}

impl Streaming {
    /// Every class keeps the order that the trace says: what a policy may assume that knows nothing of the other regions.
    pub const AS_TRACED: Streaming = Streaming { processes: 1, presence: 1.0, touching: 1.0, adjoining: 0.0 };

    /// `presence` and `touching` as in the fields.
    #[must_use]
    pub fn of(company: Company, processes: u32, presence: f64, touching: f64) -> Self {
        let presence = presence.clamp(0.0, 1.0);
        let adjoining = company.adjoining.clamp(0.0, 1.0);
        Self { processes, presence, touching: touching.clamp(0.0, presence), adjoining }
    }

    /// Share of the requests of `order` by processes that come from other servers, 0 to 1, that find the disk where a recent one left it; the others pay the random startup.
    #[must_use]
    pub fn continuing(&self, order: Order) -> f64 {
        self.share(order, self.presence)
    }

    /// The same of processes that stay.
    #[must_use]
    pub fn staying(&self, order: Order) -> f64 {
        self.share(order, self.touching)
    }

    fn share(&self, order: Order, presence: f64) -> f64 {
        match order {
            Order::Random => self.adjoining,
            Order::Sequential => self.followed(presence).max(self.adjoining),
        }
    }

    /// Probability that at most [`FOLLOWED_STREAMS`] - 1 of the other processes are busy on the disk, each with probability `presence`
    /// and independently.
    fn followed(&self, presence: f64) -> f64 {
        let others = self.processes.saturating_sub(1);
        if others < FOLLOWED_STREAMS {
            return 1.0;
        }
        if presence >= 1.0 {
            return 0.0;
        }
        // Binomial: P(0) = (1 - q)^n, P(k + 1) = P(k) (n - k) / (k + 1) q / (1 - q).
        let (n, odds) = (f64::from(others), presence / (1.0 - presence));
        let mut term = (1.0 - presence).powf(n);
        let mut sum = term;
        for k in 0..FOLLOWED_STREAMS - 1 {
            let k = f64::from(k);
            term *= (n - k) / (k + 1.0) * odds;
            sum += term;
        }
        sum.min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_follows_few_streams_and_loses_many() {
        let streams = |processes, presence| Streaming { processes, presence, touching: presence / 4.0, adjoining: 0.0 };
        let share = |processes, presence| streams(processes, presence).continuing(Order::Sequential);
        assert_eq!((share(1, 1.0), share(8, 1.0), share(9, 1.0)), (1.0, 1.0, 0.0));
        // 32 processes on regions spread over 16 disks: two meet on each.
        assert!(share(32, 1.0 / 16.0) > 0.99);
        // P(Binomial(16, 1/2) <= 7) = (1 - C(16, 8) / 2^16) / 2.
        assert!((share(17, 0.5) - (1.0 - 12_870.0 / 65_536.0) / 2.0).abs() < 1e-12);
        assert!(share(128, 0.5) < 1e-9);
        // Of the 16 others four are there at a time.
        assert!((0.95..1.0).contains(&streams(17, 1.0).staying(Order::Sequential)));
    }

    #[test]
    fn ranks_that_march_together_are_sequential_to_the_disk() {
        let company = Company { same_region: 0.9, adjoining: 0.97, ..Company::default() };
        let streaming = Streaming::of(company, 32, 1.0, 1.0);
        assert_eq!((streaming.continuing(Order::Random), streaming.continuing(Order::Sequential)), (0.97, 0.97));
        assert_eq!(Streaming::AS_TRACED.continuing(Order::Random), 0.0);
        assert_eq!(Streaming::AS_TRACED.continuing(Order::Sequential), 1.0);
    }
}
