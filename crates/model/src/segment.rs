//! The model of Segment-level layout, whose poster names a "parallel I/O cost model" without printing it, and its measure of imbalance.
//!
//! The model is the one that follows from Cost-intelligent table 2 when the stripe st is free instead of the layout. A request of s bytes
//! touches w = min(n, ceil(s / st)) servers and puts b = min(s, st ceil(s / (n st))) bytes on the fullest of them, and q = ceil(p w / n)
//! requests meet on each server. At st = s / n it is 1-DH, at st >= s it is 1-DV.

use crate::offsets::StripeOfCycle;
use crate::{Coefficients, Concurrency, RequestCost};

/// The average access pattern of a segment (the poster's step 2) on n equal servers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SegmentPattern {
    /// n, at least 1.
    pub servers: u32,
    /// s, at least 1.
    pub request_bytes: u64,
    /// p and m.
    pub concurrency: Concurrency,
    /// alpha and beta.
    pub line: Coefficients,
    /// e in seconds.
    pub e_s: f64,
    /// v in seconds per byte.
    pub v_s_per_byte: f64,
}

impl SegmentPattern {
    /// T = max(m w, q) e + max(m s, q b) v + q (alpha + b beta) with stripes of `stripe_bytes`, at least 1.
    #[must_use]
    pub fn cost(&self, stripe_bytes: u64) -> RequestCost {
        let (p, m) = self.concurrency.factors();
        let (n, s) = (u64::from(self.servers.max(1)), self.request_bytes.max(1));
        let touched = s.div_ceil(stripe_bytes).min(n) as f64;
        let cycles = s.div_ceil(n.saturating_mul(stripe_bytes));
        let fullest_bytes = stripe_bytes.saturating_mul(cycles).min(s) as f64;
        let queue = (p * touched / n as f64).ceil();
        RequestCost {
            establish_s: (m * touched).max(queue) * self.e_s,
            transfer_s: (m * s as f64).max(queue * fullest_bytes) * self.v_s_per_byte,
            storage_s: queue * self.line.seconds(fullest_bytes),
        }
    }
}

/// How many stripes of each server requests of `request_bytes` access when one begins at each of the offsets 0, r, 2r, .. of a segment,
/// the last one cut off at its end. Stripe i lies on server i mod n.
///
/// The poster counts the stripes of the traced requests themselves; plans are made from counts of request classes, which hold no offsets,
/// so aligned ones stand for them, as in [`crate::striped::exact_cost`]. Sizes must be at least 1 byte and below 2^40 bytes.
#[must_use]
pub fn stripes_accessed(segment_bytes: u64, stripe_bytes: u64, request_bytes: u64, servers: u32) -> Vec<u64> {
    let cycle_bytes = u64::from(servers.max(1)) * stripe_bytes;
    let of_server = |server| StripeOfCycle { start: server * stripe_bytes, bytes: stripe_bytes, cycle_bytes };
    (0..u64::from(servers.max(1))).map(|server| of_server(server).meetings(request_bytes, segment_bytes)).collect()
}

/// sigma = L_max / L_avg - 1 over the stripes accessed on each server; 0 without any.
#[must_use]
pub fn imbalance(stripes: impl Iterator<Item = f64> + Clone) -> f64 {
    let (mut most, mut sum, mut count) = (0.0f64, 0.0, 0.0);
    for accessed in stripes {
        most = most.max(accessed);
        sum += accessed;
        count += 1.0;
    }
    if sum > 0.0 { most * count / sum - 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost_intelligent::{ProcessLayout, TableForm, request_cost};
    use crate::parameters::tests::uniform;
    use proptest::prelude::*;
    use stripewise_layout::{Direction, Order};
    use stripewise_trace::AccessClass;

    proptest! {
        #[test]
        fn a_stripe_of_s_over_n_is_1_dh_and_one_of_s_is_1_dv(
            n in 1u32..40, p in 1u32..200, m in 1u32..20, share in 1u64..1 << 20, beyond in 0u64..1 << 20,
        ) {
            let parameters = uniform(n);
            let request_bytes = share * u64::from(n);
            let class = AccessClass { kind: Direction::Write.into(), request_bytes, order: Order::Random };
            let concurrency = Concurrency { processes: p, processes_per_node: m };
            let pattern = SegmentPattern {
                servers: n,
                request_bytes,
                concurrency,
                line: parameters.of_class(class.kind, class.order),
                e_s: parameters.e_s,
                v_s_per_byte: parameters.v_s_per_byte,
            };
            for (stripe_bytes, layout) in [(share, ProcessLayout::OneDh), (request_bytes + beyond, ProcessLayout::OneDv)] {
                let (found, table) =
                    (pattern.cost(stripe_bytes), request_cost(&parameters, layout, TableForm::Corrected, class, concurrency));
                for (found, table) in [
                    (found.establish_s, table.establish_s),
                    (found.transfer_s, table.transfer_s),
                    (found.storage_s, table.storage_s),
                ] {
                    prop_assert!((found - table).abs() <= 1e-12 * table, "{layout:?}: {found} {table}");
                }
            }
        }

        #[test]
        fn stripes_accessed_are_those_of_a_walk_over_all_requests(
            segment in 1u64..3000, stripe in 1u64..200, request in 1u64..400, n in 1u32..9,
        ) {
            let mut walked = vec![0u64; n as usize];
            for start in (0..segment).step_by(request as usize) {
                let last = (start + request).min(segment) - 1;
                for number in start / stripe..=last / stripe {
                    walked[(number % u64::from(n)) as usize] += 1;
                }
            }
            prop_assert_eq!(stripes_accessed(segment, stripe, request, n), walked);
        }
    }

    #[test]
    fn imbalance_is_the_most_over_the_mean_less_1() {
        let of = |stripes: &[f64]| imbalance(stripes.iter().copied());
        assert_eq!(of(&[3.0, 3.0, 3.0]), 0.0);
        assert_eq!(of(&[6.0, 2.0, 1.0]), 1.0);
        assert_eq!((of(&[]), of(&[0.0, 0.0])), (0.0, 0.0));
        // 64 MiB in stripes of 4 MiB: 16 stripes over 12 servers, four of which get two.
        let stripes = stripes_accessed(64 << 20, 4 << 20, 1 << 20, 12);
        assert_eq!(stripes[..5], [8, 8, 8, 8, 4]);
        assert_eq!(imbalance(stripes.iter().map(|n| *n as f64)), 0.5);
    }
}
