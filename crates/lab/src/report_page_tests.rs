//! The page as a whole, made from a generated workload with real plans, and looked at by a browser.

mod browser;
mod structure;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::OnceLock;
use stripewise::laboratory::{Lab, placements};
use stripewise::workload::Source;
use stripewise_device::{lookup_device, lookup_link};
use stripewise_layout::{ByteCount, Cluster, Direction, ServerClass};
use stripewise_model::{Line, NetworkProfile, NetworkSource, PROFILE_VERSION, Profile, ServerProfile};
use stripewise_planner::{Gain, PlanKey, PlanOptions, PlanRequest, PolicyName, Sources, compare};
use stripewise_report::results::Results;
use stripewise_report::results::samples::run;
use stripewise_report::simulation::{SIMULATION_VERSION, SimulatedRun, SimulatedServer, Simulation};
use stripewise_report::{Figure, Finding, Headline, Material, RunFacts, Severity, Table, TraceSummary, render};
use stripewise_sim::{Borders, Migration, SimOptions};
use stripewise_trace::{CountOptions, Pattern, RecordedOptions, Trace, Workload, count};

const REGION: u64 = 4 << 20;
const REGIONS: u64 = 160;

fn cluster() -> Cluster {
    let mut text = "version = 1\nid = \"c0ffee\"\nstate = \"s\"\nregion = \"4MiB\"\n".to_owned();
    for (class, count, device) in [("hdd", 12, "hdd-7200"), ("ssd", 4, "sata-ssd-2012")] {
        for number in 0..count {
            text += &format!(
                "[[server]]\nname = \"{class}{number}\"\nclass = \"{class}\"\nurl = \"emulated:///e/{class}{number}?device={device}&link=gigabit\"\n"
            );
            text += if class == "ssd" { "capacity = \"43MiB\"\n" } else { "" };
        }
    }
    Cluster::parse(&text, Path::new("/x/cluster.toml")).unwrap()
}

fn profile(cluster: &Cluster, rng: &mut SmallRng) -> Profile {
    let mut line = |alpha_ms: f64, rate: f64| Line {
        alpha_s: alpha_ms * 1e-3 * rng.random_range(0.97..1.03),
        beta_s_per_byte: 1e-6 / rate,
        r2: rng.random_range(0.985..0.9999),
        spread: rng.random_range(0.01..0.05),
        samples: 44,
    };
    let servers = cluster.servers.iter().map(|server| match server.class {
        ServerClass::Hdd => ServerProfile {
            name: server.name.clone(),
            class: server.class,
            read_sequential: line(0.1, 125.0),
            read_random: line(12.66, 125.0),
            write_sequential: line(0.1, 125.0),
            write_random: line(13.66, 125.0),
            buffered_write: None,
            synchronous_write: None,
            flush_wait: None,
        },
        ServerClass::Ssd => ServerProfile {
            name: server.name.clone(),
            class: server.class,
            read_sequential: line(0.08, 550.0),
            read_random: line(0.08, 550.0),
            write_sequential: line(0.085, 520.0),
            write_random: line(0.085, 520.0),
            buffered_write: None,
            synchronous_write: None,
            flush_wait: None,
        },
    });
    Profile {
        version: PROFILE_VERSION,
        cluster: cluster.id.clone(),
        emulated: true,
        measured_at: "2024-02-29T12:00:00Z".into(),
        servers: servers.collect(),
        network: NetworkProfile { e_s: 3e-4, t_s_per_byte: 1.0 / 120e6, source: NetworkSource::Measured },
        caveats: Vec::new(),
    }
}

const PATH: &str = "/scratch/run/<shared>.dat";

/// A trace of requests of four sizes over regions of Zipf's popularity, writes and reads in turns.
fn trace() -> Trace {
    let mut csv =
        "node,pid,mpi_rank,mpi_size,level,operation,call,communicator,path,renamed_to,offset,bytes,errno,start_ns,end_ns\n"
            .to_owned();
    let mut start_ns = 0u64;
    for size in [64u64 << 10, 256 << 10, 1 << 20, 4 << 20] {
        for (direction, operation, call) in [(Direction::Write, "write", "pwrite"), (Direction::Read, "read", "pread")]
        {
            let workload = Workload {
                pattern: Pattern::Zipf { exponent: 0.8, region_size: ByteCount(REGION) },
                file_size: ByteCount(REGION * REGIONS),
                request_size: ByteCount(size),
                direction,
                ranks: 32,
                requests_per_rank: 90,
                seed: 7,
            };
            let generator = workload.generator().unwrap();
            for rank in 0..32 {
                for (number, request) in generator.requests(rank).enumerate() {
                    let begin = start_ns + number as u64 * 104_000_000 + u64::from(rank) * 1_000_000;
                    let (pid, offset, end) = (1000 + rank, request.offset, begin + 40_000_000);
                    csv += &format!(
                        "node7,{pid},{rank},32,posix,{operation},{call},,{PATH},,{offset},{size},0,{begin},{end}\n"
                    );
                }
            }
            start_ns += 10_500_000_000;
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.csv");
    std::fs::write(&path, csv).unwrap();
    Trace::open(&path).unwrap()
}

fn results(rng: &mut SmallRng, profile: &Profile) -> Results {
    let mut runs = Vec::new();
    for (op, size, rates) in [
        (Direction::Read, 64 << 10, [40.0, 35.0, 96.0, 221.0, 311.0]),
        (Direction::Read, 256 << 10, [107.0, 135.0, 188.0, 402.0, 702.0]),
        (Direction::Read, 1 << 20, [188.0, 487.0, 430.0, 610.0, 1003.0]),
        (Direction::Read, 4 << 20, [568.0, 763.0, 690.0, 941.0, 1220.0]),
        (Direction::Write, 64 << 10, [38.0, 33.0, 90.0, 204.0, 290.0]),
        (Direction::Write, 256 << 10, [101.0, 128.0, 170.0, 377.0, 655.0]),
        (Direction::Write, 1 << 20, [179.0, 455.0, 402.0, 583.0, 942.0]),
        (Direction::Write, 4 << 20, [541.0, 733.0, 655.0, 902.0, 1170.0]),
    ] {
        for (policy, rate) in ["def", "padp", "psa", "h2dp", "opt"].into_iter().zip(rates) {
            let mut one = run(policy, op, size, rate);
            one.predicted_mb_s = Some(rate * rng.random_range(0.85..1.15));
            one.host_bound = policy == "h2dp" && size == 4 << 20 && op == Direction::Write;
            runs.push(one);
        }
    }
    let profile = serde_json::to_value(profile).unwrap();
    let live = Some(stripewise_report::results::samples::live());
    Results { version: 2, emulated: true, runs, profile, cluster: serde_json::Value::Null, live }
}

/// Two phases of a hot set that moves, under plans that follow it and plans that do not.
fn simulation() -> Simulation {
    let (hdd, ssd) = (lookup_device("hdd-7200").unwrap(), lookup_device("sata-ssd-2012").unwrap());
    let link = lookup_link("gigabit").unwrap();
    let lab = Lab::hybrid((12, hdd), (4, ssd), link, Some(ByteCount(8 << 20)), ByteCount(1 << 20));
    let workload = "ior:pattern=zipf,region=1MiB,size=128MiB,transfer=64KiB,processes=16,op=mixed,phases=3";
    let source = Source::open(workload, None).unwrap();
    let program = source.program(&RecordedOptions::default(), &[]).unwrap();
    let files = lab.count(program.as_ref());
    let migration = Migration::Copied { bandwidth_bytes_per_s: Some(20e6), chunk: ByteCount(1 << 20) };
    let options = SimOptions { borders: Borders::Phase, migration, slice_s: 1e-4, ..SimOptions::default() };
    let run = |policy: PolicyName| {
        let plan = lab.plan_counted(policy, program.as_ref(), &files, 1).unwrap();
        let placements = placements(&plan, program.as_ref());
        let outcome = lab.simulate_with(&placements, program.as_ref(), options.clone()).unwrap();
        SimulatedRun::new(policy.to_string(), None, Some(plan.predicted.total), outcome)
    };
    let servers = lab.cluster.servers.iter().map(|server| SimulatedServer {
        name: server.name.clone(),
        class: server.class,
        device: if server.class == ServerClass::Hdd { "hdd-7200" } else { "sata-ssd-2012" }.into(),
        model: "mean".into(),
        link: Some("gigabit".into()),
    });
    Simulation {
        version: SIMULATION_VERSION,
        simulated: true,
        workload: workload.into(),
        processes: program.processes(),
        nodes: program.nodes(),
        servers: servers.collect(),
        options: serde_json::to_value(&options).unwrap(),
        runs: [PolicyName::Def, PolicyName::H2dp].map(run).into(),
    }
}

/// Everything that a report can show. Planning it takes a while in a debug build, so the tests share it.
fn everything() -> Material {
    static EVERYTHING: OnceLock<Material> = OnceLock::new();
    EVERYTHING.get_or_init(make_everything).clone()
}

fn make_everything() -> Material {
    let mut rng = SmallRng::seed_from_u64(7);
    let cluster = cluster();
    let profile = profile(&cluster, &mut rng);
    let trace = trace();
    let options = CountOptions { region_size: ByteCount(REGION), ..CountOptions::default() };
    let files = count(&trace, &options).unwrap();
    let mut summary = TraceSummary::of(&trace, ByteCount(REGION)).unwrap();
    // CSV has no manifest.
    summary.command = "mpiexec -n 32 ./app --file <shared>.dat".into();
    summary.warnings = vec!["rank 7: process 1234 did not finish its trace".into()];
    let request = PlanRequest {
        cluster: &cluster,
        profile: &profile,
        files: &files,
        key: PlanKey::new("app", 32),
        sources: Sources { trace_sha256: "ab".repeat(32), ..Sources::default() },
        options: PlanOptions::default(),
        free_bytes: &[],
        promises_whole_regions: false,
        concurrency: None,
    };
    let plans = compare(&request, &PolicyName::ALL).unwrap().plans;
    let results = results(&mut rng, &profile);
    let simulation = Some(simulation());
    let findings = findings();
    Material {
        trace: Some(summary),
        plans,
        profile: Some(profile),
        results: Some(results),
        simulation,
        findings,
        ..Material::default()
    }
}

/// As if the traced run had had requests of 1 MiB only, which is one of the measured sizes.
fn with_requests_of_a_measured_size(material: &mut Material) {
    for plan in &mut material.plans {
        let total = &mut plan.predicted.total;
        total.bytes = total.requests << 20;
    }
}

/// As before anything was run on a placement.
fn everything_unmeasured() -> Material {
    Material { results: None, ..everything() }
}

/// As `advise` has it of a log with counters alone.
fn advised() -> Material {
    let sentence = |text: &str| text.to_owned();
    let long = "/scratch2/scratchdirs/someone/a-project-with-a-long-name/run.4478544/checkpoints/particles.hdf5";
    let headline = Headline {
        apply: true,
        decision: "Lay the files out again".into(),
        reason: "Lay out 1 file again on Lustre: I/O is predicted to take 6.94 min ±28 % instead of 31.9 min ±28 %."
            .into(),
        measured: vec![
            sentence(
                "No process spends more than 73.1 % of the run (117 s) in reads and writes: no layout can save more.",
            ),
            sentence("2 TiB of the 2 TiB are written, in requests of 127 MiB on average, 100 % of them forward."),
        ],
        predicted: vec![sentence("1.8 TiB of 2 TiB go to the 4 fast targets.")],
        gain: Some(Gain { low: 1.8, expected: 3.6, high: 5.4 }),
        over: "the files as they lie".into(),
        predictions: vec![
            Figure::new("I/O as the files lie", "31.9 min".into(), "±28 %".into()),
            Figure::new("I/O with the layouts", "6.94 min".into(), "±28 %".into()),
        ],
        commands: vec![format!("layout {long} -E 824633720832 -S 67108864 -o 10 -E 1099511627776 -S 67108864 -o 11")],
    };
    let files = Table {
        caption: "Files with the most bytes, of 3".into(),
        head: ["file", "read", "written", "requests", "processes"].map(str::to_owned).to_vec(),
        rows: vec![[long, "0 B", "2 TiB", "16,384", "2,048"].map(str::to_owned).to_vec()],
    };
    let run = RunFacts {
        command: format!("./vpicio_uni {long}"),
        figures: vec![Figure::new("Written", "2 TiB".into(), "16,384 requests".into())],
        run_s: 117.0,
        timeline: (0..32).map(|slice| [if slice < 4 { 1e9 } else { 0.0 }, f64::from(slice) * 4e9]).collect(),
        tables: vec![files],
        inputs: vec![("example.darshan".into(), "2,048 processes in 117 s".into())],
        missing: vec!["1 file has no name in the log and stands by its number".into()],
    };
    Material { headline: Some(headline), findings: findings(), run: Some(run), ..Material::default() }
}

fn findings() -> Vec<Finding> {
    let finding = |severity, title: &str, figure: &str, remedy: &str| Finding {
        severity,
        title: title.into(),
        figure: figure.into(),
        remedy: remedy.into(),
    };
    vec![
        finding(
            Severity::Medium,
            "Small writes",
            "91 % of 23,040 writes are below 64 KiB",
            "Let MPI-IO collect them: <romio_cb_write>.",
        ),
        finding(
            Severity::High,
            "Two ranks move most bytes",
            "2 of 32 ranks move 80 % of the bytes",
            "Let every rank write its own part.",
        ),
    ]
}

const SECTIONS: [&str; 13] = [
    "verdict",
    "findings",
    "run",
    "bandwidth",
    "live",
    "accesses",
    "profile",
    "simulated",
    "plans",
    "regions",
    "load",
    "optimum",
    "sources",
];

/// Addresses that a browser would fetch; the namespace of SVG is a name and not one.
fn external(html: &str) -> Vec<&str> {
    html.split(['"', '\'', '(', ' '])
        .filter(|word| word.contains("://") || word.starts_with("//"))
        .filter(|word| *word != "http://www.w3.org/2000/svg")
        .collect()
}

#[test]
fn a_full_report_has_all_sections_and_loads_nothing() {
    let html = render(&everything()).unwrap();
    for section in SECTIONS {
        assert!(html.contains(&format!("<section id=\"{section}\" ")), "{section}");
    }
    assert_eq!(external(&html), [] as [&str; 0]);
    assert!(!html.contains("<script") && !html.contains("<shared>"), "names must be escaped");
    assert!(html.contains("EMULATED SERVERS"));
    assert!(!html.contains("NaN") && !html.contains(">inf"), "a figure is not a number");
}

#[test]
fn advice_has_what_to_do_first_then_what_was_measured_then_what_is_predicted() {
    let html = render(&advised()).unwrap();
    let verdict = &html[html.find("<section id=\"verdict\"").unwrap()..];
    let verdict = &verdict[..verdict.find("</section>").unwrap()];
    let parts = [
        ">Lay the files out again</h2>",
        "<p class=\"next\">Next</p>",
        "of-measured",
        "<li>No process spends more than 73.1 %",
        "of-predicted",
        "Gain over the files as they lie",
        "<li>1.8 TiB of 2 TiB go",
    ];
    let places: Vec<_> =
        parts.iter().map(|part| verdict.find(part).unwrap_or_else(|| panic!("no {part}: {verdict}"))).collect();
    assert!(places.is_sorted(), "{places:?}: {verdict}");
    assert!(html.contains("aria-label=\"Bytes read and written over the time of the run\""));
    assert_eq!(external(&html), [] as [&str; 0]);
}

#[test]
fn a_report_of_little_says_little() {
    let html = render(&Material { profile: everything().profile, ..Material::default() }).unwrap();
    assert!(html.contains("<section id=\"profile\" "));
    for absent in [
        "verdict",
        "findings",
        "run",
        "bandwidth",
        "live",
        "optimum",
        "simulated",
        "accesses",
        "regions",
        "load",
        "plans",
    ] {
        assert!(
            !html.contains(&format!("<section id=\"{absent}\"")) && !html.contains(&format!("#{absent}\"")),
            "{absent}"
        );
    }
}

/// Blocks that are written and read back at once, and the same in a segment that an MPI library shares.
#[test]
fn patterns_stand_for_each_direction_and_what_mpi_libraries_share_is_no_file() {
    let mut csv =
        "node,pid,mpi_rank,mpi_size,level,operation,call,communicator,path,renamed_to,offset,bytes,errno,start_ns,end_ns\n"
            .to_owned();
    for (number, path) in
        (0..40u64).flat_map(|number| ["/scratch/a", "/tmp/ompi.n.0/pid.7/sm_segment.n.0"].map(|path| (number, path)))
    {
        for (operation, call, after) in [("write", "pwrite", 0), ("read", "pread", 1000)] {
            let (offset, begin) = (number * 65536, number * 10_000 + after);
            csv += &format!("n,7,0,1,posix,{operation},{call},,{path},,{offset},4096,0,{begin},{}\n", begin + 500);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.csv");
    std::fs::write(&path, csv).unwrap();
    let summary = TraceSummary::of(&Trace::open(&path).unwrap(), ByteCount(REGION)).unwrap();
    let html = render(&Material { trace: Some(summary), ..Material::default() }).unwrap();
    for direction in ["reads", "writes"] {
        assert!(html.contains(&format!("{direction}: strided by 65536 B (1 process)")), "{direction}");
    }
    assert!(!html.contains("sm_segment") && html.contains("<h2 id=\"verdict-title\">No plan yet</h2>"));
    assert!(html.contains(">320 KiB<"), "the segment's bytes do not count");
}

#[test]
fn plans_without_runs_show_predictions_as_such() {
    let mut material = everything();
    material.results = None;
    material.plans.retain(|plan| plan.policy == PolicyName::H2dp);
    let html = render(&material).unwrap();
    assert!(html.contains("Nothing was measured yet") && html.contains("foretold"));
    assert!(html.contains(">def</text>"), "the default stands beside it");
}

#[test]
fn the_bound_stands_where_runs_can_be_compared_with_it() {
    let mut material = everything();
    let bound_s = material.plans.iter().find_map(|plan| plan.optimum.as_ref()).unwrap().bound_s;
    let label = |mb_s: f64| format!(">bound of the layout set {}", stripewise_layout::figures::number(mb_s.round()));
    let total = material.plans[0].predicted.total;
    let html = render(&material).unwrap();
    assert!(!html.contains(">bound of the layout set "), "requests of four sizes are none of the measured ones");
    assert!(html.contains("Device, ") || html.contains("Device of "), "its prices stand all the same");
    with_requests_of_a_measured_size(&mut material);
    let html = render(&material).unwrap();
    assert!(html.contains(&label((total.requests << 20) as f64 / bound_s / 1e6)), "{bound_s}");
    assert!(html.contains("Reads and writes together, MB/s"));
    // As many requests of fewer processes are another run.
    material.plans.iter_mut().for_each(|plan| plan.key.processes = 4);
    assert!(!render(&material).unwrap().contains(">bound of the layout set "));
    material.results = None;
    assert!(render(&material).unwrap().contains(">bound of the layout set "), "beside predictions of the same run");
}

#[test]
fn a_simulation_alone_makes_a_report_that_says_so() {
    let html = render(&Material { simulation: everything().simulation, ..Material::default() }).unwrap();
    assert!(
        html.contains("Simulated runs <span class=\"tag of-simulated\">simulated</span>") && !html.contains("EMULATED")
    );
    assert!(html.contains("<h1>ior:pattern=zipf"));
    for text in
        ["12 hdd-7200 (mean) behind gigabit", "Simulated bandwidth of h2dp over time", "busy-6", "class=\"phase\""]
    {
        assert!(html.contains(text), "{text}");
    }
    assert!(!html.contains("NaN") && !html.contains(">inf"), "a figure is not a number");
}

#[test]
fn the_live_part_shows_what_moves_bring_and_draws_no_conclusion_from_a_paced_run() {
    let mut material = everything();
    let html = render(&material).unwrap();
    for text in [
        "<br>Reads of 64 KiB by 32 ranks on a file of 128 MiB</p>",
        "<td>40</td><td>35.6</td><td>+78 %</td>",
        "<td>32 MiB</td><td>25 %</td><td>0</td><td>yes</td>",
        "<tr><td>4.00</td><td>20</td><td>30</td><td>16.8</td></tr>",
        "the hot set changes, 4 s</text>",
    ] {
        assert!(html.contains(text), "{text}");
    }
    assert!(!html.contains("host-bound</text>"));
    let results = material.results.as_mut().unwrap();
    results.live.as_mut().unwrap().runs[1].host_bound = true;
    let html = render(&material).unwrap();
    assert!(html.contains("<th scope=\"row\">regions move</th><td>host</td><td>host</td><td>\u{2013}</td>"));
    assert!(
        html.contains("host-bound</text>")
            && html.contains("so there is no result to show.")
            && !html.contains("+78 %")
    );
    material.results.as_mut().unwrap().live = None;
    assert!(!render(&material).unwrap().contains("id=\"live\""));
}
