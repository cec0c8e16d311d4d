use super::{Event, LONG, echo, host, introduction, key, loopback, next_left, next_met, refusing};
use crate::hosts::{
    ClusterKey, FRAMES_VERSION, Frame, Introduction, Kind, Limits, LinkError, Listener, MAX_QUESTIONS, connect,
    encode_hello, tls,
};
use crate::log::{EventsOnly, Line, Sink};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, Connection, DigitallySignedStruct, Error, SignatureScheme};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::dispatcher::{self, Dispatch};

/// Sends every event as a line.
struct Lines(Mutex<Sender<String>>);

impl Sink for Lines {
    fn takes(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "stripewise::broker"
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let _ = self.0.lock().unwrap().send(Line::of(event));
    }
}

/// A listener `a`, and what it logs.
fn listen(key: &ClusterKey, hears: Arc<super::Host>, limits: Limits) -> (Listener, Receiver<String>) {
    let (lines, logged) = channel();
    let events = Dispatch::new(EventsOnly(Lines(Mutex::new(lines))));
    let listener = dispatcher::with_default(&events, || {
        Listener::start_with(loopback(), key, introduction("a"), hears, limits).unwrap()
    });
    (listener, logged)
}

fn connect_as(introduction: &Introduction, address: SocketAddr, key: &ClusterKey) -> Result<(), LinkError> {
    let peer = connect(address, key, introduction, echo().0, LONG)?;
    peer.close();
    Ok(())
}

/// A connection that speaks TLS with any key and writes what it likes.
struct Stranger {
    connection: Connection,
    socket: TcpStream,
}

impl Stranger {
    fn connect(address: SocketAddr, connection: Connection) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        Self { connection, socket }
    }

    fn try_write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        while self.connection.is_handshaking() {
            self.connection.complete_io(&mut self.socket)?;
        }
        self.connection.writer().write_all(bytes)?;
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.socket)?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) {
        self.try_write(bytes).unwrap();
    }

    /// What comes until the end, and the error at the end if there is one.
    fn read_to_end(&mut self) -> (Vec<u8>, Option<Error>) {
        let mut bytes = Vec::new();
        loop {
            match self.connection.read_tls(&mut self.socket) {
                Ok(0) => return (bytes, None),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return (bytes, None),
                Err(error) => panic!("{error}"),
            }
            match self.connection.process_new_packets() {
                Ok(state) => {
                    let start = bytes.len();
                    bytes.resize(start + state.plaintext_bytes_to_read(), 0);
                    self.connection.reader().read_exact(&mut bytes[start..]).unwrap();
                }
                Err(error) => return (bytes, Some(error)),
            }
        }
    }
}

#[derive(Debug)]
struct AnyKey;

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unreachable!()
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// A client that does not care who the other side is, with this key or none.
fn careless(own: Option<&ClusterKey>) -> Connection {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey));
    let mut config = match own {
        Some(key) => builder
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&key.certified)))),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"stripewise-hosts".to_vec()];
    let name = ServerName::try_from("any").unwrap();
    Connection::Client(rustls::ClientConnection::new(Arc::new(config), name).unwrap())
}

#[test]
fn another_key_is_refused_on_both_sides() {
    let (ours, theirs) = (key(), key());
    let (a, of_a) = echo();
    let (listener, logged) = listen(&ours, a, Limits::default());
    let error = connect_as(&introduction("b"), listener.address(), &theirs).unwrap_err();
    assert_eq!(error, LinkError::OtherKey { address: listener.address() });
    let line = logged.recv_timeout(LONG).unwrap();
    assert!(line.contains("refused the key of this host") && line.contains("address=127.0.0.1:"), "{line}");
    connect_as(&introduction("b"), listener.address(), &ours).unwrap();
    next_met(&of_a);
}

#[test]
fn who_has_not_the_key_gets_no_byte_and_is_logged_by_address() {
    let (ours, theirs) = (key(), key());
    let (a, of_a) = echo();
    let (listener, logged) = listen(&ours, a, Limits::default());
    for (own, said) in [(Some(&theirs), "has another key than this cluster's"), (None, "does not speak as a host")] {
        let mut stranger = Stranger::connect(listener.address(), careless(own));
        let from = stranger.socket.local_addr().unwrap();
        // The client's half of the handshake is over before the server has seen the key. Without a key it does not come so far.
        if let Err(error) = stranger.try_write(&encode_hello(&introduction("b"))) {
            assert!(own.is_none() && error.to_string().contains("HandshakeFailure"), "{error}");
        } else {
            let (bytes, error) = stranger.read_to_end();
            assert!(bytes.is_empty());
            assert_eq!(error, Some(Error::AlertReceived(rustls::AlertDescription::AccessDenied)));
        }
        let line = logged.recv_timeout(LONG).unwrap();
        assert!(line.contains(said) && line.contains(&from.to_string()), "{line}");
    }
    assert!(of_a.try_recv().is_err(), "a stranger was met");
}

#[test]
fn what_is_no_tls_is_refused_and_logged() {
    let ours = key();
    let (a, of_a) = echo();
    let (listener, logged) = listen(&ours, a, Limits::default());
    for rubbish in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096], &[0xff; 100_000], b"\x16\x03\x01\x40\x00rubbish"] {
        let mut socket = TcpStream::connect(listener.address()).unwrap();
        let _ = socket.write_all(rubbish);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
        let line = logged.recv_timeout(LONG).unwrap();
        assert!(line.contains("does not speak as a host of stripewise does"), "{line}");
    }
    assert!(of_a.try_recv().is_err(), "a stranger was met");
    connect_as(&introduction("b"), listener.address(), &ours).unwrap();
}

#[test]
fn other_clusters_versions_and_machines_are_refused_by_name_on_both_sides() {
    let ours = key();
    let (a, of_a) = echo();
    let (listener, logged) = listen(&ours, a, Limits::default());
    let with = |change: fn(&mut Introduction)| {
        let mut changed = introduction("b");
        change(&mut changed);
        changed
    };
    let cases: [(Introduction, [&str; 2], [&str; 2]); 3] = [
        (
            with(|b| b.cluster = "c2".to_owned()),
            ["host a (127.0.0.1:", "belongs to cluster c1, this one to cluster c2"],
            ["host b (127.0.0.1:", "belongs to cluster c2, this one to cluster c1"],
        ),
        (
            with(|b| b.version = 9),
            ["host a (127.0.0.1:", "runs stripewise with messages of version 7, this one has 9; use one version"],
            ["host b (127.0.0.1:", "runs stripewise with messages of version 9, this one has 7; use one version"],
        ),
        (
            with(|b| b.host = "a".to_owned()),
            ["two machines have the host name a", "this one with machine id machine-of-b"],
            ["two machines have the host name a", "this one with machine id machine-of-a"],
        ),
    ];
    for (introduction, here, there) in cases {
        let error = connect_as(&introduction, listener.address(), &ours).unwrap_err().to_string();
        assert!(here.iter().all(|part| error.contains(part)), "{error}");
        let line = logged.recv_timeout(LONG).unwrap();
        assert!(there.iter().all(|part| line.contains(part)), "{line}");
    }
    assert!(of_a.try_recv().is_err(), "a refused one was met");
}

#[test]
fn a_name_that_a_connected_host_has_on_another_machine_is_refused_until_that_one_leaves() {
    let ours = key();
    let (a, of_a) = echo();
    let (listener, logged) = listen(&ours, a, Limits::default());
    let address = listener.address();
    let first = connect(address, &ours, &introduction("b"), echo().0, LONG).unwrap();
    next_met(&of_a);
    let mut double = introduction("b");
    double.machine = "another".to_owned();
    let error = connect_as(&double, address, &ours).unwrap_err();
    let LinkError::Refused { host, what } = &error else { panic!("{error}") };
    assert!(host.starts_with("a (127.0.0.1"), "{error}");
    assert!(what.contains("two machines have the host name b") && what.contains("with machine id another"), "{error}");
    assert!(logged.recv_timeout(LONG).unwrap().contains("two machines have the host name b"));
    assert!(of_a.try_recv().is_err(), "a refused one was met");
    // The same machine may connect twice.
    connect_as(&introduction("b"), address, &ours).unwrap();
    next_met(&of_a);
    next_left(&of_a);
    first.close();
    next_left(&of_a);
    connect_as(&double, address, &ours).unwrap();
}

#[test]
fn a_second_state_directory_of_a_machine_is_refused_while_the_first_is_connected() {
    let ours = key();
    let (a, of_a) = echo();
    let (listener, _) = listen(&ours, a, Limits::default());
    let address = listener.address();
    let of = |boot: &str, directory: &str| Introduction {
        boot: Some(boot.to_owned()),
        directory: Some(directory.to_owned()),
        ..introduction("b")
    };
    let first = connect(address, &ours, &of("boot-1", "state-1"), echo().0, LONG).unwrap();
    next_met(&of_a);
    let refused = |other: &Introduction| connect_as(other, address, &ours).unwrap_err().to_string();
    let said = refused(&of("boot-1", "state-2"));
    for part in ["two agents of one machine have the host name b", "id state-1", "id state-2", "host forget b"] {
        assert!(said.contains(part), "{said}");
    }
    // Two machines with a copied id: a link of one that was started again breaks.
    let said = refused(&of("boot-2", "state-2"));
    assert!(said.contains("two machines have the host name b") && said.contains("boot id boot-2"), "{said}");
    assert!(of_a.try_recv().is_err(), "a refused one was met");
    // The agent after one whose end is not known yet, also in a container that shows another machine id.
    let in_container = Introduction { machine: "image".to_owned(), ..of("boot-1", "state-1") };
    for again in [of("boot-1", "state-1"), in_container] {
        connect_as(&again, address, &ours).unwrap();
        next_met(&of_a);
        next_left(&of_a);
    }
    first.close();
    next_left(&of_a);
    connect_as(&of("boot-2", "state-2"), address, &ours).unwrap();
}

#[test]
fn a_host_that_is_unwanted_gets_the_reason() {
    let ours = key();
    let (a, of_a) = refusing("host b was forgotten");
    let (listener, logged) = listen(&ours, a, Limits::default());
    let (b, of_b) = echo();
    let error = connect(listener.address(), &ours, &introduction("b"), b, LONG).unwrap_err();
    assert!(matches!(&error, LinkError::Refused { what, .. } if what == "host b was forgotten"), "{error}");
    assert!(logged.recv_timeout(LONG).unwrap().contains("host b was forgotten"));
    assert!(of_a.try_recv().is_err() && of_b.try_recv().is_err());

    // By the connecting side, when the listening one has accepted already.
    let (a, of_a) = echo();
    let (listener, _) = listen(&ours, a, Limits::default());
    let (b, of_b) = refusing("a is not the master");
    let error = connect(listener.address(), &ours, &introduction("b"), b, LONG).unwrap_err();
    assert!(matches!(&error, LinkError::Unwanted { what, .. } if what == "a is not the master"), "{error}");
    next_met(&of_a);
    let why = next_left(&of_a);
    assert!(matches!(&why, LinkError::Refused { what, .. } if what == "a is not the master"), "{why}");
    assert!(of_b.try_recv().is_err());
}

/// A hello of the next version of frames, and more that cannot be read.
fn newer_hello() -> Vec<u8> {
    let mut hello = encode_hello(&introduction("b"));
    hello[8..12].copy_from_slice(&(FRAMES_VERSION + 1).to_le_bytes());
    hello.extend_from_slice(&[0xee; 500]);
    hello
}

#[test]
fn other_frames_are_refused_by_name_on_both_sides() {
    let ours = key();
    let (listener, logged) = listen(&ours, echo().0, Limits::default());
    let mut newer = Stranger::connect(listener.address(), tls::connect(&ours).unwrap());
    newer.write(&newer_hello());
    let (bytes, _) = newer.read_to_end();
    assert_eq!(bytes, encode_hello(&introduction("a")));
    let said = "runs stripewise with frames of version 2, this one has 1; use one version";
    let line = logged.recv_timeout(LONG).unwrap();
    assert!(line.contains(said) && line.contains("host b"), "{line}");

    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let config = tls::server(&ours).unwrap();
    let serve = std::thread::spawn(move || {
        let mut newer = Stranger { connection: tls::accept(&config).unwrap(), socket: socket.accept().unwrap().0 };
        newer.write(&newer_hello());
        newer.read_to_end().0
    });
    let error = connect_as(&introduction("a"), address, &ours).unwrap_err();
    assert!(error.to_string().contains(said) && error.to_string().contains("host b"), "{error}");
    assert_eq!(serve.join().unwrap(), encode_hello(&introduction("a")));
}

#[test]
fn a_peer_that_sends_rubbish_is_dropped() {
    let frame = Frame::encode;
    let welcome = frame(Kind::Welcome, 0, &[]);
    let too_many: Vec<u8> = (1..=MAX_QUESTIONS as u64 + 1).flat_map(|n| frame(Kind::Question, n, b"wait")).collect();
    let mut too_long = frame(Kind::Notice, 0, &[]);
    too_long[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let cases: [(Vec<u8>, &str); 7] = [
        (frame(Kind::Question, 1, b"early"), "before it accepted the link"),
        ([welcome.clone(), vec![0xff; 100]].concat(), "a frame of the unknown kind 255"),
        ([welcome.clone(), too_long].concat(), "with 4294967295 bytes"),
        ([welcome.clone(), frame(Kind::Answer, 5, b"5")].concat(), "an answer to question 5, which has none to come"),
        ([welcome.clone(), too_many].concat(), "129 questions"),
        ([welcome.clone(), welcome.clone()].concat(), "a second welcome"),
        ([welcome, encode_hello(&introduction("b"))].concat(), "sent what is no message"),
    ];
    for (bytes, said) in cases {
        let ours = key();
        let (release, released) = channel::<()>();
        let released = Mutex::new(released);
        let (a, of_a) = host(move |_, question| {
            let _ = released.lock().unwrap().recv();
            question
        });
        let (listener, _) = listen(&ours, a, Limits::default());
        let mut stranger = Stranger::connect(listener.address(), tls::connect(&ours).unwrap());
        stranger.write(&encode_hello(&introduction("b")));
        stranger.write(&bytes);
        let peer = next_met(&of_a);
        while peer.why_ended().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // What is being heard must end first.
        drop(release);
        let why = next_left(&of_a);
        assert!(matches!(why, LinkError::Rubbish { .. }) && why.to_string().contains(said), "{why}");
        stranger.read_to_end();
    }
}

/// Connects from an address of the loopback.
fn connect_from(address: [u8; 4], to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let descriptor = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&descriptor, &SocketAddr::from((address, 0))).unwrap();
    connect(&descriptor, &to).unwrap();
    descriptor.into()
}

#[test]
fn connections_that_never_introduce_themselves_end_and_keep_nobody_out() {
    let ours = key();
    let limits = Limits { handshake: Duration::from_secs(6), ..Limits::default() };
    let (a, of_a) = echo();
    let (listener, logged) = listen(&ours, a, limits);
    let idle: Vec<_> = (0..200).map(|_| connect_from([127, 0, 0, 2], listener.address())).collect();
    // From another address.
    connect_as(&introduction("b"), listener.address(), &ours).unwrap();
    next_met(&of_a);
    for mut socket in idle {
        socket.set_read_timeout(Some(LONG)).unwrap();
        let end = socket.read_to_end(&mut Vec::new());
        assert!(end.is_ok() || end.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    }
    drop(listener);
    let lines: Vec<_> = logged.iter().collect();
    assert!((1..=20).contains(&lines.len()), "{lines:?}");
    assert!(lines[0].contains("have not introduced themselves yet") && lines[0].contains("127.0.0.2"), "{lines:?}");
}

#[test]
fn a_listener_that_never_answers_is_given_up() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let error = connect(address, &key(), &introduction("b"), echo().0, Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, LinkError::HandshakeTime { .. }), "{error}");
    drop(socket);
    let error = connect(address, &key(), &introduction("b"), echo().0, LONG).unwrap_err();
    assert!(matches!(error, LinkError::Connect { .. }), "{error}");
}

#[test]
fn an_introduction_that_cannot_be_is_refused_here() {
    for host in ["", "a\nb", &"x".repeat(256)] {
        let error = Listener::start(loopback(), &key(), introduction(host), echo().0).err().unwrap();
        assert!(matches!(error, LinkError::Introduction { .. }), "{error}");
    }
    let long = Introduction { directory: Some("x".repeat(256)), ..introduction("a") };
    let error = Listener::start(loopback(), &key(), long, echo().0).err().unwrap().to_string();
    assert!(error.contains("id of a state directory"), "{error}");
}

#[test]
fn a_new_key_is_needed_by_new_links_alone() {
    let (old, new) = (key(), key());
    let (listener, _) = listen(&old, echo().0, Limits::default());
    let first = connect(listener.address(), &old, &introduction("b"), echo().0, LONG).unwrap();
    listener.use_key(&new).unwrap();
    let error = connect_as(&introduction("c"), listener.address(), &old).unwrap_err();
    assert!(matches!(error, LinkError::OtherKey { .. }), "{error}");
    connect_as(&introduction("c"), listener.address(), &new).unwrap();
    assert_eq!(first.ask(b"on", LONG).unwrap(), b"on");
}

/// So that the events of a test are of the kind that it expects.
#[test]
fn a_met_peer_is_reported_as_left_once() {
    let ours = key();
    let (a, of_a) = echo();
    let (listener, _) = listen(&ours, a, Limits::default());
    connect_as(&introduction("b"), listener.address(), &ours).unwrap();
    drop(listener);
    let events: Vec<_> = of_a.try_iter().collect();
    assert!(matches!(events[..], [Event::Met(_), Event::Left(_)]), "{events:?}");
}
