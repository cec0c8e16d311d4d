//! Spans of time on the command line: `600s`, `10min`, `1.5h`, `300us`, or a plain number of seconds.

/// Seconds, more than 0.
pub(crate) fn parse(text: &str) -> Result<f64, String> {
    value(text).filter(|seconds| *seconds > 0.0).ok_or_else(|| refusal(text))
}

/// Seconds, 0 or more.
pub(crate) fn parse_or_zero(text: &str) -> Result<f64, String> {
    value(text).ok_or_else(|| refusal(text))
}

fn value(text: &str) -> Option<f64> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let factor = match unit.trim() {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor).filter(|seconds| seconds.is_finite())
}

fn refusal(text: &str) -> String {
    format!("`{text}` is not a span of time; write 600s, 10min, 1.5h, 250ms or 300us")
}

#[cfg(test)]
mod tests {
    use super::{parse, parse_or_zero};

    #[test]
    fn units_and_refusals() {
        let cases = [
            ("600", 600.0),
            ("10min", 600.0),
            ("1.5h", 5400.0),
            ("250ms", 0.25),
            ("3 s", 3.0),
            ("300us", 300.0 * 1e-6),
            ("8.3ns", 8.3 * 1e-9),
        ];
        for (text, seconds) in cases {
            assert_eq!((parse(text), parse_or_zero(text)), (Ok(seconds), Ok(seconds)));
        }
        for text in ["", "-1s", "s", "10 weeks", "1.2.3s", "1e3", "inf", "nan"] {
            assert!(parse(text).is_err() && parse_or_zero(text).is_err(), "{text}");
        }
        assert!(parse("0").is_err() && parse_or_zero("0ms") == Ok(0.0));
    }
}
