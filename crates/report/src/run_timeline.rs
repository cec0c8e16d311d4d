//! Bytes that a run read and wrote in equal slices of its time, as its logs have it.

use super::scale::Scale;
use super::svg::{Anchor, Svg};
use stripewise_layout::figures::{bytes, duration};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 96.0;
const PLOT: f64 = WIDTH - LEFT - 24.0;
const TOP: f64 = 10.0;
const HEIGHT: f64 = 120.0;
const FOOT: f64 = 30.0;

/// Columns of reads, and of writes on top of them; an empty text where nothing moved or the time is not known.
pub(super) fn chart(slices: &[[f64; 2]], run_s: f64) -> String {
    let most = slices.iter().map(|[read, written]| read + written).fold(0.0, f64::max);
    if most <= 0.0 || !most.is_finite() || run_s.is_nan() || run_s <= 0.0 {
        return String::new();
    }
    let (amounts, times) = (Scale::bytes(most as u64, 3.0), Scale::time(run_s, 6.0));
    let floor = TOP + HEIGHT;
    let mut svg = Svg::new(WIDTH, floor + FOOT);
    for tick in amounts.ticks() {
        let y = floor - amounts.at(tick, HEIGHT);
        svg.line((LEFT, y), (LEFT + PLOT, y), "grid");
        svg.text((LEFT - 8.0, y + 4.0), Anchor::End, "tick", bytes(tick as u64));
    }
    for tick in times.ticks().filter(|tick| *tick <= run_s * 1.001) {
        svg.text((LEFT + tick / run_s * PLOT, floor + 18.0), Anchor::Middle, "tick", duration(tick));
    }
    let (width, slice_s) = (PLOT / slices.len() as f64, run_s / slices.len() as f64);
    for (number, moved) in slices.iter().enumerate() {
        let (begin_s, mut y) = (number as f64 * slice_s, floor);
        for (amount, class, word) in [(moved[0], "edge-read", "read"), (moved[1], "edge-write", "written")] {
            if amount <= 0.0 {
                continue;
            }
            let height = amounts.at(amount, HEIGHT);
            y -= height;
            let title =
                format!("{} to {}: {} {word}", duration(begin_s), duration(begin_s + slice_s), bytes(amount as u64));
            svg.rect([LEFT + number as f64 * width, y, width - 1.0, height], class, &title);
        }
    }
    let [read, written] = [0, 1].map(|way| slices.iter().map(|moved| moved[way]).sum::<f64>() as u64);
    let description = format!("{} read and {} written in {}", bytes(read), bytes(written), duration(run_s));
    svg.finish("Bytes read and written over the time of the run", &description)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_stand_on_each_other_in_their_slices() {
        let chart = chart(&[[1024.0, 0.0], [0.0, 0.0], [512.0, 512.0]], 3.0);
        assert_eq!(chart.matches("<rect").count(), 3, "{chart}");
        assert!(chart.contains("0 s to 1 s: 1 KiB read") && chart.contains("2 s to 3 s: 512 B written"), "{chart}");
        // Half of the height each, the one above the other.
        assert!(chart.contains("y=\"70\" ") && chart.contains("y=\"10\" "), "{chart}");
    }

    #[test]
    fn without_bytes_or_time_there_is_no_picture() {
        assert_eq!(chart(&[[0.0, 0.0]], 3.0), "");
        assert_eq!(chart(&[[1.0, 0.0]], f64::NAN), "");
        assert_eq!(chart(&[], 3.0), "");
    }
}
