//! Axes with round tick values.

use stripewise_layout::figures::unit_of_time;

/// A linear axis from 0 that ends at a round value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scale {
    /// The value at which the axis ends, more than 0.
    pub top: f64,
    /// From one tick to the next, more than 0.
    pub step: f64,
}

impl Scale {
    /// Covers `0..=max` in about `ticks` steps of 1, 2, 2.5 or 5 times a power of ten.
    pub fn decimal(max: f64, ticks: f64) -> Self {
        let max = if max > 0.0 && max.is_finite() { max } else { 1.0 };
        let raw = max / ticks;
        let power = 10f64.powf(raw.log10().floor());
        let step =
            [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= raw * 0.999);
        let step = step.unwrap_or(10.0 * power);
        Self { top: (max / step * 0.999).ceil() * step, step }
    }

    /// As [`Self::decimal`] for bytes: steps are powers of two, and the axis ends where the data do.
    pub fn bytes(max: u64, ticks: f64) -> Self {
        let raw = (max.max(1) as f64 / ticks).max(1.0);
        Self { top: max.max(1) as f64, step: 2f64.powf(raw.log2().ceil()) }
    }

    /// As [`Self::decimal`] for seconds: steps are round in the unit that `duration` prints.
    pub fn time(max_s: f64, ticks: f64) -> Self {
        let unit = unit_of_time(max_s).0;
        let scale = Self::decimal(max_s / unit, ticks);
        Self { top: scale.top * unit, step: scale.step * unit }
    }

    /// The values at the ticks, from 0 up to `top`.
    pub fn ticks(self) -> impl Iterator<Item = f64> {
        let last = (self.top / self.step + 1e-9).floor() as u32;
        (0..=last).map(move |number| f64::from(number) * self.step)
    }

    /// Position of `value` on an axis of `length`.
    pub fn at(self, value: f64, length: f64) -> f64 {
        value / self.top * length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_and_step_at_round_values() {
        for (max, top, step) in [(763.0, 800.0, 200.0), (1.0, 1.0, 0.25), (0.0, 1.0, 0.25), (95.0, 100.0, 25.0)] {
            assert_eq!(Scale::decimal(max, 4.0), Scale { top, step }, "{max}");
        }
        let ticks: Vec<f64> = Scale::bytes(5 << 30, 4.0).ticks().collect();
        assert_eq!(ticks, [0.0, 2147483648.0, 4294967296.0]);
        assert_eq!(Scale::time(200.0, 2.0), Scale { top: 240.0, step: 120.0 });
        assert_eq!(Scale::decimal(10.0, 5.0).at(5.0, 200.0), 100.0);
    }
}
