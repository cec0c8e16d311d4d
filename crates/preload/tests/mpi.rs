//! MPI-IO calls in the trace, under both MPIs: call, rank, communicator, place and length, with the POSIX calls beneath.

#[allow(unreachable_pub, reason = "each test uses a part")]
#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use stripewise_capture::call::{Call, Level};
use stripewise_trace::trace::Trace;

const RANKS: u64 = 4;

fn trace_of(family: &str, scratch: &Path) -> Trace {
    let program = support::compile(&format!("mpicc.{family}"), "mpi_calls", scratch);
    let (work, traces) = (scratch.join("work"), scratch.join("traces"));
    std::fs::create_dir(&work).unwrap();
    std::fs::create_dir(&traces).unwrap();
    let mut launcher = Command::new(format!("mpiexec.{family}"));
    launcher.current_dir(&work).args(["-n", &RANKS.to_string()]);
    if family == "openmpi" {
        launcher.args(["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]);
        launcher.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
    // Only the ranks, not the launcher.
    launcher
        .arg("env")
        .arg(format!("LD_PRELOAD={}", support::library().display()))
        .arg(format!("STRIPEWISE_TRACE={}", traces.display()))
        .arg(program);
    support::run(&mut launcher);
    Trace::open(&traces).unwrap()
}

fn every_mpi_call_is_recorded(family: &str) {
    let scratch = tempfile::tempdir().unwrap();
    let trace = trace_of(family, scratch.path());
    let mut ranks = BTreeMap::new();
    let mut posix_writes = 0;
    for index in trace.process_indices() {
        let process = trace.process(index);
        let events: Vec<_> = trace
            .events_of(index)
            .filter(|event| event.file.is_some_and(|file| trace.file(file).path.ends_with("work/shared")))
            .collect();
        let posix =
            events.iter().filter(|event| event.call.level() == Level::Posix && event.call.operation().is_data());
        posix_writes += posix.filter(|event| event.call.name().contains("write")).count();
        let mpi: Vec<_> = events.iter().filter(|event| event.call.level() == Level::MpiIo).collect();
        if mpi.is_empty() {
            continue;
        }
        let rank = u64::from(process.mpi_rank.expect("a process that calls MPI-IO has a rank"));
        assert_eq!(u64::from(process.mpi_size), RANKS);
        let data: Vec<_> = mpi
            .iter()
            .filter(|event| event.call.operation().is_data())
            .map(|event| (event.call, event.offset.0, event.bytes, event.errno))
            .collect();
        let expected = [
            (Call::MpiWriteAt, rank * 8000, 8000, 0),
            (Call::MpiRead, rank * 800, 800, 0),
            (Call::MpiReadAtAll, rank * 400, 400, 0),
            (Call::MpiIwriteAt, 100_000 + rank * 80, 80, 0),
            (Call::MpiWriteAll, 200_000 + rank * 8, 80, 0),
        ];
        assert_eq!(data, expected, "{family}, rank {rank}");
        let others: Vec<_> =
            mpi.iter().filter(|event| !event.call.operation().is_data()).map(|event| event.call).collect();
        let mut wanted = vec![Call::MpiOpen, Call::MpiSync, Call::MpiSeek, Call::MpiSetView, Call::MpiClose];
        wanted.extend((rank == 0).then_some(Call::MpiDelete));
        assert_eq!(others, wanted, "{family}, rank {rank}");
        let key = mpi[0].communicator;
        let communicator = &process.communicators[&key];
        assert_eq!((u64::from(communicator.size), u64::from(communicator.rank)), (RANKS, rank));
        ranks.insert(rank, communicator.hash);
    }
    assert_eq!(ranks.keys().copied().collect::<Vec<_>>(), (0..RANKS).collect::<Vec<_>>(), "{family}");
    assert!(ranks.values().all(|hash| *hash == ranks[&0]), "one communicator in all ranks: {ranks:?}");
    assert!(posix_writes >= RANKS as usize, "{family}: the POSIX writes beneath are there: {posix_writes}");
}

#[test]
fn mpich() {
    every_mpi_call_is_recorded("mpich");
}

#[test]
fn openmpi() {
    every_mpi_call_is_recorded("openmpi");
}
