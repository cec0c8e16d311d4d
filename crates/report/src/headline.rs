//! What stands first in a report: whether to do anything, what that is predicted to bring, and the next command.

use crate::run_facts::Figure;
use stripewise_planner::{Gain, Plan, PolicyName, recommended};

/// The verdict of a report.
#[derive(Clone, PartialEq, Debug)]
pub struct Headline {
    /// Whether anything is to be done.
    pub apply: bool,
    /// What to do, in a few words: `Apply the plan of opt`.
    pub decision: String,
    /// One sentence that says why.
    pub reason: String,
    /// What was measured and decides it, one sentence each.
    pub measured: Vec<String>,
    /// What is predicted and said of it besides figures, one sentence each.
    pub predicted: Vec<String>,
    /// What it is predicted to bring, with its range; `None` where nothing is predicted.
    pub gain: Option<Gain>,
    /// What the gain is over.
    pub over: String,
    /// Other predictions than those of plans.
    pub predictions: Vec<Figure>,
    /// What to type next, in order, quoted for a shell; empty where there is nothing to do.
    pub commands: Vec<String>,
}

impl Headline {
    /// Of plans, from which the one is recommended that saves most of those worth their move. `command` says by a plan's number how it is
    /// applied, if it can be. `None` without plans.
    #[must_use]
    pub fn of_plans(plans: &[Plan], command: impl Fn(usize) -> Option<String>) -> Option<Self> {
        let (number, plan) = match recommended(plans) {
            Some(found) => found,
            None => best(plans)?,
        };
        let apply = plan.verdict.apply;
        Some(Self {
            apply,
            decision: match (apply, plan.verdict.fits) {
                (true, _) => format!("Apply the plan of {}", plan.policy),
                (false, true) => "Leave the files where they are".to_owned(),
                (false, false) => "Make space before a plan is applied".to_owned(),
            },
            reason: sentence(&plan.verdict.reason),
            measured: Vec::new(),
            predicted: Vec::new(),
            gain: Some(plan.gain.total).filter(|gain| !gain.is_none()),
            over: PolicyName::BASELINE.to_string(),
            predictions: Vec::new(),
            commands: Some(number).filter(|_| apply).and_then(command).into_iter().collect(),
        })
    }
}

/// The plan with the largest gain, `def` only if there is no other.
fn best(plans: &[Plan]) -> Option<(usize, &Plan)> {
    let rank = |plan: &Plan| (plan.policy != PolicyName::BASELINE, plan.gain.total.expected);
    let is_better = |(is_other, gain): (bool, f64), (was_other, known): (bool, f64)| {
        (is_other, gain).partial_cmp(&(was_other, known)).is_some_and(|order| order.is_gt())
    };
    plans.iter().enumerate().reduce(|known, one| if is_better(rank(one.1), rank(known.1)) { one } else { known })
}

/// The planner's reason without the word that stands before it on the page.
pub(crate) fn sentence(reason: &str) -> String {
    let prefixes = ["apply: ", "leave it: ", "does not fit: "];
    let text = prefixes.iter().find_map(|prefix| reason.strip_prefix(prefix)).unwrap_or(reason);
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}
