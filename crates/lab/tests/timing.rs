//! Plans follow from the requests of a traced run, not from how fast the machine was that it was traced on.

use std::fmt::Write as _;
use stripewise::laboratory::{Lab, placements};
use stripewise_device::{lookup_device, lookup_link};
use stripewise_layout::ByteCount;
use stripewise_planner::{PlanOptions, PlanRequest, PolicyName, plan};
use stripewise_sim::SimOptions;
use stripewise_trace::{Benchmark, CountOptions, FileAccess, Program, Step, Trace, count};

const REGION: ByteCount = ByteCount(4 << 20);
const START_NS: u64 = 1_000_000_000_000;

/// Reads of 64 KiB, a few regions of 128 much more often than the others.
fn program() -> Box<dyn Program> {
    let text =
        "ior:pattern=zipf,a=0.8,region=4MiB,size=512MiB,transfer=64KiB,processes=32,op=read,requests=8000,seed=3";
    text.parse::<Benchmark>().unwrap().program().unwrap()
}

/// The counts of a trace of the program in which request `number` of a process, of `requests`, begins and ends at the times that `timing` gives, in
/// nanoseconds, where the process's one before ended at its last argument.
fn counted(program: &dyn Program, timing: impl Fn(u64, u64, u64) -> (u64, u64)) -> FileAccess {
    let columns = stripewise_trace::export::COLUMNS.join(",");
    let mut text = format!("{columns}\n");
    for process in 0..program.processes() {
        let mut last_end = 0;
        let accesses = program.steps(process).filter_map(|step| match step {
            Step::Access(request) => Some(request),
            _ => None,
        });
        for (number, request) in (0..).zip(accesses) {
            let (start, end) = timing(u64::from(process), number, last_end);
            assert!(last_end <= start && start < end, "a process waits for each of its requests");
            last_end = end;
            let (pid, offset, bytes) = (100 + process, request.offset.0, request.bytes);
            let (start_ns, end_ns) = (START_NS + start, START_NS + end);
            writeln!(text, "node,{pid},,,posix,read,pread,,/data/shared,,{offset},{bytes},,{start_ns},{end_ns},")
                .unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.csv");
    std::fs::write(&path, text).unwrap();
    let options = CountOptions { region_size: REGION, ..CountOptions::default() };
    count(&Trace::open(&path).unwrap(), &options).unwrap().remove(0)
}

/// Traced on memory, requests are 2 us apart and never in flight together; on disks they overlap, each as long as its process waited for it. Plans of
/// such traces ran at 535 and 639 MB/s.
#[test]
fn plans_do_not_depend_on_how_fast_the_traced_machine_was() {
    let (disk, ssd) = (lookup_device("paper-hdd-5ms").unwrap(), lookup_device("paper-ssd").unwrap());
    let capacity = Some(ByteCount(40 << 20));
    let lab = Lab::hybrid((6, disk), (2, ssd), lookup_link("gigabit").unwrap(), capacity, REGION);
    let program = program();
    let mb_per_s = |name: &str, access: FileAccess| {
        let files = [access];
        let request = PlanRequest { concurrency: None, ..lab.request(&*program, &files, PlanOptions::default()) };
        assert_eq!(request.concurrency().processes, 32, "{name}");
        let made = plan(PolicyName::Opt, &request).unwrap();
        let outcome = lab.simulate_with(&placements(&made, &*program), &*program, SimOptions::default()).unwrap();
        println!("{name}: {:.1} MB/s", outcome.mb_per_s);
        outcome.mb_per_s
    };
    // One after the other over all processes, 1 us each; 1 us of thought and 5 to 30 ms of service; and ten times as slow.
    let apart = |process: u64, number: u64, _| {
        let start = (number * 32 + process) * 2_000;
        (start, start + 1_000)
    };
    let service = |process: u64, number: u64| 5_000_000 + (number * 32 + process) * 7_919_317 % 25_000_000;
    let overlapping = |process: u64, number: u64, last: u64| (last + 1_000, last + 1_000 + service(process, number));
    let slow = |process: u64, number: u64, last: u64| (last + 1_000, last + 1_000 + 10 * service(process, number));
    let apart = mb_per_s("apart", counted(&*program, apart));
    for (name, other) in [
        ("overlapping", mb_per_s("overlapping", counted(&*program, overlapping))),
        ("slow", mb_per_s("slow", counted(&*program, slow))),
    ] {
        assert!((other / apart - 1.0).abs() <= 0.02, "{name}: {other:.1} MB/s instead of {apart:.1}");
    }
}
