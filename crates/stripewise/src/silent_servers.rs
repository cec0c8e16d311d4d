//! Says on standard error which server does not answer while a command goes on: the command may be waiting for it.
//!
//! The broker is asked, on a connection of its own: it waits on threads that it has anyway, so that a command that does without the server is not held up at its
//! end by a call of its own. What the command itself does on servers, copying data above all, waits in the kernel without limit.

use crate::messages::shown;
use crate::progress::Voice;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use stripewise_layout::Cluster;
use stripewise_layout::figures::duration;
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::protocol::{Admin, Reply, Request};

/// Most commands have ended by then.
const FIRST: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct End {
    ended: Mutex<bool>,
    changed: Condvar,
}

impl End {
    /// Whether the command goes on after this time.
    fn goes_on_after(&self, time: Duration) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(ended, time, |ended| !*ended);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Looks after the servers until it is dropped.
pub(crate) struct Waiting(Arc<End>);

impl Waiting {
    pub(crate) fn begin(voice: Voice, cluster: &Cluster) -> Self {
        let end = Arc::new(End::default());
        let watch = Watch { voice, state: cluster.state.clone(), servers: names(cluster), silent: BTreeSet::new() };
        let ending = Arc::clone(&end);
        // Without the thread nothing is said, and the command does what it does.
        let _ = std::thread::Builder::new().name("stripewise-wait".into()).spawn(move || watch.run(&ending));
        Self(end)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        *self.0.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}

/// Of each server its name and directory.
fn names(cluster: &Cluster) -> Vec<String> {
    let name = |directory: &Path, name: &str| format!("server {name} ({})", shown(directory));
    cluster.servers.iter().map(|server| name(server.url.directory(), &server.name)).collect()
}

struct Watch {
    voice: Voice,
    state: PathBuf,
    servers: Vec<String>,
    /// Those that were said not to answer.
    silent: BTreeSet<usize>,
}

impl Watch {
    fn run(mut self, end: &End) {
        let (mut client, mut pause) = (None, FIRST);
        while end.goes_on_after(pause) {
            pause = PAUSE;
            client = client.or_else(|| Client::connect(&self.state, ClientOptions::default()).ok());
            let answer = client.as_ref().map(|client| client.request(&Request::Admin(Admin::Usage), &[]));
            // Nothing more is said once the command has.
            let Some(answer) = answer.filter(|_| end.goes_on_after(Duration::ZERO)) else { continue };
            match answer {
                Ok((Reply::Usage { servers }, _)) => {
                    let silent = servers.iter().map(|server| server.silent_s);
                    self.report(silent.collect());
                }
                // A client that lost its broker looks for another by itself, and waits long for it.
                _ => client = None,
            }
        }
    }

    fn report(&mut self, silent: Vec<Option<u64>>) {
        for (number, (name, silent)) in self.servers.iter().zip(silent).enumerate() {
            match silent {
                Some(seconds) if self.silent.insert(number) => self.voice.say(format_args!(
                    "{name} has not answered for {}; what needs it waits or fails until it does; see to its mount",
                    duration(seconds as f64)
                )),
                None if self.silent.remove(&number) => self.voice.say(format_args!("{name} answers again")),
                _ => {}
            }
        }
    }
}
