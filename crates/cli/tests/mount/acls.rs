//! ACLs on a mount: the kernel permits by them, and new files take those of their directory over.

use crate::bed::{Mounted, place};
use crate::support::Place;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::fs::{Metadata, OpenOptions, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const OTHER: u32 = 65534;

/// Rights of the owner, of the group and of the others, and perhaps of the user [`OTHER`].
struct Acl {
    classes: [u16; 3],
    of_other: Option<u16>,
}

impl Acl {
    /// As the attribute has it (`struct posix_acl_xattr_header`); the mask lets all of the group's class pass.
    fn to_bytes(&self) -> Vec<u8> {
        let [owner, group, others] = self.classes;
        let entry = |tag: u16, rights: u16, id: u32| {
            [tag.to_le_bytes().as_slice(), &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let mut bytes = [2u32.to_le_bytes().as_slice(), &entry(0x01, owner, none)].concat();
        bytes.extend(self.of_other.iter().flat_map(|rights| entry(0x02, *rights, OTHER)));
        bytes.extend(entry(0x04, group, none));
        bytes.extend(self.of_other.iter().flat_map(|rights| entry(0x10, group | rights, none)));
        bytes.extend(entry(0x20, others, none));
        bytes
    }

    fn set(&self, path: impl AsRef<Path>, name: &str) -> rustix::io::Result<()> {
        rustix::fs::setxattr(path.as_ref(), name, &self.to_bytes(), XattrFlags::empty())
    }
}

/// A cluster that everybody may use, on a file system that has ACLs.
fn open_place() -> Option<Place> {
    let place = place()?;
    std::fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(place.path("data"), Permissions::from_mode(0o777)).unwrap();
    place.write("probe", b"");
    let set = Acl { classes: [6, 4, 4], of_other: Some(6) }.set(place.path("probe"), ACCESS);
    if set == Err(Errno::OPNOTSUPP) {
        eprintln!("SKIPPED: the file system of the test's directory has no ACLs");
        return None;
    }
    set.unwrap();
    Some(place)
}

fn as_other(place: &Place, words: &[&str]) -> Output {
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    Command::new("setpriv").args(user).args(words).current_dir(place.path("")).output().unwrap()
}

/// The errno with which the other user sets the ACL (0: it is set), or removes it.
fn errno_of_other(place: &Place, path: &str, acl: Option<Acl>) -> i32 {
    let script = r#"
import os, sys
try:
    os.setxattr(sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3])) if sys.argv[3] else os.removexattr(*sys.argv[1:3])
    print(0)
except OSError as error:
    print(error.errno)
"#;
    let bytes = acl.map_or(Vec::new(), |acl| acl.to_bytes());
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let said = as_other(place, &["/usr/bin/python3", "-c", script, path, ACCESS, &digits]);
    String::from_utf8_lossy(&said.stdout).trim().parse().unwrap_or_else(|_| panic!("{said:?}"))
}

#[test]
fn acls_permit_and_refuse_on_a_mount_what_they_do_without_and_their_owner_alone_sets_them() {
    let Some(place) = open_place() else { return };
    let mounted = Mounted::start(&place, &["--allow-other"]);
    place.write("data/ordinary", b"text");
    std::fs::write(mounted.path("managed"), b"text").unwrap();
    let may = |name: &str| {
        ["cat", "tee -a"].map(|program| {
            let script = format!("{program} data.mount/{name} < /dev/null");
            as_other(&place, &["sh", "-c", &script]).status.success()
        })
    };
    for name in ["managed", "ordinary"] {
        std::fs::set_permissions(mounted.path(name), Permissions::from_mode(0o666)).unwrap();
        assert_eq!(may(name), [true, true], "{name}");
        Acl { classes: [6, 6, 6], of_other: Some(0) }.set(mounted.path(name), ACCESS).unwrap();
        assert_eq!(may(name), [false, false], "{name}");
        Acl { classes: [6, 0, 0], of_other: Some(4) }.set(mounted.path(name), ACCESS).unwrap();
        assert_eq!(may(name), [true, false], "{name}");
        // The mask is the mode's, whoever sets it.
        assert_eq!(mounted.path(name).metadata().unwrap().mode() & 0o777, 0o640, "{name}");
        std::fs::set_permissions(mounted.path(name), Permissions::from_mode(0o600)).unwrap();
        assert_eq!(may(name), [false, false], "{name}");
        // Past the mount too.
        Acl { classes: [6, 0, 0], of_other: Some(6) }.set(place.path("data").join(name), ACCESS).unwrap();
        assert_eq!(may(name), [true, true], "{name}");
        let path = format!("data.mount/{name}");
        assert_eq!(errno_of_other(&place, &path, Some(Acl { classes: [6, 6, 6], of_other: Some(6) })), libc::EPERM);
        assert_eq!(errno_of_other(&place, &path, None), libc::EPERM);
        rustix::fs::removexattr(mounted.path(name), ACCESS).unwrap();
        assert_eq!(mounted.path(name).metadata().unwrap().mode() & 0o777, 0o660, "{name}");
        assert_eq!(may(name), [false, false], "{name}");
    }
    let made = as_other(&place, &["sh", "-c", "umask 077 && echo own > data.mount/own"]);
    assert!(made.status.success(), "{made:?}");
    assert_eq!(errno_of_other(&place, "data.mount/own", Some(Acl { classes: [6, 4, 4], of_other: Some(6) })), 0);
    assert_eq!(place.path("data/own").metadata().unwrap().mode() & 0o777, 0o664);
    let mut value = [0; 256];
    let length = rustix::fs::getxattr(place.path("data/own"), ACCESS, &mut value).unwrap();
    assert_eq!(value[..length], Acl { classes: [6, 4, 4], of_other: Some(6) }.to_bytes());
    mounted.interrupt();
    let checked = place.say(&["check"]);
    assert_eq!(checked.status, 0, "{}{}", checked.out, checked.err);
}

#[test]
fn new_files_have_the_same_mode_on_a_mount_and_without_where_a_default_acl_takes_the_place_of_the_mask() {
    let Some(place) = open_place() else { return };
    let mounted = Mounted::start(&place, &["--allow-other"]);
    let script = "umask 027 && cd $0 && echo text > $1-file && mkdir $1-directory && mkfifo $1-fifo && stat -c %a $1-*";
    for (name, mode, has_default, expected) in [
        ("plain", 0o777, false, "750\n640\n640\n"),
        ("of-group", 0o2777, false, "2750\n640\n640\n"),
        ("default", 0o777, true, "770\n660\n660\n"),
        // The bit goes over to new directories, and widens nothing.
        ("default-of-group", 0o2777, true, "2770\n660\n660\n"),
    ] {
        std::fs::create_dir(mounted.path(name)).unwrap();
        std::fs::set_permissions(mounted.path(name), Permissions::from_mode(mode)).unwrap();
        if has_default {
            Acl { classes: [7, 7, 0], of_other: None }.set(mounted.path(name), DEFAULT).unwrap();
        }
        for top in ["data", "data.mount"] {
            let made = as_other(&place, &["sh", "-c", script, &format!("{top}/{name}"), top]);
            assert_eq!(String::from_utf8_lossy(&made.stdout), expected, "{top}/{name}: {made:?}");
        }
    }
    mounted.interrupt();
}

const ROUNDS: usize = 400;
/// Of the files of the one who opens.
const OWN_MODE: u32 = 0o640;

/// Opens a file that comes and goes again and again, and removes what it has made itself. Of all others: their length once they are open, or the error.
fn open_again_and_again(path: &Path) -> Vec<std::io::Result<u64>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).mode(OWN_MODE);
    let open = || -> std::io::Result<(Metadata, u64)> {
        let mut file = options.open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok((file.metadata()?, bytes.len() as u64))
    };
    let rounds = (0..ROUNDS).filter_map(|_| match open() {
        Ok((found, _)) if found.mode() & 0o777 == OWN_MODE => {
            std::fs::remove_file(path).unwrap();
            None
        }
        opened => Some(opened.map(|(_, bytes)| bytes)),
    });
    rounds.collect()
}

/// What comes of it while a program past the mount makes private files of root's at that name, complete, and removes them.
fn contend(place: &Place, open: impl FnOnce() -> Vec<std::io::Result<u64>> + Send) -> Vec<std::io::Result<u64>> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (before, contended) = (place.path("data/before"), place.path("data/contended"));
            while !is_over.load(Ordering::Acquire) {
                place.write("data/before", b"content");
                std::fs::set_permissions(&before, Permissions::from_mode(0o600)).unwrap();
                if std::fs::hard_link(&before, &contended).is_ok() {
                    std::fs::remove_file(&contended).unwrap();
                }
                std::fs::remove_file(&before).unwrap();
            }
        });
        let opened = scope.spawn(open).join();
        is_over.store(true, Ordering::Release);
        opened.unwrap()
    })
}

#[test]
fn a_program_that_makes_a_file_which_another_made_first_gets_that_one_as_any_older_one() {
    let Some(place) = open_place() else { return };
    let mounted = Mounted::start(&place, &["--allow-other"]);
    let path = mounted.path("contended");
    // Truncated, and without an error.
    let by_owner = contend(&place, || open_again_and_again(&path));
    assert!(by_owner.iter().all(|opened| matches!(opened, Ok(0))), "{by_owner:?}");
    let by_other = contend(&place, || {
        let other = rustix::process::Uid::from_raw(OTHER);
        rustix::thread::set_thread_res_uid(other, other, other).unwrap();
        open_again_and_again(&path)
    });
    // The latter if the same happens again while the kernel looks for the second time.
    let is_refused = |opened: &std::io::Result<u64>| {
        opened.as_ref().is_err_and(|error| matches!(error.raw_os_error(), Some(libc::EACCES | libc::ESTALE)))
    };
    assert!(by_other.iter().all(is_refused), "{by_other:?}");
    mounted.interrupt();
}
