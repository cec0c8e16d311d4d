//! What `opt` has to reach over all cases.

use super::super::experiment::{Published, Row, Unit};
use super::CaseResult;
use super::case::Pattern;

const OPT: &str = "opt";

fn geometric_mean(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let logs: Vec<f64> = ratios.map(f64::ln).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Rows for those goals that the cases allow to judge; none without `opt`.
pub(super) fn rows(results: &[CaseResult]) -> Vec<Row> {
    let zipf = |processes: u32| {
        results.iter().filter(move |result| result.pattern == Pattern::Zipf && result.processes == processes)
    };
    let opt = |result: &CaseResult| result.mb_s.get(OPT).copied();
    let of_bound = |result: &CaseResult| Some(opt(result)? / result.bound_mb_s?);
    let over = |result: &CaseResult, base: &str| Some(opt(result)? / result.mb_s.get(base)?);
    let best_other = |result: &CaseResult| {
        let others = result.mb_s.iter().filter(|(policy, _)| **policy != OPT);
        Some(opt(result)? / others.map(|(_, figure)| *figure).max_by(f64::total_cmp)?)
    };
    let worst = results.iter().filter_map(|result| Some((best_other(result)?, result.name())));
    let worst = worst.min_by(|left, right| left.0.total_cmp(&right.0));
    let goals = [
        ("zipf, 32 processes", "opt of the bound, geometric mean", 0.80, geometric_mean(zipf(32).filter_map(of_bound))),
        (
            "zipf, 128 processes",
            "opt of the bound, geometric mean",
            0.92,
            geometric_mean(zipf(128).filter_map(of_bound)),
        ),
        (
            "zipf, 32 processes",
            "opt over h2dp, geometric mean",
            2.1,
            geometric_mean(zipf(32).filter_map(|result| over(result, "h2dp"))),
        ),
    ];
    let mut rows: Vec<Row> = goals
        .into_iter()
        .filter_map(|(case, what, least, ours)| {
            Some(Row::new(case, what, Unit::Ratio, Published::AtLeast(least), ours?))
        })
        .collect();
    rows.extend(worst.map(|(ratio, case)| {
        let what = "opt over the best other, the worst of all cases";
        Row::new(case, what, Unit::Ratio, Published::AtLeast(0.98), ratio)
    }));
    rows
}
