//! Changes of the table as they take effect. The last batches are asked for again and again: a notification that a dead watcher does not
//! acknowledge would hold up the master, and nothing that watches is in a hurry.

use super::super::RadosError;
use super::error::RadosTableError;
use super::objects::Objects;
use super::scanning::batches_after;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_millis(100);

/// Keeps a thread that follows changes; it ends within [`INTERVAL`] and an operation after this is dropped.
pub(super) struct Follower(Arc<AtomicBool>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends the keys with `prefix` that change from batch `number` on. The receiver's end says that changes may have been missed: what they
/// would have told has to be read.
pub(super) fn watch(
    objects: &Arc<dyn Objects>,
    prefix: &[u8],
    number: u64,
) -> (mpsc::Receiver<Vec<u8>>, Option<Follower>) {
    let (sender, receiver) = mpsc::channel();
    let ended = Arc::new(AtomicBool::new(false));
    let follower = Follower(Arc::clone(&ended));
    let (objects, prefix, mut number) = (Arc::clone(objects), prefix.to_vec(), number);
    let follow = move || {
        while !ended.load(Ordering::Relaxed) {
            let batches = match batches_after(objects.as_ref(), number) {
                Ok(Some((last, batches))) => {
                    number = last;
                    batches
                }
                // Servers that are down come back.
                Err(RadosTableError::Rados(RadosError::TimedOut { .. })) => Vec::new(),
                Ok(None) | Err(_) => return,
            };
            for batch in batches {
                let Some(changes) = batch.changes else { return };
                for (key, _) in changes.into_iter().filter(|(key, _)| key.starts_with(&prefix)) {
                    if ended.load(Ordering::Relaxed) || sender.send(key).is_err() {
                        return;
                    }
                }
            }
            std::thread::sleep(INTERVAL);
        }
    };
    let started = std::thread::Builder::new().name("rados-watch".into()).spawn(follow);
    (receiver, started.is_ok().then_some(follower))
}
