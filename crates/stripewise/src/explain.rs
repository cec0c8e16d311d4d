//! Why regions lie where a plan puts them.

use crate::made_from::{MadeFromError, PlanFiles, Recorded};
use crate::plan_space;
use crate::session::Session;
use serde::Serialize;
use std::path::Path;
use stripewise_layout::RegionIndex;
use stripewise_planner::PlannedFile;
use stripewise_planner::explain::{Explainer, Overview, RegionExplanation};
use thiserror::Error;

/// Why a plan cannot be explained.
#[derive(Debug, Error)]
pub enum ExplainError {
    /// The plan or what it was made from cannot be read.
    #[error(transparent)]
    MadeFrom(#[from] MadeFromError),
    /// Plan and trace do not fit, or there is no such region.
    #[error(transparent)]
    Explain(#[from] stripewise_planner::explain::ExplainError),
    /// A region is a file and a number.
    #[error("`{text}` is no region; write a file and a number, as in /data/out.h5:17")]
    NotRegion {
        /// As it was named.
        text: String,
    },
    /// What follows the colon is no number of a region.
    #[error("`{text}`: `{number}` is not the number of a region; write for example {name}:0")]
    NotNumber {
        /// As it was named.
        text: String,
        /// What follows the last colon.
        number: String,
        /// What is before it.
        name: String,
    },
    /// The plan has no such file.
    #[error("`{name}` is not a file of the plan, which has {}", files.join(", "))]
    NoFile {
        /// As it was named.
        name: String,
        /// Files of the plan.
        files: Vec<String>,
    },
    /// Files of the plan whose paths end alike.
    #[error("`{name}` is the end of several files of the plan; name one of {}", files.join(", "))]
    Ambiguous {
        /// As it was named.
        name: String,
        /// Files of the plan.
        files: Vec<String>,
    },
}

type Result<T> = std::result::Result<T, ExplainError>;

/// What is to be explained.
#[derive(Clone, Debug)]
pub struct ExplainOptions {
    /// The plan and where its inputs are.
    pub files: PlanFiles,
    /// A region as `FILE:REGION`, the file by its path or the end of it. `None`: an overview.
    pub region: Option<String>,
}

/// An explanation. As JSON it is the one or the other.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Explanation {
    /// What sets the pace of the run, which regions take most of it, and what more SSD capacity would
    /// bring.
    Overview(Box<Overview>),
    /// One region, its layout and others.
    Region(Box<RegionExplanation>),
}

/// Explains a plan for the cluster that `session` means.
///
/// # Errors
///
/// [`ExplainError`].
pub fn explain(session: &Session, options: &ExplainOptions) -> Result<Explanation> {
    let recorded = Recorded::load(session, &options.files)?;
    let wanted = options.region.as_deref().map(|text| region_of(text, &recorded.plan.files)).transpose()?;
    if let Some(stale) = plan_space::stale(session, &recorded.cluster, &recorded.plan) {
        session.say(stale);
    }
    let _waiting = session.voice().waiting("reading the trace");
    let made_from = recorded.read_inputs()?;
    let request = made_from.request();
    let explainer = Explainer::new(&made_from.plan, &request)?;
    match wanted {
        Some((file, region)) => Ok(Explanation::Region(Box::new(explainer.region(file, region)?))),
        None => Ok(Explanation::Overview(Box::new(explainer.overview()?))),
    }
}

/// `FILE:REGION` to the file's position in the plan and the region.
fn region_of(text: &str, files: &[PlannedFile]) -> Result<(usize, RegionIndex)> {
    let Some((name, number)) = text.rsplit_once(':') else {
        return Err(ExplainError::NotRegion { text: text.to_owned() });
    };
    let Ok(region) = number.parse().map(RegionIndex) else {
        let (text, number, name) = (text.to_owned(), number.to_owned(), name.to_owned());
        return Err(ExplainError::NotNumber { text, number, name });
    };
    if let Some(exact) = files.iter().position(|file| file.path == name) {
        return Ok((exact, region));
    }
    let ends: Vec<usize> = (0..files.len()).filter(|number| Path::new(&files[*number].path).ends_with(name)).collect();
    let listed = || files.iter().map(|file| file.path.clone()).collect();
    match ends[..] {
        [only] => Ok((only, region)),
        [] => Err(ExplainError::NoFile { name: name.to_owned(), files: listed() }),
        _ => Err(ExplainError::Ambiguous { name: name.to_owned(), files: listed() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> PlannedFile {
        PlannedFile { path: path.to_owned(), pattern: path.to_owned(), size_bytes: 1, windows: Vec::new() }
    }

    #[test]
    fn a_region_is_named_by_its_file_or_the_end_of_it() {
        let files = [file("/data/a"), file("/data/b:1"), file("/other/a")];
        let found = |text: &str| region_of(text, &files).map_err(|error| error.to_string());
        assert_eq!(found("/data/a:3"), Ok((0, RegionIndex(3))));
        assert_eq!(found("b:1:0"), Ok((1, RegionIndex(0))));
        assert_eq!(found("other/a:4294967295"), Ok((2, RegionIndex(u32::MAX))));
        for (text, expected) in [
            ("a:1", "`a` is the end of several files of the plan; name one of /data/a, /data/b:1, /other/a"),
            ("ta/a:1", "`ta/a` is not a file of the plan, which has /data/a, /data/b:1, /other/a"),
            ("/data/a", "`/data/a` is no region; write a file and a number, as in /data/out.h5:17"),
            ("/data/a:x", "`/data/a:x`: `x` is not the number of a region; write for example /data/a:0"),
        ] {
            assert_eq!(found(text), Err(expected.to_owned()));
        }
    }
}
