//! Files that programs of this host had open when it was shut out of its cluster.
//!
//! The other hosts have gone on without this one: regions moved, files were truncated. So what programs here know of their files is true no more. Their
//! shared memory is *abandoned*: it says so, its gate stays shut, and other memory takes its place when the file is opened again. I/O that was inside
//! may still ask the agent for transfers of the old places. The memory that shows who is inside is therefore kept as `FILE.N.lost` in `run/`, for every agent of this boot, for as long as one of its
//! users lives.

use crate::guard;
use rustix::fs::{AtFlags, Dir, OFlags};
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

fn names_of(state: &StateDirectory) -> Vec<String> {
    let Ok(run) = Dir::read_from(state.run()) else { return Vec::new() };
    run.flatten().filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned)).collect()
}

impl LostFiles {
    /// Those that an agent of this host noted before; those that nobody uses any more are forgotten.
    pub(crate) fn load(state: &StateDirectory, processes: &Processes) -> Self {
        let mut found = Vec::new();
        for name in names_of(state) {
            let mut parts = name.split('.');
            let (Some(file), Some(_), Some(LOST), None) = (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let memory = state.open_shared(&name, OFlags::RDWR);
            let is_used = memory.as_ref().is_ok_and(|memory| {
                let users = Slots::users_of_any_version(memory).unwrap_or_default();
                users.iter().any(|(slot, incarnation)| processes.is_alive(*slot, *incarnation))
            });
            match (memory.and_then(Slots::open), file.parse()) {
                (Ok(slots), Ok(file)) if is_used => found.push((file, slots)),
                _ => drop(rustix::fs::unlinkat(state.run(), &name, AtFlags::empty())),
            }
        }
        Self(Mutex::new(found))
    }

    /// Whether the process is inside the file by memory that is none any more.
    pub(crate) fn has(&self, file: FileId, (slot, incarnation): (ProcessSlot, Incarnation)) -> bool {
        let is_inside = |slots: &Slots| {
            slots.users().any(|user| user == (slot, incarnation)) && slots.in_flight(slot).next().is_some()
        };
        guard(&self.0).iter().any(|(lost, slots)| *lost == file && is_inside(slots))
    }

    /// Abandons the memory of all files in `run/`. To be called while nobody serves programs here. Returns the files; an error: the one whose memory could not be abandoned, and why.
    pub(crate) fn lose_all(&self, state: &StateDirectory) -> Result<Vec<FileId>, (FileId, rustix::io::Errno)> {
        let mut lost = Vec::new();
        for name in names_of(state) {
            let Some(file) = name.strip_suffix(".slots").and_then(|file| file.parse::<FileId>().ok()) else { continue };
            self.lose(state, file).map_err(|errno| (file, errno))?;
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
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        // Last: whoever is interrupted before this finds the file again.
        let old = format!("{file}.slots");
        for number in 0..MAX_LOSSES {
            let name = format!("{file}.{number}.{LOST}");
            match rustix::fs::renameat_with(state.run(), &old, state.run(), &name, rustix::fs::RenameFlags::NOREPLACE) {
                Err(rustix::io::Errno::EXIST) => {}
                result => {
                    result?;
                    guard(&self.0).push((file, slots));
                    return Ok(());
                }
            }
        }
        Err(rustix::io::Errno::EXIST)
    }
}
