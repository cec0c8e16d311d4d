//! A mount of somebody who is not root, by `fusermount3`.

use crate::bed::{DATA, Mounted, POINT, place};
use crate::ordinary::{APPEND_BY_TURNS, APPENDED};
use crate::support::Place;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

/// A command of the user `nobody`, in the directory of the test.
fn as_user(place: &Place, words: &[&str]) -> Command {
    let own = place.command(&[""; 0]);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(words).current_dir(place.path(""));
    own.get_envs().filter(|(_, value)| value.is_none()).for_each(|(name, _)| {
        command.env_remove(name);
    });
    command
}

fn mount_command(place: &Place, words: &[&str]) -> Command {
    let program = place.command(&[""; 0]).get_program().to_str().unwrap().to_owned();
    as_user(place, &[&[&program, "mount", DATA, "--at", POINT], words].concat())
}

/// Gives this thread and what it starts a `/dev/fuse` that everybody may open, as udev makes it; not every container has it so.
fn open_device_to_all(place: &Place) {
    // SAFETY: this thread alone gets mounts of its own, and shares nothing else less than before but its working directory.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
    let script = "mount --make-rprivate / && mknod --mode=666 device c 10 229 && mount --bind device /dev/fuse";
    let made = Command::new("sh").args(["-c", script]).current_dir(place.path("")).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn root_mounts_the_cluster_of_another_as_its_owner() {
    let Some(place) = place() else { return };
    let owned = Command::new("chown").args(["-R", "65534:65534"]).arg(place.path("")).status().unwrap();
    assert!(owned.success());
    std::fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    let refused = place.say(&["mount", DATA]);
    assert!(refused.status == 2 && refused.err.contains("Repeat with --as-owner"), "{}", refused.err);
    // A link of the owner's must not lead root's mount elsewhere.
    std::fs::create_dir(place.path("roots")).unwrap();
    std::os::unix::fs::symlink("roots", place.path("link")).unwrap();
    let refused = place.say(&["mount", DATA, "--as-owner", "--at", "link"]);
    let reason = "the mount point link belongs to user 0; with --as-owner it must be user 65534's";
    assert!(refused.status == 2 && refused.err.contains(reason), "{}", refused.err);
    let mounted = Mounted::start(&place, &["--as-owner", "--allow-other"]);
    let used = as_user(&place, &["sh", "-c", "echo text > data.mount/file && cat data.mount/file"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&used.stdout), "text\n", "{used:?}");
    let script = format!("echo base > data/plain && {APPEND_BY_TURNS}");
    let appended = as_user(&place, &["sh", "-c", &script, "plain"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&appended.stdout), APPENDED, "{appended:?}");
    // Others, root included, read and write what modes permit. The process cannot give them files, so they make none.
    std::fs::write(mounted.path("file"), b"roots").unwrap();
    let script =
        "cat data.mount/file; ! true >> data.mount/file; ! true > data.mount/other; ! mkdir data.mount/directory";
    std::fs::set_permissions(place.path("data"), Permissions::from_mode(0o777)).unwrap();
    let words = ["--reuid=1", "--regid=1", "--clear-groups", "sh", "-c", script];
    let other = Command::new("setpriv").args(words).current_dir(place.path("")).output().unwrap();
    assert!(other.status.success() && other.stdout == b"roots", "{other:?}");
    let names = std::fs::read_dir(place.path("data")).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["file", "plain"]);
    mounted.interrupt();
    assert!(!place.path(POINT).exists(), "the mount point that was made is removed");
    let mounted = Mounted::start(&place, &["--as-owner"]);
    assert_eq!(std::fs::read(mounted.path("file")).unwrap_err().raw_os_error(), Some(libc::EACCES));
    mounted.interrupt();
}

/// SQLite in WAL mode by the mount, by a redirected program, and by the mount again; each while the other has the database open, and when it has closed it.
const BY_BOTH: &str = "\
import sqlite3, subprocess, sys
OTHER = '''
import sqlite3, sys
db = sqlite3.connect('data/db')
db.execute('insert into t values (2)')
db.commit()
print('done', flush=True)
sys.stdin.read()
db.close()
'''
def redirected():
    words = [sys.argv[1], 'run', '--', '/usr/bin/python3', '-c', OTHER]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
db = sqlite3.connect('data.mount/db')
db.execute('pragma journal_mode = wal')
db.execute('create table t (k)')
db.execute('insert into t values (1)')
db.commit()
refused = redirected()
_, said = refused.communicate()
assert refused.returncode and 'unable to open database file' in said, said
db.close()
other = redirected()
assert other.stdout.readline() == 'done\\n', other.communicate()
try:
    sqlite3.connect('data.mount/db').execute('select * from t').fetchall()
    sys.exit('both have it')
except sqlite3.OperationalError as error:
    assert 'unable to open database file' in str(error), error
other.communicate()
db = sqlite3.connect('data.mount/db')
assert db.execute('select k from t order by k').fetchall() == [(1,), (2,)]
assert db.execute('pragma integrity_check').fetchall() == [('ok',)]
";

/// A mount without passthrough has pages of its own of the memory that SQLite's processes share.
#[test]
fn a_mount_without_passthrough_and_redirected_programs_share_no_memory() {
    let Some(place) = place() else { return };
    let owned = Command::new("chown").args(["-R", "65534:65534"]).arg(place.path("")).status().unwrap();
    assert!(owned.success());
    std::fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    let mounted = Mounted::start(&place, &["--as-owner", "--allow-other"]);
    let program = place.command(&[""; 0]).get_program().to_str().unwrap().to_owned();
    let used = as_user(&place, &["/usr/bin/python3", "-c", BY_BOTH, &program]).output().unwrap();
    assert!(used.status.success(), "{used:?}");
    mounted.interrupt();
}

#[test]
fn an_ordinary_user_mounts_by_fusermount3_for_that_user_alone() {
    // A thread of its own: the mounts of others stay as they are.
    std::thread::spawn(mount_as_ordinary_user).join().unwrap();
}

fn mount_as_ordinary_user() {
    let Some(place) = place() else { return };
    if Command::new("fusermount3").arg("--version").output().is_err() {
        return eprintln!("SKIPPED: there is no fusermount3: setup/install installs it");
    }
    let owned = Command::new("chown").args(["-R", "65534:65534"]).arg(place.path("")).status().unwrap();
    assert!(owned.success());
    open_device_to_all(&place);
    let mounted = Mounted::start_by(mount_command(&place, &[]), place.path(POINT));
    let script = "echo text > data.mount/file && cat data.mount/file && stat -c %s data.mount/file data/file";
    let used = as_user(&place, &["sh", "-c", script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&used.stdout), "text\n5\n1021\n", "{used:?}");
    let script = format!("echo base > data/plain && {APPEND_BY_TURNS}");
    let appended = as_user(&place, &["sh", "-c", &script, "plain"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&appended.stdout), APPENDED, "{appended:?}");
    // Nobody else, root included.
    let refused = std::fs::read(mounted.path("file")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EACCES), "{refused}");
    let options = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let line = options.lines().find(|line| line.contains(mounted.path("").to_str().unwrap().trim_end_matches('/')));
    let line = line.unwrap();
    assert!(line.contains("user_id=65534") && line.contains("nosuid,nodev") && !line.contains("allow_other"), "{line}");
    mounted.interrupt();
    assert!(!place.path(POINT).exists(), "the mount point that was made is removed");
    // The helper's own way to end it.
    let mounted = Mounted::start_by(mount_command(&place, &["--read-only"]), place.path(POINT));
    let ended =
        as_user(&place, &["sh", "-c", "! echo x > data.mount/file; fusermount3 -u data.mount"]).output().unwrap();
    assert!(ended.status.success() && String::from_utf8_lossy(&ended.stderr).contains("Read-only"), "{ended:?}");
    mounted.wait();
    let permits = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if permits.lines().any(|line| line.trim() == "user_allow_other") {
        return eprintln!("SKIPPED: /etc/fuse.conf lets everybody use allow_other");
    }
    let refused = mount_command(&place, &["--allow-other"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    let reason = "allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf";
    assert!(said.contains("fusermount3 does not mount") && said.contains(reason), "{said}");
    assert!(!place.path(POINT).exists(), "nothing is mounted, and nothing was made");
    assert_eq!(place.path("data/file").metadata().unwrap().uid(), 65534);
}
