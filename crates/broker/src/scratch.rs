//! Objects to measure a server by, beside the agent that has it.

use std::collections::BTreeSet;
use stripewise_store::server::{ObjectName, ObjectStore, ServerError};

/// A server to measure: its objects are nobody else's, and are removed when this is dropped. What a killed process left is removed by the next one; there may be
/// one at a time.
pub trait Scratch: Send + Sync {
    /// Where the objects are.
    fn store(&self) -> &dyn ObjectStore;

    /// What these objects lie on, by names that servers which share something share.
    ///
    /// # Errors
    /// The server's.
    fn devices(&self, objects: &[ObjectName]) -> Result<BTreeSet<String>, ServerError>;

    /// What the measured times are of, and what is not in them.
    fn remark(&self) -> &'static str;
}
