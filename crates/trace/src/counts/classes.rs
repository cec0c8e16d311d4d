//! Classes of requests, and their merging when there are too many.

use crate::access::{AccessClass, ClassIndex};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use stripewise_layout::{Direction, Order};

/// A class in one word: the size above, direction and order in the two low bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ClassKey(u64);

impl ClassKey {
    /// Sizes are below 2^62: file offsets are signed in the kernel.
    #[inline]
    pub(super) fn new(is_write: bool, is_random: bool, request_bytes: u64) -> Self {
        Self(request_bytes << 2 | u64::from(is_write) << 1 | u64::from(is_random))
    }

    #[inline]
    pub(super) fn word(self) -> u64 {
        self.0
    }

    pub(super) fn class(self) -> AccessClass {
        AccessClass {
            direction: if self.0 & 2 == 0 { Direction::Read } else { Direction::Write },
            request_bytes: self.0 >> 2,
            order: if self.0 & 1 == 0 { Order::Sequential } else { Order::Random },
        }
    }
}

/// Neighbours by size that were or are to be merged.
struct Group {
    requests: u64,
    bytes: u128,
    members: Vec<ClassKey>,
    previous: Option<usize>,
    next: Option<usize>,
    /// Counts changes, so that an outdated proposal is known.
    version: u32,
}

impl Group {
    /// The mean size, so that requests x size keeps the bytes (up to rounding).
    fn request_bytes(&self) -> u64 {
        let requests = u128::from(self.requests.max(1));
        ((self.bytes + requests / 2) / requests).max(1) as u64
    }
}

struct Proposal {
    cost: f64,
    left: usize,
    right: usize,
    versions: (u32, u32),
}

impl PartialEq for Proposal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Proposal {}
impl PartialOrd for Proposal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Proposal {
    /// The heap gives its greatest first: the least cost, then the first pair.
    fn cmp(&self, other: &Self) -> Ordering {
        other.cost.total_cmp(&self.cost).then(other.left.cmp(&self.left))
    }
}

/// The classes of a file and which of them each exact class belongs to. Exact where at most `limit` occur; otherwise neighbours by size
/// of one direction and order are merged, always the pair of least min(requests) x ln(size ratio), into a class of their mean size.
pub(super) fn settle(
    requests: &BTreeMap<ClassKey, u64>,
    limit: usize,
) -> (Vec<AccessClass>, HashMap<ClassKey, ClassIndex>) {
    let mut ordered: Vec<(ClassKey, u64)> = requests.iter().map(|(key, count)| (*key, *count)).collect();
    ordered.sort_by_key(|(key, _)| (key.0 & 3, key.0 >> 2));
    let mut groups: Vec<Group> = ordered
        .iter()
        .enumerate()
        .map(|(index, (key, count))| {
            let alike = |other: Option<&(ClassKey, u64)>| other.is_some_and(|(other, _)| other.0 & 3 == key.0 & 3);
            Group {
                requests: *count,
                bytes: u128::from(*count) * u128::from(key.0 >> 2),
                members: vec![*key],
                previous: index.checked_sub(1).filter(|index| alike(ordered.get(*index))),
                next: Some(index + 1).filter(|index| alike(ordered.get(*index))),
                version: 0,
            }
        })
        .collect();
    let mut left_over = groups.len();
    if left_over > limit {
        let mut heap: BinaryHeap<Proposal> = (0..groups.len()).filter_map(|left| propose(&groups, left)).collect();
        while left_over > limit {
            let Some(proposal) = heap.pop() else { break };
            if (groups[proposal.left].version, groups[proposal.right].version) != proposal.versions {
                continue;
            }
            join(&mut groups, proposal.left, proposal.right);
            left_over -= 1;
            heap.extend(propose(&groups, proposal.left));
            heap.extend(groups[proposal.left].previous.and_then(|left| propose(&groups, left)));
        }
    }
    let mut settled: Vec<(AccessClass, Vec<ClassKey>)> = groups
        .into_iter()
        .filter(|group| !group.members.is_empty())
        .map(|group| {
            let request_bytes = group.request_bytes();
            (AccessClass { request_bytes, ..group.members[0].class() }, group.members)
        })
        .collect();
    settled.sort_by_key(|(class, _)| *class);
    let mut map = HashMap::new();
    for (index, (_, members)) in settled.iter().enumerate() {
        map.extend(members.iter().map(|key| (*key, ClassIndex(index as u16))));
    }
    (settled.into_iter().map(|(class, _)| class).collect(), map)
}

fn propose(groups: &[Group], left: usize) -> Option<Proposal> {
    let right = groups[left].next?;
    let (a, b) = (&groups[left], &groups[right]);
    let ratio = b.request_bytes() as f64 / a.request_bytes() as f64;
    let cost = a.requests.min(b.requests) as f64 * ratio.ln().abs();
    Some(Proposal { cost, left, right, versions: (a.version, b.version) })
}

fn join(groups: &mut [Group], left: usize, right: usize) {
    let members = std::mem::take(&mut groups[right].members);
    let (requests, bytes, next) = (groups[right].requests, groups[right].bytes, groups[right].next);
    groups[right].version += 1;
    let target = &mut groups[left];
    // The longer list takes the shorter, so that a million classes do not cost a million squared.
    if target.members.len() < members.len() {
        let shorter = std::mem::replace(&mut target.members, members);
        target.members.extend(shorter);
    } else {
        target.members.extend(members);
    }
    target.requests += requests;
    target.bytes += bytes;
    target.version += 1;
    target.next = next;
    if let Some(next) = next {
        groups[next].previous = Some(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn merging_keeps_bytes_and_kinds_and_stays_within_the_limit(
            requests in proptest::collection::btree_map(
                (any::<bool>(), any::<bool>(), 1u64..1 << 30).prop_map(|(write, random, size)| ClassKey::new(write, random, size)),
                1u64..10_000, 0..120),
            limit in 4usize..40,
        ) {
            let (classes, map) = settle(&requests, limit);
            prop_assert!(classes.len() <= limit.max(4));
            prop_assert_eq!(map.len(), requests.len());
            if requests.len() <= limit {
                prop_assert!(map.iter().all(|(key, index)| classes[usize::from(index.0)] == key.class()));
            }
            for (index, class) in classes.iter().enumerate() {
                let members = || requests.iter().filter(|(key, _)| usize::from(map[key].0) == index);
                let mut kinds = members().map(|(key, _)| (key.class().direction, key.class().order));
                prop_assert!(kinds.all(|kind| kind == (class.direction, class.order)));
                let bytes: u128 = members().map(|(key, count)| u128::from(*count) * u128::from(key.class().request_bytes)).sum();
                let count: u64 = members().map(|(_, count)| count).sum();
                let kept = u128::from(count) * u128::from(class.request_bytes);
                prop_assert!(kept.abs_diff(bytes) * 2 <= u128::from(count), "{kept} of {bytes}");
                // Merged classes are neighbours: no foreign size of the same kind lies between their ends.
                let sizes: Vec<u64> = members().map(|(key, _)| key.class().request_bytes).collect();
                let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
                let mut between = requests.keys().filter(|key| {
                    let other = key.class();
                    (other.direction, other.order) == (class.direction, class.order)
                        && (least..=most).contains(&&other.request_bytes)
                });
                prop_assert!(between.all(|key| usize::from(map[key].0) == index));
            }
        }
    }

    #[test]
    fn the_rare_and_near_are_merged_first() {
        let requests: BTreeMap<_, _> = [(4096, 1000), (4100, 1), (65_536, 1000), (70_000, 900), (1 << 20, 1000)]
            .map(|(size, count)| (ClassKey::new(false, true, size), count))
            .into();
        let sizes = |limit| settle(&requests, limit).0.iter().map(|class| class.request_bytes).collect::<Vec<_>>();
        assert_eq!(sizes(5), [4096, 4100, 65_536, 70_000, 1 << 20]);
        assert_eq!(sizes(4), [4096, 65_536, 70_000, 1 << 20]);
        assert_eq!(sizes(3), [4096, (65_536 * 1000 + 70_000 * 900 + 950) / 1900, 1 << 20]);
    }
}
