//! A file that other hosts use too. What these do shows in this host's memory when it asks: here the broker's answer to the question is prepared by the
//! test, which takes size and places from view and gives them back.

use crate::replicas::wanted;
use crate::world::{World, read, uniform, write};
use std::fs::OpenOptions;
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};
use stripewise_broker::{Broker, BrokerHandle, BrokerOptions};
use stripewise_layout::{Coordinator, FileId, FileOffset, Generation, Layout, RegionIndex};
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::file::{FileError, StripedFile};
use stripewise_store::protocol::{Admin, ExpectedFile, Request};
use stripewise_store::shared::control::{ControlBlock, RegionState};
use stripewise_store::shared::extent::Extent;

const REGION: u64 = 16 << 10;

type Answer = Box<dyn FnMut() + Send>;

/// What the next questions are answered with; a question without an answer changes nothing.
#[derive(Clone, Default)]
struct Answers(Arc<Mutex<Vec<Answer>>>);

impl Answers {
    fn then(&self, answer: impl FnMut() + Send + 'static) {
        self.0.lock().unwrap().push(Box::new(answer));
    }
}

fn broker(world: &World, shared: bool) -> (BrokerHandle, Answers) {
    let answers = Answers::default();
    let own = answers.clone();
    let steps = move |step: &'static str| {
        let mut answers = own.0.lock().unwrap();
        if step == "refresh" && !answers.is_empty() {
            answers.remove(0)();
        }
    };
    let options = BrokerOptions { shared, steps: Some(Arc::new(steps)), ..BrokerOptions::default() };
    (world.broker_with(options), answers)
}

/// The shared memory of a file as a broker has it.
struct View {
    file: FileId,
    control: ControlBlock,
    extent: Extent,
}

impl View {
    fn of(world: &World, file: &StripedFile) -> Self {
        let open = |kind: &str| {
            let path = world.root.join("state/run").join(format!("{}.{kind}", file.id()));
            OpenOptions::new().read(true).write(true).open(path).unwrap()
        };
        let control = ControlBlock::open(open("ctl"), file.id(), true).unwrap();
        Self { file: file.id(), control, extent: Extent::open(open("ext"), true).unwrap() }
    }

    /// As when another host placed these regions and this one has not asked.
    fn hide(&self, size_bytes: u64, regions: &[u32]) -> Hidden {
        let hidden = Hidden {
            size_bytes: self.extent.size_bytes(),
            regions: regions.iter().map(|region| self.take(RegionIndex(*region))).collect(),
        };
        self.extent.truncate_to(size_bytes);
        hidden
    }

    fn take(&self, region: RegionIndex) -> (RegionIndex, Generation, Layout) {
        let RegionState::Placed { generation, view, .. } = self.control.regions().get(region) else {
            panic!("{region} has no place")
        };
        let layout = Layout::new(view.stripes().iter().map(|stripe| (stripe.server, stripe.size_bytes))).unwrap();
        self.control.regions().retract(region);
        (region, generation, layout)
    }

    fn show(&self, hidden: &Hidden) {
        for (region, generation, layout) in &hidden.regions {
            self.control.regions().publish(self.file, *region, *generation, layout).unwrap();
        }
        self.extent.extend_to(hidden.size_bytes);
    }
}

#[derive(Clone)]
struct Hidden {
    size_bytes: u64,
    regions: Vec<(RegionIndex, Generation, Layout)>,
}

/// What `call` answers, and how many requests it sent.
fn counted<T>(client: &Client, call: impl FnOnce() -> T) -> (T, u64) {
    let before = client.requests();
    let answer = call();
    (answer, client.requests() - before)
}

fn pattern(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 % 251) as u8 + 1).collect()
}

#[test]
fn what_other_hosts_wrote_is_asked_for_once_and_then_known() {
    let world = World::new(3);
    let (_broker, answers) = broker(&world, true);
    let client = world.client();
    assert!(client.is_shared());
    let (_stub, file) = world.create_unnamed(&client, uniform(REGION, &[(0, 1024), (1, 4096), (2, 1024)]));
    assert!(file.is_shared());
    let data = pattern(4 * REGION + 100);
    write(&file, 0, &data);
    // What this host knows costs no message, written or read.
    let ((), requests) = counted(&client, || {
        for at in [0, 5, REGION - 3, 2 * REGION] {
            assert_eq!(read(&file, at, 1000), data[at as usize..][..1000]);
            write(&file, at, &data[at as usize..][..1000]);
        }
    });
    assert_eq!(requests, 0);
    let view = Arc::new(View::of(&world, &file));
    let prepare = |size_bytes, regions: &[u32]| {
        let hidden = view.hide(size_bytes, regions);
        let view = Arc::clone(&view);
        answers.then(move || view.show(&hidden));
    };
    // Places, with the size known; the size; both; and all of it.
    for (size_bytes, regions, at, length) in [
        (data.len() as u64, &[1, 2][..], 0, data.len()),
        (2 * REGION, &[][..], 2 * REGION - 10, 40),
        (100, &[0, 1][..], 50, 2 * REGION as usize),
        (0, &[0, 1, 2, 3, 4][..], 0, data.len()),
        (0, &[][..], 4 * REGION + 99, 1),
    ] {
        prepare(size_bytes, regions);
        let (found, requests) = counted(&client, || read(&file, at, length));
        assert!(found == data[at as usize..][..length], "from {at}, {length} bytes, of which {size_bytes} are known");
        assert_eq!(requests, 1, "from {at}, {length} bytes");
        let (found, requests) = counted(&client, || read(&file, at, length));
        assert!(found == data[at as usize..][..length] && requests == 0);
    }
    // The end is known for this moment only.
    let (found, requests) = counted(&client, || read(&file, data.len() as u64 - 5, 10));
    assert_eq!((found.as_slice(), requests), (&data[data.len() - 5..], 1));
    assert_eq!(counted(&client, || read(&file, 10 * REGION, 10)), (Vec::new(), 1));
    // Nor can there be anything beyond the last region.
    assert_eq!(counted(&client, || read(&file, file.limit_bytes(), 10)), (Vec::new(), 0));
    // Size and holes.
    prepare(7, &[]);
    assert_eq!(file.size_bytes(), 7);
    assert_eq!(counted(&client, || file.latest_size_bytes().unwrap()), (data.len() as u64, 1));
    prepare(7, &[3]);
    let (status, requests) = counted(&client, || file.status().unwrap());
    assert_eq!((status.size_bytes, status.blocks_512, requests), (data.len() as u64, data.len() as u64 / 512 + 1, 1));
    prepare(0, &[0, 1, 2, 4]);
    assert_eq!(counted(&client, || file.next_data(FileOffset(9)).unwrap()), (Some(FileOffset(9)), 1));
    prepare(0, &[0, 1, 2, 4]);
    let end = Some(FileOffset(data.len() as u64));
    assert_eq!(counted(&client, || file.next_hole(FileOffset(9)).unwrap()), (end, 1));
}

#[test]
fn a_place_that_is_taken_away_while_a_reader_asks_is_no_hole() {
    let world = World::new(2);
    let (_broker, answers) = broker(&world, true);
    let client = world.client();
    let (_stub, file) = world.create_unnamed(&client, uniform(REGION, &[(0, 1024), (1, 4096)]));
    let data = pattern(3 * REGION);
    write(&file, 0, &data);
    let view = Arc::new(View::of(&world, &file));
    for call in 0..3 {
        let hidden = view.hide(3 * REGION, &[0, 1, 2]);
        // Twice a region moves between the answer and the look at it.
        for _ in 0..2 {
            let (view, hidden) = (Arc::clone(&view), hidden.clone());
            answers.then(move || {
                view.show(&hidden);
                view.take(RegionIndex(1));
            });
        }
        let (shown, hidden) = (Arc::clone(&view), hidden.clone());
        answers.then(move || shown.show(&hidden));
        let ((), requests) = counted(&client, || match call {
            0 => assert!(read(&file, 0, data.len()) == data),
            1 => assert_eq!(file.next_hole(FileOffset(0)).unwrap(), Some(FileOffset(3 * REGION))),
            _ => assert_eq!(file.next_data(FileOffset(REGION)).unwrap(), Some(FileOffset(REGION))),
        });
        assert_eq!(requests, 3);
    }
}

#[test]
fn what_no_host_wrote_is_a_hole_and_what_a_dead_writer_left_does_not_show_in_it() {
    let world = World::new(2);
    let (_broker, answers) = broker(&world, true);
    let client = world.client();
    let (_stub, file) = world.create_unnamed(&client, uniform(REGION, &[(0, 1024), (1, 4096)]));
    write(&file, 3 * REGION, b"end");
    let (found, requests) = counted(&client, || read(&file, 0, 3 * REGION as usize + 3));
    assert!(found[..3 * REGION as usize].iter().all(|byte| *byte == 0) && found.ends_with(b"end"));
    assert_eq!(requests, 1);
    // Region 4: its writer died on another host before it could say how far it came.
    write(&file, 4 * REGION, &pattern(REGION));
    let view = Arc::new(View::of(&world, &file));
    view.extent.truncate_to(3 * REGION + 3);
    let shown = Arc::clone(&view);
    answers.then(move || shown.control.notices().set_leftovers(true));
    write(&file, 5 * REGION - 1, b"x");
    let mut expected = vec![0; REGION as usize];
    expected[REGION as usize - 1] = b'x';
    assert!(read(&file, 4 * REGION, REGION as usize) == expected);
}

#[test]
fn nobody_appends_and_every_close_is_waited_for_where_other_hosts_use_the_file() {
    for shared in [false, true] {
        let world = World::new(2);
        let (_broker, _) = broker(&world, shared);
        let client = world.client_with(ClientOptions { waits_for_closes: false, ..ClientOptions::default() });
        assert_eq!(client.is_shared(), shared);
        let (stub, file) = world.create_unnamed(&client, uniform(REGION, &[(0, 1024), (1, 4096)]));
        write(&file, 0, b"some");
        match file.append(&[IoSlice::new(b"more")]) {
            Err(FileError::AppendShared { file: of }) => assert!(shared && of == file.id()),
            appended => assert!(!shared && appended.unwrap() == (FileOffset(4), 4)),
        }
        assert_eq!(counted(&client, || file.close().unwrap()).1, u64::from(shared), "shared: {shared}");
        drop(stub);
    }
}

/// Fragments that the cluster file asks for are refused where that is read.
#[test]
fn what_many_hosts_cannot_have_is_refused_by_name_and_one_host_has_it() {
    let emulated = |directory: &str| format!("emulated://{directory}?device=hdd-7200");
    for shared in [false, true] {
        let world = World::with_urls(4, emulated);
        let (_broker, _) = broker(&world, shared);
        let client = world.client();
        let placement = || uniform(REGION, &[(0, 4096), (1, 4096)]);
        let (_stub, file) = world.create(&client, "f", placement());
        let (file, replica) = (file.id(), || vec![wanted(0, 1, &[(2, 4096)])]);
        let path = |name: &str| world.path(name).to_str().unwrap().to_owned();
        let directory = || world.root.join("files").to_str().unwrap().to_owned();
        let expected = ExpectedFile { path: path("later"), placement: placement(), replicas: Some(replica()) };
        for (what, is_kept, request) in [
            ("replicas", true, Admin::SetReplicas { file, wanted: replica() }),
            ("replicas", true, Admin::ExpectReplicas { path: path("expected"), wanted: replica() }),
            ("replicas", true, Admin::ExpectFiles { files: vec![expected] }),
            ("fragments", false, Admin::SetFragments { file, on: Some(true) }),
            (
                "minimum sizes",
                true,
                Admin::Manage { directory: directory(), placement: placement(), min_bytes: Some(4096) },
            ),
            ("", true, Admin::SetReplicas { file, wanted: Vec::new() }),
            ("", true, Admin::SetFragments { file, on: Some(false) }),
            ("", true, Admin::Manage { directory: directory(), placement: placement(), min_bytes: None }),
        ] {
            let text = format!("shared: {shared}, {request:?}");
            let said = client.request(&Request::Admin(request), &[]).map_err(|error| error.to_string());
            let named = format!("{what} are not kept on a cluster of many hosts");
            match said {
                Ok(_) => assert!(!shared || what.is_empty(), "{text}"),
                Err(said) if shared => {
                    assert!(!what.is_empty() && said.contains(&named), "{text}: {said}");
                    assert!(said.contains("remove [coordinator] from cluster.toml"), "{text}: {said}");
                }
                // It has no room for them, as any other cluster.
                Err(said) => assert!(!is_kept && !said.contains("many hosts"), "{text}: {said}"),
            }
        }
    }
    let world = World::with_urls(4, emulated);
    let mut cluster = world.cluster();
    // Nobody is asked.
    cluster.coordinator = Some(Coordinator::in_etcd(vec!["http://127.0.0.1:1".to_owned()]));
    let refused = Broker::serve_or_wait(&cluster, BrokerOptions::default()).err();
    let said = refused.expect("emulated servers are of one host").to_string();
    for part in ["server s0 (emulated://", "can be used by one host only", "remove [coordinator] from cluster.toml"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_file_of_one_host_is_never_asked_about() {
    let world = World::new(2);
    let (_broker, _) = broker(&world, false);
    let client = world.client();
    let (_stub, file) = world.create_unnamed(&client, uniform(REGION, &[(0, 1024), (1, 4096)]));
    write(&file, 2 * REGION, &pattern(REGION));
    let ((), requests) = counted(&client, || {
        assert_eq!(read(&file, 0, REGION as usize), vec![0; REGION as usize]);
        assert_eq!(read(&file, 3 * REGION - 1, 10).len(), 1);
        assert_eq!(file.read_at(FileOffset(9 * REGION), &mut [IoSliceMut::new(&mut [0])]).unwrap(), 0);
        assert_eq!(file.latest_size_bytes().unwrap(), 3 * REGION);
        assert_eq!(file.status().unwrap().blocks_512, REGION / 512);
        assert_eq!(file.next_data(FileOffset(0)).unwrap(), Some(FileOffset(2 * REGION)));
        assert_eq!(file.next_hole(FileOffset(0)).unwrap(), Some(FileOffset(0)));
    });
    assert_eq!(requests, 0);
}

/// Whether the thread waits in the kernel.
fn sleeps(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
}

/// The words of what is cut off go on the master's host before the objects do, on others when the gate opens.
#[test]
fn a_sync_beside_a_truncation_of_another_host_waits_for_its_end() {
    let world = World::new(2);
    let hook: Arc<Mutex<Option<Answer>>> = Arc::default();
    let own = Arc::clone(&hook);
    let steps = move |step: &'static str| {
        if step == "truncate: regions removed"
            && let Some(mut answer) = own.lock().unwrap().take()
        {
            answer();
        }
    };
    let _broker =
        world.broker_with(BrokerOptions { shared: true, steps: Some(Arc::new(steps)), ..BrokerOptions::default() });
    let client = world.client();
    let (_stub, file) = world.create_unnamed(&client, uniform(REGION, &[(0, 1024), (1, 4096)]));
    let file = Arc::new(file);
    write(&file, 0, &pattern(3 * REGION));
    let view = Arc::new(View::of(&world, &file));
    let before = view.hide(3 * REGION, &[1, 2]);
    view.show(&before);
    let synced = Arc::new(Mutex::new(None));
    let (syncing, handle) = (Arc::clone(&file), Arc::clone(&synced));
    *hook.lock().unwrap() = Some(Box::new(move || {
        view.show(&before);
        let (file, number) = (Arc::clone(&syncing), Arc::new(Mutex::new(0)));
        let own = Arc::clone(&number);
        let sync = std::thread::spawn(move || {
            *own.lock().unwrap() = rustix::thread::gettid().as_raw_nonzero().get();
            file.sync(false)
        });
        while !sync.is_finished() && !sleeps(*number.lock().unwrap()) {
            std::thread::yield_now();
        }
        before.regions.iter().for_each(|(region, ..)| view.control.regions().retract(*region));
        *handle.lock().unwrap() = Some(sync);
    }));
    file.truncate(1000).unwrap();
    let sync = synced.lock().unwrap().take().expect("regions were removed");
    sync.join().unwrap().unwrap();
    assert!(read(&file, 0, 2000) == pattern(1000));
}
