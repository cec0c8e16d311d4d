//! Mutations of stored inputs: bytes changed, parts cut, doubled and exchanged, numbers replaced by extreme ones, and, of what is JSON or TOML, values
//! exchanged in the tree, so that more than the parser is reached.

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use serde_json::Value;

/// What an input is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Binary,
    /// Lines of words and numbers.
    Text,
    Json,
    Toml,
}

/// Longest part that is cut, doubled or taken from another input.
const MAX_PART: usize = 400;
/// Longest mutant: parts are doubled again and again.
const MAX_BYTES: usize = 64 << 10;

const EXTREMES: [u64; 16] = [
    0,
    1,
    31,
    0x7F,
    0xFFFF,
    0x1_0000,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    1 << 32,
    (1 << 40) - 1,
    (1 << 62) - 1,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

const NUMBERS: [&str; 20] = [
    "0",
    "1",
    "-1",
    "7",
    "4096",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "1e308",
    "1e-320",
    "-0.0",
    "0.1",
    "1e999",
    "9.99999999999999999999999999999",
];

const WORDS: [&str; 12] = ["", " ", "*", "..", "/", "/a b", "a\nb", "\u{0}", "%", "%4", "ä%", "\u{feff}"];

/// A mutant of one of `corpus`, which must not be empty, with parts of others.
pub fn mutant(corpus: &[Vec<u8>], kind: Kind, random: &mut SmallRng) -> Vec<u8> {
    let mut bytes = corpus.choose(random).expect("a corpus").clone();
    let other = corpus.choose(random).expect("a corpus");
    for _ in 0..=random.random_range(0..4) {
        match (kind, random.random_range(0..4)) {
            (Kind::Json, 0 | 1) => change_json(&mut bytes, random),
            (Kind::Toml, 0 | 1) => change_toml(&mut bytes, random),
            (Kind::Binary, _) | (_, 0) => change_bytes(&mut bytes, other, random),
            _ => change_text(&mut bytes, other, random),
        }
    }
    bytes.truncate(MAX_BYTES);
    bytes
}

/// A place in `length` things; 0 where there are none.
fn place(length: usize, random: &mut SmallRng) -> usize {
    random.random_range(0..length.max(1))
}

/// A part of what is there.
fn part<'a>(bytes: &'a [u8], random: &mut SmallRng) -> &'a [u8] {
    let begin = place(bytes.len(), random);
    let end = bytes.len().min(begin + random.random_range(0..MAX_PART));
    &bytes[begin..end]
}

fn change_bytes(bytes: &mut Vec<u8>, other: &[u8], random: &mut SmallRng) {
    let at = place(bytes.len(), random);
    let end = bytes.len().min(at + random.random_range(0..MAX_PART));
    match random.random_range(0..9) {
        0 | 1 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
        2 if at < bytes.len() => bytes[at] = random.random(),
        3 => bytes.truncate(at),
        4 => drop(bytes.splice(at..end, part(other, random).iter().copied())),
        5 => {
            let doubled = bytes[at..end].repeat(2);
            bytes.splice(at..end, doubled);
        }
        6 => drop(bytes.drain(at..end)),
        7 => {
            // As postcard and CBOR-like formats have them: seven bits a byte.
            let mut number = *EXTREMES.choose(random).expect("numbers");
            let mut long = Vec::new();
            while number > 0x7F {
                long.push(number as u8 | 0x80);
                number >>= 7;
            }
            long.push(number as u8);
            bytes.splice(at..bytes.len().min(at + 1), long);
        }
        _ => {
            // Words stand at even places, as fields of formats do.
            let number =
                EXTREMES.choose(random).expect("numbers").wrapping_add(random.random_range(0..3)).wrapping_sub(1);
            let word = if random.random() { number.to_le_bytes() } else { number.to_be_bytes() };
            let width = *[1, 2, 4, 8].choose(random).expect("widths");
            let begin = at / width * width;
            let word = if random.random() { &word[..width] } else { &word[8 - width..] };
            for (target, byte) in bytes[begin..].iter_mut().zip(word) {
                *target = *byte;
            }
        }
    }
}

fn change_text(bytes: &mut Vec<u8>, other: &[u8], random: &mut SmallRng) {
    let at = place(bytes.len(), random);
    match random.random_range(0..8) {
        0..=3 => {
            let is_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
            let Some(begin) = bytes[at..].iter().position(u8::is_ascii_digit).map(|skip| at + skip) else { return };
            let end = bytes[begin..].iter().position(|byte| !is_number(byte)).map_or(bytes.len(), |skip| begin + skip);
            bytes.splice(begin..end, NUMBERS.choose(random).expect("numbers").bytes());
        }
        4 | 5 => {
            // A line twice, gone, or one of another input.
            let line = line_at(bytes, at);
            let new = match random.random_range(0..3) {
                0 => bytes[line.clone()].repeat(2),
                1 => Vec::new(),
                _ => other[line_at(other, place(other.len(), random))].to_vec(),
            };
            bytes.splice(line, new);
        }
        6 => {
            let line = line_at(bytes, at);
            let words: Vec<&[u8]> = bytes[line.clone()].split(|byte| *byte == b' ').collect();
            let mut words: Vec<Vec<u8>> = words.into_iter().map(<[u8]>::to_vec).collect();
            let (one, two) = (place(words.len(), random), place(words.len(), random));
            match random.random() {
                true => words.swap(one, two),
                false => words[one] = WORDS.choose(random).expect("words").as_bytes().to_vec(),
            }
            bytes.splice(line, words.join(&b' '));
        }
        _ => {
            let part = part(other, random).to_vec();
            bytes.splice(at..at, part);
        }
    }
}

/// The line around `at`, with its line feed.
fn line_at(bytes: &[u8], at: usize) -> std::ops::Range<usize> {
    let begin = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
    let end = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |skip| at + skip + 1);
    begin..end
}

fn change_json(bytes: &mut Vec<u8>, random: &mut SmallRng) {
    if let Ok(mut value) = serde_json::from_slice::<Value>(bytes) {
        change_value(&mut value, random);
        *bytes = serde_json::to_vec(&value).expect("a value of JSON");
    }
}

fn change_toml(bytes: &mut Vec<u8>, random: &mut SmallRng) {
    let text = std::str::from_utf8(bytes).ok();
    if let Some(mut value) = text.and_then(|text| toml::from_str::<Value>(text).ok()) {
        change_value(&mut value, random);
        // Not all of JSON can be said in TOML.
        if let Ok(text) = toml::to_string(&value) {
            *bytes = text.into_bytes();
        }
    }
}

/// One value of the tree becomes another, is doubled, or goes.
fn change_value(root: &mut Value, random: &mut SmallRng) {
    let count = count(root);
    let donor = nth(root, place(count, random)).map(|value| value.clone()).unwrap_or_default();
    let Some(target) = nth(root, place(count, random)) else { return };
    match (random.random_range(0..6), &mut *target) {
        (0 | 1, Value::Array(list)) if !list.is_empty() => {
            let at = place(list.len(), random);
            match random.random_range(0..3) {
                0 => drop(list.remove(at)),
                1 => list.insert(at, list[at].clone()),
                _ => list.insert(at, donor),
            }
        }
        (0, Value::Object(fields)) => {
            let Some(name) = fields.keys().nth(place(fields.len(), random)).cloned() else { return };
            match random.random() {
                true => drop(fields.remove(&name)),
                false => drop(fields.insert(name, donor)),
            }
        }
        (2, _) => *target = donor,
        (3, _) => *target = Value::from(*WORDS.choose(random).expect("words")),
        (4, _) => *target = [Value::Null, Value::Array(Vec::new()), Value::from(true)][place(3, random)].clone(),
        _ => {
            let number = NUMBERS.choose(random).expect("numbers");
            *target = serde_json::from_str(number).unwrap_or_else(|_| Value::from(*number));
        }
    }
}

fn children(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Array(list) => list.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    }
}

fn count(value: &mut Value) -> usize {
    1 + children(value).into_iter().map(count).sum::<usize>()
}

/// The value of that number, from 0, the root first.
fn nth(value: &mut Value, number: usize) -> Option<&mut Value> {
    if number == 0 {
        return Some(value);
    }
    let mut left = number - 1;
    for child in children(value) {
        let within = count(child);
        if left < within {
            return nth(child, left);
        }
        left -= within;
    }
    None
}
