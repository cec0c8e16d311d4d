//! Fragments of one file: switched on or off, and what became of them.
//!
//! A file that never had logs is switched by a word of its control block. One that has them keeps them as long as it is used: switched off, nothing more
//! is taken in, what is newer than the disks is written back, and what the logs hold goes on serving those who have them mapped; with the last of them they go.

use super::Fragments;
use crate::guard;
use crate::managed::{LogMemory, Managed, unknown};
use crate::rmt::Changes;
use stripewise_layout::{FileId, ServerId};
use stripewise_store::protocol::{FragmentStatus, Refusal, Reply};
use stripewise_store::shared::control::FragmentMode;
use stripewise_store::shared::fragments::Class;
use stripewise_store::shared::fragments::hints::Counter;

impl Fragments {
    /// See [`stripewise_store::protocol::Admin::SetFragments`].
    pub(crate) fn switch_fragments(&self, file: FileId, on: Option<bool>) -> Result<(), Refusal> {
        if on == Some(true) && !self.context.cluster().has_fragment_capacity() {
            return Err(Refusal::Invalid {
                what: "the process that serves the cluster has reserved no space for fragments; write `fragment_room = \"256MiB\"`, or another size, at \
                       the top of cluster.toml, and repeat once that process has ended: the next one reads the file again"
                    .to_owned(),
            });
        }
        let managed = self.files.managed(file)?;
        {
            let inner = guard(&managed.inner);
            if inner.freed {
                return Err(unknown(file));
            }
            let mut changes = Changes::default();
            changes.put_fragments_switch(file, on);
            self.context.table().commit(&changes)?;
            self.show_switched(&managed, on);
        }
        if managed.control.notices().fragments() == FragmentMode::Leaving {
            self.write_back.flush(&managed)?;
            self.keeping.watch(file);
        }
        Ok(())
    }

    fn show_switched(&self, managed: &Managed, on: Option<bool>) {
        let mode = match (managed.fragments.logs(), self.logs.wants_fragments(on)) {
            (None, _) => return self.logs.show_fragments_without_logs(managed, on),
            (Some(_), true) => FragmentMode::On,
            (Some(_), false) => FragmentMode::Leaving,
        };
        managed.control.notices().set_fragments(mode, self.context.cluster().fragment_threshold().0 as u32);
    }

    /// See [`Reply::FileFragments`].
    pub(crate) fn file_fragments(&self, file: FileId) -> Result<Reply, Refusal> {
        let managed = self.files.managed(file)?;
        let set_by_file = self.context.table().fragments_switch(file)?;
        let on = self.logs.wants_fragments(set_by_file);
        let servers = managed
            .fragments
            .logs()
            .map_or_else(Vec::new, |logs| logs.table.disks().filter_map(|disk| status_of(&logs, disk)).collect());
        Ok(Reply::FileFragments { on, set_by_file, servers })
    }
}

fn status_of(logs: &LogMemory, disk: ServerId) -> Option<FragmentStatus> {
    let log = logs.table.log(disk)?;
    let (mut used, mut dirty) = (0, 0);
    for seen in log.sets.all().filter(|seen| seen.state().is_filled()) {
        used += 1;
        dirty += u64::from(seen.state().is_newer());
    }
    let counted = |counter| logs.hints.counted(disk, counter);
    Some(FragmentStatus {
        hserver: disk.0,
        on: log.on.0,
        slot_bytes: logs.table.slot_bytes() as u32,
        slots: logs.table.granted(disk).into(),
        used,
        dirty,
        read_hits: counted(Counter::ReadHits),
        read_hit_bytes: counted(Counter::ReadHitBytes),
        write_hits: counted(Counter::WriteHits),
        write_hit_bytes: counted(Counter::WriteHitBytes),
        copied_in: counted(Counter::CopiedIn),
        written_back_bytes: counted(Counter::WrittenBackBytes),
        mean_return_ns_per_byte: Class::ALL.map(|class| logs.hints.mean_return(disk, class)),
        admitted: [counted(Counter::AdmittedFragments), counted(Counter::AdmittedRandom)],
        refused: [counted(Counter::RefusedFragments), counted(Counter::RefusedRandom)],
    })
}
