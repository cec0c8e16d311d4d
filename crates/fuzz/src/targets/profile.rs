//! `profile.json`.

use crate::Outcome;
use std::path::Path;
use stripewise_layout::{Order, RequestKind};
use stripewise_model::Profile;

pub fn run(bytes: &[u8]) -> Outcome {
    let path = Path::new("profile.json");
    let Ok(text) = std::str::from_utf8(bytes) else { return Outcome::Refused };
    let profile = match Profile::parse(text, path) {
        Ok(profile) => profile,
        Err(error) => {
            assert!(error.to_string().contains("profile.json"), "{error}");
            return Outcome::Refused;
        }
    };
    assert_eq!(Profile::parse(&profile.to_json(), path).unwrap(), profile);
    for server in &profile.servers {
        for kind in RequestKind::ALL {
            for order in [Order::Sequential, Order::Random] {
                assert!(server.line(kind, order).seconds(4096.0) >= 0.0);
            }
        }
    }
    Outcome::Read
}
