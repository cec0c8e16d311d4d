//! The picture of an experiment: its panels one below the other, as an SVG file that needs nothing else.

use super::experiment::Panel;
use stripewise_layout::figures::number;
use stripewise_report::scale::Scale;
use stripewise_report::svg::{Anchor, Svg};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 62.0;
const PLOT: f64 = 190.0;
/// Title and keys above the plot.
const HEAD: f64 = 64.0;
/// Group names and the axis' name below it.
const FOOT: f64 = 48.0;
const PANEL: f64 = HEAD + PLOT + FOOT;
const MAX_BAR: f64 = 46.0;
/// Bars narrower than this have no space for their figure.
const MIN_LABELLED: f64 = 25.0;

/// As the report's style sheet (Okabe and Ito): told apart by lightness as well as by hue, on white and on black.
const STYLE: &str = "\
svg{--ink:#17202e;--faint:#667085;--grid:#e9ecf1}\
@media(prefers-color-scheme:dark){svg{--ink:#e8ecf2;--faint:#8590a2;--grid:#252c37}}\
text{font-family:system-ui,sans-serif;font-size:11.5px;fill:var(--faint)}\
.panel-title{fill:var(--ink);font-size:14px;font-weight:650}\
.strong{fill:var(--ink);font-weight:600}.value{fill:var(--ink);font-size:10.5px}.key{fill:var(--ink)}\
.axis{stroke:var(--faint)}.grid{stroke:var(--grid)}\
.c0{fill:#a3acba}.c1{fill:#6db4e0}.c2{fill:#e2a12b}.c3{fill:#0f5499}.c4{fill:#b78bb5}.c5{fill:#0d9488}\
.c6{fill:#c4512d}.c7{fill:#7a8b2e}.c8{fill:#5f6b7c}.c9{fill:#d98cb3}.c10{fill:#3f3f74}.c11{fill:#8a5200}";
const COLOURS: usize = 12;

/// The colour of a series: policies have theirs in every picture, others go by their place.
fn colour(series: &str, place: usize) -> usize {
    const POLICIES: [&str; 11] =
        ["def", "padp", "psa", "h2dp", "random", "opt", "cost", "segment", "1-dh", "1-dv", "2-d"];
    POLICIES.iter().position(|name| *name == series).unwrap_or(place % COLOURS)
}

/// The picture; `label` says in words what it shows. Empty without panels.
pub(super) fn picture(panels: &[Panel], label: &str) -> String {
    if panels.is_empty() {
        return String::new();
    }
    let mut svg = Svg::new(WIDTH, PANEL * panels.len() as f64);
    for (number, panel) in panels.iter().enumerate() {
        draw(&mut svg, PANEL * number as f64, panel);
    }
    svg.finish_alone(label, STYLE)
}

fn draw(svg: &mut Svg, top: f64, panel: &Panel) {
    let unit = panel.unit.name();
    let title = if unit.is_empty() { panel.title.clone() } else { format!("{}, {unit}", panel.title) };
    svg.text((LEFT, top + 18.0), Anchor::Start, "panel-title", title);
    let mut x = LEFT;
    for (place, series) in panel.series.iter().enumerate() {
        svg.rect([x, top + 31.0, 12.0, 12.0], &format!("c{}", colour(series, place)), "");
        svg.text((x + 17.0, top + 41.0), Anchor::Start, "key", series);
        x += 34.0 + 7.0 * series.chars().count() as f64;
    }
    let floor = top + HEAD + PLOT;
    let most = panel.values.iter().flatten().flatten().copied().fold(0.0, f64::max);
    let scale = Scale::decimal(most * 1.06, 5.0);
    for tick in scale.ticks() {
        let y = floor - scale.at(tick, PLOT);
        svg.line((LEFT, y), (WIDTH, y), if tick == 0.0 { "axis" } else { "grid" });
        svg.text((LEFT - 8.0, y + 4.0), Anchor::End, "tick", number(tick));
    }
    let group_width = (WIDTH - LEFT) / panel.groups.len().max(1) as f64;
    let width = ((group_width * 0.86) / panel.series.len().max(1) as f64).min(MAX_BAR);
    for (at, (group, values)) in panel.groups.iter().zip(&panel.values).enumerate() {
        let middle = LEFT + group_width * (at as f64 + 0.5);
        let start = middle - width * panel.series.len() as f64 / 2.0;
        for (place, (series, value)) in panel.series.iter().zip(values).enumerate() {
            let Some(value) = value else { continue };
            let (x, height) = (start + width * place as f64, scale.at(value.max(0.0), PLOT));
            let class = format!("c{}", colour(series, place));
            let said = format!("{group}, {series}: {} {unit}", number(*value));
            svg.rect([x + width * 0.06, floor - height, width * 0.88, height], &class, said.trim_end());
            if width >= MIN_LABELLED {
                svg.text((x + width / 2.0, floor - height - 4.0), Anchor::Middle, "value", number(*value));
            }
        }
        svg.text((middle, floor + 18.0), Anchor::Middle, "strong", group);
    }
    svg.text((LEFT + (WIDTH - LEFT) / 2.0, floor + 36.0), Anchor::Middle, "tick", &panel.axis);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::experiment::Unit;

    #[test]
    fn a_bar_stands_for_every_figure_and_the_file_has_its_style() {
        let rows = [("64KiB".to_owned(), vec![Some(40.0), Some(90.5)]), ("1MiB".to_owned(), vec![None, Some(7.0)])];
        let panel = Panel::new("IOR <reads>", Unit::MbPerS, "request size", ["def", "h2dp"], rows);
        let text = picture(&[panel], "bandwidths");
        assert_eq!(text.matches("<title>").count(), 3);
        assert!(text.contains("<title>64KiB, h2dp: 90.5 MB/s</title>") && text.contains("IOR &lt;reads&gt;, MB/s"));
        assert!(text.starts_with("<svg role=\"img\" aria-label=\"bandwidths\"") && text.contains("<style>svg{"));
        assert_eq!(picture(&[], ""), "");
    }
}
