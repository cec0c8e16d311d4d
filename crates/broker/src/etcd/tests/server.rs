//! A real etcd on loopback.

use crate::coordination::tests::{LONG_LEASE, PAUSE, skip};
use crate::etcd::{EtcdCoordinator, EtcdOptions, TlsFiles};
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(120);
const ATTEMPTS: usize = 3;

/// An etcd of one member. It ends when this is dropped, and when the thread that started it ends however it does.
pub(crate) struct Etcd {
    process: Child,
    directory: tempfile::TempDir,
    client_port: u16,
    peer_port: u16,
    /// Certificates in the directory: `ca.pem`, `server.pem`, `server.key`.
    is_tls: bool,
    arguments: Vec<String>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// In memory where that can be had, since etcd syncs every transaction.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

impl Etcd {
    /// Starts one. `None`, with the reason on standard error, where there is no etcd.
    pub(crate) fn start(arguments: &[&str]) -> Option<Self> {
        Self::start_in(directory(), false, arguments)
    }

    pub(crate) fn start_in(directory: tempfile::TempDir, is_tls: bool, arguments: &[&str]) -> Option<Self> {
        if let Err(error) = Command::new("etcd").arg("--version").output() {
            skip(&format!("there is no etcd ({error}); setup/install --engines installs it"));
            return None;
        }
        let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let (mut directory, mut tries) = (directory, 0..ATTEMPTS);
        loop {
            let (client_port, peer_port) = (free_port(), free_port());
            let process = run(directory.path(), client_port, peer_port, is_tls, &arguments);
            let etcd = Self { process, directory, client_port, peer_port, is_tls, arguments: arguments.clone() };
            // Another may have taken a port meanwhile.
            match etcd.wait() {
                Ok(etcd) => return Some(etcd),
                Err((etcd, log)) if tries.next().is_some() => {
                    assert!(log.contains("address already in use"), "etcd does not start: {log}");
                    directory = etcd;
                }
                Err((_, log)) => panic!("etcd does not start: {log}"),
            }
        }
    }

    /// Until it serves; else its directory and what it said.
    fn wait(mut self) -> Result<Self, (tempfile::TempDir, String)> {
        let start = Instant::now();
        while start.elapsed() < START_LIMIT && self.process.try_wait().unwrap().is_none() {
            let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            if log.contains("serving client traffic") || log.contains("serving insecure client requests") {
                return Ok(self);
            }
            std::thread::sleep(PAUSE);
        }
        let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        self.kill();
        let directory = std::mem::replace(&mut self.directory, directory());
        Err((directory, log))
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn endpoint(&self) -> String {
        endpoint(self.client_port, self.is_tls)
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        let tls = TlsFiles { ca: self.is_tls.then(|| self.directory().join("ca.pem")), certificate: None };
        EtcdOptions { tls, patience: Duration::from_secs(20), ..EtcdOptions::new(vec![self.endpoint()]) }
    }

    pub(crate) fn coordinator(&self, cluster: &str) -> EtcdCoordinator {
        EtcdCoordinator::new(&self.options(), cluster).unwrap().with_lease(LONG_LEASE)
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it again after [`Self::kill`], with what it had; it may take a moment until it serves.
    pub(crate) fn start_again(&mut self) {
        self.process = run(self.directory.path(), self.client_port, self.peer_port, self.is_tls, &self.arguments);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn endpoint(port: u16, is_tls: bool) -> String {
    format!("{}://127.0.0.1:{port}", if is_tls { "https" } else { "http" })
}

fn run(directory: &Path, client_port: u16, peer_port: u16, is_tls: bool, arguments: &[String]) -> Child {
    let (client, peer) = (endpoint(client_port, is_tls), endpoint(peer_port, false));
    let data = directory.join(format!("data-{peer_port}"));
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(data);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args([
        "--unsafe-no-fsync",
        "--initial-cluster",
        &format!("default={peer}"),
        "--logger",
        "zap",
        "--log-outputs",
        "stderr",
    ]);
    if is_tls {
        command.arg("--cert-file").arg(directory.join("server.pem"));
        command.arg("--key-file").arg(directory.join("server.key"));
        command.arg("--trusted-ca-file").arg(directory.join("ca.pem"));
    }
    command.args(arguments).stderr(File::create(directory.join("log")).unwrap());
    let end_with_parent =
        || rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).map_err(Into::into);
    // SAFETY: one system call, which allocates nothing and takes no lock.
    unsafe { command.pre_exec(end_with_parent) };
    command.spawn().unwrap()
}
