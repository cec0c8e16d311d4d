//! Where and when a file was accessed: bytes by offset and time, reads and writes apart, with sums along both edges.

use super::bars::direction_name;
use super::scale::Scale;
use super::svg::{Anchor, Path, Svg};
use serde::Serialize;
use stripewise_layout::Direction;
use stripewise_layout::figures::{bytes, duration};
use stripewise_trace::HeatMap;

/// Cells along the time axis and along the offsets.
pub(super) const COLUMNS: usize = 180;
pub(super) const ROWS: usize = 64;
/// Shades; a step is a constant factor of bytes.
pub(super) const LEVELS: usize = 7;

/// The accesses of one file on a grid of at most about 180 by 64.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Heat {
    /// Absolute path of the file.
    pub path: String,
    /// The end of the farthest request, where the rows end.
    pub size_bytes: u64,
    /// Where the columns begin, in seconds from the begin of the trace.
    pub start_s: f64,
    /// Where they end.
    pub end_s: f64,
    /// Cells of a row.
    pub columns: usize,
    /// Bytes read in each cell, row after row from offset 0 on.
    pub read: Vec<u64>,
    /// Bytes written in each cell.
    pub write: Vec<u64>,
}

/// One direction of it.
struct Grid<'a> {
    /// Bytes of each cell, row by row from offset 0.
    cells: &'a [u64],
    columns: usize,
    direction: Direction,
}

impl Grid<'_> {
    fn row(&self, row: usize) -> &[u64] {
        &self.cells[row * self.columns..(row + 1) * self.columns]
    }
}

impl Heat {
    /// The part of `map`, which has [`ROWS`], between two instants in seconds from its begin.
    pub(super) fn new(path: &str, map: &HeatMap, start_s: f64, end_s: f64) -> Self {
        let column_s = map.duration_s.max(1e-9) / map.columns as f64;
        let at = |seconds: f64| ((seconds / column_s) as usize).min(map.columns - 1);
        let (first, last) = (at(start_s), at(end_s));
        // Neighbours are joined until they are few enough.
        let joined = (last - first + 1).div_ceil(COLUMNS).max(1);
        let columns = (last - first + 1).div_ceil(joined);
        let crop = |direction| {
            let mut cells = vec![0; columns * ROWS];
            for row in 0..ROWS {
                for column in first..=last {
                    cells[row * columns + (column - first) / joined] += map.bytes(direction, row, column);
                }
            }
            cells
        };
        Self {
            path: path.to_owned(),
            size_bytes: map.size_bytes,
            start_s: first as f64 * column_s,
            end_s: (first + columns * joined) as f64 * column_s,
            columns,
            read: crop(Direction::Read),
            write: crop(Direction::Write),
        }
    }

    /// The directions that have accesses.
    fn grids(&self) -> Vec<Grid<'_>> {
        let all = [(Direction::Read, &self.read), (Direction::Write, &self.write)];
        let grids = all.into_iter().map(|(direction, cells)| Grid { cells, columns: self.columns, direction });
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
        panel(&mut svg, PANEL * number as f64, grid, heat);
    }
    let label = format!("Bytes of {} by time and offset, reads and writes apart", heat.path);
    let description = panels.iter().map(|grid| spoken(grid, heat)).collect::<Vec<_>>().join(" ");
    svg.finish(&label, &description)
}

/// One direction in words: the moment and the offsets with the most bytes.
fn spoken(grid: &Grid<'_>, heat: &Heat) -> String {
    let (by_time, by_offset) = sums(grid);
    let most = |sums: &[f64]| (0..sums.len()).max_by(|one, other| sums[*one].total_cmp(&sums[*other])).unwrap_or(0);
    let (column, row) = (most(&by_time), most(&by_offset));
    let column_s = (heat.end_s - heat.start_s) / grid.columns as f64;
    let at_s = heat.start_s + column as f64 * column_s;
    let row_bytes = heat.size_bytes as f64 / ROWS as f64;
    let touched = by_offset.iter().filter(|bytes| **bytes > 0.0).count();
    format!(
        "{} from {} to {}: most bytes at {}, and at offset {}; {} % of the file are touched.",
        direction_name(grid.direction),
        duration(heat.start_s),
        duration(heat.end_s),
        duration(at_s),
        bytes((row as f64 * row_bytes) as u64),
        touched * 100 / ROWS
    )
}

/// Bytes by time over all offsets, and by offset over all times.
fn sums(grid: &Grid<'_>) -> (Vec<f64>, Vec<f64>) {
    let by_time = (0..grid.columns).map(|column| (0..ROWS).map(|row| grid.row(row)[column] as f64).sum());
    let by_offset = (0..ROWS).map(|row| grid.row(row).iter().map(|bytes| *bytes as f64).sum());
    (by_time.collect(), by_offset.collect())
}

fn ramp(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

fn panel(svg: &mut Svg, top: f64, grid: &Grid<'_>, heat: &Heat) {
    let plot_top = top + 26.0 + MARGIN_TOP + 6.0;
    let floor = plot_top + PLOT;
    svg.text((LEFT, top + 16.0), Anchor::Start, "panel-title", direction_name(grid.direction));
    svg.rect([LEFT, plot_top, MAIN, PLOT], "plot", "");
    cells(svg, grid, plot_top);
    edges(svg, grid, plot_top, heat);
    axes(svg, floor, heat);
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
    let (width, height) = (MAIN / grid.columns as f64, PLOT / ROWS as f64);
    let mut shades: [Path; LEVELS] = Default::default();
    for row in 0..ROWS {
        let line = grid.row(row);
        let level_at = |column: usize| (line[column] > 0).then(|| level(line[column] as f64, extent));
        let mut column = 0;
        while column < grid.columns {
            let start = column;
            let shade = level_at(column);
            while column < grid.columns && level_at(column) == shade {
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
fn edges(svg: &mut Svg, grid: &Grid<'_>, plot_top: f64, heat: &Heat) {
    let (by_time, by_offset) = sums(grid);
    let most_time = by_time.iter().copied().fold(1.0, f64::max);
    let most_offset = by_offset.iter().copied().fold(1.0, f64::max);
    let (width, height) = (MAIN / grid.columns as f64, PLOT / ROWS as f64);
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
    let rate = most_time / ((heat.end_s - heat.start_s) / grid.columns as f64) / 1e6;
    let rate = format!("peak {} MB/s", stripewise_layout::figures::number(rate));
    svg.text((LEFT + MAIN, plot_top - MARGIN_TOP - 12.0), Anchor::End, "note", rate);
    svg.text((SIDE_LEFT, plot_top - 8.0), Anchor::Start, "note", "by offset");
}

fn axes(svg: &mut Svg, floor: f64, heat: &Heat) {
    let span_s = heat.end_s - heat.start_s;
    let step_s = Scale::time(span_s, 7.0).step;
    let first = (heat.start_s / step_s - 1e-9).ceil() as u64;
    let ticks = (first..).map(|number| number as f64 * step_s).take_while(|tick| *tick <= heat.end_s + step_s * 1e-6);
    for tick in ticks {
        let x = LEFT + (tick - heat.start_s) / span_s * MAIN;
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

    fn map(columns: usize, duration_s: f64) -> HeatMap {
        let cells = || vec![0; columns * ROWS];
        let (read_requests, write_requests, read_bytes, write_bytes) = (cells(), cells(), cells(), cells());
        HeatMap {
            columns,
            rows: ROWS,
            duration_s,
            size_bytes: 4 << 30,
            read_requests,
            write_requests,
            read_bytes,
            write_bytes,
        }
    }

    #[test]
    fn a_panel_without_accesses_is_left_out() {
        let mut map = map(COLUMNS, 9.0);
        map.write_bytes[COLUMNS + 1] = 1 << 20;
        let chart = chart(&Heat::new("/f", &map, 0.0, 9.0));
        assert!(chart.contains("Writes") && !chart.contains("Reads"));
        // The second column of the second row from below, 4.22 by 3.25 pixels.
        assert!(chart.contains(r#"<path class="cell write-6" d="M80.22 267.5h4.22v3.25h-4.22z"/>"#), "{chart}");
    }

    #[test]
    fn idle_time_is_cut_and_columns_are_joined_without_loss() {
        let mut map = map(2000, 20.0);
        for column in 500..=1000 {
            map.read_bytes[column] = 1;
            map.read_bytes[63 * 2000 + column] = column as u64;
        }
        let heat = Heat::new("/f", &map, 5.0, 10.005);
        // 501 columns in threes.
        assert_eq!((heat.columns, heat.start_s), (167, 5.0));
        assert!((heat.end_s - 10.01).abs() < 1e-9);
        let sum = |row: usize| heat.read[row * 167..(row + 1) * 167].iter().sum::<u64>();
        assert_eq!((sum(0), sum(63)), (501, (500..=1000).sum()));
        assert_eq!(heat.read[0..2], [3, 3]);
    }
}
