//! Table 4: what our fit recovers from measurements on the simulated servers.

use super::{FILE, NETWORKS, Network, REGION};
use crate::reproduce::experiment::{Findings, Published, Row, Setting, Unit};
use anyhow::Result;
use stripewise::laboratory::{Lab, Machine};
use stripewise_device::{LinkSpec, lookup_device, lookup_link};
use stripewise_layout::{ByteCount, Layout, Order, Placement, ServerClass, ServerId};
use stripewise_model::Line;
use stripewise_model::fit::{Sample, fit};
use stripewise_sim::{FilePlacements, SimOptions};
use stripewise_trace::Benchmark;

/// Requests of each size.
const REPETITIONS: u64 = 200;

/// The line through the mean times of one client's requests to one server, one at a time.
fn measured(link: Option<LinkSpec>, order: Order, seed: u64) -> Result<Line> {
    let machine = Machine { class: ServerClass::Hdd, device: lookup_device("paper-hdd")?, link, capacity: None };
    let lab = Lab::new(&[machine], REGION);
    let lab = match link {
        Some(link) => lab.with_client_link(link),
        None => lab,
    };
    let layout = Layout::new([(ServerId(0), 64 << 10)])?;
    let files = [FilePlacements::fixed(Placement::uniform(REGION, layout.clone(), layout))];
    let sample = |exponent: u32| -> Result<Sample> {
        let (request, pattern) =
            (ByteCount(1 << exponent), if order == Order::Random { "random" } else { "sequential" });
        // A file that is larger than what is read of it, so that random requests are.
        let size = ByteCount(FILE.0.max(request.0 * REPETITIONS * 16));
        let text = format!(
            "ior:pattern={pattern},op=read,transfer={request},size={size},requests={REPETITIONS},processes=1,nodes=1,seed={seed}"
        );
        let outcome = lab.simulate_with(&files, &*text.parse::<Benchmark>()?.program()?, SimOptions::default())?;
        Ok(Sample { bytes: request.0, seconds: outcome.read.latency.mean_s })
    };
    let samples = (12..=22).map(sample).collect::<Result<Vec<_>>>()?;
    Ok(fit(&samples)?.line)
}

/// e and v: what the network adds to a request, half of it on the server's link and half on the client's.
fn network(network: Network, storage: &Line, seed: u64) -> Result<(f64, f64)> {
    let over = measured(Some(lookup_link(network.link)?), Order::Random, seed)?;
    Ok(((over.alpha_s - storage.alpha_s) / 2.0, (over.beta_s_per_byte - storage.beta_s_per_byte) / 2.0))
}

pub(super) fn table_4(setting: &Setting<'_>) -> Result<Findings> {
    let lines = setting.map(&[Order::Random, Order::Sequential], |order| measured(None, *order, setting.seed))?;
    let mut findings = Findings::default();
    let mut row = |case: &str, what: &str, unit, published, ours| {
        findings.rows.push(Row::new(case, what, unit, Published::Value(published), ours));
    };
    row("random", "alpha", Unit::Milliseconds, 0.3, lines[0].alpha_s * 1e3);
    row("sequential", "alpha", Unit::Milliseconds, 0.1, lines[1].alpha_s * 1e3);
    row("random", "1 / beta", Unit::MbPerS, 120.0, 1e-6 / lines[0].beta_s_per_byte);
    row("sequential", "1 / beta", Unit::MbPerS, 120.0, 1e-6 / lines[1].beta_s_per_byte);
    let networks = setting.map(&NETWORKS, |one| network(*one, &lines[0], setting.seed))?;
    for ((one, published), (e_s, v_s_per_byte)) in NETWORKS.iter().zip([(0.3, 120.0), (0.2, 1_000.0)]).zip(networks) {
        row(one.name, "e", Unit::Milliseconds, published.0, e_s * 1e3);
        row(one.name, "1 / v", Unit::MbPerS, published.1, 1e-6 / v_s_per_byte);
    }
    Ok(findings)
}
