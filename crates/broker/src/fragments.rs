//! The broker's part of fragments on SSDs; `shared::fragments` has the order of operations, and says why it loses nothing.
//!
//! A file gets its logs when a program first has use for them. What is durable is only *that* there are logs (`rmt`, key `l`), before their objects are made. What they
//! hold is not: to its disk a log is what the page cache is. It survives the end of every process, since objects and `run/` do, so a broker
//! that finds a table of this boot goes on with it; without one, after a power failure, the logs are void and are removed. `fsync` has had
//! everything written back by then.
//!
//! | module | what |
//! |---|---|
//! | `logs` | making logs, taking them over, removing them |
//! | `write_back` | from logs to disks |
//! | `copy_in` | from disks to logs |
//! | `capacity` | what is granted to whom |
//! | `shares` | granting, and giving up |
//! | `orphans` | what the dead leave |
//! | `switch` | switching them on and off for one file, and what became of them |
//! | `keeper` | the thread that does this when it is time to |
//!
//! Whatever changes entries holds the file's *work* lock, which comes before the file's own. So a region that moves, or a file that is cut,
//! is nobody else's meanwhile, and no two write back the same bytes.

mod capacity;
mod copy_in;
mod keeper;
mod logs;
mod orphans;
mod shares;
mod switch;
mod write_back;

pub(crate) use capacity::LogCapacity;
pub(crate) use keeper::{Keeper, Keeping};
pub(crate) use logs::FragmentLogs;
pub(crate) use write_back::WriteBack;

use crate::connection::{Answer, Carried};
use crate::context::Context;
use crate::drained::Drained;
use crate::files::Files;
use crate::guard;
use crate::log::note;
use crate::managed::{HINTS, Managed, TABLE, unknown};
use crate::proof::Granted;
use crate::quiescing::Quiescing;
use crate::throttle::Throttle;
use rustix::fs::OFlags;
use std::sync::Arc;
use stripewise_store::protocol::{Refusal, Reply};
use stripewise_store::shared::control::FragmentMode;

/// Keeps the logs of all files in order, and says which file has any.
pub(crate) struct Fragments {
    context: Arc<Context>,
    drained: Arc<Drained>,
    quiescing: Arc<Quiescing>,
    files: Arc<Files>,
    throttle: Arc<Throttle>,
    logs: Arc<FragmentLogs>,
    write_back: Arc<WriteBack>,
    log_capacity: Arc<LogCapacity>,
    keeping: Arc<Keeping>,
}

impl Fragments {
    #[allow(clippy::too_many_arguments, reason = "one for each part that it uses")]
    pub(crate) fn new(
        context: &Arc<Context>,
        drained: &Arc<Drained>,
        quiescing: &Arc<Quiescing>,
        files: &Arc<Files>,
        throttle: &Arc<Throttle>,
        logs: &Arc<FragmentLogs>,
        write_back: &Arc<WriteBack>,
        log_capacity: &Arc<LogCapacity>,
        keeping: &Arc<Keeping>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            drained: Arc::clone(drained),
            quiescing: Arc::clone(quiescing),
            files: Arc::clone(files),
            throttle: Arc::clone(throttle),
            logs: Arc::clone(logs),
            write_back: Arc::clone(write_back),
            log_capacity: Arc::clone(log_capacity),
            keeping: Arc::clone(keeping),
        }
    }

    /// See [`stripewise_store::protocol::Request::Fragments`].
    pub(crate) fn fragments_for(&self, managed: &Managed, granted: Granted) -> Answer {
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(unknown(managed.file));
        }
        if managed.control.notices().fragments() == FragmentMode::Wanted
            && let Err(refusal) = self.logs.set_up_logs(managed, &mut inner)
        {
            // The file is as good without, so that a server that is away fails nobody's write.
            note!(self.context.log(), warn, path = %inner.record.path, error = %refusal, "fragments of a file go to the disks");
            self.logs.show_mode(managed, FragmentMode::Off);
        }
        if managed.control.notices().fragments() == FragmentMode::Off {
            return Ok((Reply::Done, Vec::new()));
        }
        let file = managed.file;
        self.keeping.watch(file);
        let open = |kind: &str, access: OFlags| {
            self.context
                .state()
                .open_shared(&format!("{file}.{kind}"), access)
                .map(Carried::Own)
                .map_err(|errno| Refusal::Table { what: format!("the fragments' memory of file {file}: {errno}") })
        };
        let access = if granted.writable { OFlags::RDWR } else { OFlags::RDONLY };
        Ok((Reply::Fragments, vec![open(TABLE, access)?, open(HINTS, OFlags::RDWR)?]))
    }
}
