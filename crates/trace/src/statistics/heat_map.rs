//! Where in a file and when: a grid of time by offset.

use crate::trace::{FileIndex, Trace};
use stripewise_capture::format::NO_OFFSET;
use stripewise_layout::Direction;

/// Requests and bytes per cell; row 0 is the file's begin, column 0 the trace's. Cells lie row after row.
#[derive(Clone, PartialEq, Debug)]
pub struct HeatMap {
    /// Cells side by side, over time; at least 1.
    pub columns: usize,
    /// Cells one above the other, over offsets; at least 1.
    pub rows: usize,
    /// Of the whole width.
    pub duration_s: f64,
    /// Of the whole height: the largest end of a request.
    pub size_bytes: u64,
    /// Requests by the cell of their first byte.
    pub read_requests: Vec<u64>,
    /// As `read_requests`, of writes.
    pub write_requests: Vec<u64>,
    /// Bytes by the cells they lie in, in the column of the request's start.
    pub read_bytes: Vec<u64>,
    /// As `read_bytes`, of writes.
    pub write_bytes: Vec<u64>,
}

impl HeatMap {
    /// Bytes of one cell; 0 beyond the grid.
    #[must_use]
    pub fn bytes(&self, direction: Direction, row: usize, column: usize) -> u64 {
        let cells = match direction {
            Direction::Read => &self.read_bytes,
            Direction::Write => &self.write_bytes,
        };
        if column < self.columns { cells.get(row * self.columns + column).copied().unwrap_or(0) } else { 0 }
    }
}

/// The data requests to `file` on a grid of `columns` (time) by `rows` (offset), at least 1 each.
#[must_use]
pub fn heat_map(trace: &Trace, file: FileIndex, columns: usize, rows: usize) -> HeatMap {
    let (columns, rows) = (columns.max(1), rows.max(1));
    let level = trace.file(file).data_level();
    let requests = || {
        trace.events().filter(move |event| {
            event.file == Some(file)
                && event.operation().is_data()
                && Some(event.call.level()) == level
                && event.errno == 0
                && event.bytes > 0
                && event.offset != NO_OFFSET
        })
    };
    let size_bytes = requests().map(|event| event.offset.0.saturating_add(event.bytes)).max().unwrap_or(0);
    let duration = trace.duration().0;
    let cells = || vec![0u64; columns * rows];
    let mut map = HeatMap {
        columns,
        rows,
        duration_s: trace.duration().seconds(),
        size_bytes,
        read_requests: cells(),
        write_requests: cells(),
        read_bytes: cells(),
        write_bytes: cells(),
    };
    // Products of sizes need more than 64 bits.
    let scale = |value: u64, whole: u64, count: usize| {
        let place = u128::from(value) * count as u128 / u128::from(whole.max(1));
        (place as usize).min(count - 1)
    };
    let row_start = |row: usize| (u128::from(size_bytes) * row as u128).div_ceil(rows as u128) as u64;
    for event in requests() {
        let column = scale(event.start.0, duration, columns);
        let first_row = scale(event.offset.0, size_bytes, rows);
        let is_read = event.operation() == stripewise_capture::call::Operation::Read;
        let (counts, bytes) = if is_read {
            (&mut map.read_requests, &mut map.read_bytes)
        } else {
            (&mut map.write_requests, &mut map.write_bytes)
        };
        counts[first_row * columns + column] += 1;
        let end = event.offset.0.saturating_add(event.bytes);
        let mut start = event.offset.0;
        let mut row = first_row;
        while start < end {
            let border = if row + 1 < rows { row_start(row + 1).min(end) } else { end };
            let cell = &mut bytes[row * columns + column];
            *cell = cell.saturating_add(border.saturating_sub(start));
            start = border.max(start);
            row += 1;
        }
    }
    map
}
