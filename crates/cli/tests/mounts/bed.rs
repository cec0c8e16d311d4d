//! Several hosts on this machine by `tests/hosts/machine.py`, with an agent on each.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

/// What `machine.py` says where hosts cannot be had.
const MISSING: i32 = 3;

pub struct Bed {
    program: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    description: Value,
    /// Of each host, while it has one.
    agents: Vec<Option<Child>>,
}

impl Bed {
    /// Hosts with an agent each, servers in a directory that all have, and a managed directory on the mount that is each host's own. `None`, loudly,
    /// where hosts or an etcd cannot be had. One host is a cluster of its own.
    pub fn start(hosts: usize, without: &[&str]) -> Option<Self> {
        let mut bed = Self::bare(hosts, without)?;
        bed.init(&bed.common());
        for host in 0..hosts {
            bed.start_agent(host).unwrap();
        }
        bed.stripewise(0, &["manage", bed.data("").to_str().unwrap()]);
        Some(bed)
    }

    /// Hosts without a cluster.
    pub fn bare(hosts: usize, without: &[&str]) -> Option<Self> {
        if Command::new("etcd").arg("--version").output().is_err() {
            eprintln!("SKIPPED: there is no etcd: setup/install --engines installs it");
            return None;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hosts/machine.py");
        let mut program = Command::new("python3")
            .arg(script)
            .args(["--hosts", &hosts.to_string()])
            .args(without.iter().flat_map(|feature| ["--without", feature]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answers = BufReader::new(program.stdout.take().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        if line.is_empty() {
            assert_eq!(program.wait().unwrap().code(), Some(MISSING), "machine.py");
            eprintln!("SKIPPED: no hosts can be had; it says why above");
            return None;
        }
        let orders = program.stdin.take();
        let description: Value = serde_json::from_str(&line).unwrap();
        let agents = (0..hosts).map(|_| None).collect();
        let bed = Self { program, orders, answers, description, agents };
        std::fs::create_dir(bed.stored("")).unwrap();
        Some(bed)
    }

    /// A cluster of three servers in this directory.
    pub fn init(&mut self, servers: &Path) {
        let url = if self.agents.len() > 1 { self.order("etcd") } else { String::new() };
        let places = [("a", "hdd"), ("b", "hdd"), ("c", "ssd")].map(|(name, class)| {
            let directory = servers.join(name);
            let made = self.command(0, "mkdir").arg(&directory).status().unwrap();
            assert!(made.success());
            format!("{name}={class}:{}", directory.display())
        });
        let mut words = vec!["init", "--region", "64KiB"];
        if !url.is_empty() {
            words.extend(["--etcd", &url]);
        }
        words.extend(places.iter().flat_map(|place| ["--server", place.as_str()]));
        self.stripewise(0, &words);
    }

    pub fn cluster_file(&self) -> PathBuf {
        self.common().join("cluster.toml")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.description[name].as_str().unwrap().into()
    }

    /// The mount that is each host's own.
    pub fn shared(&self) -> PathBuf {
        self.path("shared")
    }

    /// What hosts and machine have at the same path.
    pub fn common(&self) -> PathBuf {
        self.path("common")
    }

    /// A file of the managed directory, as every host sees it.
    pub fn data(&self, name: &str) -> PathBuf {
        self.shared().join("data").join(name)
    }

    /// The same as this machine sees it.
    pub fn stored(&self, name: &str) -> PathBuf {
        self.path("store").join("data").join(name)
    }

    pub fn order(&mut self, order: &str) -> String {
        writeln!(self.orders.as_ref().unwrap(), "{order}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim().strip_prefix("ok").unwrap_or_else(|| panic!("{order}: {answer}")).trim().to_owned()
    }

    /// A program there; it ends with this process.
    pub fn command(&self, host: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let words: Vec<&str> = self.description["hosts"][host]["enter"]
            .as_array()
            .unwrap()
            .iter()
            .map(|word| word.as_str().unwrap())
            .collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(program).env("STRIPEWISE_CLUSTER", self.cluster_file()).process_group(0);
        command
    }

    pub fn run(&self, host: usize, words: &[&str]) -> Output {
        self.command(host, env!("CARGO_BIN_EXE_stripewise")).args(words).stdin(Stdio::null()).output().unwrap()
    }

    /// What the command prints, which must not fail.
    pub fn stripewise(&self, host: usize, words: &[&str]) -> String {
        let output = self.run(host, words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "stripewise {words:?} on h{host}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// An error is what the agent says that does not start.
    pub fn start_agent(&mut self, host: usize) -> Result<(), String> {
        let mut agent = self
            .command(host, env!("CARGO_BIN_EXE_stripewise"))
            .arg("broker")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(agent.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("serving") {
            if errors.read_line(&mut said).unwrap() == 0 {
                agent.wait().unwrap();
                return Err(said);
            }
        }
        // It may say more, which nobody waits for.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::stderr()));
        self.agents[host] = Some(agent);
        Ok(())
    }

    /// Its agent ends as by Ctrl-C.
    pub fn stop_agent(&mut self, host: usize) {
        let mut agent = self.agents[host].take().unwrap();
        let process = rustix::process::Pid::from_child(&agent);
        rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
        agent.wait().unwrap();
    }

    /// All its processes end at once.
    pub fn kill_host(&mut self, host: usize) {
        self.order(&format!("kill {host}"));
        if let Some(mut agent) = self.agents[host].take() {
            agent.wait().unwrap();
        }
    }

    /// A killed host starts again, with an agent.
    pub fn boot(&mut self, host: usize) {
        let process = self.order(&format!("boot {host}"));
        let enter = self.description["hosts"][host]["enter"].as_array_mut().unwrap();
        *enter.last_mut().unwrap() = process.into();
        self.start_agent(host).unwrap();
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.program.wait();
        for agent in self.agents.iter_mut().flatten() {
            let _ = agent.wait();
        }
    }
}
