//! A simulated run over time: bandwidth, bytes that regions moved, and beneath it how busy each server was.

use super::scale::Scale;
use super::svg::{Anchor, Path, Svg};
use crate::simulation::{SimulatedRun, SimulatedServer};
use stripewise_layout::figures::{bytes, duration, number};
use stripewise_sim::TimeSlice;

/// The axes that all runs of a file share, so that their pictures can be compared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Axes {
    /// The longest run.
    span_s: f64,
    rate: Scale,
}

impl Axes {
    pub(super) fn of(runs: &[SimulatedRun]) -> Self {
        let span_s = runs.iter().map(|run| run.outcome.time_s).fold(0.0, f64::max);
        let slices = runs.iter().flat_map(slices);
        let most = slices.map(|slice| slice.mb_s(slice.all_bytes()).max(slice.mb_s(slice.slice.moved_bytes)));
        Self { span_s: span_s.max(f64::MIN_POSITIVE), rate: Scale::decimal(most.fold(0.0, f64::max), 3.0) }
    }

    fn x(&self, time_s: f64) -> f64 {
        LEFT + (time_s / self.span_s).clamp(0.0, 1.0) * PLOT
    }
}

/// A slice and where it ends.
#[derive(Clone, Copy)]
struct Slice<'a> {
    slice: &'a TimeSlice,
    end_s: f64,
}

impl Slice<'_> {
    fn all_bytes(&self) -> u64 {
        self.slice.read_bytes.saturating_add(self.slice.write_bytes)
    }

    fn mb_s(&self, bytes: u64) -> f64 {
        let length_s = self.end_s - self.slice.start_s;
        if length_s > 0.0 { bytes as f64 / length_s / 1e6 } else { 0.0 }
    }
}

/// The slices of a run; what the simulator counted after the end of the last request has no length and is not shown.
fn slices(run: &SimulatedRun) -> impl Iterator<Item = Slice<'_>> {
    let (timeline, time_s) = (&run.outcome.timeline, run.outcome.time_s);
    timeline.iter().enumerate().map(move |(number, slice)| {
        let end_s = timeline.get(number + 1).map_or(time_s, |next| next.start_s);
        Slice { slice, end_s: end_s.min(time_s) }
    })
}

/// Servers whose shares are shown in one row of the strip: their mean.
#[derive(Clone, PartialEq, Debug)]
struct Strip {
    name: String,
    servers: Vec<usize>,
    /// Whether a new class begins.
    begins_class: bool,
}

/// Rows of the strip at most; neighbours of a class are joined beyond.
const MAX_ROWS: usize = 48;

/// SServers above HServers, as in the map of regions.
fn strips(servers: &[SimulatedServer]) -> Vec<Strip> {
    let mut order: Vec<usize> = (0..servers.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(servers[*index].class));
    let joined = servers.len().div_ceil(MAX_ROWS).max(1);
    let of_class = order.chunk_by(|a, b| servers[*a].class == servers[*b].class);
    let mut strips = Vec::new();
    for (class, members) in of_class.enumerate() {
        for (number, together) in members.chunks(joined).enumerate() {
            let (first, last) = (together[0], together[together.len() - 1]);
            let name = match first == last {
                true => servers[first].name.clone(),
                false => format!("{}\u{2013}{}", servers[first].name, servers[last].name),
            };
            strips.push(Strip { name, servers: together.to_vec(), begins_class: class > 0 && number == 0 });
        }
    }
    strips
}

/// Shades of how busy a server is.
pub(super) const SHADES: usize = 7;

/// The shade of a share of 0 to 1; none for a server at rest.
fn shade(share: f64) -> Option<usize> {
    (share > 0.0).then(|| ((share * SHADES as f64) as usize).min(SHADES - 1))
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 96.0;
const PLOT: f64 = WIDTH - LEFT - 6.0;
const HEAD: f64 = 34.0;
const RATE: f64 = 84.0;
const BETWEEN: f64 = 10.0;
const CLASS_GAP: f64 = 5.0;

/// The picture of one run.
pub(super) fn chart(run: &SimulatedRun, servers: &[SimulatedServer], axes: &Axes) -> String {
    let strips = strips(servers);
    let row = if strips.len() > 24 { 6.0 } else { 11.0 };
    let gaps = strips.iter().filter(|strip| strip.begins_class).count() as f64 * CLASS_GAP;
    let strip_top = HEAD + RATE + BETWEEN;
    let floor = strip_top + row * strips.len() as f64 + gaps;
    let mut svg = Svg::new(WIDTH, floor + 24.0);
    heading(&mut svg, run);
    bandwidth(&mut svg, run, axes);
    busy(&mut svg, run, &strips, axes, (strip_top, row));
    let time = Scale::time(axes.span_s, 8.0);
    for tick in time.ticks().take_while(|tick| *tick <= axes.span_s * (1.0 + 1e-9)) {
        let x = axes.x(tick);
        svg.line((x, floor), (x, floor + 4.0), "axis");
        let anchor = match tick == 0.0 {
            true => Anchor::Start,
            false if x > WIDTH - 30.0 => Anchor::End,
            false => Anchor::Middle,
        };
        svg.text((x, floor + 17.0), anchor, "tick", duration(tick));
    }
    let name = &run.name;
    let description = spoken(run, servers);
    svg.finish(&format!("Simulated bandwidth of {name} over time, and how busy each server was"), &description)
}

/// The run in words: how long, its highest rate and when, and the busiest server.
fn spoken(run: &SimulatedRun, servers: &[SimulatedServer]) -> String {
    let (time_s, outcome) = (run.outcome.time_s, &run.outcome);
    let mut text = format!("{} at {} MB/s in all.", duration(time_s), number(outcome.mb_per_s));
    let rate = |slice: &Slice<'_>| slice.mb_s(slice.all_bytes());
    if let Some(peak) = slices(run).max_by(|one, other| rate(one).total_cmp(&rate(other))) {
        text +=
            &format!(" The highest rate is {} MB/s, from {} on.", number(rate(&peak)), duration(peak.slice.start_s));
    }
    let busy = outcome.servers.iter().zip(servers);
    if let Some((found, server)) = busy.max_by(|one, other| one.0.device_busy_s.total_cmp(&other.0.device_busy_s)) {
        let share = found.device_busy_s / time_s.max(f64::MIN_POSITIVE) * 100.0;
        text += &format!(" The busiest device is that of {}, {share:.0} % of the time.", server.name);
    }
    text
}

fn heading(svg: &mut Svg, run: &SimulatedRun) {
    let outcome = &run.outcome;
    svg.text((LEFT, 16.0), Anchor::Start, "panel-title", &run.name);
    let mut note = format!("{} MB/s simulated, {}", number(outcome.mb_per_s), duration(outcome.time_s));
    if outcome.moved_bytes > 0 {
        note += &format!(", {} moved", bytes(outcome.moved_bytes));
    }
    svg.text((WIDTH - 6.0, 16.0), Anchor::End, "note", note);
}

fn bandwidth(svg: &mut Svg, run: &SimulatedRun, axes: &Axes) {
    let base = HEAD + RATE;
    let end = axes.x(run.outcome.time_s);
    svg.rect([LEFT, HEAD, end - LEFT, RATE], "plot", "");
    let (mut reads, mut writes) = (Path::default(), Path::default());
    let mut moved = Vec::new();
    for slice in slices(run).filter(|slice| slice.end_s > slice.slice.start_s) {
        let (x, next) = (axes.x(slice.slice.start_s), axes.x(slice.end_s));
        let height = |bytes| axes.rate.at(slice.mb_s(bytes), RATE);
        let (read, all) = (height(slice.slice.read_bytes), height(slice.all_bytes()));
        if read > 0.0 {
            reads.rect([x, base - read, next - x, read]);
        }
        if all > read {
            writes.rect([x, base - all, next - x, all - read]);
        }
        let level = base - height(slice.slice.moved_bytes);
        moved.extend([(x, level), (next, level)]);
    }
    svg.path(&reads, r#"class="cell edge-read""#);
    svg.path(&writes, r#"class="cell edge-write""#);
    for tick in axes.rate.ticks() {
        let y = base - axes.rate.at(tick, RATE);
        svg.line((LEFT, y), (end, y), if tick == 0.0 { "axis" } else { "grid over" });
        svg.text((LEFT - 8.0, y + 4.0), Anchor::End, "tick", number(tick));
    }
    svg.text((LEFT - 8.0, HEAD - 8.0), Anchor::End, "unit", "MB/s");
    if run.outcome.timeline.iter().any(|slice| slice.moved_bytes > 0) {
        let mut line = Path::default();
        line.polyline(moved);
        svg.path(&line, r#"class="moved-halo""#);
        svg.path(&line, r#"class="moved""#);
    }
    for phase in run.outcome.phases.iter().skip(1) {
        let x = axes.x(phase.start_s);
        svg.line((x, HEAD), (x, base), "phase");
    }
}

fn busy(svg: &mut Svg, run: &SimulatedRun, strips: &[Strip], axes: &Axes, (top, row): (f64, f64)) {
    let mut shades: [Path; SHADES] = Default::default();
    let mut y = top;
    for (number, strip) in strips.iter().enumerate() {
        if strip.begins_class {
            y += CLASS_GAP;
        }
        svg.rect([LEFT, y, axes.x(run.outcome.time_s) - LEFT, row - 1.0], "plot", "");
        if row > 8.0 || number % 2 == 0 || strip.begins_class {
            svg.text((LEFT - 8.0, y + row / 2.0 + 3.0), Anchor::End, "tick small", &strip.name);
        }
        for slice in slices(run).filter(|slice| slice.end_s > slice.slice.start_s) {
            let of = |server: &usize| slice.slice.device_busy.get(*server).copied().unwrap_or(0.0);
            let share = strip.servers.iter().map(of).sum::<f64>() / strip.servers.len() as f64;
            if let Some(shade) = shade(share) {
                let (x, next) = (axes.x(slice.slice.start_s), axes.x(slice.end_s));
                shades[shade].rect([x, y, next - x, row - 1.0]);
            }
        }
        y += row;
    }
    for (shade, path) in shades.iter().enumerate() {
        svg.path(path, &format!(r#"class="cell busy-{shade}""#));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::ServerClass;
    use stripewise_sim::Outcome;

    fn servers(hdds: usize, ssds: usize) -> Vec<SimulatedServer> {
        let server = |class: ServerClass, number: usize| SimulatedServer {
            name: format!("{class}{number}"),
            class,
            device: "d".into(),
            model: "mean".into(),
            link: None,
        };
        let hdds = (0..hdds).map(|number| server(ServerClass::Hdd, number));
        hdds.chain((0..ssds).map(|number| server(ServerClass::Ssd, number))).collect()
    }

    fn slice(start_s: f64, read_bytes: u64, write_bytes: u64, moved_bytes: u64, device_busy: &[f64]) -> TimeSlice {
        TimeSlice { start_s, read_bytes, write_bytes, moved_bytes, device_busy: device_busy.to_vec() }
    }

    fn run(timeline: Vec<TimeSlice>, time_s: f64) -> SimulatedRun {
        let outcome = Outcome { time_s, timeline, ..Outcome::default() };
        SimulatedRun { name: "opt".into(), plan: None, predicted_mb_per_s: None, predicted_spread: 0.12, outcome }
    }

    #[test]
    fn slices_are_as_wide_as_they_last_and_as_high_as_their_rate() {
        // 50 MB/s of reads, then in half the time 100 MB/s: half reads, half writes.
        let timeline = vec![slice(0.0, 100_000_000, 0, 0, &[1.0]), slice(2.0, 50_000_000, 50_000_000, 0, &[0.0])];
        let run = run(timeline, 3.0);
        let axes = Axes::of(std::slice::from_ref(&run));
        assert_eq!((axes.span_s, axes.rate.top), (3.0, 100.0));
        let chart = chart(&run, &servers(1, 0), &axes);
        // 858 wide for 3 s, 84 high for 100 MB/s; the floor is at 118.
        assert!(chart.contains(r#"edge-read" d="M96 76h572v42h-572zM668 76h286v42h-286z"#), "{chart}");
        assert!(chart.contains(r#"edge-write" d="M668 34h286v42h-286z"#), "{chart}");
        assert!(chart.contains(r#"busy-6" d="M96 128h572v10h-572z"/>"#), "{chart}");
        assert!(!chart.contains("class=\"moved"), "nothing moved");
    }

    #[test]
    fn moves_have_a_line_and_empty_runs_no_infinite_figures() {
        let moving = run(vec![slice(0.0, 1 << 20, 0, 1 << 21, &[0.5])], 1.0);
        let empty = run(Vec::new(), 0.0);
        let axes = Axes::of(&[moving.clone(), empty.clone()]);
        assert!(chart(&moving, &servers(1, 0), &axes).contains(r#"class="moved""#));
        let alone = Axes::of(std::slice::from_ref(&empty));
        let chart = chart(&empty, &servers(2, 1), &alone);
        assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
    }

    #[test]
    fn many_servers_are_joined_within_their_class() {
        let strips = strips(&servers(90, 5));
        let names: Vec<&str> = strips.iter().map(|strip| strip.name.as_str()).collect();
        assert_eq!(names[..4], ["ssd0\u{2013}ssd1", "ssd2\u{2013}ssd3", "ssd4", "hdd0\u{2013}hdd1"]);
        assert_eq!(strips.iter().map(|strip| strip.servers.len()).sum::<usize>(), 95);
        assert!(strips.len() <= MAX_ROWS && strips[3].begins_class && !strips[0].begins_class);
    }

    #[test]
    fn shades_are_of_equal_shares_and_rest_has_none() {
        assert_eq!([0.0, 0.01, 0.5, 1.0, 1.2].map(shade), [None, Some(0), Some(3), Some(6), Some(6)]);
    }
}
