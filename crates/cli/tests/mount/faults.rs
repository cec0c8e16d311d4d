//! Processes of mounts and brokers that end, and users who may not.

use crate::bed::{Mounted, place};
use crate::driver::{Driver, kill};
use crate::support::noise;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;

#[test]
fn a_killed_mount_is_enotconn_and_mounted_again_nothing_synced_is_lost() {
    let Some(place) = place() else { return };
    let mounted = Mounted::start(&place, &[]);
    let data = noise((1 << 20) + 77);
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).open(mounted.path("file")).unwrap();
    file.write_all_at(&data, 0).unwrap();
    file.sync_all().unwrap();
    let path = mounted.path("file");
    // A call that is under way gets another error than those that come after.
    let stopped = mounted.stop();
    std::thread::scope(|scope| {
        let under_way = scope.spawn(|| file.read_at(&mut [0; 10], 0).unwrap_err());
        mounted.wait_for_requests(1);
        mounted.kill();
        let error = under_way.join().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNABORTED), "{error}");
    });
    drop(stopped);
    for error in [file.metadata().unwrap_err(), std::fs::read(&path).unwrap_err(), file.sync_all().unwrap_err()] {
        assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN), "{error}");
    }
    let mounted = Mounted::start(&place, &[]);
    assert!(std::fs::read(mounted.path("file")).unwrap() == data);
    mounted.interrupt();
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn a_mount_goes_on_when_the_broker_is_killed() {
    let Some(place) = place() else { return };
    // The first to come is the broker.
    let driver = Driver::start(&place, &[]);
    let mounted = Mounted::start(&place, &[]);
    let file = File::create(mounted.path("file")).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    kill(driver.runner());
    // A new region, and a new file, need a broker.
    file.write_all_at(b"after", 3 << 20).unwrap();
    std::fs::write(mounted.path("other"), b"made").unwrap();
    assert_eq!(file.metadata().unwrap().len(), (3 << 20) + 5);
    assert_eq!(std::fs::read(mounted.path("other")).unwrap(), b"made");
    assert!(std::fs::read(mounted.path("file")).unwrap().starts_with(b"before"));
    kill(driver.process);
    drop(file);
    mounted.interrupt();
}

#[test]
fn other_users_see_a_mount_only_on_request_and_then_what_modes_permit() {
    let Some(place) = place() else { return };
    std::fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(place.path("data"), Permissions::from_mode(0o777)).unwrap();
    let as_other = |script: &str| {
        let command = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script];
        Command::new("setpriv").args(command).current_dir(place.path("")).output().unwrap()
    };
    let mounted = Mounted::start(&place, &[]);
    std::fs::write(mounted.path("private"), b"secret").unwrap();
    std::fs::set_permissions(mounted.path("private"), Permissions::from_mode(0o600)).unwrap();
    assert!(!as_other("ls data.mount").status.success());
    // A set-user program is another user too, whoever starts it.
    // By a process of its own: a child that another test starts meanwhile would keep it busy until its `exec`.
    assert!(Command::new("cp").arg("/bin/cat").arg(place.path("setuid")).status().unwrap().success());
    std::os::unix::fs::chown(place.path("setuid"), Some(65534), None).unwrap();
    std::fs::set_permissions(place.path("setuid"), Permissions::from_mode(0o4755)).unwrap();
    let by_setuid = || Command::new(place.path("setuid")).arg(place.path("data.mount/readable")).output().unwrap();
    std::fs::write(mounted.path("readable"), b"text").unwrap();
    let refused = by_setuid();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Permission denied"), "{refused:?}");
    mounted.interrupt();
    let mounted = Mounted::start(&place, &["--allow-other"]);
    assert!(!as_other("cat data.mount/private").status.success());
    let read = by_setuid();
    assert_eq!(String::from_utf8_lossy(&read.stdout), "text", "{read:?}");
    let made = as_other(
        "umask 027 && echo mine > data.mount/mine && mkdir data.mount/directory && stat -c '%u %g %a' data.mount/mine data.mount/directory && cat data.mount/mine",
    );
    assert_eq!(String::from_utf8_lossy(&made.stdout), "65534 65534 640\n65534 65534 750\nmine\n", "{made:?}");
    assert_eq!(place.command(&["cat", "data/mine"]).output().unwrap().stdout, b"mine\n");
    // Who may not keep a set-user bit drops it by writing and by truncating.
    place.write("data/ordinary", b"program");
    std::fs::write(mounted.path("managed"), b"program").unwrap();
    for (name, script) in ["managed", "ordinary"].into_iter().flat_map(|name| [(name, ">>"), (name, ">")]) {
        std::fs::set_permissions(mounted.path(name), Permissions::from_mode(0o4777)).unwrap();
        let written = as_other(&format!("echo x {script} data.mount/{name} && stat -c %a data.mount/{name}"));
        assert_eq!(String::from_utf8_lossy(&written.stdout), "777\n", "{name} {script}: {written:?}");
    }
    mounted.interrupt();
}
