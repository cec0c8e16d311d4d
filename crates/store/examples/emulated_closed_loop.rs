//! The closed loop of `tests/emulation.rs` with real processes, real bytes and the real clock, beside the event simulation:
//!
//!     cargo run --release -p stripewise-store --example emulated_closed_loop [PROCESSES [SECONDS]]
//!
//! Prints, for each request size, bandwidth as run and as simulated, their ratio, and how well the host kept up. The bytes
//! lie in /dev/shm where there is one. Every process is this program again; they start at one agreed time.

#[path = "../tests/emulation/event_simulation.rs"]
mod event_simulation;
#[path = "../tests/emulation/workload.rs"]
mod workload;

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use stripewise_device::Nanos;
use stripewise_layout::{Direction, ServerId};
use stripewise_store::server::clock::{Clock, Monotonic};
use stripewise_store::server::pace::Pacer;
use stripewise_store::server::stations::{Parts, Stations};
use workload::{Mix, Workload};

const WORKER: &str = "EMULATED_CLOSED_LOOP_WORKER";
/// Each server's file; positions are taken modulo this.
const FILE_BYTES: u64 = 64 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::var(WORKER) {
        Ok(task) => work(&task),
        Err(_) => lead(),
    }
}

fn lead() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let processes: usize = arguments.next().map_or(Ok(32), |text| text.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(3.0), |text| text.parse())?;
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let directory = tempfile::tempdir_in(parent)?;
    let servers = workload::testbed("hdd-7200", "sata-ssd-2012");
    for server in 0..servers.len() {
        let file = File::create(directory.path().join(server.to_string()))?;
        for block in 0..FILE_BYTES >> 20 {
            file.write_all_at(&vec![block as u8; 1 << 20], block << 20)?;
        }
    }
    println!("request     mix      run MB/s   simulated   ratio   late mean/max ms  overruns  skew ms  host bound");
    for request_bytes in [65_536, 262_144, 1 << 20, 4 << 20] {
        for mix in ["reads", "writes", "half"] {
            let workload = workload_of(mix, request_bytes);
            let simulate = |requests| {
                let ends = event_simulation::simulate(&servers, processes, requests, |process, number| {
                    workload.request(process, number)
                });
                ends.into_iter().max().unwrap_or_default().seconds()
            };
            let requests = ((seconds / simulate(8) * 8.0) as usize).max(1);
            let stations_path = directory.path().join("stations");
            let stations = Stations::open(Stations::establish(&stations_path, servers.len())?, servers.len())?;
            stations.reset_counters();
            // The stations are idle by then, and everyone is up.
            let start = Monotonic.now() + Nanos(500_000_000);
            let children: Vec<Child> = (0..processes)
                .map(|process| {
                    let task = format!(
                        "{process} {} {requests} {request_bytes} {mix} {}",
                        start.0,
                        directory.path().display()
                    );
                    Command::new(std::env::current_exe()?).env(WORKER, task).stdin(Stdio::null()).spawn()
                })
                .collect::<Result<_, _>>()?;
            for mut child in children {
                if !child.wait()?.success() {
                    return Err("a worker failed".into());
                }
            }
            let report = stations.host_report();
            let bytes = (processes * requests) as f64 * request_bytes as f64;
            let (run, simulated) = (bytes / report.span.seconds() / 1e6, bytes / simulate(requests) / 1e6);
            println!(
                "{:>7} {mix:>7} {run:>13.1} {simulated:>11.1} {:>7.3} {:>9.3} {:>8.3} {:>9} {:>8.3}  {}",
                request_bytes >> 10,
                run / simulated,
                report.mean_late().seconds() * 1e3,
                report.late_max.seconds() * 1e3,
                report.overruns,
                report.start_skew.seconds() * 1e3,
                report.is_host_bound(),
            );
        }
    }
    Ok(())
}

fn workload_of(mix: &str, request_bytes: u64) -> Workload {
    let mix = match mix {
        "reads" => Mix::Reads,
        "writes" => Mix::Writes,
        _ => Mix::Half,
    };
    Workload { layout: Workload::striped(65_536, 65_536), request_bytes, mix, sequential: false, seed: 11 }
}

fn work(task: &str) -> Result<(), Box<dyn Error>> {
    let words: Vec<&str> = task.splitn(6, ' ').collect();
    let [process, start, requests, request_bytes, mix, directory] = words[..] else { return Err("bad task".into()) };
    let (process, requests): (usize, usize) = (process.parse()?, requests.parse()?);
    let workload = workload_of(mix, request_bytes.parse()?);
    let directory = Path::new(directory);
    let servers = workload::testbed("hdd-7200", "sata-ssd-2012");
    let open = |name: String| File::options().read(true).write(true).open(directory.join(name));
    let stations = Stations::open(open("stations".to_owned())?, servers.len())?;
    let files: Vec<File> = (0..servers.len()).map(|server| open(server.to_string())).collect::<Result<_, _>>()?;
    let mut buffer = vec![process as u8; 4 << 20];
    let mut pacer = Pacer::new();
    Monotonic.sleep_until(Nanos(start.parse()?));
    for number in 0..requests {
        let request = workload.request(process, number);
        let mut due = Nanos(0);
        for (server, access) in &request {
            let issue = pacer.issue(&Monotonic, &stations);
            let spec = &servers[*server];
            let stops = (&spec.device, spec.link.as_ref());
            let server = ServerId(*server as u16);
            due = due.max(stations.reserve_at(server, stops, Parts::DeviceAndLink, issue, access).end);
        }
        for (server, access) in &request {
            let bytes = &mut buffer[..access.bytes as usize];
            let at = access.place.offset.0 % (FILE_BYTES - access.bytes);
            match access.direction {
                Direction::Read => files[*server].read_exact_at(bytes, at)?,
                Direction::Write => files[*server].write_all_at(bytes, at)?,
            }
        }
        pacer.wait(&Monotonic, &stations, due);
    }
    Ok(())
}
