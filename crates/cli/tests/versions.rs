//! Other versions of Stripewise: the broker that goes on after an upgrade, and, over real links and with a real etcd, agents. Who cannot be served is refused
//! by name.

mod support;

use std::fs::File;
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripewise_broker::coordination::{Candidate, Coordinator};
use stripewise_broker::etcd::{EtcdCoordinator, EtcdOptions};
use stripewise_broker::hosts::{ClusterKey, Hears, Introduction, LinkError, Listener, Peer, connect};
use stripewise_store::packet;
use stripewise_store::protocol::{PROTOCOL_VERSION, Refusal, Reply, Request};
use stripewise_store::state::{BrokerLock, StateDirectory};
use support::{Place, preload};

const PATIENCE: Duration = Duration::from_secs(120);
/// No version will have so many messages.
const OTHER: u32 = 4_000_000;

/// A process that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A host that nothing is asked of.
struct Deaf;

impl Hears for Deaf {
    fn hear(&self, _: &Arc<Peer>, _: Vec<u8>) -> Vec<u8> {
        panic!("a host of another version asks")
    }

    fn notified(&self, _: &Arc<Peer>, _: Vec<u8>) {
        panic!("a host of another version says something")
    }

    fn met(&self, peer: &Arc<Peer>) -> Result<(), String> {
        panic!("{:?} is met", peer.introduction())
    }

    fn left(&self, _: &Arc<Peer>, _: &LinkError) {}
}

/// The broker of another version: it has the cluster's lock and socket, and says to whoever comes what the broker says to another protocol.
fn serve_as_another_version(state: &StateDirectory) -> BrokerLock {
    let lock = state.try_lock().unwrap().expect("nobody serves the cluster");
    let socket = state.listen().unwrap();
    std::thread::spawn(move || {
        while let Ok(client) = rustix::net::accept(&socket) {
            let (request, _) = packet::receive::<Request>(&client, &mut packet::Buffer::default()).unwrap();
            let Request::Hello { version } = request else { panic!("asked before the greeting: {request:?}") };
            let refusal = Refusal::Version { broker: OTHER, client: version };
            packet::send(&client, &Reply::Refused(refusal), &[]).unwrap();
        }
    });
    lock
}

#[test]
fn a_broker_of_another_protocol_is_named_with_both_and_nothing_changes_until_it_ends() {
    preload();
    let place = Place::with_cluster();
    std::fs::create_dir(place.path("data")).unwrap();
    place.done(&["manage", "data"]);
    place.write("source", b"as it was");
    place.done(&["cp", "source", "data/file"]);
    let state = StateDirectory::open(&place.path("stripewise-state")).unwrap();
    let lock = serve_as_another_version(&state);
    let named = format!(
        "process {} serves this cluster with protocol {OTHER}, this stripewise has protocol {PROTOCOL_VERSION}; wait until it and the programs that it serves have ended, end them",
        std::process::id()
    );
    for words in [&["ls"][..], &["cat", "data/file"], &["cp", "source", "data/other"], &["mount", "data"]] {
        let said = place.say(words);
        assert!(said.status != 0 && said.err.contains(&named), "{words:?}: {}{}", said.out, said.err);
    }
    let program = place.say(&["run", "--", "sh", "-c", "echo new > data/file"]);
    assert!(program.status != 0 && program.err.contains(&named), "{}{}", program.out, program.err);
    let names = std::fs::read_dir(place.path("data")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["file"]);
    drop(lock);
    assert_eq!(place.done(&["cat", "data/file"]), "as it was");
}

/// An etcd on loopback, and its URL; `None` where there is none.
fn etcd(directory: &Path) -> Option<(Ends, String)> {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (client, peer) = (format!("http://{}", free()), format!("http://{}", free()));
    let log = directory.join("etcd.log");
    let mut command = Command::new("etcd");
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client, "--listen-peer-urls", &peer]);
    command.args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")]);
    command.arg("--data-dir").arg(directory.join("etcd")).args([
        "--unsafe-no-fsync",
        "--logger",
        "zap",
        "--log-outputs",
        "stderr",
    ]);
    let started = command.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn();
    let Ok(process) = started else {
        eprintln!("skipped: there is no etcd; setup/install --engines installs it");
        return None;
    };
    let etcd = Ends(process);
    wait("etcd serves", || {
        let said = std::fs::read_to_string(&log).unwrap();
        said.contains("serving client traffic") || said.contains("serving insecure client requests")
    });
    Some((etcd, client))
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_agent_of_another_version_is_refused_on_both_sides_by_name() {
    let place = Place::new();
    let Some((_etcd, url)) = etcd(&place.path("")) else { return };
    std::fs::create_dir(place.path("a")).unwrap();
    let state = place.path("state");
    let words = ["init", "--etcd", &url, "--listen", "127.0.0.1", "--server", "a=hdd:a", "--state"];
    place.done(&[&words[..], &[state.to_str().unwrap()]].concat());
    let text = String::from_utf8(place.read("cluster.toml")).unwrap();
    let id = text.lines().find_map(|line| line.strip_prefix("id = ")).unwrap().trim_matches('"');
    let key = ClusterKey::load(&place.path("cluster.key")).unwrap();
    let coordinator = EtcdCoordinator::new(&EtcdOptions::new(vec![url]), id).unwrap();
    let introduction = |host: &str| Introduction {
        cluster: id.to_owned(),
        host: host.to_owned(),
        machine: format!("machine of {host}"),
        process: 1,
        version: OTHER,
        boot: None,
        directory: None,
    };

    // It comes to a master of this version.
    let broker = place.command(&["broker"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut broker = Ends(broker);
    // It says so when it serves.
    let mut first = [0];
    broker.0.stderr.as_mut().unwrap().read_exact(&mut first).unwrap();
    let master = coordinator.master().unwrap().unwrap();
    let address = master.candidate.address.parse().unwrap();
    let Err(refusal) = connect(address, &key, &introduction("elsewhere"), Arc::new(Deaf), PATIENCE) else {
        panic!("a host of another version is let in")
    };
    let said = refusal.to_string();
    let own = match refusal {
        LinkError::OtherMessages { theirs, ours: OTHER, .. } => theirs,
        other => panic!("{other}"),
    };
    let name = &master.candidate.name;
    assert!(said.contains(name) && said.contains(&format!("version {own}, this one has {OTHER}")), "{said}");
    // The log has it by name too.
    let named = format!("version {OTHER}, this one has {own}; use one version");
    wait("the refusal is logged", || {
        let log = std::fs::read_to_string(state.join("log")).unwrap();
        log.lines().any(|line| line.contains("elsewhere (127.0.0.1:") && line.contains(&named))
    });
    let listed = place.done(&["host", "list"]);
    assert!(listed.contains(name) && !listed.contains("elsewhere"), "{listed}");
    drop(broker);

    // The next master is of another version, and a command comes to it.
    let loopback = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::start(loopback, &key, introduction("newer"), Arc::new(Deaf)).unwrap();
    let candidate = Candidate { name: "newer".to_owned(), address: listener.address().to_string() };
    let mastership = coordinator.campaign(&candidate, PATIENCE).unwrap().expect("the last master's time ends");
    let said = place.say(&["ls"]);
    assert_ne!(said.status, 0, "{}", said.out);
    let wanted = format!("host newer ({}) runs stripewise with messages of {named}", candidate.address);
    assert!(said.err.contains(&wanted), "{}", said.err);
    mastership.resign().unwrap();
    drop(listener);
    place.done(&["ls"]);
}
