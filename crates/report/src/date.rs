//! Dates as people read them.

use jiff::Timestamp;

/// Nanoseconds since 1970 as `2024-02-29 12:34 UTC`; empty for 0, which stands for an unknown time.
#[must_use]
pub fn utc(unix_ns: u64) -> String {
    match Timestamp::from_nanosecond(i128::from(unix_ns)) {
        Ok(time) if unix_ns > 0 => time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_rounded_down_and_zero_is_no_time() {
        assert_eq!(utc(951_782_400_000_000_000), "2000-02-29 00:00 UTC");
        assert_eq!(utc(4_102_444_799_999_999_999), "2099-12-31 23:59 UTC");
        assert_eq!(utc(u64::MAX), "2554-07-21 23:34 UTC");
        assert_eq!(utc(0), "");
    }
}
