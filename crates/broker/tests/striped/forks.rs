//! Processes that fork with files open.

use crate::moves::{all_done, any_layout, ask, order, start_moves, wait_for};
use crate::world::{World, read, succeed, uniform, write};
use std::io::IoSlice;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use stripewise_store::client::{Child, Client};
use stripewise_store::protocol::Admin;

/// Forks by libc, as a program does; the handlers are those that the preload library installs.
fn fork(client: &Client, child: impl FnOnce()) -> i32 {
    client.before_fork();
    // SAFETY: the child runs `child` and ends at once; this process has no other threads that hold locks which it uses.
    let process = unsafe { libc::fork() };
    assert!(process >= 0);
    if process == 0 {
        client.after_fork_in_child();
        child();
        // SAFETY: ends the child without the test harness's own end.
        unsafe { libc::_exit(0) };
    }
    client.after_fork_in_parent(Child::OfProgram);
    process
}

fn wait(process: i32) {
    let mut status = 0;
    // SAFETY: a child of this process and a place for its status.
    assert_eq!(unsafe { libc::waitpid(process, &mut status, 0) }, process);
    assert_eq!(status, 0, "the child failed");
}

/// A panic in a child must not run the rest of the parent's test.
fn guarded(work: impl FnOnce() + std::panic::UnwindSafe) {
    if std::panic::catch_unwind(work).is_err() {
        // SAFETY: ends the child.
        unsafe { libc::_exit(1) };
    }
}

pub(crate) fn fork_and_use(world: &World, arguments: &[String]) {
    let client = world.client();
    let (stub, file) = world.open(&client, "forked", true);
    match arguments[0].as_str() {
        "share" => {
            let children: Vec<_> = (1..6u64)
                .map(|number| {
                    fork(&client, || {
                        guarded(std::panic::AssertUnwindSafe(|| {
                            for turn in 0..50u64 {
                                let at = number * 10_000 + turn * 100;
                                assert_eq!(write(&file, at, &[number as u8; 100]), 100);
                                file.append(&[IoSlice::new(&[])]).unwrap();
                            }
                            assert_eq!(read(&file, number * 10_000, 5000), [number as u8; 5000]);
                            // A grandchild, and a control operation in it.
                            let inner = fork(&client, || {
                                file.sync(false).unwrap();
                                assert_eq!(write(&file, 99_000 + number * 10, b"grandchild"), 10);
                            });
                            wait(inner);
                        }));
                    })
                })
                .collect();
            write(&file, 0, &[9; 100]);
            children.into_iter().for_each(wait);
            for number in 1..6u64 {
                assert_eq!(read(&file, number * 10_000, 5000), [number as u8; 5000]);
            }
        }
        // The parent's close must not free what the child has open.
        "outlive" => {
            let child_may_read = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
            let (path, id) = (world.path("forked"), file.id());
            let mut held = Some(file);
            let child = fork(&client, || {
                let file = held.as_ref().unwrap();
                guarded(std::panic::AssertUnwindSafe(|| {
                    rustix::io::read(&child_may_read, &mut [0; 8]).unwrap();
                    assert_eq!(read(file, 0, 1000), [5; 1000]);
                    assert_eq!(write(file, 1000, &[6; 100]), 100);
                }));
                // The last user.
                held.take().unwrap().close().unwrap();
            });
            client.remove(&path, std::os::fd::AsFd::as_fd(&stub), id).unwrap();
            held.take().unwrap().close().unwrap();
            rustix::io::write(&child_may_read, &1u64.to_ne_bytes()).unwrap();
            drop(stub);
            wait(child);
        }
        "help" => {
            let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
            let before = descriptors();
            let may_register = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
            client.before_fork();
            // SAFETY: as in `fork`.
            let helper = unsafe { libc::fork() };
            if helper == 0 {
                let _ = rustix::io::read(&may_register, &mut [0; 8]);
                client.after_fork_in_child();
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            let has_returned = AtomicBool::new(false);
            let parent = rustix::thread::gettid().as_raw_nonzero();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // Its third argument is for how long it waits at most.
                    let waits_without_limit = || {
                        let call = std::fs::read_to_string(format!("/proc/self/task/{parent}/syscall")).unwrap();
                        let words: Vec<&str> = call.split_whitespace().collect();
                        words.first() == Some(&libc::SYS_ppoll.to_string().as_str()) && words.get(3) == Some(&"0x0")
                    };
                    while !waits_without_limit() && !has_returned.load(SeqCst) {
                        std::thread::yield_now();
                    }
                    rustix::io::write(&may_register, &1u64.to_ne_bytes()).unwrap();
                });
                client.after_fork_in_parent(Child::Helper);
                has_returned.store(true, SeqCst);
            });
            wait(helper);
            drop(may_register);
            assert_eq!(descriptors(), before, "no end of a pair is left");
            let stub = World::closed(stub);
            client.remove(&world.path("forked"), std::os::fd::AsFd::as_fd(&stub), file.id()).unwrap();
            file.close().unwrap();
            ask(&client, Admin::Usage);
            assert!(world.objects().is_empty(), "nor a guard: the last user was this one");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn children_and_grandchildren_share_a_file() {
    let world = World::new(4);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "forked", uniform(8192, &[(0, 100), (1, 700), (2, 64), (3, 300)]));
    succeed(world.spawn("forker", &["share".into()]));
    for number in 1..6u64 {
        assert_eq!(read(&file, number * 10_000, 5000), [number as u8; 5000]);
        assert_eq!(read(&file, 99_000 + number * 10, 10), b"grandchild");
    }
}

/// The file that a forker opens, which nobody has open.
fn write_and_close(world: &World, client: &Client) {
    let (_stub, file) = world.create(client, "forked", uniform(8192, &[(0, 100), (1, 700)]));
    write(&file, 0, &[5; 1000]);
    file.close().unwrap();
    assert!(!world.objects().is_empty());
}

#[test]
fn a_childs_open_outlives_the_parents_close_of_a_deleted_file() {
    let world = World::new(2);
    let _broker = world.broker();
    let client = world.client();
    write_and_close(&world, &client);
    succeed(world.spawn("forker", &["outlive".into()]));
    // Before it answers, the broker frees what was removed.
    ask(&client, Admin::Usage);
    assert!(world.objects().is_empty(), "freed with the last user");
}

/// A child of `vfork` makes one, in whose parent the numbers of its descriptors are something else.
#[test]
fn of_a_helper_nothing_is_left_however_late_it_registers() {
    let world = World::new(2);
    let _broker = world.broker();
    let client = world.client();
    write_and_close(&world, &client);
    succeed(world.spawn("forker", &["help".into()]));
}

#[test]
fn children_and_grandchildren_share_a_file_while_its_regions_move() {
    let world = World::new(4);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "forked", uniform(8192, &[(0, 100), (1, 700), (2, 64), (3, 300)]));
    write(&file, 0, &[3; 101_000]);
    let mut child = world.spawn("forker", &["share".into()]);
    let (mut dice, mut moved) = (crate::world::Dice(1), 0);
    let status = loop {
        let any = |region| order(file.id(), region, region, &any_layout(&mut dice, 4));
        all_done(&wait_for(&client, start_moves(&client, (0..13).map(any).collect())));
        moved += 13;
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
    };
    assert!(status.success(), "{status}, {moved} moves");
    for number in 1..6u64 {
        assert_eq!(read(&file, number * 10_000, 5000), [number as u8; 5000]);
        assert_eq!(read(&file, 99_000 + number * 10, 10), b"grandchild");
        assert_eq!(read(&file, number * 10_000 + 5000, 5000), [3; 5000]);
    }
    assert_eq!(crate::moves::check(&client), []);
}
