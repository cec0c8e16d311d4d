//! Where and when a file was accessed: bytes by offset and time, reads and writes apart, with sums along both edges.

use super::bars::direction_name;
use super::scale::Scale;
use super::svg::{Anchor, Path, Svg};
use crate::figures::{bytes, duration};
use stripewise_layout::Direction;
use stripewise_trace::HeatMap;

/// Cells along the time axis and along the offsets.
pub(super) const COLUMNS: usize = 180;
pub(super) const ROWS: usize = 64;
/// Shades; a step is a constant factor of bytes.
pub(super) const LEVELS: usize = 7;

/// The accesses of one file on a grid of [`COLUMNS`] by [`ROWS`].
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Heat {
    path: String,
    map: HeatMap,
}

/// One direction of it.
struct Grid<'a> {
    /// Bytes of each cell, row by row from offset 0.
    cells: &'a [u64],
    direction: Direction,
}

impl Heat {
    pub(super) fn new(path: &str, map: HeatMap) -> Self {
        Self { path: path.to_owned(), map }
    }

    /// The directions that have accesses.
    fn grids(&self) -> Vec<Grid<'_>> {
        let all = [(Direction::Read, &self.map.read_bytes), (Direction::Write, &self.map.write_bytes)];
        let grids = all.into_iter().map(|(direction, cells)| Grid { cells, direction });
        grids.filter(|grid| grid.cells.iter().any(|bytes| *bytes > 0)).collect()
    }
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 76.0;
const MAIN: f64 = 760.0;
const MARGIN_TOP: f64 = 34.0;
const PLOT: f64 = 208.0;
const SIDE_LEFT: f64 = LEFT + MAIN + 8.0;
const SIDE: f64 = WIDTH - SIDE_LEFT;
const PANEL: f64 = 26.0 + MARGIN_TOP + 6.0 + PLOT + 78.0;

/// The chart of one file; panels without accesses are left out.
pub(super) fn chart(heat: &Heat) -> String {
    let panels = heat.grids();
    let mut svg = Svg::new(WIDTH, PANEL * panels.len() as f64);
    for (number, grid) in panels.iter().enumerate() {
        panel(&mut svg, PANEL * number as f64, grid, &heat.map);
    }
    svg.finish(&format!("Bytes of {} by time and offset, reads and writes apart", heat.path))
}

fn ramp(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

fn panel(svg: &mut Svg, top: f64, grid: &Grid<'_>, map: &HeatMap) {
    let plot_top = top + 26.0 + MARGIN_TOP + 6.0;
    let floor = plot_top + PLOT;
    svg.text((LEFT, top + 16.0), Anchor::Start, "panel-title", direction_name(grid.direction));
    svg.rect([LEFT, plot_top, MAIN, PLOT], "plot", "");
    cells(svg, grid, plot_top);
    edges(svg, grid, plot_top, map);
    axes(svg, floor, map);
    legend(svg, floor + 44.0, grid);
}

/// From the least to the most bytes of any cell that has some.
fn extent(grid: &Grid<'_>) -> (f64, f64) {
    let some = grid.cells.iter().filter(|bytes| **bytes > 0).map(|bytes| *bytes as f64);
    some.fold((f64::INFINITY, 0.0), |(least, most), bytes| (least.min(bytes), most.max(bytes)))
}

fn level(bytes: f64, (least, most): (f64, f64)) -> usize {
    let share = if most > least { (bytes / least).ln() / (most / least).ln() } else { 1.0 };
    ((share * LEVELS as f64) as usize).min(LEVELS - 1)
}

fn cells(svg: &mut Svg, grid: &Grid<'_>, plot_top: f64) {
    let extent = extent(grid);
    let (width, height) = (MAIN / COLUMNS as f64, PLOT / ROWS as f64);
    let mut shades: [Path; LEVELS] = Default::default();
    for row in 0..ROWS {
        let line = &grid.cells[row * COLUMNS..(row + 1) * COLUMNS];
        let level_at = |column: usize| (line[column] > 0).then(|| level(line[column] as f64, extent));
        let mut column = 0;
        while column < COLUMNS {
            let start = column;
            let shade = level_at(column);
            while column < COLUMNS && level_at(column) == shade {
                column += 1;
            }
            if let Some(shade) = shade {
                // Offset 0 is at the bottom, as on every axis.
                let y = plot_top + PLOT - (row + 1) as f64 * height;
                shades[shade].rect([LEFT + start as f64 * width, y, (column - start) as f64 * width, height]);
            }
        }
    }
    for (shade, path) in shades.iter().enumerate() {
        svg.path(path, &format!(r#"class="cell {}-{shade}""#, ramp(grid.direction)));
    }
}

/// Sums over all offsets along the top and over all times along the right: bursts, and hot parts of the file.
fn edges(svg: &mut Svg, grid: &Grid<'_>, plot_top: f64, map: &HeatMap) {
    let by_time: Vec<f64> =
        (0..COLUMNS).map(|column| (0..ROWS).map(|row| grid.cells[row * COLUMNS + column] as f64).sum()).collect();
    let by_offset: Vec<f64> = (0..ROWS)
        .map(|row| grid.cells[row * COLUMNS..(row + 1) * COLUMNS].iter().map(|bytes| *bytes as f64).sum())
        .collect();
    let most_time = by_time.iter().copied().fold(1.0, f64::max);
    let most_offset = by_offset.iter().copied().fold(1.0, f64::max);
    let (width, height) = (MAIN / COLUMNS as f64, PLOT / ROWS as f64);
    let base = plot_top - 6.0;
    let mut time = Path::default();
    for (column, bytes) in by_time.iter().enumerate().filter(|(_, bytes)| **bytes > 0.0) {
        let tall = bytes / most_time * MARGIN_TOP;
        time.rect([LEFT + column as f64 * width, base - tall, width, tall]);
    }
    let mut offset = Path::default();
    for (row, bytes) in by_offset.iter().enumerate().filter(|(_, bytes)| **bytes > 0.0) {
        let y = plot_top + PLOT - (row + 1) as f64 * height;
        offset.rect([SIDE_LEFT, y, bytes / most_offset * (SIDE - 4.0), height]);
    }
    let class = format!(r#"class="cell edge-{}""#, ramp(grid.direction));
    svg.path(&time, &class);
    svg.path(&offset, &class);
    let rate = most_time / (map.duration_s / COLUMNS as f64) / 1e6;
    let rate = format!("peak {} MB/s", crate::figures::number(rate));
    svg.text((LEFT + MAIN, plot_top - MARGIN_TOP - 12.0), Anchor::End, "note", rate);
    svg.text((SIDE_LEFT, plot_top - 8.0), Anchor::Start, "note", "by offset");
}

fn axes(svg: &mut Svg, floor: f64, map: &HeatMap) {
    let time = Scale::time_ending_at(map.duration_s, 7.0);
    for tick in time.ticks() {
        let x = LEFT + time.at(tick, MAIN);
        svg.line((x, floor), (x, floor + 4.0), "axis");
        svg.text((x, floor + 17.0), Anchor::Middle, "tick", duration(tick));
    }
    let offsets = Scale::bytes(map.size_bytes, 5.0);
    for tick in offsets.ticks() {
        let y = floor - offsets.at(tick, PLOT);
        svg.line((LEFT - 4.0, y), (LEFT, y), "axis");
        svg.text(
            (LEFT - 8.0, y + 4.0),
            Anchor::End,
            "tick",
            if tick == 0.0 { "0".to_owned() } else { bytes(tick as u64) },
        );
    }
}

fn legend(svg: &mut Svg, y: f64, grid: &Grid<'_>) {
    let (least, most) = extent(grid);
    if most <= 0.0 {
        return;
    }
    const SWATCH: f64 = 22.0;
    let text = |value: f64| bytes(value.round().max(1.0) as u64);
    svg.text((LEFT, y + 9.0), Anchor::Start, "note", format!("bytes per cell  {}", text(least)));
    let start = LEFT + 98.0 + 6.2 * text(least).len() as f64;
    for shade in 0..LEVELS {
        let class = format!("cell {}-{shade}", ramp(grid.direction));
        svg.rect([start + SWATCH * shade as f64, y, SWATCH, 10.0], &class, "");
    }
    svg.text((start + SWATCH * LEVELS as f64 + 8.0, y + 9.0), Anchor::Start, "note", text(most));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_span_the_least_to_the_most() {
        assert_eq!([level(1.0, (1.0, 1e6)), level(1e3, (1.0, 1e6)), level(1e6, (1.0, 1e6))], [0, 3, 6]);
        assert_eq!(level(5.0, (5.0, 5.0)), LEVELS - 1);
    }

    #[test]
    fn a_panel_without_accesses_is_left_out() {
        let cells = || vec![0; COLUMNS * ROWS];
        let mut map = HeatMap {
            columns: COLUMNS,
            rows: ROWS,
            duration_s: 9.0,
            size_bytes: 4 << 30,
            read_requests: cells(),
            write_requests: cells(),
            read_bytes: cells(),
            write_bytes: cells(),
        };
        map.write_bytes[COLUMNS + 1] = 1 << 20;
        let chart = chart(&Heat::new("/f", map));
        assert!(chart.contains("Writes") && !chart.contains("Reads"));
        // The second column of the second row from below, 4.22 by 3.25 pixels.
        assert!(chart.contains(r#"<path class="cell write-6" d="M80.22 267.5h4.22v3.25h-4.22z"/>"#), "{chart}");
    }
}
