//! Byte counts and rates as people write them: `64KiB`, `1MiB`, `100GiB` or a plain number of bytes; `50MB/s`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A number of bytes; reads `4096`, `64KiB`, `1.5GiB`, `20kB`; prints the largest binary unit that divides it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ByteCount(pub u64);

/// A text that is no [`ByteCount`]: no number, an unknown unit, a fraction of a byte, or more than
/// 64 bits hold.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{text}` is not a size; write a number and a unit, as in 65536, 64KiB, 1.5MiB, 100GiB (or kB, MB, GB)")]
pub struct ParseSizeError {
    /// The text as it was given.
    pub text: String,
}

/// Bytes per second; reads a [`ByteCount`] that has a unit, with or without `/s`: `50MB/s`, `20MiB`; prints the shorter of its exact forms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ByteRate(pub u64);

/// A text that is no [`ByteRate`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseRateError {
    /// 50 of what? A number of bytes is hardly ever meant.
    #[error("`{text}` has no unit; write bytes per second with one, as in 50MB/s or 50MiB/s")]
    NoUnit {
        /// The text as it was given.
        text: String,
    },
    /// No number, or an unknown unit.
    #[error("`{text}` is not a rate; write bytes per second, as in 50MB/s or 50MiB/s")]
    NotRate {
        /// The text as it was given.
        text: String,
    },
}

const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
    ("eib", 1 << 60),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("pb", 1_000_000_000_000_000),
    ("eb", 1_000_000_000_000_000_000),
];

impl FromStr for ByteCount {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseSizeError { text: text.to_owned() };
        let trimmed = text.trim();
        let digits_end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits_end);
        let unit = unit.trim().to_ascii_lowercase();
        let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(refuse)?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(ByteCount).ok_or_else(refuse);
        }
        let value = number.parse::<f64>().map_err(|_| refuse())? * factor as f64;
        // A fraction must name a whole number of bytes, exactly representable.
        if value.fract() != 0.0 || value >= (1u64 << 53) as f64 {
            return Err(refuse());
        }
        Ok(ByteCount(value as u64))
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BINARY: [(&str, u64); 6] = [
            ("EiB", 1 << 60),
            ("PiB", 1 << 50),
            ("TiB", 1 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
        ];
        let exact = BINARY.iter().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        let text = match exact {
            Some((name, unit)) => format!("{}{name}", self.0 / unit),
            None => format!("{}B", self.0),
        };
        f.pad(&text)
    }
}

impl FromStr for ByteRate {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let count = text.trim().strip_suffix("/s").unwrap_or(text);
        let ByteCount(bytes) = count.parse().map_err(|_| ParseRateError::NotRate { text: text.to_owned() })?;
        if !count.contains(char::is_alphabetic) {
            return Err(ParseRateError::NoUnit { text: text.to_owned() });
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DECIMAL: [(&str, u64); 4] =
            [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];
        let binary = ByteCount(self.0).to_string();
        let exact = DECIMAL.iter().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        let decimal = exact.map(|(name, unit)| format!("{}{name}", self.0 / unit));
        let shorter = decimal.filter(|decimal| decimal.len() < binary.len()).unwrap_or(binary);
        f.pad(&format!("{shorter}/s"))
    }
}

impl Serialize for ByteCount {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Binary formats carry the number: they do not tell a reader which type comes next.
        if serializer.is_human_readable() { serializer.collect_str(self) } else { serializer.serialize_u64(self.0) }
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for ByteCount {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ByteCount".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let text = schemars::json_schema!({
            "type": "string",
            "description": "A number of bytes with its unit, as `64KiB`, `1.5GiB` or `512B` (powers of 1024)."
        });
        if generator.contract().is_serialize() {
            return text;
        }
        schemars::json_schema!({
            "anyOf": [text, { "type": "integer", "minimum": 0, "description": "A number of bytes." }]
        })
    }
}

impl<'de> Deserialize<'de> for ByteCount {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = ByteCount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"64KiB\" or a number of bytes")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ByteCount, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<ByteCount, E> {
                Ok(ByteCount(bytes))
            }
            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<ByteCount, E> {
                u64::try_from(bytes)
                    .map(ByteCount)
                    .map_err(|_| E::custom(format!("a size cannot be negative: {bytes}")))
            }
        }
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(Visitor)
        } else {
            u64::deserialize(deserializer).map(ByteCount)
        }
    }
}

impl Serialize for ByteRate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteRate {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for ByteRate {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ByteRate".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "Bytes per second with their unit, as `180MB/s` or `1GiB/s`."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn printing_then_reading_gives_the_same_count(bytes in any::<u64>()) {
            prop_assert_eq!(ByteCount(bytes).to_string().parse(), Ok(ByteCount(bytes)));
            prop_assert_eq!(ByteRate(bytes).to_string().parse(), Ok(ByteRate(bytes)));
        }
    }

    #[test]
    fn rates_have_units() {
        for (text, bytes, printed) in [
            ("50MB/s", 50_000_000, "50MB/s"),
            ("64MB", 64_000_000, "64MB/s"),
            ("20MiB/s", 20 << 20, "20MiB/s"),
            ("16384 B/s", 16384, "16KiB/s"),
            ("7B", 7, "7B/s"),
        ] {
            assert_eq!(text.parse(), Ok(ByteRate(bytes)), "{text}");
            assert_eq!(ByteRate(bytes).to_string(), printed);
        }
        let text = "50".to_owned();
        assert_eq!("50".parse::<ByteRate>(), Err(ParseRateError::NoUnit { text }));
        assert!(matches!("50/s".parse::<ByteRate>(), Err(ParseRateError::NoUnit { .. })));
        for text in ["", "/s", "soon", "MB/s", "-1MB/s", "50MB/h"] {
            assert!(matches!(text.parse::<ByteRate>(), Err(ParseRateError::NotRate { .. })), "{text}");
        }
    }

    #[test]
    fn units_and_refusals() {
        for (text, bytes) in [("0", 0), ("64KiB", 65_536), ("1.5 MiB", 1_572_864), ("20kB", 20_000), ("7b", 7)] {
            assert_eq!(text.parse(), Ok(ByteCount(bytes)), "{text}");
        }
        assert_eq!(("15EiB".parse(), "1EB".parse()), (Ok(ByteCount(15 << 60)), Ok(ByteCount(10u64.pow(18)))));
        assert_eq!(ByteCount(15 << 60).to_string(), "15EiB");
        for text in ["", "KiB", "-1", "16EiB", "1.3B", "64 Kib/s", "99999999PiB", "1e3"] {
            assert!(text.parse::<ByteCount>().is_err(), "{text}");
        }
    }
}
