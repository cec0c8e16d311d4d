//! Plan files: what is written is read, everything else is refused by name; finding the plan for a file.

use crate::testbed::{self, KIB, MIB};
use std::path::Path;
use stripewise_layout::{ByteCount, Cluster, Direction, Layout, Order, RegionIndex, ServerClass, ServerId};
use stripewise_planner::{
    InputPaths, NameMatch, Plan, PlanRequest, PlannedProgram, PolicyName, Replica, RequestError, Sources, nearest, plan,
};
use stripewise_trace::{ClassIndex, FileAccess};

fn cluster() -> Cluster {
    testbed::cluster(4, 2, MIB, Some(2 * MIB))
}

fn access(path: &str) -> FileAccess {
    let class = testbed::class(Direction::Read, 64 * KIB, Order::Random);
    testbed::file(path, 5 * MIB + 1, MIB, &[class], &[&[3], &[0], &[7], &[1]])
}

fn made(policy: PolicyName, paths: &[&str]) -> Plan {
    let cluster = cluster();
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let files: Vec<FileAccess> = paths.iter().map(|path| access(path)).collect();
    let request = PlanRequest {
        sources: Sources {
            cluster_sha256: Sources::hash(cluster.to_toml().as_bytes()),
            profile_sha256: Sources::hash(profile.to_json().as_bytes()),
            trace_sha256: Sources::hash_reader(&mut &b"abc"[..]).unwrap(),
            inputs: Some(InputPaths {
                profile: "/runs/profile.json".to_owned(),
                traces: vec!["/runs/a.trace".to_owned()],
                window_s: 600.0,
            }),
        },
        ..testbed::request(&cluster, &profile, &files)
    };
    plan(policy, &request).unwrap()
}

#[test]
fn what_is_saved_is_what_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    for policy in PolicyName::ALL {
        let path = directory.path().join(format!("{policy}.json"));
        let plan = made(policy, &["/data/a", "/data/b"]);
        plan.save(&path).unwrap();
        let loaded = Plan::load(&path).unwrap();
        assert_eq!(loaded, plan);
        loaded.check(&cluster(), &path).unwrap();
        assert_eq!(policy.name().parse(), Ok(policy));
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), PolicyName::ALL.len(), "no temporary file stays");
    let abc = made(PolicyName::Def, &["/data/a"]).made_from.trace_sha256;
    assert_eq!(abc, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "the hash is SHA-256");
}

#[test]
fn faults_in_the_file_are_named_with_their_remedy() {
    let good = made(PolicyName::H2dp, &["/data/a"]).to_json();
    for (from, to, expected) in [
        ("\"version\": 2", "\"version\": 3, \"colour\": 3", "plan version 3 is not supported"),
        ("\"version\": 2", "\"version\": 0", "plan version 0 is not supported; this stripewise reads versions 1 to 2"),
        ("\"runs\": [", "\"runs\": [{\"regions\": 7, \"layout\": 9},", "file /data/a, window 0: layout 9 is named"),
        ("\"emulated\"", "\"emulatde\"", "unknown field `emulatde`"),
        ("\"policy\": \"h2dp\"", "\"policy\": \"h3dp\"", "unknown variant `h3dp`"),
        ("\"beyond\": ", "\"beyond\": 9", "file /data/a, window 0: layout 9"),
        ("\"start_s\": 0.0", "\"start_s\": 601.0", "file /data/a: window 0 is not in order of time"),
        (
            "\"moves\": []",
            "\"moves\": [{\"region\": 6, \"kind\": \"incoming\", \"bytes\": 1}]",
            "region 6 moves, but only 6",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        let error = Plan::parse(&good.replacen(from, to, 1), Path::new("p.json")).unwrap_err().to_string();
        let remedy = error.contains("p.json") && error.contains("stripewise plan");
        assert!(error.contains(expected) && remedy, "{expected}: {error}");
    }
    let error = Plan::load(Path::new("/nowhere/p.json")).unwrap_err().to_string();
    assert!(error.contains("/nowhere/p.json") && error.contains("stripewise plan"), "{error}");
}

#[test]
fn a_plan_of_version_1_is_still_read() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/plan-version-1.json"));
    let old = Plan::load(path).unwrap();
    assert_eq!(old.version, stripewise_planner::PLAN_VERSION);
    assert_eq!(old.policy, PolicyName::H2dp);
    assert!(old.files[0].windows.iter().all(|window| window.replicas.is_empty()));
    old.check(&cluster(), path).unwrap();
    // It is the plan that this version makes of the same input, written in the old form.
    let new = made(PolicyName::H2dp, &["/data/a"]);
    assert_eq!(old.files, new.files);
    assert_eq!(Plan::parse(&old.to_json(), path).unwrap(), old);
}

#[test]
fn replicas_that_cannot_be_are_named() {
    let mut plan = made(PolicyName::H2dp, &["/data/a"]);
    let replica = |first: u32, regions: u32, server: u16| Replica {
        first: RegionIndex(first),
        regions,
        layout: Layout::new([(ServerId(server), 4096)]).unwrap(),
    };
    let sound = vec![replica(0, 6, 0), replica(1, 1, 5), replica(1, 2, 4)];
    plan.files[0].windows[0].replicas = sound.clone();
    assert_eq!(Plan::parse(&plan.to_json(), Path::new("p.json")).unwrap(), plan);
    for (wrong, expected) in [
        (replica(3, 4, 0), "a replica of regions 3 to 7, but 6 are planned"),
        (replica(3, 0, 0), "a replica of regions 3 to 3, but 6 are planned"),
        (replica(3, 1, 6), "a replica names server 6, but the cluster has 6"),
        (replica(0, 1, 0), "replicas are not in ascending order"),
    ] {
        plan.files[0].windows[0].replicas = sound.iter().cloned().chain([wrong]).collect();
        let error = Plan::parse(&plan.to_json(), Path::new("p.json")).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("file /data/a, window 0"), "{error}");
    }
}

#[test]
fn a_file_has_regions_of_one_size_which_need_not_be_the_clusters() {
    let mut plan = made(PolicyName::H2dp, &["/data/a"]);
    let mut other = cluster();
    other.region_size = ByteCount(2 * MIB);
    plan.check(&other, Path::new("p.json")).unwrap();
    let mut later = plan.files[0].windows.last().unwrap().clone();
    (later.start_s, later.end_s, later.placement.region_size) = (later.end_s, later.end_s, ByteCount(2 * MIB));
    later.moves.clear();
    plan.files[0].windows.push(later);
    let error = Plan::parse(&plan.to_json(), Path::new("p.json")).unwrap_err().to_string();
    assert!(error.contains("regions of 2MiB in window") && error.contains("and of 1MiB in window 0"), "{error}");
}

#[test]
fn a_plan_for_other_servers_is_refused_naming_the_difference() {
    let plan = made(PolicyName::H2dp, &["/data/a"]);
    type Change<'a> = (&'a dyn Fn(&mut Cluster), &'a str);
    let changes: [Change<'_>; 5] = [
        (&|c| c.id = "beef".to_owned(), "made for cluster `testbed`, but this is cluster `beef`"),
        (&|c| c.servers[4].name = "ssd9".to_owned(), "server 4 is `ssd0` in the plan and `ssd9` in the cluster"),
        (&|c| c.servers[4].class = ServerClass::Hdd, "server `ssd0` is ssd in the plan and hdd in the cluster"),
        (&|c| drop(c.servers.pop()), "the plan uses server `ssd1`, which is not in the cluster"),
        (&|c| c.servers.push(c.servers[0].clone()), "the plan does not know server `hdd0`"),
    ];
    for (change, expected) in changes {
        let mut changed = cluster();
        change(&mut changed);
        let error = plan.check(&changed, Path::new("p.json")).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("p.json"), "{error}");
    }
}

#[test]
fn regions_never_accessed_and_past_the_end_have_layouts() {
    let plan = made(PolicyName::H2dp, &["/data/a"]);
    let placement = plan.files[0].initial();
    assert_eq!(placement.planned_regions(), 6);
    // Regions 1, 4 and 5 are never accessed: HServers only, as is what lies beyond, since region 5 is the last planned one.
    for region in [1, 4, 5, 6, 1000] {
        assert_eq!(placement.layout_of(RegionIndex(region)), placement.fallback_layout());
    }
    assert_ne!(placement.layout_of(RegionIndex(2)), placement.fallback_layout());
}

#[test]
fn a_file_is_found_by_name_then_application_then_processes() {
    let plan = made(PolicyName::H2dp, &["/data/out.0017.h5", "/data/mesh"]);
    let found = |path: &str, application: &str, processes| {
        let found = plan.lookup(path, application, processes).unwrap();
        (found.file.path.as_str().to_owned(), found.name, found.differences)
    };
    let exact = plan.lookup("/data/mesh", "app", 32).unwrap();
    assert!(exact.is_exact() && exact.name == NameMatch::Path && exact.file.path == "/data/mesh");
    assert_eq!(
        found("/data/out.3.h5", "app", 64),
        (
            "/data/out.0017.h5".to_owned(),
            NameMatch::Pattern,
            vec![
                "/data/out.3.h5 is planned as /data/out.0017.h5".to_owned(),
                "the plan was made for 32 processes, these are 64".to_owned(),
            ]
        )
    );
    assert_eq!(found("/other/mesh", "app", 32).1, NameMatch::Name);
    assert_eq!(found("/other/out.1.h5", "app", 32).1, NameMatch::NamePattern);
    let (_, name, differences) = found("/data/quite-different", "tool", 32);
    assert_eq!(name, NameMatch::None);
    assert_eq!(differences[1], "the plan was made for `app`, this is `tool`");

    // Among several plans the application counts before the ratio of process counts.
    let variant = |application: &str, processes| {
        let mut variant = plan.clone();
        variant.key.application = application.to_owned();
        variant.key.processes = processes;
        variant
    };
    let plans = [variant("tool", 16), variant("app", 4), variant("app", 32), variant("app", 1024)];
    let taken = |application: &str, processes| {
        let key = &nearest(&plans, "/data/mesh", application, processes).unwrap().plan.key;
        (key.application.clone(), key.processes)
    };
    assert_eq!(taken("tool", 1024), ("tool".to_owned(), 16));
    assert_eq!(taken("app", 8), ("app".to_owned(), 4));
    assert_eq!(taken("app", 16), ("app".to_owned(), 32));
    assert!(nearest(&[], "/data/mesh", "app", 32).is_none());
}

#[test]
fn a_plan_for_several_programs_is_found_for_each_of_them() {
    let alone = made(PolicyName::H2dp, &["/data/mesh"]);
    let mut plan = alone.clone();
    plan.key.with = vec![
        PlannedProgram { started_as: Some("shim".to_owned()), ..PlannedProgram::new("tool", 8) },
        PlannedProgram::new("tool", 2),
    ];
    for (application, processes) in [("app", 32), ("tool", 8), ("tool", 2)] {
        assert!(plan.lookup("/data/mesh", application, processes).unwrap().is_exact(), "{application} {processes}");
    }
    let differences = |application, processes| plan.lookup("/data/mesh", application, processes).unwrap().differences;
    assert_eq!(differences("tool", 32), ["the plan was made for 8 processes, these are 32"]);
    assert_eq!(
        differences("other", 3),
        ["the plan was made for `tool`, this is `other`", "the plan was made for 2 processes, these are 3"]
    );
    let plans = [alone, plan.clone()];
    assert_eq!(nearest(&plans, "/data/mesh", "tool", 8).unwrap().plan.key, plan.key);
    assert_eq!(nearest(&plans, "/data/mesh", "app", 32).unwrap().plan.key, plans[0].key);
    assert_eq!((plan.key.all_processes(), plan.key.names("tool"), plan.key.names("to")), (42, true, false));
    assert_eq!(["shim", "tool"].map(|command| plan.key.program_started_as(command)), [Some("tool"), None]);

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plan.json");
    plan.save(&path).unwrap();
    assert_eq!(Plan::load(&path).unwrap(), plan);
    // One program is written as before there were several.
    plans[0].save(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("\"with\"") && !text.contains("\"started_as\""));
}

#[test]
fn input_that_cannot_be_planned_is_refused_by_name() {
    let cluster = cluster();
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let refuse = |change: &dyn Fn(&mut Vec<FileAccess>), expected: &str| {
        let mut files = vec![access("/data/a"), access("/data/b")];
        change(&mut files);
        let error = plan(PolicyName::Def, &testbed::request(&cluster, &profile, &files)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refuse(&|f| f[1].region_size = ByteCount(64 * MIB), "/data/b: its accesses are counted in regions of 64MiB");
    refuse(&|f| f[1].path = "/data/a".to_owned(), "two files of the plan are named /data/a");
    refuse(&|f| f[1].classes[0].request_bytes = 2 * MIB, "/data/b: class 0 has requests of 2097152 bytes");
    refuse(&|f| f[1].windows[0].regions[0].counts[0].0 = ClassIndex(3), "/data/b: a region counts class 3");
    refuse(&|f| f[0].windows[0].start_s = 5.0, "window 0 starts at");
    refuse(&|f| f[0].windows[0].regions.swap(0, 1), "/data/a: regions of window 0 are not in ascending order");
    refuse(&|f| f[0].size_bytes = u64::MAX, "/data/a: 17592186044416 regions of 1MiB are more than the 16777216");
    refuse(&|f| f.iter_mut().for_each(|file| file.windows.clear()), "no accesses to plan for");
    let files = [access("/data/a")];
    let mut request = testbed::request(&cluster, &profile, &files);
    request.options.step = ByteCount(1000);
    assert_eq!(plan(PolicyName::Def, &request), Err(RequestError::Step { step: ByteCount(1000) }));
    let mut other = profile.clone();
    other.servers[0].name = "disk".to_owned();
    let error = plan(PolicyName::Def, &testbed::request(&cluster, &other, &files)).unwrap_err().to_string();
    assert!(error.contains("`disk` in the profile and `hdd0`") && error.contains("calibrate"), "{error}");
    assert!("h3dp".parse::<PolicyName>().unwrap_err().to_string().contains("use one of def, random, 1-dh, "));
}

#[test]
fn concurrency_and_room_follow_their_sources() {
    let mut cluster = cluster();
    let mut profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let mut files = [access("/data/a")];
    files[0].windows[0].regions[1].processes = 48;
    files[0].windows[0].regions[0].processes_per_node = 6;
    let p_and_c = |request: &PlanRequest<'_>| {
        let concurrency = request.concurrency();
        (concurrency.processes, concurrency.processes_per_node)
    };
    assert_eq!(p_and_c(&testbed::request(&cluster, &profile, &files)), (32, 1));
    assert_eq!(p_and_c(&PlanRequest { concurrency: None, ..testbed::request(&cluster, &profile, &files) }), (48, 6));
    profile.emulated = true;
    assert_eq!(p_and_c(&PlanRequest { concurrency: None, ..testbed::request(&cluster, &profile, &files) }), (48, 1));

    cluster.servers[5].capacity = None;
    cluster.servers[5].reserve = ByteCount(100);
    let free = [None, Some(7), None, None, Some(9), Some(1000)];
    let mut request = PlanRequest { free_bytes: &free, ..testbed::request(&cluster, &profile, &files) };
    let capacities =
        |request: &PlanRequest<'_>| (0..6).map(|server| request.capacity().bytes(server)).collect::<Vec<_>>();
    assert_eq!(capacities(&request), [None, Some(7), None, None, Some(9), Some(900)], "no more than is free");
    request.free_bytes = &[None, Some(7), None, None, Some(1 << 40), Some(1000)];
    assert_eq!(capacities(&request)[4], Some(2 * MIB), "no more than its capacity");
    request.options.ssd_room = Some(ByteCount(MIB));
    assert_eq!(capacities(&request)[4..], [Some(MIB), Some(MIB)]);
}
