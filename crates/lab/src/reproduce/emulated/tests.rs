use super::super::script::{Generated, access};
use super::live::LiveRun;
use super::*;
use std::sync::{Mutex, PoisonError};
use stripewise::laboratory::Machine;
use stripewise_device::{lookup_device, lookup_link};
use stripewise_layout::{FileOffset, Layout, RegionIndex, RequestKind, ServerClass, ServerId, ServerUrl};
use stripewise_planner::{Plan, PlannedWindow, PolicyName};
use stripewise_sim::PlacedWindow;
use stripewise_store::protocol::MigrateBandwidth;
use stripewise_store::server::emulated::EmulatedUrl;
use stripewise_trace::ProgramFile;

const KIB: u64 = 1 << 10;
const REGION: ByteCount = ByteCount(64 * KIB);
const FILE: ByteCount = ByteCount(512 * KIB);

/// A process has one laboratory at a time: its directory bears the process's number, and signals are relayed to one program.
static LABORATORY: Mutex<()> = Mutex::new(());

/// The command and the library that it preloads: `cargo test` of the unit tests alone builds neither.
fn command() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let profile = own.parent().and_then(Path::parent).unwrap();
    // `make test` builds the workspace first, with the features of all.
    if std::env::var_os("STRIPEWISE_LIBRARY_IS_BUILT").is_some() {
        return profile.join("stripewise");
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "stripewise-cli", "--package", "stripewise-preload", "--target-dir"]);
    cargo.arg(profile.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success(), "the command does not build");
    profile.join("stripewise")
}

fn lab() -> Lab {
    let link = lookup_link("gigabit").unwrap();
    let (hdd, ssd) = (lookup_device("paper-hdd").unwrap(), lookup_device("paper-ssd").unwrap());
    Lab::hybrid((2, hdd), (1, ssd), link, Some(ByteCount(FILE.0 + 1)), REGION).with_client_link(link)
}

/// Four processes write one half of the file and read the other, then the other way round.
fn program() -> Generated<'static> {
    let steps = |process: u32| {
        let own = (0..8).map(move |number| (number, (number * 4 + u64::from(process)) * 16 * KIB));
        let direction = |write| if write { Direction::Write } else { Direction::Read };
        let pass =
            move |turn: u64| own.clone().map(move |(number, at)| access(direction(number / 4 == turn), at, 16 * KIB));
        pass(0).chain([Step::Phase]).chain(pass(1))
    };
    Generated::shared(FILE.0, (4, 2), 2, steps)
}

fn over(servers: &[u16], stripe_bytes: u32) -> Placement {
    let layout = Layout::new(servers.iter().map(|server| (ServerId(*server), stripe_bytes))).unwrap();
    Placement::uniform(REGION, layout.clone(), layout)
}

#[test]
fn processes_run_on_the_servers_of_the_lab_and_read_what_was_written() {
    let _alone = LABORATORY.lock().unwrap_or_else(PoisonError::into_inner);
    let (command, program) = (command(), program());
    let forked = EmulatedLab::build_with((&command, &Voice::silent()), &lab(), FILE, (Ranks::Forked, 1.0)).unwrap();
    let whole = FilePlacements::fixed(over(&[0, 2], 8192));
    assert_eq!(forked.run(&forked.prepare(&program).unwrap(), &[whole]).unwrap().bytes, 2 * FILE.0);
    drop(forked);

    let lab = EmulatedLab::build_with((&command, &Voice::silent()), &lab(), FILE, (Ranks::Mpi, 1.0)).unwrap();
    let names: Vec<&str> = lab.lab().cluster.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!((names, lab.lab().system.client_link), (vec!["hdd0", "hdd1", "ssd0"], None));
    let prepared = lab.prepare(&program).unwrap();
    let window = |start_s, placement| PlacedWindow { start_s, placement };
    let windows = vec![window(0.0, over(&[0, 1, 2], 4096)), window(600.0, over(&[2], 65_536))];
    let run = lab.run(&prepared, &[FilePlacements { windows }]).unwrap();
    assert_eq!(run.bytes, 2 * FILE.0);
    assert!(run.seconds > 0.0 && run.mb_per_s().is_finite());
    assert!(!prepared.paths[0].1.exists(), "the managed file is removed after the run");

    // Data that no run has written are found out.
    std::fs::write(&prepared.paths[0].0, vec![0; FILE.0 as usize]).unwrap();
    let error = lab.run(&prepared, &[FilePlacements::fixed(over(&[0, 1], 4096))]).unwrap_err().to_string();
    assert_eq!(error, "the program read other bytes than were written");
    let work = lab.work.path().to_owned();
    drop((prepared, lab));
    assert!(!work.exists(), "the work directory goes with the laboratory");
}

fn first_of(plan: &Plan) -> PlannedWindow {
    plan.files[0].windows[0].clone()
}

#[test]
fn regions_follow_a_plan_while_the_program_runs() {
    let _alone = LABORATORY.lock().unwrap_or_else(PoisonError::into_inner);
    let program = program();
    let lab = EmulatedLab::build_with((&command(), &Voice::silent()), &lab(), FILE, (Ranks::Forked, 1.0)).unwrap();
    let prepared = lab.prepare(&program).unwrap();
    let mut plan = lab.lab().plan_counted(PolicyName::Def, &program, &lab.lab().count(&program), 1).unwrap();
    let first = first_of(&plan);
    let window = |start_s, placement| PlannedWindow { start_s, end_s: start_s + 600.0, placement, ..first.clone() };
    plan.files[0].windows = vec![window(0.0, over(&[0, 1], 8192)), window(600.0, over(&[2], 65_536))];
    let phases = |run: &LiveRun| run.phases.iter().map(|phase| phase.bytes).collect::<Vec<u64>>();
    let regions = FILE.0 / REGION.0;

    let staying = lab.run_live(&prepared, &plan, None).unwrap();
    assert_eq!((phases(&staying), staying.moved_bytes, staying.unfinished), (vec![FILE.0; 2], 0, 0));
    let moving = lab.run_live(&prepared, &plan, Some(MigrateBandwidth::Unlimited)).unwrap();
    assert_eq!(phases(&moving), [FILE.0; 2]);
    // All were ordered at the border; how many of them were in time is the machine's doing.
    assert_eq!(moving.moved_bytes / REGION.0 + moving.unfinished, regions);

    plan.files[0].windows.truncate(1);
    let run = lab.run_live(&prepared, &plan, Some(MigrateBandwidth::Unlimited)).unwrap();
    assert_eq!((phases(&run), run.moved_bytes, run.unfinished), (vec![FILE.0; 2], 0, 0));
    plan.files[0].windows = [0.0, 600.0, 1200.0].map(|start_s| PlannedWindow { start_s, ..first_of(&plan) }).into();
    let error = lab.run_live(&prepared, &plan, Some(MigrateBandwidth::Auto)).unwrap_err().to_string();
    assert_eq!(error, "a plan of 3 windows is not for a program of 2 phases");
}

#[test]
fn a_phase_is_a_program_of_its_own_and_data_are_written_once_for_all() {
    let program = program();
    let of_phase = |phase| -> Vec<Step> { one_phase(&program, phase).steps(3).collect() };
    let all: Vec<Step> = program.steps(3).collect();
    assert_eq!([of_phase(0), vec![Step::Phase], of_phase(1)].concat(), all);
    let writing = Writing { program: &program, files: program.files() };
    let offsets = |writer| -> Vec<u64> {
        let place = |step| match step {
            Step::Access(IoRequest { kind: RequestKind::Write(_), offset, .. }) => offset.0 / (16 * KIB),
            other => panic!("{other:?}"),
        };
        writing.steps(writer).map(place).collect()
    };
    let mut written: Vec<u64> = (0..writing.processes()).flat_map(offsets).collect();
    written.sort_unstable();
    written.dedup();
    assert_eq!(written, (0..32).collect::<Vec<u64>>());
}

#[test]
fn machines_are_asked_for_by_name() {
    assert_eq!(servers(&lab()).unwrap(), "2xpaper-hdd,1xpaper-ssd:512KiB");
    assert_eq!(link(&lab()).unwrap(), Some("gigabit"));
    let device = lookup_device("nvme").unwrap().dilated(2.0);
    let unknown = Lab::new(&[Machine { class: ServerClass::Ssd, device, link: None, capacity: None }], REGION);
    assert_eq!(servers(&unknown).unwrap_err().to_string(), "the device of server ssd0 has no name to be emulated by");
}

/// Programs that take all of a file and a part of it, as it lies.
#[test]
fn replicas_are_made_are_kept_in_step_and_slower_servers_are_told_as_they_are() {
    let _alone = LABORATORY.lock().unwrap_or_else(PoisonError::into_inner);
    let lab = EmulatedLab::build_with((&command(), &Voice::silent()), &lab(), FILE, (Ranks::Forked, 2.0)).unwrap();
    let slow = |url: &ServerUrl| EmulatedUrl::of(url).unwrap().unwrap().time_scale == 2.0;
    assert!(lab.lab().cluster.servers.iter().all(|server| slow(&server.url)));
    let own = |direction: Direction, requests: u64| {
        let step = move |process, number| {
            let offset = FileOffset(number * 16 * KIB);
            Step::Access(IoRequest { file: ProgramFile(process), kind: direction.into(), offset, bytes: 16 * KIB })
        };
        Generated::file_per_process(FILE.0 / 2, (2, 1), move |process| (0..requests).map(move |at| step(process, at)))
    };
    let whole = own(Direction::Read, 16);
    let prepared = lab.prepare(&whole).unwrap();
    let layout = |servers: &[u16]| over(servers, 4096).layout_of(RegionIndex(0)).clone();
    let placements = [over(&[0], 4096), over(&[1], 4096)];
    lab.place_with(&prepared, &placements, &[vec![layout(&[1, 2])], vec![]]).unwrap();
    let infos = |path: &Path| {
        let file = lab.store.managed(path, false).unwrap().striped.id();
        let regions = lab.store.regions(file).unwrap();
        regions.iter().map(|region| region.replicas.iter().filter(|replica| replica.fresh).count()).collect::<Vec<_>>()
    };
    let paths = prepared.managed();
    let kept = |expected: usize| assert_eq!((infos(&paths[0]), infos(&paths[1])), (vec![expected; 4], vec![0; 4]));
    kept(1);
    assert_eq!(lab.run_placed(&prepared, &own(Direction::Read, 3)).unwrap().bytes, 2 * 3 * 16 * KIB);
    let written = lab.write_placed(&prepared, &own(Direction::Write, 16)).unwrap();
    assert!(written.run.bytes == FILE.0 && written.run.seconds > 0.0 && written.sync_s > 0.0, "{written:?}");
    kept(1);
    assert_eq!(lab.run_placed(&prepared, &whole).unwrap().bytes, FILE.0);
    lab.clear(&prepared).unwrap();
    lab.place_with(&prepared, &placements, &[vec![], vec![]]).unwrap();
    assert_eq!(lab.write_placed(&prepared, &own(Direction::Write, 1)).unwrap().sync_s, 0.0);
    lab.clear(&prepared).unwrap();
}
