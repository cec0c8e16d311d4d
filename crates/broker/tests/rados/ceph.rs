//! A real Ceph on loopback, by `tests/engines/ceph.py`.

use serde::Deserialize;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use stripewise_broker::rados::{ConnectOptions, Connection};

/// What the program exits with where no Ceph can be had.
const MISSING: i32 = 3;

#[derive(Deserialize)]
struct Description {
    conf: PathBuf,
    pools: Vec<String>,
}

/// A cluster with one pool per OSD; it ends when this is dropped, and when this process ends however it does.
pub(crate) struct Ceph {
    program: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    description: Description,
}

impl Ceph {
    /// Starts one. `None`, with the reason on standard error, where that cannot be had.
    pub(crate) fn start(arguments: &[&str]) -> Option<Self> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/engines/ceph.py");
        // The system's interpreter, which the distribution's modules belong to.
        let mut program = Command::new("/usr/bin/python3")
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let mut answers = BufReader::new(program.stdout.take().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        if line.is_empty() {
            let status = program.wait().unwrap();
            assert_eq!(status.code(), Some(MISSING), "tests/engines/ceph.py failed; it says why above");
            eprintln!(
                "SKIPPED: {} needs a Ceph, and there is none (see above)",
                std::thread::current().name().unwrap_or("a test")
            );
            return None;
        }
        let description = serde_json::from_str(&line).unwrap();
        let commands = program.stdin.take();
        Some(Self { program, commands, answers, description })
    }

    /// One pool for each OSD.
    pub(crate) fn pool(&self, osd: usize) -> &str {
        &self.description.pools[osd]
    }

    pub(crate) fn options(&self) -> ConnectOptions {
        ConnectOptions { conf: Some(self.description.conf.clone()), ..ConnectOptions::default() }
    }

    pub(crate) fn connect(&self) -> Arc<Connection> {
        Connection::open(&self.options()).unwrap()
    }

    /// With operations that are given up after so long.
    pub(crate) fn connect_impatiently(&self, patience: Duration) -> Arc<Connection> {
        Connection::open(&ConnectOptions { operation_patience: Some(patience), ..self.options() }).unwrap()
    }

    /// `kill N`, `start N`, `stop N` or `continue N`; returns when it is done.
    pub(crate) fn order(&mut self, command: &str) {
        writeln!(self.commands.as_mut().unwrap(), "{command}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim_end(), "ok", "{command}");
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.program.wait();
    }
}
