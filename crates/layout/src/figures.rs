//! Numbers as people read them: counts, bytes, shares, spans of time.

/// Whole numbers with a thin gap between thousands, small ones with as many decimals as tell them apart.
pub fn number(value: f64) -> String {
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
pub fn grouped(value: i64) -> String {
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
pub fn signed_percent(share: f64) -> String {
    let percent = (share * 100.0).round();
    if percent < 0.0 {
        format!("\u{2212}{} %", grouped(-percent as i64))
    } else {
        format!("+{} %", grouped(percent as i64))
    }
}

/// Bytes in the largest binary unit that leaves a number of at least 1, one decimal at most.
pub fn bytes(count: u64) -> String {
    const UNITS: [(&str, u32); 6] = [("EiB", 60), ("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.iter().find(|(_, shift)| count >> shift > 0) {
        None => format!("{count} B"),
        Some((unit, shift)) => {
            let value = count as f64 / (1u64 << shift) as f64;
            let text = if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") };
            format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
        }
    }
}

/// What there is and what is needed, as [`bytes`] writes them; to the byte where that makes them look alike.
pub fn shortage(left_bytes: u64, needed_bytes: u64) -> (String, String) {
    match (bytes(left_bytes), bytes(needed_bytes)) {
        (left, needed) if left == needed && left_bytes != needed_bytes => {
            let exact = |count: u64| format!("{} B", grouped(i64::try_from(count).unwrap_or(i64::MAX)));
            (exact(left_bytes), exact(needed_bytes))
        }
        figures => figures,
    }
}

/// A span of time in the unit that suits it.
pub fn duration(seconds: f64) -> String {
    if seconds == 0.0 {
        return "0 s".to_owned();
    }
    let (unit, name) = unit_of_time(seconds);
    format!("{} {name}", number(seconds / unit))
}

/// The unit for a span of time: its length in seconds, its name.
pub fn unit_of_time(seconds: f64) -> (f64, &'static str) {
    match seconds.abs() {
        s if s >= 7200.0 => (3600.0, "h"),
        s if s >= 120.0 => (60.0, "min"),
        s if s >= 1.0 => (1.0, "s"),
        s if s >= 1e-3 => (1e-3, "ms"),
        _ => (1e-6, "\u{b5}s"),
    }
}

/// `1 process`, `1,200 processes`.
pub fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number as i64), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (shortage(5 << 20, 6 << 20), shortage((5 << 20) - 1, 5 << 20)),
            (("5 MiB".into(), "6 MiB".into()), ("5,242,879 B".into(), "5,242,880 B".into()))
        );
        assert_eq!(
            [duration(0.0), duration(12e-6), duration(0.25), duration(90.0), duration(600.0)],
            ["0 s", "12 \u{b5}s", "250 ms", "90 s", "10 min"]
        );
    }
}
