//! Names that need not be UTF-8, as text that leads back to them.
//!
//! A byte that is no UTF-8 is written `\xNN` with capital digits. A backslash that would begin such a mark by chance is written `\x5C`, and every other
//! one stands for itself, so that each name has one text and each text one name.

/// Length of `\xNN`.
const MARK: usize = 4;

/// The byte that a mark at the start of `text` stands for.
fn marked(text: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = text else { return None };
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    Some(digit(*high)? << 4 | digit(*low)?)
}

/// The text of a name.
#[must_use]
pub fn lossless(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        for (at, char) in valid.char_indices() {
            match char {
                '\\' if marked(&valid.as_bytes()[at..]).is_some() => out.push_str("\\x5C"),
                _ => out.push(char),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02X}"));
        }
    }
    out
}

/// The name that [`lossless`] wrote as `text`.
#[must_use]
pub fn bytes_of(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some(first) = rest.first() {
        let (byte, length) = marked(rest).map_or((*first, 1), |byte| (byte, MARK));
        bytes.push(byte);
        rest = &rest[length..];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_what_is_no_text_is_marked() {
        assert_eq!(lossless("/data/é \\ \\x4 \\xff".as_bytes()), "/data/é \\ \\x4 \\xff");
        assert_eq!(lossless(b"a\xff\\x41\\\xfe"), "a\\xFF\\x5Cx41\\\\xFE");
        // What no name is written as, a person may have written.
        assert_eq!(bytes_of("\\x41"), b"A");
    }

    proptest! {
        /// Bytes of which many begin a mark or are none of UTF-8.
        #[test]
        fn every_name_comes_back_from_its_text(
            name in proptest::collection::vec(prop_oneof![
                any::<u8>(), Just(b'\\'), Just(b'x'), Just(b'F'), Just(b'5'), Just(b'C'), Just(0xff)
            ], 0..40)
        ) {
            prop_assert_eq!(bytes_of(&lossless(&name)), name);
        }
    }
}
