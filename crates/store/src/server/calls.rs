//! Calls of stores other than transfers, several under way together.
//!
//! What concerns all objects of a region (creation, removal, truncation, syncs) is asked of its servers at once, so that it takes as long as the slowest
//! of them and not as long as all one after the other.

use super::ServerError;
use super::decorator::{Operation, Outcome};
use super::store::ObjectStore;

/// A call on its way.
pub struct Call<'a> {
    /// What is asked of the store.
    pub operation: Operation<'a>,
    /// What it gave, once it is over.
    pub completion: Option<Result<Outcome, ServerError>>,
}

impl<'a> Call<'a> {
    /// A call that has not begun.
    #[must_use]
    pub fn new(operation: Operation<'a>) -> Self {
        Self { operation, completion: None }
    }
}

/// [`ObjectStore::perform_batch`] of a store that answers at once: the calls one after the other, then `others`.
pub(super) fn perform_in_turn(store: &dyn ObjectStore, batch: &mut [Call<'_>], others: &mut dyn FnMut()) {
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
        let create = |number| Operation::Create(object(number), ownership);
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
}
