//! What every command gets: the cluster that is meant, and where its output goes.

use crate::output::Out;
use crate::progress::Terminal;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::cell::RefCell;
use std::fmt::Display;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use stripewise::envelope::envelope;
use stripewise::messages::printable;
use stripewise::{Session, Voice};

pub(crate) struct Context {
    /// The cluster that is meant.
    pub(crate) session: Session,
    /// Print JSON objects rather than text for people.
    pub(crate) json: bool,
    command: &'static str,
    out: RefCell<BufWriter<Out>>,
}

impl Context {
    pub(crate) fn new(cluster: Option<PathBuf>, json: bool, command: &'static str) -> Self {
        let session = Session::new(cluster, Voice::new(Terminal));
        Self { session, json, command, out: RefCell::new(BufWriter::new(Out::new())) }
    }

    /// Prints text for people, of one line or several.
    pub(crate) fn line(&self, line: impl Display) -> Result<()> {
        let text = line.to_string();
        writeln!(self.out.borrow_mut(), "{}", printable(&text, true))?;
        Ok(())
    }

    /// Writes data as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<()> {
        self.out.borrow_mut().write_all(bytes)?;
        Ok(())
    }

    /// Prints `value`, a structure with named fields, as a JSON object that carries its version and the command's name.
    pub(crate) fn object<T: Serialize>(&self, value: &T) -> Result<()> {
        self.object_of(self.command, value)
    }

    /// As [`Self::object`], with another name for the command.
    pub(crate) fn object_of<T: Serialize>(&self, command: &str, value: &T) -> Result<()> {
        let text = serde_json::to_string_pretty(&envelope(command, value)).context("writing JSON")?;
        // As it is: JSON has escapes of its own.
        self.bytes((text + "\n").as_bytes())
    }

    /// Says something to the person at the terminal; not data.
    pub(crate) fn say(&self, message: impl Display) {
        self.session.say(message);
    }

    /// To say something, also from another thread.
    pub(crate) fn voice(&self) -> &Voice {
        self.session.voice()
    }

    /// A wheel that turns beside `what` until it is dropped.
    pub(crate) fn waiting(&self, what: &str) -> Box<dyn stripewise::progress::Task> {
        self.voice().waiting(what)
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.out.borrow_mut().flush()?;
        Ok(())
    }
}
