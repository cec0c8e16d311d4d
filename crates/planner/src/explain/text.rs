//! Explanations as text for a terminal.

use super::{Alternative, Overview, Pace, RegionExplanation, WindowPace};
use crate::predict::within;
use std::fmt::Write;
use stripewise_layout::figures::{bytes, duration};
use stripewise_layout::printing::printable;
use stripewise_layout::{Order, RequestKind, WriteClass};
use stripewise_model::Caveat;

/// Windows that an overview lists before it sums up the rest.
const WINDOWS_SHOWN: usize = 12;

/// A plan as a whole, in words and numbers: first the verdict and `next`, what to do about it.
#[must_use]
pub fn overview_text(overview: &Overview, next: &str) -> String {
    let mut text = format!("verdict    {}\nnext       {next}\n", overview.verdict.reason);
    write_overview(&mut text, overview).expect("writing to a String cannot fail");
    text
}

/// One region, in words and numbers.
#[must_use]
pub fn region_text(explanation: &RegionExplanation) -> String {
    let mut text = String::new();
    write_region(&mut text, explanation).expect("writing to a String cannot fail");
    text
}

fn write_overview(text: &mut String, overview: &Overview) -> std::fmt::Result {
    let (time, range) = (duration(overview.time_s), within(overview.spread));
    writeln!(
        text,
        "policy     {}, a run is predicted to take {time} {range}, gain over def {}",
        overview.policy, overview.gain
    )?;
    if let Some(optimum) = &overview.optimum {
        let (bound, gap) = (duration(optimum.bound_s), optimum.gap * 100.0);
        writeln!(
            text,
            "bound      {bound}: by the model no placement of the shapes weighed takes less; the plan is {gap:.0} % above it"
        )?;
    }
    for (number, window) in overview.windows.iter().enumerate().take(WINDOWS_SHOWN) {
        writeln!(text, "window     {}", window_text(number, window))?;
    }
    if overview.windows.len() > WINDOWS_SHOWN {
        writeln!(text, "window     and {} more", overview.windows.len() - WINDOWS_SHOWN)?;
    }
    match overview.full.is_empty() {
        true => writeln!(text, "capacity   every server takes another region")?,
        false => writeln!(text, "capacity   full: {}", overview.full.join(", "))?,
    }
    match &overview.ssd_price {
        Some(price) => {
            let change = match price.saved_s_per_gib {
                saved if saved >= 0.0 => format!("saves {} {range}", duration(saved)),
                lost => format!("loses {} {range}", duration(-lost)),
            };
            writeln!(
                text,
                "one GiB    more SSD capacity, over {}, {change} of a run ({}; now {} there)",
                span_text(&price.servers),
                if price.is_dual { "dual price of the bound" } else { "planned again" },
                bytes(price.room_bytes)
            )?;
        }
        None => writeln!(text, "one GiB    more SSD capacity brings nothing: no SSD server's capacity is limited")?,
    }
    writeln!(text, "regions that take most service time")?;
    writeln!(text, "   share   service  requests       bytes  region")?;
    for region in &overview.regions {
        writeln!(
            text,
            "  {:>4.1} % {:>9} {:>9} {:>11}  {}:{} {}",
            region.share * 100.0,
            duration(region.service_s),
            region.requests,
            bytes(region.bytes),
            printable(&region.file, false),
            region.region,
            region.layout
        )?;
    }
    write_notes(text, overview.emulated, &overview.caveats)
}

fn write_region(text: &mut String, explanation: &RegionExplanation) -> std::fmt::Result {
    let RegionExplanation { file, region, .. } = explanation;
    let (size, file) = (bytes(explanation.region_bytes), printable(file, false));
    writeln!(text, "why        {}", explanation.reason)?;
    writeln!(text, "region     {file}:{region} ({size}), by {} {}", explanation.policy, explanation.layout)?;
    for asked in &explanation.asked {
        let what = match asked.class.kind {
            RequestKind::Read => "reads",
            RequestKind::Write(WriteClass::Direct) => "writes",
            RequestKind::Write(WriteClass::Buffered) => "buffered writes",
            RequestKind::Write(WriteClass::Synchronous) => "synchronous writes",
        };
        let order = match asked.class.order {
            Order::Sequential => "in sequence",
            Order::Random => "at random",
        };
        let size = bytes(asked.class.request_bytes);
        writeln!(text, "asked for  {} {what} of {size} {order}", asked.requests)?;
    }
    if !explanation.asked.is_empty() {
        writeln!(text, "           by {} processes", explanation.processes)?;
    }
    writeln!(text, "window     {}", interval_text(&explanation.window))?;
    let range = within(explanation.window.spread);
    writeln!(text, "layouts of this region with everything else in place, predicted {range}")?;
    writeln!(text, "      window   against the plan  layout")?;
    for one in &explanation.alternatives {
        writeln!(text, "  {:>10}  {:>17}  {}", duration(one.time_s), difference_text(one), alternative_text(one))?;
    }
    let planned = explanation.alternatives.iter().find(|one| one.is_planned);
    if let Some((worth, planned)) = explanation.ssd_worth_s_per_gib.zip(planned) {
        let saved_s = worth * planned.ssd_bytes as f64 / (1u64 << 30) as f64;
        let verb = if saved_s < 0.0 { "costs" } else { "saves" };
        let (saved, size) = (duration(saved_s.abs()), bytes(planned.ssd_bytes));
        writeln!(text, "SSD space  {size} of it {verb} {saved} {range} here, against the fastest layout without")?;
    }
    write_notes(text, explanation.emulated, &explanation.caveats)
}

fn write_notes(text: &mut String, emulated: bool, caveats: &[Caveat]) -> std::fmt::Result {
    if emulated {
        writeln!(text, "note       servers are emulated: all figures are those of device models")?;
    }
    for note in Caveat::merged(caveats) {
        writeln!(text, "note       {note}")?;
    }
    Ok(())
}

fn window_text(number: usize, window: &WindowPace) -> String {
    format!("{number}, {}", interval_text(window))
}

fn interval_text(window: &WindowPace) -> String {
    let pace = window.pace.as_ref().map_or_else(|| "no requests".to_owned(), pace_text);
    let [start, end, time] = [window.start_s, window.end_s, window.time_s].map(duration);
    format!("{start} to {end}: {time} {} predicted; {pace}", within(window.spread))
}

fn pace_text(pace: &Pace) -> String {
    format!("the {} of {} is busiest, {:.0} % of the time", pace.station, pace.server, pace.busy * 100.0)
}

fn difference_text(one: &Alternative) -> String {
    if one.is_planned {
        return "the plan".to_owned();
    }
    if one.difference_s.abs() < 0.5e-6 {
        return "the same".to_owned();
    }
    let sign = if one.difference_s < 0.0 { '-' } else { '+' };
    format!("{sign}{}", duration(one.difference_s.abs()))
}

fn alternative_text(one: &Alternative) -> String {
    let lack = |lack: &super::Lack| format!("{} lacks {}", lack.server, bytes(lack.bytes));
    let lacking: Vec<String> = one.lacking.iter().map(lack).collect();
    let capacity = if lacking.is_empty() { String::new() } else { format!("; no space: {}", lacking.join(", ")) };
    format!("{} ({}){capacity}", one.layout, one.names.join(", "))
}

/// `ssd0 to ssd3`.
fn span_text(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [first, .., last] => format!("{first} to {last}"),
    }
}
