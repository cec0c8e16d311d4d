//! Transfers of several stores under way together.

use super::store::ObjectStore;
use super::transfer::Transfer;

/// The transfers of one store.
pub struct Submission<'s, 'a> {
    /// Where the transfers' objects are.
    pub store: &'s dyn ObjectStore,
    /// In any order; their ranges should not overlap.
    pub batch: Vec<Transfer<'a>>,
}

/// Has the transfers of several stores under way together, as far as the stores can, beside what `last` does, and returns when all are over.
pub fn submit_all(submissions: &mut [Submission<'_, '_>], last: &mut dyn FnMut()) {
    let mut order: Vec<&mut Submission<'_, '_>> = submissions.iter_mut().collect();
    // Those that do theirs in turn come last, when the others have begun.
    order.sort_by_key(|submission| !submission.store.capabilities().overlaps);
    submit_from(&mut order, last);
}

fn submit_from(submissions: &mut [&mut Submission<'_, '_>], last: &mut dyn FnMut()) {
    match submissions {
        [first, rest @ ..] => first.store.submit(&mut first.batch, &mut || submit_from(rest, last)),
        [] => last(),
    }
}
