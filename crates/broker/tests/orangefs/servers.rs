//! A real OrangeFS on loopback, by `tests/engines/orangefs.py`.

use serde::Deserialize;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use stripewise_broker::orangefs::use_library;

/// What the program exits with where no OrangeFS can be had.
const MISSING: i32 = 3;

#[derive(Deserialize)]
struct Description {
    fs: String,
    servers: Vec<String>,
    library: PathBuf,
}

/// A file system with some servers; it ends when this is dropped, and when this process ends however it does.
pub(crate) struct OrangeFs {
    program: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    description: Description,
}

impl OrangeFs {
    /// Starts one. `None`, with the reason on standard error, where that cannot be had.
    pub(crate) fn start(servers: usize) -> Option<Self> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/engines/orangefs.py");
        let mut program = Command::new("python3")
            .arg(program)
            .args(["--servers", &servers.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let mut answers = BufReader::new(program.stdout.take().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        if line.is_empty() {
            let status = program.wait().unwrap();
            assert_eq!(status.code(), Some(MISSING), "tests/engines/orangefs.py failed; it says why above");
            eprintln!(
                "SKIPPED: {} needs an OrangeFS, and there is none (see above)",
                std::thread::current().name().unwrap_or("a test")
            );
            return None;
        }
        let description: Description = serde_json::from_str(&line).unwrap();
        use_library(&description.library);
        let commands = program.stdin.take();
        Some(Self { program, commands, answers, description })
    }

    /// Of a server of a cluster.
    pub(crate) fn url(&self, number: usize) -> String {
        format!("orangefs://{}?fs={}", self.description.servers[number], self.description.fs)
    }

    /// `kill N`, `start N`, `stop N` or `continue N`; returns when it is done.
    pub(crate) fn order(&mut self, command: &str) {
        writeln!(self.commands.as_mut().unwrap(), "{command}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim_end(), "ok", "{command}");
    }
}

impl Drop for OrangeFs {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.program.wait();
    }
}
