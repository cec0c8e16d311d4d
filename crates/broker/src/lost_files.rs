//! Files that programs of this host had open when it was shut out of its cluster.
//!
//! The other hosts have gone on without this one: regions moved, files were truncated. So what programs here know of their files is true no more. Their
//! shared memory is *abandoned*: it says so, its gate stays shut, and other memory takes its place when the file is opened again. I/O that was inside
//! may still ask the agent for transfers of the old places. The memory that shows who is inside is therefore kept as `FILE.N.lost` in `run/`, for every agent of this boot, for as long as one of its
//! users lives.

use crate::guard;
use rustix::fs::{AtFlags, Dir, OFlags};
use rustix::io::Errno;
use std::sync::Mutex;
use stripewise_layout::FileId;
use stripewise_store::shared::control::{ControlBlock, Life};
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};
use stripewise_store::shared::processes::Processes;
use stripewise_store::shared::slots::Slots;
use stripewise_store::state::StateDirectory;

const LOST: &str = "lost";
/// A file is not lost so often while a process uses it.
const MAX_LOSSES: u32 = 1 << 16;

/// What programs may be inside of, by file.
#[derive(Default)]
pub(crate) struct LostFiles(Mutex<Vec<(FileId, Slots)>>);

fn names_of(state: &StateDirectory) -> rustix::io::Result<Vec<String>> {
    let names = Dir::read_from(state.run())?.map(|entry| Ok(entry?.file_name().to_str().ok().map(str::to_owned)));
    names.filter_map(rustix::io::Result::transpose).collect()
}

impl LostFiles {
    /// Those that an agent of this host noted before; those that nobody uses any more are forgotten.
    ///
    /// An error: whether a file is used cannot be seen. Without its memory an order of a program that is inside it would be carried out.
    pub(crate) fn load(state: &StateDirectory, processes: &Processes) -> rustix::io::Result<Self> {
        let mut found = Vec::new();
        for name in names_of(state)? {
            let mut parts = name.split('.');
            let (Some(file), Some(_), Some(LOST), None) = (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let Ok(file) = file.parse() else { continue };
            let memory = state.open_shared(&name, OFlags::RDWR)?;
            let users = match Slots::users_of_any_version(&memory) {
                // It was never made whole.
                Err(Errno::INVAL) => Vec::new(),
                users => users?,
            };
            if users.iter().any(|(slot, incarnation)| processes.is_alive(*slot, *incarnation)) {
                found.push((file, Slots::open(memory)?));
            } else {
                rustix::fs::unlinkat(state.run(), &name, AtFlags::empty())?;
            }
        }
        Ok(Self(Mutex::new(found)))
    }

    /// Whether the process is inside the file by memory that is none any more.
    pub(crate) fn has(&self, file: FileId, (slot, incarnation): (ProcessSlot, Incarnation)) -> bool {
        let is_inside = |slots: &Slots| {
            slots.users().any(|user| user == (slot, incarnation)) && slots.in_flight(slot).next().is_some()
        };
        guard(&self.0).iter().any(|(lost, slots)| *lost == file && is_inside(slots))
    }

    /// Abandons the memory of all files in `run/`. To be called while nobody serves programs here. Returns the files.
    pub(crate) fn lose_all(&self, state: &StateDirectory) -> rustix::io::Result<Vec<FileId>> {
        let mut lost = Vec::new();
        for name in names_of(state)? {
            let Some(file) = name.strip_suffix(".slots").and_then(|file| file.parse::<FileId>().ok()) else { continue };
            self.lose(state, file)?;
            lost.push(file);
        }
        Ok(lost)
    }

    fn lose(&self, state: &StateDirectory, file: FileId) -> rustix::io::Result<()> {
        let slots = Slots::open(state.open_shared(&format!("{file}.slots"), OFlags::RDWR)?)?;
        // Without a control block that can be read nobody has got the file open.
        if let Ok(control) = state.open_shared(&format!("{file}.ctl"), OFlags::RDWR)
            && let Ok(control) = ControlBlock::open(&control, file, true)
        {
            control.set_life(Life::Lost);
            if !control.gate().is_shut() {
                control.gate().shut();
            }
        }
        for kind in ["ctl", "ext"] {
            match rustix::fs::unlinkat(state.run(), format!("{file}.{kind}"), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        // Last: whoever is interrupted before this finds the file again.
        let old = format!("{file}.slots");
        for number in 0..MAX_LOSSES {
            let name = format!("{file}.{number}.{LOST}");
            match rustix::fs::renameat_with(state.run(), &old, state.run(), &name, rustix::fs::RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                result => {
                    result?;
                    guard(&self.0).push((file, slots));
                    return Ok(());
                }
            }
        }
        Err(Errno::EXIST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::processes_of;

    #[test]
    fn memory_that_a_program_uses_stays_and_what_cannot_be_read_is_not_taken_for_unused() {
        let root = tempfile::tempdir().unwrap();
        let state = StateDirectory::make(&root.path().join("state")).unwrap();
        let processes = processes_of(&state).unwrap();
        let (slot, incarnation) = processes.claim().unwrap();
        let made = |name: &str| Slots::build(&state.create_shared(name).unwrap()).unwrap();
        let [used, unused] = [FileId(1), FileId(2)].map(|file| format!("{file}.0.{LOST}"));
        made(&used).add_user(slot, incarnation).unwrap();
        drop(made(&unused));
        let unmade = format!("{}.1.{LOST}", FileId(2));
        drop(state.create_shared(&unmade).unwrap());

        let lost = LostFiles::load(&state, processes).unwrap();
        assert_eq!(guard(&lost.0).iter().map(|(file, _)| *file).collect::<Vec<_>>(), [FileId(1)]);
        let mut names = names_of(&state).unwrap();
        names.retain(|name| name.ends_with(LOST));
        assert_eq!(names, [&*used]);

        // As when there are no descriptors left.
        rustix::fs::unlinkat(state.run(), &used, AtFlags::empty()).unwrap();
        rustix::fs::symlinkat("elsewhere", state.run(), &used).unwrap();
        assert!(LostFiles::load(&state, processes).is_err());
        assert!(names_of(&state).unwrap().contains(&used));
    }
}
