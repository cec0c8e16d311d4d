//! What may stand at a name after several operations: what those orders give that agree with when each began and returned.
//!
//! Where one returned before another began, it comes first. Where two overlapped, either may have come first, and nothing else may have happened.

use std::fmt;

/// One of the contents of a test.
pub(crate) type Content = usize;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Managed,
    Ordinary,
}

/// What stands at the name, and the managed files whose stubs programs without redirection removed or replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) at: Option<(Content, Kind)>,
    pub(crate) lost: Vec<Content>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// A complete copy takes the name.
    Copy(Content, Kind),
    Apply,
    Release,
    Restripe,
    Check,
    /// `mv` and `rm` without redirection.
    MoveOutside(Content),
    RemoveOutside,
    /// A managed file is renamed to the name.
    Rename(Content),
    Unlink,
    /// To no bytes.
    Truncate,
    /// With `O_CREAT` alone, with `O_EXCL`, with `O_TRUNC`.
    Open,
    OpenNew,
    OpenEmpty,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    Done,
    /// A command said that it could not be done.
    Refused,
    /// A call failed with this.
    Failed(i32),
}

/// An operation that has ended.
pub(crate) struct Performed {
    pub(crate) operation: Operation,
    pub(crate) begun_ns: u64,
    pub(crate) returned_ns: u64,
    /// Its process ends later than its call, and with it perhaps the broker that others use.
    pub(crate) gone_ns: u64,
    pub(crate) ended: Ended,
    /// For messages.
    pub(crate) said: String,
}

impl fmt::Debug for Performed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, begun_ns, returned_ns, ended, said, .. } = self;
        write!(to, "{operation:?} from {begun_ns} to {returned_ns}: {ended:?} {}", said.trim_end())
    }
}

impl Performed {
    fn overlaps(&self, other: &Performed) -> bool {
        self.begun_ns <= other.gone_ns && other.begun_ns <= self.gone_ns
    }
}

/// The content of a file that is made or cut.
pub(crate) const EMPTY: Content = 0;

impl State {
    /// Programs without redirection took the name away; a managed file that had it is lost, until a check puts it back where it stood.
    fn lose(&mut self) {
        if let Some((content, Kind::Managed)) = self.at.take() {
            self.lost.push(content);
            self.lost.sort_unstable();
        }
    }

    /// How the operation may end here, alone.
    fn after(&self, operation: Operation) -> Vec<(State, Ended)> {
        let with = |at| State { at, lost: self.lost.clone() };
        let taken_from_outside = |at| {
            let mut state = self.clone();
            state.lose();
            State { at, ..state }
        };
        let (same, made) = (self.clone(), with(Some((EMPTY, Kind::Managed))));
        let result = match (operation, self.at) {
            (Operation::Copy(content, kind), _) => (with(Some((content, kind))), Ended::Done),
            (Operation::Rename(content), _) => (with(Some((content, Kind::Managed))), Ended::Done),
            (Operation::MoveOutside(content), _) => (taken_from_outside(Some((content, Kind::Ordinary))), Ended::Done),
            (Operation::RemoveOutside, _) => (taken_from_outside(None), Ended::Done),
            (Operation::Apply, Some((content, Kind::Ordinary))) => (with(Some((content, Kind::Managed))), Ended::Done),
            (Operation::Release, Some((content, Kind::Managed))) => {
                (with(Some((content, Kind::Ordinary))), Ended::Done)
            }
            (Operation::Apply, None) | (Operation::Restripe, Some((_, Kind::Managed))) => (same, Ended::Done),
            (Operation::Apply | Operation::Release | Operation::Restripe, _) => (same, Ended::Refused),
            (Operation::Check, None) if !self.lost.is_empty() => return self.restored(),
            (Operation::Check, _) | (Operation::Open, Some(_)) => (same, Ended::Done),
            (Operation::Unlink, Some(_)) => (with(None), Ended::Done),
            (Operation::Unlink | Operation::Truncate, None) => (same, Ended::Failed(libc::ENOENT)),
            (Operation::Truncate | Operation::OpenEmpty, Some((_, kind))) => (with(Some((EMPTY, kind))), Ended::Done),
            (Operation::OpenNew, Some(_)) => (same, Ended::Failed(libc::EEXIST)),
            (Operation::Open | Operation::OpenNew | Operation::OpenEmpty, None) => (made, Ended::Done),
        };
        vec![result]
    }

    /// A lost file has its name back.
    fn restored(&self) -> Vec<(State, Ended)> {
        let each = self.lost.iter().enumerate().map(|(index, content)| {
            let mut lost = self.lost.clone();
            lost.remove(index);
            (State { at: Some((*content, Kind::Managed)), lost }, Ended::Done)
        });
        each.collect()
    }

    /// As [`Self::after`], where others change the name meanwhile: commands may then refuse, and a check leave the name alone.
    fn after_contended(&self, operation: Operation) -> Vec<(State, Ended)> {
        let mut results = self.after(operation);
        match operation {
            Operation::Apply | Operation::Release | Operation::Restripe => results.push((self.clone(), Ended::Refused)),
            Operation::Check => results.push((self.clone(), Ended::Done)),
            _ => {}
        }
        results
    }
}

/// All states that an order which agrees with the times gives, in which every operation ends as it did.
pub(crate) fn states_after(initial: State, performed: &[Performed]) -> Vec<State> {
    let mut states = Vec::new();
    follow(initial, performed, &mut vec![false; performed.len()], &mut states);
    states
}

fn follow(state: State, performed: &[Performed], done: &mut [bool], states: &mut Vec<State>) {
    if done.iter().all(|done| *done) {
        if !states.contains(&state) {
            states.push(state);
        }
        return;
    }
    for next in 0..performed.len() {
        let one = &performed[next];
        let left = || performed.iter().zip(&*done).filter(|(_, done)| !**done).map(|(other, _)| other);
        if done[next] || left().any(|other| other.returned_ns < one.begun_ns) {
            continue;
        }
        let is_contended = performed.iter().enumerate().any(|(index, other)| index != next && one.overlaps(other));
        let results = if is_contended { state.after_contended(one.operation) } else { state.after(one.operation) };
        done[next] = true;
        for (after, _) in results.into_iter().filter(|(_, ended)| *ended == one.ended) {
            follow(after, performed, done, states);
        }
        done[next] = false;
    }
}

/// Whether a redirected call or a command overlapped a program without redirection: what both took away may have been freed.
pub(crate) fn overlaps_outside(performed: &[Performed]) -> bool {
    let is_outside = |one: &Performed| matches!(one.operation, Operation::MoveOutside(_) | Operation::RemoveOutside);
    performed
        .iter()
        .filter(|one| is_outside(one))
        .any(|one| performed.iter().any(|other| !is_outside(other) && one.overlaps(other)))
}

#[test]
fn orders_that_contradict_the_times_give_no_state() {
    let at = |begun_ns, returned_ns, operation, ended| Performed {
        operation,
        begun_ns,
        returned_ns,
        gone_ns: returned_ns,
        ended,
        said: String::new(),
    };
    let initial = State { at: Some((1, Kind::Managed)), lost: Vec::new() };
    let copy = |begun, returned| at(begun, returned, Operation::Copy(2, Kind::Managed), Ended::Done);
    let unlink = |begun, returned, ended| at(begun, returned, Operation::Unlink, ended);
    let found = |performed: &[Performed]| -> Vec<_> {
        states_after(initial.clone(), performed).into_iter().map(|state| state.at).collect()
    };
    assert_eq!(found(&[copy(0, 1), unlink(2, 3, Ended::Done)]), [None]);
    assert_eq!(found(&[copy(2, 3), unlink(0, 1, Ended::Done)]), [Some((2, Kind::Managed))]);
    assert_eq!(found(&[copy(0, 2), unlink(1, 3, Ended::Done)]), [None, Some((2, Kind::Managed))]);
    // There was always a file to remove.
    assert_eq!(found(&[copy(0, 2), unlink(1, 3, Ended::Failed(libc::ENOENT))]), []);
    // Nobody else was there, so nothing excuses the refusal.
    assert_eq!(found(&[at(0, 1, Operation::Release, Ended::Refused)]), []);
    assert_eq!(
        found(&[at(0, 1, Operation::RemoveOutside, Ended::Done), at(2, 3, Operation::Check, Ended::Done)]),
        [Some((1, Kind::Managed))]
    );
}
