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
//! | `cutting` | entries that have to go: truncation, moves |
//! | `copy_in` | from disks to logs |
//! | `capacity` | what is granted to whom |
//! | `shares` | granting, and giving up |
//! | `orphans` | what the dead leave |
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
mod truncation;
mod write_back;

pub(crate) use capacity::LogCapacity;
pub(crate) use keeper::{Keeper, Keeping};

use crate::managed::HINTS;
use crate::managed::TABLE;
use crate::managed::{Managed, unknown};
use crate::proof::Granted;
use crate::requests::{Answer, Carried};
use crate::{Core, guard};
use rustix::fs::OFlags;
use stripewise_store::protocol::{Refusal, Reply};
use stripewise_store::shared::control::FragmentMode;

impl Core {
    /// See [`stripewise_store::protocol::Request::Fragments`].
    pub(crate) fn fragments_for(&self, managed: &Managed, granted: Granted) -> Answer {
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(unknown(managed.file));
        }
        if managed.control.fragments() == FragmentMode::Wanted
            && let Err(refusal) = self.set_up_logs(managed, &mut inner)
        {
            // The file is as good without, so that a server that is away fails nobody's write.
            self.context.note(&format!("{}: its fragments go to the disks: {refusal}", inner.record.path));
            self.show_mode(managed, FragmentMode::Off);
        }
        if managed.control.fragments() == FragmentMode::Off {
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

    fn show_mode(&self, managed: &Managed, mode: FragmentMode) {
        managed.control.set_fragments(mode, self.context.cluster().fragment_threshold().0 as u32);
    }
}
