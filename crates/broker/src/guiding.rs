//! Which daemon decides about moves in a cluster of many hosts: one at a time, wherever it runs.
//!
//! On one host a lock in the state directory says so. Hosts have a state directory each, so the daemon tells the master besides, again and again. One that is not
//! heard of for [`LEASE`] is none any more. A new master knows of none, and takes the first that it hears of.

use crate::connection::Connection;
use crate::context::Context;
use crate::guard;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use stripewise_store::protocol::Refusal;

/// After so long another daemon may decide.
const LEASE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct Guiding(Mutex<Option<Guide>>);

struct Guide {
    host: String,
    process: u32,
    heard: Instant,
}

impl Guide {
    fn is_there(&self) -> bool {
        self.heard.elapsed() < LEASE
    }

    fn in_words(&self) -> String {
        format!("process {} on host {}", self.process, self.host)
    }
}

impl Guiding {
    /// Who decides, in words.
    pub(crate) fn guide(&self) -> Option<String> {
        guard(&self.0).as_ref().filter(|guide| guide.is_there()).map(Guide::in_words)
    }

    /// The process behind the connection decides, or does so no more. On a cluster of one host the lock of its state directory suffices.
    pub(crate) fn tell(
        &self,
        context: &Context,
        connection: &Connection,
        process: u32,
        begins: bool,
    ) -> Result<(), Refusal> {
        let Some(membership) = context.membership() else { return Ok(()) };
        let host = connection.host().unwrap_or_else(|| membership.host());
        match begins {
            true => self.begin(host, process),
            false => {
                self.end(host, process);
                Ok(())
            }
        }
    }

    /// The process of that host decides from now on, or still.
    fn begin(&self, host: &str, process: u32) -> Result<(), Refusal> {
        let mut guide = guard(&self.0);
        // Two processes of one host exclude each other by their host's lock.
        if let Some(other) = guide.as_ref().filter(|guide| guide.host != host && guide.is_there()) {
            return Err(Refusal::Invalid {
                what: format!(
                    "{} decides about moves of this cluster; a cluster has one daemon, or one `run --migrate`",
                    other.in_words()
                ),
            });
        }
        *guide = Some(Guide { host: host.to_owned(), process, heard: Instant::now() });
        Ok(())
    }

    /// It does so no more.
    fn end(&self, host: &str, process: u32) {
        guard(&self.0).take_if(|guide| guide.host == host && guide.process == process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_of_all_hosts_decides_at_a_time() {
        let guiding = Guiding::default();
        guiding.begin("h1", 7).unwrap();
        guiding.begin("h1", 7).unwrap();
        let refusal = guiding.begin("h2", 7).unwrap_err().to_string();
        assert!(refusal.contains("process 7 on host h1"), "{refusal}");
        // The same pid on another host.
        guiding.end("h2", 7);
        assert!(guiding.begin("h2", 7).is_err());
        guiding.end("h1", 7);
        assert_eq!(guiding.guide(), None);
        guiding.begin("h2", 9).unwrap();
        assert_eq!(guiding.guide().unwrap(), "process 9 on host h2");
    }
}
