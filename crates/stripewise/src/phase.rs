//! Marking that a phase of the running program begins, for a plan that is followed by phases.

use crate::daemon::socket;
use crate::messages::shown;
use crate::session::{Session, SessionError};
use serde::Serialize;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// Why a phase was not marked.
#[derive(Debug, Error)]
pub enum PhaseError {
    /// Which cluster is meant is not known.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Nobody follows a plan.
    #[error(
        "no daemon answers at {}; start `stripewise daemon --plan PLAN --windows phase`, or `stripewise run --migrate --windows phase`",
        shown(socket)
    )]
    NoDaemon {
        /// Where it would listen.
        socket: PathBuf,
    },
    /// The daemon cannot use it.
    #[error("{answer}")]
    Refused {
        /// As the daemon reported it.
        answer: String,
    },
}

/// Name of a phase, or number of a window of the plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PhaseName(String);

/// A text that is no name of a phase.
#[derive(Debug, Error)]
#[error("`{text}` is no name of a phase; use up to 200 letters, digits, `-`, `_` and `.`")]
pub struct ParsePhaseError {
    text: String,
}

impl FromStr for PhaseName {
    type Err = ParsePhaseError;

    fn from_str(text: &str) -> Result<Self, ParsePhaseError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() || text.len() > 200 || !text.chars().all(is_plain) {
            return Err(ParsePhaseError { text: text.to_owned() });
        }
        Ok(Self(text.to_owned()))
    }
}

/// A phase that was marked.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct MarkedPhase {
    /// Its name.
    pub phase: String,
    /// What the daemon does for it.
    pub answer: String,
}

/// Marks that a phase begins. A number means that window of the plan; the first name means window 0,
/// each new name the next window, and a known name its window again. Returns once the moves are
/// ordered.
///
/// # Errors
///
/// [`PhaseError`].
pub fn mark_phase(session: &Session, name: PhaseName) -> Result<MarkedPhase, PhaseError> {
    let state = session.state()?;
    let Some(response) = socket::ask(&state, "POST", &format!("/phase/{}", name.0)) else {
        return Err(PhaseError::NoDaemon { socket: socket::path_of(&state) });
    };
    let answer = response.body.trim_end().to_owned();
    match response.status {
        200 => Ok(MarkedPhase { phase: name.0, answer }),
        _ => Err(PhaseError::Refused { answer }),
    }
}
