//! The sections on plans and profile: regions, load, fits, verdicts.

use crate::headline::sentence;
use crate::material::Material;
use crate::summary::{FILES_SHOWN, MIN_SHARE};
use crate::{bars, fits, load, regions};
use serde::Serialize;
use stripewise_layout::figures::{bytes, duration, grouped, number, signed_percent};
use stripewise_layout::{Direction, Order};
use stripewise_model::{Line, NetworkSource, Profile};
use stripewise_planner::{Gain, Move, MoveKind, Plan, PlannedFile, PolicyName, Throughput, within};

/// Rows of a table of spans before the rest is summed up.
const SPANS_SHOWN: usize = 16;

#[derive(Serialize)]
pub(super) struct RegionSection {
    policy: String,
    class: &'static str,
    path: String,
    facts: String,
    chart: String,
    spans: Vec<Vec<String>>,
    more: usize,
}

#[derive(Serialize)]
pub(super) struct Fits {
    chart: String,
    accesses: Vec<&'static str>,
    rows: Vec<FitRow>,
    network: String,
    measured_at: String,
    caveats: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct FitRow {
    server: String,
    lines: Vec<Vec<String>>,
}

#[derive(Serialize)]
pub(super) struct PlanSection {
    policy: String,
    class: &'static str,
    apply: bool,
    reason: String,
    facts: Vec<(String, String)>,
    moves: Vec<Vec<String>>,
    notes: Vec<String>,
}

pub(super) fn region_sections(material: &Material) -> Vec<RegionSection> {
    let mut sections = Vec::new();
    for plan in &material.plans {
        let mut files: Vec<&PlannedFile> = plan.files.iter().collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.size_bytes));
        let least = files.first().map_or(0, |largest| largest.size_bytes / MIN_SHARE);
        for file in files.into_iter().filter(|file| file.size_bytes >= least).take(FILES_SHOWN) {
            sections.push(region_section(material, plan, file));
        }
    }
    sections
}

fn region_section(material: &Material, plan: &Plan, file: &PlannedFile) -> RegionSection {
    let placement = file.initial();
    let traced = material.trace.iter().flat_map(|trace| &trace.files).find(|traced| traced.path == file.path);
    let map = regions::RegionMap {
        path: &file.path,
        policy: plan.policy.name(),
        size_bytes: file.size_bytes,
        placement,
        servers: &plan.servers,
        heat: traced.map_or(&[], |traced| &traced.by_region),
    };
    let spans = regions::spans(placement, file.size_bytes);
    let rows = spans.iter().take(SPANS_SHOWN).map(|span| {
        let last = span.first + span.regions - 1;
        let range = if last == span.first { span.first.to_string() } else { format!("{}\u{2013}{last}", span.first) };
        let offset = span.first * placement.region_size.0;
        vec![range, bytes(offset), regions::layout_words(span.layout, &plan.servers)]
    });
    let total: u64 = spans.iter().map(|span| span.regions).sum();
    RegionSection {
        policy: plan.policy.to_string(),
        class: bars::policy_class(plan.policy.name()),
        path: file.path.clone(),
        facts: format!(
            "{} regions of {} in {} distinct layouts",
            grouped(total as i64),
            bytes(placement.region_size.0),
            distinct_layouts(&spans)
        ),
        chart: regions::chart(&map),
        spans: rows.collect(),
        more: spans.len().saturating_sub(SPANS_SHOWN),
    }
}

fn distinct_layouts(spans: &[regions::Span<'_>]) -> usize {
    let layouts: std::collections::HashSet<_> = spans.iter().map(|span| span.layout).collect();
    layouts.len()
}

pub(super) fn load_chart(plans: &[Plan]) -> String {
    let Some(first) = plans.first() else { return String::new() };
    let servers: Vec<_> = first.servers.iter().map(|server| (server.name.as_str(), server.class)).collect();
    let mut loads = Vec::new();
    if plans.iter().all(|plan| plan.policy != PolicyName::BASELINE) {
        loads.push(load::Load { policy: PolicyName::BASELINE.name(), seconds: &first.default.server_load_s });
    }
    loads.extend(
        plans.iter().map(|plan| load::Load { policy: plan.policy.name(), seconds: &plan.predicted.server_load_s }),
    );
    load::chart(&servers, &loads)
}

/// The range of all loads together.
pub(super) fn load_within(plans: &[Plan]) -> String {
    let spread = |plan: &Plan| plan.predicted.spread().max(plan.default.spread());
    plans.iter().map(spread).reduce(f64::max).map_or_else(String::new, within)
}

pub(super) fn fits_section(profile: &Profile) -> Fits {
    let line = |line: &Line| {
        vec![
            duration(line.alpha_s),
            if line.beta_s_per_byte > 0.0 { number(1e-6 / line.beta_s_per_byte) } else { "\u{2013}".to_owned() },
            format!("{:.4}", line.r2),
            format!("\u{b1} {:.1} %", line.spread * 100.0),
        ]
    };
    let rows = profile.servers.iter().map(|server| FitRow {
        server: server.name.clone(),
        lines: vec![
            line(server.line(Direction::Read, Order::Sequential)),
            line(server.line(Direction::Read, Order::Random)),
            line(server.line(Direction::Write, Order::Sequential)),
            line(server.line(Direction::Write, Order::Random)),
        ],
    });
    let network = &profile.network;
    let rate = if network.t_s_per_byte > 0.0 {
        format!("{} MB/s", number(1e-6 / network.t_s_per_byte))
    } else {
        "no limit".to_owned()
    };
    let network = match network.source {
        NetworkSource::Local => "Network: none; all servers are directories of this host.".to_owned(),
        NetworkSource::Measured => format!("Network, measured: {} per connection, {rate}.", duration(network.e_s)),
        NetworkSource::Given => format!("Network, as given: {} per connection, {rate}.", duration(network.e_s)),
    };
    Fits {
        chart: fits::chart(profile),
        accesses: vec!["sequential read", "random read", "sequential write", "random write"],
        rows: rows.collect(),
        network,
        measured_at: profile.measured_at.clone(),
        caveats: profile.caveats.iter().map(ToString::to_string).collect(),
    }
}

fn gain_words(gain: Option<Gain>) -> String {
    gain.map_or_else(|| "\u{2013}".to_owned(), ranged)
}

/// `+50 % (+30 % to +70 %)`.
pub(super) fn ranged(gain: Gain) -> String {
    if gain.is_none() {
        return "none".to_owned();
    }
    let [expected, low, high] = [gain.expected, gain.low, gain.high].map(signed_percent);
    format!("{expected} ({low} to {high})")
}

/// Policy, read and write bandwidth, gains, SSD bytes, verdict.
pub(super) fn comparison(plans: &[Plan]) -> Vec<Vec<String>> {
    let rate = |rate: Option<Throughput>| {
        rate.map_or_else(|| "\u{2013}".to_owned(), |rate| format!("{} {}", number(rate.mb_per_s), within(rate.spread)))
    };
    let row = |plan: &Plan| {
        vec![
            plan.policy.to_string(),
            rate(plan.predicted.read),
            gain_words(plan.gain.read),
            rate(plan.predicted.write),
            gain_words(plan.gain.write),
            bytes(plan.ssd_bytes()),
            plan.verdict.word().to_owned(),
        ]
    };
    plans.iter().map(row).collect()
}

pub(super) fn plan_section(plan: &Plan) -> PlanSection {
    let verdict = &plan.verdict;
    let size = size_bytes(plan);
    let windows = plan.files.iter().map(|file| file.windows.len()).max().unwrap_or(0);
    let programs = plan.key.programs().map(|(application, processes)| format!("{application}, {processes} processes"));
    let mut facts = vec![
        ("for".to_owned(), programs.collect::<Vec<_>>().join("; ")),
        ("files".to_owned(), format!("{} with {}", grouped(plan.files.len() as i64), bytes(size))),
        (
            "placing the data".to_owned(),
            format!("{} in {} {}", bytes(verdict.place_bytes), duration(verdict.place_s), within(verdict.spread)),
        ),
        ("saved in each run".to_owned(), saved(plan)),
        ("windows".to_owned(), grouped(windows as i64)),
        (format!("gain over {}", PolicyName::BASELINE), gain_words(Some(plan.gain.total))),
    ];
    if verdict.move_bytes > 0 {
        facts.push((
            "moved between windows".to_owned(),
            format!("{} in {} {}", bytes(verdict.move_bytes), duration(verdict.move_s), within(verdict.spread)),
        ));
    }
    PlanSection {
        policy: plan.policy.to_string(),
        class: bars::policy_class(plan.policy.name()),
        apply: verdict.apply,
        reason: sentence(&verdict.reason),
        facts,
        moves: move_rows(plan),
        notes: plan.notes.clone(),
    }
}

/// `97 ms (60 ms to 134 ms)`: of each run, before its moves.
pub(super) fn saved(plan: &Plan) -> String {
    let signed = |seconds: f64| match seconds < 0.0 {
        true => format!("\u{2212}{}", duration(-seconds)),
        false => duration(seconds),
    };
    if plan.gain.total.is_none() {
        return "nothing".to_owned();
    }
    let (low_s, high_s) = plan.gain.total.saved_s(plan.predicted.total.time_s);
    format!("{} ({} to {})", signed(plan.verdict.saved_s), signed(low_s), signed(high_s))
}

/// Of all planned files.
pub(super) fn size_bytes(plan: &Plan) -> u64 {
    plan.files.iter().fold(0, |sum, file| sum.saturating_add(file.size_bytes))
}

/// For each window border with moves: time, then count and bytes of each kind.
fn move_rows(plan: &Plan) -> Vec<Vec<String>> {
    let windows = plan.files.iter().flat_map(|file| file.windows.iter().map(move |window| (file, window)));
    windows
        .filter(|(_, window)| !window.moves.is_empty())
        .map(|(file, window)| {
            let of = |kind: MoveKind| {
                let moves = window.moves.iter().filter(|one| one.kind == kind);
                let add = |(count, total): (i64, u64), one: &Move| (count + 1, total.saturating_add(one.bytes));
                let (count, total) = moves.fold((0, 0), add);
                format!("{} ({})", grouped(count), bytes(total))
            };
            vec![
                file.path.clone(),
                duration(window.start_s),
                of(MoveKind::Outgoing),
                of(MoveKind::Restripe),
                of(MoveKind::Incoming),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::fits::tests::profile_of_one_server;
    use crate::{Material, render};
    use stripewise_layout::{Direction, Order};
    use stripewise_model::Caveat;

    /// A caveat of each kind, one after the other; the compiler asks where a new one stands.
    fn after(last: Option<&Caveat>) -> Option<Caveat> {
        let (direction, order) = (Direction::Read, Order::Random);
        let [server, hdd, ssd] = ["hdd0", "hdd0", "ssd0"].map(str::to_owned);
        let servers = vec![hdd.clone(), ssd.clone()];
        let (single_bytes_per_s, sustained_bytes_per_s) = (2.4e9, 98e6);
        Some(match last {
            None => Caveat::LimitedRate {
                server,
                direction,
                single_bytes_per_s,
                sustained_bytes_per_s,
                burst_bytes: 1 << 30,
            },
            Some(Caveat::LimitedRate { .. }) => {
                Caveat::LimitedRequests { server, direction, single_per_s: 9000.0, sustained_per_s: 3000.0 }
            }
            Some(Caveat::LimitedRequests { .. }) => Caveat::SlowRequests { server, direction, order, factor: 11.0 },
            Some(Caveat::SlowRequests { .. }) => Caveat::NoLine { server, direction, order, r2: 0.5, spread: 0.3 },
            Some(Caveat::NoLine { .. }) => {
                Caveat::SlowBuffered { server, order, buffered_bytes_per_s: 1e8, direct_bytes_per_s: 2e8 }
            }
            Some(Caveat::SlowBuffered { .. }) => Caveat::NoSeeks { server, ratio: 1.1 },
            Some(Caveat::NoSeeks { .. }) => Caveat::SharedDevice { servers, device: "8:0".into() },
            Some(Caveat::SharedDevice { .. }) => Caveat::SharedLoad { servers, share: 0.5 },
            Some(Caveat::SharedLoad { .. }) => Caveat::BusyHost { share: 0.4 },
            Some(Caveat::BusyHost { .. }) => Caveat::DerivedWrites,
            Some(Caveat::DerivedWrites) => Caveat::Unmeasured { servers: 2 },
            Some(Caveat::Unmeasured { .. }) => Caveat::AssumedWrites { files: 3, path: "/scratch/<a>".into() },
            Some(Caveat::AssumedWrites { .. }) => Caveat::Throttled { server, to: "4 ms".into() },
            Some(Caveat::Throttled { .. }) => Caveat::AlikeClasses { hdd, ssd, ratio: 1.2 },
            Some(Caveat::AlikeClasses { .. }) => return None,
        })
    }

    #[test]
    fn a_profile_alone_shows_every_caveat_in_the_words_of_a_plan() {
        let mut profile = profile_of_one_server();
        let shown = |profile| render(&Material { profile: Some(profile), ..Material::default() }).unwrap();
        assert!(!shown(profile.clone()).contains("may be wrong"));
        profile.caveats = std::iter::successors(after(None), |last| after(Some(last))).collect();
        // The refusal of a kind that is none lists them all.
        let kinds = serde_json::from_str::<Caveat>(r#"{"kind": ""}"#).unwrap_err().to_string();
        assert_eq!(kinds.matches('`').count() / 2, 1 + profile.caveats.len(), "{kinds}");
        let html = shown(profile.clone());
        let section = &html[html.find("<section id=\"profile\" ").unwrap()..];
        let section = &section[..section.find("</section>").unwrap()];
        for caveat in &profile.caveats {
            let sentence = caveat.to_string();
            let item = format!("<li>{}</li>", minijinja::HtmlEscape(&sentence));
            assert!(section.contains(&item), "{sentence}: {section}");
        }
    }
}
