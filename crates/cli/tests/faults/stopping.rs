//! A mount that stops answering and goes on as a test says: a FUSE directory whose process is stopped.
//!
//! Nobody is left waiting in the kernel: the process of the mount ends with the test's thread, whatever becomes of that, or when it has gone on for too long, and
//! the kernel then aborts the connection. The mount is seen by this thread and what it starts only, and goes with them.

use crate::support::Place;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// No test takes so long unless somebody waits for ever.
const LIMIT: Duration = Duration::from_secs(400);

pub(crate) struct StoppingMount {
    process: Arc<Mutex<Child>>,
    id: u32,
    /// Tells the watchdog, by its end, that all went well.
    _ends: Sender<()>,
}

impl StoppingMount {
    /// Shows `below` at the directory `name`. None, with the reason said, where that cannot be had.
    pub(crate) fn new(place: &Place, below: &str, name: &str) -> Option<Self> {
        let mounted = compile(place).and_then(|()| own_mounts()).and_then(|()| Self::mount(place, below, name));
        mounted.inspect_err(|why| eprintln!("not tried: no FUSE mount: {why}")).ok()
    }

    fn mount(place: &Place, below: &str, name: &str) -> Result<Self, String> {
        let mut command = Command::new(place.path("stopping"));
        command.arg(place.path(below)).arg(place.path(name)).stdin(Stdio::null());
        let mut process = command.stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let mut said = String::new();
        let read = BufReader::new(process.stdout.take().unwrap()).read_line(&mut said);
        if read.is_err() || said != "mounted\n" {
            let _ = process.kill();
            return Err(format!("the file system ended: {:?}", process.wait()));
        }
        let id = process.id();
        let (ends, ended) = channel();
        let process = Arc::new(Mutex::new(process));
        let watched = Arc::clone(&process);
        std::thread::spawn(move || watch(&ended, &watched));
        Ok(Self { process, id, _ends: ends })
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_raw(self.id as i32).unwrap();
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// From now on no call of the mount is answered.
    pub(crate) fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }
}

impl Drop for StoppingMount {
    fn drop(&mut self) {
        let ended = self.process.lock().unwrap().try_wait();
        if let Ok(Some(status)) = ended {
            eprintln!("the mount ended by itself: {status}");
        }
        abort(&self.process);
    }
}

fn abort(process: &Mutex<Child>) {
    let mut process = process.lock().unwrap();
    let _ = process.kill();
    let _ = process.wait();
}

fn watch(ended: &Receiver<()>, process: &Mutex<Child>) {
    if ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
        eprintln!("the mount was let go after {} s", LIMIT.as_secs());
        abort(process);
    }
}

fn compile(place: &Place) -> Result<(), String> {
    if !Path::new("/dev/fuse").exists() {
        return Err("there is no /dev/fuse".to_owned());
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/stopping.c");
    let mut command = Command::new("cc");
    command.args(["-O1", "-w", "-D_FILE_OFFSET_BITS=64", "-I/usr/include/fuse3", "-o"]).arg(place.path("stopping"));
    let output = command.arg(source).arg("-lfuse3").output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("libfuse3-dev? {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Gives this thread, and what it starts, a view of mounts of their own.
fn own_mounts() -> Result<(), String> {
    // SAFETY: only this thread gets a view of mounts of its own; it shares memory and descriptors as before.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
        .map_err(|errno| format!("this user may not mount ({errno})"))?;
    let private = Command::new("mount").args(["--make-rprivate", "/"]).status();
    match private.is_ok_and(|status| status.success()) {
        true => Ok(()),
        false => Err("mounts cannot be made private".to_owned()),
    }
}
