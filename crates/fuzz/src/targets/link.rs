//! What comes over a link between hosts: a hello and frames. Whoever sends it has the cluster's key.

use crate::Outcome;
use stripewise_broker::hosts::{Decoder, FRAMES_VERSION, Frame, FrameError, Received, encode_hello};

/// Pieces as TCP may bring them are decoded as the whole is; what was decoded, encoded again, is decoded as the same.
pub fn run(bytes: &[u8]) -> Outcome {
    let (whole, end) = decode(bytes, bytes.len().max(1));
    let step = usize::from(bytes.last().copied().unwrap_or(0)) % 23 + 1;
    assert_eq!(decode(bytes, step), (whole.clone(), end.clone()));
    if let Err(error) = &end {
        assert!(!error.to_string().is_empty());
    }
    let mut encoded = Vec::new();
    for item in &whole {
        match item {
            Received::Hello { version, introduction } => {
                let mut hello = encode_hello(introduction);
                assert_eq!(hello[8..12], FRAMES_VERSION.to_le_bytes());
                hello[8..12].copy_from_slice(&version.to_le_bytes());
                encoded.extend_from_slice(&hello);
            }
            Received::Frame(frame) => encoded.extend_from_slice(&Frame::encode(frame.kind, frame.number, &frame.body)),
        }
    }
    assert_eq!(decode(&encoded, encoded.len().max(1)), (whole.clone(), Ok(())));
    if whole.is_empty() { Outcome::Refused } else { Outcome::Read }
}

fn decode(bytes: &[u8], step: usize) -> (Vec<Received>, Result<(), FrameError>) {
    let (mut decoder, mut received) = (Decoder::default(), Vec::new());
    for mut piece in bytes.chunks(step) {
        loop {
            match decoder.take(&mut piece) {
                Ok(Some(item)) => received.push(item),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.take(&mut piece), Err(error.clone()), "an error stays");
                    return (received, Err(error));
                }
            }
        }
    }
    (received, Ok(()))
}
