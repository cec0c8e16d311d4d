//! `trace.json`.

use crate::Outcome;
use std::path::Path;
use stripewise_trace::Manifest;

pub fn run(bytes: &[u8]) -> Outcome {
    let path = Path::new("trace.json");
    let manifest = match Manifest::parse(bytes, path) {
        Ok(manifest) => manifest,
        Err(error) => {
            assert!(error.to_string().contains("trace.json"), "{error}");
            return Outcome::Refused;
        }
    };
    let text = serde_json::to_vec(&manifest).unwrap();
    assert_eq!(Manifest::parse(&text, path).unwrap(), manifest);
    Outcome::Read
}
