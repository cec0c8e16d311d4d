//! What a write of `O_DSYNC` and `O_SYNC` makes durable beside its own bytes: counted, by what servers, table and broker are asked for.

use crate::every_call::hooked_client;
use crate::hooked::{Call, Hook, register, wrap, wrap_table};
use crate::logs_wanted::FRAGMENT_KEYS;
use crate::moves::{all_done, order, start_moves, wait_for};
use crate::world::{World, read, uniform, write};
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use stripewise_broker::{BrokerHandle, BrokerOptions};
use stripewise_layout::FileOffset;
use stripewise_store::client::Client;
use stripewise_store::file::{IoMode, StripedFile};
use stripewise_store::server::ServerError;

const REGION: u64 = 16384;
const DURABLE: IoMode = IoMode { direct: false, durable: true };

/// What reached a device's write cache and had to be flushed from there, since it was last asked for.
#[derive(Default, Debug, PartialEq, Eq, Clone, Copy)]
struct Flushes {
    /// Writes that are durable when they return.
    writes: u64,
    /// Syncs of objects.
    objects: u64,
    /// Syncs of the names of a file's objects, with the description.
    names: u64,
    descriptions: u64,
    /// Transactions of the mapping table.
    commits: u64,
}

#[derive(Default)]
struct Counter {
    flushes: Mutex<Flushes>,
    commits: AtomicU64,
}

impl Counter {
    fn take(&self) -> Flushes {
        let flushes = std::mem::take(&mut *self.flushes.lock().unwrap());
        Flushes { commits: self.commits.swap(0, Ordering::SeqCst), ..flushes }
    }
}

impl Hook for Counter {
    fn before(&self, _: &str, call: Call<'_>) -> Result<usize, ServerError> {
        let mut flushes = self.flushes.lock().unwrap();
        match call {
            Call::WriteDurably(..) => flushes.writes += 1,
            Call::Sync(_) => flushes.objects += 1,
            Call::SyncNames(_) => flushes.names += 1,
            Call::SyncDescription(_) => flushes.descriptions += 1,
            _ => {}
        }
        Ok(usize::MAX)
    }
}

/// A world whose flushes are counted.
struct Counted {
    world: World,
    counter: Arc<Counter>,
}

impl Counted {
    fn new(servers: usize) -> Self {
        Self::of(World::new(servers))
    }

    fn of(world: World) -> Self {
        let counter = Arc::new(Counter::default());
        register(&world.root, Arc::clone(&counter) as Arc<dyn Hook>);
        Self { world, counter }
    }

    fn broker(&self) -> BrokerHandle {
        let (of_servers, of_table) = (Arc::clone(&self.counter), Arc::clone(&self.counter));
        let commit = move || {
            // The broker writes what may wait by itself once in a while: nobody asked for that.
            if std::thread::current().name() != Some("stripewise-table") {
                of_table.commits.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        };
        let wrap_server = Some(wrap(move |_| Arc::clone(&of_servers)));
        self.world.broker_with(BrokerOptions {
            wrap_server,
            wrap_table: Some(wrap_table(commit)),
            ..BrokerOptions::default()
        })
    }

    fn client(&self) -> Client {
        self.world.client_with(hooked_client())
    }

    /// What a durable write costs.
    fn write(&self, file: &StripedFile, offset: u64, bytes: &[u8], data_only: bool) -> Flushes {
        self.counter.take();
        assert_eq!(file.write_with(FileOffset(offset), &[IoSlice::new(bytes)], DURABLE).unwrap(), bytes.len());
        file.sync_written(FileOffset(offset), bytes.len() as u64, data_only).unwrap();
        self.counter.take()
    }
}

/// Each wrote the region's other objects out too, synced names that were durable and recorded what the table had: 8 flushes where a plain file needs 1.
#[test]
fn a_durable_overwrite_flushes_what_it_touched_and_nothing_else() {
    overwrite_durably(&Counted::new(4));
}

/// Of a file that could have logs and has none.
#[test]
fn fragments_add_no_flush_to_the_durable_writes_of_a_file_without_any() {
    overwrite_durably(&Counted::of(World::make(World::in_memory(), 4, FRAGMENT_KEYS, |directory| {
        format!("file://{directory}")
    })));
}

fn overwrite_durably(counted: &Counted) {
    let broker = counted.broker();
    let client = counted.client();
    let (stub, file) =
        counted.world.create(&client, "file", uniform(REGION, &[(0, 1024), (1, 1024), (2, 1024), (3, 1024)]));
    write(&file, 0, &[1; 3 * REGION as usize]);
    file.sync(false).unwrap();
    let of = |writes| Flushes { writes, ..Flushes::default() };
    for data_only in [true, false] {
        assert_eq!(counted.write(&file, 100, &[2; 512], data_only), of(1));
        assert_eq!(counted.write(&file, 1000, &[3; 1500], data_only), of(3), "three servers");
        assert_eq!(counted.write(&file, REGION - 10, &[4; 20], data_only), of(2), "two regions");
    }
    file.sync(true).unwrap();
    assert_eq!(counted.counter.take(), Flushes::default(), "what durable writes wrote needs no sync");

    // What others wrote and did not sync stays theirs to sync.
    write(&file, 0, &[5; 3 * REGION as usize]);
    assert_eq!(counted.write(&file, 100, &[6; 512], true), of(1));
    file.sync(true).unwrap();
    assert_eq!(counted.counter.take().objects, 12, "all objects of three regions");

    // A region that was moved is durable at its new place, names and all.
    all_done(&wait_for(&client, start_moves(&client, vec![order(file.id(), 0, 0, &[(2, 1024), (3, 4096)])])));
    counted.counter.take();
    assert_eq!(counted.write(&file, 100, &[6; 512], true), of(1), "after a move");

    // Another process, and another broker: what is durable is known to all.
    drop((file, client, broker));
    let _broker = counted.broker();
    let client = counted.client();
    let (_other_stub, file) = counted.world.open(&client, "file", true);
    for data_only in [true, false] {
        assert_eq!(counted.write(&file, 2048, &[7; 512], data_only), of(1), "after another broker");
    }
    assert_eq!(read(&file, 2000, 600), [[5; 48].as_slice(), &[7; 512], &[5; 40]].concat());
    drop(stub);
}

#[test]
fn a_durable_append_records_the_size_and_new_names_once() {
    let counted = Counted::new(2);
    let broker = counted.broker();
    let client = counted.client();
    let (_stub, file) = counted.world.create(&client, "file", uniform(REGION, &[(0, 1024), (1, 1024)]));
    // A new file: its object, the name of that, and one transaction after those that placed the region.
    let first = counted.write(&file, 0, &[1; 100], true);
    assert_eq!((first.writes, first.objects, first.names, first.descriptions), (1, 0, 1, 0), "{first:?}");
    // The first beyond the first stripe makes the other object, and both servers are told of it.
    for (offset, writes, names) in [(100, 1, 0), (1000, 2, 2), (1100, 1, 0)] {
        let expected = Flushes { writes, names, commits: 1, ..Flushes::default() };
        assert_eq!(counted.write(&file, offset, &[2; 100], true), expected, "at {offset}");
    }
    // The first of a new region: its names, and again only the size.
    assert_eq!(counted.write(&file, REGION, &[3; 100], true).names, 2);
    let expected = Flushes { writes: 1, commits: 1, ..Flushes::default() };
    assert_eq!(counted.write(&file, REGION + 100, &[3; 100], false), expected);
    // Below a size that is durable nothing is recorded, whoever goes on behind it.
    write(&file, REGION + 200, &[4; 100]);
    assert_eq!(counted.write(&file, REGION, &[5; 100], true), Flushes { writes: 1, ..Flushes::default() });

    drop((file, client, broker));
    let _broker = counted.broker();
    let client = counted.client();
    let (_stub, file) = counted.world.open(&client, "file", true);
    assert_eq!(counted.write(&file, REGION + 300, &[6; 100], true), expected, "by another broker");
}

/// As SQLite does it with its journal and its database: their sizes stay, and bytes alone are to be durable.
#[test]
fn the_broker_has_no_part_in_syncing_what_was_overwritten() {
    let counted = Counted::new(2);
    let _broker = counted.broker();
    let client = counted.client();
    let (_stub, file) = counted.world.create(&client, "file", uniform(REGION, &[(0, 1024), (1, 1024)]));
    let sync = |data_only| {
        counted.counter.take();
        let before = client.requests();
        file.sync(data_only).unwrap();
        (client.requests() - before, counted.counter.take().objects)
    };
    write(&file, 0, &[1; 2 * REGION as usize]);
    assert_eq!(sync(true), (1, 4), "the size and the names are new");
    write(&file, 100, &[2; 100]);
    assert_eq!(sync(true), (0, 2), "the objects of the region that was written");
    assert_eq!(sync(true), (0, 0), "nothing twice");
    write(&file, 100, &[3; 100]);
    assert_eq!(sync(false), (1, 2), "`fsync` asks in any case");
    write(&file, 2 * REGION - 10, &[4; 20]);
    assert_eq!(sync(true), (1, 4), "the size has grown, and a region is new");
}
