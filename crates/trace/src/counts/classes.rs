//! Classes of requests, and their merging when there are too many.
//!
//! Sizes are counted exactly until a file has more classes or cells than memory should hold. From then on they are rounded down to
//! fewer and fewer leading bits, with the bytes added up beside, so that a merged class still has the true mean size. How coarse a
//! file ends depends on all of its requests and not on how they were cut into chunks: a part of the requests never needs coarser
//! classes than the whole.

use super::hashing::Quick;
use crate::access::{AccessClass, ClassIndex};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use stripewise_layout::{Order, RequestKind};

/// A class in one word: the size above, kind and order in the low bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ClassKey(u64);

/// Bits below the size: two of [`RequestKind::index`], one of the order.
const KIND_BITS: u32 = 3;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;
/// The largest size that is told apart; no file holds a larger request.
const MAX_SIZE: u64 = u64::MAX >> KIND_BITS;

impl ClassKey {
    #[inline]
    pub(crate) fn new(kind: RequestKind, is_random: bool, request_bytes: u64) -> Self {
        Self(request_bytes.min(MAX_SIZE) << KIND_BITS | (kind.index() as u64) << 1 | u64::from(is_random))
    }

    #[inline]
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    fn request_bytes(self) -> u64 {
        self.0 >> KIND_BITS
    }

    /// Kind and order in one number.
    fn kind_and_order(self) -> u64 {
        self.0 & KIND_MASK
    }

    pub(crate) fn class(self) -> AccessClass {
        AccessClass {
            kind: RequestKind::ALL[(self.kind_and_order() >> 1) as usize],
            request_bytes: self.request_bytes(),
            order: if self.0 & 1 == 0 { Order::Sequential } else { Order::Random },
        }
    }
}

/// Leading bits of a size that classes tell apart, by level of coarseness; the first is exact.
const LEADING_BITS: [u32; 5] = [64, 6, 3, 1, 0];
/// Classes of a file that are counted apart at most: beyond, sizes are rounded.
const CLASSES_APART: usize = 1 << 14;
/// Cells (window, region, class) of a file that are counted apart at most, unless no class could be merged anyway.
const CELLS_APART: usize = 1 << 20;

/// What limits a file's classes while it is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// As [`class_limit`](super::CountOptions::class_limit).
    pub(crate) classes: usize,
    pub(crate) classes_apart: usize,
    pub(crate) cells_apart: usize,
}

impl Limits {
    pub(crate) fn new(class_limit: u16) -> Self {
        Self { classes: usize::from(class_limit), classes_apart: CLASSES_APART, cells_apart: CELLS_APART }
    }
}

/// The classes of a file so far, numbered in order of appearance.
#[derive(Default, Debug)]
pub(crate) struct Classes {
    level: usize,
    keys: Vec<ClassKey>,
    numbers: HashMap<ClassKey, u32, Quick>,
    /// By number; only while sizes are rounded, exact ones tell it themselves.
    bytes: Vec<u128>,
}

impl Classes {
    pub(crate) fn level(&self) -> usize {
        self.level
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    fn rounded(&self, key: ClassKey) -> ClassKey {
        let size = key.request_bytes();
        let dropped = (u64::BITS - size.leading_zeros()).saturating_sub(LEADING_BITS[self.level]);
        ClassKey(size.checked_shr(dropped).unwrap_or(0) << dropped.min(63) << KIND_BITS | key.kind_and_order())
    }

    /// The number of a request's class. While sizes are rounded, every request must come here.
    pub(crate) fn number(&mut self, exact: ClassKey) -> u32 {
        self.add(exact, u128::from(exact.request_bytes()))
    }

    fn add(&mut self, key: ClassKey, bytes: u128) -> u32 {
        let key = if self.level == 0 { key } else { self.rounded(key) };
        let number = *self.numbers.entry(key).or_insert_with(|| {
            self.keys.push(key);
            self.keys.len() as u32 - 1
        });
        if self.level > 0 {
            self.bytes.resize(self.keys.len(), 0);
            self.bytes[number as usize] += bytes;
        }
        number
    }

    /// Whether classes have to become coarser for so many cells.
    pub(crate) fn is_too_fine(&self, limits: &Limits, cells: usize) -> bool {
        self.level + 1 < LEADING_BITS.len()
            && (self.len() > limits.classes_apart.max(limits.classes)
                || self.len() > limits.classes && cells > limits.cells_apart)
    }

    /// Makes classes one level coarser and gives the new number of every old one. `requests`: of each class so far.
    pub(crate) fn coarsen(&mut self, requests: &[u64]) -> Vec<u32> {
        let mut coarser = Self { level: self.level + 1, ..Self::default() };
        let map = self.keys.iter().enumerate();
        let map = map.map(|(number, key)| coarser.add(*key, self.bytes_of(number, requests[number]))).collect();
        *self = coarser;
        map
    }

    fn bytes_of(&self, number: usize, requests: u64) -> u128 {
        if self.level == 0 {
            u128::from(requests) * u128::from(self.keys[number].request_bytes())
        } else {
            self.bytes[number]
        }
    }

    /// Takes up the classes of a part, which must not be coarser, and gives the number here of each. `requests`: of each class there.
    pub(crate) fn absorb(&mut self, part: &Self, requests: &[u64]) -> Vec<u32> {
        let keys = part.keys.iter().enumerate();
        keys.map(|(number, key)| self.add(*key, part.bytes_of(number, requests[number]))).collect()
    }

    /// At most `limit` classes, ascending, and which of them each number here belongs to.
    pub(crate) fn settle(&self, requests: &[u64], limit: usize) -> (Vec<AccessClass>, Vec<ClassIndex>) {
        let mut totals = BTreeMap::new();
        for (number, key) in self.keys.iter().enumerate().filter(|(number, _)| requests[*number] > 0) {
            totals.insert(*key, (requests[number], self.bytes_of(number, requests[number])));
        }
        let (classes, map) = settle(&totals, limit);
        let of_key = |key| map.get(key).copied().unwrap_or(ClassIndex(0));
        (classes, self.keys.iter().map(of_key).collect())
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
/// of one kind and order are merged, always the pair of least min(requests) x ln(size ratio), into a class of their mean size.
///
/// Every class comes with its requests and their bytes.
pub(super) fn settle(
    requests: &BTreeMap<ClassKey, (u64, u128)>,
    limit: usize,
) -> (Vec<AccessClass>, HashMap<ClassKey, ClassIndex>) {
    let mut ordered: Vec<(ClassKey, (u64, u128))> = requests.iter().map(|(key, totals)| (*key, *totals)).collect();
    ordered.sort_by_key(|(key, _)| (key.kind_and_order(), key.request_bytes()));
    let mut groups: Vec<Group> = ordered
        .iter()
        .enumerate()
        .map(|(index, (key, (count, bytes)))| {
            let alike = |other: Option<&(ClassKey, (u64, u128))>| {
                other.is_some_and(|(other, _)| other.kind_and_order() == key.kind_and_order())
            };
            Group {
                requests: *count,
                bytes: *bytes,
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

    fn with_bytes(requests: &BTreeMap<ClassKey, u64>) -> BTreeMap<ClassKey, (u64, u128)> {
        let bytes = |key: &ClassKey, count: u64| u128::from(count) * u128::from(key.request_bytes());
        requests.iter().map(|(key, count)| (*key, (*count, bytes(key, *count)))).collect()
    }

    proptest! {
        #[test]
        fn merging_keeps_bytes_and_kinds_and_stays_within_the_limit(
            requests in proptest::collection::btree_map(
                (0..RequestKind::ALL.len(), any::<bool>(), 1u64..1 << 30)
                    .prop_map(|(kind, random, size)| ClassKey::new(RequestKind::ALL[kind], random, size)),
                1u64..10_000, 0..120),
            limit in 8usize..40,
        ) {
            let (classes, map) = settle(&with_bytes(&requests), limit);
            prop_assert!(classes.len() <= limit);
            prop_assert_eq!(map.len(), requests.len());
            if requests.len() <= limit {
                prop_assert!(map.iter().all(|(key, index)| classes[usize::from(index.0)] == key.class()));
            }
            for (index, class) in classes.iter().enumerate() {
                let members = || requests.iter().filter(|(key, _)| usize::from(map[key].0) == index);
                let mut kinds = members().map(|(key, _)| (key.class().kind, key.class().order));
                prop_assert!(kinds.all(|kind| kind == (class.kind, class.order)));
                let bytes: u128 = members().map(|(key, count)| u128::from(*count) * u128::from(key.class().request_bytes)).sum();
                let count: u64 = members().map(|(_, count)| count).sum();
                let kept = u128::from(count) * u128::from(class.request_bytes);
                prop_assert!(kept.abs_diff(bytes) * 2 <= u128::from(count), "{kept} of {bytes}");
                // Merged classes are neighbours: no foreign size of the same kind lies between their ends.
                let sizes: Vec<u64> = members().map(|(key, _)| key.class().request_bytes).collect();
                let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
                let mut between = requests.keys().filter(|key| {
                    let other = key.class();
                    (other.kind, other.order) == (class.kind, class.order)
                        && (least..=most).contains(&&other.request_bytes)
                });
                prop_assert!(between.all(|key| usize::from(map[key].0) == index));
            }
        }
    }

    #[test]
    fn the_rare_and_near_are_merged_first() {
        let requests: BTreeMap<_, _> = [(4096, 1000), (4100, 1), (65_536, 1000), (70_000, 900), (1 << 20, 1000)]
            .map(|(size, count)| (ClassKey::new(RequestKind::Read, true, size), count))
            .into();
        let sizes =
            |limit| settle(&with_bytes(&requests), limit).0.iter().map(|class| class.request_bytes).collect::<Vec<_>>();
        assert_eq!(sizes(5), [4096, 4100, 65_536, 70_000, 1 << 20]);
        assert_eq!(sizes(4), [4096, 65_536, 70_000, 1 << 20]);
        assert_eq!(sizes(3), [4096, (65_536 * 1000 + 70_000 * 900 + 950) / 1900, 1 << 20]);
    }

    /// However the requests are cut into parts, the classes come out the same, with all their bytes.
    #[test]
    fn rounded_classes_do_not_depend_on_parts() {
        let limits = Limits { classes: 8, classes_apart: 40, cells_apart: 1 << 20 };
        let sizes: Vec<u64> =
            (0..5_000u64).map(|number| 1 + number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (1 << 24)).collect();
        let count = |sizes: &[u64]| {
            let (mut classes, mut requests) = (Classes::default(), Vec::new());
            for size in sizes {
                let number = classes.number(ClassKey::new(RequestKind::Read, true, *size)) as usize;
                requests.resize(classes.len(), 0u64);
                requests[number] += 1;
                while classes.is_too_fine(&limits, classes.len()) {
                    requests = moved(&requests, &classes.coarsen(&requests), classes.len());
                }
            }
            (classes, requests)
        };
        let (whole, whole_requests) = count(&sizes);
        assert!(whole.level() > 0 && whole.len() <= 40, "{} {}", whole.level(), whole.len());
        for split in [1, 7, 2_500, 4_999] {
            let (mut joined, mut requests) = (Classes::default(), Vec::new());
            for part in [&sizes[..split], &sizes[split..]] {
                let (part, of_part) = count(part);
                while joined.level() < part.level() {
                    requests = moved(&requests, &joined.coarsen(&requests), joined.len());
                }
                let map = joined.absorb(&part, &of_part);
                requests.resize(joined.len(), 0);
                map.iter().zip(&of_part).for_each(|(number, count)| requests[*number as usize] += count);
                while joined.is_too_fine(&limits, joined.len()) {
                    requests = moved(&requests, &joined.coarsen(&requests), joined.len());
                }
            }
            assert_eq!(joined.settle(&requests, 8).0, whole.settle(&whole_requests, 8).0, "cut at {split}");
        }
        let (classes, _) = whole.settle(&whole_requests, 4);
        let bytes: u64 = sizes.iter().sum();
        let (_, map) = whole.settle(&whole_requests, 4);
        let kept: u64 = map
            .iter()
            .zip(&whole_requests)
            .map(|(class, count)| classes[usize::from(class.0)].request_bytes * count)
            .sum();
        assert!(kept.abs_diff(bytes) <= 5_000, "{kept} of {bytes}");
    }

    fn moved(requests: &[u64], map: &[u32], classes: usize) -> Vec<u64> {
        let mut moved = vec![0; classes];
        map.iter().zip(requests).for_each(|(number, count)| moved[*number as usize] += count);
        moved
    }
}
