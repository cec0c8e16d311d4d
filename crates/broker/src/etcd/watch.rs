//! Changes as etcd reports them.

use super::client::{Answer, Call, encode, transact};
use super::error::EtcdError;
use super::keys::Keys;
use super::messages::{Event, Number, Operation, Range, Streamed, Transaction, WatchCreate, WatchRequest, Watched};
use std::io::{BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// After so long without a message the stream is opened again: its connection may be dead.
const SILENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(200);

/// Keeps a thread that follows changes; it ends within [`SILENCE`] after this is dropped.
pub(super) struct Follower(Arc<AtomicBool>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Changes of keys from `start` on and before `end` (empty: of `start` alone) since `revision`.
pub(super) fn events(
    calls: &dyn Call,
    (start, end): (&[u8], &[u8]),
    revision: i64,
    silence: Duration,
) -> Result<impl Iterator<Item = Option<Vec<Event>>> + use<>, EtcdError> {
    let create_request = WatchCreate { key: start.into(), range_end: end.into(), start_revision: Number(revision) };
    let Answer { body, .. } = calls.stream("/v3/watch", &encode(&WatchRequest { create_request }), silence)?;
    Ok(messages(body))
}

/// `None`, the last: etcd no longer has what is asked for. The iterator ends where the stream does.
fn messages(body: Box<dyn Read + Send>) -> impl Iterator<Item = Option<Vec<Event>>> {
    let messages = serde_json::Deserializer::from_reader(BufReader::new(body)).into_iter::<Streamed<Watched>>();
    messages.map_while(Result::ok).map_while(|message| message.result).map(|message| match message.canceled {
        true => None,
        false => Some(message.events),
    })
}

/// Sends the keys of the table that change from now on. The receiver's end says that changes may have been missed: what they
/// would have told has to be read.
pub(super) fn watch(
    calls: &Arc<dyn Call>,
    keys: &Keys,
    start: &[u8],
    end: &[u8],
) -> (mpsc::Receiver<Vec<u8>>, Option<Follower>) {
    let (sender, receiver) = mpsc::channel();
    let now = Transaction { success: vec![Operation::Range(Range::of(start))], ..Transaction::default() };
    // Without an answer the receiver ends at once.
    let Ok(now) = transact(calls.as_ref(), &now) else { return (receiver, None) };
    let ended = Arc::new(AtomicBool::new(false));
    let follower = Follower(Arc::clone(&ended));
    let (calls, keys, start, end) = (Arc::clone(calls), keys.clone(), start.to_vec(), end.to_vec());
    let mut next = now.header.revision.0 + 1;
    let follow = move || {
        while !ended.load(Ordering::Relaxed) {
            let Ok(events) = events(calls.as_ref(), (&start, &end), next, SILENCE) else {
                std::thread::sleep(PAUSE);
                continue;
            };
            for events in events {
                let Some(events) = events else { return };
                for event in events {
                    next = next.max(event.kv.mod_revision.0 + 1);
                    if ended.load(Ordering::Relaxed) || sender.send(keys.in_table(&event.kv.key.0).to_vec()).is_err() {
                        return;
                    }
                }
            }
        }
    };
    let started = std::thread::Builder::new().name("etcd-watch".into()).spawn(follow);
    (receiver, started.is_ok().then_some(follower))
}
