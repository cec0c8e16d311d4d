//! `plan` from several traces, and from traces that are odd.

mod support;

use support::{Place, noise, preload, write_profile};

const COLUMNS: &str =
    "node,pid,mpi_rank,mpi_size,level,operation,call,communicator,path,renamed_to,offset,bytes,errno,start_ns,end_ns";

/// A trace of `ranks` processes that each read `requests` times 64 KiB of `path` in order, one request a millisecond.
fn write_trace(place: &Place, name: &str, path: &str, ranks: u32, requests: u64, start_ns: u64) {
    let mut text = format!("{COLUMNS}\n");
    for rank in 0..ranks {
        for number in 0..requests {
            let offset = (u64::from(rank) * requests + number) << 16;
            let start = start_ns + number * 1_000_000;
            let pid = 100 + rank;
            text += &format!(
                "n,{pid},{rank},{ranks},posix,read,pread,,{path},,{offset},65536,,{start},{}\n",
                start + 800_000
            );
        }
    }
    place.write(name, text.as_bytes());
}

#[test]
fn programs_that_run_together_are_planned_together() {
    let place = Place::with_cluster();
    write_profile(&place);
    write_trace(&place, "one.csv", "/data/shared", 4, 100, 1_700_000_000_000_000_000);
    write_trace(&place, "two.csv", "/data/shared", 8, 50, 1_800_000_000_000_000_000);
    write_trace(&place, "three.csv", "/data/own", 2, 200, 5);
    let plan = place.json(&["plan", "one.csv", "two.csv", "three.csv", "-o", "plan.json", "--json"])["plan"].clone();
    let with: Vec<u64> =
        plan["key"]["with"].as_array().unwrap().iter().map(|program| program["processes"].as_u64().unwrap()).collect();
    assert_eq!((plan["key"]["processes"].as_u64(), with), (Some(4), vec![8, 2]));
    assert_eq!(plan["concurrency"]["processes"], 14);
    let paths: Vec<&str> =
        plan["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/data/own", "/data/shared"]);
    // Three runs from years apart are one window: they are taken to begin together.
    assert!(plan["files"].as_array().unwrap().iter().all(|file| file["windows"].as_array().unwrap().len() == 1));
    let alone = |trace: &str| place.json(&["plan", trace, "--json"])["plan"].clone();
    assert_eq!(alone("one.csv")["key"].get("with"), None);
    let hashes = [&plan, &alone("one.csv"), &alone("two.csv")].map(|plan| plan["made_from"]["trace_sha256"].clone());
    assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2]);
    // In another order it is another plan: the first program gives its name.
    let swapped = place.json(&["plan", "two.csv", "one.csv", "three.csv", "--json"])["plan"].clone();
    assert_eq!(swapped["key"]["processes"], 8);
    assert_ne!(swapped["made_from"]["trace_sha256"], plan["made_from"]["trace_sha256"]);
    let text = place.done(&["plan", "one.csv", "two.csv"]);
    let both =
        "a program with 4 processes, and at the same time a program with 8 processes (costed with p = 12, c = 8)";
    assert!(text.contains(both), "{text}");
}

/// Traces have paths without links and `..`; `--file` had them as they were given, and named nothing.
#[test]
fn files_are_named_through_links_and_by_paths_that_climb() {
    let place = Place::with_cluster();
    write_profile(&place);
    std::fs::create_dir(place.path("scratch")).unwrap();
    std::os::unix::fs::symlink("scratch", place.path("link")).unwrap();
    let real = place.path("scratch").canonicalize().unwrap();
    let traced = |name: &str| real.join(name).to_str().unwrap().to_owned();
    write_trace(&place, "run.csv", &traced("out.1"), 1, 100, 5);
    write_trace(&place, "other.csv", &traced("log"), 1, 100, 5);
    for prefix in ["link/out", "scratch/../link/out", "h0/../scratch/o", "gone/../scratch/out.1"] {
        let plan = place.json(&["plan", "run.csv", "other.csv", "--file", prefix])["plan"].clone();
        let paths: Vec<&str> =
            plan["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["HERE/scratch/out.1"], "{prefix}");
        place.done(&["simulate", "run.csv", "--servers", "2xhdd-7200,1xnvme", "--file", prefix, "--policy", "def"]);
    }
    for command in [&["plan", "run.csv"][..], &["simulate", "run.csv", "--servers", "nvme"]] {
        let said = place.say(&[command, &["--file", "link/../out"]].concat());
        let expected = "--file link/../out (HERE/out) begins no traced path; `stripewise trace show` lists the paths";
        assert!(said.status == 2 && said.err.contains(expected), "{}", said.err);
    }
    let said = place.say(&["plan", "run.csv", "--file", "link/out", "--file", "gone"]);
    assert!(said.status == 0 && said.err.contains("--file gone (HERE/gone) begins no traced path"), "{}", said.err);
}

/// A program that only opens the file, for ten times as long, asks nothing of the servers. It changed p, and when in the run everything seemed to happen.
#[test]
fn an_idle_program_changes_nothing_in_a_plan() {
    let place = Place::with_cluster();
    write_profile(&place);
    write_trace(&place, "busy.csv", "/data/shared", 4, 100, 1_700_000_000_000_000_000);
    let mut idle = format!("{COLUMNS}\n");
    for (number, call) in ["open", "close"].into_iter().enumerate() {
        let start = 1_000_000_000 * number as u64;
        idle += &format!("n,7,0,1,posix,{call},{call},,/data/shared,,,0,,{start},{}\n", start + 1000);
    }
    place.write("idle.csv", idle.as_bytes());
    for policy in ["opt", "h2dp", "segment"] {
        let plan = |traces: &[&str]| {
            let arguments = [&["plan"], traces, &["--policy", policy, "--json"]].concat();
            let plan = place.json(&arguments)["plan"].clone();
            (plan["files"].clone(), plan["concurrency"].clone(), plan["predicted"].clone())
        };
        assert_eq!(plan(&["busy.csv", "idle.csv"]), plan(&["busy.csv"]), "{policy}");
    }
}

/// SSDs of 38 MiB in all under regions of 64 MiB: nothing fits, whatever the policy.
#[test]
fn regions_that_fit_on_no_ssd_are_named_and_smaller_ones_are_planned() {
    let place = Place::new();
    let mut words = vec!["init".to_owned(), "--region".into(), "64MiB".into()];
    for (name, class, capacity) in
        [("h0", "hdd", ""), ("h1", "hdd", ""), ("s0", "ssd", ":20MiB"), ("s1", "ssd", ":20MiB")]
    {
        std::fs::create_dir(place.path(name)).unwrap();
        words.extend(["--server".to_owned(), format!("{name}={class}:{name}{capacity}")]);
    }
    place.done(&words);
    write_profile(&place);
    let data = noise((8 << 20) + 5);
    place.write("data", &data);
    write_trace(&place, "run.csv", place.path("data").to_str().unwrap(), 4, 32, 0);
    let named = place.done(&["plan", "run.csv"]);
    assert!(named.contains("note       no region of 64 MiB "), "{named}");
    assert!(named.contains("plan with --region 4MiB"), "{named}");
    assert!(place.done(&["plan", "run.csv", "--policy", "all"]).contains("plan with --region 4MiB"));
    // A plan that uses them with regions that would fit on none says so, and not that they stay unused.
    for policy in ["padp", "def", "h2dp", "opt"] {
        let planned = place.json(&["plan", "run.csv", "--policy", policy, "-o", "parts.json"]);
        let parts: serde_json::Value = serde_json::from_slice(&place.read("parts.json")).unwrap();
        let used = |server: &serde_json::Value| server["class"] == "ssd" && server["used_bytes"].as_u64().unwrap() > 0;
        let is_used = parts["servers"].as_array().unwrap().iter().any(used);
        let said = planned.to_string();
        let (expected, other) = match is_used {
            true => ("hold parts of regions", "stay unused"),
            false => ("stay unused", "hold parts of regions"),
        };
        assert!(said.contains(expected) && !said.contains(other), "{policy}: {said}");
    }
    let refused = place.say(&["plan", "run.csv", "--region", "5000"]);
    assert!(refused.status == 2 && refused.err.contains("a region is a multiple of 4KiB"), "{}", refused.err);

    let planned = place.json(&["plan", "run.csv", "--region", "1MiB", "-o", "plan.json"]);
    assert!(!planned.to_string().contains("no region of"));
    place.done(&["explain", "plan.json"]);
    place.done(&["apply", "plan.json", "--force"]);
    let file = place.json(&["stat", "data"])["files"][0].clone();
    assert_eq!((&file["region_bytes"], &file["regions"]), (&(1 << 20).into(), &9.into()));
    let layouts = planned["plan"]["files"][0]["windows"][0]["placement"]["layouts"].as_array().unwrap();
    let is_on_ssd =
        |layout: &serde_json::Value| layout.as_array().unwrap().iter().any(|stripe| stripe[0].as_u64().unwrap() >= 2);
    let holds = |server: &serde_json::Value| server["name"].as_str().unwrap().starts_with('s');
    let on_ssd = file["servers"].as_array().unwrap().iter().any(holds);
    assert_eq!(on_ssd, layouts.iter().any(is_on_ssd));
    assert!(on_ssd, "a small hot file is worth its place on fast servers: {planned}");
    assert!(place.command(&["cat", "data"]).output().unwrap().stdout == data);
    // A plan with regions of another size goes on: it is applied, and followed by the programs that it is for.
    preload();
    let ran = place.command(&["run", "--", "cat", "data"]).output().unwrap();
    assert!(ran.stdout == data, "{}", String::from_utf8_lossy(&ran.stderr));

    // Nine regions are promised in full, and hold what was written.
    let sums = |servers: &serde_json::Value| {
        let of =
            |field: &str| servers.as_array().unwrap().iter().map(|server| server[field].as_u64().unwrap()).sum::<u64>();
        (of("promised_bytes"), of("held_bytes"))
    };
    let (promised, held) = sums(&file["servers"]);
    assert_eq!(promised, 9 << 20);
    assert!((8 << 20..9 << 20).contains(&held), "{held}");
    assert_eq!(sums(&place.json(&["ls", "--servers"])["servers"]), (promised, held));
    let shown = place.done(&["ls", "--servers"]);
    assert!(shown.starts_with("server  class  promised"), "{shown}");

    std::fs::create_dir(place.path("out")).unwrap();
    place.done(&["manage", "out", "--region", "256KiB"]);
    place.done(&["run", "--", "cp", "data", "out/copy"]);
    assert_eq!(place.json(&["stat", "out/copy"])["files"][0]["region_bytes"], 256 << 10);
    // What takes its place has regions of the same size.
    place.done(&["cp", "data", "out/copy"]);
    assert_eq!(place.json(&["stat", "out/copy"])["files"][0]["region_bytes"], 256 << 10);
    assert!(place.command(&["cat", "out/copy"]).output().unwrap().stdout == data);
}

/// A trace without classes of writes is planned as if it wrote through the page cache, and text and JSON say so; one that has
/// them is not.
#[test]
fn a_plan_says_what_it_assumed_of_writes() {
    let place = Place::with_cluster();
    write_profile(&place);
    let write = |number: u64| {
        let (offset, start) = (number << 16, 1_000_000 * number);
        format!("n,100,,,posix,write,pwrite,,/data/written,,{offset},65536,,{start},{}", start + 800_000)
    };
    let rows = |class: &str| (0..64).map(|number| format!("{}{class}\n", write(number))).collect::<String>();
    place.write("unknown.csv", format!("{COLUMNS}\n{}", rows("")).as_bytes());
    place.write("known.csv", format!("{COLUMNS},write_class\n{}", rows(",direct")).as_bytes());
    let assumed = "the trace does not say whether writes to /data/written were direct, buffered or synchronous";
    let of = |trace: &str| {
        let plan = place.json(&["plan", trace, "--json"])["plan"].clone();
        let in_json = plan["notes"].as_array().unwrap().iter().any(|note| note.as_str().unwrap().starts_with(assumed));
        (in_json, place.done(&["plan", trace]).contains(&format!("note       {assumed}")))
    };
    assert_eq!((of("unknown.csv"), of("known.csv")), ((true, true), (false, false)));
    place.done(&["plan", "unknown.csv", "-o", "plan.json"]);
    let asked = place.done(&["explain", "plan.json", "/data/written:0"]);
    assert!(asked.contains(" buffered writes of 64 KiB in sequence") && asked.contains(assumed), "{asked}");
}

#[test]
fn the_same_trace_alone_and_beside_an_idle_one_costs_the_same() {
    let place = Place::with_cluster();
    write_profile(&place);
    write_trace(&place, "one.csv", "/data/shared", 4, 100, 0);
    place.write("idle.csv", format!("{COLUMNS}\nn,7,0,1,posix,open,open,,/data/shared,,,0,,1,2\n").as_bytes());
    let predicted = |words: &[&str]| place.json(words)["plan"]["files"].clone();
    let alone = ["plan", "one.csv", "--policy", "h2dp", "--json"];
    assert_eq!(predicted(&alone), predicted(&["plan", "one.csv", "idle.csv", "--policy", "h2dp", "--json"]));
}

#[test]
fn odd_traces_are_told_and_refused_only_where_they_must_be() {
    let place = Place::with_cluster();
    write_profile(&place);
    // No reads or writes.
    place.write("idle.csv", format!("{COLUMNS}\nn,7,,,posix,open,open,,/data/a,,,0,,1,2\n").as_bytes());
    let said = place.say(&["plan", "idle.csv"]);
    assert!(said.status == 2 && said.err.contains("idle.csv: no reads or writes"), "{}", said.err);
    assert_eq!(place.say(&["trace", "show", "idle.csv"]).status, 0);
    place.write("empty.csv", format!("{COLUMNS}\n").as_bytes());
    assert_eq!(place.say(&["plan", "empty.csv"]).status, 2);
    assert!(place.done(&["trace", "show", "empty.csv"]).contains("records    0"));

    // A request that no file can hold, beside good ones.
    write_trace(&place, "odd.csv", "/data/a", 1, 100, 0);
    let good = String::from_utf8(place.read("odd.csv")).unwrap();
    let far = 1u64 << 61;
    place.write("odd.csv", format!("{good}n,100,0,1,posix,read,pread,,/data/a,,{far},{far},,3,4\n").as_bytes());
    let said = place.say(&["plan", "odd.csv"]);
    assert!(said.status == 0 && said.err.contains("1 request at offsets or of sizes"), "{}", said.err);

    // A process that was killed: its file is short of a record and never finished.
    let trace = place.path("killed.trace");
    std::fs::create_dir(&trace).unwrap();
    let mut file = vec![0u8; 4096 + 100 * 32];
    file[..8].copy_from_slice(b"SWTRACE\n");
    for (at, word) in [(8, 1u32), (12, 4096), (16, 32), (20, 1), (24, 42), (32, u32::MAX)] {
        file[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    std::fs::write(trace.join("n.42.swt"), &file[..4096 + 50 * 32 + 7]).unwrap();
    let shown = place.say(&["trace", "show", "killed.trace"]);
    assert!(shown.status == 0 && shown.err.contains("n.42.swt: truncated after 5703 of 5728 bytes"), "{}", shown.err);
    assert!(shown.err.contains("process 42 did not finish its trace"), "{}", shown.err);
    for words in [&["trace", "show", "--strict", "killed.trace"][..], &["plan", "--strict", "killed.trace"]] {
        let said = place.say(words);
        assert!(said.status == 2 && said.err.contains("--strict was given"), "{}", said.err);
        assert!(said.err.contains("n.42.swt: truncated") && said.out.is_empty(), "{}", said.err);
    }
    // All is well with a whole one.
    write_trace(&place, "whole.csv", "/data/a", 1, 100, 0);
    assert_eq!(place.say(&["trace", "show", "--strict", "whole.csv"]).status, 0);
    assert_eq!(place.say(&["plan", "--strict", "whole.csv"]).status, 0);
    // Foreign files.
    std::fs::create_dir(place.path("foreign")).unwrap();
    place.write("foreign/README", b"no trace");
    let said = place.say(&["plan", "foreign"]);
    assert!(said.status == 2 && said.err.contains("foreign: no trace; expected"), "{}", said.err);
}

/// The numbers of servers that a plan puts anything on.
fn used(plan: &serde_json::Value) -> std::collections::BTreeSet<u64> {
    let files = plan["files"].as_array().unwrap().iter().flat_map(|file| file["windows"].as_array().unwrap());
    let layouts = files.flat_map(|window| window["placement"]["layouts"].as_array().unwrap());
    layouts.flat_map(|layout| layout.as_array().unwrap()).map(|stripe| stripe[0].as_u64().unwrap()).collect()
}

#[test]
fn drained_servers_are_left_out_of_plans_and_plans_with_them_are_not_applied() {
    let place = Place::with_cluster();
    write_profile(&place);
    place.write("data", &noise(8 << 20));
    let path = place.path("data").canonicalize().unwrap();
    write_trace(&place, "run.csv", path.to_str().unwrap(), 4, 32, 5);
    // A cluster that nobody has used yet has no state: nothing is known to be drained, and planning makes none.
    let state = place.path("stripewise-state");
    let aside = place.path("aside");
    std::fs::rename(&state, &aside).unwrap();
    let old = place.json(&["plan", "run.csv", "--policy", "def", "-o", "old.json"])["plan"].clone();
    assert!(!state.exists() && used(&old).contains(&3), "{:?}", used(&old));
    std::fs::rename(&aside, &state).unwrap();
    place.done(&["evacuate", "s1"]);
    let said = place.say(&["plan", "run.csv", "--policy", "def", "-o", "new.json"]);
    let remark = "nothing is planned for s1, which `stripewise evacuate` drained; `stripewise evacuate s1 --undo` lets it be used again";
    assert!(said.status == 0 && said.err.matches(remark).count() == 1, "{}", said.err);
    let new: serde_json::Value = serde_json::from_slice(&place.read("new.json")).unwrap();
    assert_eq!((new["options"]["exclude"].clone(), used(&new).contains(&3)), (serde_json::json!(["s1"]), false));
    let said = place.say(&["plan", "run.csv", "--policy", "all", "--exclude", "s1"]);
    assert!(said.status == 0 && said.err.contains(remark), "{}", said.err);
    let said = place.say(&["apply", "old.json", "--force"]);
    let refused = "old.json puts data on s1, which `stripewise evacuate` drained; nothing was changed";
    assert!(said.status == 2 && said.err.contains(refused), "{}", said.err);
    assert!(said.err.contains("`stripewise evacuate s1 --undo`"), "{}", said.err);
    let said = place.say(&["explain", "old.json"]);
    assert!(said.status == 0 && said.err.contains("the plan puts data on s1"), "{}", said.err);
    assert!(!place.say(&["explain", "new.json"]).err.contains("s1"));
    place.done(&["evacuate", "s1", "--undo"]);
    place.done(&["apply", "old.json", "--force", "--dry-run"]);
}

/// What files hold that are managed already is not there for others, but is for themselves.
#[test]
fn plans_count_on_what_managed_files_leave() {
    let place = Place::with_cluster();
    write_profile(&place);
    let space = |plan: &serde_json::Value| plan["servers"][2]["room_bytes"].as_u64().unwrap();
    let path = place.path("data");
    write_trace(&place, "run.csv", path.to_str().unwrap(), 4, 32, 5);
    let before = space(&place.json(&["plan", "run.csv"])["plan"]);
    place.write("original", &noise(32 << 20));
    place.done(&["cp", "--managed", "original", "other"]);
    let held = place.json(&["ls", "--servers"])["servers"][2]["promised_bytes"].as_u64().unwrap();
    let beside = space(&place.json(&["plan", "run.csv"])["plan"]);
    assert!(held > 0 && before - beside == held, "{before} {beside} {held}");
    place.done(&["rm", "other"]);
    place.done(&["cp", "--managed", "original", "data"]);
    assert_eq!(space(&place.json(&["plan", "run.csv"])["plan"]), before);
}

/// It was found out when all was done.
#[test]
fn where_a_plan_or_a_report_cannot_go_is_said_before_the_trace_is_read() {
    let place = Place::with_cluster();
    write_profile(&place);
    std::fs::create_dir(place.path("d")).unwrap();
    place.write("file", b"");
    for command in [&["plan", "gone.csv", "-o"][..], &["report", "gone.csv", "-o"]] {
        for path in ["d", "missing/out", "file/out", "/proc/out"] {
            let said = place.say(&[command, &[path]].concat());
            assert!(said.status == 2 && said.err.contains(&format!("cannot write {path}: ")), "{}", said.err);
        }
    }
    let said = place.say(&["plan", "gone.csv", "--policy", "all", "-o", "/proc/plans/of"]);
    assert!(said.status == 2 && said.err.contains("cannot write into /proc/plans/of"), "{}", said.err);
    let said = place.say(&["plan", "gone.csv", "--policy", "all", "-o", "new/plans"]);
    assert!(said.status == 2 && said.err.contains("gone.csv") && !place.path("new").exists(), "{}", said.err);
}

/// A plan has names as traces do. They were taken for the names themselves, so that `apply` had another file expected.
#[test]
fn names_that_are_not_utf8_lead_to_no_other_file() {
    let place = Place::with_cluster();
    write_profile(&place);
    let here = place.path("").canonicalize().unwrap();
    let here = here.to_str().unwrap();
    write_trace(&place, "odd.csv", &format!("{here}/odd\\xFF"), 2, 64, 5);
    write_trace(&place, "text.csv", &format!("{here}/text\\x5CxFF"), 2, 64, 5);
    let said = place.say(&["plan", "odd.csv", "text.csv", "-o", "plan.json"]);
    let left_out = "left out HERE/odd\\xff: managed files have names in UTF-8";
    assert!(said.status == 0 && said.err.contains(left_out), "{}", said.err);
    assert!(said.out.contains("text\\x5CxFF") && !said.out.contains("odd"), "{}", said.out);
    place.done(&["apply", "plan.json", "--force"]);
    assert_eq!(place.json(&["manage"])["expected"], serde_json::json!(["HERE/text\\xFF"]));
    // A plan of an earlier version has both.
    let text = String::from_utf8(place.read("plan.json")).unwrap();
    place.write("old.json", text.replace("text\\\\x5CxFF", "odd\\\\xFF").as_bytes());
    let said = place.say(&["apply", "old.json", "--force"]);
    assert!(said.status == 2 && said.err.contains("HERE/odd\\xff is not UTF-8"), "{}", said.err);
    let said = place.say(&["plan", "odd.csv"]);
    assert!(said.status == 2 && said.err.contains("no file to plan for"), "{}", said.err);
    place.done(&["manage"]);
}

#[test]
fn what_a_plan_cannot_mean_is_said() {
    let place = Place::with_cluster();
    write_profile(&place);
    write_trace(&place, "run.csv", "/data/shared", 2, 64, 5);
    place.write("array.json", b"[]");
    for (words, expected) in [
        (
            &["apply", "array.json"][..],
            "a plan is a JSON object, as `stripewise plan -o` writes it, and this begins with '['",
        ),
        (
            &["plan", "run.csv", "--replica-room", "1GiB"],
            "--replica-room: opt plans no replicas; plan with --policy cost",
        ),
        (&["plan", "run.csv", "--ssd-room", "-5"], "`-5` is not a size; write a number and a unit"),
    ] {
        let said = place.say(words);
        assert!(said.status == 2 && said.err.contains(expected) && !said.err.contains("tip:"), "{}", said.err);
    }
    place.done(&["plan", "run.csv", "--replica-room", "1GiB", "--policy", "cost"]);
    place.done(&["plan", "run.csv", "--ssd-room", "1EiB"]);
}
