//! What the tests of all benchmarks look at, and what every benchmark keeps.

use super::Benchmark;
use crate::program::{IoRequest, Program, Step};
use proptest::prelude::*;
use std::collections::BTreeMap;
use stripewise_layout::Direction;

pub(super) fn program(text: &str) -> Box<dyn Program> {
    let benchmark: Benchmark = text.parse().unwrap_or_else(|fault| panic!("{text}: {fault}"));
    benchmark.program().unwrap_or_else(|fault| panic!("{text}: {fault}"))
}

/// What reading or making it says is wrong.
pub(super) fn refusal(text: &str) -> String {
    match text.parse::<Benchmark>() {
        Err(fault) => fault.to_string(),
        Ok(benchmark) => match benchmark.program() {
            Err(fault) => fault.to_string(),
            Ok(_) => panic!("{text} should be refused"),
        },
    }
}

pub(super) fn accesses(program: &dyn Program, process: u32) -> Vec<IoRequest> {
    let requests = program.steps(process).filter_map(|step| match step {
        Step::Access(request) => Some(request),
        _ => None,
    });
    requests.collect()
}

/// (file, start, end) of every request of a direction, of all processes, in order of place.
pub(super) fn extents(program: &dyn Program, direction: Direction) -> Vec<(u32, u64, u64)> {
    let mut extents: Vec<(u32, u64, u64)> = (0..program.processes())
        .flat_map(|process| accesses(program, process))
        .filter(|request| request.direction() == direction)
        .map(|request| (request.file.0, request.offset.0, request.offset.0 + request.bytes))
        .collect();
    extents.sort_unstable();
    extents
}

/// Every byte of every file is in exactly one request of that direction.
pub(super) fn covers_once(program: &dyn Program, direction: Direction) -> bool {
    let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
    for (file, start, end) in extents(program, direction) {
        if std::mem::replace(ends.entry(file).or_insert(0), end) != start {
            return false;
        }
    }
    let sizes = program.files().iter().enumerate();
    sizes.into_iter().all(|(file, shape)| ends.get(&(file as u32)) == Some(&shape.size_bytes))
}

/// The marks that all processes pass together.
fn marks(program: &dyn Program, process: u32) -> Vec<Step> {
    program.steps(process).filter(|step| matches!(step, Step::Barrier | Step::Phase)).collect()
}

fn word(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    proptest::sample::select(words)
}

/// Small programs of every benchmark.
fn any_benchmark() -> impl Strategy<Value = String> {
    let ior = (1u32..9, 1u32..3, 1u32..4, word(&["sequential", "random", "zipf"]), word(&["read", "both", "mixed"]));
    let ior = ior.prop_map(|(processes, repetitions, phases, pattern, op)| {
        let phases = if pattern == "zipf" { phases } else { 1 };
        format!(
            "ior:pattern={pattern},op={op},processes={processes},repetitions={repetitions},phases={phases},region=64KiB,\
             transfer=16KiB,block=128KiB,segments=2,think=3us"
        )
    });
    let hpio = (1u32..9, 1u64..20, 0u64..3, word(&["c-c", "c-nc"]), word(&["individual", "collective"]));
    let hpio = hpio.prop_map(|(processes, count, spacing, noncontig, method)| {
        format!(
            "hpio:processes={processes},region_count={count},region_size=100,region_spacing={spacing},noncontig={noncontig},\
             method={method},buffer=300"
        )
    });
    let btio = (1u32..4, word(&["simple", "full"]), 1u32..4).prop_map(|(side, subtype, repetitions)| {
        let processes = side * side;
        format!(
            "btio:class=S,subtype={subtype},processes={processes},repetitions={repetitions},time_steps=15,compute=1ms"
        )
    });
    let tile = (1u32..4, 1u32..4, 1u64..6, 0u64..3, word(&["rows", "sieve", "collective"]));
    let tile = tile.prop_map(|(x, y, size, overlap, method)| {
        format!(
            "tile-io:nr_tiles_x={x},nr_tiles_y={y},sz_tile_x={},sz_tile_y={size},overlap_x={overlap},sz_element=5,method={method},\
             buffer=17,sieve_buffer=9",
            size + overlap
        )
    });
    let rounds = (1u32..9, 1u32..9, word(&["yes", "no"])).prop_map(|(processes, iterations, barrier)| {
        format!("mpi-io-test:processes={processes},iterations={iterations},block=65KiB,offset=1KiB,barrier={barrier}")
    });
    let chombo = (1u32..9, 1u32..4, 1u64..30).prop_map(|(processes, levels, boxes)| {
        format!("chombo:processes={processes},levels={levels},boxes={boxes},op=both")
    });
    let checkpoint = (1u32..9, 1u32..5, 1u32..4, any::<bool>()).prop_map(|(processes, checkpoints, keep, alone)| {
        let alone = if alone { "yes" } else { "no" };
        format!(
            "checkpoint:processes={processes},checkpoints={checkpoints},keep={keep},file_per_process={alone},state=10KiB,\
             transfer=3KiB"
        )
    });
    prop_oneof![ior, hpio, btio, tile, rounds, chombo, checkpoint]
}

proptest! {
    /// A simulator or a replay may rely on these.
    #[test]
    fn every_program_is_sound(text in any_benchmark()) {
        let program = program(&text);
        let common = marks(&*program, 0);
        let phases = 1 + common.iter().filter(|step| **step == Step::Phase).count();
        prop_assert_eq!(phases as u32, program.phases());
        prop_assert!((1..=program.processes()).contains(&program.nodes()));
        let mut largest = vec![0; program.files().len()];
        for process in 0..program.processes() {
            prop_assert_eq!(&marks(&*program, process), &common);
            prop_assert!(program.steps(process).eq(program.steps(process)));
            for request in accesses(&*program, process) {
                prop_assert!(request.bytes > 0);
                let largest = &mut largest[request.file.0 as usize];
                *largest = (*largest).max(request.offset.0 + request.bytes);
            }
        }
        for (end, shape) in largest.iter().zip(program.files()) {
            prop_assert!(*end <= shape.size_bytes, "{} beyond {:?}", end, shape);
        }
        // The text reads as it prints.
        let benchmark: Benchmark = text.parse().unwrap();
        prop_assert_eq!(benchmark.to_string().parse::<Benchmark>(), Ok(benchmark));
    }
}
