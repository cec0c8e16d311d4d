//! The store of the table in etcd.

use super::client::{Call, ask, transact};
use super::error::EtcdError;
use super::keys::{Keys, behind};
use super::messages::{Compare, Entry, Found, Number, Operation, Outcome, Range, Transaction};
use super::staging::{self, Change, Changes, MAX_VALUE_BYTES, State};
use super::watch::{Follower, watch};
use crate::coordination::Candidate;
use crate::rmt::{Batch, Entries, MappingStore, RmtError, describe};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

/// Entries that are read at once.
const PAGE: usize = 512;

/// What every commit of a master expects: that its key still is the one that it was elected by.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    pub(super) create_revision: i64,
    pub(super) candidate: Candidate,
}

/// What a reader has to know beside `t/`.
struct View {
    revision: i64,
    /// Changes that are decided and perhaps not in `t/` yet.
    staged: Option<Arc<Changes>>,
}

/// What became of a transaction of the table.
enum Done {
    Applied,
    /// Something that the batch expects does not hold.
    Unexpected,
    /// The state is another than was thought.
    Moved,
}

pub struct EtcdStore {
    calls: Arc<dyn Call>,
    keys: Keys,
    /// `None`: nobody's election; it reads only.
    fence: Option<Fence>,
    /// The state in etcd, if known. Held across a commit.
    known: Mutex<Option<Option<State>>>,
    /// The staged batch that was read last, by name.
    staged: Mutex<Option<(String, Arc<Changes>)>>,
    followers: Mutex<Vec<Follower>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EtcdStore {
    pub(super) fn new(calls: Arc<dyn Call>, keys: Keys, fence: Option<Fence>) -> Self {
        Self { calls, keys, fence, known: Mutex::default(), staged: Mutex::default(), followers: Mutex::default() }
    }

    fn state_in(&self, found: &Found) -> Result<Option<State>, EtcdError> {
        found.kvs.first().map(|entry| State::decode(&self.keys.state(), &entry.value.0)).transpose()
    }

    /// Reads ranges of the newest table together with what is staged; the answers follow in order.
    fn read(&self, ranges: &[Range]) -> Result<(View, Vec<Found>), EtcdError> {
        let mut lacking = None;
        loop {
            let all = std::iter::once(Range::of(&self.keys.state())).chain(ranges.iter().cloned());
            let success = all.map(Operation::Range).collect();
            let mut outcome = transact(self.calls.as_ref(), &Transaction { success, ..Transaction::default() })?;
            let state = self.state_in(&outcome.take(0))?;
            let staged = match state.filter(|state| state.parts > 0) {
                None => None,
                Some(state) => match self.staged(&state)? {
                    Some(changes) => Some(changes),
                    // It has been copied into the table meanwhile.
                    None => {
                        self.refuse_lacking(&mut lacking, state)?;
                        continue;
                    }
                },
            };
            let found = (1..=ranges.len()).map(|index| outcome.take(index)).collect();
            return Ok((View { revision: outcome.header.revision.0, staged }, found));
        }
    }

    /// The parts of a batch go in the transaction that changes the state. One that is `lacking` twice is lost.
    fn refuse_lacking(&self, lacking: &mut Option<State>, state: State) -> Result<(), EtcdError> {
        match lacking.replace(state.clone()) == Some(state) {
            false => Ok(()),
            true => Err(EtcdError::Damaged {
                key: String::from_utf8_lossy(&self.keys.staged()).into_owned(),
                what: "parts of the last batch are missing".to_owned(),
            }),
        }
    }

    /// A part that was staged, or `None` if the batch is finished.
    fn load_part(&self, state: &State, number: usize) -> Result<Option<Vec<Change>>, EtcdError> {
        let key = self.keys.part(&state.batch, number);
        let found: Found = ask(self.calls.as_ref(), "/v3/kv/range", &Range::of(&key))?;
        found.kvs.first().map(|entry| staging::decode_part(&key, &entry.value.0)).transpose()
    }

    /// What the batch changes, or `None` if it is finished.
    fn staged(&self, state: &State) -> Result<Option<Arc<Changes>>, EtcdError> {
        if let Some((_, changes)) = lock(&self.staged).as_ref().filter(|(batch, _)| *batch == state.batch) {
            return Ok(Some(Arc::clone(changes)));
        }
        let mut changes = Changes::new();
        for number in 0..state.parts as usize {
            match self.load_part(state, number)? {
                Some(part) => changes.extend(part),
                None => return Ok(None),
            }
        }
        let changes = Arc::new(changes);
        *lock(&self.staged) = Some((state.batch.clone(), Arc::clone(&changes)));
        Ok(Some(changes))
    }

    /// Calls `visit` with pages of the table from `start` on and before `end`, keys of the table, as they are at one moment,
    /// until it returns false. The last page may be empty.
    fn pages(
        &self,
        start: &[u8],
        end: &[u8],
        page: usize,
        mut visit: impl FnMut(Entries) -> bool,
    ) -> Result<(), EtcdError> {
        let limited = |from: &[u8], revision| Range {
            limit: Number(page as i64),
            revision: Number(revision),
            ..Range::between(from, end)
        };
        let (view, mut found) = self.read(&[limited(start, 0)])?;
        let (mut found, mut from) = (found.remove(0), self.keys.in_table(start).to_vec());
        loop {
            let next = found.kvs.last().filter(|_| found.more).map(|entry| [&entry.key.0[..], &[0]].concat());
            let entry = |entry: Entry| (self.keys.in_table(&entry.key.0).to_vec(), entry.value.0);
            let mut entries: BTreeMap<_, _> = found.kvs.into_iter().map(entry).collect();
            let until = next.as_ref().map(|next| self.keys.in_table(next).to_vec());
            if let Some(staged) = &view.staged {
                let last = match &until {
                    Some(next) => Bound::Excluded(next.as_slice()),
                    None if end == behind(&self.keys.table(b"")) => Bound::Unbounded,
                    None => Bound::Excluded(self.keys.in_table(end)),
                };
                for (key, value) in staged.range::<[u8], _>((Bound::Included(from.as_slice()), last)) {
                    match value {
                        Some(value) => drop(entries.insert(key.clone(), value.clone())),
                        None => drop(entries.remove(key)),
                    }
                }
            }
            let goes_on = visit(entries.into_iter().collect());
            let (Some(next), Some(until), true) = (next, until, goes_on) else { return Ok(()) };
            found = ask(self.calls.as_ref(), "/v3/kv/range", &limited(&next, view.revision))?;
            from = until;
        }
    }

    fn fence(&self) -> Result<&Fence, RmtError> {
        let reader = || RmtError::Deposed { name: "a reader of the table".into(), master: "another".into() };
        self.fence.as_ref().ok_or_else(reader)
    }

    /// Sends a transaction of the master that expects `state` and leaves `next`. More than once is as once.
    fn step(
        &self,
        state: Option<&State>,
        next: Option<&State>,
        expected: &[Change],
        mut success: Vec<Operation>,
    ) -> Result<Done, RmtError> {
        let fence = self.fence()?;
        let (master, key) = (self.keys.master(), self.keys.state());
        let value = |state: Option<&State>| state.map(State::encode);
        let mut compare =
            vec![Compare::created(&master, fence.create_revision), Compare::value(&key, value(state).as_deref())];
        compare.extend(expected.iter().map(|(key, value)| Compare::value(&self.keys.table(key), value.as_deref())));
        if let Some(next) = next {
            success.push(Operation::put(&key, &next.encode()));
        }
        let failure = vec![Operation::Range(Range::of(&key)), Operation::Range(Range::of(&master))];
        let mut outcome = transact(self.calls.as_ref(), &Transaction { compare, success, failure })?;
        if outcome.succeeded {
            return Ok(Done::Applied);
        }
        self.failed(state, next, fence, &mut outcome)
    }

    fn failed(
        &self,
        state: Option<&State>,
        next: Option<&State>,
        fence: &Fence,
        outcome: &mut Outcome,
    ) -> Result<Done, RmtError> {
        let found = self.state_in(&outcome.take(0))?;
        if next.is_some() && found.as_ref() == next {
            // An earlier sending took effect.
            return Ok(Done::Applied);
        }
        let master = outcome.take(1);
        if master.kvs.first().map(|master| master.create_revision.0) != Some(fence.create_revision) {
            return Err(deposed(fence, &master));
        }
        Ok(if found.as_ref() == state { Done::Unexpected } else { Done::Moved })
    }

    /// Finishes or drops what a writer before left, and returns the state then.
    fn settle(&self) -> Result<Option<State>, RmtError> {
        let mut lacking = None;
        loop {
            let staged = self.keys.staged();
            let left = Range { limit: Number(1), ..Range::between(&staged, &behind(&staged)) };
            let success = vec![Operation::Range(Range::of(&self.keys.state())), Operation::Range(left)];
            let mut outcome = transact(self.calls.as_ref(), &Transaction { success, ..Transaction::default() })?;
            let state = self.state_in(&outcome.take(0))?;
            let next = match &state {
                Some(state) if state.parts > 0 => match self.finish(state)? {
                    None => {
                        self.refuse_lacking(&mut lacking, state.clone())?;
                        None
                    }
                    next => next,
                },
                state if outcome.take(1).kvs.is_empty() => return Ok(state.clone()),
                state => {
                    let next = State::of_new_batch();
                    let drop = vec![Operation::delete_between(&staged, &behind(&staged))];
                    let done = self.step(state.as_ref(), Some(&next), &[], drop)?;
                    matches!(done, Done::Applied).then_some(next)
                }
            };
            if next.is_some() {
                return Ok(next);
            }
        }
    }

    /// Copies a decided batch into the table. `None`: the state is another by now.
    fn finish(&self, decided: &State) -> Result<Option<State>, RmtError> {
        for number in 0..decided.parts as usize {
            let Some(part) = self.load_part(decided, number)? else { return Ok(None) };
            let changes = part.iter().map(|(key, value)| Operation::change(&self.keys.table(key), value.as_deref()));
            if !matches!(self.step(Some(decided), None, &[], changes.collect())?, Done::Applied) {
                return Ok(None);
            }
        }
        let next = decided.with_parts(0);
        let staged = self.keys.staged();
        let drop = vec![Operation::delete_between(&staged, &behind(&staged))];
        let done = self.step(Some(decided), Some(&next), &[], drop)?;
        Ok(matches!(done, Done::Applied).then_some(next))
    }

    fn commit_at_once(&self, state: Option<&State>, next: &State, batch: &Batch) -> Result<Done, RmtError> {
        let changes = batch.changes.iter();
        let changes = changes.map(|(key, value)| Operation::change(&self.keys.table(key), value.as_deref()));
        self.step(state, Some(next), &batch.expected, changes.collect())
    }

    /// Stages the batch and decides it. Whether all holds that it expects is read before; nothing changes in between unless the state does.
    fn stage(&self, state: Option<&State>, decided: &State, batch: &Batch) -> Result<Done, RmtError> {
        for expected in staging::split(&batch.expected) {
            let ranges: Vec<_> = expected.iter().map(|(key, _)| Range::of(&self.keys.table(key))).collect();
            let (_, found) = self.read(&ranges)?;
            let holds = |((_, value), found): (&(_, Option<Vec<u8>>), &Found)| {
                found.kvs.first().map(|entry| &entry.value.0) == value.as_ref()
            };
            if !expected.iter().zip(&found).all(holds) {
                return Ok(Done::Unexpected);
            }
        }
        for (number, part) in staging::split(&batch.changes).into_iter().enumerate() {
            let put = Operation::put(&self.keys.part(&decided.batch, number), &staging::encode_part(part));
            match self.step(state, None, &[], vec![put])? {
                Done::Applied => {}
                _ => return Ok(Done::Moved),
            }
        }
        match self.step(state, Some(decided), &[], Vec::new())? {
            Done::Applied => Ok(Done::Applied),
            _ => Ok(Done::Moved),
        }
    }

    fn refuse_oversized(batch: &Batch) -> Result<(), EtcdError> {
        for (key, value) in batch.changes.iter().chain(&batch.expected) {
            let bytes = value.as_ref().map_or(0, Vec::len);
            if bytes > MAX_VALUE_BYTES {
                return Err(EtcdError::TooLarge { key: describe(key), bytes, limit: MAX_VALUE_BYTES });
            }
        }
        Ok(())
    }

    /// The entries of the copy of this name; `None`: there is none.
    pub fn copy(&self, name: &str) -> Result<Option<Entries>, RmtError> {
        let found: Found = ask(self.calls.as_ref(), "/v3/kv/range", &Range::of(&self.keys.copy_name(name)))?;
        let Some(current) = found.kvs.first() else { return Ok(None) };
        let prefix = self.keys.copy(name, &String::from_utf8_lossy(&current.value.0));
        let (mut entries, mut start) = (Entries::new(), prefix.clone());
        loop {
            let limit = Number(PAGE as i64);
            let range = Range { limit, ..Range::between(&start, &behind(&prefix)) };
            let found: Found = ask(self.calls.as_ref(), "/v3/kv/range", &range)?;
            let Some(last) = found.kvs.last() else { return Ok(Some(entries)) };
            start = [&last.key.0[..], &[0]].concat();
            entries.extend(found.kvs.into_iter().map(|entry| (entry.key.0[prefix.len()..].to_vec(), entry.value.0)));
        }
    }
}

/// What a master says that is no longer the one in `found`.
fn deposed(fence: &Fence, found: &Found) -> RmtError {
    let named = |entry: &Entry| match serde_json::from_slice::<Candidate>(&entry.value.0) {
        Ok(candidate) => format!("{} at {}", candidate.name, candidate.address),
        Err(_) => String::from_utf8_lossy(&entry.value.0).into_owned(),
    };
    let master = found.kvs.first().map_or_else(|| "nobody".to_owned(), named);
    RmtError::Deposed { name: fence.candidate.name.clone(), master }
}

impl MappingStore for EtcdStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RmtError> {
        let (view, mut found) = self.read(&[Range::of(&self.keys.table(key))])?;
        if let Some(value) = view.staged.as_ref().and_then(|staged| staged.get(key)) {
            return Ok(value.clone());
        }
        Ok(found.remove(0).kvs.pop().map(|entry| entry.value.0))
    }

    fn commit(&self, batch: &Batch) -> Result<bool, RmtError> {
        Self::refuse_oversized(batch)?;
        let mut known = lock(&self.known);
        loop {
            // Forgotten until this succeeds: after an error it is not known.
            let state = match known.take() {
                Some(state) => state,
                None => self.settle()?,
            };
            let parts = if staging::fits(batch) { 0 } else { staging::split(&batch.changes).len() as u32 };
            let next = State::of_new_batch().with_parts(parts);
            let done = match staging::fits(batch) {
                true => self.commit_at_once(state.as_ref(), &next, batch)?,
                false => self.stage(state.as_ref(), &next, batch)?,
            };
            match done {
                Done::Applied if parts == 0 => *known = Some(Some(next)),
                // It took effect. If the rest fails, the next commit does it, and readers see it anyway.
                Done::Applied => *known = self.finish(&next).ok().flatten().map(Some),
                Done::Unexpected => *known = Some(state),
                Done::Moved => continue,
            }
            return Ok(!matches!(done, Done::Unexpected));
        }
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Entries, RmtError> {
        let start = after.map(|after| [after, &[0]].concat()).filter(|start| start.as_slice() > prefix);
        let start = self.keys.table(start.as_deref().unwrap_or(prefix));
        let end = behind(&self.keys.table(prefix));
        if start >= end || limit == 0 {
            return Ok(Entries::new());
        }
        loop {
            let mut all = Entries::new();
            let read = self.pages(&start, &end, PAGE.min(limit), |entries| {
                all.extend(entries);
                all.len() < limit
            });
            match read {
                Err(EtcdError::Compacted { .. }) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    all.truncate(limit);
                    return Ok(all);
                }
            }
        }
    }

    fn watch(&self, prefix: &[u8]) -> mpsc::Receiver<Vec<u8>> {
        let start = self.keys.table(prefix);
        let (receiver, follower) = watch(&self.calls, &self.keys, &start, &behind(&start));
        lock(&self.followers).extend(follower);
        receiver
    }

    fn keep_copy(&self, name: &str) -> Result<(), RmtError> {
        let entries = self.scan(b"", None, usize::MAX)?;
        let copy = State::of_new_batch().batch;
        let (prefix, all) = (self.keys.copy(name, &copy), self.keys.copies(name));
        let guarded = |success| {
            let fence = self.fence()?;
            let master = self.keys.master();
            let compare = vec![Compare::created(&master, fence.create_revision)];
            let failure = vec![Operation::Range(Range::of(&master))];
            let mut outcome = transact(self.calls.as_ref(), &Transaction { compare, success, failure })?;
            match outcome.succeeded {
                true => Ok(()),
                false => Err(deposed(fence, &outcome.take(0))),
            }
        };
        let entries: Vec<_> =
            entries.into_iter().map(|(key, value)| ([&prefix[..], &key].concat(), Some(value))).collect();
        for part in staging::split(&entries) {
            guarded(part.iter().map(|(key, value)| Operation::change(key, value.as_deref())).collect())?;
        }
        guarded(vec![
            Operation::put(&self.keys.copy_name(name), copy.as_bytes()),
            Operation::delete_between(&all, &prefix),
            Operation::delete_between(&behind(&prefix), &behind(&all)),
        ])
    }
}
