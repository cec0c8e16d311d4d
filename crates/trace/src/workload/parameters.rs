//! The text form of benchmarks: `name:key=value,key=value`.
//!
//! Every benchmark has one table of parameters. What the command line reads and prints, the help and `docs/workloads.md` all come from
//! it, so that they cannot differ.

use std::fmt;
use std::time::Duration;
use stripewise_layout::ByteCount;

/// One parameter of the benchmark `B`.
pub(super) struct Parameter<B> {
    pub(super) key: &'static str,
    /// The real benchmark's option, or empty where the parameter is ours.
    pub(super) option: &'static str,
    pub(super) help: &'static str,
    pub(super) get: fn(&B) -> String,
    pub(super) set: fn(&mut B, &str) -> Result<(), String>,
}

/// A parameter that is a field, or a field of a field.
macro_rules! parameter {
    ($key:literal, $option:literal, $($field:ident).+, $help:expr) => {
        $crate::workload::parameters::Parameter {
            key: $key,
            option: $option,
            help: $help,
            get: |benchmark: &Self| $crate::workload::parameters::Value::print(&benchmark.$($field).+),
            set: |benchmark: &mut Self, text| {
                benchmark.$($field).+ = $crate::workload::parameters::Value::read(text)?;
                Ok(())
            },
        }
    };
}
pub(super) use parameter;

/// A benchmark that has a text form.
pub(super) trait Described: Default + PartialEq {
    const NAME: &'static str;
    /// A few sentences: what the benchmark does, and where we leave it.
    const ABOUT: &'static str;
    const EXAMPLE: &'static str;

    fn parameters() -> Vec<Parameter<Self>>;
}

/// What a parameter's value may be.
pub(super) trait Value: Sized {
    /// # Errors
    /// What is wanted, to follow "want ".
    fn read(text: &str) -> Result<Self, String>;
    fn print(&self) -> String;
}

impl Value for ByteCount {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "a size such as 65536, 64KiB or 1.5MiB".to_owned())
    }
    fn print(&self) -> String {
        self.to_string()
    }
}

impl Value for u32 {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("a whole number up to {}", u32::MAX))
    }
    fn print(&self) -> String {
        self.to_string()
    }
}

impl Value for u64 {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "a whole number".to_owned())
    }
    fn print(&self) -> String {
        self.to_string()
    }
}

impl Value for f64 {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(|| "a number such as 0.8".to_owned())
    }
    fn print(&self) -> String {
        self.to_string()
    }
}

impl Value for bool {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "yes" | "true" => Ok(true),
            "no" | "false" => Ok(false),
            _ => Err("yes or no".to_owned()),
        }
    }
    fn print(&self) -> String {
        if *self { "yes" } else { "no" }.to_owned()
    }
}

/// An absolute path.
impl Value for String {
    fn read(text: &str) -> Result<Self, String> {
        if text.starts_with('/') && !text.ends_with('/') {
            Ok(text.to_owned())
        } else {
            Err("an absolute path of a file, without a comma".to_owned())
        }
    }
    fn print(&self) -> String {
        self.clone()
    }
}

/// What the benchmark takes if nothing is said.
const AUTO: &str = "auto";

impl<V: Value> Value for Option<V> {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            AUTO => Ok(None),
            _ => V::read(text).map(Some).map_err(|want| format!("{want}, or {AUTO}")),
        }
    }
    fn print(&self) -> String {
        self.as_ref().map_or_else(|| AUTO.to_owned(), V::print)
    }
}

const TIME_UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

impl Value for Duration {
    fn read(text: &str) -> Result<Self, String> {
        let refuse = || "a time such as 2s, 1.5s, 10ms, 20us or 500ns".to_owned();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = if number == "0" && unit.is_empty() { "s" } else { unit };
        let (_, scale) = TIME_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(*scale).map(Duration::from_nanos).ok_or_else(refuse);
        }
        let nanoseconds = number.parse::<f64>().map_err(|_| refuse())? * *scale as f64;
        if nanoseconds.round() < (1u64 << 53) as f64 {
            Ok(Duration::from_nanos(nanoseconds.round() as u64))
        } else {
            Err(refuse())
        }
    }
    fn print(&self) -> String {
        let nanoseconds = u64::try_from(self.as_nanos()).unwrap_or(u64::MAX);
        let unit = TIME_UNITS.iter().find(|(_, scale)| nanoseconds.is_multiple_of(*scale));
        unit.map_or_else(String::new, |(name, scale)| format!("{}{name}", nanoseconds / scale))
    }
}

/// An enumeration whose values are words of the text form.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $crate::workload::parameters::Value for $name {
            fn read(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(format!("one of {}", [$($word),+].join(", "))),
                }
            }
            fn print(&self) -> String {
                match self { $(Self::$variant => $word),+ }.to_owned()
            }
        }
    };
}
pub(super) use words;

/// A text that names no benchmark.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseBenchmarkError {
    /// What stands before the colon is no benchmark's name.
    #[error("`{name}` is not a benchmark; known: {known}")]
    Benchmark {
        /// The text before the colon.
        name: String,
        /// The names of all benchmarks.
        known: String,
    },
    /// A part between commas has no equals sign.
    #[error("{benchmark}: `{part}` is not key=value; known keys: {known}")]
    Form {
        /// Name of the benchmark.
        benchmark: &'static str,
        /// The part as it stands.
        part: String,
        /// The benchmark's keys.
        known: String,
    },
    /// The benchmark has no such parameter.
    #[error("{benchmark}: `{key}` (= {value}) is not one of its parameters; known: {known}")]
    Key {
        /// Name of the benchmark.
        benchmark: &'static str,
        /// The key as it stands.
        key: String,
        /// What was to be its value.
        value: String,
        /// The benchmark's keys.
        known: String,
    },
    /// The parameter cannot have that value.
    #[error("{benchmark}: {key}={value}: want {want} (keys of {benchmark}: {known})")]
    Value {
        /// Name of the benchmark.
        benchmark: &'static str,
        /// The parameter's key.
        key: &'static str,
        /// The value as it stands.
        value: String,
        /// What it may be, to follow "want".
        want: String,
        /// The benchmark's keys.
        known: String,
    },
    /// A parameter is given a second time.
    #[error("{benchmark}: {key} is given twice, the second time as {value}; give it once")]
    Twice {
        /// Name of the benchmark.
        benchmark: &'static str,
        /// The parameter's key.
        key: &'static str,
        /// The second value.
        value: String,
    },
}

fn known<B>(table: &[Parameter<B>]) -> String {
    table.iter().map(|parameter| parameter.key).collect::<Vec<_>>().join(", ")
}

/// Reads what follows `name:`.
pub(super) fn read<B: Described>(text: &str) -> Result<B, ParseBenchmarkError> {
    let table = B::parameters();
    let mut benchmark = B::default();
    let mut given: Vec<&'static str> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((key, value)) = part.split_once('=') else {
            return Err(ParseBenchmarkError::Form { benchmark: B::NAME, part: part.to_owned(), known: known(&table) });
        };
        let (key, value) = (key.trim(), value.trim());
        let Some(parameter) = table.iter().find(|parameter| parameter.key == key) else {
            let (key, value) = (key.to_owned(), value.to_owned());
            return Err(ParseBenchmarkError::Key { benchmark: B::NAME, key, value, known: known(&table) });
        };
        let (key, value) = (parameter.key, value.to_owned());
        if given.contains(&key) {
            return Err(ParseBenchmarkError::Twice { benchmark: B::NAME, key, value });
        }
        given.push(key);
        (parameter.set)(&mut benchmark, &value).map_err(|want| ParseBenchmarkError::Value {
            benchmark: B::NAME,
            key,
            value,
            want,
            known: known(&table),
        })?;
    }
    Ok(benchmark)
}

/// The shortest text that reads as the benchmark: what differs from the defaults.
pub(super) fn print<B: Described>(benchmark: &B, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(B::NAME)?;
    let default = B::default();
    let mut separator = ':';
    for parameter in B::parameters() {
        let value = (parameter.get)(benchmark);
        if value != (parameter.get)(&default) {
            write!(f, "{separator}{}={value}", parameter.key)?;
            separator = ',';
        }
    }
    Ok(())
}

/// The benchmark's part of `docs/workloads.md`.
pub(super) fn reference<B: Described>() -> String {
    let mut text = format!("## {}\n\n{}\n\n", B::NAME, B::ABOUT);
    text.push_str("| key | option | default | meaning |\n|---|---|---|---|\n");
    let default = B::default();
    for parameter in B::parameters() {
        let option = if parameter.option.is_empty() { String::new() } else { format!("`{}`", parameter.option) };
        let value = (parameter.get)(&default);
        text.push_str(&format!("| `{}` | {option} | `{value}` | {} |\n", parameter.key, parameter.help));
    }
    text.push_str(&format!("\nExample: `{}`\n", B::EXAMPLE));
    text
}

/// The benchmark's part of a command's help.
pub(super) fn help<B: Described>() -> String {
    let default = B::default();
    let line = |parameter: Parameter<B>| {
        let value = (parameter.get)(&default);
        let option = if parameter.option.is_empty() { String::new() } else { format!(" ({})", parameter.option) };
        format!("  {:<12} {}{option} [{value}]\n", parameter.key, parameter.help)
    };
    let lines: String = B::parameters().into_iter().map(line).collect();
    format!("{}, as in {}\n{lines}", B::NAME, B::EXAMPLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn printed_times_read_the_same(nanoseconds: u64) {
            let time = Duration::from_nanos(nanoseconds);
            prop_assert_eq!(Duration::read(&time.print()), Ok(time));
        }

        #[test]
        fn printed_numbers_read_the_same(number: f64) {
            prop_assume!(number.is_finite());
            prop_assert_eq!(f64::read(&number.print()), Ok(number));
        }
    }

    #[test]
    fn times_have_units() {
        for (text, nanoseconds) in [("0", 0), ("2s", 2_000_000_000), ("1.5ms", 1_500_000), ("20us", 20_000), ("3ns", 3)]
        {
            assert_eq!(Duration::read(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
        for text in ["", "2", "s", "-1s", "2h", "1e3s", "99999999999999999s"] {
            assert!(Duration::read(text).is_err(), "{text}");
        }
    }
}
