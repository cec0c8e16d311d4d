//! What every command gets: the cluster that is meant, and where its output goes.

use crate::launch::STATE_VARIABLE;
use crate::output::{self, Out};
use crate::owner;
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use std::cell::RefCell;
use std::fmt::Display;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use stripewise_layout::{Cluster, input};

/// The version of every object that `--json` prints.
pub(crate) const JSON_VERSION: u32 = 1;

/// The name of the cluster file in its directory.
pub(crate) const CLUSTER_FILE: &str = "cluster.toml";

pub(crate) struct Context {
    cluster: Option<PathBuf>,
    /// Print JSON objects rather than text for people.
    pub(crate) json: bool,
    command: &'static str,
    out: RefCell<BufWriter<Out>>,
}

/// Speaks to the person at the terminal in the command's name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Voice {
    command: &'static str,
}

impl Voice {
    pub(crate) fn say(self, message: impl Display) {
        let text = output::message(&message.to_string());
        let _ = writeln!(std::io::stderr(), "stripewise {}: {text}", self.command);
    }
}

/// `value`, a structure with named fields, with what every JSON object of the command carries.
pub(crate) fn envelope<'a, T: Serialize>(command: &'a str, value: &'a T) -> impl Serialize + 'a {
    Envelope { version: JSON_VERSION, command, value }
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    version: u32,
    command: &'a str,
    #[serde(flatten)]
    value: &'a T,
}

impl Context {
    pub(crate) fn new(cluster: Option<PathBuf>, json: bool, command: &'static str) -> Self {
        Self { cluster, json, command, out: RefCell::new(BufWriter::new(Out::new())) }
    }

    /// The cluster file that is meant: `--cluster` (a directory means the `cluster.toml` in it), else `./cluster.toml`.
    pub(crate) fn cluster_path(&self) -> PathBuf {
        match &self.cluster {
            Some(path) if path.is_dir() => path.join(CLUSTER_FILE),
            Some(path) => path.clone(),
            None => PathBuf::from(CLUSTER_FILE),
        }
    }

    /// Reads the cluster file.
    pub(crate) fn cluster(&self) -> Result<Cluster> {
        let path = self.cluster_path();
        if !path.exists() {
            bail!(
                "no cluster file {}; make one with `stripewise init`, or name it with --cluster or STRIPEWISE_CLUSTER",
                path.display()
            );
        }
        let file = input::open_regular(&path).with_context(|| format!("cannot read {}", path.display()))?;
        owner::check(&file, &path)?;
        Ok(Cluster::load_from(file, &path)?)
    }

    /// The state directory of the cluster that is meant; for a program under `stripewise run` that names none, that of the run.
    pub(crate) fn state(&self) -> Result<PathBuf> {
        match self.state_of_run() {
            Some(state) => Ok(state),
            None => Ok(self.cluster()?.state),
        }
    }

    /// That of the run under which this command runs, unless it names a cluster itself.
    pub(crate) fn state_of_run(&self) -> Option<PathBuf> {
        let state = std::env::var_os(STATE_VARIABLE).filter(|state| self.cluster.is_none() && !state.is_empty());
        state.map(PathBuf::from)
    }

    /// Prints text for people, of one line or several.
    pub(crate) fn line(&self, line: impl Display) -> Result<()> {
        let text = line.to_string();
        writeln!(self.out.borrow_mut(), "{}", output::printable(&text, true))?;
        Ok(())
    }

    /// Writes data as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<()> {
        self.out.borrow_mut().write_all(bytes)?;
        Ok(())
    }

    /// Prints `value`, a structure with named fields, as a JSON object that carries its version and the command's name.
    pub(crate) fn object<T: Serialize>(&self, value: &T) -> Result<()> {
        let text = serde_json::to_string_pretty(&envelope(self.command, value)).context("writing JSON")?;
        // As it is: JSON has escapes of its own.
        self.bytes((text + "\n").as_bytes())
    }

    /// Says something to the person at the terminal; not data.
    pub(crate) fn say(&self, message: impl Display) {
        self.voice().say(message);
    }

    /// To say something from another thread.
    pub(crate) fn voice(&self) -> Voice {
        Voice { command: self.command }
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.out.borrow_mut().flush()?;
        Ok(())
    }
}

/// `path` from the root, without resolving links.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("cannot tell where {} is", path.display()))
}
