//! Several things that are done one after the other, each whatever became of those before.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
use serde::Serialize;
use std::error::Error;
use std::path::{Path, PathBuf};
use stripewise::messages::chain;

/// What was not done.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct Failed {
    /// As it was named.
    path: PathBuf,
    /// Why.
    error: String,
}

/// Failures of a command that was given several names.
pub(crate) struct Failures<'c> {
    context: &'c Context,
    /// Of one name alone the command fails as a whole.
    is_only: bool,
    pub(crate) list: Vec<Failed>,
}

impl<'c> Failures<'c> {
    pub(crate) fn new(context: &'c Context, names: usize) -> Self {
        Self { context, is_only: names == 1, list: Vec::new() }
    }

    /// What was done with `path`; a failure is said at once and kept.
    ///
    /// # Errors
    ///
    /// The failure, of a command that was given one name.
    pub(crate) fn keep<T, E: Error + Send + Sync + 'static>(
        &mut self,
        path: &Path,
        result: std::result::Result<T, E>,
    ) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if self.is_only => Err(error.into()),
            Err(error) => {
                let error = chain(&error);
                self.context.say(&error);
                self.list.push(Failed { path: path.to_owned(), error });
                Ok(None)
            }
        }
    }

    /// How the command ends.
    pub(crate) fn verdict(&self) -> Verdict {
        if self.list.is_empty() { Verdict::Done } else { Verdict::Finding }
    }
}
