//! A state directory whose file system is full, to the last block. Shared memory of processes lies there, so this once ended every command and every
//! running program by SIGBUS. Needs a user who may mount.

use crate::driver::Driver;
use crate::support::{Place, noise, preload};
use std::process::{Command, Output};

const BINARY: &str = env!("CARGO_BIN_EXE_stripewise");
const SIGBUS: &str = "status 135";

/// File systems with 12 MiB free, by the shell line that mounts one at `m`. XFS is never as small: most of it is taken.
fn file_systems() -> impl Iterator<Item = (&'static str, String)> {
    let ext4 = "truncate -s 12m disk && mkfs.ext4 -q -m 0 disk && mount -o loop disk m";
    let xfs = "truncate -s 320m disk && mkfs.xfs -q disk && mount -o loop disk m && \
               fallocate -l $(($(df --output=avail -B1 m | tail -n 1) - 12582912)) m/taken";
    let all = [("tmpfs", "mount -t tmpfs -o size=12m,mode=755 none m"), ("ext4", ext4), ("xfs", xfs)];
    all.into_iter().filter_map(|(name, mount)| {
        let place = Place::new();
        std::fs::create_dir(place.path("m")).unwrap();
        let tried = Command::new("unshare").args(["--mount", "sh", "-c", mount]).current_dir(place.path("")).output();
        let can = tried.is_ok_and(|tried| tried.status.success());
        if !can {
            eprintln!("not tried on {name}: this user cannot mount a small one");
        }
        can.then(|| (name, mount.to_owned()))
    })
}

/// Fills the file system at `m` to the last block and the last inode's worth of room.
const FILL: &str = "head -c 64m /dev/zero > m/fill; for n in 1 2 3 4 5 6 7 8; do head -c 4096 /dev/zero >> m/fill; done; ! head -c 4096 /dev/zero > m/more; rm -f m/more";
const INIT: &str = "$S init --region 1MiB --state m/state --server a=hdd:a --server b=ssd:b >&2";

fn place() -> Place {
    preload();
    let place = Place::new();
    for name in ["a", "b", "m", "managed", "more"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    place.write("data", &noise(3 << 20));
    place
}

fn in_mounts(place: &Place, script: &str) -> Output {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).current_dir(place.path(""));
    command.env("S", BINARY).env_remove("STRIPEWISE_CLUSTER").output().unwrap()
}

/// Commands that open the cluster.
const COMMANDS: [&str; 9] = [
    "ls",
    "stat managed/file",
    "cat managed/file",
    "cp managed/file copy",
    "cp data managed/other",
    "check",
    "manage more",
    "release managed/file",
    "run -- cat managed/file",
];

fn sum_step(name: &str) -> String {
    format!("hashlib.sha256(os.pread(os.open('{name}', os.O_RDONLY), 3 << 20, 0)).hexdigest()")
}

#[test]
fn programs_go_on_while_the_state_directory_is_full_and_nothing_is_lost() {
    for (name, mount) in file_systems() {
        let place = place();
        let before = format!("S={BINARY}; {mount}; {INIT}; $S manage managed --class hdd; $S cp data managed/file");
        let mut driver = Driver::start_with_mounts(&place, &before);
        assert_eq!(driver.ask("(f := os.open('managed/file', os.O_RDWR)) >= 0"), "True", "{name}");
        let sum = driver.ask(&sum_step("managed/file"));
        assert!(driver.shell(FILL).contains("No space left"), "{name}");
        assert_eq!(driver.ask("os.pwrite(f, b'x' * 5000, 1 << 20)"), "5000", "{name}");
        assert_eq!(driver.ask("os.pread(f, 5000, 1 << 20) == b'x' * 5000"), "True", "{name}");
        // Needs space for a record, and now and then for shared memory; some there is in the table.
        for region in 3..40 {
            let said = driver.ask(&format!("os.pwrite(f, b'new', {region} << 20)"));
            assert!(["3", "ENOSPC"].contains(&said.as_str()), "{name}: {said}");
        }
        assert_eq!(driver.ask("os.open('managed/new', os.O_CREAT | os.O_WRONLY)"), "ENOSPC", "{name}");
        // More processes than have a place in the file's first page of users.
        let fork = "[os.fork() or os._exit(len(os.pread(f, 9, 0)) - 9) for _ in range(40)]";
        let ends = driver.ask(&format!("[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in {fork}]"));
        assert!(!ends.contains('-'), "{name}: a child was ended by a signal: {ends}");
        for command in COMMANDS.iter().filter(|command| !command.starts_with("release")) {
            // What it prints of files is no text.
            let said = driver.shell(&format!("{BINARY} {command} >out"));
            assert!(!said.contains(SIGBUS) && said.contains("status "), "{name}: {command}: {said}");
        }
        assert!(driver.shell("rm m/fill").contains("status 0"));
        assert_eq!(driver.ask("os.pwrite(f, b'new', 100 << 20)"), "3", "{name}");
        assert_eq!(driver.ask("os.pwrite(f, open('data', 'rb').read(), 0)"), (3 << 20).to_string(), "{name}");
        assert_eq!(driver.ask(&sum_step("managed/file")), sum, "{name}");
        assert_eq!(driver.ask("os.open('managed/new', os.O_CREAT | os.O_WRONLY) >= 0"), "True", "{name}");
        let said = driver.shell(&format!("{BINARY} check"));
        assert!(said.contains("status 0"), "{name}: {said}");
        assert!(driver.end().status.success(), "{name}");
    }
}

#[test]
fn commands_say_that_the_state_directory_is_full_and_what_to_do() {
    for (name, mount) in file_systems() {
        let place = place();
        // What a reboot leaves of `run`: all of it is to be rebuilt.
        let each =
            |command: &&str| format!("$S {command} >out 2>said; echo \"{command}: status $?: $(tail -n 1 said)\"");
        let script = format!(
            "{mount} && {INIT} && $S manage managed --class hdd && $S cp data managed/file || exit 99
             rm -rf m/state/run/*; ( {FILL} ) 2>full; grep -q \"No space left\" full || exit 97
             {}
             rm m/fill
             $S cat managed/file | cmp - data && $S check || exit 98",
            COMMANDS.iter().map(each).collect::<Vec<_>>().join("\n"),
        );
        let output = in_mounts(&place, &script);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{name}: {}: {said}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        for line in said.lines().filter(|line| line.contains(": status ")) {
            let names_all = ["m/state", "full", "free some"].iter().all(|part| line.contains(part));
            assert!(!line.contains(SIGBUS) && (line.contains("status 0") || names_all), "{name}: {line}");
        }
    }
}
