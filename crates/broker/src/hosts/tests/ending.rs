use super::{Event, LONG, echo, host, introduction, key, loopback, next_left, next_met, pair};
use crate::hosts::{ClusterKey, Limits, LinkError, Listener, Peer, connect_with};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// As short as a busy machine lets it be, since tests wait for it.
const QUICK: Limits = Limits { silence: Duration::from_secs(4), handshake: Duration::from_secs(60) };

#[test]
fn a_closed_link_brings_what_was_sent_before_and_says_why_it_ended() {
    let pair = pair(echo(), echo());
    for number in 0..500_u32 {
        pair.a.notify(&[&number.to_le_bytes()[..], &[0; 2000]].concat()).unwrap();
    }
    pair.a.close();
    let error = pair.a.notify(b"too late").unwrap_err();
    assert!(matches!(error, LinkError::Closed { .. }) && error.has_ended(), "{error}");
    for number in 0..500_u32 {
        let Event::Notice(notice) = pair.of_a.recv_timeout(LONG).unwrap() else { panic!("a notice is missing") };
        assert_eq!(notice[..4], number.to_le_bytes());
    }
    let why = next_left(&pair.of_a);
    assert!(matches!(why, LinkError::ClosedThere { .. }), "{why}");
    assert!(matches!(next_left(&pair.of_b), LinkError::Closed { .. }));
    assert_eq!(pair.b.ask(b"?", LONG).unwrap_err(), why);
    assert_eq!(pair.b.why_ended(), Some(why));
    assert!(!pair.b.is_open() && !pair.a.is_open());
}

#[test]
fn a_dropped_listener_ends_its_links_after_what_is_being_heard() {
    let (begun, has_begun) = channel();
    let (release, released) = channel::<()>();
    let (begun, released) = (Mutex::new(begun), Mutex::new(released));
    let slow = host(move |_, question| {
        begun.lock().unwrap().send(()).unwrap();
        released.lock().unwrap().recv().unwrap();
        question
    });
    let pair = pair(slow, echo());
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| pair.a.ask(b"?", LONG));
        has_begun.recv_timeout(LONG).unwrap();
        let dropper = scope.spawn(|| drop(pair.listener));
        let why = asker.join().unwrap().unwrap_err();
        assert!(matches!(why, LinkError::ClosedThere { .. }), "{why}");
        assert!(matches!(next_left(&pair.of_b), LinkError::ClosedThere { .. }));
        // The answer is not there yet.
        assert!(pair.of_a.try_recv().is_err() && !dropper.is_finished());
        release.send(()).unwrap();
        dropper.join().unwrap();
        assert!(matches!(pair.of_a.try_recv(), Ok(Event::Left(LinkError::Closed { .. }))));
    });
}

#[test]
fn a_listener_may_be_dropped_by_what_it_hears() {
    let listener: Arc<Mutex<Option<Listener>>> = Arc::default();
    let dropped = Arc::clone(&listener);
    let (a, of_a) = host(move |_, question| {
        drop(dropped.lock().unwrap().take());
        question
    });
    let key = key();
    let started = Listener::start(loopback(), &key, introduction("a"), a).unwrap();
    let address = started.address();
    *listener.lock().unwrap() = Some(started);
    let peer = connect_with(address, &key, &introduction("b"), echo().0, LONG, Limits::default()).unwrap();
    let answer = peer.ask(b"end", LONG);
    assert!(matches!(answer, Err(LinkError::ClosedThere { .. })), "{answer:?}");
    next_left(&of_a);
}

/// Passes bytes on between two sockets, or drops them in a direction.
struct Cable {
    address: SocketAddr,
    /// Whether bytes to the listener pass, and those from it.
    passes: [Arc<AtomicBool>; 2],
    ends: Receiver<[TcpStream; 2]>,
}

impl Cable {
    fn to(listener: SocketAddr) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let passes = [(); 2].map(|()| Arc::new(AtomicBool::new(true)));
        let (sender, ends) = channel();
        let passing = passes.clone();
        std::thread::spawn(move || {
            let client = socket.accept().unwrap().0;
            let server = TcpStream::connect(listener).unwrap();
            let copy = |from: &TcpStream, to: &TcpStream, passes: Arc<AtomicBool>| {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || {
                    let mut bytes = [0; 65_536];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        if passes.load(Ordering::SeqCst) && to.write_all(&bytes[..count]).is_err() {
                            return;
                        }
                    }
                    if passes.load(Ordering::SeqCst) {
                        let _ = to.shutdown(Shutdown::Write);
                    }
                });
            };
            copy(&client, &server, Arc::clone(&passing[0]));
            copy(&server, &client, Arc::clone(&passing[1]));
            sender.send([client, server]).unwrap();
        });
        Self { address, passes, ends }
    }
}

/// A link over a cable: the listener, its events, the connecting side's events, and the peer as that one sees it.
fn over_a_cable(limits: Limits) -> (Cable, Listener, Receiver<Event>, Receiver<Event>, Arc<Peer>) {
    let key = key();
    // Asked to wait, it does so until the link is gone.
    let (a, of_a) = host(|from, question| {
        while question == b"wait" && from.is_open() {
            std::thread::sleep(Duration::from_millis(5));
        }
        question
    });
    let (b, of_b) = echo();
    let listener = Listener::start_with(loopback(), &key, introduction("a"), a, limits).unwrap();
    let cable = Cable::to(listener.address());
    let peer = connect_with(cable.address, &key, &introduction("b"), b, LONG, limits).unwrap();
    next_met(&of_a);
    next_met(&of_b);
    assert_eq!(peer.ask(b"?", LONG).unwrap(), b"?");
    (cable, listener, of_a, of_b, peer)
}

#[test]
fn a_dropped_socket_ends_the_link_at_once_for_all_who_wait() {
    let (cable, _listener, of_a, of_b, peer) = over_a_cable(Limits { silence: LONG, handshake: LONG });
    std::thread::scope(|scope| {
        let askers: Vec<_> = (0..20).map(|_| scope.spawn(|| peer.ask(b"wait", LONG * 10))).collect();
        for socket in cable.ends.recv_timeout(LONG).unwrap() {
            // The first may have ended the second by now.
            if let Err(error) = socket.shutdown(Shutdown::Both) {
                assert_eq!(error.kind(), std::io::ErrorKind::NotConnected);
            }
        }
        for asker in askers {
            let why = asker.join().unwrap().unwrap_err();
            assert!(matches!(why, LinkError::Broken { .. }), "{why}");
        }
    });
    assert!(matches!(next_left(&of_b), LinkError::Broken { .. }));
    assert!(matches!(next_left(&of_a), LinkError::Broken { .. }));
}

#[test]
fn a_link_that_passes_nothing_is_silent_for_both() {
    let (cable, _listener, of_a, of_b, peer) = over_a_cable(QUICK);
    cable.passes.iter().for_each(|passes| passes.store(false, Ordering::SeqCst));
    let late = peer.ask(b"?", Duration::from_millis(10)).unwrap_err();
    assert!(matches!(late, LinkError::Late { .. }), "{late}");
    let why = peer.ask(b"?", LONG * 10).unwrap_err();
    assert!(matches!(why, LinkError::Silent { limit, .. } if limit == QUICK.silence), "{why}");
    assert!(matches!(next_left(&of_b), LinkError::Silent { .. }));
    assert!(matches!(next_left(&of_a), LinkError::Silent { .. }));
}

#[test]
fn a_link_that_passes_in_one_direction_alone_ends_on_both_sides() {
    for direction in 0..2 {
        let (cable, _listener, of_a, of_b, _peer) = over_a_cable(QUICK);
        cable.passes[direction].store(false, Ordering::SeqCst);
        let (deaf, other) = if direction == 0 { (of_a, of_b) } else { (of_b, of_a) };
        assert!(matches!(next_left(&deaf), LinkError::Silent { .. }));
        // The end reaches it, because its direction still passes.
        let why = next_left(&other);
        assert!(matches!(why, LinkError::Broken { .. } | LinkError::Silent { .. }), "{why}");
    }
}

#[test]
fn an_idle_link_stays() {
    // Longer than a busy machine stops a thread for.
    let limits = Limits { silence: Duration::from_secs(6), ..QUICK };
    let (_cable, _listener, of_a, of_b, peer) = over_a_cable(limits);
    // Pings alone keep it, for more than the time of silence.
    assert!(of_a.recv_timeout(limits.silence * 3 / 2).is_err());
    assert!(of_b.try_recv().is_err());
    assert_eq!(peer.ask(b"?", LONG).unwrap(), b"?");
}

/// The variable that makes [`stopped_child`] a host; its value is the path of the key and the listener's address.
const CHILD: &str = "STRIPEWISE_TEST_LINK_CHILD";

/// Runs in a process of its own, which the test below stops.
#[test]
fn stopped_child() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let (key, address) = arguments.rsplit_once(' ').unwrap();
    let key = ClusterKey::load(std::path::Path::new(key)).unwrap();
    let (hears, events) = echo();
    let peer = connect_with(address.parse().unwrap(), &key, &introduction("b"), hears, LONG, QUICK).unwrap();
    println!("connected to {}", peer.name());
    println!("left: {}", next_left(&events));
}

#[test]
fn a_process_that_is_stopped_is_silent() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("key");
    let key = ClusterKey::make(&path).unwrap();
    let (a, of_a) = echo();
    let listener = Listener::start_with(loopback(), &key, introduction("a"), a, QUICK).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hosts::tests::ending::stopped_child", "--nocapture"])
        .env(CHILD, format!("{} {}", path.display(), listener.address()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let peer = next_met(&of_a);
    assert_eq!(peer.ask(b"?", LONG).unwrap(), b"?");
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    // Its threads do not stop at once.
    let stopped = rustix::process::WaitIdOptions::STOPPED;
    rustix::process::waitid(rustix::process::WaitId::Pid(process), stopped).unwrap().unwrap();
    let late = peer.ask(b"?", Duration::from_millis(10)).unwrap_err();
    assert!(matches!(late, LinkError::Late { .. }), "{late}");
    let why = next_left(&of_a);
    assert!(matches!(why, LinkError::Silent { .. }), "{why}");
    rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    // It finds the link gone, and not the other side silent: what came meanwhile is read first.
    let lines: Vec<_> = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success());
    let left = lines.iter().find(|line| line.starts_with("left: ")).unwrap();
    assert!(left.contains("broke") || left.contains("closed"), "{left}");
}
