//! The thread that makes the table's changes durable that nobody has synced: so a power failure takes the last second's at most.

use crate::context::Context;
use crate::log::note;
use crate::threads;
use crate::{BrokerError, guard};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Changes of the table that nobody has synced become durable within about this time.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

/// The thread that makes the table's changes durable, until dropped. What it leaves is made durable by the last good copy's making.
pub(crate) struct Flusher {
    stopping: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    pub(crate) fn start(context: &Arc<Context>) -> Result<Self, BrokerError> {
        let stopping = Arc::new((Mutex::new(false), Condvar::new()));
        let (context, until) = (Arc::clone(context), Arc::clone(&stopping));
        let flush = move || {
            let mut has_failed = false;
            loop {
                let stopping = guard(&until.0);
                let waited = until.1.wait_timeout_while(stopping, FLUSH_AFTER, |stopping| !*stopping);
                if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                    return;
                }
                let failed = context.table().flush().err();
                // It is tried again, and said once.
                if let Some(error) = failed.as_ref().filter(|_| !has_failed) {
                    note!(context.log(), warn, %error, "changes of the mapping table are not durable yet");
                }
                has_failed = failed.is_some();
            }
        };
        let thread = threads::spawn("stripewise-table", flush)?;
        Ok(Self { stopping, thread: Some(thread) })
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        *guard(&self.stopping.0) = true;
        self.stopping.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
