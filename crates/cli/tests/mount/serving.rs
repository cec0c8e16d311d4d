//! How requests are served: by the kernel itself where it can, large ones in one piece, several at once.

use crate::bed::{Mounted, place};
use crate::support::noise;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::mpsc;

#[test]
fn ordinary_files_are_read_while_the_process_of_the_mount_stands_still() {
    let Some(place) = place() else { return };
    if !Mounted::kernel_is((6, 9)) {
        return eprintln!("SKIPPED: passthrough takes Linux 6.9");
    }
    place.write("data/ordinary", b"as it is");
    let mounted = Mounted::start(&place, &[]);
    let file = File::open(mounted.path("ordinary")).unwrap();
    let stopped = mounted.stop();
    let mut read = [0; 8];
    file.read_exact_at(&mut read, 0).unwrap();
    drop(stopped);
    assert_eq!(&read, b"as it is");
    drop(file);
    mounted.interrupt();
}

#[test]
fn a_read_of_a_mebibyte_is_not_cut_into_small_requests() {
    let Some(place) = place() else { return };
    let data = noise(1 << 20);
    place.write("data/ordinary", &data);
    // Not read by the kernel itself.
    std::fs::set_permissions(place.path("data/ordinary"), Permissions::from_mode(0o2644)).unwrap();
    let mounted = Mounted::start(&place, &[]);
    let file = File::open(mounted.path("ordinary")).unwrap();
    let before = mounted.reads();
    let mut read = vec![0; data.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    let reads = mounted.reads() - before;
    assert!(read == data);
    // Two for a request: of the device and of the file. A buffer that begins inside of a page takes one request more, and the process reads for itself now and then. Eight
    // requests of 128 KiB would be 16.
    assert!(reads < 16, "{reads} reads");
    drop(file);
    mounted.interrupt();
}

#[test]
fn a_read_that_is_held_up_holds_up_no_other() {
    let Some(place) = place() else { return };
    for directory in ["elsewhere", "data/inner"] {
        std::fs::create_dir(place.path(directory)).unwrap();
    }
    place.write("elsewhere/held", b"held");
    // Not read by the kernel itself.
    std::fs::set_permissions(place.path("elsewhere/held"), Permissions::from_mode(0o2644)).unwrap();
    place.write("source", b"at once");
    place.done(&["cp", "source", "data/managed"]);
    // The first to come is the broker.
    let mounted = Mounted::start(&place, &[]);
    let inner =
        Mounted::start_by(place.command(&["mount", "elsewhere", "--at", "data/inner"]), place.path("data/inner"));
    let (held, other) = (File::open(mounted.path("inner/held")).unwrap(), File::open(mounted.path("managed")).unwrap());
    let stopped = inner.stop();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 4];
            held.read_exact_at(&mut bytes, 0).unwrap();
            sender.send(bytes).unwrap();
        });
        inner.wait_for_requests(1);
        let mut bytes = [0; 7];
        other.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"at once");
        assert_eq!(receiver.try_recv(), Err(mpsc::TryRecvError::Empty), "the other read is held up");
        drop(stopped);
        assert_eq!(&receiver.recv().unwrap(), b"held");
    });
    drop((held, other));
    // It holds files of the other, which serves them until then.
    mounted.interrupt();
    inner.interrupt();
}

/// It waited without a word.
#[test]
fn for_whom_an_unmounted_mount_is_served_is_said_once() {
    let Some(place) = place() else { return };
    place.write("data/ordinary", b"as it is");
    let said = File::create(place.path("said")).unwrap();
    let mut command = place.command(&["mount", "data", "--at", "data.mount"]);
    command.stderr(said);
    let mounted = Mounted::start_by(command, place.path("data.mount"));
    let mut user = std::process::Command::new("sh");
    user.args(["-c", "exec 3< data.mount/ordinary; echo open; read line"]).current_dir(place.path(""));
    user.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut user = user.spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(user.stdout.take().unwrap()), &mut line).unwrap();
    mounted.ask_to_end();
    let expected = format!("is unmounted; waiting for sh (process {}) to close the files", user.id());
    let begun = std::time::Instant::now();
    while !String::from_utf8_lossy(&place.read("said")).contains(&expected) {
        assert!(begun.elapsed().as_secs() < 60, "{}", String::from_utf8_lossy(&place.read("said")));
        std::thread::yield_now();
    }
    drop(user.stdin.take());
    user.wait().unwrap();
    mounted.wait();
    assert_eq!(place.read("said").iter().filter(|byte| **byte == b'\n').count(), 1);
}
