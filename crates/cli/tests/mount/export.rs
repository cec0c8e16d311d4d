//! Handles of files, by which servers of NFS find them. There need be none here: `name_to_handle_at` and `open_by_handle_at` ask the kernel, and it the mount, for the
//! same things.

use crate::bed::{Mounted, place};
use crate::support::noise;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// Takes handles of files, and later opens these; answers each line with one.
const SERVER: &str = "\
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [('bytes', ctypes.c_uint), ('kind', ctypes.c_int), ('handle', ctypes.c_ubyte * 128)]
mount = sys.argv[1]
handles = {}
def take(name):
    handles[name] = handle = Handle(bytes=128)
    if libc.name_to_handle_at(-100, os.path.join(mount, name).encode(), ctypes.byref(handle), ctypes.byref(ctypes.c_int()), 0):
        raise OSError(ctypes.get_errno(), name)
def at(name, flags):
    root = os.open(mount, os.O_RDONLY)
    file = libc.open_by_handle_at(root, ctypes.byref(handles[name]), flags)
    number = ctypes.get_errno()
    os.close(root)
    if file < 0:
        raise OSError(number, name)
    return file
def read(name):
    file = at(name, os.O_RDONLY)
    bytes = os.pread(file, 1 << 24, 0)
    os.close(file)
    return bytes
def write(name, bytes, offset):
    file = at(name, os.O_RDWR)
    os.pwrite(file, bytes, offset)
    os.close(file)
def listed(name):
    file = at(name, os.O_RDONLY | os.O_DIRECTORY)
    names = sorted(os.listdir(file)), os.stat('..', dir_fd=file).st_ino == os.stat(mount).st_ino
    os.close(file)
    return names
print(flush=True)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except OSError as error:
        print(os.strerror(error.errno), flush=True)
";

struct Server {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Server {
    fn ask(&mut self, question: &str) -> String {
        writeln!(self.input, "{question}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the server has ended");
        line.trim().to_owned()
    }
}

#[test]
fn files_that_the_kernel_has_forgotten_are_found_by_the_handles_that_servers_of_nfs_keep() {
    let Some(place) = place() else { return };
    let data = noise((2 << 20) + 5);
    place.write("source", &data);
    place.done(&["cp", "source", "data/managed"]);
    place.write("data/ordinary", b"as it is");
    place.write("data/gone", b"for a while");
    std::fs::create_dir(place.path("data/directory")).unwrap();
    place.write("data/directory/inside", b"");
    let mounted = Mounted::start(&place, &[]);
    let mut child = Command::new("python3");
    child.args(["-c", SERVER]).arg(mounted.path("")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut server = Server { input: child.stdin.take().unwrap(), output };
    assert_eq!(server.answer(), "");
    for name in ["managed", "ordinary", "gone", "directory"] {
        assert_eq!(server.ask(&format!("take('{name}')")), "None");
    }
    std::fs::rename(mounted.path("managed"), mounted.path("directory/moved")).unwrap();
    mounted.forget_all();
    assert_eq!(server.ask("__import__('hashlib').sha256(read('managed')).hexdigest()"), digest(&place));
    assert_eq!(server.ask("write('managed', b'by handle', 7)"), "None");
    assert_eq!(server.ask("read('ordinary')"), "b'as it is'");
    assert_eq!(server.ask("listed('directory')"), "(['inside', 'moved'], True)");
    let mut expected = data;
    expected[7..16].copy_from_slice(b"by handle");
    assert!(place.command(&["cat", "data/directory/moved"]).output().unwrap().stdout == expected);
    // Another file, perhaps with the same inode, is not taken for one that is gone.
    mounted.forget_all();
    std::fs::remove_file(place.path("data/gone")).unwrap();
    place.write("data/other", b"not this");
    assert_eq!(server.ask("read('gone')"), "Stale file handle");
    std::fs::metadata(mounted.path("other")).unwrap();
    assert_eq!(server.ask("read('gone')"), "Stale file handle");
    drop(server);
    assert!(child.wait().unwrap().success());
    mounted.interrupt();
    assert_eq!(place.say(&["check"]).status, 0);
}

fn digest(place: &crate::support::Place) -> String {
    let said = Command::new("sha256sum").arg(place.path("source")).output().unwrap();
    String::from_utf8_lossy(&said.stdout[..64]).into_owned()
}
