//! What the broker asks of all servers of a region is under way there together: each call waits until all servers have one, so a broker that asked
//! one server after the other would be given up on.

use crate::hooked::{AllIn, Call, Hook, wrap};
use crate::moves::{all_done, check, order, start_moves, wait_for};
use crate::world::{World, read, uniform, write};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stripewise_broker::BrokerOptions;
use stripewise_store::server::ServerError;

/// Calls of these kinds are held until so many of them have begun.
#[derive(Clone, Default)]
struct Meeting(Arc<Mutex<BTreeMap<&'static str, (usize, AllIn)>>>);

fn kind(call: Call<'_>) -> &'static str {
    match call {
        Call::Create(_) => "create",
        Call::Read(..) => "read",
        Call::Write(..) => "write",
        Call::Size(_) => "size",
        Call::Cut(_) => "truncate",
        Call::Sync(_) => "sync",
        Call::SyncNames(_) => "sync names",
        Call::Remove(_) => "remove",
        Call::RemoveFile(_) => "remove file",
        Call::Describe(_) => "describe",
        Call::SyncDescription(_) => "sync description",
        _ => "other",
    }
}

impl Hook for Meeting {
    fn before(&self, _: &str, call: Call<'_>) -> Result<usize, ServerError> {
        let held = self.0.lock().unwrap().get(kind(call)).map(|(count, all_in)| all_in.enter(*count));
        if let Some(held) = held {
            held();
        }
        Ok(usize::MAX)
    }
}

impl Meeting {
    /// Holds calls of these kinds while `act` runs and until so many of each have begun.
    fn hold<T>(&self, kinds: &[(&'static str, usize)], act: impl FnOnce() -> T) -> T {
        let meetings = kinds.iter().map(|(kind, count)| (*kind, (*count, AllIn::default())));
        *self.0.lock().unwrap() = meetings.collect();
        let result = act();
        let begun = Instant::now();
        for (kind, count) in kinds {
            let all_in = self.0.lock().unwrap()[kind].1.clone();
            while all_in.begun() < *count {
                assert!(begun.elapsed() < Duration::from_secs(60), "{kind}: {} of {count}", all_in.begun());
                std::thread::yield_now();
            }
            assert_eq!(all_in.begun() % count, 0, "{kind}");
        }
        self.0.lock().unwrap().clear();
        result
    }
}

#[test]
fn what_the_broker_asks_of_a_regions_servers_is_under_way_together() {
    const REGION: u64 = 64 << 10;
    const STRIPE: u32 = 4096;
    let (here, there) = ([0, 1, 2, 3].map(|server| (server, STRIPE)), [4, 5, 6, 7].map(|server| (server, STRIPE)));
    let world = World::new(8);
    let meeting = Meeting::default();
    let hook = meeting.clone();
    let _broker =
        world.broker_with(BrokerOptions { wrap_server: Some(wrap(move |_| hook.clone())), ..BrokerOptions::default() });
    let client = world.client();
    let (stub, file) = world.create(&client, "together", uniform(REGION, &here));
    let bytes: Vec<u8> = (0..2 * REGION).map(|at| (at / 4096 * 7 + at % 251) as u8 | 1).collect();
    // Two regions are placed at once.
    meeting.hold(&[("create", 8), ("describe", 4)], || assert_eq!(write(&file, 0, &bytes), bytes.len()));
    meeting.hold(&[("sync names", 4)], || file.sync(false).unwrap());
    meeting.hold(&[("remove", 4), ("truncate", 4), ("sync description", 4)], || file.truncate(REGION - 5000).unwrap());
    let bytes = &bytes[..REGION as usize - 5000];
    let moving = [("size", 4), ("create", 4), ("read", 4), ("write", 4), ("sync", 4), ("sync description", 8)];
    let moves = meeting.hold(&moving, || wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 0, &there)])));
    all_done(&moves);
    assert!(read(&file, 0, bytes.len()) == bytes && file.size_bytes() == bytes.len() as u64);
    assert_eq!(check(&client), []);
    // Other servers may hold descriptions of it.
    meeting.hold(&[("remove file", 8)], || {
        client.remove(&world.path("together"), World::closed(stub).as_fd(), file.id()).unwrap();
        file.close().unwrap();
    });
    assert_eq!(check(&client), []);
}
