//! Finding the planned file for a file that is opened: the exact one or the nearest, with the differences in words.

use super::{Plan, PlannedFile};

/// How well a file name fits, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NameMatch {
    /// The path itself.
    Path,
    /// The path's pattern: digits in the file name differ.
    Pattern,
    /// The file name, in another directory.
    Name,
    /// The file name's pattern, in another directory.
    NamePattern,
    /// Nothing of the name.
    None,
}

/// A planned file and how it differs from what was asked for.
#[derive(Clone, PartialEq, Debug)]
pub struct Match<'a> {
    /// The plan that has the file.
    pub plan: &'a Plan,
    /// Where its data lies, by windows.
    pub file: &'a PlannedFile,
    /// How near its name is.
    pub name: NameMatch,
    /// One sentence per difference, empty when all is as planned.
    pub differences: Vec<String>,
}

impl Match<'_> {
    /// Whether name, application and process count are those of the plan.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.differences.is_empty()
    }
}

impl Plan {
    /// The planned file nearest to `path` as `application` with `processes` opens it; `None` only if the plan has no files.
    /// Callers decide whether [`NameMatch::None`] is near enough: a plan for one file says little of a quite different one.
    #[must_use]
    pub fn lookup(&self, path: &str, application: &str, processes: u32) -> Option<Match<'_>> {
        nearest(std::slice::from_ref(self), path, application, processes)
    }
}

/// As [`Plan::lookup`], over several plans: the name counts most, then the application, then the ratio of process counts; the first wins ties.
/// A plan for several programs is looked at as one for each of them.
#[must_use]
pub fn nearest<'a>(plans: &'a [Plan], path: &str, application: &str, processes: u32) -> Option<Match<'a>> {
    let candidates = plans.iter().flat_map(|plan| plan.files.iter().map(move |file| (plan, file)));
    let (plan, file) = candidates.min_by(|(a_plan, a), (b_plan, b)| {
        let distance = |plan: &Plan, file: &PlannedFile| {
            let (planned, of) = plan.key.nearest_program(application, processes);
            let ratio = (f64::from(of.max(1)) / f64::from(processes.max(1))).ln().abs();
            (name_match(file, path), planned != application, ratio)
        };
        let (left, right) = (distance(a_plan, a), distance(b_plan, b));
        left.0.cmp(&right.0).then(left.1.cmp(&right.1)).then(left.2.total_cmp(&right.2))
    })?;
    let name = name_match(file, path);
    let mut differences = Vec::new();
    match name {
        NameMatch::Path => {}
        NameMatch::None => differences.push(format!("no plan names {path}; taking that of {}", file.path)),
        _ => differences.push(format!("{path} is planned as {}", file.path)),
    }
    let (planned, of) = plan.key.nearest_program(application, processes);
    if planned != application {
        differences.push(format!("the plan was made for `{planned}`, this is `{application}`"));
    }
    if of != processes {
        differences.push(format!("the plan was made for {of} processes, these are {processes}"));
    }
    Some(Match { plan, file, name, differences })
}

fn name_match(file: &PlannedFile, path: &str) -> NameMatch {
    let name_of = |path: &'_ str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let pattern = pattern_of(path);
    if file.path == path {
        NameMatch::Path
    } else if file.pattern == pattern {
        NameMatch::Pattern
    } else if name_of(&file.path) == name_of(path) {
        NameMatch::Name
    } else if name_of(&file.pattern) == name_of(&pattern) {
        NameMatch::NamePattern
    } else {
        NameMatch::None
    }
}

/// The path with `*` for every run of digits in the file name, and in nothing above it. Two paths fit when their patterns are equal.
pub(crate) fn pattern_of(path: &str) -> String {
    let start = path.rfind('/').map_or(0, |slash| slash + 1);
    let mut pattern = path[..start].to_owned();
    let mut in_digits = false;
    for letter in path[start..].chars() {
        if !letter.is_ascii_digit() {
            pattern.push(letter);
        } else if !in_digits {
            pattern.push('*');
        }
        in_digits = letter.is_ascii_digit();
    }
    pattern
}
