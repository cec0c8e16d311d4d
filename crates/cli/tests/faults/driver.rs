//! A redirected program that does what a test tells it, one step at a time.

use crate::support::{Place, preload};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

/// Prints what each line of its input is in Python, or the name of the error that it gives.
const PROGRAM: &str = "\
import os, sys, errno, hashlib, threading
os.write(1, b'ready %d\\n' % os.getpid())
for line in sys.stdin:
    try:
        result = eval(line)
    except OSError as error:
        result = errno.errorcode[error.errno]
    os.write(1, (str(result) + '\\n').encode())
";

pub(crate) struct Driver {
    run: Child,
    /// Of the program itself, not of `stripewise run`.
    pub(crate) process: u32,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Driver {
    /// `stripewise WORDS run -- python3`, ready for its first step.
    pub(crate) fn start(place: &Place, words: &[&str]) -> Self {
        preload();
        let words = [words, &["run", "--", "python3", "-c", PROGRAM]].concat();
        Self::start_command(place.command(&words))
    }

    /// As [`Self::start`], in a mount name space of its own, where the shell line `before` (mounts) has run.
    pub(crate) fn start_with_mounts(place: &Place, before: &str) -> Self {
        preload();
        let run = format!("{before} && exec \"$0\" run -- python3 -c \"$1\"");
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-e", "-c", &run, env!("CARGO_BIN_EXE_stripewise"), PROGRAM]);
        command.current_dir(place.path("")).env_remove("STRIPEWISE_CLUSTER");
        Self::start_command(command)
    }

    fn start_command(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = command.spawn().unwrap();
        let input = run.stdin.take().unwrap();
        let output = BufReader::new(run.stdout.take().unwrap());
        let mut driver = Self { run, process: 0, input, output };
        driver.process = driver.answer().strip_prefix("ready ").expect("the program starts").parse().unwrap();
        driver
    }

    /// Does not wait for the answer.
    pub(crate) fn report_capture(&mut self, step: &str) {
        writeln!(self.input, "{step}").unwrap();
    }

    pub(crate) fn ask(&mut self, step: &str) -> String {
        self.report_capture(step);
        self.answer()
    }

    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Runs a shell line that is not redirected; its status and what it said, as lines.
    pub(crate) fn shell(&mut self, line: &str) -> String {
        let quoted = format!("env -u LD_PRELOAD sh -c '{line}' 2>&1; echo status $?");
        self.ask(&format!("repr(os.popen({quoted:?}).read())"))
    }

    /// Process id of `stripewise run`, which may be the broker.
    pub(crate) fn runner(&self) -> u32 {
        self.run.id()
    }

    /// Ends the program by the end of its input; what `stripewise run` said and its status.
    pub(crate) fn end(self) -> Output {
        let Self { run, input, output, .. } = self;
        drop(input);
        drop(output);
        run.wait_with_output().unwrap()
    }
}

pub(crate) fn kill(process: u32) {
    assert!(Command::new("kill").args(["-KILL", &process.to_string()]).status().unwrap().success());
}
