//! The section on what limits the optimum: bound, gap, dual prices.

use crate::bars::policy_class;
use crate::prices;
use serde::Serialize;
use stripewise_layout::ServerClass;
use stripewise_layout::figures::{duration, number};
use stripewise_planner::{Optimum, Plan, within};

#[derive(Serialize)]
pub(super) struct OptimumSection {
    policy: String,
    class: &'static str,
    facts: Vec<(String, String)>,
    chart: String,
    sentences: Vec<String>,
}

/// One for each plan that knows its bound.
pub(super) fn sections(plans: &[Plan]) -> Vec<OptimumSection> {
    let known = |plan| -> Option<(&Plan, &Optimum)> {
        let plan: &Plan = plan;
        plan.optimum.as_ref().filter(|optimum| optimum.bound_s > 0.0).map(|optimum| (plan, optimum))
    };
    plans.iter().filter_map(known).map(|(plan, optimum)| section(plan, optimum)).collect()
}

fn section(plan: &Plan, optimum: &Optimum) -> OptimumSection {
    let rate = |seconds: f64| number(plan.predicted.total.bytes as f64 / seconds / 1e6);
    let mut gap = format!("{} % above the bound", number(optimum.gap * 100.0));
    if optimum.time_limited {
        gap += "; the time limit ended the search";
    }
    let facts = vec![
        (
            "bound of the layout set".to_owned(),
            format!("{}, {} MB/s", duration(optimum.bound_s), rate(optimum.bound_s)),
        ),
        (
            "this plan, sampled".to_owned(),
            format!(
                "{}, {} MB/s, {}",
                duration(optimum.value_s),
                rate(optimum.value_s.max(optimum.bound_s)),
                within(plan.predicted.total.spread)
            ),
        ),
        ("gap".to_owned(), gap),
    ];
    let rows = prices::rows(&plan.servers, &optimum.prices);
    let unit = prices::capacity_unit(&rows, optimum.bound_s);
    let mut sentences = Vec::new();
    let busiest: Vec<String> = prices::busiest(&rows)
        .into_iter()
        .map(|(station, share)| format!("{station} ({} %)", number((share * 100.0).round())))
        .collect();
    if !busiest.is_empty() {
        sentences.push(format!("What sets the bound, with its share of the time: {}.", busiest.join(", ")));
    }
    sentences.extend(
        [ServerClass::Ssd, ServerClass::Hdd].into_iter().filter_map(|class| capacity_words(&rows, class, unit)),
    );
    OptimumSection {
        policy: plan.policy.to_string(),
        class: policy_class(plan.policy.name()),
        facts,
        chart: prices::chart(&rows, unit),
        sentences,
    }
}

/// What more room on the servers of a class brings.
fn capacity_words(rows: &[prices::Row], class: ServerClass, (unit, share_of_gib): (&str, f64)) -> Option<String> {
    let scarce = rows.iter().filter(|row| row.class == class && row.prices.room_s_per_gib > 0.0);
    let (count, saved_s) = scarce.fold((0, 0.0), |(count, sum), row| {
        (count + row.servers, sum + row.servers as f64 * row.prices.room_s_per_gib)
    });
    (count > 0).then(|| {
        let each = saved_s / count as f64 * share_of_gib;
        match count {
            1 => format!("The first additional space on the one full {class} saves {} of the run for each {unit}.", duration(each)),
            _ => format!(
                "The first additional space on the {count} full {class}s saves {} of the run for each {unit} that they get in all.",
                duration(each)
            ),
        }
    })
}
