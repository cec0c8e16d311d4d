//! What programs ask for while brokers die under them: done once, whatever step the broker died at.

use crate::moves::check;
use crate::world::{World, read, uniform, wait_for_line, write};
use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use stripewise_broker::BrokerOptions;
use stripewise_store::client::ClientOptions;
use stripewise_store::protocol::{Admin, Reply, Request};

const REGION: u64 = 16 << 10;

fn dying_broker(world: &World, kind: &str, step: usize) -> std::process::Child {
    let mut broker = world.spawn("dying-broker", &[kind.to_owned(), step.to_string()]);
    wait_for_line(&mut broker, "serving");
    broker
}

/// A broker that holds every truncation up before it looks at it, until `may_go` is told so.
fn holding_broker(may_go: &Arc<(Mutex<bool>, Condvar)>) -> BrokerOptions {
    let may_go = Arc::clone(may_go);
    let hold = move |step: &'static str| {
        if step == "truncate: asked" {
            let (reported, changed) = &*may_go;
            drop(changed.wait_while(reported.lock().unwrap(), |reported| !*reported).unwrap());
        }
    };
    BrokerOptions { steps: Some(Arc::new(hold)), ..BrokerOptions::default() }
}

/// What another program wrote between the cut and its repetition, and was told is written, was cut.
#[test]
fn a_truncation_takes_effect_once_whatever_step_its_broker_dies_at() {
    let mut effects = [0; 2];
    for step in 0.. {
        let world = World::new(2);
        let mut dying = dying_broker(&world, "truncate", step);
        // Serves until the files are closed.
        let mut successor = None;
        let (cutter, other) = (world.client(), world.client());
        let (_stub, file) = world.create(&cutter, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
        write(&file, 0, &[1; 3 * REGION as usize]);
        let (_stub, seen) = world.open(&other, "f", true);
        let (may_go, is_answered) = (Arc::new((Mutex::new(false), Condvar::new())), AtomicBool::new(false));
        let died = std::thread::scope(|scope| {
            let cutting = scope.spawn(|| {
                file.truncate(100).unwrap();
                is_answered.store(true, Ordering::SeqCst);
            });
            let died = loop {
                if is_answered.load(Ordering::SeqCst) {
                    break false;
                }
                if dying.try_wait().unwrap().is_some() {
                    break true;
                }
                std::thread::yield_now();
            };
            if died {
                successor = Some(world.broker_with(holding_broker(&may_go)));
                // Waits for the gate, which the successor opens; nothing has repeated the truncation yet.
                write(&seen, 2 * REGION, b"told");
                let was_truncated = read(&seen, 200, 1) != [1];
                effects[usize::from(was_truncated)] += 1;
                *may_go.0.lock().unwrap() = true;
                may_go.1.notify_all();
                cutting.join().unwrap();
                if was_truncated {
                    assert_eq!(read(&seen, 2 * REGION, 9), b"told", "step {step}: cut twice");
                    assert_eq!(read(&seen, 50, 100), [[1; 50], [0; 50]].concat(), "step {step}");
                } else {
                    assert_eq!(read(&seen, 0, 200), [1; 100], "step {step}");
                }
            } else {
                cutting.join().unwrap();
            }
            died
        });
        drop((file, seen, successor));
        if !died {
            drop(dying.stdin.take());
            dying.wait().unwrap();
            break;
        }
    }
    assert!(effects.iter().all(|count| *count > 1), "it fell on both sides of the cut: {effects:?}");
}

#[test]
fn a_file_is_made_whatever_step_its_broker_dies_at() {
    for step in 0.. {
        let world = World::new(2);
        let mut dying = dying_broker(&world, "create", step);
        let client = world.client();
        let path = world.path("f");
        let placement = uniform(REGION, &[(0, 4096), (1, 4096)]);
        let text = path.to_str().unwrap().to_owned();
        client.request(&Request::Admin(Admin::Expect { path: text, placement }), &[]).unwrap();
        let temporary = world.path(".stripewise-1-0");
        let stub = OpenOptions::new().read(true).write(true).create_new(true).open(&temporary).unwrap();
        let (died, file) = std::thread::scope(|scope| {
            let making = scope.spawn(|| client.create(&path, stub.as_fd()).unwrap());
            while dying.try_wait().unwrap().is_none() && !making.is_finished() {
                std::thread::yield_now();
            }
            let died = dying.try_wait().unwrap().is_some();
            let _broker = died.then(|| world.broker());
            let file = making.join().unwrap();
            std::fs::rename(&temporary, &path).unwrap();
            client.linked(file.id()).unwrap();
            write(&file, 0, b"written");
            file.sync(false).unwrap();
            (died, file)
        });
        if !died {
            assert!(step > 1, "{step}");
            break;
        }
        let _broker = world.broker();
        let (_stub, seen) = world.open(&client, "f", false);
        assert_eq!(read(&seen, 0, 9), b"written", "step {step}");
        let (reply, _) = client.request(&Request::Admin(Admin::Check { repair: false }), &[]).unwrap();
        assert_eq!(reply, Reply::Findings { findings: Vec::new() }, "step {step}");
        drop(file);
    }
}

/// Nobody waits until the broker has heard that the name is gone; the next one is told what this one may not have heard.
#[test]
fn a_removal_that_nobody_waits_for_is_taken_in_whatever_step_its_broker_dies_at() {
    for step in 0.. {
        let world = World::new(2);
        let mut dying = dying_broker(&world, "name-change", step);
        let client = world.client_with(ClientOptions { waits_for_closes: false, ..ClientOptions::default() });
        let (stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
        write(&file, 0, &[1; REGION as usize]);
        let id = file.id();
        drop(file);
        let stub = World::closed(stub);
        let successor = std::sync::OnceLock::new();
        std::thread::scope(|scope| {
            let removing = scope.spawn(|| {
                client.remove(&world.path("f"), stub.as_fd(), id).unwrap();
                // What answers shows that the removal was heard.
                check(&client)
            });
            while dying.try_wait().unwrap().is_none() && !removing.is_finished() {
                std::thread::yield_now();
            }
            if dying.try_wait().unwrap().is_some() {
                successor.set(world.broker()).ok().unwrap();
            }
            assert_eq!(removing.join().unwrap(), [], "step {step}");
        });
        assert!(!world.path("f").exists());
        // Freed by a thread of the broker.
        let begun = std::time::Instant::now();
        while !world.objects().is_empty() && begun.elapsed().as_secs() < 100 {
            std::thread::yield_now();
        }
        assert_eq!(world.objects().len(), 0, "step {step}");
        assert_eq!(check(&client), [], "step {step}");
        if successor.get().is_none() {
            assert!(step > 1, "{step}");
            drop(dying.stdin.take());
            dying.wait().unwrap();
            break;
        }
    }
}

/// It failed with EBUSY.
#[test]
fn an_open_waits_for_the_end_of_a_release() {
    let world = World::new(2);
    let _broker = world.broker();
    let (releaser, opener) = (world.client(), world.client());
    let (_stub, file) = world.create(&releaser, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
    write(&file, 0, b"data");
    let copy = std::fs::File::create_new(world.path("copy")).unwrap();
    let temporary = world.path("copy").to_str().unwrap().to_owned();
    let begin = Request::Admin(Admin::BeginRelease { file: file.id(), temporary });
    releaser.request(&begin, &[copy.as_fd()]).unwrap();
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| read(&world.open(&opener, "f", false).1, 0, 9));
        let asked = std::time::Instant::now();
        while asked.elapsed().as_millis() < 200 {
            assert!(!opening.is_finished(), "it is held");
            std::thread::yield_now();
        }
        releaser.request(&Request::Admin(Admin::CancelRelease { file: file.id() }), &[]).unwrap();
        assert_eq!(opening.join().unwrap(), b"data");
    });
}
