//! One process: the data path equals a vector of bytes.

use crate::hooked::{OPEN_BY_AGENT_IN_MEMORY, OPEN_IN_MEMORY, wrap_in_memory};
use crate::world::{World, open_stub};
use proptest::prelude::*;
use std::io::{IoSlice, IoSliceMut};
use stripewise_broker::BrokerOptions;
use stripewise_layout::{ByteCount, FileOffset, Layout, Placement, ServerId};
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::file::SpaceChange;

const REGION: u64 = 4096;
const SPAN: u64 = 5 * REGION;

#[derive(Clone, Debug)]
enum Op {
    /// At, buffer lengths.
    Write(u64, Vec<usize>),
    Append(Vec<usize>),
    Read(u64, Vec<usize>),
    Truncate(u64),
    Space(SpaceChange, u64, u64),
    Sync,
    /// Closes one of the two handles and opens it again.
    Reopen,
}

fn buffers() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        prop::collection::vec(0usize..3000, 1..2),
        prop::collection::vec(0usize..9000, 1..2),
        prop::collection::vec(0usize..700, 0..9),
        prop::collection::vec(0usize..3, 50..90),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        5 => (0..SPAN, buffers()).prop_map(|(at, parts)| Op::Write(at, parts)),
        2 => buffers().prop_map(Op::Append),
        5 => (0..SPAN + REGION, buffers()).prop_map(|(at, parts)| Op::Read(at, parts)),
        2 => (0..SPAN).prop_map(Op::Truncate),
        2 => (changes(), 0..SPAN, 0..2 * REGION).prop_map(|(change, at, length)| Op::Space(change, at, length)),
        1 => Just(Op::Sync),
        1 => Just(Op::Reopen),
    ];
    prop::collection::vec(op, 1..24)
}

fn changes() -> impl Strategy<Value = SpaceChange> {
    (0..3, any::<bool>()).prop_map(|(kind, keep_size)| match kind {
        0 => SpaceChange::Allocate { keep_size },
        1 => SpaceChange::Zero { keep_size },
        _ => SpaceChange::Punch,
    })
}

fn placements() -> impl Strategy<Value = Placement> {
    let layout = prop_oneof![
        (0u16..5, 1u32..5000).prop_map(|(server, size)| Layout::new([(ServerId(server), size)]).unwrap()),
        prop::collection::vec(1u32..90, 2..5).prop_map(|sizes| Layout::new((0..).map(ServerId).zip(sizes)).unwrap()),
        prop::collection::vec(prop_oneof![Just(0u32), 256u32..1500], 5..6)
            .prop_filter_map("no server", |sizes| Layout::new((0..).map(ServerId).zip(sizes)).ok()),
    ];
    (prop::collection::vec(layout.clone(), 0..6), layout)
        .prop_map(|(regions, beyond)| Placement::from_regions(ByteCount(REGION), regions, beyond.clone(), beyond))
}

/// Bytes that no other write of the test has at the same place.
fn pattern(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(31) ^ number.wrapping_mul(97)) as u8 | 1).collect()
}

fn truncated<'a>(mut bytes: &'a [u8], parts: &[usize]) -> Vec<IoSlice<'a>> {
    let mut slices = Vec::new();
    for length in parts {
        let (part, rest) = bytes.split_at(*length);
        slices.push(IoSlice::new(part));
        bytes = rest;
    }
    slices
}

fn write_model(model: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    if model.len() < at + bytes.len() {
        model.resize(at + bytes.len(), 0);
    }
    model[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn a_striped_file_is_a_vector_of_bytes() {
    agrees_with_a_vector(&World::new(5), BrokerOptions::default(), ClientOptions::default());
}

#[test]
fn a_striped_file_on_emulated_servers_is_a_vector_of_bytes() {
    let emulated = |directory: &str| format!("emulated://{directory}?device=nvme&time_scale=0.001");
    agrees_with_a_vector(&World::with_urls(5, emulated), BrokerOptions::default(), ClientOptions::default());
}

/// The seam asks for no descriptor: the same over servers whose objects have names only.
#[test]
fn a_striped_file_in_stores_without_descriptors_is_a_vector_of_bytes() {
    let world = World::new(5);
    let broker = BrokerOptions { wrap_server: Some(wrap_in_memory(&world.root)), ..BrokerOptions::default() };
    let client = ClientOptions { open_server: OPEN_IN_MEMORY, ..ClientOptions::default() };
    agrees_with_a_vector(&world, broker, client);
    assert!(world.objects().is_empty(), "the directories got objects");
}

/// The same over servers that the broker alone can reach: data goes through the lane of the client.
#[test]
fn a_striped_file_behind_the_agent_is_a_vector_of_bytes() {
    let world = World::with_urls(5, |directory| directory.replace(world_of(directory), "rados:/"));
    let broker = BrokerOptions { open_by_agent: Some(OPEN_BY_AGENT_IN_MEMORY), ..BrokerOptions::default() };
    agrees_with_a_vector(&world, broker, ClientOptions::default());
    assert!(world.objects().is_empty(), "the directories got objects");
}

fn world_of(directory: &str) -> &str {
    directory.rsplit_once('/').unwrap().0
}

#[test]
fn a_file_with_fragments_on_ssds_is_a_vector_of_bytes() {
    agrees_with_a_vector(&World::with_fragments(5), BrokerOptions::default(), ClientOptions::default());
}

fn agrees_with_a_vector(world: &World, broker: BrokerOptions, client: ClientOptions) {
    let _broker = world.broker_with(broker);
    agrees_with_a_vector_in(150, world, &world.client_with(client));
}

/// So many files of a cluster of 5 servers, whose broker runs.
pub(crate) fn agrees_with_a_vector_in(cases: u32, world: &World, client: &Client) {
    let config = ProptestConfig { cases, ..ProptestConfig::default() };
    proptest!(config, |(placement in placements(), ops in ops())| {
        let (stub, first) = world.create_unnamed(client, placement);
        let read_only = std::fs::File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&stub))).unwrap();
        let mut handles = [first, open_stub(client, &read_only)];
        let mut model: Vec<u8> = Vec::new();
        for (number, op) in ops.iter().enumerate() {
            let file = &handles[0];
            match op {
                Op::Write(at, parts) => {
                    let bytes = pattern(number, parts.iter().sum());
                    prop_assert_eq!(file.write_at(FileOffset(*at), &truncated(&bytes, parts)).unwrap(), bytes.len());
                    write_model(&mut model, *at as usize, &bytes);
                }
                Op::Append(parts) => {
                    let bytes = pattern(number, parts.iter().sum());
                    let (at, written) = file.append(&truncated(&bytes, parts)).unwrap();
                    prop_assert_eq!((at.0, written), (model.len() as u64, bytes.len()));
                    let end = model.len();
                    write_model(&mut model, end, &bytes);
                }
                Op::Read(at, parts) => {
                    let wanted: usize = parts.iter().sum();
                    let mut memory: Vec<Vec<u8>> = parts.iter().map(|length| vec![0xee; *length]).collect();
                    let mut slices: Vec<IoSliceMut> = memory.iter_mut().map(|part| IoSliceMut::new(part)).collect();
                    // The read-only handle sees what the other wrote.
                    let read = handles[number % 2].read_at(FileOffset(*at), &mut slices).unwrap();
                    let from = (*at as usize).min(model.len());
                    let expected = &model[from..model.len().min(from + wanted)];
                    prop_assert_eq!(read, expected.len());
                    prop_assert_eq!(&memory.concat()[..read], expected);
                    prop_assert!(memory.concat()[read..].iter().all(|byte| *byte == 0xee), "bytes beyond the count changed");
                }
                Op::Truncate(size) => {
                    file.truncate(*size).unwrap();
                    model.resize(*size as usize, 0);
                }
                Op::Space(change, at, length) => {
                    file.change_space(*change, FileOffset(*at), *length).unwrap();
                    let (at, end) = (*at as usize, (at + length) as usize);
                    if let SpaceChange::Allocate { keep_size: false } | SpaceChange::Zero { keep_size: false } = change
                        && *length > 0
                        && end > model.len()
                    {
                        model.resize(end, 0);
                    }
                    if !matches!(change, SpaceChange::Allocate { .. }) {
                        let end = end.min(model.len());
                        model[at.min(end)..end].fill(0);
                    }
                }
                Op::Sync => file.sync(number % 2 == 0).unwrap(),
                Op::Reopen => {
                    let [write, read] = handles;
                    // Never both: the last close of an unnamed file would free it.
                    let write = if number % 2 == 0 { write } else { write.close().unwrap(); open_stub(client, &stub) };
                    let read = if number % 2 == 0 { read.close().unwrap(); open_stub(client, &read_only) } else { read };
                    handles = [write, read];
                }
            }
            prop_assert_eq!(handles[1].size_bytes(), model.len() as u64);
        }
        let mut whole = vec![0xee; model.len() + 10];
        let read = handles[1].read_at(FileOffset(0), &mut [IoSliceMut::new(&mut whole)]).unwrap();
        prop_assert_eq!(&whole[..read], &model[..]);
        holes_agree(&handles[1], &model)?;
    });
}

/// Every byte that is not zero lies where `next_data` leads, and holes read as zeros.
fn holes_agree(file: &stripewise_store::file::StripedFile, model: &[u8]) -> Result<(), TestCaseError> {
    let mut at = 0;
    while (at as usize) < model.len() {
        let data = file.next_data(FileOffset(at)).unwrap().map_or(model.len() as u64, |data| data.0);
        prop_assert!(model[at as usize..data as usize].iter().all(|byte| *byte == 0));
        if data as usize == model.len() {
            break;
        }
        let hole = file.next_hole(FileOffset(data)).unwrap().unwrap().0;
        prop_assert!(hole > data && hole as usize <= model.len());
        at = hole;
    }
    prop_assert_eq!(file.next_data(FileOffset(model.len() as u64)).unwrap(), None);
    prop_assert_eq!(file.next_hole(FileOffset(model.len() as u64)).unwrap(), None);
    Ok(())
}
