//! Requests at the offsets 0, r, 2r, .. against the stripes of a cycle, in closed form.
//!
//! Few sampled offsets do not tell the load of servers: sixteen that are 4 MiB apart see a cycle of 4,128 KiB at sixteen places one behind the other.

/// The offsets 0, r, 2r, .. of requests of one size in a region: those of one period of request and cycle, or all where the region is shorter, each with
/// the share of the region's requests that meet the cycle alike. Where these are many, as many as wanted stand for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlignedOffsets {
    request_bytes: u64,
    /// In the region, at least 1.
    all: u64,
    /// Of one period, or of the region where that is shorter.
    count: u64,
    samples: u64,
    chosen: Chosen,
}

/// Which of the requests are looked at.
#[derive(Clone, Copy, Debug)]
enum Chosen {
    All,
    /// Of a whole period, those that begin at places of the cycle with equal distances: `first` is the number of the request at the first of them, and
    /// there are as many places as requests.
    Period {
        first: u64,
    },
    /// Of a part of a period, one out of each of equal parts of the region, at irregular distances: regular ones may be those of the cycle.
    Part,
}

impl AlignedOffsets {
    /// Sizes must be at least 1, and samples a power of two above that.
    pub(crate) fn of(cycle_bytes: u64, request_bytes: u64, region_bytes: u64, samples: u64) -> Self {
        let divisor = greatest_common_divisor(cycle_bytes, request_bytes);
        let period = cycle_bytes / divisor;
        let all = (region_bytes / request_bytes).max(1);
        let count = period.min(all);
        let chosen = if count <= samples {
            Chosen::All
        } else if count == period {
            Chosen::Period { first: inverse(request_bytes / divisor % count, count) }
        } else {
            Chosen::Part
        };
        Self { request_bytes, all, count, samples, chosen }
    }

    /// Requests of the region, at least 1.
    pub(crate) fn all(&self) -> u64 {
        self.all
    }

    /// Offsets that are looked at.
    pub(crate) fn sampled(&self) -> u64 {
        self.count.min(self.samples)
    }

    /// Whether no other request meets the cycle in another way than one of those that are looked at.
    pub(crate) fn covers_all(&self) -> bool {
        matches!(self.chosen, Chosen::All)
    }

    /// The share of the region's requests for which one of those offsets stands, by its number. A region that ends within a period has its first
    /// offsets once more than the others: where cycles are not far shorter than regions, the servers with the first stripes have the more of it.
    pub(crate) fn share(&self, number: u64) -> f64 {
        match self.chosen {
            Chosen::All => {
                let again = u64::from(number < self.all % self.count);
                (self.all / self.count + again) as f64 / self.all as f64
            }
            Chosen::Period { .. } | Chosen::Part => 1.0 / self.samples as f64,
        }
    }

    /// One of those, by its number from 0 to less than [`Self::sampled`].
    pub(crate) fn offset(&self, number: u64) -> u64 {
        let request = match self.chosen {
            Chosen::All => number,
            Chosen::Period { first } => {
                let place = number * self.count / self.samples;
                (u128::from(place) * u128::from(first) % u128::from(self.count)) as u64
            }
            Chosen::Part => {
                // Bits turned over: every place in its part once.
                let within = number.reverse_bits() >> (u64::BITS - self.samples.ilog2());
                (number * self.samples + within) * self.count / (self.samples * self.samples)
            }
        };
        request * self.request_bytes
    }
}

/// A stripe of every cycle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StripeOfCycle {
    /// Where it begins in the cycle.
    pub(crate) start: u64,
    /// At least 1, to the end of the cycle at most.
    pub(crate) bytes: u64,
    pub(crate) cycle_bytes: u64,
}

impl StripeOfCycle {
    /// Pairs of a request and a stripe of some cycle that it meets, over `length` bytes, the last of the requests one behind the other cut off at
    /// their end. Stripe [a, b] is met by floor(b / r) - floor(a / r) + 1 requests, and sums of floors of a line take O(log) steps.
    pub(crate) fn meetings(self, request_bytes: u64, length: u64) -> u64 {
        if self.start >= length {
            return 0;
        }
        let count = (length - self.start).div_ceil(self.cycle_bytes);
        let last = self.start + self.bytes - 1;
        let starts = floor_sum(count, request_bytes, self.cycle_bytes, self.start);
        let ends = floor_sum(count, request_bytes, self.cycle_bytes, last);
        // The very last stripe may go on behind the end.
        let last_end = last + (count - 1) * self.cycle_bytes;
        let truncated = if last_end < length { 0 } else { last_end / request_bytes - (length - 1) / request_bytes };
        ends - starts - truncated + count
    }

    /// Bytes of the stripe in the first `length` bytes.
    pub(crate) fn bytes_of(self, length: u64) -> u64 {
        let rest = (length % self.cycle_bytes).saturating_sub(self.start).min(self.bytes);
        length / self.cycle_bytes * self.bytes + rest
    }

    /// Of `count` requests one behind the other, how many touch the stripe of some cycle.
    pub(crate) fn touching(self, request_bytes: u64, count: u64) -> u64 {
        // Between two of its stripes there is no place for a longer request; a shorter one meets one of them at most.
        if request_bytes > self.cycle_bytes - self.bytes {
            return count;
        }
        self.meetings(request_bytes, count * request_bytes)
    }
}

/// The sum over k = 0 .. count - 1 of floor((a k + b) / m), in O(log m) steps: the sum over lattice points below a line, turned over like
/// Euclid's algorithm turns a pair of numbers.
fn floor_sum(count: u64, m: u64, a: u64, b: u64) -> u64 {
    let (mut count, mut m, mut a, mut b) = (u128::from(count), u128::from(m), u128::from(a), u128::from(b));
    let mut sum = 0u128;
    loop {
        sum += a / m * (count * count.saturating_sub(1) / 2) + b / m * count;
        a %= m;
        b %= m;
        let top = a * count + b;
        if top < m {
            return sum as u64;
        }
        (count, b) = (top / m, top % m);
        (m, a) = (a, m);
    }
}

/// Share of the request-aligned offsets, 0 to 1, at which a request touches the stripe that begins `start` bytes into the cycle, in closed form: request
/// borders fall on multiples of the divisor, and those inside the stripe are counted over a period.
#[must_use]
pub fn touched_share(start: u64, stripe_bytes: u64, cycle_bytes: u64, request_bytes: u64, region_bytes: u64) -> f64 {
    if request_bytes > cycle_bytes - stripe_bytes {
        return 1.0;
    }
    // Requests are aligned in the file: in regions they begin at multiples of what the request and the region have in common.
    let unit = greatest_common_divisor(request_bytes, region_bytes);
    let divisor = greatest_common_divisor(cycle_bytes, unit);
    let reach = request_bytes + stripe_bytes - 1 - (start + stripe_bytes - 1) % divisor + start % divisor;
    reach as f64 / cycle_bytes as f64
}

/// The largest number that divides both; the other one where one is 0.
#[must_use]
pub fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The number whose product with `a` leaves 1 when divided by `m`; both at least 1 and without a common divisor.
pub(crate) fn inverse(a: u64, m: u64) -> u64 {
    let (mut old, mut new) = ((i128::from(a % m), 1i128), (i128::from(m), 0i128));
    while new.0 != 0 {
        let quotient = old.0 / new.0;
        (old, new) = (new, (old.0 - quotient * new.0, old.1 - quotient * new.1));
    }
    old.1.rem_euclid(i128::from(m)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requests_and_bytes_on_a_stripe_are_those_of_a_walk_over_all(
            start in 0u64..50, bytes in 1u64..40, rest in 0u64..60, request in 1u64..150, count in 1u64..60,
        ) {
            let stripe = StripeOfCycle { start, bytes, cycle_bytes: start + bytes + rest };
            let on = |byte: &u64| (start..start + bytes).contains(&(byte % stripe.cycle_bytes));
            let touching = (0..count).filter(|k| (k * request..(k + 1) * request).any(|byte| on(&byte))).count();
            prop_assert_eq!(stripe.touching(request, count), touching as u64);
            prop_assert_eq!(stripe.bytes_of(count * request), (0..count * request).filter(on).count() as u64);
        }

        #[test]
        fn an_inverse_gives_1(a in 1u64..10_000, m in 1u64..10_000) {
            prop_assume!(greatest_common_divisor(a, m) == 1);
            prop_assert_eq!(u128::from(inverse(a, m)) * u128::from(a) % u128::from(m), 1 % u128::from(m));
        }
    }
}
