//! Which files the processes below another one open: `stripewise run` says of plans only what concerns files that its program used.

use crate::connection::{Answer, Connection};
use crate::guard;
use rustix::process::Pid;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Mutex;
use stripewise_store::protocol::{MAX_PACKET_BYTES, Reply};

/// Of one watch; further files are not noted.
const MAX_PATHS: usize = 1 << 16;

/// Bytes of paths in one answer.
const ANSWER_BYTES: usize = MAX_PACKET_BYTES / 2;

/// Processes that are deeper below the watching one are not looked for.
const MAX_DEPTH: usize = 256;

/// The watches, by connection.
#[derive(Default)]
pub(crate) struct Opens(Mutex<HashMap<u64, Watch>>);

struct Watch {
    /// Who watches: what runs below it counts.
    process: Pid,
    paths: BTreeSet<String>,
}

impl Opens {
    /// Watches from the connection's first call on; answers with the paths that were opened since then, from behind `after`.
    pub(crate) fn since(&self, connection: &Connection, after: &str) -> Answer {
        let mut watches = guard(&self.0);
        let watch = watches
            .entry(connection.id)
            .or_insert_with(|| Watch { process: connection.peer.pid, paths: BTreeSet::new() });
        let (mut paths, mut bytes, mut more) = (Vec::new(), 0, false);
        for path in watch.paths.range::<str, _>((Bound::Excluded(after), Bound::Unbounded)) {
            bytes += path.len() + 8;
            more = bytes > ANSWER_BYTES;
            if more {
                break;
            }
            paths.push(path.clone());
        }
        Ok((Reply::OpenedPaths { paths, more }, Vec::new()))
    }

    /// The connection's process opens the file at `path`.
    pub(crate) fn note(&self, connection: &Connection, path: &str) {
        let mut watches = guard(&self.0);
        for watch in watches.values_mut() {
            let is_new = watch.paths.len() < MAX_PATHS && !watch.paths.contains(path);
            if is_new && is_below(connection.peer.pid, watch.process) {
                watch.paths.insert(path.to_owned());
            }
        }
    }

    pub(crate) fn end(&self, connection: &Connection) {
        guard(&self.0).remove(&connection.id);
    }
}

/// Whether `process` was started by `above`, or by one that was. One of which the system says nothing was not.
fn is_below(process: Pid, above: Pid) -> bool {
    let parents = std::iter::successors(Some(process), |process| parent_of(*process));
    parents.skip(1).take(MAX_DEPTH).any(|parent| parent == above)
}

fn parent_of(process: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The name, in parentheses, may hold any characters.
    let (_, fields) = stat.rsplit_once(')')?;
    Pid::from_raw(fields.split_whitespace().nth(1)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpid;

    #[test]
    fn a_child_is_below_its_parent_and_nothing_else() {
        let own = getpid();
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(is_below(pid, own) && is_below(pid, parent_of(own).unwrap()));
        assert!(!is_below(own, own) && !is_below(own, pid) && !is_below(pid, pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!is_below(pid, own), "nobody knows where one was that is gone");
    }
}
