//! One region's layout: a cycle of (server, stripe size) pairs repeated round-robin over the region's bytes.
//!
//! With cycle length C, stripe sizes s_i and their prefix sums P_i, the bytes of `[0, y)` that lie on server i are
//! `(y / C) s_i + clamp(y mod C - P_i, 0, s_i)`. Since a server's pieces of consecutive cycles are contiguous in its object, the
//! part of any range on one server is a single object range whose ends this formula gives: one sub-request per server.

use crate::{ObjectOffset, RegionOffset, ServerId};
use serde::{Deserialize, Serialize};

/// Most servers one cycle may name. Requests are split on the stack, so the bound is fixed.
pub const MAX_SERVERS_PER_LAYOUT: usize = 256;

/// One turn of a layout's cycle: `size_bytes` on `server`. The control block stores this as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[repr(C)]
pub struct Stripe {
    /// Where the stripe lies.
    pub server: ServerId,
    #[serde(skip)]
    reserved: u16,
    /// Stripe size in bytes; more than 0 in a [`Layout`].
    pub size_bytes: u32,
}

impl Stripe {
    /// A stripe of `size_bytes` on `server`, whatever the size; [`Layout::new`] leaves out those of
    /// 0 bytes.
    #[must_use]
    pub const fn new(server: ServerId, size_bytes: u32) -> Self {
        Self { server, reserved: 0, size_bytes }
    }
}

/// Why a list of (server, stripe size) pairs is no layout.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LayoutError {
    /// No pair has a stripe size above 0.
    #[error("a layout needs at least one server with a stripe larger than 0")]
    Empty,
    /// More than [`MAX_SERVERS_PER_LAYOUT`] pairs have a stripe size above 0.
    #[error("a layout names {count} servers; at most {MAX_SERVERS_PER_LAYOUT} are supported")]
    TooManyServers {
        /// Pairs with a stripe size above 0.
        count: usize,
    },
    /// Two pairs name the same server.
    #[error("a layout names server {server} twice; give it one larger stripe instead")]
    ServerTwice {
        /// The first such server by number.
        server: ServerId,
    },
}

/// An owned layout: at least one stripe, none of size 0, no server twice.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(try_from = "Vec<(ServerId, u32)>", into = "Vec<(ServerId, u32)>")]
pub struct Layout {
    stripes: Vec<Stripe>,
}

impl TryFrom<Vec<(ServerId, u32)>> for Layout {
    type Error = LayoutError;
    fn try_from(pairs: Vec<(ServerId, u32)>) -> Result<Self, LayoutError> {
        Layout::new(pairs)
    }
}

impl From<Layout> for Vec<(ServerId, u32)> {
    fn from(layout: Layout) -> Self {
        layout.stripes.iter().map(|stripe| (stripe.server, stripe.size_bytes)).collect()
    }
}

impl Layout {
    /// Pairs with stripe size 0 are left out: a server that stores nothing of a region takes no part in it.
    ///
    /// # Errors
    ///
    /// [`LayoutError::Empty`] if no pair is left, [`LayoutError::TooManyServers`] or
    /// [`LayoutError::ServerTwice`].
    pub fn new(pairs: impl IntoIterator<Item = (ServerId, u32)>) -> Result<Self, LayoutError> {
        let stripes: Vec<Stripe> =
            pairs.into_iter().filter(|(_, size)| *size > 0).map(|(server, size)| Stripe::new(server, size)).collect();
        if stripes.is_empty() {
            return Err(LayoutError::Empty);
        }
        if stripes.len() > MAX_SERVERS_PER_LAYOUT {
            return Err(LayoutError::TooManyServers { count: stripes.len() });
        }
        let mut servers: Vec<ServerId> = stripes.iter().map(|stripe| stripe.server).collect();
        servers.sort_unstable();
        if let Some(pair) = servers.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(LayoutError::ServerTwice { server: pair[0] });
        }
        Ok(Self { stripes })
    }

    /// The layout borrowed, with its cycle length summed once.
    #[must_use]
    pub fn view(&self) -> StripeView<'_> {
        StripeView::new(&self.stripes)
    }

    /// The stripes in the order of their turns.
    #[must_use]
    pub fn stripes(&self) -> &[Stripe] {
        &self.stripes
    }
}

/// A borrowed layout, as the data path uses it straight from mapped memory. Copying it is free.
#[derive(Clone, Copy, Debug)]
pub struct StripeView<'a> {
    stripes: &'a [Stripe],
    cycle_bytes: u64,
}

/// Where one byte of a region lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Position in the cycle, from 0.
    pub turn: usize,
    /// The server of that turn.
    pub server: ServerId,
    /// Position in the object that `server` stores of the region.
    pub offset: ObjectOffset,
    /// Bytes from here to the end of this stripe.
    pub contiguous_bytes: u64,
}

/// The part of a request that one server serves: one contiguous range of its object, scattered over the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubRequest<'a> {
    view: StripeView<'a>,
    start: u64,
    /// Position in the cycle, from 0.
    pub turn: usize,
    /// The server of that turn.
    pub server: ServerId,
    /// Where the range starts in the object that `server` stores of the region.
    pub offset: ObjectOffset,
    /// Bytes of the range, more than 0.
    pub length: u64,
}

impl PartialEq for StripeView<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.stripes == other.stripes
    }
}
impl Eq for StripeView<'_> {}

impl<'a> StripeView<'a> {
    /// `stripes` must hold at least one stripe of non-zero size, as those of a [`Layout`] do.
    #[must_use]
    #[inline]
    pub fn new(stripes: &'a [Stripe]) -> Self {
        let cycle_bytes = stripes.iter().map(|stripe| u64::from(stripe.size_bytes)).sum();
        Self { stripes, cycle_bytes }
    }

    /// The stripes in the order of their turns.
    #[must_use]
    pub fn stripes(self) -> &'a [Stripe] {
        self.stripes
    }

    /// Sum of all stripe sizes: after so many bytes of the region the first server has its turn
    /// again.
    #[must_use]
    pub fn cycle_bytes(self) -> u64 {
        self.cycle_bytes
    }

    /// Where the byte at `offset` lies.
    #[must_use]
    #[inline]
    pub fn locate(self, offset: RegionOffset) -> Place {
        let (cycle, mut rest) = self.cycle_at(offset.0);
        let mut turn = 0;
        loop {
            let size = u64::from(self.stripes[turn].size_bytes);
            if rest < size {
                return Place {
                    turn,
                    server: self.stripes[turn].server,
                    offset: ObjectOffset(cycle * size + rest),
                    contiguous_bytes: size - rest,
                };
            }
            rest -= size;
            turn += 1;
        }
    }

    /// The region offset of byte `offset` of the object at `turn`: the inverse of [`Self::locate`].
    #[must_use]
    pub fn region_offset(self, turn: usize, offset: ObjectOffset) -> RegionOffset {
        let size = u64::from(self.stripes[turn].size_bytes);
        RegionOffset(offset.0 / size * self.cycle_bytes + self.prefix_bytes(turn) + offset.0 % size)
    }

    /// Bytes of `[0, region_bytes)` that lie in the object at `turn`: the object's size when the region is used up to there.
    #[must_use]
    pub fn object_bytes(self, turn: usize, region_bytes: u64) -> u64 {
        self.object_bytes_before(turn, self.prefix_bytes(turn), self.cycle_at(region_bytes))
    }

    /// The sub-requests of `[offset, offset + length)`, at most one per server, in cycle order from the first turn. Allocates nothing.
    pub fn split(self, offset: RegionOffset, length: u64) -> impl Iterator<Item = SubRequest<'a>> {
        let mut prefix = 0;
        let start = offset.0;
        let (from, to) = (self.cycle_at(start), self.cycle_at(start + length));
        self.stripes.iter().enumerate().filter_map(move |(turn, stripe)| {
            let first = self.object_bytes_before(turn, prefix, from);
            let last = self.object_bytes_before(turn, prefix, to);
            prefix += u64::from(stripe.size_bytes);
            (last > first).then_some(SubRequest {
                view: self,
                start,
                turn,
                server: stripe.server,
                offset: ObjectOffset(first),
                length: last - first,
            })
        })
    }

    fn prefix_bytes(self, turn: usize) -> u64 {
        self.stripes[..turn].iter().map(|stripe| u64::from(stripe.size_bytes)).sum()
    }

    /// Whole cycles before a byte of the region, and bytes of its cycle before it.
    #[inline]
    fn cycle_at(self, offset: u64) -> (u64, u64) {
        // Most cycles are powers of two, and this stands on the way of every request.
        if self.cycle_bytes.is_power_of_two() {
            (offset >> self.cycle_bytes.trailing_zeros(), offset & (self.cycle_bytes - 1))
        } else {
            (offset / self.cycle_bytes, offset % self.cycle_bytes)
        }
    }

    /// Bytes of the object at `turn` that lie before that place of the region.
    #[inline]
    fn object_bytes_before(self, turn: usize, prefix: u64, (cycles, rest): (u64, u64)) -> u64 {
        let size = u64::from(self.stripes[turn].size_bytes);
        cycles * size + rest.saturating_sub(prefix).min(size)
    }
}

impl SubRequest<'_> {
    /// The pieces of the caller's buffer, in object order, as (buffer offset, length); their lengths sum to `self.length`.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let size = u64::from(self.view.stripes[self.turn].size_bytes);
        let prefix = self.view.prefix_bytes(self.turn);
        let (mut at, end) = (self.offset.0, self.offset.0 + self.length);
        std::iter::from_fn(move || {
            if at == end {
                return None;
            }
            let length = (size - at % size).min(end - at);
            let in_region = at / size * self.view.cycle_bytes + prefix + at % size;
            at += length;
            Some((in_region - self.start, length))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn layouts() -> impl Strategy<Value = Layout> {
        proptest::collection::vec(1u32..40, 1..9).prop_map(|sizes| {
            Layout::new(sizes.into_iter().enumerate().map(|(i, size)| (ServerId(i as u16 * 3), size))).unwrap()
        })
    }

    proptest! {
        #[test]
        fn mapping_is_a_bijection_without_gaps(layout in layouts(), region_bytes in 1u64..600) {
            let view = layout.view();
            let mut objects: HashMap<usize, Vec<u64>> = HashMap::new();
            for x in 0..region_bytes {
                let place = view.locate(RegionOffset(x));
                prop_assert_eq!(view.region_offset(place.turn, place.offset), RegionOffset(x));
                objects.entry(place.turn).or_default().push(place.offset.0);
            }
            for turn in 0..layout.stripes().len() {
                let mut offsets = objects.remove(&turn).unwrap_or_default();
                offsets.sort_unstable();
                prop_assert_eq!(offsets, (0..view.object_bytes(turn, region_bytes)).collect::<Vec<_>>());
            }
        }

        #[test]
        fn split_agrees_with_locating_every_byte(layout in layouts(), start in 0u64..500, length in 0u64..500) {
            let view = layout.view();
            let mut seen = vec![false; length as usize];
            let mut servers = Vec::new();
            for sub in view.split(RegionOffset(start), length) {
                servers.push(sub.server);
                let mut at = sub.offset.0;
                for (buffer_offset, piece_length) in sub.pieces() {
                    for i in 0..piece_length {
                        let place = view.locate(RegionOffset(start + buffer_offset + i));
                        prop_assert_eq!((place.turn, place.offset.0), (sub.turn, at));
                        prop_assert!(!std::mem::replace(&mut seen[(buffer_offset + i) as usize], true));
                        at += 1;
                    }
                }
                prop_assert_eq!(at, sub.offset.0 + sub.length);
            }
            prop_assert!(seen.iter().all(|byte| *byte));
            servers.dedup();
            prop_assert!(servers.len() <= layout.stripes().len());
        }
    }

    #[test]
    fn zero_stripes_take_no_part_and_bad_layouts_are_refused() {
        let layout = Layout::new([(ServerId(0), 0), (ServerId(4), 32)]).unwrap();
        assert_eq!(layout.stripes(), &[Stripe::new(ServerId(4), 32)]);
        assert_eq!(Layout::new([(ServerId(0), 0)]), Err(LayoutError::Empty));
        assert_eq!(
            Layout::new([(ServerId(1), 4), (ServerId(1), 8)]),
            Err(LayoutError::ServerTwice { server: ServerId(1) })
        );
    }
}
