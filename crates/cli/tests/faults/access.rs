//! Nobody gets more access to a file's data than the file's mode gives: objects take over owner and mode.

use crate::driver::Driver;
use crate::support::{Place, noise, preload};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SERVERS: [&str; 4] = ["h0", "h1", "s0", "s1"];
/// Nobody on any Linux; must not be the user of the test.
const STRANGER: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

/// Mode, user and group of the file at `path`.
fn owner_and_mode(path: &Path) -> (u32, u32, u32) {
    let found = path.metadata().unwrap();
    (found.mode() & 0o7777, found.uid(), found.gid())
}

fn objects(place: &Place) -> Vec<PathBuf> {
    let files = SERVERS.iter().flat_map(|server| {
        std::fs::read_dir(place.path(server).join("stripewise-objects")).unwrap().map(|file| file.unwrap().path())
    });
    files.flat_map(|file| std::fs::read_dir(file).unwrap().map(|object| object.unwrap().path())).collect()
}

/// All objects have this mode, and the owner and group of the stub.
#[track_caller]
fn objects_have(place: &Place, stub: &str, mode: u32) {
    let (_, uid, gid) = owner_and_mode(&place.path(stub));
    let objects = objects(place);
    assert!(!objects.is_empty());
    for object in objects {
        assert_eq!(owner_and_mode(&object), (mode, uid, gid), "{}", object.display());
    }
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if !root {
        eprintln!("not tried: another user takes root");
    }
    root
}

/// Runs a command as a user who owns nothing here; the place's own directory is open to all.
fn as_stranger(place: &Place, words: &[&str]) -> Output {
    chmod(&place.path(""), 0o755);
    Command::new("setpriv").args(STRANGER).args(words).current_dir(place.path("")).output().unwrap()
}

#[test]
fn objects_take_over_mode_and_owner() {
    preload();
    for mode in [0o600, 0o640, 0o644, 0o444] {
        let place = Place::with_cluster();
        place.write("data", &noise(3 << 20));
        chmod(&place.path("data"), mode);
        if is_root() {
            std::os::unix::fs::chown(place.path("data"), Some(1234), Some(2345)).unwrap();
        }
        let before = owner_and_mode(&place.path("data"));
        place.write("plan.json", crate::plans::plan(&place, "data").to_string().as_bytes());
        place.done(&["apply", "plan.json"]);
        assert_eq!(owner_and_mode(&place.path("data")), before);
        objects_have(&place, "data", mode);
        place.done(&["release", "data"]);
        assert_eq!(owner_and_mode(&place.path("data")), before);
    }
}

#[test]
fn a_redirected_programs_umask_and_chmod_reach_the_objects() {
    let place = Place::with_cluster();
    std::fs::create_dir(place.path("out")).unwrap();
    place.done(&["manage", "out"]);
    let mut driver = Driver::start(&place, &[]);
    assert!(!driver.ask("os.umask(0o027)").is_empty());
    assert_eq!(driver.ask("(f := os.open('out/new', os.O_RDWR | os.O_CREAT, 0o666)) >= 0"), "True");
    assert_eq!(driver.ask("os.write(f, b'x' * 300000)"), "300000");
    objects_have(&place, "out/new", 0o640);
    assert_eq!(driver.ask("os.fchmod(f, 0o600)"), "None");
    objects_have(&place, "out/new", 0o600);
    assert_eq!(driver.ask("os.chmod('out/new', 0o664)"), "None");
    objects_have(&place, "out/new", 0o664);
    // Regions placed later take the mode of then.
    assert_eq!(driver.ask("os.pwrite(f, b'y' * 300000, 5 << 20)"), "300000");
    objects_have(&place, "out/new", 0o664);
    assert_eq!(driver.ask("oct(os.fstat(f).st_mode)"), "0o100664");
    if is_root() {
        assert_eq!(driver.ask("os.chown('out/new', 1234, 2345)"), "None");
        objects_have(&place, "out/new", 0o664);
        assert_eq!(owner_and_mode(&place.path("out/new")), (0o664, 1234, 2345));
    }
    assert!(driver.end().status.success());
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn a_chmod_that_was_not_redirected_is_found_and_followed() {
    let place = Place::with_cluster();
    place.write("data", &noise(1 << 20));
    chmod(&place.path("data"), 0o644);
    place.done(&["cp", "--managed", "data", "managed"]);
    chmod(&place.path("managed"), 0o600);
    let found = place.say(&["check"]);
    if found.status == 1 {
        assert!(found.out.contains("mode or owner of HERE/managed changed"), "{}", found.out);
        assert_eq!(place.say(&["check", "--repair"]).status, 0);
    }
    objects_have(&place, "managed", 0o600);
}

#[test]
fn a_stranger_reads_nothing_of_a_private_file() {
    if !is_root() {
        return;
    }
    preload();
    let place = Place::with_cluster();
    let secret = noise(3 << 20);
    place.write("data", &secret);
    chmod(&place.path("data"), 0o600);
    place.done(&["cp", "--managed", "data", "managed"]);
    chmod(&place.path("managed"), 0o600);
    place.done(&["check", "--repair"]);
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_stripewise"));
    // Where the stranger can read it, wherever the build lies.
    let library = place.path("libstripewise_preload.so");
    std::fs::copy(binary.with_file_name("libstripewise_preload.so"), &library).unwrap();
    // The broker is root's; the stranger's programs talk to it, and its files are refused to them.
    let mut driver = Driver::start(&place, &[]);
    assert_eq!(driver.ask("len(open('managed', 'rb').read())"), secret.len().to_string());
    let preloaded = format!("LD_PRELOAD={}", library.display());
    let state = format!("STRIPEWISE_STATE={}", place.path("stripewise-state").display());
    let bare = as_stranger(&place, &["cat", "managed"]);
    let redirected = as_stranger(&place, &["env", &preloaded, &state, "cat", "managed"]);
    for read in [bare, redirected] {
        assert!(!read.status.success() && read.stdout.is_empty());
        let said = String::from_utf8_lossy(&read.stderr);
        assert!(said.contains("Permission denied"), "{said}");
    }
    for object in objects(&place) {
        let read = as_stranger(&place, &["cat", object.to_str().unwrap()]);
        assert!(!read.status.success() && read.stdout.is_empty(), "{}", object.display());
        assert!(String::from_utf8_lossy(&read.stderr).contains("Permission denied"));
    }
    for server in SERVERS {
        let listed = as_stranger(&place, &["ls", place.path(server).join("stripewise-objects").to_str().unwrap()]);
        assert!(!listed.status.success() && listed.stdout.is_empty(), "objects of {server} can be listed");
    }
    // Neither the table nor the memory that programs share, nor the broker.
    assert_eq!(owner_and_mode(&place.path("stripewise-state")).0, 0o700);
    for name in ["rmt/data.mdb", "run/.", "run/broker.sock", "log"] {
        let path = place.path("stripewise-state").join(name);
        assert!(path.exists(), "{name}");
        let looked = as_stranger(&place, &["stat", path.to_str().unwrap()]);
        assert!(!looked.status.success() && looked.stdout.is_empty(), "{name}");
    }
    // Unlink needs the directory, not the file; a stranger has neither.
    let removed = as_stranger(&place, &["env", &preloaded, &state, "rm", "-f", "managed"]);
    assert!(!removed.status.success());
    assert_eq!(driver.ask("len(open('managed', 'rb').read())"), secret.len().to_string());
    assert!(driver.end().status.success());
}
