//! Spans of time on the command line: `600s`, `10min`, `1.5h`, or a plain number of seconds.

/// Seconds, more than 0.
pub(crate) fn parse(text: &str) -> Result<f64, String> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let factor = match unit.trim() {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(refusal(text)),
    };
    match number.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value * factor),
        _ => Err(refusal(text)),
    }
}

fn refusal(text: &str) -> String {
    format!("`{text}` is not a span of time; write 600s, 10min, 1.5h or 250ms")
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn units_and_refusals() {
        for (text, seconds) in [("600", 600.0), ("10min", 600.0), ("1.5h", 5400.0), ("250ms", 0.25), ("3 s", 3.0)] {
            assert_eq!(parse(text), Ok(seconds));
        }
        for text in ["", "0", "-1s", "s", "10 weeks", "1.2.3s", "1e3"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
