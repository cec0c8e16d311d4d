//! The profile's lines: time of one request over its size, for every server, direction and order.

use super::svg::{Anchor, Path, Svg};
use stripewise_layout::figures::{bytes, duration};
use stripewise_layout::{Direction, Order, ServerClass};
use stripewise_model::Profile;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 62.0;
const GAP: f64 = 96.0;
const PANEL_WIDTH: f64 = (WIDTH - LEFT - GAP - 36.0) / 2.0;
const PLOT: f64 = 170.0;
const PANEL: f64 = PLOT + 82.0;
/// Sizes that calibration measures: 4 KiB to 4 MiB.
const SIZES: std::ops::RangeInclusive<u32> = 12..=22;

/// What takes longer is drawn at the upper edge.
const LONGEST_S: f64 = 1e9;

/// The four panels.
pub(super) fn chart(profile: &Profile) -> String {
    let mut svg = Svg::new(WIDTH, PANEL * 2.0);
    let (low, high) = decades(profile);
    let panels = [
        (Direction::Read, Order::Sequential, "Sequential reads"),
        (Direction::Read, Order::Random, "Random reads"),
        (Direction::Write, Order::Sequential, "Sequential writes"),
        (Direction::Write, Order::Random, "Random writes"),
    ];
    for (number, (direction, order, title)) in panels.into_iter().enumerate() {
        let left = LEFT + (PANEL_WIDTH + GAP) * (number % 2) as f64;
        let top = PANEL * (number / 2) as f64;
        let panel = Panel { left, top: top + 34.0, low, high };
        svg.text((left, top + 16.0), Anchor::Start, "panel-title", title);
        panel.grid(&mut svg);
        for class in [ServerClass::Hdd, ServerClass::Ssd] {
            panel.class(&mut svg, profile, direction, order, class);
        }
    }
    svg.finish(
        "Fitted time of one request over its size, for every server of the profile",
        "The table of fits has startup time, rate and deviation of every line.",
    )
}

/// Powers of ten, in seconds, that hold every line.
fn decades(profile: &Profile) -> (i32, i32) {
    let (mut least, mut most) = (f64::INFINITY, 0.0f64);
    for server in &profile.servers {
        for direction in [Direction::Read, Direction::Write] {
            for order in [Order::Sequential, Order::Random] {
                let line = server.line(direction, order);
                least = least.min(line.seconds(2f64.powi(*SIZES.start() as i32)).max(1e-9));
                most = most.max(line.seconds(2f64.powi(*SIZES.end() as i32)));
            }
        }
    }
    if !least.is_finite() || most <= 0.0 {
        return (-4, -1);
    }
    // A damaged profile may have times that no picture holds.
    (least.min(LONGEST_S).log10().floor() as i32, most.min(LONGEST_S).log10().ceil() as i32)
}

struct Panel {
    left: f64,
    top: f64,
    low: i32,
    high: i32,
}

impl Panel {
    fn x(&self, power: f64) -> f64 {
        let (first, last) = (f64::from(*SIZES.start()), f64::from(*SIZES.end()));
        self.left + (power - first) / (last - first) * PANEL_WIDTH
    }

    fn y(&self, seconds: f64) -> f64 {
        let share = (seconds.max(1e-12).log10() - f64::from(self.low)) / f64::from((self.high - self.low).max(1));
        self.top + PLOT - share.clamp(0.0, 1.0) * PLOT
    }

    fn grid(&self, svg: &mut Svg) {
        for decade in self.low..=self.high {
            let seconds = 10f64.powi(decade);
            let y = self.y(seconds);
            svg.line((self.left, y), (self.left + PANEL_WIDTH, y), if decade == self.low { "axis" } else { "grid" });
            svg.text((self.left - 8.0, y + 4.0), Anchor::End, "tick", duration(seconds));
        }
        for power in SIZES.step_by(2) {
            let x = self.x(f64::from(power));
            svg.line((x, self.top + PLOT), (x, self.top + PLOT + 4.0), "axis");
            svg.text((x, self.top + PLOT + 17.0), Anchor::Middle, "tick", bytes(1 << power));
        }
    }

    fn class(&self, svg: &mut Svg, profile: &Profile, direction: Direction, order: Order, class: ServerClass) {
        let (mut band, mut lines) = (Path::default(), Path::default());
        let powers = || (0..=20).map(|step| f64::from(*SIZES.start()) + f64::from(step) * 0.5);
        let mut end = None;
        for server in profile.servers.iter().filter(|server| server.class == class) {
            let line = server.line(direction, order);
            let at = |power: f64, factor: f64| (self.x(power), self.y(line.seconds(2f64.powf(power)) * factor));
            lines.polyline(powers().map(|power| at(power, 1.0)));
            band.polyline(powers().map(|power| at(power, 1.0 + line.spread)));
            let back: Vec<f64> = powers().collect();
            band.extend_line(back.into_iter().rev().map(|power| at(power, (1.0 - line.spread).max(0.0))));
            band.close();
            end = Some(at(f64::from(*SIZES.end()), 1.0));
        }
        svg.path(&band, &format!(r#"class="band c-{class}""#));
        svg.path(&lines, &format!(r#"class="fit l-{class}""#));
        if let Some((x, y)) = end {
            svg.text((x + 5.0, y + 4.0), Anchor::Start, &format!("end t-{class}"), class);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use stripewise_model::{Line, NetworkProfile, NetworkSource, PROFILE_VERSION, ServerProfile};

    pub(crate) fn profile_of_one_server() -> Profile {
        let line = |alpha_s| Line { alpha_s, beta_s_per_byte: 1e-8, r2: 1.0, spread: 0.1, samples: 9 };
        let server = ServerProfile {
            name: "hdd0".into(),
            class: ServerClass::Hdd,
            read_sequential: line(2e-4),
            read_random: line(1e-2),
            write_sequential: line(2e-4),
            write_random: line(1e-2),
            buffered_write: None,
            synchronous_write: None,
            flush_wait: None,
        };
        let network = NetworkProfile { e_s: 0.0, t_s_per_byte: 0.0, source: NetworkSource::Local };
        Profile {
            version: PROFILE_VERSION,
            cluster: "c".into(),
            emulated: false,
            measured_at: String::new(),
            servers: vec![server],
            network,
            caveats: Vec::new(),
        }
    }

    #[test]
    fn the_axis_holds_every_line() {
        let mut profile = profile_of_one_server();
        assert_eq!(decades(&profile), (-4, -1));
        let chart = chart(&profile);
        assert!(chart.contains("Random writes") && chart.contains(">hdd<") && !chart.contains(">ssd<"));
        profile.servers.clear();
        assert_eq!(decades(&profile), (-4, -1));
    }
}
