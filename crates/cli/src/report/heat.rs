//! Where and when a file was accessed: bytes by offset and time, reads and writes apart, with sums along both edges.

use super::bars::direction_name;
use super::scale::Scale;
use super::svg::{Anchor, Path, Svg};
use crate::figures::{bytes, duration};
use stripewise_layout::Direction;

/// Cells along the time axis and along the offsets.
pub(super) const COLUMNS: usize = 180;
pub(super) const ROWS: usize = 64;
/// Shades; a step is a constant factor of bytes.
pub(super) const LEVELS: usize = 7;

/// The accesses of one file, summed in cells.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Heat {
    pub(super) path: String,
    size_bytes: u64,
    duration_s: f64,
    read: Grid,
    write: Grid,
}

#[derive(Clone, PartialEq, Debug)]
struct Grid {
    /// Bytes of each cell, row by row from offset 0.
    cells: Vec<f64>,
    requests: u64,
}

impl Grid {
    fn new() -> Self {
        Self { cells: vec![0.0; COLUMNS * ROWS], requests: 0 }
    }
}

impl Heat {
    pub(super) fn new(path: &str, size_bytes: u64, duration_s: f64) -> Self {
        let (read, write) = (Grid::new(), Grid::new());
        Self { path: path.to_owned(), size_bytes: size_bytes.max(1), duration_s: duration_s.max(1e-9), read, write }
    }

    /// Counts one request; its bytes are shared among the rows that it touches.
    pub(super) fn add(&mut self, direction: Direction, start_s: f64, offset: u64, length: u64) {
        let column = ((start_s / self.duration_s * COLUMNS as f64) as usize).min(COLUMNS - 1);
        let row_bytes = self.size_bytes as f64 / ROWS as f64;
        let (size_bytes, grid) = match direction {
            Direction::Read => (self.size_bytes, &mut self.read),
            Direction::Write => (self.size_bytes, &mut self.write),
        };
        grid.requests += 1;
        let (start, end) = (offset.min(size_bytes) as f64, offset.saturating_add(length).min(size_bytes) as f64);
        let mut at = start;
        while at < end {
            let row = ((at / row_bytes) as usize).min(ROWS - 1);
            let next = if row == ROWS - 1 { end } else { ((row + 1) as f64 * row_bytes).min(end) };
            grid.cells[row * COLUMNS + column] += next - at;
            if next <= at {
                break;
            }
            at = next;
        }
    }

    /// Bytes of all requests.
    pub(super) fn total_bytes(&self) -> f64 {
        self.read.cells.iter().chain(&self.write.cells).sum()
    }

    /// Reads and writes.
    pub(super) fn requests(&self) -> (u64, u64) {
        (self.read.requests, self.write.requests)
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
    let panels: Vec<(Direction, &Grid)> = [(Direction::Read, &heat.read), (Direction::Write, &heat.write)]
        .into_iter()
        .filter(|(_, grid)| grid.requests > 0)
        .collect();
    let mut svg = Svg::new(WIDTH, PANEL * panels.len() as f64);
    for (number, (direction, grid)) in panels.iter().enumerate() {
        panel(&mut svg, PANEL * number as f64, *direction, grid, heat);
    }
    svg.finish(&format!("Bytes of {} by time and offset, reads and writes apart", heat.path))
}

fn ramp(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

fn panel(svg: &mut Svg, top: f64, direction: Direction, grid: &Grid, heat: &Heat) {
    let plot_top = top + 26.0 + MARGIN_TOP + 6.0;
    let floor = plot_top + PLOT;
    svg.text((LEFT, top + 16.0), Anchor::Start, "panel-title", direction_name(direction));
    svg.rect([LEFT, plot_top, MAIN, PLOT], "plot", "");
    cells(svg, grid, plot_top, direction);
    edges(svg, grid, plot_top, direction, heat);
    axes(svg, floor, heat);
    legend(svg, floor + 44.0, direction, grid);
}

/// From the least to the most bytes of any cell that has some.
fn extent(grid: &Grid) -> (f64, f64) {
    let some = grid.cells.iter().copied().filter(|bytes| *bytes > 0.0);
    some.fold((f64::INFINITY, 0.0), |(least, most), bytes| (least.min(bytes), most.max(bytes)))
}

fn level(bytes: f64, (least, most): (f64, f64)) -> usize {
    let share = if most > least { (bytes / least).ln() / (most / least).ln() } else { 1.0 };
    ((share * LEVELS as f64) as usize).min(LEVELS - 1)
}

fn cells(svg: &mut Svg, grid: &Grid, plot_top: f64, direction: Direction) {
    let extent = extent(grid);
    let (width, height) = (MAIN / COLUMNS as f64, PLOT / ROWS as f64);
    let mut shades: [Path; LEVELS] = Default::default();
    for row in 0..ROWS {
        let line = &grid.cells[row * COLUMNS..(row + 1) * COLUMNS];
        let level_at = |column: usize| (line[column] > 0.0).then(|| level(line[column], extent));
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
        svg.path(path, &format!(r#"class="cell {}-{shade}""#, ramp(direction)));
    }
}

/// Sums over all offsets along the top and over all times along the right: bursts, and hot parts of the file.
fn edges(svg: &mut Svg, grid: &Grid, plot_top: f64, direction: Direction, heat: &Heat) {
    let by_time: Vec<f64> =
        (0..COLUMNS).map(|column| (0..ROWS).map(|row| grid.cells[row * COLUMNS + column]).sum()).collect();
    let by_offset: Vec<f64> =
        (0..ROWS).map(|row| grid.cells[row * COLUMNS..(row + 1) * COLUMNS].iter().sum()).collect();
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
    let class = format!(r#"class="cell edge-{}""#, ramp(direction));
    svg.path(&time, &class);
    svg.path(&offset, &class);
    let rate = most_time / (heat.duration_s / COLUMNS as f64) / 1e6;
    let rate = format!("peak {} MB/s", crate::figures::number(rate));
    svg.text((LEFT + MAIN, plot_top - MARGIN_TOP - 12.0), Anchor::End, "note", rate);
    svg.text((SIDE_LEFT, plot_top - 8.0), Anchor::Start, "note", "by offset");
}

fn axes(svg: &mut Svg, floor: f64, heat: &Heat) {
    let time = Scale::time_ending_at(heat.duration_s, 7.0);
    for tick in time.ticks() {
        let x = LEFT + time.at(tick, MAIN);
        svg.line((x, floor), (x, floor + 4.0), "axis");
        svg.text((x, floor + 17.0), Anchor::Middle, "tick", duration(tick));
    }
    let offsets = Scale::bytes(heat.size_bytes, 5.0);
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

fn legend(svg: &mut Svg, y: f64, direction: Direction, grid: &Grid) {
    let (least, most) = extent(grid);
    if most <= 0.0 {
        return;
    }
    const SWATCH: f64 = 22.0;
    let text = |value: f64| bytes(value.round().max(1.0) as u64);
    svg.text((LEFT, y + 9.0), Anchor::Start, "note", format!("bytes per cell  {}", text(least)));
    let start = LEFT + 98.0 + 6.2 * text(least).len() as f64;
    for shade in 0..LEVELS {
        let class = format!("cell {}-{shade}", ramp(direction));
        svg.rect([start + SWATCH * shade as f64, y, SWATCH, 10.0], &class, "");
    }
    svg.text((start + SWATCH * LEVELS as f64 + 8.0, y + 9.0), Anchor::Start, "note", text(most));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_counted_once_wherever_it_lies() {
        let mut heat = Heat::new("/f", 1 << 20, 10.0);
        for (start_s, offset, length) in
            [(0.0, 0, 1 << 20), (10.0, 12_345, 77_777), (3.3, (1 << 20) - 1, 1), (9.0, 5, 0)]
        {
            heat.add(Direction::Read, start_s, offset, length);
        }
        heat.add(Direction::Write, 99.0, 1 << 19, 1 << 19);
        let expected = (1 << 20) as f64 + 77_777.0 + 1.0 + (1 << 19) as f64;
        assert!((heat.total_bytes() - expected).abs() < 1e-3, "{}", heat.total_bytes());
        assert_eq!(heat.requests(), (4, 1));
    }

    #[test]
    fn shades_span_the_least_to_the_most() {
        assert_eq!([level(1.0, (1.0, 1e6)), level(1e3, (1.0, 1e6)), level(1e6, (1.0, 1e6))], [0, 3, 6]);
        assert_eq!(level(5.0, (5.0, 5.0)), LEVELS - 1);
    }

    #[test]
    fn a_panel_without_accesses_is_left_out() {
        let mut heat = Heat::new("/f", 100, 1.0);
        heat.add(Direction::Write, 0.5, 0, 100);
        let chart = chart(&heat);
        assert!(chart.contains("Writes") && !chart.contains("Reads"));
    }
}
