//! `advise`: answers, exit statuses, and the forms of what it prints. Darshan's logs have tests in `tests/darshan`.

mod support;

#[path = "advise/limits.rs"]
mod limits;

use support::{Place, schema};

const SITE: &str =
    "version = 1\nfs = \"lustre\"\nmount = \"/lustre\"\n[default]\nstripe_count = 1\nstripe_size = \"1MiB\"\n";
const DISKS: &str =
    "[[targets]]\nclass = \"hdd\"\nnames = [\"OST0000..OST0003\"]\nbandwidth = \"150MB/s\"\nlatency_ms = 8.0\n";
const FLASH: &str =
    "[[targets]]\nclass = \"ssd\"\nnames = [\"OST0004..OST0005\"]\nbandwidth = \"2GB/s\"\nlatency_ms = 0.1\n";

/// Eight ranks that each read 150 times 64 KiB somewhere in 1 GiB of one file; a request takes 9 of 10 milliseconds, or of `gap_ms`.
fn write_trace(place: &Place, gap_ms: u64) {
    let mut text = "node,pid,mpi_rank,mpi_size,level,operation,call,communicator,path,renamed_to,offset,bytes,errno,start_ns,end_ns\n".to_owned();
    for rank in 0..8u64 {
        for number in 0..150u64 {
            let offset = ((rank * 150 + number) * 7919 % (1 << 14)) << 16;
            let (start, pid) = (number * gap_ms * 1_000_000, 100 + rank);
            let end = start + 9_000_000;
            text += &format!("n,{pid},{rank},8,posix,read,pread,,/lustre/field,,{offset},65536,,{start},{end}\n");
        }
    }
    place.write("run.csv", text.as_bytes());
}

fn advised(place: &Place) -> (i32, serde_json::Value) {
    let said = place.say(&["--json", "advise", "run.csv", "--site", "site.toml"]);
    let value: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{}", said.err));
    schema::check("advise", &value);
    (said.status, value)
}

#[test]
fn random_reads_are_sent_to_fast_targets_with_the_commands_that_do_it() {
    let place = Place::new();
    place.write("site.toml", format!("{SITE}{DISKS}{FLASH}").as_bytes());
    write_trace(&place, 10);
    let (status, advice) = advised(&place);
    assert_eq!((status, &advice["change"]), (0, &serde_json::json!(true)), "{}", advice["answer"]);
    assert!(advice["gain"]["low"].as_f64().unwrap() > 0.0);
    assert!(advice["now"]["time_s"].as_f64().unwrap() > advice["advised"]["time_s"].as_f64().unwrap());
    assert_eq!(advice["coarse"], serde_json::Value::Null);
    // Nearly 1 GiB has to be read from one disk of 150 MB/s before it is anywhere else.
    let moving_s = advice["moving"]["time"]["time_s"].as_f64().unwrap();
    assert!((7.0..9.0).contains(&moving_s), "{}", advice["moving"]);
    let script = advice["export"]["script"].as_str().unwrap();
    assert!(script.contains("lfs") && script.contains("/lustre/field"), "{script}");
    let finding = |name: &str| advice["findings"].as_array().unwrap().iter().any(|finding| finding["name"] == name);
    assert!(finding("io-share") && finding("small-requests") && finding("random-requests"));

    let text = place.done(&["advise", "run.csv", "--site", "site.toml", "-o", "layout"]);
    assert!(text.starts_with("Lay out 1 file again on Lustre:"), "{text}");
    assert!(text.contains("Misfit: the busiest process spent 1.35 s in reads and writes, but "), "{text}");
    assert!(text.contains("/lustre/field") && text.contains("Requests by size"), "{text}");
    assert!(String::from_utf8(place.read("layout/layout.sh")).unwrap().contains("/lustre/field"));
}

#[test]
fn the_report_says_verdict_findings_and_the_run_in_figures() {
    let place = Place::new();
    place.write("site.toml", format!("{SITE}{DISKS}{FLASH}").as_bytes());
    write_trace(&place, 10);
    let said = place.say(&["--json", "advise", "run.csv", "--site", "site.toml", "--html", "advice.html"]);
    let value: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    schema::check("advise", &value);
    assert_eq!((said.status, &value["html_file"]), (0, &serde_json::json!("advice.html")));
    let page = String::from_utf8(place.read("advice.html")).unwrap();
    for part in [
        "<h2 id=\"verdict-title\">Lay the files out again</h2>",
        "Gain over the files as they lie",
        "O with the layouts",
        "stripewise advise run.csv --site site.toml -o layout",
        "<b>Random requests</b>",
        // The facts apart from what is predicted.
        "<li>No process spends more than 90.1 % of the run (1.5 s) in reads and writes: no layout can save more.</li>",
        "Bytes read and written over the time of the run",
        "<dt>Read</dt><dd class=\"figure\">75 MiB</dd>",
        "<caption>Requests by size</caption>",
        // The pictures of the trace, and what was read.
        "id=\"accesses\"",
        "8 processes in 1.5 s; 1,200 requests one by one",
    ] {
        assert!(page.contains(part), "no `{part}` in {page}");
    }
    write_trace(&place, 2000);
    assert_eq!(place.say(&["advise", "run.csv", "--site", "site.toml", "--html", "advice.html"]).status, 1);
    let page = String::from_utf8(place.read("advice.html")).unwrap();
    assert!(page.contains(">Leave the files as they are</h2>") && !page.contains("<p class=\"next\">"), "{page}");
}

#[test]
fn where_nothing_is_to_be_gained_the_answer_is_to_leave_it_and_the_exit_status_1() {
    let place = Place::new();
    let only = DISKS.replace("OST0000..OST0003", "OST0000");
    place.write("site.toml", format!("{SITE}{only}").as_bytes());
    write_trace(&place, 10);
    let (status, advice) = advised(&place);
    assert_eq!((status, &advice["change"]), (1, &serde_json::json!(false)), "one target: {}", advice["answer"]);

    // Nine milliseconds of I/O in every two seconds.
    place.write("site.toml", format!("{SITE}{DISKS}{FLASH}").as_bytes());
    write_trace(&place, 2000);
    let (status, advice) = advised(&place);
    let answer = advice["answer"].as_str().unwrap();
    assert_eq!((status, answer.contains("% of the run in reads and writes")), (1, true), "{answer}");

    let said = place.say(&["advise", "run.csv", "--site", "site.toml", "--least-size", "2GiB"]);
    assert_eq!(said.status, 1, "{}", said.err);
    assert!(said.out.starts_with("Leave it: its 1 file is smaller than 2 GiB"), "{}", said.out);
}

/// A trace of these requests: process, call, path, offset and bytes; each takes a millisecond.
fn write_requests(place: &Place, processes: u64, requests: &[(u64, &str, &str, &str, u64)]) {
    let mut text = "node,pid,mpi_rank,mpi_size,level,operation,call,communicator,path,renamed_to,offset,bytes,errno,start_ns,end_ns\n".to_owned();
    for (number, (rank, call, path, offset, bytes)) in requests.iter().enumerate() {
        let level = if call.starts_with("MPI_") { "mpi-io" } else { "posix" };
        let operation = if call.contains("read") { "read" } else { "write" };
        let (start, pid) = (number * 1_000_000, 100 + rank);
        let end = start + 1_000_000;
        text += &format!(
            "n,{pid},{rank},{processes},{level},{operation},{call},,{path},,{offset},{bytes},0,{start},{end}\n"
        );
    }
    place.write("run.csv", text.as_bytes());
}

fn finding<'a>(advice: &'a serde_json::Value, name: &str) -> Option<&'a serde_json::Value> {
    advice["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == name)
}

#[test]
fn of_a_trace_writes_that_are_read_back_go_forward_and_shared_memory_is_no_file() {
    let place = Place::new();
    place.write("site.toml", format!("{SITE}{DISKS}{FLASH}").as_bytes());
    let offsets: Vec<String> = (0..150u64).map(|number| (number * (4 << 20)).to_string()).collect();
    let mut requests = Vec::new();
    for offset in &offsets {
        requests.push((0, "pwrite", "/lustre/field", offset.as_str(), 1 << 20));
        requests.push((0, "pread", "/lustre/field", offset.as_str(), 1 << 20));
        requests.push((0, "pwrite", "/dev/shm/vader_segment.n.1", "0", 8 << 20));
    }
    write_requests(&place, 1, &requests);
    let (_, advice) = advised(&place);
    assert!(finding(&advice, "random-requests").is_none(), "{}", advice["findings"]);
    assert!(finding(&advice, "unaligned-requests").is_none(), "{}", advice["findings"]);
    let files: Vec<&str> =
        advice["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(files, ["/lustre/field"]);
    assert_eq!((&advice["totals"]["writes"], &advice["totals"]["files"]), (&150.into(), &1.into()));
}

#[test]
fn of_a_trace_first_requests_and_those_without_a_place_have_no_order() {
    let place = Place::new();
    place.write("site.toml", format!("{SITE}{DISKS}{FLASH}").as_bytes());
    let offsets: Vec<String> = (0..200u64).map(|number| (number << 20).to_string()).collect();
    let once: Vec<_> =
        (0..200).map(|rank| (rank, "pwrite", "/lustre/field", offsets[rank as usize].as_str(), 1 << 20)).collect();
    write_requests(&place, 200, &once);
    let (_, advice) = advised(&place);
    assert!(finding(&advice, "random-requests").is_none(), "{}", advice["findings"]);

    // Every other request has no offset: neither it nor the one behind it is random, or off the alignment.
    let mut requests = Vec::new();
    for offset in &offsets {
        requests.push((0, "pwrite", "/lustre/field", offset.as_str(), 1 << 20));
        requests.push((0, "pwrite", "/lustre/field", "", 1 << 20));
    }
    write_requests(&place, 1, &requests);
    let (_, advice) = advised(&place);
    assert!(finding(&advice, "random-requests").is_none(), "{}", advice["findings"]);
    assert!(finding(&advice, "unaligned-requests").is_none(), "{}", advice["findings"]);
}

#[test]
fn of_a_trace_requests_are_aligned_by_the_sites_stripes_and_streams_and_mpi_io_are_told() {
    let place = Place::new();
    place.write("site.toml", format!("{SITE}{DISKS}{FLASH}").as_bytes());
    let offsets: Vec<String> = (0..200u64).map(|number| (number << 16).to_string()).collect();
    let mut requests = Vec::new();
    for offset in &offsets {
        requests.push((0, "fwrite", "/lustre/log", offset.as_str(), 1 << 16));
        for rank in 0..2 {
            requests.push((rank, "MPI_File_write_at", "/lustre/field", offset.as_str(), 1 << 15));
            requests.push((rank, "pwrite", "/lustre/field", offset.as_str(), 1 << 16));
        }
        // A file of one process, for which nothing collective can be done.
        requests.push((0, "MPI_File_write_at_all", "/lustre/own", offset.as_str(), 1 << 15));
    }
    write_requests(&place, 2, &requests);
    let (_, advice) = advised(&place);
    let value = |name: &str| {
        finding(&advice, name).unwrap_or_else(|| panic!("no {name}: {}", advice["findings"]))["value"].as_f64().unwrap()
    };
    // 15 of 16 multiples of 64 KiB are none of 1 MiB.
    assert!((value("unaligned-requests") - 15.0 / 16.0).abs() < 0.01, "{}", advice["findings"]);
    assert!(value("streams") > 0.2);
    assert_eq!(value("independent-mpi-io"), 1.0, "{}", advice["findings"]);
    // 400 requests of 32 KiB and 200 of the file of one process, above 400 of 64 KiB.
    assert!((value("mpi-io-to-posix") - 400.0 * 2.0 / 600.0).abs() < 1e-9, "{}", advice["findings"]);
}

#[test]
fn the_plan_and_the_layout_that_expresses_it_wholly_are_predicted_alike() {
    let place = Place::new();
    place.write("site.toml", format!("{SITE}{DISKS}{FLASH}").as_bytes());
    write_trace(&place, 10);
    let (_, advice) = advised(&place);
    assert_eq!(advice["export"]["predicted"]["loss"]["expected"], 0.0, "{}", advice["export"]["predicted"]);
    assert_eq!(advice["ideal"], advice["advised"]);
    let text = place.done(&["advise", "run.csv", "--site", "site.toml"]);
    let line = text.lines().find(|line| line.starts_with("Time line, ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("a mark"), "{line}");
}

#[test]
fn iosigs_text_is_advised_upon_as_the_same_requests_in_a_csv() {
    let place = Place::new();
    place.write("site.toml", format!("{SITE}{DISKS}{FLASH}").as_bytes());
    write_trace(&place, 10);
    let (_, own) = advised(&place);
    std::fs::create_dir(place.path("iosig")).unwrap();
    for rank in 0..8u64 {
        let line = |number: u64| {
            let (offset, start_s) = (((rank * 150 + number) * 7919 % (1 << 14)) << 16, number as f64 * 0.01);
            format!("READ 3 {offset} 65536 {start_s:.6} {:.6} /lustre/field\n", start_s + 0.009)
        };
        let text: String = (0..150).map(line).collect();
        place.write(&format!("iosig/posix_trace_rank-{rank}.out"), text.as_bytes());
    }
    let said = place.say(&["--json", "advise", "iosig", "--site", "site.toml"]);
    let iosig: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{}", said.err));
    assert_eq!(said.status, 0, "{}", iosig["answer"]);
    assert_eq!((&iosig["advised"], &iosig["export"]["script"]), (&own["advised"], &own["export"]["script"]));
    assert_eq!((&iosig["totals"]["reads"], &iosig["totals"]["processes"]), (&1200.into(), &8.into()));
}

/// The trace of `write_trace`, of several files.
fn write_trace_of(place: &Place, paths: &[&str]) {
    write_trace(place, 10);
    let text = String::from_utf8(place.read("run.csv")).unwrap();
    let (head, rows) = text.split_once('\n').unwrap();
    let of = |path: &&str| rows.replace("/lustre/field", path);
    place.write("run.csv", format!("{head}\n{}", paths.iter().map(of).collect::<String>()).as_bytes());
}

/// A site of another kind, whose groups of targets have these lines besides.
fn site_of(kind: &str, head: &str, [disks, flash]: [&str; 2]) -> String {
    format!("version = 1\nfs = \"{kind}\"\n{head}{DISKS}{disks}{FLASH}{flash}")
}

#[test]
fn what_a_site_does_not_say_is_an_error_with_the_remedy_and_no_verdict() {
    let place = Place::new();
    write_trace(&place, 10);
    let pools = ["pool = \"D\"\n", "pool = \"S\"\n"];
    for (site, remedy) in [
        (site_of("moosefs", "", pools), "mfsscadmin needs the mount; add mount = \"/mnt/mfs\""),
        (
            site_of("cephfs", "mount = \"/lustre\"\n", [""; 2]),
            "places files by data pools, and none is named; add `pool",
        ),
    ] {
        place.write("site.toml", site.as_bytes());
        let said = place.say(&["advise", "run.csv", "--site", "site.toml"]);
        assert_eq!((said.status, said.out.as_str()), (2, ""), "{}", said.err);
        assert!(said.err.contains("site.toml: ") && said.err.contains(remedy), "{}", said.err);
    }
}

#[test]
fn one_name_keeps_no_other_file_from_its_layout() {
    let place = Place::new();
    write_trace_of(&place, &["/lustre/a=b", "/lustre/field"]);
    let numbers = ["pool = \"1\"\n", "pool = \"2\"\n"];
    place.write("site.toml", site_of("beegfs", "mount = \"/lustre\"\n", numbers).as_bytes());
    let (status, advice) = advised(&place);
    assert_eq!((status, &advice["change"]), (0, &serde_json::json!(true)), "{}", advice["answer"]);
    let script = advice["export"]["script"].as_str().unwrap();
    assert!(script.contains("\nlayout /lustre/a=b ") && script.contains("\nlayout /lustre/field "), "{script}");
}

#[test]
fn a_file_whose_path_the_logs_lack_is_advised_upon_but_not_made() {
    let place = Place::new();
    place.write("site.toml", format!("{SITE}{DISKS}{FLASH}").as_bytes());
    write_trace_of(&place, &["3872016472"]);
    let (status, advice) = advised(&place);
    assert_eq!((status, &advice["change"]), (0, &serde_json::json!(true)), "{}", advice["answer"]);
    let script = advice["export"]["script"].as_str().unwrap();
    assert!(script.contains("\n# layout FILE -S ") && !script.contains("\nlayout "), "{script}");
    let said = |remark: &serde_json::Value| remark.as_str().unwrap().starts_with("the logs have no path of 3872016472");
    assert!(advice["remarks"].as_array().unwrap().iter().any(said), "{}", advice["remarks"]);
}

#[test]
fn a_site_is_described_by_the_commands_that_are_there() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    std::fs::create_dir(place.path("tools")).unwrap();
    let tool = |text: &str| {
        place.write("tools/pvfs2-statfs", format!("#!/bin/sh\n{text}\n").as_bytes());
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(place.path("tools/pvfs2-statfs"), mode).unwrap();
    };
    let detect_at = |mount: &str| {
        let mut command = place.command(&["site", "detect", "--fs", "orangefs", mount]);
        place.said(command.env("PATH", place.path("tools")).output().unwrap())
    };
    let detect = || detect_at("/mnt/orangefs");
    let said = detect();
    assert_eq!((said.status, said.out.as_str()), (2, ""));
    assert!(
        said.err.contains("`pvfs2-statfs -m /mnt/orangefs`: there is no command pvfs2-statfs here"),
        "{}",
        said.err
    );
    tool("echo 'no such mount' >&2; exit 1");
    let said = detect();
    assert_eq!(said.status, 2);
    assert!(said.err.contains("`pvfs2-statfs -m /mnt/orangefs`: exit status: 1: no such mount"), "{}", said.err);
    tool("echo nothing");
    let said = detect();
    assert!(said.status == 2 && said.err.contains("the commands of OrangeFS list no I/O server"), "{}", said.err);
    tool("printf 'I/O server statistics:\\n\\nserver: tcp://io0:3334\\n\\tbytes available  : 70000000000\\n'");
    let said = detect();
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(said.out.contains("# To do: ") && said.out.contains("tcp://io0:3334"), "{}", said.out);
    // Paths in logs are absolute.
    assert!(detect_at("tools").out.contains("mount = \"HERE/tools\""), "{}", detect_at("tools").out);
    assert!(detect_at("none").err.contains("none: No such file or directory"), "{}", detect_at("none").err);
    // What it does not say is asked for by line where it is needed.
    place.write("found.toml", said.out.as_bytes());
    write_trace(&place, 10);
    let said = place.say(&["advise", "run.csv", "--site", "found.toml"]);
    assert!(said.status == 2 && said.err.contains("`io0` has no parameters"), "{}", said.err);
}
