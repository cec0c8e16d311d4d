//! How near predictions are to what is found.

use super::super::experiment::{Panel, Published, Row, Unit};
use serde::Serialize;
use std::collections::BTreeMap;

/// Of all layouts' bandwidths, what half and nine of ten predictions shall be off by at most, in percent.
const MEDIAN_GOAL: f64 = 5.0;
const NINE_OF_TEN_GOAL: f64 = 12.0;
/// Share of what is found that shall lie in the predicted interval, in percent.
const INSIDE_GOAL: f64 = 90.0;

/// The prediction for one layout and what was found, in million bytes per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Guess {
    pub(super) predicted_mb_s: f64,
    /// Relative, of the predicted time.
    pub(super) spread: f64,
    pub(super) mb_s: f64,
}

impl Guess {
    fn error(&self) -> f64 {
        (self.predicted_mb_s / self.mb_s - 1.0).abs()
    }

    /// Whether the time that was found lies in the interval of the predicted one.
    fn is_inside(&self) -> bool {
        (self.predicted_mb_s / self.mb_s - 1.0).abs() <= self.spread
    }
}

/// All predictions for one policy's layouts.
#[derive(Clone, Default, Debug)]
pub(super) struct Accuracy(Vec<Guess>);

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Summary {
    predictions: usize,
    median_error_percent: f64,
    nine_of_ten_error_percent: f64,
    inside_interval_percent: f64,
}

impl Accuracy {
    pub(super) fn add(&mut self, guesses: Vec<Guess>) {
        self.0.extend(guesses);
    }

    pub(super) fn summary(&self) -> Summary {
        let mut errors: Vec<f64> = self.0.iter().map(Guess::error).collect();
        errors.sort_by(f64::total_cmp);
        let at = |share: f64| errors.get(((errors.len() as f64 * share) as usize).min(errors.len().saturating_sub(1)));
        let percent = |error: Option<&f64>| error.copied().unwrap_or(0.0) * 100.0;
        let inside = self.0.iter().filter(|guess| guess.is_inside()).count();
        Summary {
            predictions: errors.len(),
            median_error_percent: percent(at(0.5)),
            nine_of_ten_error_percent: percent(at(0.9)),
            inside_interval_percent: inside as f64 / errors.len().max(1) as f64 * 100.0,
        }
    }

    /// The rows of the comparison.
    pub(super) fn rows(&self, policy: &str) -> Vec<Row> {
        let summary = self.summary();
        let case = format!("{policy}, {} predictions", summary.predictions);
        let row = |what: &str, published, ours| Row::new(&case, what, Unit::Percent, published, ours);
        vec![
            row("predicted bandwidth, median error", Published::Below(MEDIAN_GOAL), summary.median_error_percent),
            row(
                "predicted bandwidth, nine of ten",
                Published::Below(NINE_OF_TEN_GOAL),
                summary.nine_of_ten_error_percent,
            ),
            row("found in the predicted interval", Published::AtLeast(INSIDE_GOAL), summary.inside_interval_percent),
        ]
    }
}

/// Errors and intervals of all policies.
pub(super) fn panel(accuracies: &BTreeMap<&'static str, Accuracy>) -> Panel {
    let groups = accuracies.iter().map(|(policy, accuracy)| {
        let found = accuracy.summary();
        let figures =
            [found.median_error_percent, found.nine_of_ten_error_percent, found.inside_interval_percent].map(Some);
        ((*policy).to_owned(), figures.to_vec())
    });
    let series = ["median error", "nine of ten", "inside the interval"];
    Panel::new("Predicted against simulated bandwidth", Unit::Percent, "policy", series, groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_ranked_and_intervals_hold_what_they_hold() {
        let guess = |predicted_mb_s: f64| Guess { predicted_mb_s, spread: 0.12, mb_s: 100.0 };
        let mut accuracy = Accuracy::default();
        accuracy.add([100.0, 99.0, 102.0, 103.0, 96.0, 105.0, 106.0, 107.0, 108.0, 150.0].map(guess).to_vec());
        let summary = accuracy.summary();
        assert_eq!((summary.predictions, summary.inside_interval_percent), (10, 90.0));
        assert!(
            (summary.median_error_percent - 5.0).abs() < 1e-9
                && (summary.nine_of_ten_error_percent - 50.0).abs() < 1e-9
        );
        assert_eq!(Accuracy::default().summary().predictions, 0);
    }
}
