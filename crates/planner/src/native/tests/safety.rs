//! What scripts leave as it is, and what they leave behind: copies, owners, and files when a command fails or a signal comes.

use super::super::{FittedFile, NativeLayout, Script};
use super::commands::{Bench, TOOL, script, script_of};
use super::lookup;
use crate::site::Site;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Output;

const COPYING: [&str; 3] = ["beegfs", "cephfs", "orangefs"];

/// Those that make a new file under another name first.
const SETTLING: [&str; 4] = ["beegfs", "cephfs", "moosefs", "orangefs"];

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn inode(path: &str) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

#[test]
fn what_has_buddy_mirroring_is_left_as_it_was() {
    for without in [&[][..], &["beegfs"]] {
        let bench = Bench::new(without);
        std::fs::create_dir(bench.path("mirrored")).unwrap();
        let (old, new) = (bench.path("an = old one "), bench.path("mirrored/new"));
        std::fs::write(&old, b"data").unwrap();
        let before = inode(&old);
        bench.note("mirrored", b"");
        let output = bench.output_of(&script_of("beegfs", &[old.clone(), new.clone()]), &["directories"]);
        let reasons = said(&output);
        assert_eq!(output.status.code(), Some(1), "{reasons}");
        for kept in [&old, &format!("{}/", bench.path("mirrored")), &bench.path("mirrored")] {
            let reason = format!("{kept} has buddy mirroring, which this layout would take away: left as it was");
            assert!(reasons.contains(&reason), "{reason}: {reasons}");
        }
        assert_eq!((inode(&old), Path::new(&new).exists()), (before, false));
        let asked = ["info", "--getentryinfo"];
        let changes: Vec<Vec<String>> = bench
            .calls()
            .into_iter()
            .filter(|call| !call[1..3].iter().any(|word| asked.contains(&word.as_str())))
            .collect();
        assert!(changes.is_empty(), "{changes:?}");
        if without.contains(&"beegfs") {
            assert_eq!(bench.noted("asked"), [old.as_bytes(), b"\0"].concat(), "an `=` is no argument's");
        }
    }
    for (tool, reason) in [("", "does not say which pattern"), ("exit 1\n", "does not say whether")] {
        let bench = Bench::new(&[]);
        let path = bench.path("a");
        std::fs::write(&path, b"data").unwrap();
        bench.put_tool("beegfs", &format!("#!/bin/sh\n{tool}"));
        assert!(bench.said_by_failing(&script("beegfs", path)).contains(reason), "{reason}");
    }
}

/// One file, of labels that the example's disks have.
fn of_labels(labels: &str, path: &str) -> Script {
    let native = lookup("moosefs").unwrap();
    let text = native.example.replace("pool = \"H\"", &format!("pool = \"{labels}\""));
    let site = Site::parse(&text, Path::new("site.toml"), &super::file_systems()).unwrap();
    let layout = NativeLayout::whole(super::super::fit::even(&[0, 1, 2, 3], 64 << 20), Some(labels.to_owned()));
    (native.script)(&site, &[FittedFile { path: path.to_owned(), layout, mirrors: Vec::new() }])
}

#[test]
fn a_file_of_moosefs_keeps_the_copies_that_it_has() {
    const ONE: &str = "\tchunk 0: 01_01 / (id:1 ver:1)\n\t\tcopy 1: 10.91.7.1:29501 (status:VALID)\n";
    let of_3 = format!("{ONE}\tchunk 1: empty\n{ONE}\t\tcopy 2: 10.91.7.1:29502 (status:VALID)\n");
    let of_4 = of_3.replace(" (status:VALID)", " ; status:VALID");
    let refused = [
        ("H", of_3.as_str(), "has 2 copies or more, and the class stripewise_H keeps 1: left as it was"),
        ("H", &of_4, "has 2 copies or more"),
        ("2H", &format!("{of_3}\t\tcopy 3: 10.91.7.1:29503 (status:VALID)\n"), "has 3 copies or more"),
        ("H", "\tchunk 0: 01_01 / (id:1 ver:1)\n\t\tEC part DE0: 10.91.7.1:29502 ; status:VALID\n", "erasure coding"),
        ("H", "", "does not say how many copies"),
    ];
    for (labels, chunks, reason) in refused {
        let bench = Bench::new(&[]);
        let path = bench.path("two chunks\n\t\tcopy 9:");
        std::fs::write(&path, b"data").unwrap();
        bench.note("chunks", chunks.as_bytes());
        let said = bench.said_by_failing(&of_labels(labels, &path));
        assert!(said.contains(&path) && said.contains(reason), "{reason}: {said}");
        assert!(bench.calls().iter().all(|call| call[0] != "mfssetsclass"));
    }
    // Copies that its class wants and that are not there: not yet, or no longer.
    let wanted = [
        (
            "H",
            " size: 1000\n realsize:   2000\n",
            "is to have 2 copies, and the class stripewise_H keeps 1: left as it was",
        ),
        ("2H", " size: 1000\n realsize:   2250\n", "is to have 3 copies, and the class stripewise_2H keeps 2"),
        ("H", " size: 1000\n", "does not say how many copies"),
        ("H", " size: 1.0MB\n realsize: 1.0MB\n", "does not say how many copies"),
    ];
    for (labels, sizes, reason) in wanted {
        let bench = Bench::new(&[]);
        let path = bench.path("two sizes\n realsize: 1000");
        std::fs::write(&path, b"data").unwrap();
        bench.note("chunks", ONE.as_bytes());
        bench.note("sizes", sizes.as_bytes());
        let said = bench.said_by_failing(&of_labels(labels, &path));
        assert!(said.contains(&path) && said.contains(reason), "{reason}: {said}");
        assert!(bench.calls().iter().all(|call| call[0] != "mfssetsclass"));
    }
    let set =
        [("H", ONE, ""), ("2H", &of_3, ""), ("H", "\tno chunks - empty file\n", ""), ("H", &of_3, "stripewise_H")];
    for (labels, chunks, class) in set {
        let bench = Bench::new(&[]);
        let path = bench.path("a");
        std::fs::write(&path, b"data").unwrap();
        bench.note("chunks", chunks.as_bytes());
        bench.note("class", class.as_bytes());
        let calls = bench.run(&of_labels(labels, &path));
        assert_eq!(calls.last().unwrap()[..], ["mfssetsclass", &format!("stripewise_{labels}"), &path], "{chunks}");
    }
    for (labels, is_said) in [("H", true), ("2H", false), ("H,S", false)] {
        let text = String::from_utf8(of_labels(labels, "/mnt/mfs/a").text).unwrap();
        assert_eq!(text.contains("# This class keeps one copy of each chunk"), is_said, "{labels}");
    }
}

#[test]
fn a_copy_without_owner_or_mode_of_the_file_does_not_take_its_place() {
    for fs in COPYING {
        let bench = Bench::new(&[]);
        let path = bench.path("a");
        std::fs::write(&path, b"data").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let before = inode(&path);
        bench.put_tool("cp", "#!/bin/sh\nfor last in \"$@\"; do :; done\n/bin/cp \"$@\"\nchmod 604 \"$last\"\n");
        let said = bench.said_by_failing(&script(fs, path.clone()));
        assert!(
            said.contains(" 640, and its copy would have ") && said.contains(" 604: run the script as root"),
            "{fs}: {said}"
        );
        assert_eq!(inode(&path), before, "{fs}");
        // Only root can make a file another's.
        if std::os::unix::fs::chown(&path, Some(4711), Some(4712)).is_ok() {
            bench.put_tool("cp", "#!/bin/sh\nshift\nexec /bin/cp --preserve=mode,timestamps \"$@\"\n");
            let said = bench.said_by_failing(&script(fs, path.clone()));
            assert!(said.contains(&format!("{path} has owner, group and mode 4711 4712 640, and")), "{fs}: {said}");
            assert_eq!(inode(&path), before, "{fs}");
        }
    }
}

#[test]
fn a_new_file_belongs_to_the_owner_of_its_directory() {
    for fs in super::commands::ALL {
        for (user, calls) in [("0", 1), ("1000", 0)] {
            let bench = Bench::new(&[]);
            bench.put_tool("id", &format!("#!/bin/sh\necho {user}\n"));
            bench.put_tool("chown", TOOL);
            let found = bench.run(&script(fs, bench.path("a")));
            let owned: Vec<&Vec<String>> = found.iter().filter(|call| call[0] == "chown").collect();
            assert_eq!(owned.len(), calls, "{fs}: {owned:?}");
            let reference = format!("--reference={}/", bench.files().display());
            assert!(owned.iter().all(|call| call[1..3] == ["-h", &reference]), "{fs}: {owned:?}");
        }
        let bench = Bench::new(&[]);
        let path = bench.path("a");
        // Only root can.
        if std::os::unix::fs::chown(bench.files(), Some(4711), Some(4712)).is_ok() {
            bench.run(&script(fs, path.clone()));
            let made = std::fs::metadata(&path).unwrap();
            assert_eq!((made.uid(), made.gid()), (4711, 4712), "{fs}");
        }
    }
}

#[test]
fn nobody_else_reads_a_copy_while_it_is_made() {
    for fs in COPYING {
        let bench = Bench::new(&[]);
        let path = bench.path("a");
        std::fs::write(&path, b"data").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        bench.put_tool(
            "cp",
            "#!/bin/sh\nfor last in \"$@\"; do :; done\nstat -c %a \"$last\" > \"$LOG.mode\"\nexec /bin/cp \"$@\"\n",
        );
        let calls = bench.run(&script(fs, path.clone()));
        assert_eq!(bench.noted("mode"), b"600\n", "{fs}");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o644, "{fs}: in the end as it was");
        let made = calls.iter().find(|call| call.contains(&"create".to_owned()));
        assert!(made.is_none_or(|call| call.contains(&"--permissions=0600".to_owned())), "{fs}: {made:?}");
    }
}

#[test]
fn a_signal_ends_the_script_and_leaves_no_copy() {
    let shells = ["/bin/sh", "/bin/bash"].into_iter().filter(|shell| Path::new(shell).exists());
    for (shell, (signal, status)) in
        shells.flat_map(|shell| [("HUP", 129), ("INT", 130), ("TERM", 143)].map(|of| (shell, of)))
    {
        for fs in COPYING {
            let bench = Bench::new(&[]);
            let paths = ["a", "b"].map(|name| bench.path(name));
            paths.iter().for_each(|path| std::fs::write(path, b"data").unwrap());
            let before = paths.each_ref().map(|path| inode(path));
            // To the shell that copies, when the copy is there.
            let cp = format!("#!/bin/sh\n/bin/cp \"$@\"\nkill -s {signal} \"$PPID\"\n");
            bench.put_tool("cp", &cp);
            let output = bench.output_by(shell, &script_of(fs, &paths), &[]);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(status), "{shell}, {signal}, {fs}: {said}");
            assert!(said.contains("a: interrupted; this file and those after it"), "{shell}, {signal}, {fs}: {said}");
            assert_eq!(
                std::fs::read_dir(bench.files()).unwrap().count(),
                2,
                "{shell}, {signal}, {fs}: no copy is left"
            );
            assert_eq!(
                paths.each_ref().map(|path| inode(path)),
                before,
                "{shell}, {signal}, {fs}: the next one is not begun"
            );
        }
    }
}

#[test]
fn a_command_that_fails_leaves_no_file_where_there_was_none() {
    let beegfs = "#!/bin/sh\nif [ \"$2\" = info ]; then echo '+ Type: RAID0'; exit; fi\nfor last in \"$@\"; do :; done\n: > \"$last\"\nexit 1\n";
    let fails = "#!/bin/sh\necho Invalid argument >&2\nexit 1\n";
    let tools = [
        ("beegfs", "beegfs", beegfs),
        ("cephfs", "setfattr", fails),
        ("moosefs", "mfssetsclass", fails),
        ("orangefs", "setfattr", fails),
        ("orangefs", "pvfs2-touch", "#!/bin/sh\n: > \"$3\"\nexit 255\n"),
        ("orangefs", "pvfs2-viewdist", fails),
    ];
    for (fs, tool, text) in tools {
        let bench = Bench::new(&[]);
        bench.put_tool(tool, text);
        let output = bench.output_of(&script(fs, bench.path("a")), &[]);
        assert_eq!(output.status.code(), Some(1), "{fs}: {}", said(&output));
        assert_eq!(std::fs::read_dir(bench.files()).unwrap().count(), 0, "{fs}");
    }
}

/// As `pvfs2-viewdist` of OrangeFS 2.8.8 to 2.10.0 prints it.
fn shown(distribution: &str, parameters: &str, servers: &[&str]) -> String {
    let datafile = |(number, server): (usize, &&str)| {
        format!("Datafile {number} - {server}, handle: {0} ({0:016x}.bstream)\n", 3_074_457_345_618_257_578 + number)
    };
    format!(
        "dist_name = {distribution}\ndist_params:\n{parameters}\n\nMetadataserver: tcp://meta:3334\nNumber of datafiles/servers = {}\n{}",
        servers.len(),
        servers.iter().enumerate().map(datafile).collect::<String>()
    )
}

#[test]
fn a_file_of_orangefs_that_has_another_layout_than_it_shall_have_does_not_take_its_place() {
    let (name, strip, io) = ("simple_stripe", "strip_size:65536", ["tcp://io0:3334", "tcp://io1:3334"]);
    let wanted = "shall have simple_stripe strip_size:65536 tcp://io0:3334,tcp://io1:3334, and pvfs2-viewdist says ";
    let cases = [
        (shown("varstrip_dist", "strips:0:65536;1:65536", &io), "varstrip_dist tcp://io0:3334,tcp://io1:3334: left as"),
        (
            shown(name, "strip_size:655360", &io),
            "simple_stripe strip_size:655360 tcp://io0:3334,tcp://io1:3334: left as",
        ),
        (shown(name, strip, &[io[1], io[0]]), "simple_stripe strip_size:65536 tcp://io1:3334,tcp://io0:3334: left as"),
        (shown(name, strip, &io[..1]), "simple_stripe strip_size:65536 tcp://io0:3334: left as"),
        (shown(name, strip, &[io[0], io[1], ""]), "tcp://io0:3334,tcp://io1:3334,: left as"),
        ("another form\n".to_owned(), ": left as it was"),
    ];
    let run = |text: &str| {
        let bench = Bench::new(&[]);
        let path = bench.path("a");
        std::fs::write(&path, b"data").unwrap();
        let before = inode(&path);
        bench.note("shown", text.as_bytes());
        bench.put_tool("pvfs2-viewdist", "#!/bin/sh\nexec cat \"$LOG.shown\"\n");
        let output = bench.output_of(&script("orangefs", path.clone()), &[]);
        let left = std::fs::read_dir(bench.files()).unwrap().count();
        assert_eq!((std::fs::read(&path).unwrap().as_slice(), left), (b"data".as_slice(), 1));
        (said(&output), inode(&path) == before)
    };
    for (text, has) in cases {
        let (said, is_kept) = run(&text);
        assert!(is_kept && said.contains(wanted) && said.contains(has), "{has}: {said}");
    }
    assert_eq!(run(&shown(name, strip, &io)), (String::new(), false));

    let reasons =
        [("pvfs2-touch", "pvfs2-touch makes no file on tcp://io0:3334,"), ("pvfs2-viewdist", "does not say how")];
    for (tool, reason) in reasons {
        let bench = Bench::new(&[tool]);
        let path = bench.path("a");
        std::fs::write(&path, b"data").unwrap();
        let said = bench.said_by_failing(&script("orangefs", path.clone()));
        assert!(said.contains(&path) && said.contains(reason), "{tool}: {said}");
    }
}

#[test]
fn a_file_that_is_made_after_the_script_asked_is_not_replaced() {
    for fs in SETTLING {
        let bench = Bench::new(&[]);
        let path = bench.path("a");
        bench.put_tool("mktemp", &format!("#!/bin/sh\nprintf theirs > '{path}'\nexec /bin/mktemp \"$@\"\n"));
        let said = bench.said_by_failing(&script(fs, path.clone()));
        assert!(said.contains(&format!("{path} was made meanwhile")), "{fs}: {said}");
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs", "{fs}");
    }
}

#[test]
fn an_empty_file_of_cephfs_takes_its_layout_itself() {
    let bench = Bench::new(&[]);
    let path = bench.path("a");
    std::fs::write(&path, b"").unwrap();
    let before = inode(&path);
    let calls = bench.run(&script("cephfs", path.clone()));
    assert_eq!((calls[0].last(), inode(&path)), (Some(&path), before));
}

#[test]
fn a_layout_that_keeps_one_copy_is_said() {
    let remarks = |fs: &str, pool: Option<&str>, text: &str| {
        let native = lookup(fs).unwrap();
        let site = Site::parse(text, Path::new("site.toml"), &super::file_systems()).unwrap();
        let layout = NativeLayout::whole(super::super::fit::even(&[0], 64 << 20), pool.map(str::to_owned));
        (native.remarks)(&site, &[FittedFile { path: "/a".to_owned(), layout, mirrors: Vec::new() }]).join("; ")
    };
    let example = |fs: &str| lookup(fs).unwrap().example;
    let moosefs = remarks("moosefs", Some("H"), example("moosefs"));
    assert!(moosefs.contains("keep one copy of each chunk (H)") && moosefs.contains("pool = \"2H\""), "{moosefs}");
    let twice = example("moosefs").replace("pool = \"H\"", "pool = \"2H\"");
    assert_eq!(remarks("moosefs", Some("2H"), &twice), "");
    let alone = format!("{}\n[[pool]]\nname = \"on_osd8\"\ntargets = [\"osd.8\"]\n", example("cephfs"));
    assert!(remarks("cephfs", Some("on_osd8"), &alone).contains("1 of the files come into pools that keep one copy"));
    assert_eq!(remarks("cephfs", Some("cephfs_data"), example("cephfs")), "");
    assert!(remarks("beegfs", None, example("beegfs")).contains("with buddy mirroring are left as they are"));
}
