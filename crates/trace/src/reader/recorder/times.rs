//! When calls were: two numbers of 32 bits for each, start and end in units since the start of the call before.
//!
//! The numbers wrap. Calls of several threads stand in the order of their ends, so that one may have begun before the one before it; a call may also
//! last longer than a number can say.

/// Of which a number beyond it is a step backwards.
const LARGEST_STEP: i64 = (1 << 32) - (1 << 24);
const WRAP: i64 = 1 << 32;

/// Start and end of each call of a rank, in nanoseconds since 1970.
#[derive(Clone)]
pub(super) struct Times<'a> {
    pairs: &'a [[u8; 8]],
    origin_ns: i64,
    unit_ns: f64,
    /// Units from the origin to the start of the call before.
    before: i64,
}

impl<'a> Times<'a> {
    pub(super) fn new(bytes: &'a [u8], origin_ns: i64, unit_ns: f64) -> Self {
        Self { pairs: bytes.as_chunks().0, origin_ns, unit_ns, before: 0 }
    }

    /// Of how many calls the times follow.
    pub(super) fn left(&self) -> u64 {
        self.pairs.len() as u64
    }

    fn ns(&self, units: i64) -> u64 {
        let ns = self.origin_ns.saturating_add((units as f64 * self.unit_ns).round() as i64);
        u64::try_from(ns).unwrap_or(0)
    }
}

impl Iterator for Times<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let ([start @ .., _, _, _, _], [_, _, _, _, end @ ..]) = (self.pairs.first()?, self.pairs.first()?);
        self.pairs = &self.pairs[1..];
        let (mut start, mut end) = (i64::from(u32::from_le_bytes(*start)), i64::from(u32::from_le_bytes(*end)));
        if start >= LARGEST_STEP || (end < start && start >= WRAP / 2) {
            start -= WRAP;
            end -= if end >= LARGEST_STEP { WRAP } else { 0 };
        } else if end < start {
            end += WRAP;
        }
        let (from, to) = (self.before.saturating_add(start), self.before.saturating_add(end));
        self.before = from;
        Some((self.ns(from), self.ns(to)))
    }
}
