//! An OrangeFS, by `tests/engines/orangefs.py`: the stand-in, or a real one on loopback where `ORANGEFS` names it.

use serde::Deserialize;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use stripewise_broker::orangefs::use_library;

/// What the program exits with where no OrangeFS can be had.
const MISSING: i32 = 3;
/// How long the stand-in's credentials live: longer than a busy machine stands still.
const CREDENTIAL_S: &str = "8";
/// After which a condition is not waited for any longer.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Description {
    fs: String,
    servers: Vec<String>,
    library: PathBuf,
    directory: PathBuf,
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
            // One for all tests: a process loads it once.
            .args(["--library-directory", concat!(env!("CARGO_TARGET_TMPDIR"), "/pvfs2")])
            .args(["--credential-seconds", CREDENTIAL_S])
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

    /// One whose servers do what they are told. `None`, and said so, where a real one is to be tested.
    pub(crate) fn start_stand_in(servers: usize) -> Option<Self> {
        if std::env::var_os("ORANGEFS").is_some() {
            let name = std::thread::current().name().unwrap_or("a test").to_owned();
            eprintln!("SKIPPED: {name} orders the stand-in's servers about, and ORANGEFS names a real one");
            return None;
        }
        Self::start(servers)
    }

    /// The number in the stand-in's file of this name; 0 where there is none yet.
    fn figure(&self, name: &str) -> usize {
        let text = std::fs::read_to_string(self.description.directory.join(name)).unwrap_or_default();
        text.trim_end().parse().unwrap_or(0)
    }

    /// Waits until so many operations were under way together.
    pub(crate) fn await_peak(&self, operations: usize) {
        let begin = Instant::now();
        while self.figure("peak") < operations {
            assert!(begin.elapsed() < PATIENCE, "{} operations were under way, not {operations}", self.figure("peak"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How many credentials this process has made.
    pub(crate) fn credentials(&self) -> usize {
        let path = self.description.library.with_file_name("credentials");
        let own = std::process::id().to_string();
        std::fs::read_to_string(path).unwrap_or_default().lines().filter(|line| *line == own).count()
    }

    /// `kill N`, `start N`, `stop N` or `continue N`, and `control N WORD...` of the stand-in; returns when it is done.
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
