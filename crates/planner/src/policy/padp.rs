//! `padp`: stripe sizes by server performance.
//!
//! **Paper.** PADP, sections 3.2 to 3.4.
//!
//! **Assumptions.** One access pattern (r, p, c) per file, every request on all servers with m h + n s = r. A file with several request
//! classes has one pattern made of them: r, p and c are byte-weighted means, alpha is the mean over requests, beta that over bytes.
//!
//! **Algorithm.** F (equation 5, with p h t) is a maximum of linear functions, so each choice of the term that is largest in its two maxima
//! gives a linear program: four as printed, six with p h t. On m h + n s = r each has one free variable, h; its constraints are an interval
//! and its optimum is an end of it, so all six are solved exactly in closed form. The least optimum is brought onto the lattice: at both
//! neighbours of h with s = ceil_step((r - m h) / n) the full cost is evaluated, a class with stripe 0 being absent. So are the two ends
//! h = 0 and s = 0, where the cost drops by a class's startup and connections, which no linear program sees. Room is not looked at:
//! regions are drawn as for `def`. With a least stripe each of these pairs is raised to it before it is costed.
//!
//! **Complexity.** O(1) per file and O(regions).

use super::fill::{FileLayouts, fill_at_random};
use super::{About, FileChoice, Policy, Source, Task, file_request_bytes, mean_concurrency, phases};
use crate::servers::ceil_to;
use stripewise_layout::ServerClass;
use stripewise_model::padp::PadpPattern;
use stripewise_model::{Coefficients, StripePair};
use stripewise_trace::FileAccess;

pub(crate) struct Padp;

impl Policy for Padp {
    fn about(&self) -> About {
        About {
            section: "padp",
            source: Source::Paper("PADP"),
            stripes_differ_by: "file, class of server",
            ssd_regions: "drawn",
            moves_data: "no",
        }
    }

    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice> {
        let tiers = task.tiers();
        let layouts = task.request.files.iter().map(|file| {
            let hybrid = tiers.iter().map(|tier| {
                let pair = lattice_pair(&pattern_of(tier, file), task.step_bytes, |pair| task.raised(pair));
                tier.groups.pair_layout(pair)
            });
            let pure = task.pure_pair(file_request_bytes(file, task.step_bytes));
            FileLayouts::uniform(hybrid, task.groups.pair_layout(pure))
        });
        fill_at_random(task, layouts.collect())
    }
}

fn pattern_of(task: &Task<'_>, file: &FileAccess) -> PadpPattern {
    let phases = phases(task, file);
    let (mut requests, mut bytes) = (0.0, 0.0);
    let (mut hdd, mut ssd) = (Coefficients::default(), Coefficients::default());
    for (class, count) in phases.iter().flat_map(|(_, totals)| totals) {
        let (count, carried) = (*count as f64, *count as f64 * class.request_bytes as f64);
        requests += count;
        bytes += carried;
        for (sum, server_class) in [(&mut hdd, ServerClass::Hdd), (&mut ssd, ServerClass::Ssd)] {
            let one = task.parameters.of_class(server_class, class.kind, class.order);
            sum.alpha_s += count * one.alpha_s;
            sum.beta_s_per_byte += carried * one.beta_s_per_byte;
        }
    }
    let mean = |sum: Coefficients| Coefficients {
        alpha_s: sum.alpha_s / f64::max(requests, 1.0),
        beta_s_per_byte: sum.beta_s_per_byte / f64::max(bytes, 1.0),
    };
    PadpPattern {
        hservers: task.parameters.hservers,
        sservers: task.parameters.sservers,
        request_bytes: file_request_bytes(file, task.step_bytes) as f64,
        concurrency: mean_concurrency(task, &phases),
        hdd: mean(hdd),
        ssd: mean(ssd),
        e_s: task.parameters.e_s,
        t_s_per_byte: task.parameters.t_s_per_byte,
    }
}

/// An optimum of the linear programs: real stripe sizes in bytes and F in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Optimum {
    /// h: stripe size on each HServer, at least 0 and any real number.
    pub h_bytes: f64,
    /// s: stripe size on each SServer, at least 0 and any real number.
    pub s_bytes: f64,
    /// F of equation 5 with p h t, in seconds ([`PadpPattern::objective_s`]).
    pub objective_s: f64,
}

/// Which term of max(c r t, p s t, p h t) is largest.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Transfer {
    Client,
    SServer,
    HServer,
}

/// The least F on m h + n s = r, h, s >= 0, with both classes present. Needs at least one server of each class.
#[must_use]
pub fn optimum(pattern: &PadpPattern) -> Optimum {
    let both = [Transfer::Client, Transfer::SServer, Transfer::HServer]
        .into_iter()
        .flat_map(|transfer| [(transfer, true), (transfer, false)]);
    both.filter_map(|(transfer, hservers_slowest)| solve_case(pattern, transfer, hservers_slowest))
        .min_by(|a, b| a.objective_s.total_cmp(&b.objective_s))
        .expect("the cases cover the whole segment")
}

/// One linear program in h, s being (r - m h) / n: the interval that its constraints leave and the end where its objective is least.
fn solve_case(pattern: &PadpPattern, transfer: Transfer, hservers_slowest: bool) -> Option<Optimum> {
    let (p, c) = pattern.concurrency.factors();
    let (m, n, r) = (f64::from(pattern.hservers), f64::from(pattern.sservers), pattern.request_bytes);
    let (t, hdd, ssd) = (pattern.t_s_per_byte, pattern.hdd, pattern.ssd);
    // s = rest - slope h.
    let (rest, slope) = (r / n, m / n);
    let (mut low, mut high) = (0.0f64, r / m);
    let mut feasible = true;
    // a h <= b
    let mut at_most = |a: f64, b: f64| {
        if a > 0.0 {
            high = high.min(b / a);
        } else if a < 0.0 {
            low = low.max(b / a);
        } else {
            feasible &= b >= 0.0;
        }
    };
    match transfer {
        Transfer::Client => {
            at_most(-p * slope, c * r - p * rest);
            at_most(p, c * r);
        }
        Transfer::SServer => {
            at_most(p * slope, p * rest - c * r);
            at_most(1.0 + slope, rest);
        }
        Transfer::HServer => {
            at_most(-p, -c * r);
            at_most(-(1.0 + slope), -rest);
        }
    }
    // alpha_s + s beta_s <= alpha_h + h beta_h, or the reverse.
    let a = -(slope * ssd.beta_s_per_byte + hdd.beta_s_per_byte);
    let b = hdd.alpha_s - ssd.alpha_s - rest * ssd.beta_s_per_byte;
    if hservers_slowest {
        at_most(a, b);
    } else {
        at_most(-a, -b);
    }
    if !feasible || low > high {
        return None;
    }
    let [at_low, at_high] = [low, high].map(|h| {
        let s = (rest - slope * h).max(0.0);
        Optimum { h_bytes: h, s_bytes: s, objective_s: case_objective_s(pattern, transfer, hservers_slowest, h, s, t) }
    });
    Some(if at_high.objective_s < at_low.objective_s { at_high } else { at_low })
}

fn case_objective_s(pattern: &PadpPattern, transfer: Transfer, hservers_slowest: bool, h: f64, s: f64, t: f64) -> f64 {
    let (p, c) = pattern.concurrency.factors();
    let transfer_s = match transfer {
        Transfer::Client => c * pattern.request_bytes * t,
        Transfer::SServer => p * s * t,
        Transfer::HServer => p * h * t,
    };
    transfer_s + p * if hservers_slowest { pattern.hdd.seconds(h) } else { pattern.ssd.seconds(s) }
}

/// The pair on the lattice: the least full cost among both neighbours of the optimum, SServers only and HServers only, each after `raised`,
/// which may only enlarge stripes. It covers r.
#[must_use]
pub fn lattice_pair(pattern: &PadpPattern, step_bytes: u64, raised: impl Fn(StripePair) -> StripePair) -> StripePair {
    let (m, n) = (u64::from(pattern.hservers), u64::from(pattern.sservers));
    let r = pattern.request_bytes.ceil() as u64;
    let share = |bytes: u64, servers: u64| ceil_to(bytes.div_ceil(servers), step_bytes);
    if n == 0 {
        return raised(StripePair::new(share(r, m), 0));
    }
    if m == 0 {
        return raised(StripePair::new(0, share(r, n)));
    }
    let below = optimum(pattern).h_bytes as u64 / step_bytes * step_bytes;
    let pairs = [0, below, below + step_bytes].map(|h| {
        let rest = r.saturating_sub(m * h);
        if rest == 0 { StripePair::new(share(r, m), 0) } else { StripePair::new(h, share(rest, n)) }
    });
    let cost_s = |pair: &StripePair| pattern.cost_s(pair.h_bytes as f64, pair.s_bytes as f64);
    pairs
        .into_iter()
        .chain([StripePair::new(share(r, m), 0)])
        .map(raised)
        .min_by(|a, b| cost_s(a).total_cmp(&cost_s(b)))
        .expect("the list is not empty")
}
