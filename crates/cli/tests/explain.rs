//! `explain` and `calibrate --verify`: the plan's inputs are found again, and refused when they are others.

mod support;

use support::{Place, write_profile};

const HEADER: &str =
    "node,pid,mpi_rank,mpi_size,level,operation,call,communicator,path,renamed_to,offset,bytes,errno,start_ns,end_ns";

/// Four processes that read a file of 8 MiB in requests of 64 KiB, its first MiB most.
fn write_trace(place: &Place, name: &str, hot_reads: u64) {
    let mut text = format!("{HEADER}\n");
    let path = place.path("data");
    for process in 100..104 {
        let mut read = |number: u64, offset: u64| {
            let (start_ns, end_ns) = (number * 2_000_000, number * 2_000_000 + 1_000_000);
            let path = path.display();
            text += &format!("n0,{process},,,posix,read,pread,,{path},,{offset},65536,,{start_ns},{end_ns}\n");
        };
        (0..hot_reads).for_each(|number| read(number, number * 7 % 16 * 65536));
        (1..8).for_each(|region| read(hot_reads + region, region << 20));
    }
    place.write(name, text.as_bytes());
}

#[test]
fn a_plan_is_explained_from_what_it_was_made_from() {
    let place = Place::with_cluster();
    write_profile(&place);
    write_trace(&place, "run.csv", 40);
    place.done(&["plan", "run.csv", "--policy", "h2dp", "--ssd-room", "1MiB", "--window", "50ms", "-o", "plan.json"]);

    let overview = place.done(&["explain", "plan.json"]);
    for part in
        ["policy     h2dp", "\nwindow     0, ", "\nwindow     1, ", "\none GiB    more SSD capacity", "/data:0 "]
    {
        assert!(overview.contains(part), "{part} is not in {overview}");
    }
    let overview = place.json(&["explain", "plan.json"]);
    let hot = overview["regions"].as_array().unwrap().iter().find(|region| region["region"] == 0).unwrap();
    assert_eq!((&overview["policy"], &hot["requests"]), (&"h2dp".into(), &160.into()));

    let region = place.done(&["explain", "plan.json", "data:0"]);
    for part in ["/data:0 (1 MiB), by h2dp ", "reads of 64 KiB at random\n", "by 4 processes", "(h2dp", "why        "] {
        assert!(region.contains(part), "{part} is not in {region}");
    }
    let region = place.json(&["explain", "plan.json", "data:0"]);
    let planned = region["alternatives"].as_array().unwrap().iter().find(|one| one["is_planned"] == true).unwrap();
    assert_eq!((&planned["layout"], &planned["time_s"]), (&region["layout"], &region["window"]["time_s"]));

    let refused = |words: &[&str]| {
        let said = place.say(words);
        assert_eq!((said.status, said.out.as_str()), (2, ""), "{words:?}: {}", said.err);
        said.err
    };
    let error = refused(&["explain", "plan.json", "data:8"]);
    assert!(error.ends_with("/data has regions 0 to 7, not 8\n"), "{error}");
    let error = refused(&["explain", "plan.json", "other:8"]);
    assert!(error.contains("`other` is not a file of the plan, which has HERE/data"), "{error}");

    std::fs::rename(place.path("run.csv"), place.path("moved.csv")).unwrap();
    let error = refused(&["explain", "plan.json"]);
    let expected = "there is no HERE/run.csv, which plan.json was made from; name where it is now with --trace\n";
    assert!(error.ends_with(expected), "{error}");
    let elsewhere = place.json(&["explain", "plan.json", "data:0", "--trace", "moved.csv"]);
    assert_eq!(elsewhere, region);
    write_trace(&place, "run.csv", 41);
    let error = refused(&["explain", "plan.json"]);
    assert!(error.contains("HERE/run.csv is not what plan.json was made from: its contents differ"), "{error}");
}

#[test]
fn an_older_plan_needs_the_names_of_its_inputs() {
    let place = Place::with_cluster();
    write_profile(&place);
    write_trace(&place, "run.csv", 40);
    place.done(&["plan", "run.csv", "-o", "plan.json"]);
    let mut plan: serde_json::Value = serde_json::from_slice(&place.read("plan.json")).unwrap();
    plan["made_from"].as_object_mut().unwrap().remove("inputs").unwrap();
    place.write("old.json", plan.to_string().as_bytes());
    let said = place.say(&["explain", "old.json"]);
    assert_eq!(said.err, "stripewise explain: old.json does not say where its trace is; name it with --trace\n");
    let said = place.say(&["explain", "old.json", "--trace", "run.csv"]);
    assert_eq!(said.err, "stripewise explain: old.json does not say where its profile is; name it with --profile\n");
    let words = ["explain", "old.json", "--trace", "run.csv", "--profile", "profile.json"];
    assert_eq!(place.done(&words).replace("old.json", "plan.json"), place.done(&["explain", "plan.json"]));
}

#[test]
fn a_plan_is_verified_on_its_servers_and_nothing_is_left() {
    let place = Place::with_cluster();
    write_profile(&place);
    write_trace(&place, "run.csv", 40);
    place.done(&["plan", "run.csv", "--policy", "h2dp", "--ssd-room", "1MiB", "-o", "plan.json"]);
    let servers = ["h0", "h1", "s0", "s1"];
    let entries = |name: &&str| std::fs::read_dir(place.path(name)).unwrap().count();
    let before: Vec<usize> = servers.iter().map(entries).collect();
    let words = ["calibrate", "--verify", "plan.json", "--quick", "--seconds", "1", "--file-size", "16MiB"];
    let said = place.say(&[&words[..], &["--json"]].concat());
    let verification: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{}", said.err));
    let [reads] = &verification["directions"].as_array().unwrap()[..] else { panic!("{verification}") };
    assert_eq!((&verification["processes"], &reads["direction"]), (&4.into(), &"read".into()));
    let of = |field: &str| reads[field].as_f64().unwrap();
    assert!(of("requests") > 0.0 && of("measured_mb_per_s") > 0.0, "{reads}");
    assert!((of("ratio") * of("predicted_mb_per_s") / of("measured_mb_per_s") - 1.0).abs() < 1e-9, "{reads}");
    let is_met = (1.0 / 1.3..=1.3).contains(&of("ratio"));
    assert_eq!((&verification["is_met"], said.status), (&is_met.into(), i32::from(!is_met)));
    assert_eq!(said.err.contains("the servers do not do what the plan predicts"), !is_met, "{}", said.err);
    let named: Vec<&str> =
        reads["servers"].as_array().unwrap().iter().map(|server| server["name"].as_str().unwrap()).collect();
    assert_eq!(named, servers);
    assert_eq!(servers.iter().map(entries).collect::<Vec<_>>(), before);
    let said = place.say(&words);
    assert!(said.out.starts_with("plan.json, window 0 s to 10 min: 4 processes\n"), "{}", said.out);

    std::fs::rename(place.path("run.csv"), place.path("moved.csv")).unwrap();
    let said = place.say(&words);
    assert_eq!(said.status, 2);
    assert!(said.err.contains("plan.json was made from; name where it is now with --trace"), "{}", said.err);
}
