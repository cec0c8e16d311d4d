//! Percentiles of the time of a request, side by side for simulated runs, on a logarithmic axis.

use super::bars::{distinct, policy_class};
use super::svg::{Anchor, Svg};
use stripewise_layout::figures::duration;
use stripewise_sim::Latency;

/// The requests of one direction of a run.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Span {
    pub(super) run: String,
    pub(super) operation: &'static str,
    pub(super) latency: Latency,
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 96.0;
const PLOT: f64 = WIDTH - LEFT - 70.0;
const HEAD: f64 = 26.0;
const ROW: f64 = 20.0;
const FOOT: f64 = 32.0;

/// Powers of ten that hold all percentiles.
fn decades(spans: &[Span]) -> Option<(i32, i32)> {
    let times = spans.iter().flat_map(|span| [span.latency.p50_s, span.latency.mean_s, span.latency.max_s]);
    let times: Vec<f64> = times.filter(|time_s| *time_s > 0.0 && time_s.is_finite()).collect();
    let least = times.iter().copied().reduce(f64::min)?;
    let most = times.iter().copied().reduce(f64::max)?;
    let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    Some((low, high.max(low + 1)))
}

/// The chart, a panel for each operation; an empty text when no request took any time.
pub(super) fn chart(spans: &[Span]) -> String {
    let Some((low, high)) = decades(spans) else { return String::new() };
    let at = |time_s: f64| {
        let decade = if time_s > 0.0 { time_s.log10() } else { f64::from(low) };
        LEFT + ((decade - f64::from(low)) / f64::from(high - low)).clamp(0.0, 1.0) * PLOT
    };
    let operations = distinct(spans.iter().map(|span| span.operation));
    let height = HEAD + FOOT;
    let mut svg = Svg::new(WIDTH, height * operations.len() as f64 + ROW * spans.len() as f64);
    let mut top = 0.0;
    for operation in operations {
        let members: Vec<&Span> = spans.iter().filter(|span| span.operation == operation).collect();
        svg.text((0.0, top + 16.0), Anchor::Start, "panel-title", operation);
        let first = top + HEAD;
        let floor = first + ROW * members.len() as f64;
        for decade in low..=high {
            let time_s = 10f64.powi(decade);
            svg.line((at(time_s), first), (at(time_s), floor), "grid");
            svg.text((at(time_s), floor + 16.0), Anchor::Middle, "tick", duration(time_s));
        }
        for (row, span) in members.iter().enumerate() {
            one(&mut svg, span, first + ROW * row as f64, at);
        }
        top = floor + FOOT;
    }
    svg.finish(
        "Percentiles of the simulated time of a request under each plan, reads and writes apart",
        "The table of this section has the median, the 95th and 99th percentile and the longest request of every run.",
    )
}

fn one(svg: &mut Svg, span: &Span, y: f64, at: impl Fn(f64) -> f64) {
    let Latency { mean_s, p50_s, p95_s, p99_s, max_s } = span.latency;
    let title = format!(
        "{} {}: median {}, 95 % within {}, 99 % within {}, longest {}, mean {}",
        span.run,
        span.operation.to_lowercase(),
        duration(p50_s),
        duration(p95_s),
        duration(p99_s),
        duration(max_s),
        duration(mean_s)
    );
    let (middle, class) = (y + ROW / 2.0, policy_class(&span.run));
    svg.text((LEFT - 10.0, middle + 4.0), Anchor::End, "name", &span.run);
    svg.line((at(p99_s), middle), (at(max_s), middle), "reach");
    svg.line((at(max_s), middle - 4.0), (at(max_s), middle + 4.0), "reach");
    svg.rect([at(p50_s), y + 4.0, at(p95_s) - at(p50_s), ROW - 8.0], &format!("bar {class}"), &title);
    svg.rect([at(p95_s), y + 7.0, at(p99_s) - at(p95_s), ROW - 14.0], &format!("bar {class}"), &title);
    svg.line((at(p50_s), y + 2.0), (at(p50_s), y + ROW - 2.0), "marker");
    svg.text((at(max_s) + 6.0, middle + 4.0), Anchor::Start, "value", duration(max_s));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(run: &str, operation: &'static str, p50_s: f64) -> Span {
        let latency =
            Latency { mean_s: 1.2 * p50_s, p50_s, p95_s: 2.0 * p50_s, p99_s: 10.0 * p50_s, max_s: 100.0 * p50_s };
        Span { run: run.into(), operation, latency }
    }

    #[test]
    fn percentiles_stand_on_a_logarithmic_axis() {
        let spans = [span("opt", "Reads", 0.001), span("opt", "Writes", 0.001)];
        assert_eq!(decades(&spans), Some((-3, -1)));
        let chart = chart(&spans);
        // Two decades on 794 pixels: the 99th percentile, ten times the median, is in the middle.
        assert!(chart.contains(r#"class="reach" x1="493""#), "{chart}");
        assert!(chart.contains(">Reads<") && chart.contains(">Writes<") && chart.contains("longest 100 ms"), "{chart}");
    }

    #[test]
    fn requests_that_take_no_time_have_no_picture() {
        assert_eq!(chart(&[span("def", "Reads", 0.0)]), "");
        assert_eq!(chart(&[]), "");
    }
}
