//! Servers whose N-th call fails, for every N: a request is done or refused by the server's name, a refused one can be repeated, and nothing is left
//! that `check` does not know of.

use crate::cluster::{Client, Opened, REGION, STRIPE, Testbed};
use crate::hooked::{FailOnce, wrap};
use rustix::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stripewise_broker::BrokerOptions;
use stripewise_layout::{FileId, RegionIndex};
use stripewise_store::protocol::{Admin, Refusal, Reply, Request};
use stripewise_store::shared::control::RegionState;

/// Asks until it is done; at most one try fails, and that by the server's fault.
fn insist(client: &Client, request: &Request, along: &[BorrowedFd<'_>]) -> usize {
    let mut failed = 0;
    loop {
        match client.ask_with(request.clone(), along) {
            Ok(_) => return failed,
            Err(Refusal::Server { server, .. }) if server.starts_with("hdd") || server.starts_with("ssd") => {}
            Err(refusal) => panic!("{request:?}: {refusal}"),
        }
        failed += 1;
        assert_eq!(failed, 1, "{request:?}");
    }
}

fn fill(testbed: &Testbed, opened: &Opened, regions: u32) {
    for region in 0..regions {
        let RegionState::Placed { generation, view, .. } = opened.control.regions().get(RegionIndex(region)) else {
            panic!("region {region} is not placed")
        };
        // A server that failed while the region was placed was left out.
        assert!(view.stripes().len() >= 3);
        for (turn, stripe) in view.stripes().iter().enumerate() {
            let object = format!("stripewise-objects/{}/{region}.{generation}", opened.file);
            let path = testbed.server_directory(usize::from(stripe.server.0)).join(object);
            assert!(path.exists(), "{}", path.display());
            std::fs::write(path, vec![9; view.object_bytes(turn, REGION) as usize]).unwrap();
        }
    }
    opened.extent.extend_to(u64::from(regions) * REGION);
}

fn held(testbed: &Testbed, file: FileId) -> u64 {
    testbed.objects(file).iter().flatten().map(|(.., bytes)| bytes).sum()
}

#[test]
fn one_failing_call_of_a_server_is_survived_wherever_it_falls() {
    let mut refused = 0;
    for number in 0.. {
        let testbed = Testbed::new();
        let calls_left = Arc::new(AtomicUsize::new(usize::MAX));
        let counting = Arc::clone(&calls_left);
        let bytes_left = Arc::new(AtomicUsize::new(usize::MAX));
        let failing =
            wrap(move |_| FailOnce { calls_left: Arc::clone(&counting), bytes_left: Arc::clone(&bytes_left) });
        let broker = testbed.start_with(BrokerOptions { wrap_server: Some(failing), ..BrokerOptions::default() });
        testbed.manage_data();
        let client = testbed.client();
        let path = testbed.data("f");
        let (opened, stub) = client.create(&path).unwrap();
        let file = opened.file;
        calls_left.store(number, Ordering::SeqCst);
        let place = Request::Place { file, first: RegionIndex(0), last: RegionIndex(2) };
        refused += insist(&client, &place, &[]);
        fill(&testbed, &opened, 3);
        refused += insist(&client, &Request::Sync { file }, &[]);
        stub.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
        refused += insist(&client, &Request::Attributes { file }, &[stub.as_fd()]);
        let size_bytes = REGION + u64::from(STRIPE) + 7;
        refused += insist(&client, &Request::Truncate { file, size_bytes, number: 0 }, &[]);
        assert_eq!(opened.extent.size_bytes(), size_bytes);
        refused += insist(&client, &Request::Truncate { file, size_bytes: 2 * REGION, number: 0 }, &[]);
        assert_eq!(held(&testbed, file), size_bytes + leftovers(&testbed, &opened), "an extension shows nothing old");
        client.remove(&path, file, &stub).unwrap();
        refused += insist(&client, &Request::Close { file }, &[]);
        let ended = calls_left.load(Ordering::SeqCst) < usize::MAX / 2;
        calls_left.store(usize::MAX, Ordering::SeqCst);
        drop(client);
        drop(broker);
        let _broker = testbed.start();
        let client = testbed.client();
        let check = || match client.ask(Request::Admin(Admin::Check { repair: true })).unwrap() {
            Reply::Findings { findings } => findings,
            other => panic!("{other:?}"),
        };
        check();
        assert_eq!(check(), []);
        assert_eq!(testbed.object_count(file), 0, "freed at last");
        if ended {
            println!("{number} calls, {refused} refusals");
            assert!(number > 40 && refused > 15, "{number} calls, {refused} refusals");
            break;
        }
    }
}

/// Bytes in objects of regions that are no longer the file's: what could not be removed and waits for `check`.
fn leftovers(testbed: &Testbed, opened: &Opened) -> u64 {
    let objects = testbed.objects(opened.file);
    objects
        .iter()
        .flatten()
        .filter(|(region, generation, _)| opened.generation(*region) != Some(*generation))
        .map(|(.., bytes)| bytes)
        .sum()
}
