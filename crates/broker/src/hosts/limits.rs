//! Times that a link allows.

use std::time::Duration;

/// Times that a link allows. Both sides should have the same.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A link ends when nothing came for so long.
    pub silence: Duration,
    /// For how long a listener waits until a connection has proved its key and introduced itself.
    pub handshake: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        // A little less than hosts may hold others up, so that a question to a host that is gone has ended by then.
        Self { silence: Duration::from_millis(4750), handshake: Duration::from_secs(5) }
    }
}

impl Limits {
    /// After this a ping is sent if nothing else was.
    pub(super) fn ping(&self) -> Duration {
        (self.silence / 5).min(Duration::from_secs(1))
    }
}
