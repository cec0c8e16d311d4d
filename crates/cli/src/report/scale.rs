//! Axes: round tick values, and numbers as people read them.

/// A linear axis from 0 that ends at a round value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Scale {
    pub(super) top: f64,
    pub(super) step: f64,
}

impl Scale {
    /// Covers `0..=max` in about `ticks` steps of 1, 2, 2.5 or 5 times a power of ten.
    pub(super) fn decimal(max: f64, ticks: f64) -> Self {
        let max = if max > 0.0 && max.is_finite() { max } else { 1.0 };
        let raw = max / ticks;
        let power = 10f64.powf(raw.log10().floor());
        let step =
            [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= raw * 0.999);
        let step = step.unwrap_or(10.0 * power);
        Self { top: (max / step * 0.999).ceil() * step, step }
    }

    /// As [`Self::decimal`] for bytes: steps are powers of two, and the axis ends where the data do.
    pub(super) fn bytes(max: u64, ticks: f64) -> Self {
        let raw = (max.max(1) as f64 / ticks).max(1.0);
        Self { top: max.max(1) as f64, step: 2f64.powf(raw.log2().ceil()) }
    }

    /// As [`Self::decimal`], ending where the data do.
    pub(super) fn ending_at(max: f64, ticks: f64) -> Self {
        Self { top: if max > 0.0 { max } else { 1.0 }, ..Self::decimal(max, ticks) }
    }

    pub(super) fn ticks(self) -> impl Iterator<Item = f64> {
        let last = (self.top / self.step + 1e-9).floor() as u32;
        (0..=last).map(move |number| f64::from(number) * self.step)
    }

    /// Position of `value` on an axis of `length`.
    pub(super) fn at(self, value: f64, length: f64) -> f64 {
        value / self.top * length
    }
}

/// Whole numbers with a thin gap between thousands, small ones with as many decimals as tell them apart.
pub(super) fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 100.0 || magnitude == 0.0 {
        return grouped(value.round() as i64);
    }
    let decimals = match magnitude {
        m if m >= 10.0 => 1,
        m if m >= 1.0 => 2,
        m => (2.0 - m.log10().floor()).min(9.0) as usize,
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// `1234567` as `1,234,567`.
pub(super) fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("\u{2212}{text}") } else { text }
}

/// A share as a signed percentage.
pub(super) fn signed_percent(share: f64) -> String {
    let percent = (share * 100.0).round();
    if percent < 0.0 {
        format!("\u{2212}{} %", grouped(-percent as i64))
    } else {
        format!("+{} %", grouped(percent as i64))
    }
}

/// Bytes in the largest binary unit that leaves a number of at least 1, one decimal at most.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [(&str, u32); 5] = [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.iter().find(|(_, shift)| count >> shift > 0) {
        None => format!("{count} B"),
        Some((unit, shift)) => {
            let value = count as f64 / (1u64 << shift) as f64;
            let text = if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") };
            format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
        }
    }
}

/// A span of time in the unit that suits it.
pub(super) fn duration(seconds: f64) -> String {
    match seconds.abs() {
        0.0 => "0 s".to_owned(),
        s if s >= 7200.0 => format!("{} h", number(seconds / 3600.0)),
        s if s >= 120.0 => format!("{} min", number(seconds / 60.0)),
        s if s >= 1.0 => format!("{} s", number(seconds)),
        s if s >= 1e-3 => format!("{} ms", number(seconds * 1e3)),
        _ => format!("{} \u{b5}s", number(seconds * 1e6)),
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
        assert_eq!(Scale::decimal(10.0, 5.0).at(5.0, 200.0), 100.0);
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [number(1234567.4), number(12.34), number(3.0), number(0.01234), number(0.0)],
            ["1,234,567", "12.3", "3", "0.0123", "0"]
        );
        assert_eq!([signed_percent(-0.137), signed_percent(12.5)], ["\u{2212}14 %", "+1,250 %"]);
        assert_eq!(
            [bytes(512), bytes(1 << 30), bytes(1_500_000), bytes(200 << 20)],
            ["512 B", "1 GiB", "1.4 MiB", "200 MiB"]
        );
        assert_eq!(
            [duration(0.0), duration(12e-6), duration(0.25), duration(90.0), duration(600.0)],
            ["0 s", "12 \u{b5}s", "250 ms", "90 s", "10 min"]
        );
    }
}
