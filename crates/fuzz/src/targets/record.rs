//! Records of the mapping table: a byte that says how long the key is, the key, the record.

use crate::Outcome;
use stripewise_broker::rmt;

pub fn run(bytes: &[u8]) -> Outcome {
    let Some((length, rest)) = bytes.split_first() else { return Outcome::Refused };
    let Some((key, value)) = rest.split_at_checked(usize::from(*length)) else { return Outcome::Refused };
    let earlier = rmt::record_of_version_3(key, value);
    if let Ok(record) = &earlier {
        assert_eq!(&rmt::rewritten(key, record).expect("it was just written"), record);
    }
    match rmt::rewritten(key, value) {
        Ok(record) => {
            assert_eq!(rmt::rewritten(key, &record).expect("it was just written"), record);
            Outcome::Read
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            if earlier.is_ok() { Outcome::Read } else { Outcome::Refused }
        }
    }
}
