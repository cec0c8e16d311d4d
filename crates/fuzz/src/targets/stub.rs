//! Stubs: what stands in an application's directory, where anybody may have written.

use crate::Outcome;
use stripewise_store::stub::{STUB_BYTES, Stub, StubError};

/// Inputs of another length count as if cut or filled up: of these alone the size decides.
pub fn run(bytes: &[u8]) -> Outcome {
    if bytes.len() != STUB_BYTES {
        assert_eq!(Stub::parse(bytes), Ok(None));
    }
    let mut whole = [b' '; STUB_BYTES];
    let used = bytes.len().min(STUB_BYTES);
    whole[..used].copy_from_slice(&bytes[..used]);
    let stub = match Stub::parse(&whole) {
        Ok(Some(stub)) => stub,
        Ok(None) => return Outcome::Refused,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return Outcome::Refused;
        }
    };
    match stub.to_bytes() {
        Ok(text) => assert_eq!(Stub::parse(&text), Ok(Some(stub))),
        Err(error) => assert!(matches!(error, StubError::PathTooLong { .. }), "{error}"),
    }
    Outcome::Read
}
