//! Search over all states for what must never be; and whether from every state the run can still end.

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use twox_hash::XxHash3_128;

/// What can happen.
pub(super) trait Explored: Clone + Hash {
    type Label: Copy + std::fmt::Debug;

    /// What can happen next, and what it makes of this.
    fn next(&self) -> Vec<(Self::Label, Self)>;

    /// Whether the step to `after` is something that goes wrong, of which there is only so much.
    fn goes_wrong_to(&self, after: &Self) -> bool;

    /// What must never be, in words, if it is.
    fn fault(&self) -> Option<&'static str>;

    /// Whether everybody is done.
    fn is_end(&self) -> bool;
}

/// What a search has found.
pub(super) struct Found<L> {
    pub(super) states: usize,
    pub(super) transitions: usize,
    pub(super) ends: usize,
    /// What is wrong, and the shortest way to it.
    pub(super) fault: Option<(&'static str, Vec<L>)>,
}

#[derive(Default)]
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn finish(&self) -> u64 {
        unreachable!("hashed as a whole")
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn write_u8(&mut self, number: u8) {
        self.0.push(number);
    }

    // Nearly all are small.
    fn write_u64(&mut self, number: u64) {
        match u8::try_from(number) {
            Ok(small) if small < u8::MAX => self.0.push(small),
            _ => {
                self.0.push(u8::MAX);
                self.0.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    // Which of an enum's variants it is.
    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }
}

fn fingerprint(state: &impl Hash, bytes: &mut Bytes) -> [u64; 2] {
    bytes.0.clear();
    state.hash(bytes);
    let all = XxHash3_128::oneshot(&bytes.0);
    [all as u64, (all >> 64) as u64]
}

/// In which order states are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Those first that fewer steps lead to: the way to a fault is a shortest one.
    Shortest,
    /// The newest first, so that few wait to be looked at.
    Newest,
}

/// Looks at every state that can come, until something is wrong. `must_end`: from each of them there is a way to an end.
pub(super) fn explore<S: Explored>(start: &S, order: Order, must_end: bool) -> Found<S::Label> {
    let (mut ids, mut before, mut bytes) = (HashMap::new(), vec![u32::MAX], Bytes::default());
    let (mut edges, mut ends, mut transitions) = (Vec::<(u32, u32)>::new(), Vec::new(), 0);
    ids.insert(fingerprint(start, &mut bytes), 0);
    let mut waiting = VecDeque::from([(0, start.clone())]);
    let take = |waiting: &mut VecDeque<_>| match order {
        Order::Shortest => waiting.pop_front(),
        Order::Newest => waiting.pop_back(),
    };
    while let Some((id, state)) = take(&mut waiting) {
        if state.is_end() {
            ends.push(id);
        }
        for (_, after) in state.next() {
            let new = before.len() as u32;
            let found = *ids.entry(fingerprint(&after, &mut bytes)).or_insert(new);
            transitions += 1;
            if must_end {
                edges.push((found, id));
            }
            if found == new {
                before.push(id);
                if let Some(fault) = after.fault() {
                    let states = before.len();
                    let trace = trace(start, &way(&before, new), &ids);
                    return Found { states, transitions, ends: ends.len(), fault: Some((fault, trace)) };
                }
                waiting.push_back((new, after));
            }
        }
    }
    let found = must_end.then(|| cannot_end(before.len(), &mut edges, &ends)).flatten();
    let fault = found.map(|id| ("the run cannot end", trace(start, &way(&before, id), &ids)));
    Found { states: before.len(), transitions, ends: ends.len(), fault }
}

/// The first state from which no end can be reached. `edges` are pairs of a state and one before it.
fn cannot_end(states: usize, edges: &mut [(u32, u32)], ends: &[u32]) -> Option<u32> {
    edges.sort_unstable();
    let mut can_end = vec![false; states];
    let mut left = ends.to_vec();
    ends.iter().for_each(|end| can_end[*end as usize] = true);
    while let Some(state) = left.pop() {
        let first = edges.partition_point(|(after, _)| *after < state);
        for (_, before) in edges[first..].iter().take_while(|(after, _)| *after == state) {
            if !can_end[*before as usize] {
                can_end[*before as usize] = true;
                left.push(*before);
            }
        }
    }
    can_end.iter().position(|can| !can).map(|id| id as u32)
}

/// The states on the way to this one, without the first.
fn way(before: &[u32], mut id: u32) -> Vec<u32> {
    let mut way = Vec::new();
    while before[id as usize] != u32::MAX {
        way.push(id);
        id = before[id as usize];
    }
    way.reverse();
    way
}

/// What leads along these states.
fn trace<S: Explored>(start: &S, way: &[u32], ids: &HashMap<[u64; 2], u32>) -> Vec<S::Label> {
    let (mut state, mut bytes) = (start.clone(), Bytes::default());
    let mut step = |id: &u32| {
        let is_next = |(_, after): &(S::Label, S)| ids.get(&fingerprint(after, &mut bytes)) == Some(id);
        let (label, after) = state.next().into_iter().find(is_next).expect("it was found so");
        state = after;
        label
    };
    way.iter().map(&mut step).collect()
}

/// A state near one order of steps: the first that can happen happens, but for so many departures from that; what goes wrong does so at any time.
#[derive(Clone, Hash)]
pub(super) struct Near<S> {
    pub(super) state: S,
    pub(super) departures_left: u8,
}

impl<S: Explored> Explored for Near<S> {
    type Label = S::Label;

    fn next(&self) -> Vec<(S::Label, Self)> {
        let mut is_first = true;
        let step = |(label, state): (S::Label, S)| {
            let departs = !self.state.goes_wrong_to(&state) && !std::mem::take(&mut is_first);
            let departures_left = self.departures_left.checked_sub(u8::from(departs))?;
            Some((label, Self { state, departures_left }))
        };
        self.state.next().into_iter().filter_map(step).collect()
    }

    fn goes_wrong_to(&self, after: &Self) -> bool {
        self.state.goes_wrong_to(&after.state)
    }

    fn fault(&self) -> Option<&'static str> {
        self.state.fault()
    }

    fn is_end(&self) -> bool {
        self.state.is_end()
    }
}

/// What random runs have found.
pub(super) struct Wandered<L> {
    pub(super) steps: usize,
    pub(super) ends: usize,
    /// How often something went wrong.
    pub(super) faults: usize,
    pub(super) fault: Option<(&'static str, Vec<L>)>,
}

/// Goes so many ways by chance, each to its end. What goes wrong does so early or late, as often as not.
pub(super) fn wander<S: Explored>(start: &S, seed: u64, runs: u64) -> Wandered<S::Label> {
    let mut found = Wandered { steps: 0, ends: 0, faults: 0, fault: None };
    for run in 0..runs {
        let mut dice = Dice(seed ^ run.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (mut state, mut trace) = (start.clone(), Vec::new());
        // Of all steps, that one goes wrong: from one in two to one in 64.
        let rarity = 2 << dice.below(6);
        while !state.is_end() {
            let mut next = state.next();
            let is_unlucky = dice.below(rarity) == 0;
            let wanted: Vec<usize> =
                (0..next.len()).filter(|at| state.goes_wrong_to(&next[*at].1) == is_unlucky).collect();
            let fault = match (next.is_empty(), trace.len() < LONGEST_RUN) {
                (false, true) => None,
                _ => Some("the run does not end"),
            };
            if fault.is_some() {
                found.fault = fault.map(|fault| (fault, trace));
                return found;
            }
            let at = if wanted.is_empty() { dice.below(next.len()) } else { wanted[dice.below(wanted.len())] };
            let (label, after) = next.swap_remove(at);
            found.faults += usize::from(state.goes_wrong_to(&after));
            found.steps += 1;
            trace.push(label);
            state = after;
            if let Some(fault) = state.fault() {
                found.fault = Some((fault, trace));
                return found;
            }
        }
        found.ends += 1;
    }
    found
}

/// Longer than any run that comes to its end.
const LONGEST_RUN: usize = 20_000;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}
