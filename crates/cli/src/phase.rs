//! `stripewise phase`: a program says that a phase of its begins.

use crate::context::Context;
use crate::output::Verdict;
use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use stripewise::daemon::socket;

/// Mark that a phase of the running program begins, for a plan that is followed by phases
///
/// For scripts that run a program in steps, under `stripewise run --migrate --windows phase` or beside `stripewise daemon --windows phase`. A number
/// means that window of the plan. The first name that is marked means window 0, each new name the next window, and a name that came before
/// its window again. The moves go on in the background.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise phase read-mesh
  stripewise phase 2")]
pub(crate) struct PhaseArgs {
    /// Name of the phase, or number of a window
    #[arg(value_parser = parse_name)]
    name: String,
}

fn parse_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || text.len() > 200 || !text.chars().all(is_plain) {
        return Err(format!("`{text}` is no name of a phase; use up to 200 letters, digits, `-`, `_` and `.`"));
    }
    Ok(text.to_owned())
}

#[derive(Serialize)]
struct Shown {
    phase: String,
    /// What the daemon made of it.
    answer: String,
}

pub(crate) fn run(context: &Context, arguments: PhaseArgs) -> Result<Verdict> {
    let state = context.session.state()?;
    let path = format!("/phase/{}", arguments.name);
    let Some(response) = socket::ask(&state, "POST", &path) else {
        bail!(
            "no daemon answers at {}; start `stripewise daemon --plan PLAN --windows phase`, or `stripewise run --migrate --windows phase`",
            socket::path_of(&state).display()
        );
    };
    let answer = response.body.trim_end().to_owned();
    if response.status != 200 {
        bail!("{answer}");
    }
    if context.json {
        context.object(&Shown { phase: arguments.name, answer })?;
    } else {
        context.say(answer);
    }
    Ok(Verdict::Done)
}
