//! Buffered writes to emulated servers with a dirty limit.

use crate::world::{World, read, uniform, write};
use std::io::IoSlice;
use stripewise_layout::{FileOffset, ServerId};
use stripewise_store::client::Client;
use stripewise_store::file::IoMode;

const REGION: u64 = 16 << 10;

fn busy_ns(client: &Client) -> [u64; 4] {
    let stations = client.stations().unwrap();
    [0, 1, 2, 3].map(|server| stations.server_load(ServerId(server)).device_busy.0)
}

/// Written at memory speed, charged in order at the sync, which waits; what is direct or durable waits at once. The bytes are there all the time.
#[test]
fn buffered_writes_cost_their_devices_nothing_until_a_sync_and_others_at_once() {
    let world = World::make(World::in_memory(), 4, "", |directory| {
        format!("emulated://{directory}?device=hdd-7200&time_scale=0.01&dirty_limit=8MiB")
    });
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (2, 4096)]));
    let bytes: Vec<u8> = (0..4 * REGION).map(|at| (at / 7) as u8).collect();
    // Backwards, so that each write would seek.
    for at in (0..bytes.len()).step_by(4096).rev() {
        assert_eq!(write(&file, at as u64, &bytes[at..at + 4096]), 4096);
    }
    let stations = client.stations().unwrap();
    assert_eq!((busy_ns(&client), stations.host_report().waits), ([0; 4], 0));
    file.sync(false).unwrap();
    let synced = busy_ns(&client);
    assert!(synced[0] > 0 && synced[2] > 0 && synced[1] == 0, "{synced:?}");
    assert!(stations.host_report().waits > 0, "the sync waits");
    let device = stripewise_device::lookup_device("hdd-7200").unwrap().dilated(0.01);
    let seek_ns = device.demand(stripewise_layout::Direction::Write, 4096, None).serial.0;
    assert!(synced[0] < 2 * seek_ns, "one seek for eight requests: {synced:?}, {seek_ns}");
    file.sync(false).unwrap();
    assert_eq!(busy_ns(&client), synced, "nothing is dirty any more");
    for (direct, durable) in [(true, false), (false, true)] {
        let before = busy_ns(&client);
        file.write_with(FileOffset(0), &[IoSlice::new(&bytes[..4096])], IoMode { direct, durable }).unwrap();
        assert!(busy_ns(&client)[0] > before[0], "{direct} {durable}");
    }
    assert!(read(&file, 0, bytes.len()) == bytes);
}
