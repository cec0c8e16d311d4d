//! Servers that do not answer.

use crate::cluster::{Client, Opened, REGION, STRIPE, Testbed};
use crate::hooked::{Call, Hook, Hooked, wrap};
use std::fs::File;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use stripewise_broker::BrokerOptions;
use stripewise_layout::{ByteCount, FileId, Generation, Layout, Placement, RegionIndex, ServerId};
use stripewise_store::protocol::{Admin, Finding, Refusal, RegionInfo, Reply, Request};
use stripewise_store::server::deadline::Deadline;
use stripewise_store::server::directory::DirectoryServer;
use stripewise_store::server::watched::{Patience, WatchedServer};
use stripewise_store::server::{ObjectName, ObjectStore, Ownership, ServerError};

/// Whether a call is one to hold.
type Which = fn(&Call<'_>) -> bool;

/// Holds the calls of one server until let go.
#[derive(Default)]
struct Hang {
    held: Mutex<Option<(&'static str, Which)>>,
    /// Calls that are held now.
    waiting: Mutex<usize>,
    changed: Condvar,
    /// For free space.
    questions: AtomicUsize,
}

impl Hang {
    fn hold(&self, server: &'static str, which: Which) {
        *self.held.lock().unwrap() = Some((server, which));
    }

    fn let_go(&self) {
        *self.held.lock().unwrap() = None;
        self.changed.notify_all();
    }
}

impl Hook for Hang {
    fn before(&self, server: &str, call: Call<'_>) -> Result<usize, ServerError> {
        let is_held =
            |held: &mut Option<(&str, Which)>| held.is_some_and(|(name, which)| name == server && which(&call));
        self.questions.fetch_add(usize::from(matches!(call, Call::FreeBytes)), SeqCst);
        *self.waiting.lock().unwrap() += 1;
        drop(self.changed.wait_while(self.held.lock().unwrap(), is_held).unwrap());
        *self.waiting.lock().unwrap() -= 1;
        Ok(usize::MAX)
    }
}

const PATIENCE: Duration = Duration::from_secs(2);

fn options(hang: &Arc<Hang>) -> BrokerOptions {
    let hang = Arc::clone(hang);
    let patience = Patience { call: PATIENCE, bulk: 2 * PATIENCE };
    BrokerOptions { wrap_server: Some(wrap(move |_| Arc::clone(&hang))), patience, ..BrokerOptions::default() }
}

fn on(servers: &[u16]) -> Placement {
    let layout = Layout::new(servers.iter().map(|server| (ServerId(*server), STRIPE))).unwrap();
    Placement::uniform(ByteCount(REGION), layout.clone(), layout)
}

fn create(testbed: &Testbed, client: &Client, name: &str, placement: Placement) -> (Opened, File) {
    let path = testbed.data(name).to_str().unwrap().to_owned();
    client.ask(Request::Admin(Admin::Expect { path, placement })).unwrap();
    client.create(&testbed.data(name)).unwrap()
}

fn regions(client: &Client, file: FileId) -> Vec<RegionInfo> {
    let first = stripewise_layout::RegionIndex(0);
    match client.ask(Request::Admin(Admin::Regions { file, first })).unwrap() {
        Reply::Regions { regions, more: false } => regions,
        reply => panic!("{reply:?}"),
    }
}

fn servers_of(region: &RegionInfo) -> Vec<u16> {
    region.stripes.iter().map(|(server, _)| *server).collect()
}

fn check(client: &Client) -> Vec<Finding> {
    match client.ask(Request::Admin(Admin::Check { repair: false })).unwrap() {
        Reply::Findings { findings } => findings,
        reply => panic!("{reply:?}"),
    }
}

fn faults(client: &Client) -> Vec<Option<String>> {
    match client.ask(Request::Admin(Admin::Usage)).unwrap() {
        Reply::Usage { servers } => servers.into_iter().map(|server| server.fault).collect(),
        reply => panic!("{reply:?}"),
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Every request waited in a call of the server, with the room locked, until none was served any more.
#[test]
fn a_server_that_hangs_holds_up_what_needs_it_for_its_patience_and_is_named() {
    let testbed = Testbed::new();
    let hang = Arc::new(Hang::default());
    let _broker = testbed.start_with(options(&hang));
    let client = testbed.client();
    let (slow, slow_stub) = create(&testbed, &client, "slow", on(&[0]));
    let (wide, _wide_stub) = create(&testbed, &client, "wide", on(&[0, 1, 2]));
    let (fast, _fast_stub) = create(&testbed, &client, "fast", on(&[2]));
    client.place(slow.file, 0, 0).unwrap();
    hang.hold("hdd0", |_| true);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| {
            let other = testbed.client();
            let opened = other.open(slow.file, &slow_stub).unwrap();
            opened.extent.extend_to(5000);
            other.ask(Request::Truncate { file: opened.file, size_bytes: 0, number: 0 }).unwrap_err()
        });
        wait_until("a call hangs", || *hang.waiting.lock().unwrap() > 0);
        // Nobody else waits for it.
        let begun = Instant::now();
        for region in 0..20 {
            client.place(fast.file, region, region).unwrap();
        }
        assert!(begun.elapsed() < PATIENCE * 10, "{:?}", begun.elapsed());
        let refused = held.join().unwrap();
        assert!(refused.to_string().contains("hdd0 has not answered for"), "{refused}");
    });
    // From then on every call fails at once, and new regions go elsewhere.
    let begun = Instant::now();
    client.place(wide.file, 0, 3).unwrap();
    client.place(slow.file, 1, 1).unwrap();
    assert!(begun.elapsed() < PATIENCE * 3, "{:?}", begun.elapsed());
    for region in regions(&client, wide.file) {
        assert!(servers_of(&region) == [1, 2] && region.fell_back, "{region:?}");
    }
    assert_eq!(servers_of(&regions(&client, slow.file)[1]), [1], "another disk");
    let named = |fault: &Option<String>| fault.as_ref().is_some_and(|what| what.contains("hdd0 has not answered for"));
    let found = faults(&client);
    assert!(named(&found[0]) && found[1..].iter().all(Option::is_none), "{found:?}");
    let findings = check(&client);
    assert!(findings.iter().any(|finding| finding.what.contains("hdd0 has not answered for")), "{findings:?}");
    assert_eq!(findings.iter().filter(|finding| finding.what.contains("in the fallback layout")).count(), 2);
    hang.let_go();
    wait_until("it answers again", || faults(&client).iter().all(Option::is_none));
    client.place(wide.file, 4, 4).unwrap();
    assert_eq!(servers_of(&regions(&client, wide.file)[4]), [0, 1, 2]);
}

/// What a client wrote after the failed truncation could be cut by it.
#[test]
fn a_file_stays_shut_as_long_as_a_server_may_yet_cut_it() {
    let testbed = Testbed::new();
    let hang = Arc::new(Hang::default());
    let broker = testbed.start_with(options(&hang));
    let client = testbed.client();
    let (file, file_stub) = create(&testbed, &client, "a", on(&[0]));
    client.place(file.file, 0, 0).unwrap();
    let object = testbed.server_directory(0).join(format!("stripewise-objects/{}/0.1", file.file));
    std::fs::write(&object, vec![1; 9000]).unwrap();
    file.extent.extend_to(9000);
    hang.hold("hdd0", |call| matches!(call, Call::Cut(_)));
    let refused = client.ask(Request::Truncate { file: file.file, size_bytes: 5000, number: 0 }).unwrap_err();
    assert!(refused.to_string().contains("hdd0 has not answered for"), "{refused}");
    assert!(file.control.gate().is_shut() && std::fs::metadata(&object).unwrap().len() == 9000);
    let begun = Instant::now();
    let refused = client.ask(Request::Tidy { file: file.file }).unwrap_err();
    assert!(matches!(&refused, Refusal::Server { server, .. } if server == "hdd0"), "{refused}");
    assert!(refused.to_string().contains("stays shut") && begun.elapsed() < PATIENCE, "{refused}");
    // Another broker would open the file: it has to wait.
    drop((client, broker));
    let state = testbed.cluster.clone();
    let start = || stripewise_broker::Broker::start(&state, BrokerOptions::default()).unwrap();
    assert!(matches!(start(), stripewise_broker::Started::AlreadyRunning { .. }));
    hang.let_go();
    wait_until("the lock is free", || matches!(start(), stripewise_broker::Started::Serving(_)));
    let _broker = testbed.start();
    let client = testbed.client();
    let file = client.open(file.file, &file_stub).unwrap();
    client.ask(Request::Truncate { file: file.file, size_bytes: 6000, number: 0 }).unwrap();
    assert!(!file.control.gate().is_shut());
    assert_eq!((std::fs::metadata(&object).unwrap().len(), file.extent.size_bytes()), (5000, 6000));
}

#[test]
fn new_regions_are_placed_without_servers_that_are_gone_or_read_only() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    let client = testbed.client();
    let (disks, _disks_stub) = create(&testbed, &client, "disks", on(&[0, 1]));
    let (flash, _flash_stub) = create(&testbed, &client, "flash", on(&[3]));
    let away = |server: usize| testbed.root().join(format!("away{server}"));
    let take = |server: usize| std::fs::rename(testbed.server_directory(server), away(server)).unwrap();
    take(0);
    take(3);
    client.place(disks.file, 0, 1).unwrap();
    client.place(flash.file, 0, 0).unwrap();
    assert!(regions(&client, disks.file).iter().all(|region| servers_of(region) == [1] && region.fell_back));
    assert_eq!(servers_of(&regions(&client, flash.file)[0]), [2], "another of its class");
    let findings = check(&client);
    let found = |what: &str| findings.iter().filter(|finding| finding.what.contains(what)).count();
    assert_eq!(
        (found("server hdd0"), found("server ssd1"), found("in the fallback layout")),
        (1, 1, 2),
        "{findings:?}"
    );
    assert!(findings.iter().any(|finding| finding.remedy.contains("stripewise restripe")), "{findings:?}");
    // New files need none of them either.
    let (new, _new_stub) = create(&testbed, &client, "new", on(&[0, 3]));
    client.place(new.file, 0, 0).unwrap();
    assert_eq!(servers_of(&regions(&client, new.file)[0]).len(), 1);
    take(1);
    take(2);
    let refused = client.place(disks.file, 2, 2).unwrap_err();
    assert!(matches!(&refused, Refusal::Server { .. }), "{refused}");
    (0..4).for_each(|server| std::fs::rename(away(server), testbed.server_directory(server)).unwrap());
    client.place(disks.file, 2, 2).unwrap();
    assert_eq!(servers_of(&regions(&client, disks.file)[2]), [0, 1]);
}

/// A broker that ended right after the call left a lock behind for a moment, and its successor was refused.
#[test]
fn a_call_keeps_nothing_once_its_result_is_seen() {
    let testbed = Testbed::new();
    // One that may not answer at once: its calls are made by threads of the watched server.
    let (hook, directory) = (Arc::new(Hang::default()), testbed.server_directory(0).to_owned());
    let open = move || -> Result<Box<dyn ObjectStore>, ServerError> {
        let inner = Box::new(DirectoryServer::new("c0ffee", "hdd0", &directory));
        Ok(Box::new(Hooked { inner, hook: Arc::clone(&hook) }))
    };
    let hold = Arc::new(());
    let server = WatchedServer::new("hdd0", Patience::default(), Arc::clone(&hold) as _, Box::new(open));
    let object = ObjectName { file: FileId(7), region: RegionIndex(0), generation: Generation(1) };
    server.create(object, Ownership { mode: 0o600, uid: 0, gid: 0 }).unwrap();
    for length in 0..5000 {
        server.truncate(object, length).unwrap();
        assert_eq!(Arc::strong_count(&hold), 2, "truncation {length}");
    }
}

/// A removal waited 60 s for a server that answered nothing at all, as only data that moves may.
#[test]
fn a_long_call_is_given_up_soon_unless_the_server_answers_others() {
    let testbed = Testbed::new();
    let hang = Arc::new(Hang::default());
    let (hook, directory) = (Arc::clone(&hang), testbed.server_directory(0).to_owned());
    let open = move || -> Result<Box<dyn ObjectStore>, ServerError> {
        let inner = Box::new(DirectoryServer::new("c0ffee", "hdd0", &directory));
        Ok(Box::new(Hooked { inner, hook: Arc::clone(&hook) }))
    };
    let patience = Patience { call: PATIENCE, bulk: Duration::from_secs(60) };
    let server = WatchedServer::new("hdd0", patience, Arc::new(()), Box::new(open));
    hang.hold("hdd0", |call| matches!(call, Call::RemoveFile(_)));
    std::thread::scope(|scope| {
        let removal = scope.spawn(|| server.remove_file(FileId(7)));
        wait_until("the removal hangs", || *hang.waiting.lock().unwrap() > 0);
        // The second and third come when every call has been given up that is not long by its nature.
        wait_until("it answers others", || hang.questions.load(SeqCst) >= 3);
        assert!(!removal.is_finished());
        hang.let_go();
        removal.join().unwrap().unwrap();
    });
    hang.hold("hdd0", |_| true);
    let begun = Instant::now();
    let given_up = server.remove_file(FileId(7)).unwrap_err();
    assert!(matches!(given_up, ServerError::NotAnswering { .. }), "{given_up}");
    assert!(begun.elapsed() < 20 * PATIENCE, "{:?}", begun.elapsed());
    hang.let_go();
    wait_until("it answers again", || server.remove_file(FileId(7)).is_ok());
}

/// Writers waited under a seal for as long as a server may take for much data.
#[test]
fn a_call_for_which_others_wait_is_given_up_at_their_deadline() {
    let testbed = Testbed::new();
    let hang = Arc::new(Hang::default());
    let (hook, directory) = (Arc::clone(&hang), testbed.server_directory(0).to_owned());
    let open = move || -> Result<Box<dyn ObjectStore>, ServerError> {
        let inner = Box::new(DirectoryServer::new("c0ffee", "hdd0", &directory));
        Ok(Box::new(Hooked { inner, hook: Arc::clone(&hook) }))
    };
    let patience = Patience { call: Duration::from_secs(600), bulk: Duration::from_secs(600) };
    let server = WatchedServer::new("hdd0", patience, Arc::new(()), Box::new(open));
    hang.hold("hdd0", |call| matches!(call, Call::RemoveFile(_)));
    let begun = Instant::now();
    {
        let _deadline = Deadline::hold(Some(Deadline::new(begun, Duration::from_secs(1))));
        let given_up = server.remove_file(FileId(7)).unwrap_err();
        assert!(matches!(given_up, ServerError::NotAnswering { .. }), "{given_up}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        hang.let_go();
        wait_until("it is over", || *hang.waiting.lock().unwrap() == 0);
        // What comes too late is not begun.
        assert!(matches!(server.probe(), Err(ServerError::NotAnswering { .. })));
    }
    wait_until("it answers others", || server.probe().is_ok());
}
