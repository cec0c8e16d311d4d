//! Calls of stores other than transfers, several under way together.
//!
//! What concerns all objects of a region (creation, removal, truncation, syncs) is asked of its servers at once, so that it takes as long as the slowest
//! of them and not as long as all one after the other.

use super::ServerError;
use super::operation::{Call, Operation, Outcome};
use super::store::ObjectStore;
use super::transfer::ObjectHandle;
use std::borrow::Cow;

impl Operation<'_> {
    /// Makes the call.
    ///
    /// # Errors
    /// The store's.
    pub fn run_on(&self, store: &dyn ObjectStore) -> Result<Outcome, ServerError> {
        let done = |()| Outcome::Done;
        match self {
            Operation::Probe => store.probe().map(done),
            Operation::Standing => store.standing().map(Outcome::Standing),
            Operation::Create { object, ownership, expected_bytes } => {
                store.create_expecting(*object, *ownership, *expected_bytes).map(done)
            }
            Operation::Open(object, mode) => store.open_as(*object, *mode).map(Outcome::Handle),
            Operation::Size(object) => store.size(*object).map(Outcome::Size),
            Operation::Truncate(object, length) => store.truncate(*object, *length).map(done),
            Operation::Sync(handle) => store.sync(*handle).map(done),
            Operation::SyncNames(file) => store.sync_names(*file).map(done),
            Operation::SetOwnership(object, ownership) => store.set_ownership(*object, *ownership).map(done),
            Operation::Remove(object) => store.remove(*object).map(done),
            Operation::RemoveFile(file) => store.remove_file(*file).map(done),
            Operation::Describe { file, head, lines } => store.describe(*file, head, lines).map(Outcome::Bytes),
            Operation::DescribeAgain { file, text } => store.describe_again(*file, text).map(done),
            Operation::SyncDescription(file) => store.sync_description(*file).map(done),
            Operation::Descriptions => store.descriptions().map(Outcome::Descriptions),
            Operation::Objects => store.objects().map(Outcome::Objects),
            Operation::FreeBytes => store.free_bytes().map(Outcome::Bytes),
            Operation::FenceHost { host, admission } => store.fence_host(host, *admission).map(done),
            Operation::InTurn(operations) => in_turn(operations, |operation| operation.run_on(store)),
        }
    }

    /// The same with memory and handle of its own, to be run by another thread.
    pub(super) fn into_kept(self) -> Result<KeptOperation, rustix::io::Errno> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        let operation = match self {
            Operation::Sync(handle) => return Ok(KeptOperation::Sync(handle.to_owned_handle()?)),
            Operation::Probe => Operation::Probe,
            Operation::Standing => Operation::Standing,
            Operation::Create { object, ownership, expected_bytes } => {
                Operation::Create { object, ownership, expected_bytes }
            }
            Operation::Open(object, mode) => Operation::Open(object, mode),
            Operation::Size(object) => Operation::Size(object),
            Operation::Truncate(object, length) => Operation::Truncate(object, length),
            Operation::SyncNames(file) => Operation::SyncNames(file),
            Operation::SetOwnership(object, ownership) => Operation::SetOwnership(object, ownership),
            Operation::Remove(object) => Operation::Remove(object),
            Operation::RemoveFile(file) => Operation::RemoveFile(file),
            Operation::Describe { file, head, lines } => {
                Operation::Describe { file, head: own(head), lines: own(lines) }
            }
            Operation::DescribeAgain { file, text } => Operation::DescribeAgain { file, text: own(text) },
            Operation::SyncDescription(file) => Operation::SyncDescription(file),
            Operation::Descriptions => Operation::Descriptions,
            Operation::Objects => Operation::Objects,
            Operation::FreeBytes => Operation::FreeBytes,
            Operation::FenceHost { host, admission } => Operation::FenceHost { host: own(host), admission },
            Operation::InTurn(operations) => {
                let kept = operations.into_iter().map(Operation::into_kept);
                return kept.collect::<Result<_, _>>().map(KeptOperation::InTurn);
            }
        };
        Ok(KeptOperation::Other(operation))
    }
}

/// Runs calls one after the other, up to the first that fails.
fn in_turn<T>(operations: &[T], run: impl Fn(&T) -> Result<Outcome, ServerError>) -> Result<Outcome, ServerError> {
    operations.iter().map(run).collect::<Result<_, _>>().map(Outcome::InTurn)
}

/// An [`Operation`] that borrows nothing.
pub(super) enum KeptOperation {
    Sync(ObjectHandle),
    InTurn(Vec<KeptOperation>),
    Other(Operation<'static>),
}

impl KeptOperation {
    pub(super) fn run_on(&self, store: &dyn ObjectStore) -> Result<Outcome, ServerError> {
        match self {
            KeptOperation::Sync(handle) => Operation::Sync(handle.as_handle()).run_on(store),
            KeptOperation::InTurn(operations) => in_turn(operations, |operation| operation.run_on(store)),
            KeptOperation::Other(operation) => operation.run_on(store),
        }
    }
}

/// [`ObjectStore::perform_batch`] of a store that answers at once: the calls one after the other, then `others`.
pub fn perform_in_turn(store: &dyn ObjectStore, batch: &mut [Call<'_>], others: &mut dyn FnMut()) {
    for call in batch {
        call.completion = Some(call.operation.run_on(store));
    }
    others();
}

/// The calls of one store, with the positions of their results.
struct Batch<'s, 'a> {
    store: &'s dyn ObjectStore,
    numbers: Vec<usize>,
    calls: Vec<Call<'a>>,
}

/// Has calls of several stores under way together, as far as the stores can, and returns what became of each, in their order, when all are over. They
/// may end in any order, so none should need another one's effect.
#[must_use]
pub fn perform_together<'s>(
    calls: impl IntoIterator<Item = (&'s dyn ObjectStore, Operation<'s>)>,
) -> Vec<Result<Outcome, ServerError>> {
    let mut batches: Vec<Batch<'s, 's>> = Vec::new();
    let mut count = 0;
    for (number, (store, operation)) in calls.into_iter().enumerate() {
        count += 1;
        let known = batches.iter().position(|batch| std::ptr::addr_eq(batch.store, store));
        let at = known.unwrap_or_else(|| {
            batches.push(Batch { store, numbers: Vec::new(), calls: Vec::new() });
            batches.len() - 1
        });
        batches[at].numbers.push(number);
        batches[at].calls.push(Call::new(operation));
    }
    // Those that do theirs in turn come last, when the others have begun.
    batches.sort_by_key(|batch| !batch.store.capabilities().overlaps);
    perform_from(&mut batches);
    let mut results: Vec<Option<Result<Outcome, ServerError>>> = (0..count).map(|_| None).collect();
    for Batch { store, numbers, calls } in batches {
        for (number, call) in numbers.into_iter().zip(calls) {
            results[number] = Some(call.completion.unwrap_or_else(|| Err(unanswered(store.name()))));
        }
    }
    results.into_iter().flatten().collect()
}

fn perform_from(batches: &mut [Batch<'_, '_>]) {
    if let [first, rest @ ..] = batches {
        first.store.perform_batch(&mut first.calls, &mut || perform_from(rest));
    }
}

fn unanswered(server: &str) -> ServerError {
    ServerError::Unusable { server: server.to_owned(), what: "it ended a call without saying how".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryServer;
    use super::super::{Capabilities, Decorator, ObjectName, Ownership};
    use super::*;
    use std::sync::Mutex;
    use stripewise_layout::{FileId, Generation, RegionIndex};

    /// Notes when its batches begin and end, and has them overlap those of others.
    struct Noting<'n> {
        inner: MemoryServer,
        notes: &'n Mutex<Vec<String>>,
    }

    impl Decorator for Noting<'_> {
        fn inner(&self) -> Result<&dyn ObjectStore, ServerError> {
            Ok(&self.inner)
        }

        fn name(&self) -> &str {
            self.inner.name()
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities { overlaps: true, ..self.inner.capabilities() }
        }

        fn perform_batch(&self, batch: &mut [Call<'_>], others: &mut dyn FnMut()) {
            let note = |what: &str| self.notes.lock().unwrap().push(format!("{what} {}", self.inner.name()));
            note("begin");
            others();
            note("end");
            perform_in_turn(&self.inner, batch, &mut || ());
        }
    }

    #[test]
    fn calls_of_all_stores_begin_before_any_is_over_and_each_gets_its_own_result() {
        let notes = Mutex::default();
        let plain = MemoryServer::new("plain");
        let overlapping = ["a", "b"].map(|name| Noting { inner: MemoryServer::new(name), notes: &notes });
        let [a, b] = overlapping.each_ref().map(|server| server as &dyn ObjectStore);
        let ownership = Ownership { mode: 0o600, uid: 0, gid: 0 };
        let object = |number| ObjectName { file: FileId(1), region: RegionIndex(number), generation: Generation(1) };
        let create = |number| Operation::create(object(number), ownership);
        let results = perform_together([
            (&plain as &dyn ObjectStore, create(0)),
            (a, create(0)),
            (b, create(0)),
            (a, Operation::Size(object(9))),
            (b, create(1)),
        ]);
        let said: Vec<String> = results
            .iter()
            .map(|result| result.as_ref().map_or_else(ToString::to_string, |outcome| format!("{outcome:?}")))
            .collect();
        assert_eq!(*notes.lock().unwrap(), ["begin a", "begin b", "end b", "end a"]);
        assert_eq!([&*said[0], &*said[1], &*said[2], &*said[4]], ["Done"; 4]);
        assert!(said[3].contains("server a: object") && said[3].contains("is missing"), "{}", said[3]);
        assert_eq!(b.objects().unwrap(), [object(0), object(1)]);
    }

    #[test]
    fn calls_in_turn_end_with_the_first_that_fails() {
        let server = MemoryServer::new("s");
        let ownership = Ownership { mode: 0o600, uid: 0, gid: 0 };
        let object = |number| ObjectName { file: FileId(1), region: RegionIndex(number), generation: Generation(1) };
        let create = |number| Operation::create(object(number), ownership);
        let in_turn = |calls: Vec<Operation<'static>>| {
            let kept = Operation::InTurn(calls.clone()).into_kept().unwrap();
            (Operation::InTurn(calls).run_on(&server), kept)
        };
        let (done, kept) = in_turn(vec![create(0), Operation::Size(object(0))]);
        let turns = done.unwrap().into_turns("s").unwrap();
        assert!(matches!(&turns[..], [Outcome::Done, Outcome::Size(_)]), "{turns:?}");
        assert!(matches!(kept.run_on(&server), Err(ServerError::Exists { .. })));
        let (failed, _) = in_turn(vec![create(1), Operation::Size(object(9)), create(2)]);
        assert!(matches!(failed, Err(ServerError::Missing { .. })), "{failed:?}");
        assert_eq!(server.objects().unwrap(), [object(0), object(1)]);
    }
}
