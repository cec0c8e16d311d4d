//! Links over real sockets on the loopback.

mod ending;
mod keys;
mod refusing;
mod talking;

use super::{ClusterKey, Hears, Introduction, Limits, LinkError, Listener, Peer, connect_with};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// For what must come; nobody waits so long otherwise.
const LONG: Duration = Duration::from_secs(60);

pub(super) fn key() -> ClusterKey {
    let root = tempfile::tempdir().unwrap();
    ClusterKey::make(&root.path().join("key")).unwrap()
}

fn introduction(host: &str) -> Introduction {
    Introduction {
        cluster: "c1".to_owned(),
        host: host.to_owned(),
        machine: format!("machine-of-{host}"),
        process: std::process::id(),
        version: 7,
        boot: None,
        directory: None,
    }
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

type Answering = Box<dyn Fn(&Arc<Peer>, Vec<u8>) -> Vec<u8> + Send + Sync>;

/// What happened to a host, besides questions.
#[derive(Debug)]
enum Event {
    Met(Arc<Peer>),
    Notice(Vec<u8>),
    Left(LinkError),
}

/// A host of a test.
struct Host {
    answer: Answering,
    refuses: Option<&'static str>,
    events: Mutex<Sender<Event>>,
}

impl Hears for Host {
    fn hear(&self, from: &Arc<Peer>, question: Vec<u8>) -> Vec<u8> {
        (self.answer)(from, question)
    }

    fn notified(&self, _: &Arc<Peer>, notice: Vec<u8>) {
        let _ = self.events.lock().unwrap().send(Event::Notice(notice));
    }

    fn met(&self, peer: &Arc<Peer>) -> Result<(), String> {
        if let Some(refusal) = self.refuses {
            return Err(refusal.to_owned());
        }
        let _ = self.events.lock().unwrap().send(Event::Met(Arc::clone(peer)));
        Ok(())
    }

    fn left(&self, _: &Arc<Peer>, why: &LinkError) {
        let _ = self.events.lock().unwrap().send(Event::Left(why.clone()));
    }
}

fn host(answer: impl Fn(&Arc<Peer>, Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> (Arc<Host>, Receiver<Event>) {
    let (events, received) = channel();
    (Arc::new(Host { answer: Box::new(answer), refuses: None, events: Mutex::new(events) }), received)
}

/// A host that answers a question with the question.
fn echo() -> (Arc<Host>, Receiver<Event>) {
    host(|_, question| question)
}

fn refusing(text: &'static str) -> (Arc<Host>, Receiver<Event>) {
    let (events, received) = channel();
    (
        Arc::new(Host { answer: Box::new(|_, question| question), refuses: Some(text), events: Mutex::new(events) }),
        received,
    )
}

fn next_met(events: &Receiver<Event>) -> Arc<Peer> {
    match events.recv_timeout(LONG).unwrap() {
        Event::Met(peer) => peer,
        other => panic!("{other:?}"),
    }
}

fn next_left(events: &Receiver<Event>) -> LinkError {
    loop {
        if let Event::Left(why) = events.recv_timeout(LONG).unwrap() {
            return why;
        }
    }
}

/// A listening host `a` and a connecting host `b`, both as their owner sees the other.
struct Pair {
    listener: Listener,
    of_a: Receiver<Event>,
    of_b: Receiver<Event>,
    /// `a` as `b` sees it, and the reverse.
    a: Arc<Peer>,
    b: Arc<Peer>,
}

fn pair(a: (Arc<Host>, Receiver<Event>), b: (Arc<Host>, Receiver<Event>)) -> Pair {
    let key = key();
    let limits = Limits::default();
    let listener = Listener::start_with(loopback(), &key, introduction("a"), a.0, limits).unwrap();
    let seen = connect_with(listener.address(), &key, &introduction("b"), b.0, LONG, limits).unwrap();
    assert!(Arc::ptr_eq(&next_met(&b.1), &seen));
    let peer_b = next_met(&a.1);
    assert_eq!(peer_b.introduction(), &introduction("b"));
    Pair { listener, of_a: a.1, of_b: b.1, a: seen, b: peer_b }
}
