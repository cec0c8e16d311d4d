//! A line as it stands. Early versions have numbers as text, later ones phases as numbers, and arguments come and go with the call.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// What kind of record a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Phase {
    /// One call.
    Complete,
    /// A name with its hash, or what is known of a process.
    Metadata,
    /// Many calls added up.
    Sums,
    #[default]
    Other,
}

#[derive(Deserialize, Debug)]
pub(super) struct Line<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) cat: Cow<'a, str>,
    #[serde(rename = "ph", deserialize_with = "phase")]
    pub(super) phase: Phase,
    #[serde(borrow)]
    pub(super) pid: Word<'a>,
    #[serde(borrow, default)]
    pub(super) ts: Word<'a>,
    #[serde(borrow, default)]
    pub(super) dur: Word<'a>,
    #[serde(borrow, default)]
    pub(super) args: Arguments<'a>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(default)]
pub(super) struct Arguments<'a> {
    /// Of metadata.
    #[serde(borrow)]
    pub(super) name: Word<'a>,
    #[serde(borrow)]
    pub(super) value: Word<'a>,
    #[serde(borrow)]
    pub(super) hhash: Word<'a>,
    #[serde(borrow)]
    pub(super) hostname: Word<'a>,
    #[serde(borrow)]
    pub(super) fhash: Word<'a>,
    #[serde(borrow)]
    pub(super) fname: Word<'a>,
    #[serde(borrow)]
    pub(super) newpath_hash: Word<'a>,
    #[serde(borrow)]
    pub(super) fd: Word<'a>,
    #[serde(borrow)]
    pub(super) ret: Word<'a>,
    #[serde(borrow)]
    pub(super) size: Word<'a>,
    #[serde(borrow)]
    pub(super) count: Word<'a>,
    #[serde(borrow)]
    pub(super) offset: Word<'a>,
    #[serde(borrow)]
    pub(super) whence: Word<'a>,
    #[serde(borrow)]
    pub(super) length: Word<'a>,
    #[serde(borrow)]
    pub(super) flags: Word<'a>,
    #[serde(borrow)]
    pub(super) mode: Word<'a>,
}

/// A value of any kind.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) enum Word<'a> {
    Number(i128),
    Text(Cow<'a, str>),
    /// None, or one of which nothing is asked.
    #[default]
    Other,
}

impl Word<'_> {
    pub(super) fn number(&self) -> Option<i128> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => text.parse().ok(),
            Self::Other => None,
        }
    }

    pub(super) fn unsigned(&self) -> Option<u64> {
        self.number().and_then(|number| number.try_into().ok())
    }

    pub(super) fn signed(&self) -> Option<i64> {
        self.number().and_then(|number| number.try_into().ok())
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Word<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_i64<E>(self, value: i64) -> Result<Word<'de>, E> {
        Ok(Word::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Word<'de>, E> {
        Ok(Word::Number(value.into()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Word<'de>, E> {
        Ok(Word::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Word<'de>, E> {
        Ok(Word::Other)
    }

    fn visit_unit<E>(self) -> Result<Word<'de>, E> {
        Ok(Word::Other)
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Word<'de>, E> {
        Ok(Word::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Word<'de>, E> {
        Ok(Word::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Word<'de>, A::Error> {
        while values.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Word::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<Word<'de>, A::Error> {
        while values.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Word::Other)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Word<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

fn phase<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Phase, D::Error> {
    let word = Word::deserialize(deserializer)?;
    Ok(match (&word, word.text()) {
        (Word::Number(1), _) | (_, Some("X")) => Phase::Complete,
        (Word::Number(4), _) | (_, Some("M")) => Phase::Metadata,
        (Word::Number(2 | 3), _) | (_, Some("C" | "A")) => Phase::Sums,
        _ => Phase::Other,
    })
}
