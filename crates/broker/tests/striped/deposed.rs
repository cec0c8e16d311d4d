//! A master that is none any more, and does not know it yet.

use crate::hooked::wrap_table;
use crate::world::{World, read, uniform, write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stripewise_broker::BrokerOptions;
use stripewise_broker::rmt::RmtError;

/// A program must not be told: nothing of its request has been done, and the next master does it.
#[test]
fn what_is_asked_of_a_deposed_master_is_done_by_the_next() {
    let world = World::new(2);
    let (is_deposed, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let before_commit = {
        let (is_deposed, refused) = (Arc::clone(&is_deposed), Arc::clone(&refused));
        move || match is_deposed.load(Ordering::SeqCst) {
            false => Ok(()),
            true => {
                refused.fetch_add(1, Ordering::SeqCst);
                Err(RmtError::Deposed { name: "first".to_owned(), master: "second".to_owned() })
            }
        }
    };
    let wrap_table = Some(wrap_table(before_commit));
    let deposed = world.broker_with(BrokerOptions { wrap_table, ..BrokerOptions::default() });
    let client = world.client();
    let placement = || uniform(1 << 20, &[(0, 4096), (1, 4096)]);
    let (_, before) = world.create(&client, "before", placement());
    is_deposed.store(true, Ordering::SeqCst);
    let (next, made) = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let (_, made) = world.create(&client, "made", placement());
            write(&made, 0, b"bytes");
            made
        });
        while refused.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(deposed);
        let next = world.broker();
        (next, asked.join().unwrap())
    });
    assert_eq!(read(&made, 0, 100), b"bytes");
    write(&before, 0, b"goes on");
    assert_eq!(read(&before, 0, 100), b"goes on");
    drop((made, before, client));
    drop(next);
}
