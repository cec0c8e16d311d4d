//! Scripts run by `/bin/sh` with stand-ins for the file systems' tools, which note what they are called with.

use super::super::{FittedFile, NativeLayout, Script};
use super::{example, fitted, lookup, placements};
use std::io::Write as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use stripewise_layout::text::{bytes_of, lossless};
use stripewise_layout::{ByteCount, Layout, Placement, ServerId};

/// Tools that scripts call. Those that make files do so; all note their words.
const TOOLS: [&str; 13] = [
    "lfs",
    "beegfs",
    "beegfs-ctl",
    "setfattr",
    "mfsscadmin",
    "mfscreatesclass",
    "mfslistsclass",
    "mfssetsclass",
    "mfsgetsclass",
    "mfsfileinfo",
    "mfsdirinfo",
    "pvfs2-touch",
    "pvfs2-viewdist",
];

/// What scripts call of a system; nothing else of it is found.
const SYSTEM: [&str; 14] =
    ["mktemp", "stat", "cat", "cp", "cmp", "sync", "mv", "rm", "rmdir", "grep", "sh", "chmod", "chown", "id"];

pub(super) const TOOL: &str = r#"#!/bin/sh
printf '%s\0' $(($# + 1)) "${0##*/}" "$@" >> "$LOG"
case "${0##*/} $1 ${2-}" in
    "beegfs entry info" | "beegfs-ctl --getentryinfo "*)
        if [ "$2" = --null ]; then cat >> "$LOG.asked"; fi
        pattern=RAID0
        [ ! -e "$LOG.mirrored" ] || pattern="Buddy Mirror"
        printf 'Entry type: x\nStripe pattern details:\n+ Type: %s  \n+ Chunksize: 512K\n' "$pattern"
        ;;
    "mfsgetsclass "*) printf "%s: '%s'\n" "$1" "$([ ! -e "$LOG.class" ] || cat "$LOG.class")" ;;
    "mfsfileinfo "*)
        printf '%s:\n' "$1"
        if [ -e "$LOG.chunks" ]; then cat "$LOG.chunks"; else printf '\tno chunks - empty file\n'; fi
        ;;
    "mfsdirinfo -n "*)
        printf '%s:\n' "$2"
        if [ -e "$LOG.sizes" ]; then cat "$LOG.sizes"; else printf ' length: 3\n size:       1000\n realsize:       1000\n'; fi
        ;;
    "setfattr -n user.pvfs2."*)
        # As setfattr decodes it, and as OrangeFS 2.10 takes it.
        case $4 in '"'*'\000"') ;; *) exit 1 ;; esac
        value=${4#?}
        printf %s "${value%????\"}" > "$LOG.${2##*.}"
        printf %s "$5" > "$LOG.${2##*.}.of"
        ;;
    "pvfs2-touch -l "*)
        for attribute in dist_name dist_params num_dfiles; do
            [ "$(cat "$LOG.$attribute.of")" = "${3%/*}" ] || exit 255
        done
        servers=0
        for server in $(IFS=,; echo $2); do servers=$((servers + 1)); done
        [ "$(cat "$LOG.num_dfiles")" -ge "$servers" ] && [ ! -e "$3" ] || exit 255
        : > "$3"
        printf %s "$2" > "$LOG.servers"
        printf %s "$servers" > "$LOG.count"
        ;;
    "pvfs2-viewdist -f "*)
        printf 'dist_name = %s\ndist_params:\n%s\n\n' "$(cat "$LOG.dist_name")" "$(cat "$LOG.dist_params")"
        printf 'Metadataserver: tcp://meta:3334\nNumber of datafiles/servers = %s\n' "$(cat "$LOG.count")"
        number=0
        for server in $(IFS=,; echo $(cat "$LOG.servers")); do
            printf 'Datafile %s - %s, handle: 3074457345618258602 (2aaaaaaaaaaaaaaa.bstream)\n' "$number" "$server"
            number=$((number + 1))
        done
        ;;
    "lfs getstripe "*) [ ! -e "$LOG.copies" ] || echo 2 ;;
    "lfs mirror extend") : > "$LOG.copies" ;;
    beegfs\ * | beegfs-ctl\ * | lfs\ *)
        for last in "$@"; do :; done
        [ -d "$last" ] || : >> "$last"
        ;;
esac
"#;

/// Prints what stands in a file, and fails if that is an error.
const GETFATTR: &str = r#"#!/bin/sh
[ -e "$LOG.attributes" ] || exit 0
while read -r line; do
    printf '%s\n' "$line"
    case $line in getfattr:*) exit 1 ;; esac
done < "$LOG.attributes"
"#;

/// A directory with the tools, and one for files.
pub(super) struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    pub(super) fn new(without: &[&str]) -> Self {
        let bench = Self { directory: tempfile::tempdir().unwrap() };
        std::fs::create_dir(bench.directory.path().join("files")).unwrap();
        std::fs::create_dir(bench.directory.path().join("tools")).unwrap();
        for tool in TOOLS.iter().filter(|tool| !without.contains(tool)) {
            bench.put_tool(tool, TOOL);
        }
        if !without.contains(&"getfattr") {
            bench.put_tool("getfattr", GETFATTR);
        }
        for tool in SYSTEM {
            let found =
                ["/usr/bin", "/bin"].map(|place| Path::new(place).join(tool)).into_iter().find(|path| path.exists());
            let link = bench.directory.path().join("tools").join(tool);
            std::os::unix::fs::symlink(found.unwrap_or_else(|| panic!("no {tool}")), link).unwrap();
        }
        bench
    }

    /// A tool of that name, whatever was there.
    pub(super) fn put_tool(&self, name: &str, text: &str) {
        let path = self.directory.path().join("tools").join(name);
        // One of the system is a link: what it leads to is to stay.
        _ = std::fs::remove_file(&path);
        // Written by a process of its own: a child that another test starts meanwhile would keep it busy until its `exec`.
        let mut writing = Command::new("tee").arg(&path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        writing.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(writing.wait().unwrap().success());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.files().join(name).to_str().unwrap().to_owned()
    }

    pub(super) fn files(&self) -> PathBuf {
        self.directory.path().join("files")
    }

    fn output(&self, script: &Script) -> Output {
        self.output_of(script, &[])
    }

    pub(super) fn output_of(&self, script: &Script, arguments: &[&str]) -> Output {
        self.output_by("/bin/sh", script, arguments)
    }

    pub(super) fn output_by(&self, shell: &str, script: &Script, arguments: &[&str]) -> Output {
        let path = self.directory.path().join("script");
        std::fs::write(&path, &script.text).unwrap();
        let tools = self.directory.path().join("tools");
        // As from a terminal, wherever the tests run: a shell cannot trap what was ignored when it began.
        Command::new("/usr/bin/env")
            .args(["--default-signal", shell])
            .arg(&path)
            .args(arguments)
            .env("PATH", tools)
            .env("LOG", self.directory.path().join("log"))
            .output()
            .unwrap()
    }

    /// What the script says that fails on the one file there is.
    pub(super) fn said_by_failing(&self, script: &Script) -> String {
        let output = self.output(script);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(std::fs::read_dir(self.files()).unwrap().count(), 1, "nothing else is left: {said}");
        said
    }

    /// A file that tools read as `$LOG.NAME`.
    pub(super) fn note(&self, name: &str, text: &[u8]) {
        std::fs::write(self.directory.path().join(format!("log.{name}")), text).unwrap();
    }

    /// What tools wrote to `$LOG.NAME`.
    pub(super) fn noted(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.directory.path().join(format!("log.{name}"))).unwrap()
    }

    /// The words of each call of a tool.
    pub(super) fn run(&self, script: &Script) -> Vec<Vec<String>> {
        let output = self.output(script);
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{output:?}\n{}",
            String::from_utf8_lossy(&script.text)
        );
        self.calls()
    }

    pub(super) fn calls(&self) -> Vec<Vec<String>> {
        let log = std::fs::read(self.directory.path().join("log")).unwrap();
        let mut words = log.strip_suffix(b"\0").unwrap().split(|byte| *byte == 0).map(lossless);
        let mut calls = Vec::new();
        while let Some(count) = words.next() {
            calls.push(words.by_ref().take(count.parse().unwrap()).collect());
        }
        calls
    }
}

/// One file on two targets.
pub(super) fn script(fs: &str, path: String) -> Script {
    script_of(fs, &[path])
}

pub(super) fn script_of(fs: &str, paths: &[String]) -> Script {
    let native = lookup(fs).unwrap();
    let (site, _) = example(native);
    let layout = Layout::new([(ServerId(0), 65536), (ServerId(1), 65536)]).unwrap();
    let placement = Placement::uniform(ByteCount(1 << 20), layout.clone(), layout);
    let placement = Placement { runs: vec![stripewise_layout::Run { regions: 2, layout: 0 }], ..placement };
    let layout = fitted(native, &site, &placement);
    let file = |path: &String| FittedFile { path: path.clone(), layout: layout.clone(), mirrors: Vec::new() };
    (native.script)(&site, &paths.iter().map(file).collect::<Vec<_>>())
}

pub(super) const ALL: [&str; 5] = ["lustre", "beegfs", "cephfs", "moosefs", "orangefs"];

#[test]
fn where_one_file_fails_the_others_are_laid_out_and_the_script_fails() {
    for fs in ALL {
        let bench = Bench::new(&[]);
        let (lost, good) = (bench.path("no directory/a"), bench.path("b"));
        let output = bench.output(&script_of(fs, &[lost.clone(), good.clone()]));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{fs}: {said}");
        assert!(said.contains(&format!("{lost}: its directory does not exist; make it first")), "{fs}: {said}");
        assert!(said.ends_with("1 of the files do not have their layout\n"), "{fs}: {said}");
        assert!(Path::new(&good).exists(), "{fs}");
    }
}

#[test]
fn files_whose_names_are_not_utf_8_are_those_that_are_laid_out() {
    let name = b"\xff\xfe \\x41 it's \n\\";
    for fs in ALL {
        let bench = Bench::new(&[]);
        let path = bench.path(&lossless(name));
        let on_disk = PathBuf::from(std::ffi::OsString::from_vec(bytes_of(&path)));
        std::fs::write(&on_disk, b"data").unwrap();
        let calls = bench.run(&script(fs, path.clone()));
        assert!(matches!(fs, "beegfs" | "cephfs" | "orangefs") || calls.iter().flatten().any(|word| *word == path));
        let left: Vec<PathBuf> = std::fs::read_dir(bench.files()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [on_disk.as_path()], "{fs}: no other file is made");
        assert_eq!(std::fs::read(&on_disk).unwrap(), b"data");
    }
}

#[test]
fn a_file_without_a_path_gets_no_command_but_a_comment_that_waits_for_it() {
    for fs in ALL {
        let bench = Bench::new(&[]);
        let names = ["3872016472", "darshan-7\ntouch 'oops'\n", "/with\\x00nul", ""].map(str::to_owned);
        let script = script_of(fs, &names);
        let output = bench.output(&script);
        assert!(output.status.success() && output.stderr.is_empty(), "{fs}: {output:?}");
        let text = String::from_utf8(script.text.clone()).unwrap();
        assert!(text.contains("# `3872016472` is no path"), "{fs}: {text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("# layout FILE ")).count(), names.len(), "{fs}: {text}");
        assert_eq!(std::fs::read_dir(bench.files()).unwrap().count(), 0, "{fs}");
        // With the path filled in, it is a command as any other.
        let path = bench.path("found");
        let filled = text.replacen("# layout FILE ", &format!("layout {path} "), 1);
        bench.run(&Script { text: filled.into_bytes(), files: Vec::new() });
        assert!(Path::new(&path).exists(), "{fs}");
    }
}

#[test]
fn a_second_run_adds_no_further_copies() {
    let bench = Bench::new(&[]);
    let native = lookup("lustre").unwrap();
    let (site, _) = example(native);
    let layout = NativeLayout::whole(super::super::fit::even(&[2, 0], 65536), None);
    let path = bench.path("a");
    let file = FittedFile { path: path.clone(), layout: layout.clone(), mirrors: vec![layout; 2] };
    let script = (native.script)(&site, &[file]);
    let extended = |calls: Vec<Vec<String>>| calls.iter().filter(|call| call[1] == "mirror").count();
    assert_eq!(extended(bench.run(&script)), 2);
    let output = bench.output(&script);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("{path} has 2 copies (mirrors): left as it is")), "{said}");
    assert_eq!(extended(bench.calls()), 2, "none is added");
}

#[test]
fn what_is_left_of_a_copy_that_fails_is_removed() {
    for fs in ["beegfs", "cephfs", "orangefs"] {
        let bench = Bench::new(&[]);
        let path = bench.path("a");
        std::fs::write(&path, b"data").unwrap();
        bench.put_tool("cp", "#!/bin/sh\nexit 1\n");
        let output = bench.output(&script(fs, path.clone()));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("cannot be copied: left as it was"), "{fs}: {said}");
        assert_eq!(std::fs::read_dir(bench.files()).unwrap().count(), 1, "{fs}");
    }
}

#[test]
fn a_copy_takes_the_place_of_a_file_only_after_it_was_synced() {
    for fs in ["beegfs", "cephfs", "orangefs"] {
        let bench = Bench::new(&[]);
        let path = bench.path("a");
        std::fs::write(&path, b"data").unwrap();
        let before = std::fs::metadata(&path).unwrap().ino();
        // A device that is full when the cache is written back.
        bench.put_tool("sync", "#!/bin/sh\n/bin/cp \"$1\" \"$LOG.synced\"\nexit 1\n");
        let said = bench.said_by_failing(&script(fs, path.clone()));
        assert!(said.contains("cannot be copied: left as it was"), "{fs}: {said}");
        assert_eq!(std::fs::read(bench.directory.path().join("log.synced")).unwrap(), b"data", "{fs}: the whole copy");
        assert_eq!(std::fs::read(&path).unwrap(), b"data", "{fs}");
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), before, "{fs}");
    }
}

#[test]
fn a_file_with_attributes_that_a_copy_would_lose_is_left_as_it_was() {
    let header = |path: &str| format!("# file: {path}\n");
    for fs in ["beegfs", "cephfs", "orangefs"] {
        let bench = Bench::new(&[]);
        let path = bench.path("a");
        std::fs::write(&path, b"data").unwrap();
        let before = std::fs::metadata(&path).unwrap().ino();
        let attributes = bench.directory.path().join("log.attributes");
        let script = script(fs, path.clone());
        for (found, reason) in [
            (header(&path) + "user.checksum\n", "has extended attributes (user.*), which a copy would lose"),
            (header(&path) + "user.pvfs2.num_dfiles\nuser.note\n", "has extended attributes (user.*)"),
            (format!("getfattr: {path}: Input/output error\n"), "attributes cannot be read (getfattr: "),
        ] {
            std::fs::write(&attributes, found).unwrap();
            let said = bench.said_by_failing(&script);
            assert!(said.contains(&path) && said.contains(reason), "{fs}: {said}");
            assert_eq!(std::fs::metadata(&path).unwrap().ino(), before, "{fs}");
        }
        // What OrangeFS shows of layouts, and a file system that has none.
        for found in [header(&path) + "user.pvfs2.num_dfiles\n", format!("getfattr: {path}: Operation not supported\n")]
        {
            std::fs::write(&attributes, found).unwrap();
            let before = std::fs::metadata(&path).unwrap().ino();
            bench.run(&script);
            assert_ne!(std::fs::metadata(&path).unwrap().ino(), before, "{fs}: copied");
        }

        let bench = Bench::new(&["getfattr"]);
        let path = bench.path("a");
        std::fs::write(&path, b"data").unwrap();
        let said = bench.said_by_failing(&self::script(fs, path));
        assert!(said.contains("no getfattr says whether"), "{fs}: {said}");
    }
}

#[test]
fn a_new_file_takes_no_name_that_somebody_else_has_by_then() {
    for fs in ["beegfs", "cephfs", "moosefs", "orangefs"] {
        let bench = Bench::new(&[]);
        let path = bench.path("a");
        // Somebody is faster.
        let overtaken = "#!/bin/sh\nfor last in \"$@\"; do :; done\nprintf theirs > \"$last\"\nexec /bin/mv \"$@\"\n";
        bench.put_tool("mv", overtaken);
        let said = bench.said_by_failing(&script(fs, path.clone()));
        assert!(said.contains(&format!("{path} was made meanwhile")), "{fs}: {said}");
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs", "{fs}");

        let bench = Bench::new(&[]);
        let path = bench.path("a");
        std::os::unix::fs::symlink(bench.path("nowhere"), &path).unwrap();
        let said = bench.said_by_failing(&script(fs, path.clone()));
        assert!(said.contains("symbolic link that leads nowhere"), "{fs}: {said}");
        assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink(), "{fs}");
    }
}

#[test]
fn existing_files_are_copied_with_their_bytes_and_mode_and_nothing_is_left_behind() {
    for fs in ["beegfs", "cephfs", "orangefs"] {
        let bench = Bench::new(&[]);
        let path = bench.path("it's a \"file\"\nof $HOME");
        let bytes: Vec<u8> = (0..300_000u32).map(|at| (at * 7 % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let before = std::fs::metadata(&path).unwrap();
        let commands = bench.run(&script(fs, path.clone()));
        let after = std::fs::metadata(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{fs}");
        assert_eq!((after.mode(), after.mtime()), (before.mode(), before.mtime()), "{fs}");
        assert_ne!(after.ino(), before.ino(), "{fs}: a new file has the layout");
        assert_eq!(std::fs::read_dir(bench.files()).unwrap().count(), 1, "{fs}");
        let asks = |call: &&Vec<String>| call[1..3] == ["entry", "info"];
        let mut words = commands.iter().filter(|call| !asks(call)).flatten();
        assert!(words.all(|word| *word != path), "{fs}: nothing is set on the file itself");
    }
}

#[test]
fn files_with_several_names_and_links_are_left_as_they_are() {
    for fs in ["beegfs", "cephfs", "orangefs"] {
        let bench = Bench::new(&[]);
        let (path, other) = (bench.path("a"), bench.path("b"));
        std::fs::write(&path, b"data").unwrap();
        std::fs::hard_link(&path, &other).unwrap();
        let output = bench.output(&script(fs, path.clone()));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(&path) && said.contains("several names"), "{fs}: {said}");
        std::fs::remove_file(&other).unwrap();
        std::os::unix::fs::symlink(&path, &other).unwrap();
        let output = bench.output(&script(fs, other.clone()));
        assert!(!output.status.success(), "{fs}");
        assert!(
            std::fs::symlink_metadata(&other).unwrap().is_symlink() && std::fs::read(&path).unwrap() == b"data",
            "{fs}"
        );
    }
}

#[test]
fn a_file_that_changes_while_it_is_copied_is_left_as_it_was() {
    for fs in ["beegfs", "cephfs", "orangefs"] {
        let bench = Bench::new(&[]);
        let path = bench.path("a");
        std::fs::write(&path, b"before").unwrap();
        // `cp` that somebody overtakes.
        bench.put_tool("cp", &format!("#!/bin/sh\n/bin/cp \"$@\"\nprintf x >> '{path}'\n"));
        let output = bench.output(&script(fs, path.clone()));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("written to while it was copied"), "{fs}: {said}");
        assert_eq!(std::fs::read(&path).unwrap(), b"beforex");
        assert_eq!(std::fs::read_dir(bench.files()).unwrap().count(), 1, "{fs}");
    }
}

#[test]
fn beegfs_7_is_called_where_there_is_no_beegfs_8_and_sees_no_equals_sign() {
    let bench = Bench::new(&["beegfs"]);
    let native = lookup("beegfs").unwrap();
    let (site, _) = example(native);
    let layout = NativeLayout::whole(super::super::fit::even(&[2, 0], 65536), None);
    let paths = [bench.path("new = file"), bench.path("old = file")];
    std::fs::write(&paths[1], b"data").unwrap();
    let file = |path: &String| FittedFile { path: path.clone(), layout: layout.clone(), mirrors: Vec::new() };
    let script = (native.script)(&site, &paths.each_ref().map(file));
    let commands = bench.run(&script);
    let read = (native.read_back)(&site, &commands, &script).unwrap();
    assert_eq!(read.iter().map(|(_, read)| read).collect::<Vec<_>>(), [&layout; 2]);
    assert_eq!(paths.each_ref().map(|path| std::fs::read(path).unwrap()), [b"".as_slice(), b"data"]);
    assert_eq!(std::fs::read_dir(bench.files()).unwrap().count(), 2);
}

#[test]
fn new_files_of_a_directory_get_its_files_pattern_where_that_is_asked_for() {
    let native = lookup("beegfs").unwrap();
    let (site, _) = example(native);
    let layout = |targets: &[usize], chunk| NativeLayout::whole(super::super::fit::even(targets, chunk), None);
    for without in [&[][..], &["beegfs"]] {
        let bench = Bench::new(without);
        for directory in ["hot = 1", "mixed"] {
            std::fs::create_dir(bench.path(directory)).unwrap();
        }
        let file = |name: &str, layout| FittedFile { path: bench.path(name), layout, mirrors: Vec::new() };
        // 4 and 5 are the flash; 0 and 4 are of no one pool.
        let script = (native.script)(
            &site,
            &[
                file("hot = 1/a", layout(&[4, 5], 65536)),
                file("hot = 1/b", layout(&[5, 4], 65536)),
                file("mixed/a", layout(&[4, 5], 65536)),
                file("mixed/b", layout(&[4], 65536)),
                file("c", layout(&[0, 4], 65536)),
            ],
        );
        bench.run(&script);
        let before = bench.calls().len();
        let output = bench.output_of(&script, &["directories"]);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let (hot, calls) = (bench.path("hot = 1"), bench.calls());
        let set: Vec<&Vec<String>> =
            calls.iter().filter(|call| call[1..3].iter().any(|word| word == "set" || word == "--setpattern")).collect();
        let expected: &[&str] = match without {
            [] => &["beegfs", "entry", "set", "--pool=2", "--num-targets=2", "--chunk-size=65536", &hot],
            _ => &[
                "beegfs-ctl",
                "--setpattern",
                "--pattern=raid0",
                "--storagepoolid=2",
                "--numtargets=2",
                "--chunksize=65536",
                ".",
            ],
        };
        assert_eq!(set, [expected], "once, and not by the first run, which made {before} calls");
    }
}

#[test]
fn moosefs_4_is_called_where_there_is_no_moosefs_3() {
    let native = lookup("moosefs").unwrap();
    let (site, _) = example(native);
    for (without, tool) in [("mfscreatesclass", "mfsscadmin"), ("mfsscadmin", "mfscreatesclass")] {
        let bench = Bench::new(&[without]);
        let script = script("moosefs", bench.path("a"));
        let commands = bench.run(&script);
        assert!(commands.iter().any(|command| command[0] == tool), "{commands:?}");
        assert_eq!((native.read_back)(&site, &commands, &script).unwrap().len(), 1);
    }
}

#[test]
fn an_existing_file_on_lustre_is_migrated() {
    let bench = Bench::new(&[]);
    let path = bench.path("a");
    std::fs::write(&path, b"data").unwrap();
    let commands = bench.run(&script("lustre", path.clone()));
    assert_eq!(commands[0], ["lfs", "getstripe", "-N", &path].map(str::to_owned));
    assert_eq!(commands[1..], [["lfs", "migrate", "-S", "65536", "-p", "disk", "-o", "0,1", &path].map(str::to_owned)]);
}

#[test]
fn placements_have_regions() {
    // The strategy of the property tests gives what plans have.
    use proptest::strategy::{Strategy as _, ValueTree as _};
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..50 {
        let placement = placements(6, 4096).new_tree(&mut runner).unwrap().current();
        assert_eq!(placement.check(6), Ok(()));
    }
}
