//! What limits an answer: what was measured, files that no layout holds, options, and names of files.

use super::support::{Place, Said};
use super::{DISKS, FLASH, SITE, advised};

/// Reads of 64 KiB by one process, somewhere in files: path, how many, over so many pieces of 64 KiB, and what each takes in microseconds.
fn write_reads(place: &Place, files: &[(&str, u64, u64, u64)]) {
    let mut text = "node,pid,mpi_rank,mpi_size,level,operation,call,communicator,path,renamed_to,offset,bytes,errno,start_ns,end_ns\n".to_owned();
    let mut start = 0;
    for (path, count, pieces, took_us) in files {
        let path = path.replace('"', "\"\"");
        for number in 0..*count {
            let (offset, end) = ((number * 7919 % pieces) << 16, start + took_us * 1000);
            text += &format!("n,1,,,posix,read,pread,,\"{path}\",,{offset},65536,,{start},{end}\n");
            start = end;
        }
    }
    place.write("run.csv", text.as_bytes());
}

/// A place with a site of four disks and two drives.
fn site() -> Place {
    let place = Place::new();
    place.write("site.toml", format!("{SITE}{DISKS}{FLASH}").as_bytes());
    place
}

fn advise(place: &Place, words: &[&str]) -> Said {
    place.say(&[&["advise", "run.csv", "--site", "site.toml"], words].concat())
}

#[test]
fn time_that_other_files_took_is_not_what_a_layout_saves() {
    let place = site();
    write_reads(&place, &[("/home/u/in", 800, 1000, 9000), ("/lustre/out", 800, 1000, 5)]);
    let (status, advice) = advised(&place);
    let answer = "leave it: no process spends more than 0.06 % of the run in reads and writes of the files to lay out, so no layout can win more";
    assert_eq!((status, advice["answer"].as_str().unwrap()), (1, answer));
    let measured_s = advice["measured"]["most_s"].as_f64().unwrap();
    assert!((measured_s - 0.004).abs() < 1e-9, "{}", advice["measured"]);
    let misfit = advice["misfit"].as_str().unwrap();
    assert!(
        misfit.starts_with("the busiest process spent 4 ms in reads and writes of the files to lay out, but "),
        "{misfit}"
    );
}

#[test]
fn a_run_saves_no_more_than_was_measured() {
    let place = site();
    write_reads(&place, &[("/lustre/field", 800, 1000, 500)]);
    let (status, advice) = advised(&place);
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let (advised_time, measured_s) = (&advice["advised"], number(&advice["measured"]["most_s"]));
    assert!(status == 0 && (measured_s - 0.4).abs() < 1e-9, "{measured_s}: {}", advice["answer"]);
    assert!(number(&advice["now"]["time_s"]) > 10.0 * measured_s, "{}", advice["now"]);
    let longest_s = number(&advised_time["time_s"]) * (1.0 + number(&advised_time["spread"]));
    let low = number(&advice["gain"]["low"]);
    assert!(low > 0.0 && low < measured_s / longest_s - 1.0 + 1e-9, "{}", advice["gain"]);
    let moving = &advice["moving"];
    let gain = number(&advice["gain"]["expected"]);
    let runs = number(&moving["time"]["time_s"]) / (measured_s * gain / (1.0 + gain));
    assert!((number(&moving["runs"]) - runs).abs() < 1e-9 && number(&moving["most_runs"]) > runs, "{moving}");

    // Less than the layout is predicted to take: the figures do not fit, and nothing is known to be won.
    write_reads(&place, &[("/lustre/field", 800, 1000, 5)]);
    let said = advise(&place, &[]);
    assert_eq!(said.status, 1, "{}", said.out);
    let answer = "Leave it: no process spent more than 4 ms in reads and writes, less than the ";
    assert!(said.out.starts_with(answer), "{}", said.out);
    assert!(said.out.lines().next().unwrap().ends_with(" that are predicted with layouts of Lustre"), "{}", said.out);
}

#[test]
fn files_that_are_refused_do_not_count_as_laid_out() {
    let place = Place::new();
    let group = |class: &str, names: &str, pool: u32, capacity: &str, rest: &str| {
        format!(
            "[[targets]]\nclass = \"{class}\"\nnames = {names}\npool = \"{pool}\"\ncapacity = \"{capacity}\"\n{rest}\n"
        )
    };
    let disks = group("hdd", "[\"t1\", \"t2\"]", 1, "30MiB", "bandwidth = \"100MB/s\"\nlatency_ms = 8.0");
    let flash = group("ssd", "[\"t3\"]", 2, "20MiB", "bandwidth = \"1GB/s\"\nlatency_ms = 0.1");
    let head = "version = 1\nfs = \"beegfs\"\nmount = \"/lustre\"\n[default]\nstripe_count = 1\n";
    place.write("site.toml", format!("{head}{disks}{flash}").as_bytes());
    write_reads(
        &place,
        &[("/lustre/small", 3000, 100, 9000), ("/lustre/large", 80, 1000, 9000), ("/lustre/large", 1, 1, 9000)],
    );
    // Its last piece, so that it has 62.5 MiB.
    let text = String::from_utf8(place.read("run.csv")).unwrap();
    place.write("run.csv", text.replacen("\"/lustre/large\",,0,", "\"/lustre/large\",,65470464,", 1).as_bytes());
    let said = advise(&place, &[]);
    let answer = "Lay out 1 file again on BeeGFS and leave 1 that no layout holds: ";
    assert!(said.status == 0 && said.out.starts_with(answer), "{}{}", said.out, said.err);
    assert!(said.err.contains("/lustre/large: no layout of BeeGFS holds its 62.5 MiB"), "{}", said.err);
    assert!(!said.out.contains(" go to the 1 fast targets"), "all that is laid out lies there: {}", said.out);
    let (_, advice) = advised(&place);
    assert_eq!(advice["export"]["refused"][0]["path"], "/lustre/large");
    let most_s = advice["measured"]["most_s"].as_f64().unwrap();
    assert!((most_s - 27.729).abs() < 1e-6, "of both, which are predicted together: {most_s}");
    assert!(
        advice["why"][0].as_str().unwrap().starts_with("no process spends more than 97.4 % of the run"),
        "{}",
        advice["why"]
    );
}

#[test]
fn what_does_not_fit_is_left_out_by_name() {
    let place = Place::new();
    let sized = |disk: u64, drive: u64| {
        let [disk, drive] = [disk, drive].map(|size| format!("capacity = \"{size}MiB\"\n"));
        place.write("site.toml", format!("{SITE}{DISKS}{disk}{FLASH}{drive}").as_bytes());
    };
    let paths: Vec<String> = (0..8).map(|number| format!("/lustre/f{number}")).collect();
    // 16 MiB each, the later the more reads.
    let files: Vec<_> = (300..).zip(&paths).map(|(count, path)| (path.as_str(), count, 256, 9000)).collect();
    write_reads(&place, &files);
    sized(4, 40);
    let said = advise(&place, &[]);
    assert!(said.status == 0 && said.out.starts_with("Lay out 6 files again on Lustre"), "{}{}", said.out, said.err);
    let left = "left out, since the site's targets hold 96 MiB together (`capacity`): /lustre/f1, /lustre/f0\n";
    assert!(said.err.contains(left), "{}", said.err);
    sized(2, 2);
    let said = advise(&place, &[]);
    let answer = "Leave it: the site's targets hold 12 MiB together, by `capacity` in site.toml, and /lustre/f7 alone has 16 MiB\n";
    assert!(said.status == 1 && said.out.starts_with(answer), "{}{}", said.out, said.err);
    assert!(said.out.contains("What else the logs show:"), "{}", said.out);
}

#[test]
fn one_wild_offset_keeps_no_other_file_from_its_layout() {
    let place = site();
    let wild =
        |text: &str| place.write("run.csv", text.replacen("wild\",,0,", "wild\",,1125899906842624,", 1).as_bytes());
    let reads = || String::from_utf8(place.read("run.csv")).unwrap();
    write_reads(&place, &[("/lustre/wild", 300, 1000, 9000), ("/lustre/field", 300, 1000, 9000)]);
    wild(&reads());
    let said = advise(&place, &[]);
    assert!(said.status == 0 && said.out.starts_with("Lay out 1 file again on Lustre"), "{}{}", said.out, said.err);
    let left = "requests on /lustre/wild lie behind 1 PiB, where plans end in regions of 64MiB: left out; if that is no damage of the log, give site.toml a larger `region`";
    assert!(said.err.contains(left), "{}", said.err);
    write_reads(&place, &[("/lustre/wild", 300, 1000, 9000)]);
    wild(&reads());
    let said = advise(&place, &[]);
    assert!(said.status == 1 && said.out.starts_with("Leave it: requests on /lustre/wild lie behind "), "{}", said.out);
}

#[test]
fn no_name_of_a_file_is_a_line_of_the_answer() {
    let place = site();
    let name = "/lustre/x\nLay out nothing: all is well";
    write_reads(&place, &[(name, 300, 1000, 9000)]);
    let said = advise(&place, &[]);
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    let is_forged = |text: &str| text.lines().any(|line| line.trim_start().starts_with("Lay out nothing"));
    assert!(!is_forged(&said.out) && said.out.contains("-o DIR writes it"), "{}", said.out);
    assert!(said.out.contains("processes: /lustre/x\\nLay out nothing: all is well\n"), "{}", said.out);

    // Below no mount of the site, which is said of it.
    write_reads(&place, &[("/other/x\nLay out nothing: all is well", 300, 1000, 9000)]);
    let said = advise(&place, &["-o", "layout"]);
    assert!(said.status == 0 && said.err.contains("/other/x\\nLay out nothing: all is well"), "{}", said.err);
    assert!(!is_forged(&said.out) && !is_forged(&said.err), "{}{}", said.out, said.err);
}

#[test]
fn the_report_names_the_options_again_and_keeps_what_was_measured_apart() {
    let place = site();
    write_reads(&place, &[("/lustre/it's", 800, 1000, 500)]);
    let words = ["--file", "/lustre/it's", "--least-size", "4KiB", "--max-files", "3", "--worth-runs", "20.5"];
    let said = advise(&place, &[&words[..], &["--html", "advice.html"]].concat());
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    let page = String::from_utf8(place.read("advice.html")).unwrap();
    let page = page.replace("&#39;", "'").replace("&#x27;", "'").replace("&#x2f;", "/");
    let command = r"stripewise advise run.csv --site site.toml --file '/lustre/it'\''s' --least-size 4KiB --max-files 3 --worth-runs 20.5 -o layout";
    assert!(page.contains(command), "{page}");
    assert!(
        page.contains("<li>The busiest process spent 400 ms in reads and writes of the files that are planned.</li>"),
        "{page}"
    );
    let lines = page.lines().filter(|line| line.contains("400 ms"));
    assert!(
        lines.clone().count() > 0 && lines.clone().all(|line| !line.contains("predict")),
        "{:?}",
        lines.collect::<Vec<_>>()
    );
}

#[test]
fn a_prefix_with_which_no_path_begins_is_named_with_what_it_stands_for() {
    let place = site();
    write_reads(&place, &[("/lustre/field", 300, 1000, 9000)]);
    let said = advise(&place, &["--file", "gone/../field"]);
    let unmatched = "--file gone/../field (HERE/field) begins no traced path";
    assert!(said.status == 1 && said.out.contains(unmatched), "{}{}", said.out, said.err);
    let said = advise(&place, &["--file", "/lustre/../lustre/fi", "--file", "gone/../field"]);
    assert!(said.status == 0 && !said.out.contains("--file /lustre"), "{}{}", said.out, said.err);
    assert!(format!("{}{}", said.out, said.err).contains(unmatched), "{}{}", said.out, said.err);
}

#[test]
fn options_that_make_no_sense_are_refused_by_name() {
    let place = site();
    write_reads(&place, &[("/lustre/field", 300, 1000, 9000)]);
    for (words, why) in [
        (["--worth-runs", "nan"], "within NaN runs; give --worth-runs a number above 0, for example 10"),
        (["--worth-runs=-1", "--json"], "within -1 runs; give --worth-runs a number above 0, for example 10"),
        (["--max-files", "0"], "give --max-files a number from 1 on"),
    ] {
        let said = advise(&place, &words);
        assert!(
            said.status == 2 && said.out.is_empty() && said.err.contains(why),
            "{words:?}: {}{}",
            said.out,
            said.err
        );
    }
}

#[test]
fn a_log_that_is_named_twice_counts_once() {
    let place = site();
    write_reads(&place, &[("/lustre/field", 300, 1000, 9000)]);
    let said = place.say(&["--json", "advise", "run.csv", "./run.csv", "--site", "site.toml"]);
    let advice: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{}", said.err));
    assert_eq!((&advice["totals"]["reads"], advice["logs"].as_array().unwrap().len()), (&300.into(), 1));
    let remarks = &advice["remarks"];
    assert_eq!(remarks[0], "./run.csv is named more than once and counts once", "{remarks}");
}

#[test]
fn where_no_script_is_written_that_is_said_of_an_old_one_too() {
    let place = site();
    write_reads(&place, &[("/lustre/field", 800, 1000, 5)]);
    let said = advise(&place, &["-o", "layout"]);
    assert!(said.status == 1 && said.err.contains("no script is written into layout\n"), "{}", said.err);
    std::fs::create_dir(place.path("layout")).unwrap();
    place.write("layout/layout.sh", b"old");
    let said = advise(&place, &["-o", "layout"]);
    let old = "no script is written: layout/layout.sh is of an earlier call and does not belong to this answer\n";
    assert!(said.status == 1 && said.err.contains(old), "{}", said.err);
}
