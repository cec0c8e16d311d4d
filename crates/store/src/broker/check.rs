//! `stripewise check`.

use super::Core;
use crate::protocol::{Finding, Refusal};

impl Core {
    pub(super) fn check(&self, _repair: bool) -> Result<Vec<Finding>, Refusal> {
        Err(Refusal::Invalid { what: "check is not there yet".to_owned() })
    }
}
